//! The tokens of a row that were gathered, and what a block finds among them.

use super::crew::{Crew, LIST, add};
use super::draw::{from_words, merge, to_words, write};
use super::goal::find_place;
use super::histogram::Histogram;
use super::row::{self, value_after_rules};
use super::short::ShortRow;
use crate::abi::NO_TOKEN;
use crate::abi::kept::{KeptParams, THREADS};
use crate::arch;
use crate::candidate::{Key, Leaders};
use crate::dims::output_index;
use crate::kernels::sample_simt::row_params;
use crate::nucleus::Limits;
use crate::philox::Subkey;
use crate::scale::Scale;
use crate::score::{RowParams, score, token_noise};
use crate::status::Status;

/// Where the key of a token that was drawn is left, of the first [`LIST`].
#[inline(always)]
pub(super) fn drawn_key(crew: &Crew<1>, draw: u32) -> *mut Key {
    // SAFETY: the block's own memory.
    let masses = unsafe { &raw mut (*crew.shared).masses };
    masses.cast::<Key>().wrapping_add(draw as usize)
}

/// Scores that a block has room for: where it has a listed row, which is done with.
const SCORES: u32 = (size_of::<ShortRow>() / size_of::<f32>()) as u32;

/// How the tokens of a row score in one draw.
#[derive(Clone, Copy)]
struct Scored {
    first_token: u32,
    temperature: f32,
    subkey: Subkey,
}

impl Scored {
    #[inline(always)]
    unsafe fn new(params: &KeptParams, row: u32, draw: u32) -> Self {
        // SAFETY: the caller's promise; `row < B`.
        let RowParams { temperature, key } = unsafe { row_params(&params.sample, row) };
        let first_token = params.sample.first_token;
        Self { first_token, temperature, subkey: Subkey::new(key, draw) }
    }

    /// The score of a token, by the key of its value, which is not `−inf`.
    #[inline(always)]
    fn score(&self, key: Key) -> f32 {
        let token = self.first_token.wrapping_add(key.token());
        score(key.score(), self.temperature, token_noise(self.subkey.opaque(), token))
    }
}

/// A row and the tokens of it that were gathered.
#[derive(Clone, Copy)]
pub(super) struct Gathered {
    /// `[n]`.
    pub(super) keys: *mut Key,
    pub(super) n: u32,
    pub(super) scale: Scale,
}

/// Of all methods: all threads of the block, but for the first three; the keys are there.
impl Gathered {
    /// Hands over the thread's keys, and their places.
    #[inline(always)]
    pub(super) unsafe fn each(&self, thread: u32, mut run: impl FnMut(u32, Key)) {
        let mut at = thread;
        while at < self.n {
            // SAFETY: there are so many.
            run(at, unsafe { self.keys.add(at as usize).read() });
            at += THREADS;
        }
    }

    #[inline(always)]
    pub(super) fn gap(&self, key: Key) -> f32 {
        self.scale.capped_gap(key.score())
    }

    #[inline(always)]
    fn mass(&self, key: Key) -> u64 {
        self.scale.mass(self.gap(key))
    }

    /// The highest value; `−inf` if there is none.
    #[inline(always)]
    pub(super) unsafe fn highest(&self, crew: &Crew<1>) -> f32 {
        let give = |thread| {
            let mut first = Key::NONE;
            // SAFETY: the caller's promise.
            unsafe { self.each(thread, |_, key| first = core::cmp::max(first, key)) };
            [first.bits()]
        };
        // SAFETY: the caller's promise.
        let [first] = unsafe { crew.reduce_block(give, |[a], [b]| [core::cmp::max(a, b)]) };
        Key::from_bits(first).score()
    }

    /// Puts the tokens on their rungs.
    #[inline(always)]
    pub(super) unsafe fn climb(&self, crew: &Crew<1>) {
        // SAFETY: the caller's promise; legs part what is written from what is read.
        unsafe {
            let ladder = &raw mut (*crew.shared).ladder;
            crew.leg(|thread| Histogram::write(ladder, thread, 0, 0));
            crew.leg(|thread| {
                self.each(thread, |_, key| {
                    let gap = self.gap(key);
                    let (rung, mass) = (self.scale.rung(gap), self.scale.mass(gap));
                    Histogram::add(ladder, thread, [rung], [mass]);
                });
            });
        }
    }

