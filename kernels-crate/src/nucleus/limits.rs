//! What the tokens of a row must be within, where its filters compare each to all of the row's.

use super::SUM_ERROR;
use crate::abi::kept::RowFeatures;
use crate::mass::{min_p_floor, share};
use crate::partial_sum::{PartialSum, greater};
use crate::scale::Scale;

/// What of a row's filters compares a token to all of the row's.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// 1 is off.
    pub top_p: f32,
    /// 0 is off, as of the others.
    pub top_k: u32,
    /// Of the likeliest token's probability.
    pub min_p: f32,
    /// A probability.
    pub epsilon_cutoff: f32,
}

impl Shares {
    /// Those of a row that asks for none.
    pub const NONE: Self = Self { top_p: 1.0, top_k: 0, min_p: 0.0, epsilon_cutoff: 0.0 };

    /// Those of a row.
    #[inline(always)]
    pub fn new(features: &RowFeatures) -> Self {
        let RowFeatures { top_p, top_k, min_p, epsilon_cutoff, .. } = *features;
        Self { top_p, top_k, min_p, epsilon_cutoff }
    }

    /// How many tokens are kept at most.
    #[inline(always)]
    fn most(&self) -> u32 {
        if self.top_k > 0 { self.top_k } else { u32::MAX }
    }

    /// The least value that a token has which is kept: the least and the greatest that it may be,
    /// by the sum of all weights.
    #[inline(always)]
    pub fn floors(&self, whole: PartialSum, temperature: f32) -> [f32; 2] {
        let weights = [1.0 - SUM_ERROR as f32, 1.0 + SUM_ERROR as f32].map(|by| whole.sum * by);
        self.floors_of(whole.highest, temperature, weights)
    }

    /// The same, for two sums.
    #[inline(always)]
    fn floors_of(&self, highest: f32, temperature: f32, weights: [f32; 2]) -> [f32; 2] {
        let mut floors = [f32::NEG_INFINITY; 2];
        if self.min_p > 0.0 {
            floors = [min_p_floor(highest, temperature, self.min_p); 2];
        }
        let mut i = 0;
        while self.epsilon_cutoff > 0.0 && i < 2 {
            let least = min_p_floor(highest, temperature, self.epsilon_cutoff * weights[i]);
            floors[i] = greater(floors[i], least);
            i += 1;
        }
        floors
    }
}

/// What a token of a row must be within, to be kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Mass of the tokens likelier than it is less: the least and the greatest that this may be.
    pub goals: [u64; 2],
    /// Their number is less.
    pub most: u32,
    /// [`Shares::floors`].
    pub floors: [f32; 2],
}

impl Limits {
    /// Those of a row, its masses measured by `scale`.
    #[inline(always)]
    pub fn new(shares: &Shares, scale: Scale, whole: PartialSum) -> Self {
        let goals = if shares.top_p < 1.0 { goals(scale, whole, shares.top_p) } else { [!0; 2] };
        Self { goals, most: shares.most(), floors: shares.floors(whole, scale.temperature()) }
    }

    /// Those of a row whose tokens have the mass `all`.
    #[inline(always)]
    pub fn exact(shares: &Shares, scale: Scale, highest: f32, all: u64) -> Self {
        let goal = if shares.top_p < 1.0 { share(all, shares.top_p) } else { !0 };
        let floors = shares.floors_of(highest, scale.temperature(), [scale.weight(all); 2]);
        Self { goals: [goal; 2], most: shares.most(), floors }
    }

    /// Whether a token with this value may be kept, and whether it is for sure; `likelier` are the
    /// mass of the likelier ones and their number.
    #[inline(always)]
    pub fn admit(&self, likelier: [u64; 2], y: f32) -> [bool; 2] {
        let may_be = self.is_open(likelier) & (y >= self.floors[0]);
        [may_be, may_be & (likelier[0] < self.goals[0]) & (y >= self.floors[1])]
    }

