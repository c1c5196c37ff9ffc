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
use crate::partial_sum::{PartialSum, merge_words};
use crate::status::Status;

/// What is known of such a row: its floor is the least value that was drawn, or one that as many
/// tokens have as are to be reported.
///
/// # Safety
/// As [`super::guess::guess`].
#[inline(always)]
pub(super) unsafe fn known(params: &KeptParams, crew: &Crew<1>, (row, way): (u32, Way)) -> Guess {
    // SAFETY: the caller's promise; behind the counts there is room for a value a thread.
    unsafe {
        let Asked { temperature, best, .. } = Asked::of(params, (row, way));
        let (seen, mut floor) = (seen(params, row), least_drawn(params, row));
        const { assert!(size_of::<Histogram>() >= BINS as usize * 4 + THREADS_LEN * 4) }
        let counts = (&raw mut (*crew.shared).pieces).cast::<u32>();
        let highest = counts.add(BINS as usize).cast::<f32>();
        // Opaque: what follows would be computed before all rows, and cost registers.
        let vocab = arch::opaque(params.sample.vocab);
        let give = |thread| {
            let part = part_of_sum(params, row, true, temperature, thread);
            if best > 0 {
                clear_counts(crew, vocab, thread);
                highest.add(thread as usize).write(part.highest);
            }
            [part.bits()]
        };
        let [whole] = crew.reduce_block(give, merge_words(1.0 / temperature));
        let whole = PartialSum::from_bits(whole);
        if seen != Status::OK || !whole.highest.is_finite() || floor == f32::INFINITY {
            return Guess::NONE;
        }
        if best > 0 {
            let sample = Sample::of_parts(THREADS, vocab, whole.highest, temperature, best);
            crew.leg(|thread| {
                arch::block_count(counts, sample.bin(highest.add(thread as usize).read()));
            });
            let (of_best, _) = floor_of(crew, &sample);
            floor = if of_best < floor { of_best } else { floor };
        }
        Guess { whole, floor, unit: whole.highest, way }
    }
}
