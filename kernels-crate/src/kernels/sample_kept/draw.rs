//! Draws from the tokens that a row's filters keep, and what the sampling kernels write.

use super::crew::{Crew, LIST};
use super::histogram::Histogram;
use super::view::{Slice, View};
use crate::abi::kept::{KeptParams, THREADS};
use crate::abi::{NO_TOKEN, TILE_V};
use crate::arch;
use crate::candidate::{Key, Leaders};
use crate::dims::output_index;
use crate::filters::keeps;
use crate::gumbel::Hint;
use crate::kernels::sample_simt::row_params;
use crate::philox::{GROUP, PAIR, PAIR_BIT, Subkey};
use crate::score::{RowParams, at_noise, offer_pair, score};
use crate::status::Status;

/// Groups whose bounds are kept from one look at them to the next.
const REACHES: u32 = (size_of::<Histogram>() / size_of::<f32>()) as u32;

/// Groups that may be listed.
const LISTED: u32 = (LIST * size_of::<Key>() / size_of::<u32>()) as u32;

/// A block's part of one draw.
#[derive(Clone, Copy)]
struct Draw {
    slice: Slice,
    first_token: u32,
    /// The least key that is kept.
    last: Key,
    temperature: f32,
    subkey: Subkey,
    with_margin: bool,
}

/// Draws each of a row's tokens from those with keys from `last` on.
///
/// # Safety
/// All threads of the cluster; the slice's values are there.
#[inline(always)]
pub(super) unsafe fn draw<const CLUSTER: u32>(
    crew: &mut Crew<CLUSTER>,
    view: View<'_>,
    last: Key,
    status: Status,
) {
    let sample = &view.params.sample;
    let mut draw = 0;
    while draw < sample.draws {
        // SAFETY: the caller's promise; `row < B`.
        unsafe {
            let RowParams { temperature, key } = row_params(sample, view.row());
            let drawn = Draw {
                slice: view.slice(crew),
                first_token: sample.first_token,
                last,
                temperature,
                subkey: Subkey::new(key, draw),
                with_margin: !sample.margins.is_null(),
            };
            // Nothing is on the pieces now, and no keys are gathered.
            let reaches = (&raw mut (*crew.shared).pieces).cast::<f32>();
            let n = &raw mut (*crew.shared).n_keys;
            let give = |thread| {
                if thread == 0 {
                    n.write(0);
                }
                to_words(drawn.floors(thread, reaches))
            };
            let level = drawn.level(from_words(crew.reduce_block(give, merge)));
            let list = (&raw mut (*crew.shared).gathered.keys).cast::<u32>();
            crew.leg(|thread| drawn.list(thread, reaches, level, (list, n)));
            let listed = (list.cast_const(), n.read());
            let leaders =
                crew.reduce(|thread| to_words(drawn.leaders(thread, listed, level)), merge);
            let leaders = from_words(leaders);
            let is_writer = crew.rank() == 0;
            crew.leg(|thread| {
                if is_writer && thread == 0 {
                    write(
                        view.params,
                        output_index(view.row(), sample.draws, draw),
                        leaders,
                        status,
                    );
                }
            });
        }
        draw += 1;
    }
}

impl Draw {
    /// What tokens of the thread's groups are sure to reach: of each group the one with the
    /// greatest noise. Leaves in `reaches` what no token of a group exceeds.
    #[inline(always)]
    unsafe fn floors(&self, thread: u32, reaches: *mut f32) -> Leaders {
        let mut floors = Leaders::NONE;
        let last_y = self.last.score();
        self.each_group(thread, |token, group| {
            // SAFETY: the values are there; there is a place for each of the first groups.
            unsafe {
                let highest = self.highest(token, group, thread);
                let mut reach = f32::NEG_INFINITY;
                // Of most groups a filter may keep nothing.
                if highest > f32::NEG_INFINITY && highest >= last_y {
                    let hint = Hint::new(self.subkey.opaque().least(token / GROUP));
                    reach = at_noise(highest, self.temperature, hint.bound());
                    let (member, floor) = hint.floor();
                    let y = self.value(token + member);
                    if y > f32::NEG_INFINITY {
                        let reached = score(y, self.temperature, floor);
                        floors.offer(Key::new(reached, token + member));
                    }
                }
                if group < REACHES {
                    reaches.add(group as usize).write(reach);
                }
            }
        });
        floors
    }

    /// Lists the thread's groups that may have a token which reaches `level`, and counts them,
    /// even where there is no room for more.
    #[inline(always)]
    unsafe fn list(
        &self,
        thread: u32,
        reaches: *const f32,
        level: f32,
        (list, n): (*mut u32, *mut u32),
    ) {
        self.each_group(thread, |_, group| {
            // SAFETY: the thread has left it there; the list has room for so many.
            unsafe {
                let is_known = group < REACHES;
                let reach =
                    if is_known { reaches.add(group as usize).read() } else { f32::INFINITY };
                if reach > f32::NEG_INFINITY && reach >= level {
                    let at = arch::block_add_u32(n, 1);
                    if at < LISTED {
                        list.add(at as usize).write(group);
                    }
                }
            }
        });
    }

