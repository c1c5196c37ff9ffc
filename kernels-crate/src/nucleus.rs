//! Nuclei, and what else is told from the likeliest tokens: rows that are finished from few of
//! their values.
//!
//! top_p asks for one number of all tokens: the sum of their masses. Where the sampling kernel
//! has summed up the weights in floating point, that is known to a part in some ten thousand
//! before a value is read. So the tokens down to a floor, which is guessed from a sample, are
//! gathered, and their masses, integers, prove that the nucleus ends among them; and that the
//! token drawn belongs to it, whatever the sum is within its error. Where top_k or min_p ends
//! among them, all that comes after is theirs alone. What they do not prove is found from all
//! values instead, so the guess never shows. The likeliest tokens, and the rank of one of them, are
//! known from any tokens down to a floor.

mod limits;

pub use limits::{Limits, Shares};

use crate::abi::kept::RowFeatures;
use crate::filters::Filters;
use crate::kernels::rules;
use crate::mass::decay;
use crate::partial_sum::{PartialSum, report_temperature};
use crate::shortlist;

/// By how much of itself the sum of weights of a row may differ from that of its masses, for
/// sieves of at most [`MOST_TILES`] tiles: each tile may round a sum six times and rescale it by
/// a weight of 2.4e-7, which is 3.8e-5 for all, and an exponent is off by 2.5e-7 of itself, of which 20 count; masses by
/// 1.5e-7, and a gap of theirs by 1.2e-7 of itself.
const SUM_ERROR: f64 = 1.0 / 16_384.0;

/// Tiles of a sieve up to which that holds.
pub const MOST_TILES: u32 = 64;

/// Below, `1/T` or a gap may not be what it is in exact arithmetic.
const LEAST_TEMPERATURE: f32 = 1e-30;

/// Ranges of gaps that a sample is counted by; the last has all from there on.
pub const BINS: u32 = 128;

/// Ranges for a gap of 1.
const BINS_PER_NAT: f32 = 4.0;

/// Tokens of the sample that the floor leaves above it at least: of fewer nothing is told of
/// masses, or of counts.
const LEAST_ABOVE: [u32; 2] = [24, 8];

/// So many times the tokens that are counted are to lie above it, too.
const TIMES_COUNTED: f32 = 2.0;

/// Part of the mass beyond the nucleus that may lie below the floor.
const BELOW: f32 = 0.5;

/// Units of a weight of 1 in [`Sample`]'s sums, a power of two.
const ONE: f32 = (1 << 30) as f32;

/// Bits of its sums, below the counts: 2¹⁴ tokens have a mass below 2⁴⁵.
const SUM_BITS: u32 = 48;

const SUM_MASK: u64 = (1 << SUM_BITS) - 1;

/// Whether a row's filters are top_p or epsilon_cutoff alone, or joint with each other, top_k and
/// min_p.
#[inline(always)]
pub fn serves(features: &RowFeatures, temperature: f32) -> bool {
    is_of_all(features) & (temperature > 0.0) & may_serve(features, temperature)
}

/// The same, of filters alone: what each keeps is told by its own share of all tokens.
#[inline(always)]
fn is_of_all(features: &RowFeatures) -> bool {
    let RowFeatures { top_k, top_p, min_p, top_n_sigma, epsilon_cutoff, eta_cutoff, .. } =
        *features;
    let has = |option| features.options & option != 0;
    let (by_mass, by_cutoff) = (top_p < 1.0, epsilon_cutoff > 0.0);
    let is_alone = (top_k == 0) & (min_p == 0.0) & !(by_mass & by_cutoff);
    let is_told = (top_n_sigma == 0.0) & (eta_cutoff == 0.0) & !has(RowFeatures::FILTERS_AT_ONE);
    (by_mass | by_cutoff) & (is_alone | has(RowFeatures::JOINT)) & is_told
}

/// Whether few of a row's tokens may tell what it asks for: what its filters keep, if it has any,
/// follows from the likeliest tokens, and the sum of all weights.
#[inline(always)]
pub fn may_serve(features: &RowFeatures, temperature: f32) -> bool {
    let filters = Filters::new(features, temperature).any();
    // What rules admit or change is told of rows that are drawn from few tokens.
    let has_rules = rules::any(features);
    // From which value on a cutoff keeps tokens is not told before the weights after rules are.
    let by_value = has_rules & (features.epsilon_cutoff > 0.0);
    let is_told = shortlist::cuts(features) | is_of_all(features) & !by_value;
    let is_ruled = has_rules & filters & features.allow_list.is_null();
    (is_told | !filters)
        & (!has_rules | is_ruled)
        & (report_temperature(temperature) >= LEAST_TEMPERATURE)
}

