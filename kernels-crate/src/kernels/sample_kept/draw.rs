//! Draws from the tokens that a row's filters keep, and what the sampling kernels write.

use super::crew::Crew;
use super::view::{Slice, View};
use crate::abi::kept::{KeptParams, THREADS};
use crate::abi::{NO_TOKEN, TILE_V};
use crate::arch;
use crate::candidate::{Key, Leaders};
use crate::dims::output_index;
use crate::filters::keeps;
use crate::gumbel::Hint;
use crate::kernels::sample_simt::row_params;
use crate::philox::{GROUP, PAIR_BIT, Subkey};
use crate::score::{RowParams, offer_pair, score, stays_below};
use crate::status::Status;

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
            let floors = crew.reduce_block(|thread| to_words(drawn.floors(thread)), merge);
            let level = drawn.level(from_words(floors));
            let leaders = crew.reduce(|thread| to_words(drawn.leaders(thread, level)), merge);
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
    /// What tokens of the thread's first group are sure to reach: the one with the greatest
    /// noise.
    #[inline(always)]
    unsafe fn floors(&self, thread: u32) -> Leaders {
        let mut floors = Leaders::NONE;
        self.each_group(thread, 1, |token, _| {
            let subkey = self.subkey.opaque();
            let (member, floor) = Hint::new(subkey.least(token / GROUP)).floor();
            let token = token + member;
            // SAFETY: the values are there.
            let y = unsafe { self.value(token) };
            if y > f32::NEG_INFINITY {
                floors.offer(Key::new(score(y, self.temperature, floor), token));
            }
        });
        floors
    }

    /// The best of the thread's tokens, as far as they reach `level`.
    #[inline(always)]
    unsafe fn leaders(&self, thread: u32, level: f32) -> Leaders {
        let mut leaders = Leaders::NONE;
        let last_y = self.last.score();
        self.each_group(thread, u32::MAX, |token, group| {
            // SAFETY: the values are there.
            let highest = unsafe { self.highest(token, group, thread) };
            if highest == f32::NEG_INFINITY || highest < last_y {
                return;
            }
            let subkey = self.subkey.opaque();
            let bound = Hint::new(subkey.least(token / GROUP)).bound();
            let threshold = self.threshold(level, leaders);
            if stays_below(highest, self.temperature, bound, threshold) {
                return;
            }
            let end = token + arch::opaque(PAIR_BIT);
            let mut base = token;
            while base != end {
                // SAFETY: the values are there.
                let y = unsafe { [self.value(base), self.value(base + PAIR_BIT)] };
                let (threshold, subkey) = (self.threshold(level, leaders), subkey.opaque());
                offer_pair(y, base, self.temperature, subkey, threshold, &mut leaders);
                base += 1;
            }
        });
        leaders
    }

    /// Hands the thread the first token of each of its groups, of the first `most`, and the
    /// group's index in the slice's tiles.
    #[inline(always)]
    fn each_group(&self, thread: u32, most: u32, mut run: impl FnMut(u32, u32)) {
        let (mut group, mut left) = (thread, most);
        while left != 0 && group < self.slice.tiles * (TILE_V / GROUP) {
            run(self.slice.tile_token.wrapping_add(group * GROUP), group);
            group += THREADS;
            left -= 1;
        }
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
fn to_words(leaders: Leaders) -> [u64; 2] {
    [leaders.first.bits(), leaders.second.bits()]
}

#[inline(always)]
fn from_words([first, second]: [u64; 2]) -> Leaders {
    Leaders { first: Key::from_bits(first), second: Key::from_bits(second) }
}

#[inline(always)]
fn merge(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    to_words(from_words(a).merge(from_words(b)))
}

/// Writes the outputs at `at`.
#[inline(always)]
unsafe fn write(params: &KeptParams, at: u64, leaders: Leaders, status: Status) {
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
