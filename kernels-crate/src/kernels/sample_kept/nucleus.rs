//! Rows whose only filter is top_p, where the sampling kernel has summed up their weights: a block
//! guesses a floor from a sample, and finds the nucleus among the tokens down to it. What it cannot
//! prove, it leaves to the whole cluster ([`crate::nucleus`]).

use super::THREADS_LEN;
use super::crew::{Crew, LIST, add, key};
use super::draw::{from_words, merge, seen, to_words, write};
use super::goal::{find_key, find_place};
use super::histogram::Histogram;
use super::view::{Four, TOGETHER};
use crate::abi::NO_TOKEN;
use crate::abi::kept::{KeptParams, THREADS, values_stride};
use crate::arch;
use crate::candidate::{Key, Leaders};
use crate::dims::{offset, output_index};
use crate::kernels::sample_simt::row_params;
use crate::nucleus::{self, BINS, Sample};
use crate::partial_sum::{PartialSum, merge_each, merge_words};
use crate::philox::Subkey;
use crate::scale::{RUNGS, Scale};
use crate::score::{RowParams, offer_token};
use crate::status::Status;

const FOUR: u32 = TOGETHER as u32;

/// A row and the tokens of it that were gathered.
#[derive(Clone, Copy)]
struct Gathered {
    /// `[n]`.
    keys: *mut Key,
    n: u32,
    scale: Scale,
}

/// What is known of a row from its sum of weights and a sample of its values.
#[derive(Clone, Copy)]
pub(super) struct Guess {
    whole: PartialSum,
    /// The tokens of its nucleus have values from here on; `+inf` where it is not to be told from
    /// few tokens.
    pub(super) floor: f32,
}

impl Guess {
    pub(super) const NONE: Self = Self { whole: PartialSum::NONE, floor: f32::INFINITY };
}

/// Guesses a floor for a row that [`nucleus::serves`], of which `most` tokens may lie above it.
///
/// # Safety
/// All threads of the block; the module's preconditions; there are partial sums of the row, and
/// its values.
#[inline(always)]
pub(super) unsafe fn guess(params: &KeptParams, crew: &Crew<1>, row: u32, most: u32) -> Guess {
    let sample = &params.sample;
    // SAFETY: the caller's promise; `row < B`.
    unsafe {
        let RowParams { temperature, .. } = row_params(sample, row);
        let top_p = (*sample.features.add(row as usize)).top_p;
        let seen = seen(params, row);
        let whole = sum_of(params, crew, row, temperature);
        if seen != Status::OK || !whole.highest.is_finite() {
            return Guess::NONE;
        }
        let values = values_of(params, row);
        let (floor, expected) = floor_of(crew, (values, sample.vocab), whole, temperature, top_p);
        if expected > most as u64 { Guess::NONE } else { Guess { whole, floor } }
    }
}

/// Finishes a row of which the keys of all tokens from the guess's floor on are there, and tells
/// whether its tokens are right: if not, its outputs have no meaning.
///
/// # Safety
/// As [`guess`].
#[inline(always)]
pub(super) unsafe fn finish(
    params: &KeptParams,
    crew: &Crew<1>,
    row: u32,
    Guess { whole, floor }: Guess,
    (keys, n): (*mut Key, u32),
) -> bool {
    let sample = &params.sample;
    // SAFETY: the caller's promise; `row < B`.
    unsafe {
        let RowParams { temperature, .. } = row_params(sample, row);
        let top_p = (*sample.features.add(row as usize)).top_p;
        let scale = Scale::new(whole.highest, floor, temperature, sample.vocab);
        let tokens = Gathered { keys, n, scale };
        let [certain, possible] = nucleus::goals(scale, whole, top_p);
        let Some(last) = tokens.reaching(crew, possible) else { return false };
        let mut draw = 0;
        while draw < sample.draws {
            let leaders = tokens.draw(crew, params, row, draw, last);
            let least = tokens.least_of(params, values_of(params, row), leaders);
            if tokens.mass_above(crew, least) >= certain {
                return false;
            }
            crew.leg(|thread| {
                if thread == 0 {
                    // Of what is not finite, no guess is made.
                    write(params, output_index(row, sample.draws, draw), leaders, Status::OK);
                }
            });
            draw += 1;
        }
        true
    }
}

/// A row's values.
#[inline(always)]
pub(super) fn values_of(params: &KeptParams, row: u32) -> *const f32 {
    let first = offset(row, values_stride(params.sample.vocab), 0);
    params.sample.values.wrapping_add(first as usize)
}

/// The sum of a row's weights.
#[inline(always)]
unsafe fn sum_of(params: &KeptParams, crew: &Crew<1>, row: u32, temperature: f32) -> PartialSum {
    let (partials, n) = (params.sample.partials[1], params.sample.n_partials);
    let of_row = partials.wrapping_add(offset(row, n as u64, 0) as usize);
    let inverse = 1.0 / temperature;
    // SAFETY: the caller's promise.
    let [whole] = unsafe {
        let give = |thread| [merge_each(of_row, (thread, THREADS, n), inverse).bits()];
        crew.reduce_block(give, merge_words(inverse))
    };
    PartialSum::from_bits(whole)
}

