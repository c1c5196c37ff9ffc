//! Shortlists: of a row with filters the sampling kernel keeps the values of those tokens alone
//! that its filters may keep, as far as it can tell while it goes.
//!
//! min_p keeps nothing below a value that rises with the highest; top_k nothing below the k-th,
//! of which any k tokens give a bound. The tally of a row has what is known of both: the
//! highest so far, and how many tokens lie in each of [`BINS`] ranges of values. It only grows,
//! so what is below the floor that it gives is out, whenever it is read and in whatever order
//! tokens came.

use core::mem::offset_of;

use crate::abi::kept::RowFeatures;
use crate::arch;
use crate::candidate::Key;
use crate::mass::min_p_floor;

/// Greatest top_k that a floor is found for.
pub const MOST_COUNTED: u32 = 256;

/// Ranges of values: for each sign 1,024, sixteen for each power of two of `|y| + 1`, the last
/// from there on.
pub const BINS: u32 = 2 * SIDE;

const SIDE: u32 = 1 << 10;

/// Bits of an f32 below those that tell its bin.
const BIN_SHIFT: u32 = 19;

/// `|y| + 1` of a y near 0, shifted.
const LEAST: u32 = 1f32.to_bits() >> BIN_SHIFT;

/// Bins that are looked at, about from the highest's down.
const LOOKED_AT: u32 = 128;

/// Counts that are read at once.
const AT_ONCE: u32 = 4;

/// How often before the first of them is looked at.
const TOGETHER: u32 = 2;

/// Most vocabulary tiles of a call whose rows are listed: a tile and a bound are one word.
pub const MOST_TILES: u32 = 1 << TILE_BITS;

const _: () = assert!(offset_of!(Tally, highest).is_multiple_of(16));
const _: () = assert!(offset_of!(Tally, floor) == offset_of!(Tally, highest) + 8);

const TILE_BITS: u32 = 16;
const TILE_MASK: u32 = MOST_TILES - 1;

/// What is known of a row's values while its tokens are listed. All zero between calls.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct Tally {
    /// Tokens by the range of their value: of listed ones all, of a tile one.
    pub bins: [u32; BINS as usize],
    /// The key that the highest value is meant by; 0 if there is none. Beside the floor: the two
    /// are read together.
    pub highest: u64,
    /// The key that a value is meant by below which no token counts, by those counted at some
    /// time; 0 if there is none.
    pub floor: u64,
    /// Tokens in the list.
    pub n_tokens: u32,
    /// Whole vocabulary tiles whose values are kept.
    pub n_tiles: u32,
}

/// Whether a row's shortlist has all that its filters and its draw need.
#[inline(always)]
pub fn serves(features: &RowFeatures, temperature: f32) -> bool {
    let is_cut = counts(features) | cuts_by_min_p(features);
    let by_sigma = features.top_n_sigma > 0.0;
    (temperature > 0.0) & is_cut & !by_sigma & cuts(features)
}

/// Whether what a row's filters keep follows from its likeliest tokens, and how far all spread.
#[inline(always)]
pub fn cuts(features: &RowFeatures) -> bool {
    let joint = features.options & RowFeatures::JOINT != 0 && needs_masses(features);
    let is_cut = (features.top_k > 0) | cuts_by_min_p(features);
    !joint & is_cut
}

/// Whether filters compare masses.
#[inline(always)]
fn needs_masses(features: &RowFeatures) -> bool {
    let RowFeatures { top_p, epsilon_cutoff, eta_cutoff, .. } = *features;
    (top_p < 1.0) | (epsilon_cutoff > 0.0) | (eta_cutoff > 0.0)
}

/// Whether nothing below the k-th value counts.
#[inline(always)]
pub fn counts(features: &RowFeatures) -> bool {
    (features.top_k > 0) & (features.top_k <= MOST_COUNTED)
}

/// Whether nothing below min_p counts: not where others are measured before it.
#[inline(always)]
fn cuts_by_min_p(features: &RowFeatures) -> bool {
    let is_last = features.options & RowFeatures::MIN_P_LAST != 0;
    (features.min_p > 0.0) & !(is_last & needs_masses(features))
}

/// The bin of a value that is not NaN: the greater, the higher.
#[inline(always)]
pub fn bin(y: f32) -> u32 {
    let size = ((y.abs() + 1.0).to_bits() >> BIN_SHIFT) - LEAST;
    let size = if size < SIDE { size } else { SIDE - 1 };
    if y >= 0.0 { SIDE + size } else { SIDE - 1 - size }
}

/// A value that all of a bin and of those above have at least.
#[inline(always)]
fn least_of(bin: u32) -> f32 {
    /// More than what `|y| + 1` may be rounded by.
    const SLACK: f32 = 1.0 / (1 << 22) as f32;
    if bin == 0 {
        return f32::NEG_INFINITY;
    }
    let is_positive = bin >= SIDE;
    let steps = if is_positive { bin - SIDE } else { SIDE - bin };
    let size = f32::from_bits((LEAST + steps) << BIN_SHIFT);
    let y = if is_positive { size - 1.0 } else { 1.0 - size };
    y - size * SLACK
}

