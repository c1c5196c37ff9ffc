//! Rows that few of their tokens may serve, where the sampling kernel has summed up their weights:
//! a floor is guessed from a sample.

use super::crew::Crew;
use super::draw::seen;
use super::histogram::Histogram;
use super::row::{least_drawn, sum_of, values_of};
use super::view::{Four, TOGETHER};
use super::way::Way;
use super::{THREADS_LEN, features};
use crate::abi::kept::{KeptParams, RowFeatures, THREADS};
use crate::arch::{self, PerThread};
use crate::candidate::Key;
use crate::kernels::rules;
use crate::nucleus::{BINS, Sample, Shares};
use crate::partial_sum::{PartialSum, greater, report_temperature};
use crate::scale::RUNGS;
use crate::shortlist;
use crate::status::Status;

const FOUR: u32 = TOGETHER as u32;

/// What is known of a row from its sum of weights and a sample of its values.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Guess {
    /// That of its own distribution, or where only the model's is reported, of that.
    pub(super) whole: PartialSum,
    /// The tokens of its nucleus, and those to be reported, have values from here on; `+inf`
    /// where they are not to be told from few tokens.
    pub(super) floor: f32,
    /// A value not far from the highest after rules.
    pub(super) unit: f32,
    /// What the row asks for.
    pub(super) way: Way,
}

impl Guess {
    pub(super) const NONE: Self = Self {
        whole: PartialSum::NONE,
        floor: f32::INFINITY,
        unit: f32::INFINITY,
        way: Way::STANDS,
    };
}

/// What a row asks for, in numbers.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// Those of a row whose filters are nothing else; else they are off.
    pub(super) shares: Shares,
    /// That of the guess's sum of weights.
    pub(super) temperature: f32,
    /// Whether that sum is of the row's own distribution.
    of_row: bool,
    /// How many of the likeliest tokens are to be reported, of either distribution.
    pub(super) best: u32,
}

impl Asked {
    #[inline(always)]
    pub(super) unsafe fn of(params: &KeptParams, (row, way): (u32, Way)) -> Self {
        let of_row = way.is_filtered() | params.processed.any();
        let (mut shares, mut temperature) = (Shares::NONE, 1.0);
        // SAFETY: `row < B`.
        unsafe {
            if way.is_nucleus() {
                shares = Shares::new(&features(params, row));
            }
            if of_row {
                temperature = params.sample.temperatures.add(row as usize).read();
                temperature = report_temperature(temperature);
            }
        }
        // Opaque: what follows would be computed before all rows, and cost registers.
        let best = arch::opaque(core::cmp::max(params.raw.best, params.processed.best));
        Self { shares, temperature, of_row, best }
    }
}

/// Guesses a floor for a row that [`crate::nucleus::may_serve`], of which `most` tokens may lie
/// above it. Unless `FULL`, it has no rules, and no filters but top_p, alone or joint.
///
/// # Safety
/// All threads of the block; the module's preconditions; there are partial sums of the row, and
/// its values.
#[inline(always)]
pub(super) unsafe fn guess<const FULL: bool>(
    params: &KeptParams,
    crew: &Crew<1>,
    (row, way): (u32, Way),
    most: u32,
) -> Guess {
    // SAFETY: the caller's promise; `row < B`.
    unsafe {
        let Asked { shares, temperature, of_row, best } = Asked::of(params, (row, way));
        let seen = seen(params, row);
        // Opaque: what follows from it would be computed before all rows, and cost registers.
        let vocab = arch::opaque(params.sample.vocab);
        let mut sampled = PerThread::<_, THREADS_LEN>::new(Four([0.0; TOGETHER]));
        let n = take_sample(crew, (values_of(params, row), vocab), &mut sampled);
        let whole = sum_of(params, crew, row, of_row, temperature);
        if seen != Status::OK || !whole.highest.is_finite() {
            return Guess::NONE;
        }
        let mut unit = whole.highest;
        if FULL && way.is_ruled() {
            let features = features(params, row);
            unit = mask_sample(params, crew, &features, (&mut sampled, n));
            if unit == f32::NEG_INFINITY {
                return Guess::NONE;
            }
        }
        // What cuts beside top_p: a count, or a value.
        let Shares { mut top_p, top_k, epsilon_cutoff, .. } = shares;
        let (mut count, mut cut) = (best, f32::NEG_INFINITY);
        if (top_k > 0) & (top_k <= shortlist::MOST_COUNTED) {
            (top_p, count) = (1.0, core::cmp::max(best, top_k));
        }
        if epsilon_cutoff > 0.0 {
            [cut, _] = shares.floors(whole, temperature);
        }
        if FULL && way.is_filtered() & !way.is_nucleus() {
            let features = features(params, row);
            count = core::cmp::max(best, features.top_k);
            if features.top_k == 0 {
                cut = shortlist::floor(&features, temperature, whole.highest, cut);
            }
        }
        let sample = Sample::new(n * FOUR, vocab, whole, temperature, (top_p, count));
        count_bins(crew, &sample, (&mut sampled, n));
        let (mut floor, expected) = floor_of(crew, &sample);
        if expected > most as u64 {
            return Guess::NONE;
        }
        // Tokens that are drawn here lie above it; others may lie anywhere.
        let ranks = !params.raw.ranks.is_null() | !params.processed.ranks.is_null();
        if ranks & !way.is_filtered() {
            cut = least_drawn(params, row).score();
        }
        floor = if cut < floor && cut > f32::NEG_INFINITY { cut } else { floor };
        Guess { whole, floor, unit, way }
    }
}