/// A value that the tokens of the nucleus have at least, by a sample, and how many tokens have.
#[inline(always)]
unsafe fn floor_of(
    crew: &Crew<1>,
    (values, vocab): (*const f32, u32),
    whole: PartialSum,
    temperature: f32,
    top_p: f32,
) -> (f32, u64) {
    // A thread has four tokens in a row, if there are so many.
    let fours = vocab / FOUR;
    let step = core::cmp::max(fours / THREADS, 1);
    let n = core::cmp::min(fours, THREADS);
    let sample = Sample::new(n * FOUR, vocab, whole, temperature, top_p);
    // SAFETY: the values are there; bins are below their number; legs part what is written from
    // what is read.
    unsafe {
        let counts = (&raw mut (*crew.shared).pieces).cast::<u32>();
        let place = &raw mut (*crew.shared).place;
        crew.leg(|thread| {
            if thread < BINS {
                counts.add(thread as usize).write(0);
            }
            if thread == 0 {
                place.write((BINS, vocab as u64));
            }
        });
        crew.leg(|thread| {
            if thread < n {
                let at = (thread * step * FOUR) as usize;
                let Four(read) = values.add(at).cast::<Four>().read();
                let mut i = 0;
                while i < TOGETHER {
                    arch::block_count(counts, sample.bin(read[i]));
                    i += 1;
                }
            }
        });
        // From the lowest bin upwards: what lies beyond a bin comes before it.
        let bin = |thread: u32| (BINS - 1).wrapping_sub(thread);
        let give = |thread| {
            if thread < BINS {
                sample.sum(bin(thread), counts.add(bin(thread) as usize).read())
            } else {
                0
            }
        };
        crew.scan(give, |thread, beyond, own| {
            let is_last = thread + 1 == BINS || !sample.may_end(beyond + own);
            if thread < BINS && is_last && sample.may_end(beyond) {
                place.write((bin(thread), sample.above(bin(thread), beyond, own)));
            }
        });
        let (bin, above) = place.read();
        let floor = if bin == BINS { f32::NEG_INFINITY } else { sample.floor(bin) };
        (floor, above)
    }
}

/// Of all methods: all threads of the block; the keys are there.
impl Gathered {
    /// Hands over the thread's keys.
    #[inline(always)]
    unsafe fn each(&self, thread: u32, mut run: impl FnMut(Key)) {
        let mut at = thread;
        while at < self.n {
            // SAFETY: there are so many.
            run(unsafe { self.keys.add(at as usize).read() });
            at += THREADS;
        }
    }

    #[inline(always)]
    fn mass(&self, key: Key) -> (f32, u64) {
        let gap = self.scale.capped_gap(key.score());
        (gap, self.scale.mass(gap))
    }

    /// The least key of the likeliest tokens whose mass reaches a goal; none if all do not, or too
    /// many lie near it.
    #[inline(always)]
    unsafe fn reaching(&self, crew: &Crew<1>, goal: u64) -> Option<Key> {
        // SAFETY: the caller's promise; legs part what is written from what is read.
        unsafe {
            let shared = crew.shared;
            let ladder = &raw mut (*shared).ladder;
            let n_near = &raw mut (*shared).n_keys;
            crew.leg(|thread| {
                Histogram::write(ladder, thread, 0, 0);
                if thread == 0 {
                    n_near.write(0);
                }
            });
            crew.leg(|thread| {
                self.each(thread, |key| {
                    let (gap, mass) = self.mass(key);
                    Histogram::add(ladder, thread, [self.scale.rung(gap)], [mass]);
                });
            });
            let (place, left) = find_place(crew, ladder, true, goal);
            if place == RUNGS || Histogram::read(ladder, place).1 > LIST as u32 {
                return None;
            }
            let near = (&raw mut (*shared).gathered.keys).cast::<Key>();
            crew.leg(|thread| {
                self.each(thread, |key| {
                    if self.scale.rung(self.mass(key).0) == place {
                        let at = arch::block_add_u32(n_near, 1);
                        near.add(at as usize).write(key);
                    }
                });
            });
            Some(find_key(crew, self.scale, n_near.read(), true, left).0)
        }
    }

    /// The best of the tokens with keys from `last` on.
    #[inline(always)]
    unsafe fn draw(
        &self,
        crew: &Crew<1>,
        params: &KeptParams,
        row: u32,
        draw: u32,
        last: Key,
    ) -> Leaders {
        // SAFETY: the caller's promise; `row < B`.
        unsafe {
            let RowParams { temperature, key } = row_params(&params.sample, row);
            let subkey = Subkey::new(key, draw);
            let give = |thread| {
                let mut leaders = Leaders::NONE;
                self.each(thread, |key| {
                    if key >= last {
                        let token = params.sample.first_token.wrapping_add(key.token());
                        offer_token(key.score(), token, temperature, subkey.opaque(), &mut leaders);
                    }
                });
                to_words(leaders)
            };
            from_words(crew.reduce_block(give, merge))
        }
    }

    /// The less likely of the two that show: of the second nobody asks without margins.
    #[inline(always)]
    unsafe fn least_of(&self, params: &KeptParams, values: *const f32, leaders: Leaders) -> Key {
        let of = |leader: Key| {
            let index = leader.token().wrapping_sub(params.sample.first_token);
            // SAFETY: it is a token of the row.
            key(index, unsafe { values.add(index as usize).read() })
        };
        let first = of(leaders.first);
        if params.sample.margins.is_null() || leaders.second.token() == NO_TOKEN {
            return first;
        }
        core::cmp::min(first, of(leaders.second))
    }

    /// The mass of the tokens that are likelier than that of a key.
    #[inline(always)]
    unsafe fn mass_above(&self, crew: &Crew<1>, least: Key) -> u64 {
        let give = |thread| {
            let mut mass = 0;
            // SAFETY: the caller's promise.
            unsafe {
                self.each(thread, |key| mass += if key > least { self.mass(key).1 } else { 0 });
            }
            [mass]
        };
        // SAFETY: the caller's promise.
        let [mass] = unsafe { crew.reduce_block(give, add) };
        mass
    }
}

const _: () = assert!(BINS as usize <= THREADS_LEN && RUNGS == THREADS);