    /// Lists the likeliest `n`, all if there are no more, and what is on the rung of the last of
    /// them, and tells how many these are. The tokens are on their rungs.
    #[inline(always)]
    pub(super) unsafe fn list_best(&self, crew: &Crew<1>, n: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            let (place, _) = find_place(crew, &raw mut (*crew.shared).ladder, false, n as u64);
            self.list(crew, |rung| rung <= place)
        }
    }

    /// Lists those on the rungs that are `wanted`, as far as there is room, and tells how many
    /// there are.
    #[inline(always)]
    pub(super) unsafe fn list(&self, crew: &Crew<1>, wanted: impl Fn(u32) -> bool) -> u32 {
        // SAFETY: the caller's promise; legs part what is written from what is read.
        unsafe {
            let n = &raw mut (*crew.shared).n_keys;
            let list = (&raw mut (*crew.shared).gathered.keys).cast::<Key>();
            crew.leg(|thread| {
                if thread == 0 {
                    n.write(0);
                }
            });
            crew.leg(|thread| {
                self.each(thread, |_, key| {
                    if wanted(self.scale.rung(self.gap(key))) {
                        let at = arch::block_add_u32(n, 1);
                        if at < LIST as u32 {
                            list.add(at as usize).write(key);
                        }
                    }
                });
            });
            n.read()
        }
    }

    /// Puts those that are needed for the likeliest `n` into [`ShortRow::found`], and nothing
    /// behind them, and tells how many these are; none if there is not room for them. `n` is 0
    /// where all are needed.
    #[inline(always)]
    pub(super) unsafe fn find_likeliest(&self, crew: &Crew<1>, n: u32) -> Option<u32> {
        // SAFETY: the caller's promise.
        unsafe {
            let (mut from, mut found) = (self.keys, self.n);
            if found > THREADS && n > 0 {
                self.climb(crew);
                found = self.list_best(crew, n);
                from = (&raw mut (*crew.shared).gathered.keys).cast();
                if found > LIST as u32 {
                    return None;
                }
            }
            if found > THREADS {
                return None;
            }
            let to = (&raw mut (*crew.shared).short.found).cast::<Key>();
            crew.leg(|thread| {
                let is_there = thread < found;
                let key = if is_there { from.add(thread as usize).read() } else { Key::NONE };
                to.add(thread as usize).write(key);
            });
            Some(found)
        }
    }

    /// How many have a value from `y` on.
    #[inline(always)]
    pub(super) unsafe fn rank(&self, crew: &Crew<1>, y: f32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            let give = |thread| {
                let mut n = 0;
                self.each(thread, |_, key| n += (key.score() >= y) as u64);
                [n]
            };
            let [n] = crew.reduce_block(give, add);
            n as u32
        }
    }

    /// Draws the row's tokens from those within its limits, and tells whether they are right; all
    /// tokens from `floor` on are gathered. Nobody looks for where the limits lie: the best of all
    /// tokens, which the sampling kernel has found if the row is judged, is right if it is within
    /// them; else those are among the likelier.
    #[inline(always)]
    pub(super) unsafe fn draw_nucleus(
        &self,
        crew: &Crew<1>,
        params: &KeptParams,
        (row, is_judged, is_ruled): (u32, bool, bool),
        floor: f32,
        limits: Limits,
    ) -> bool {
        // SAFETY: the caller's promise; `row < B`; legs part what is written from what is read.
        unsafe {
            let scores = (&raw mut (*crew.shared).short).cast::<f32>();
            let mut draw = 0;
            while draw < params.sample.draws {
                let scored = Scored::new(params, row, draw);
                let (mut drawn, mut leaders) = (Key::NONE, Leaders::NONE);
                if is_judged {
                    drawn = row::drawn_key(params, row, draw);
                }
                let (mut least, mut are_scored) = (drawn, false);
                loop {
                    let likelier = self.above(crew, least);
                    if least == Key::NONE || least.score() < floor {
                        // It, or any, may be among what was not gathered.
                        if limits.admit_below(likelier, floor) {
                            return false;
                        }
                    } else {
                        let [may_be, is_kept] = limits.admit(likelier, least.score());
                        if may_be != is_kept {
                            return false;
                        }
                        if is_kept {
                            break;
                        }
                    }
                    if !are_scored {
                        if self.n > SCORES {
                            return false;
                        }
                        crew.leg(|thread| {
                            self.each(thread, |at, key| {
                                if key > least {
                                    scores.add(at as usize).write(scored.score(key));
                                }
                            });
                        });
                        are_scored = true;
                    }
                    let score =
                        |at: u32, key| (key > least).then(|| scores.add(at as usize).read());
                    (drawn, leaders) = self.best(crew, scored.first_token, score);
                    // The likeliest is within all limits.
                    if drawn == Key::NONE {
                        return false;
                    }
                    least = self.least_of(params, (row, is_ruled), drawn, leaders);
                }
                self.keep(crew, params, row, draw, (drawn, leaders));
                draw += 1;
            }
        }
        true
    }

    /// Draws the row's tokens from those with keys from `last` on.
    #[inline(always)]
    pub(super) unsafe fn draw_all(&self, crew: &Crew<1>, params: &KeptParams, row: u32, last: Key) {
        let mut draw = 0;
        while draw < params.sample.draws {
            // SAFETY: the caller's promise; `row < B`.
            unsafe {
                let scored = Scored::new(params, row, draw);
                let score = |_, key| (key >= last).then(|| scored.score(key));
                let (drawn, leaders) = self.best(crew, scored.first_token, score);
                self.keep(crew, params, row, draw, (drawn, leaders));
            }
            draw += 1;
        }
    }

    /// Writes the outputs of a draw, if they are not what the sampling kernel wrote, and leaves the
    /// key of the token drawn.
    #[inline(always)]
    unsafe fn keep(
        &self,
        crew: &Crew<1>,
        params: &KeptParams,
        row: u32,
        draw: u32,
        (drawn, leaders): (Key, Leaders),
    ) {
        crew.leg(|thread| {
            if thread == 0 {
                let at = output_index(row, params.sample.draws, draw);
                // SAFETY: the caller's promise.
                unsafe {
                    if leaders.first != Key::NONE {
                        // Of what is not finite, no guess is made.
                        write(params, at, leaders, Status::OK);
                    }
                    if draw < LIST as u32 {
                        drawn_key(crew, draw).write(drawn);
                    }
                }
            }
        });
    }

    /// The best of the tokens that have a score: the key of the first, and both.
    #[inline(always)]
    unsafe fn best(
        &self,
        crew: &Crew<1>,
        first_token: u32,
        score: impl Fn(u32, Key) -> Option<f32>,
    ) -> (Key, Leaders) {
        let give = |thread| {
            let (mut drawn, mut leaders) = (Key::NONE, Leaders::NONE);
            let offer = |at, key: Key| {
                if let Some(score) = score(at, key) {
                    let before = leaders.first;
                    leaders.offer(Key::new(score, first_token.wrapping_add(key.token())));
                    drawn = if leaders.first == before { drawn } else { key };
                }
            };
            // SAFETY: the caller's promise.
            unsafe { self.each(thread, offer) };
            let [first, second] = to_words(leaders);
            [first, second, drawn.bits()]
        };
        // SAFETY: the caller's promise.
        let [first, second, drawn] = unsafe {
            crew.reduce_block(give, |a, b| {
                let [first, second] = merge([a[0], a[1]], [b[0], b[1]]);
                [first, second, if first == a[0] { a[2] } else { b[2] }]
            })
        };
        (Key::from_bits(drawn), from_words([first, second]))
    }

    /// The less likely of the two that show, `drawn` being the first: of the second nobody asks
    /// without margins.
    #[inline(always)]
    unsafe fn least_of(
        &self,
        params: &KeptParams,
        (row, is_ruled): (u32, bool),
        drawn: Key,
        leaders: Leaders,
    ) -> Key {
        if params.sample.margins.is_null() || leaders.second.token() == NO_TOKEN {
            return drawn;
        }
        let index = leaders.second.token().wrapping_sub(params.sample.first_token);
        // SAFETY: it is a token of the row.
        let second = unsafe { value_after_rules(params, (row, is_ruled), index) };
        core::cmp::min(drawn, Key::of_value(second, index))
    }

    /// The mass of the tokens that are likelier than that of a key, and their number.
    #[inline(always)]
    unsafe fn above(&self, crew: &Crew<1>, least: Key) -> [u64; 2] {
        let give = |thread| {
            let mut sums = [0; 2];
            // SAFETY: the caller's promise.
            unsafe {
                self.each(thread, |_, key| {
                    sums = if key > least { add(sums, [self.mass(key), 1]) } else { sums };
                });
            }
            sums
        };
        // SAFETY: the caller's promise.
        unsafe { crew.reduce_block(give, add) }
    }
}