    /// The best of the thread's tokens, as far as they reach `level`: of the groups listed, or
    /// of all if those are too many, threads take pairs in turn.
    #[inline(always)]
    unsafe fn leaders(&self, thread: u32, (list, n): (*const u32, u32), level: f32) -> Leaders {
        const PAIRS: u32 = GROUP / PAIR as u32;
        let mut leaders = Leaders::NONE;
        let groups = if n <= LISTED { n } else { self.groups() };
        let mut at = thread;
        while at < groups * PAIRS {
            let mut group = at / PAIRS;
            if n <= LISTED {
                // SAFETY: it is one of those listed.
                group = unsafe { list.add(group as usize).read() };
            }
            let base = self.token(group) + at % PAIRS;
            // SAFETY: the values are there.
            let y = unsafe { [self.value(base), self.value(base + PAIR_BIT)] };
            let (threshold, subkey) = (self.threshold(level, leaders), self.subkey.opaque());
            offer_pair(y, base, self.temperature, subkey, threshold, &mut leaders);
            at += THREADS;
        }
        leaders
    }

    /// Hands the thread the first token of each of its groups, and the group's index in the
    /// slice's tiles.
    #[inline(always)]
    fn each_group(&self, thread: u32, mut run: impl FnMut(u32, u32)) {
        let mut group = thread;
        while group < self.groups() {
            run(self.token(group), group);
            group += THREADS;
        }
    }

    #[inline(always)]
    fn groups(&self) -> u32 {
        self.slice.tiles * (TILE_V / GROUP)
    }

    /// The first token of a group.
    #[inline(always)]
    fn token(&self, group: u32) -> u32 {
        self.slice.tile_token.wrapping_add(group * GROUP)
    }

    /// The score that counts of the best two: a margin's is the second's.
    #[inline(always)]
    fn level(&self, leaders: Leaders) -> f32 {
        if self.with_margin { leaders.second.score() } else { leaders.first.score() }
    }

    #[inline(always)]
    fn threshold(&self, level: f32, leaders: Leaders) -> f32 {
        let own = self.level(leaders);
        if own > level { own } else { level }
    }

    /// At least the greatest value of a group's tokens that are kept, and no more than the
    /// greatest of all of them.
    #[inline(always)]
    unsafe fn highest(&self, token: u32, group: u32, thread: u32) -> f32 {
        if let Some(at) = self.slice.whole_group(self.first_token, group) {
            // SAFETY: the caller's promise.
            return unsafe { self.slice.highest_of_group(at, thread) };
        }
        let mut highest = f32::NEG_INFINITY;
        let (mut i, members) = (0, arch::opaque(GROUP));
        while i < members {
            // SAFETY: the caller's promise.
            let y = unsafe { self.value(token + i) };
            highest = if y > highest { y } else { highest };
            i += 1;
        }
        highest
    }

    /// A token's value, `−inf` if it is not kept or not one of the slice's.
    #[inline(always)]
    unsafe fn value(&self, token: u32) -> f32 {
        let index = token.wrapping_sub(self.first_token);
        let at = index.wrapping_sub(self.slice.first);
        if at >= self.slice.len {
            return f32::NEG_INFINITY;
        }
        // SAFETY: it is one of the slice's.
        let y = unsafe { self.slice.values.add(at as usize).read() };
        if keeps(self.last)(index, y) { y } else { f32::NEG_INFINITY }
    }
}

#[inline(always)]
pub(super) fn to_words(leaders: Leaders) -> [u64; 2] {
    [leaders.first.bits(), leaders.second.bits()]
}

#[inline(always)]
pub(super) fn from_words([first, second]: [u64; 2]) -> Leaders {
    Leaders { first: Key::from_bits(first), second: Key::from_bits(second) }
}

#[inline(always)]
pub(super) fn merge(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    to_words(from_words(a).merge(from_words(b)))
}

/// What the sampling kernel saw in a row of which it has drawn nothing.
///
/// # Safety
/// The module's preconditions; `row < B`.
#[inline(always)]
pub(super) unsafe fn seen(params: &KeptParams, row: u32) -> Status {
    let sample = &params.sample;
    let first_output = output_index(row, sample.draws, 0) as usize;
    // SAFETY: the caller's promise.
    let seen = unsafe { arch::load_shared_u32(sample.status.add(first_output)) };
    Status::from_bits(seen & !Status::NO_CANDIDATE.bits())
}

/// Writes the outputs at `at`.
#[inline(always)]
pub(super) unsafe fn write(params: &KeptParams, at: u64, leaders: Leaders, status: Status) {
    let (sample, at, mut status) = (&params.sample, at as usize, status);
    if leaders.first.token() == NO_TOKEN {
        status.insert(Status::NO_CANDIDATE);
    }
    // SAFETY: `at` is inside `[B, S]`.
    unsafe {
        sample.tokens.add(at).write(leaders.first.token());
        sample.status.add(at).write(status.bits());
        if !sample.scores.is_null() {
            sample.scores.add(at).write(leaders.first.score());
        }
        if !sample.margins.is_null() {
            sample.margins.add(at).write(leaders.margin());
        }
    }
}
