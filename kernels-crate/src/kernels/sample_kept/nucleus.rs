//! Rows that ask for top_p alone, or for no more than reports, where the sampling kernel has summed
//! up their weights: a block guesses a floor from a sample, and finds the nucleus, and what is to
//! be reported, among the tokens down to it. What it cannot prove, it leaves to the whole cluster
//! ([`crate::nucleus`]).

use super::crew::Crew;
use super::draw::seen;
use super::gathered::Gathered;
use super::view::{Four, TOGETHER};
use super::{THREADS_LEN, brief, features};
use crate::abi::NO_TOKEN;
use crate::abi::kept::{KeptParams, THREADS, values_stride};
use crate::arch::{self, PerThread};
use crate::candidate::Key;
use crate::dims::{offset, output_index};
use crate::nucleus::{self, BINS, Sample};
use crate::partial_sum::{PartialSum, merge_each, merge_words, report_temperature};
use crate::scale::{RUNGS, Scale};
use crate::status::Status;

const FOUR: u32 = TOGETHER as u32;

/// What is known of a row from its sum of weights and a sample of its values.
#[derive(Clone, Copy)]
pub(super) struct Guess {
    /// That of its own distribution, or where only the model's is reported, of that.
    pub(super) whole: PartialSum,
    /// The tokens of its nucleus, and those to be reported, have values from here on; `+inf`
    /// where they are not to be told from few tokens.
    pub(super) floor: f32,
}

impl Guess {
    pub(super) const NONE: Self = Self { whole: PartialSum::NONE, floor: f32::INFINITY };
}

/// What a row asks for.
#[derive(Clone, Copy)]
struct Asked {
    /// 1 if it is off.
    top_p: f32,
    /// That of the guess's sum of weights.
    temperature: f32,
    /// Whether that sum is of the row's own distribution.
    of_row: bool,
    /// Whether its tokens' ranks are.
    ranks: bool,
    /// How many of the likeliest tokens are, of either distribution.
    best: u32,
}

impl Asked {
    #[inline(always)]
    unsafe fn of(params: &KeptParams, row: u32) -> Self {
        // SAFETY: `row < B`.
        let (features, temperature) =
            unsafe { (features(params, row), params.sample.temperatures.add(row as usize).read()) };
        let top_p = if nucleus::serves(&features, temperature) { features.top_p } else { 1.0 };
        let (raw, processed) = (&params.raw, &params.processed);
        let of_row = (top_p < 1.0) | processed.any();
        Self {
            top_p,
            temperature: if of_row { report_temperature(temperature) } else { 1.0 },
            of_row,
            ranks: !raw.ranks.is_null() | !processed.ranks.is_null(),
            best: core::cmp::max(raw.best, processed.best),
        }
    }
}

/// Guesses a floor for a row that [`nucleus::may_serve`], of which `most` tokens may lie above it.
///
/// # Safety
/// All threads of the block; the module's preconditions; there are partial sums of the row, and
/// its values.
#[inline(always)]
pub(super) unsafe fn guess(params: &KeptParams, crew: &Crew<1>, row: u32, most: u32) -> Guess {
    // SAFETY: the caller's promise; `row < B`.
    unsafe {
        let Asked { top_p, temperature, of_row, ranks, .. } = Asked::of(params, row);
        let seen = seen(params, row);
        let vocab = params.sample.vocab;
        let mut sampled = PerThread::<_, THREADS_LEN>::new(Four([0.0; TOGETHER]));
        let n = take_sample(crew, (values_of(params, row), vocab), &mut sampled);
        let whole = sum_of(params, crew, row, of_row, temperature);
        if seen != Status::OK || !whole.highest.is_finite() {
            return Guess::NONE;
        }
        let sample = Sample::new(n * FOUR, vocab, whole, temperature, top_p);
        let (floor, expected) = floor_of(crew, &sample, (&mut sampled, n));
        if expected > most as u64 {
            return Guess::NONE;
        }
        // A token that the filters keep is one of the nucleus; others may lie anywhere.
        let least = if ranks & (top_p == 1.0) { least_drawn(params, row) } else { floor };
        Guess { whole, floor: if least < floor { least } else { floor } }
    }
}

/// Finishes a row of which the keys of all tokens from the guess's floor on are there, and tells
/// whether its outputs are right: if not, they have no meaning.
///
/// # Safety
/// As [`guess`].
#[inline(always)]
pub(super) unsafe fn finish(
    params: &KeptParams,
    crew: &Crew<1>,
    row: u32,
    guess: Guess,
    (keys, n): (*mut Key, u32),
) -> bool {
    let vocab = params.sample.vocab;
    // SAFETY: the caller's promise; `row < B`.
    unsafe {
        let Asked { top_p, temperature, best, .. } = Asked::of(params, row);
        let scale = Scale::new(guess.whole.highest, guess.floor, temperature, vocab);
        let tokens = Gathered { keys, n, scale };
        // Fewer may be all that there are.
        if n < best && guess.floor > f32::NEG_INFINITY {
            return false;
        }
        tokens.climb(crew);
        if top_p < 1.0 && !tokens.draw_all(crew, params, row, guess.whole, top_p) {
            return false;
        }
        brief::report(params, crew, (row, guess.whole), &tokens, best)
    }
}