/// The word for a tile whose values are kept, the `tile`th of the call from 0, none above
/// `highest`.
#[inline(always)]
pub fn kept_tile(tile: u32, highest: f32) -> u32 {
    // Rounded upwards.
    let up = if highest > 0.0 { TILE_MASK } else { 0 };
    (highest.to_bits() + up) & !TILE_MASK | tile
}

/// What [`kept_tile`] was told: the tile, and what its values do not exceed.
#[inline(always)]
pub fn of_kept_tile(word: u32) -> (u32, f32) {
    (word & TILE_MASK, f32::from_bits(word & !TILE_MASK))
}

/// A value below which no token of the row counts, by the highest value and the floor that was
/// told of counts; `−inf` where that is not known.
#[inline(always)]
pub fn floor(features: &RowFeatures, temperature: f32, highest: f32, counted: f32) -> f32 {
    if !cuts_by_min_p(features) | (highest == f32::NEG_INFINITY) {
        return counted;
    }
    let at_one = features.options & RowFeatures::FILTERS_AT_ONE != 0;
    let temperature = if at_one { 1.0 } else { temperature };
    let floor = min_p_floor(highest, temperature, features.min_p);
    if floor > counted { floor } else { counted }
}

/// A value that at least `top_k` tokens of the row reach, by the highest value and `bins`, the
/// tally's; `−inf` where that is not known, or where the row has no such filter. `load` reads four
/// counts that others may be changing, at an address that is a multiple of their size.
///
/// # Safety
/// There are [`BINS`] counts.
#[inline(always)]
pub unsafe fn counted_floor(
    features: &RowFeatures,
    highest: f32,
    bins: *const u32,
    load: impl Fn(*const u32) -> [u32; AT_ONCE as usize],
) -> f32 {
    if !counts(features) | (highest == f32::NEG_INFINITY) {
        return f32::NEG_INFINITY;
    }
    // Bins from here on are not looked at. Those above the highest's have none, or what was
    // counted since.
    let end = bin(highest) / AT_ONCE * AT_ONCE + AT_ONCE;
    // Opaque: it is one of several texts in each of many kernels.
    let (mut looked_at, mut sum, most) = (0, 0, arch::opaque(LOOKED_AT));
    while looked_at < most && looked_at + TOGETHER * AT_ONCE <= end {
        let mut fours = [[0; AT_ONCE as usize]; TOGETHER as usize];
        let mut i = 0;
        while i < TOGETHER {
            let first = end - looked_at - (i + 1) * AT_ONCE;
            fours[i as usize] = load(bins.wrapping_add(first as usize));
            i += 1;
        }
        // Of the sums down to each those that do not reach it.
        let mut short = 0;
        i = 0;
        while i < TOGETHER * AT_ONCE {
            let (four, place) = (i / AT_ONCE, AT_ONCE - 1 - i % AT_ONCE);
            sum += fours[four as usize][place as usize];
            short += (sum < features.top_k) as u32;
            i += 1;
        }
        if short < TOGETHER * AT_ONCE {
            return least_of(end - 1 - looked_at - short);
        }
        looked_at += TOGETHER * AT_ONCE;
    }
    f32::NEG_INFINITY
}

/// The key that a value raises [`Tally::highest`] or [`Tally::floor`] with; adding 0 makes −0 a 0.
#[inline(always)]
pub fn height(y: f32) -> u64 {
    Key::floor(y + 0.0).bits()
}

