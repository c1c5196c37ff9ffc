//! Rows that were drawn as if they had no filters: whether that is right follows from the tokens
//! likelier than what was drawn.

use super::THREADS_LEN;
use super::crew::Crew;
use super::draw::seen;
use super::features;
use super::guess::{Asked, Guess, clear_counts, floor_of};
use super::histogram::Histogram;
use super::row::{least_drawn, part_of_sum};
use super::view::View;
use super::way::Way;
use crate::abi::kept::{KeptParams, THREADS};
use crate::arch;
use crate::candidate::Key;
use crate::nucleus::{self, BINS, Limits, Sample, Shares};
use crate::partial_sum::{PartialSum, greater, merge_words, weight};
use crate::scale::Scale;
use crate::status::Status;

/// One part in so many has none of a row's likeliest tokens when these are about four times as many
/// as the parts, if they may lie in any: `e⁻⁴`.
const PARTS_FOR_ONE: u32 = 50;

/// What is known of such a row: its floor is the least value that was drawn; a greater one if too
/// many tokens may lie above that, and a lesser one if more are to be reported.
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
        let (seen, least) = (seen(params, row), least_drawn(params, row));
        let mut floor = least.score();
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
        if seen != Status::OK || !whole.highest.is_finite() || least == Key::NONE {
            return Guess::NONE;
        }
        // Below the least of these, no token is kept.
        let [of_shares, _] = shares.floors(whole, temperature);
        floor = greater(floor, of_shares);
        // No more tokens have a weight than that goes into the sum.
        let may_be_many = whole.sum > weight(floor, whole.highest, inverse) * most as f32;
        if may_be_many | (best > 0) {
            let sample =
                |count| Sample::of_parts(THREADS, vocab, whole.highest, temperature, count);
            crew.leg(|thread| {
                arch::block_count(counts, sample(0).bin(highest.add(thread as usize).read()));
            });
            let parts = core::cmp::min(params.sample.n_partials, THREADS);
            let of_many = if may_be_many { parts - parts / PARTS_FOR_ONE } else { 0 };
            // Opaque: one text for both.
            let (mut step, steps) = (0, arch::opaque(2));
            while step < steps {
                let count = if step == 0 { of_many } else { best };
                if count > 0 {
                    let (of_count, above) = floor_of(crew, &sample(count));
                    if step == 0 && above >= vocab as u64 {
                        // All parts are alike, and their likeliest tokens too many.
                        return Guess::NONE;
                    }
                    let is_it = (of_count > floor) == (step == 0);
                    floor = if is_it { of_count } else { floor };
                }
                step += 1;
            }
        }
        Guess { whole, floor, unit: whole.highest, way }
    }
}

/// Whether what was drawn of such a row is right, by all its values, of which this is the highest:
/// whether even the least likely of its tokens, `least`, is within the limits, if the row's filters
/// are nothing else.
///
/// # Safety
/// All threads of the cluster; the slice's values are there.
#[inline(always)]
pub(super) unsafe fn is_right<const CLUSTER: u32>(
    crew: &mut Crew<CLUSTER>,
    view: View<'_>,
    highest: f32,
    least: Key,
) -> bool {
    let (params, row) = (view.params, view.row());
    // SAFETY: the caller's promise; `row < B`.
    unsafe {
        if !nucleus::serves(&features(params, row), view.temperature()) {
            return false;
        }
        let scale = Scale::new(highest, highest, view.temperature(), params.sample.vocab);
        let [all, mass, n] = crew.sum(view, |index, y| {
            let mass = scale.mass(scale.capped_gap(y));
            if Key::of_value(y, index) > least { [mass, mass, 1] } else { [mass, 0, 0] }
        });
        let shares = Shares::new(&features(params, row));
        let limits = Limits::exact(&shares, scale, highest, all);
        let [_, is_kept] = limits.admit([mass, n], least.score());
        is_kept
    }
}