/// A row's values.
#[inline(always)]
pub(super) fn values_of(params: &KeptParams, row: u32) -> *const f32 {
    let first = offset(row, values_stride(params.sample.vocab), 0);
    params.sample.values.wrapping_add(first as usize)
}

/// The sum of a row's weights, by its own distribution or the model's.
///
/// # Safety
/// As [`guess`]; that distribution was summed up.
#[inline(always)]
pub(super) unsafe fn sum_of(
    params: &KeptParams,
    crew: &Crew<1>,
    row: u32,
    of_row: bool,
    temperature: f32,
) -> PartialSum {
    // By value: a choice of references would be one of addresses of the kernel's parameters.
    let (of_model, own) = (params.sample.partials[0], params.sample.partials[1]);
    let (partials, n) = (if of_row { own } else { of_model }, params.sample.n_partials);
    let of_this_row = partials.wrapping_add(offset(row, n as u64, 0) as usize);
    let inverse = 1.0 / temperature;
    // SAFETY: the caller's promise.
    let [whole] = unsafe {
        let give = |thread| [merge_each(of_this_row, (thread, THREADS, n), inverse).bits()];
        crew.reduce_block(give, merge_words(inverse))
    };
    PartialSum::from_bits(whole)
}

/// The least value of the tokens that were drawn; `+inf` if none was.
#[inline(always)]
unsafe fn least_drawn(params: &KeptParams, row: u32) -> f32 {
    let (mut least, mut draw) = (f32::INFINITY, 0);
    while draw < params.sample.draws {
        // SAFETY: the caller's promise.
        if let Some((_, y)) = unsafe { drawn(params, row, draw) } {
            least = if y < least { y } else { least };
        }
        draw += 1;
    }
    least
}

/// A token that was drawn, by the row of its weights, and its value; none where none was.
///
/// # Safety
/// `row < B`, `draw < S`; the row's values are there.
#[inline(always)]
pub(super) unsafe fn drawn(params: &KeptParams, row: u32, draw: u32) -> Option<(u32, f32)> {
    let sample = &params.sample;
    // SAFETY: the caller's promise; it is a token of the row.
    unsafe {
        let at = output_index(row, sample.draws, draw) as usize;
        let token = arch::load_shared_u32(sample.tokens.add(at));
        let index = token.wrapping_sub(sample.first_token);
        (token != NO_TOKEN).then(|| (index, values_of(params, row).add(index as usize).read()))
    }
}

/// Takes four tokens in a row for each of the first threads, spread over the row, and tells how
/// many threads have some: they are on their way while the sums are merged. Begins with counts of
/// nothing.
#[inline(always)]
unsafe fn take_sample(
    crew: &Crew<1>,
    (values, vocab): (*const f32, u32),
    sampled: &mut PerThread<Four, THREADS_LEN>,
) -> u32 {
    let fours = vocab / FOUR;
    let step = core::cmp::max(fours / THREADS, 1);
    let n = core::cmp::min(fours, THREADS);
    // SAFETY: the values are there; bins are below their number.
    unsafe {
        let counts = (&raw mut (*crew.shared).pieces).cast::<u32>();
        let place = &raw mut (*crew.shared).place;
        arch::leg(sampled, |thread, own| {
            if thread < BINS {
                counts.add(thread as usize).write(0);
            }
            if thread == 0 {
                place.write((BINS, vocab as u64));
            }
            if thread < n {
                let at = thread * step * FOUR;
                *own = values.add(at as usize).cast::<Four>().read();
            }
        });
    }
    n
}

/// A value that the tokens of the nucleus have at least, by a sample that `n` threads have, and
/// how many tokens have.
#[inline(always)]
unsafe fn floor_of(
    crew: &Crew<1>,
    sample: &Sample,
    (sampled, n): (&mut PerThread<Four, THREADS_LEN>, u32),
) -> (f32, u64) {
    // SAFETY: bins are below their number; legs part what is written from what is read.
    unsafe {
        let counts = (&raw mut (*crew.shared).pieces).cast::<u32>();
        let place = &raw mut (*crew.shared).place;
        arch::leg(sampled, |thread, Four(own)| {
            if thread < n {
                let mut i = 0;
                while i < TOGETHER {
                    arch::block_count(counts, sample.bin(own[i]));
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

const _: () = assert!(BINS as usize <= THREADS_LEN && RUNGS == THREADS);