/// The value that is meant; `−inf` for none.
#[inline(always)]
pub fn of_height(bits: u64) -> f32 {
    Key::from_bits(bits).score()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::f32::consts::LN_2;
    use std::vec::Vec;

    fn values() -> Vec<f32> {
        let mut values: Vec<f32> = (0..u16::MAX as u32 * 2)
            .map(|i| f32::from_bits(i << 15))
            .filter(|y| !y.is_nan())
            .collect();
        values.extend([1e-9, -1e-9, 0.999_999_9, 1.0, -1.0, 7.0, -7.0, 6.999_999_5, f32::MAX]);
        values.sort_by(f32::total_cmp);
        values
    }

    #[test]
    fn bins_rise_and_know_their_least() {
        let values = values();
        assert!(values.is_sorted_by_key(|&y| bin(y)));
        for &y in &values {
            assert!(bin(y) < BINS);
            assert!(least_of(bin(y)) <= y, "{y}: {}", least_of(bin(y)));
            // Not much less: a sixteenth of its size and 1.
            let least = f64::from(least_of(bin(y)));
            let gap = f64::from(y) - least;
            let is_huge = y.abs() >= 1e19;
            assert!(is_huge || gap <= (f64::from(y).abs() + 1.0) / 14.0, "{y}: {least}");
        }
    }

    #[test]
    fn kept_tiles_come_back_with_a_bound_that_is_close() {
        for &y in &values() {
            for tile in [0, 77, MOST_TILES - 1] {
                let (same, bound) = of_kept_tile(kept_tile(tile, y));
                assert_eq!(same, tile);
                assert!(bound >= y, "{y}: {bound}");
                let gap = f64::from(bound) - f64::from(y);
                assert!(
                    y.abs() > 1e38 || gap <= f64::from(y.abs()) / 120.0 + 1e-38,
                    "{y}: {bound}"
                );
            }
        }
    }

    fn tally(values: &[f32]) -> Tally {
        let mut tally =
            Tally { bins: [0; BINS as usize], highest: 0, floor: 0, n_tokens: 0, n_tiles: 0 };
        for &y in values {
            tally.highest = tally.highest.max(height(y));
            tally.bins[bin(y) as usize] += 1;
        }
        tally
    }

    fn floor_of(features: &RowFeatures, temperature: f32, values: &[f32]) -> f32 {
        let tally = tally(values);
        let (highest, bins) = (of_height(tally.highest), tally.bins.as_ptr());
        // SAFETY: the tally is there.
        let counted =
            unsafe { counted_floor(features, highest, bins, |at| at.cast::<[u32; 4]>().read()) };
        floor(features, temperature, highest, counted)
    }

    #[test]
    fn no_prefix_of_the_tokens_gives_a_floor_above_what_is_kept() {
        let mut values: Vec<f32> = (0..3_000u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 4e6 - 2.0)
            .collect();
        values[77] = 3.5;
        let mut sorted = values.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        for k in [1, 5, 50, 256] {
            let features = RowFeatures { top_k: k, ..RowFeatures::NONE };
            let kth = sorted[k as usize - 1];
            for n in [1, 10, 60, 300, 3_000] {
                let floor = floor_of(&features, 1.0, &values[..n]);
                assert!(floor <= kth, "k {k}, {n} tokens: {floor} and {kth}");
            }
            let floor = floor_of(&features, 1.0, &values);
            assert!(floor >= kth - 1.0, "k {k}: {floor} and {kth}");
        }
        let features = RowFeatures { min_p: 0.5, ..RowFeatures::NONE };
        assert!(floor_of(&features, 2.0, &values[..10]) <= 3.5 - 2.0 * LN_2);
        assert!((floor_of(&features, 2.0, &values) - (3.5 - 2.0 * LN_2)).abs() <= 1e-6);
        assert_eq!(floor_of(&features, 2.0, &[]), f32::NEG_INFINITY);
        let at_one = RowFeatures { options: RowFeatures::FILTERS_AT_ONE, ..features };
        assert!((floor_of(&at_one, 2.0, &values) - (3.5 - LN_2)).abs() <= 1e-6);
    }

    #[test]
    fn an_infinite_value_leaves_only_its_equals() {
        let values = [1.0, f32::INFINITY, 3.0, f32::INFINITY];
        let features = RowFeatures { min_p: 0.5, top_k: 1, ..RowFeatures::NONE };
        assert_eq!(floor_of(&features, 1.0, &values), f32::INFINITY);
    }

    #[test]
    fn rows_are_served_whose_masses_are_those_of_listed_tokens() {
        let none = RowFeatures::NONE;
        let (joint, last) = (RowFeatures::JOINT, RowFeatures::MIN_P_LAST);
        for (features, expected) in [
            (none, false),
            (RowFeatures { min_p: 0.1, ..none }, true),
            (RowFeatures { min_p: 0.1, options: last, ..none }, true),
            (RowFeatures { min_p: 0.1, top_p: 0.9, ..none }, true),
            (RowFeatures { min_p: 0.1, top_p: 0.9, options: last, ..none }, false),
            (RowFeatures { min_p: 0.1, top_p: 0.9, top_k: 9, options: last, ..none }, true),
            (RowFeatures { top_k: MOST_COUNTED, ..none }, true),
            (RowFeatures { top_k: MOST_COUNTED + 1, ..none }, false),
            (RowFeatures { top_k: 50, top_p: 0.9, ..none }, true),
            (RowFeatures { top_k: 50, top_p: 0.9, options: joint, ..none }, false),
            (RowFeatures { top_k: 50, options: joint, ..none }, true),
            (RowFeatures { top_p: 0.9, ..none }, false),
            (RowFeatures { top_k: 50, top_n_sigma: 1.0, ..none }, false),
            (RowFeatures { top_k: 50, eta_cutoff: 0.01, ..none }, true),
        ] {
            assert_eq!(serves(&features, 0.7), expected, "{features:?}");
            assert!(!serves(&features, 0.0));
        }
    }
}
