//! Rows that were drawn as if they had no filters: whether that is right follows from the tokens
//! likelier than what was drawn.

use super::THREADS_LEN;
use super::crew::Crew;
use super::draw::seen;
use super::guess::{Asked, Guess, clear_counts, floor_of, least_drawn};
use super::histogram::Histogram;
use super::row::part_of_sum;
use super::way::Way;
use crate::abi::kept::{KeptParams, THREADS};
use crate::arch;
use crate::nucleus::{BINS, Sample};
use crate::partial_sum::{PartialSum, greater, merge_words, weight};
use crate::status::Status;

/// Of the parts of a row, the one in so many whose highest values are the least.
const LEAST_PARTS: u32 = 50;

/// What is known of such a row: its floor is the least value that was drawn, if not too many tokens
/// may lie above that, or one that as many tokens have as are to be reported.
///
/// # Safety
/// As [`super::guess::guess`], which `most` is the same of.
#[inline(always)]
pub(super) unsafe fn known(
    params: &KeptParams,
    crew: &Crew<1>,
    (row, way): (u32, Way),
    most: u32,
) -> Guess {
    // SAFETY: the caller's promise; behind the counts there is room for a value a thread.
    unsafe {
        let Asked { shares, temperature, best, .. } = Asked::of(params, (row, way));
        let (seen, mut floor) = (seen(params, row), least_drawn(params, row));
        const { assert!(size_of::<Histogram>() >= BINS as usize * 4 + THREADS_LEN * 4) }
        let counts = (&raw mut (*crew.shared).pieces).cast::<u32>();
        let highest = counts.add(BINS as usize).cast::<f32>();
        // Opaque: what follows would be computed before all rows, and cost registers.
        let vocab = arch::opaque(params.sample.vocab);
        let inverse = 1.0 / temperature;
        let give = |thread| {
            let part = part_of_sum(params, row, true, temperature, thread);
            clear_counts(crew, vocab, thread);
            highest.add(thread as usize).write(part.highest);
            [part.bits()]
        };
        let [whole] = crew.reduce_block(give, merge_words(inverse));
        let whole = PartialSum::from_bits(whole);
        if seen != Status::OK || !whole.highest.is_finite() || floor == f32::INFINITY {
            return Guess::NONE;
        }
        // Below the least of these, no token is kept.
        let [least, _] = shares.floors(whole, temperature);
        floor = greater(floor, least);
        // No more tokens have a weight than that goes into the sum.
        let may_be_many = whole.sum > weight(floor, whole.highest, inverse) * most as f32;
        if may_be_many | (best > 0) {
            let sample =
                |count| Sample::of_parts(THREADS, vocab, whole.highest, temperature, count);
            crew.leg(|thread| {
                arch::block_count(counts, sample(0).bin(highest.add(thread as usize).read()));
            });
            // As many parts as have a token above the first floor have about four times as many.
            let parts = core::cmp::min(params.sample.n_partials, THREADS);
            let of_parts = if may_be_many { parts - parts / LEAST_PARTS } else { 0 };
            // Opaque: one text for both.
            let (mut step, steps) = (0, arch::opaque(2));
            while step < steps {
                let count = if step == 0 { of_parts } else { best };
                if count > 0 {
                    let (of_count, _) = floor_of(crew, &sample(count));
                    let is_it = (of_count > floor) == (step == 0);
                    floor = if is_it { of_count } else { floor };
                }
                step += 1;
            }
        }
        Guess { whole, floor, unit: whole.highest, way }
    }
}