/// Takes out of a sample what the mask does not admit, and tells its highest value.
#[inline(always)]
unsafe fn mask_sample(
    params: &KeptParams,
    crew: &Crew<1>,
    features: &RowFeatures,
    (sampled, n): (&mut PerThread<Four, THREADS_LEN>, u32),
) -> f32 {
    // Opaque, for the same reason.
    let (first_id, vocab) =
        (arch::opaque(params.sample.first_token), arch::opaque(params.sample.vocab));
    // SAFETY: the caller's promise; behind the counts there is room for a key a thread.
    let [highest] = unsafe {
        const { assert!(size_of::<Histogram>() >= BINS as usize * 4 + THREADS_LEN * 8) }
        let counts = (&raw mut (*crew.shared).pieces).cast::<u32>();
        let highest = counts.add(BINS as usize).cast::<Key>();
        arch::leg(sampled, |thread, Four(own)| {
            let mut key_of_own = Key::NONE;
            if thread < n {
                let first = first_id + thread * step_of(vocab) * FOUR;
                let admitted = rules::mask_admits(features, first, first_id + vocab - 1);
                let mut i = 0;
                while i < TOGETHER {
                    let is_admitted = admitted >> i & 1 != 0;
                    own[i] = if is_admitted { own[i] } else { f32::NEG_INFINITY };
                    i += 1;
                }
                let y = own.iter().fold(f32::NEG_INFINITY, |a, &b| greater(a, b));
                key_of_own = Key::of_value(y, 0);
            }
            highest.add(thread as usize).write(key_of_own);
        });
        let give = |thread| [highest.add(thread as usize).read().bits()];
        crew.reduce_block(give, |[a], [b]| [core::cmp::max(a, b)])
    };
    Key::from_bits(highest).score()
}

/// Fours from one of a sample to the next.
#[inline(always)]
fn step_of(vocab: u32) -> u32 {
    core::cmp::max(vocab / FOUR / THREADS, 1)
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
    let step = step_of(vocab);
    let n = core::cmp::min(fours, THREADS);
    // SAFETY: the values are there; bins are below their number.
    unsafe {
        arch::leg(sampled, |thread, own| {
            clear_counts(crew, vocab, thread);
            if thread < n {
                let at = thread * step * FOUR;
                *own = values.add(at as usize).cast::<Four>().read();
            }
        });
    }
    n
}

/// Counts a sample that `n` threads have.
#[inline(always)]
unsafe fn count_bins(
    crew: &Crew<1>,
    sample: &Sample,
    (sampled, n): (&mut PerThread<Four, THREADS_LEN>, u32),
) {
    // SAFETY: bins are below their number; a leg parts what is written from what is read.
    unsafe {
        let counts = (&raw mut (*crew.shared).pieces).cast::<u32>();
        arch::leg(sampled, |thread, Four(own)| {
            if thread < n {
                let mut i = 0;
                while i < TOGETHER {
                    arch::block_count(counts, sample.bin(own[i]));
                    i += 1;
                }
            }
        });
    }
}

/// Begins with counts of nothing: the thread's part.
#[inline(always)]
pub(super) unsafe fn clear_counts(crew: &Crew<1>, vocab: u32, thread: u32) {
    // SAFETY: bins are below their number.
    unsafe {
        if thread < BINS {
            (&raw mut (*crew.shared).pieces).cast::<u32>().add(thread as usize).write(0);
        }
        if thread == 0 {
            (&raw mut (*crew.shared).place).write((BINS, vocab as u64));
        }
    }
}

/// A value that what is wanted has at least, by the counts of a sample, and how many tokens have.
#[inline(always)]
pub(super) unsafe fn floor_of(crew: &Crew<1>, sample: &Sample) -> (f32, u64) {
    // SAFETY: bins are below their number; legs part what is written from what is read.
    unsafe {
        let counts = (&raw mut (*crew.shared).pieces).cast::<u32>();
        let place = &raw mut (*crew.shared).place;
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
