//! Rows whose only filter is top_p, where the sampling kernel has summed up their weights: one
//! block gathers the tokens down to a floor that a sample gives, and finds the nucleus among them.
//! What it cannot prove, it leaves to the whole cluster ([`crate::nucleus`]).

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

/// Fours of a thread in the sample, and those that are on their way together.
const SAMPLED: usize = 4;
const READ: usize = 8;

const FOUR: u32 = TOGETHER as u32;

/// A row and the tokens of it that were gathered.
#[derive(Clone, Copy)]
struct Gathered {
    /// `[n]`.
    keys: *mut Key,
    n: u32,
    scale: Scale,
}

/// Finishes a row that [`nucleus::serves`], and tells whether its tokens are right: if not, its
/// outputs have no meaning.
///
/// # Safety
/// All threads of the block; the module's preconditions; `room` is the block's own, for as many
/// keys; there are partial sums of the row, and its values.
#[inline(always)]
pub(super) unsafe fn finish_row(
    params: &KeptParams,
    crew: &Crew<1>,
    room: (*mut Key, u32),
    row: u32,
) -> bool {
    let sample = &params.sample;
    // SAFETY: the caller's promise; `row < B`.
    unsafe {
        let RowParams { temperature, .. } = row_params(sample, row);
        let top_p = (*sample.features.add(row as usize)).top_p;
        let seen = seen(params, row);
        let whole = sum_of(params, crew, row, temperature);
        if seen != Status::OK || !whole.highest.is_finite() {
            return false;
        }
        let values = sample.values.add(offset(row, values_stride(sample.vocab), 0) as usize);
        let (floor, expected) = floor_of(crew, (values, sample.vocab), whole, temperature, top_p);
        if expected > room.1 as u64 {
            return false;
        }
        let n = gather(crew, (values, sample.vocab), floor, room);
        if n > room.1 {
            return false;
        }
        let scale = Scale::new(whole.highest, floor, temperature, sample.vocab);
        let tokens = Gathered { keys: room.0, n, scale };
        let [certain, possible] = nucleus::goals(scale, whole, top_p);
        let Some(last) = tokens.reaching(crew, possible) else { return false };
        let mut draw = 0;
        while draw < sample.draws {
            let leaders = tokens.draw(crew, params, row, draw, last);
            let least = tokens.least_of(params, values, leaders);
            if tokens.mass_above(crew, least) >= certain {
                return false;
            }
            crew.leg(|thread| {
                if thread == 0 {
                    write(params, output_index(row, sample.draws, draw), leaders, seen);
                }
            });
            draw += 1;
        }
        true
    }
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
    let fours = vocab / FOUR;
    let most = SAMPLED as u32 * THREADS;
    let step = core::cmp::max(fours / most, 1);
    let n = core::cmp::min(fours, most) * FOUR;
    let sample = Sample::new(n, vocab, whole, temperature, top_p);
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
            let mut read = [[f32::NEG_INFINITY; TOGETHER]; SAMPLED];
            let mut i = 0;
            while i < SAMPLED {
                let at = i as u32 * THREADS + thread;
                if at < fours {
                    let at = (at * step * FOUR) as usize;
                    Four(read[i]) = values.add(at).cast::<Four>().read();
                }
                i += 1;
            }
            i = 0;
            while i < SAMPLED {
                let mut j = 0;
                while j < TOGETHER && i as u32 * THREADS + thread < fours {
                    arch::block_count(counts, sample.bin(read[i][j]));
                    j += 1;
                }
                i += 1;
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

/// Gathers the keys of the tokens from `floor` on, as far as there is room, and tells how many
/// there are.
#[inline(always)]
unsafe fn gather(
    crew: &Crew<1>,
    (values, vocab): (*const f32, u32),
    floor: f32,
    (keys, most): (*mut Key, u32),
) -> u32 {
    // SAFETY: the values are there; legs part what is written from what is read.
    unsafe {
        let n = &raw mut (*crew.shared).short.n_found;
        crew.leg(|thread| {
            if thread == 0 {
                n.write(0);
            }
        });
        let counts = |index: u32, y: f32| (y >= floor) & (y > f32::NEG_INFINITY) & (index < vocab);
        let push = |first: u32| {
            let Four(four) = values.add(first as usize).cast::<Four>().read();
            let mut i = 0;
            while i < FOUR {
                let (index, y) = (first + i, four[i as usize]);
                if counts(index, y) {
                    let at = arch::block_add_u32(n, 1);
                    if at < most {
                        keys.add(at as usize).write(key(index, y));
                    }
                }
                i += 1;
            }
        };
        crew.leg(|thread| {
            let mut at = FOUR * thread;
            while at < vocab {
                let mut read = [[f32::NEG_INFINITY; TOGETHER]; READ];
                let mut i = 0;
                while i < READ {
                    let first = at + i as u32 * FOUR * THREADS;
                    // A row's memory ends with a whole four.
                    if first < vocab {
                        Four(read[i]) = values.add(first as usize).cast::<Four>().read();
                    }
                    i += 1;
                }
                // Few fours have a token that counts: these are read again, from nearby.
                let (mut open, mut i) = (0, 0);
                while i < READ {
                    let [a, b, c, d] = read[i];
                    // Beyond the row may lie anything; false for NaN.
                    let any = (a >= floor) | (b >= floor) | (c >= floor) | (d >= floor);
                    open |= (any as u32) << i;
                    i += 1;
                }
                while open != 0 {
                    push(at + open.trailing_zeros() * FOUR * THREADS);
                    open &= open - 1;
                }
                at += READ as u32 * FOUR * THREADS;
            }
        });
        n.read()
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
                let mut at = thread;
                while at < self.n {
                    let (mut buckets, mut masses, mut i) = ([RUNGS; TOGETHER], [0; TOGETHER], 0);
                    while i < TOGETHER {
                        let at = at + i as u32 * THREADS;
                        if at < self.n {
                            let (gap, mass) = self.mass(self.keys.add(at as usize).read());
                            (buckets[i], masses[i]) = (self.scale.rung(gap), mass);
                        }
                        i += 1;
                    }
                    Histogram::add(ladder, thread, buckets, masses);
                    at += FOUR * THREADS;
                }
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