    /// Whether a token may be kept with a value less than `y`, `likelier` than which so many are.
    #[inline(always)]
    pub fn admit_below(&self, likelier: [u64; 2], y: f32) -> bool {
        self.is_open(likelier) & (y > self.floors[0])
    }

    #[inline(always)]
    fn is_open(&self, [mass, n]: [u64; 2]) -> bool {
        (mass < self.goals[1]) & (n < self.most as u64)
    }
}

/// The masses, the least and the greatest that it may be, with which a nucleus is complete.
#[inline(always)]
pub(super) fn goals(scale: Scale, whole: PartialSum, top_p: f32) -> [u64; 2] {
    let mass = scale.mass_of_weight(whole.sum);
    let [least, most] = [mass * (1.0 - SUM_ERROR), mass * (1.0 + SUM_ERROR)];
    [share(least as u64, top_p), share(most as u64 + 1, top_p)]
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    const VOCAB: u32 = 4_000;
    const T: f32 = 0.7;

    fn values() -> Vec<f32> {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 22) as f32
        };
        (0..VOCAB).map(|_| next() + next() - 4.0).collect()
    }

    /// Of a sum that is off by as much as it may be, the exact limits are within what it tells.
    #[test]
    fn exact_limits_lie_within_those_of_a_sum() {
        let values = values();
        let highest = values.iter().copied().fold(f32::NEG_INFINITY, greater);
        let scale = Scale::new(highest, highest, T, VOCAB);
        let all = values.iter().map(|&y| scale.mass(scale.gap(y))).sum();
        for (top_p, epsilon_cutoff, min_p) in
            [(0.9, 0.0, 0.0), (0.3, 2e-4, 0.0), (1.0, 1e-3, 0.0), (1.0, 1e-9, 0.1), (0.5, 1.0, 1.0)]
        {
            let shares = Shares { top_p, top_k: 0, min_p, epsilon_cutoff };
            let exact = Limits::exact(&shares, scale, highest, all);
            assert_eq!(exact.goals[0], exact.goals[1]);
            assert_eq!(exact.floors[0], exact.floors[1]);
            for error in [-0.99, 0.0, 0.99] {
                let sum = f64::from(scale.weight(all)) * (1.0 + error * SUM_ERROR);
                let whole = PartialSum { highest, sum: sum as f32 };
                let limits = Limits::new(&shares, scale, whole);
                assert!(limits.goals[0] <= exact.goals[0] && exact.goals[0] <= limits.goals[1]);
                assert!(limits.floors[0] <= exact.floors[0] && exact.floors[0] <= limits.floors[1]);
                for &y in &values {
                    // What is certain by the sum is so exactly.
                    let likelier = values.iter().filter(|&&other| other > y);
                    let mass = likelier.map(|&y| scale.mass(scale.gap(y)));
                    let likelier = mass.fold([0, 0], |[sum, n], mass| [sum + mass, n + 1]);
                    let [is_kept, same] = exact.admit(likelier, y);
                    assert_eq!(is_kept, same);
                    let [may_be, is_certain] = limits.admit(likelier, y);
                    assert!(!is_certain | is_kept, "{y} of {shares:?}");
                    assert!(may_be | !is_kept, "{y} of {shares:?}");
                }
            }
        }
    }

    #[test]
    fn each_limit_excludes() {
        let limits = Limits { goals: [10, 20], most: 3, floors: [1.0, 2.0] };
        assert_eq!(limits.admit([9, 2], 2.0), [true, true]);
        // Within the error of a sum.
        assert_eq!(limits.admit([10, 2], 2.0), [true, false]);
        assert_eq!(limits.admit([9, 2], 1.5), [true, false]);
        assert_eq!(limits.admit([20, 2], 2.0), [false, false]);
        assert_eq!(limits.admit([9, 3], 2.0), [false, false]);
        assert_eq!(limits.admit([9, 2], 0.5), [false, false]);
        assert!(limits.admit_below([19, 2], 1.5));
        assert!(!limits.admit_below([19, 2], 1.0));
        assert!(!limits.admit_below([20, 2], 9.0) && !limits.admit_below([19, 3], 9.0));
    }
}