/// Whether `n` tokens from a floor on, above which all are, tell what the filters of a row keep of
/// it: one that nothing else tells it of than the likeliest tokens. `highest` is its highest value.
#[inline(always)]
pub fn suffices(
    features: &RowFeatures,
    temperature: f32,
    (n, floor): (u32, f32),
    highest: f32,
) -> bool {
    let counted = (features.top_k > 0) & (n >= features.top_k);
    let least = shortlist::floor(features, temperature, highest, f32::NEG_INFINITY);
    counted | (least >= floor)
}

/// A sample of a row's values, counted by their gaps.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Tokens of the sample, and of the row.
    n: u32,
    vocab: u32,
    /// The most of its mass that may lie below the floor.
    most_below: u64,
    highest: f32,
    temperature: f32,
    /// Bins for a difference of 1.
    bins_for_one: f32,
    /// The fewest tokens of it that may lie above.
    least_above: u32,
}

impl Sample {
    /// `n` tokens of a row of `vocab`, at most 2¹⁴, for the likeliest of the row with the share
    /// `top_p` of its mass, and for the `count` likeliest; a share of 1 is none, of which any mass
    /// may lie below the floor.
    #[inline(always)]
    pub fn new(
        n: u32,
        vocab: u32,
        whole: PartialSum,
        temperature: f32,
        (top_p, count): (f32, u32),
    ) -> Self {
        let part = n as f32 / vocab as f32;
        let below = BELOW * (1.0 - top_p) * whole.sum * part;
        let most_below = if top_p < 1.0 { (below * ONE) as u64 } else { SUM_MASK };
        let (highest, bins_for_one) = (whole.highest, BINS_PER_NAT / temperature);
        let [for_mass, for_count] = LEAST_ABOVE;
        // No more than there are tokens.
        let counted = TIMES_COUNTED * count as f32 * part;
        let counted = if counted < n as f32 { counted as u32 } else { n };
        let least_above = if top_p < 1.0 { for_mass } else { for_count } + counted;
        Self { n, vocab, most_below, highest, temperature, bins_for_one, least_above }
    }

    /// The highest value of each of `n` parts of a row, for its `count` likeliest tokens: so many
    /// lie above the floor.
    #[inline(always)]
    pub fn of_parts(n: u32, vocab: u32, highest: f32, temperature: f32, count: u32) -> Self {
        let bins_for_one = BINS_PER_NAT / temperature;
        let most_below = SUM_MASK;
        Self { n, vocab, most_below, highest, temperature, bins_for_one, least_above: count }
    }

    /// The bin of a value, which is not NaN.
    #[inline(always)]
    pub fn bin(&self, y: f32) -> u32 {
        let bin = (self.highest - y) * self.bins_for_one;
        let last = (BINS - 1) as f32;
        let bin = if bin < last { bin } else { last };
        let bin = if bin > 0.0 { bin } else { 0.0 };
        // SAFETY: it lies from 0 to the last.
        unsafe { bin.to_int_unchecked::<i32>() as u32 }
    }

    /// What `count` tokens of a bin add to a sum over bins: their number, and about their mass.
    #[inline(always)]
    pub fn sum(&self, bin: u32, count: u32) -> u64 {
        let weight = decay(-(bin as f32 + 0.5) / BINS_PER_NAT);
        ((count as u64) << SUM_BITS) + count as u64 * (weight * ONE) as u64
    }

    /// Whether the floor may lie below a bin, by the sum over the bins beyond it.
    #[inline(always)]
    pub fn may_end(&self, beyond: u64) -> bool {
        let (count, mass) = (beyond >> SUM_BITS, beyond & SUM_MASK);
        (mass <= self.most_below) & (count as u32 + self.least_above <= self.n)
    }

    /// How many of the row's tokens lie above it then, about, by the sum of the bin, too.
    #[inline(always)]
    pub fn above(&self, bin: u32, beyond: u64, own: u64) -> u64 {
        // The last bin has all tokens from there on, and few of them above its floor.
        let below = if bin + 1 == BINS { beyond + own } else { beyond };
        let above = self.n as u64 - (below >> SUM_BITS);
        above * self.vocab as u64 / self.n as u64
    }

    /// The floor below a bin.
    #[inline(always)]
    pub fn floor(&self, bin: u32) -> f32 {
        self.highest - (bin + 1) as f32 / BINS_PER_NAT * self.temperature
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::limits::goals;
    use super::*;
    use crate::mass::{gap, share};
    use crate::partial_sum::{greater, weight};
    use crate::scale::Scale;
    use std::vec::Vec;

    const VOCAB: u32 = 151_936;
    const SAMPLED: u32 = 8_192;

    /// Logits of unit variance, nearly normal.
    fn logits(seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut uniform = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        (0..VOCAB).map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0).collect()
    }

    fn whole(values: &[f32], temperature: f32) -> PartialSum {
        let parts = values.chunks(128).map(|tile| {
            let highest = tile.iter().copied().fold(f32::NEG_INFINITY, greater);
            let sum = tile.iter().map(|&y| weight(y, highest, 1.0 / temperature)).sum();
            PartialSum { highest, sum }
        });
        parts.fold(PartialSum::NONE, |a, b| a.merge(b, 1.0 / temperature))
    }

    #[test]
    fn goals_lie_around_the_exact_one_and_close() {
        for (seed, temperature, top_p) in [(1, 0.25, 0.9), (2, 1.0, 0.5), (3, 30.0, 0.999)] {
            let values = logits(seed);
            let whole = whole(&values, temperature);
            let scale = Scale::new(whole.highest, whole.highest, temperature, VOCAB);
            let masses = values.iter().map(|&y| scale.mass(gap(whole.highest, y, temperature)));
            let exact = share(masses.sum(), top_p);
            let [least, most] = goals(scale, whole, top_p);
            assert!(least <= exact && exact <= most, "{least} {exact} {most}");
            assert!((most - least) as f64 <= 1.3e-4 * exact as f64);
            // The error that is allowed for is far from what there is.
            let middle = (least + most) as f64 / 2.0;
            assert!((middle / exact as f64 - 1.0).abs() <= 3e-6);
        }
    }

    /// The floor of every `VOCAB / SAMPLED`th token, and how many tokens and which part of the
    /// mass it leaves.
    fn floor(values: &[f32], temperature: f32, top_p: f32) -> (f32, usize, f64) {
        let whole = whole(values, temperature);
        let sampled = values.iter().step_by((VOCAB / SAMPLED) as usize).take(SAMPLED as usize);
        let sample = Sample::new(SAMPLED, VOCAB, whole, temperature, (top_p, 0));
        let mut counts = [0; BINS as usize];
        sampled.for_each(|&y| counts[sample.bin(y) as usize] += 1);
        let mut beyond = 0;
        let mut last = None;
        for bin in (0..BINS).rev() {
            let own = sample.sum(bin, counts[bin as usize]);
            if sample.may_end(beyond) {
                last = Some((bin, sample.above(bin, beyond, own)));
            }
            beyond += own;
        }
        let (bin, expected) = last.unwrap();
        let floor = sample.floor(bin);
        let weight = |y: f32| f64::from(decay((y - whole.highest) / temperature));
        let above = values.iter().filter(|&&y| y >= floor);
        let mass: f64 = above.clone().map(|&y| weight(y)).sum();
        let ratio = expected as f64 / above.clone().count() as f64;
        assert!((0.5..2.0).contains(&ratio), "{expected} tokens expected: {ratio}");
        (floor, above.count(), mass / f64::from(whole.sum))
    }

    #[test]
    fn floors_leave_the_nucleus_and_not_much_more() {
        for (seed, temperature, top_p, most) in [
            // Of these about 900, 250, 4 and 80,000 are the nucleus.
            (1, 0.25, 0.9, 4_000),
            (2, 0.25, 0.6, 2_000),
            (3, 0.05, 0.9, 1_500),
            (4, 1.0, 0.9, 130_000),
        ] {
            let values = logits(seed);
            let (floor, n, mass) = floor(&values, temperature, top_p);
            assert!(mass >= f64::from(top_p), "{floor}: {mass}");
            assert!(n <= most, "{floor}: {n} tokens");
        }
    }

    #[test]
    fn a_token_with_most_of_the_mass_tells_nothing_of_the_rest() {
        let mut values = logits(5);
        // Half of the mass, in the sample and beyond it.
        for at in [0, 1] {
            values[at] = 6.0;
            let (floor, n, mass) = floor(&values, 0.3, 0.9);
            assert!(mass >= 0.9 && n <= 4_000, "{floor}: {n} tokens, {mass}");
        }
    }
}
