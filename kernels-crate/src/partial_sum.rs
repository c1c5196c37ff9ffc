//! Parts of a row's sum of `e^(y/T)`, as the warps of a sampling kernel leave them of their
//! tiles.
//!
//! A part is relative to its own greatest value, so that none overflows, and parts merge as the
//! running pairs of an online softmax do (Milakov, Gimelshein; arXiv 1805.02867). Floating-point
//! sums: each kernel adds in an order of its own, always the same.

use core::f32::consts::LOG2_E;

use crate::arch::exp2_approx;
use crate::mass::{gap, log_of_weights};

/// A power of 2 that counts as nothing.
const LEAST_EXPONENT: f32 = -200.0;

/// Parts that are on their way together.
const TOGETHER: usize = 3;

/// The sum of `e^((y − highest)/T)` over some of a row's tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(8))]
pub struct PartialSum {
    /// The greatest value; `−inf` where there is none above.
    pub highest: f32,
    /// At least 1 where that is finite; else without meaning.
    pub sum: f32,
}

impl PartialSum {
    /// That of no tokens.
    pub const NONE: Self = Self { highest: f32::NEG_INFINITY, sum: 0.0 };

    /// That of both; `inverse` is `1/T`.
    #[inline(always)]
    pub fn merge(self, other: Self, inverse: f32) -> Self {
        let highest = greater(self.highest, other.highest);
        let own = self.sum * weight(self.highest, highest, inverse);
        let others = other.sum * weight(other.highest, highest, inverse);
        Self { highest, sum: own + others }
    }

    /// `ln Σ e^(y/T)`, of all tokens; ±inf where the highest is.
    #[inline(always)]
    pub fn log_sum_exp(self, temperature: f32) -> f32 {
        if self.highest.is_finite() {
            self.highest / temperature + log_of_weights(self.sum)
        } else {
            self.highest
        }
    }

    /// `ln` of the probability of a token with the value `y`; NaN where the highest is `+inf`.
    #[inline(always)]
    pub fn logprob(self, y: f32, temperature: f32) -> f32 {
        -gap(self.highest, y, temperature) - log_of_weights(self.sum)
    }

    /// In one word, for [`crate::arch::block_reduce`].
    #[inline(always)]
    pub fn bits(self) -> u64 {
        (self.highest.to_bits() as u64) << 32 | self.sum.to_bits() as u64
    }

    /// The part that is meant.
    #[inline(always)]
    pub fn from_bits(bits: u64) -> Self {
        let (highest, sum) = ((bits >> 32) as u32, bits as u32);
        Self { highest: f32::from_bits(highest), sum: f32::from_bits(sum) }
    }
}

/// The sum of every `step`th of `n` parts from `first` on, several on their way together; `inverse`
/// is `1/T`.
///
/// # Safety
/// There are so many.
#[inline(always)]
pub unsafe fn merge_each(
    parts: *const PartialSum,
    (first, step, n): (u32, u32, u32),
    inverse: f32,
) -> PartialSum {
    let (mut sum, mut at) = (PartialSum::NONE, first);
    while at < n {
        let mut together = [PartialSum::NONE; TOGETHER];
        let mut i = 0;
        while i < TOGETHER {
            let at = at + i as u32 * step;
            if at < n {
                // SAFETY: the caller's promise.
                together[i] = unsafe { parts.add(at as usize).read() };
            }
            i += 1;
        }
        let highest = together.iter().fold(sum.highest, |a, part| greater(a, part.highest));
        let weigh = |part: PartialSum| part.sum * weight(part.highest, highest, inverse);
        sum = PartialSum { highest, sum: together.iter().fold(weigh(sum), |a, &b| a + weigh(b)) };
        at += TOGETHER as u32 * step;
    }
    sum
}

/// Merges two parts, each in a word.
#[inline(always)]
pub fn merge_words(inverse: f32) -> impl Fn([u64; 1], [u64; 1]) -> [u64; 1] {
    move |[a], [b]| [PartialSum::from_bits(a).merge(PartialSum::from_bits(b), inverse).bits()]
}

/// The greater of two; a NaN in the second's place is passed over.
#[inline(always)]
pub fn greater(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// `e^((y − highest)/T)` for `y ≤ highest`, 1 for equals whatever they are; 0 for a NaN. Off by
/// 2.4e-7 of itself at most, and by 2.5e-7 for each 1 of the exponent.
#[inline(always)]
pub fn weight(y: f32, highest: f32, inverse: f32) -> f32 {
    // Of a NaN, the least.
    let exponent = greater(LEAST_EXPONENT, (y - highest) * (inverse * LOG2_E));
    exp2_approx(if y == highest { 0.0 } else { exponent })
}

/// `e^((y − unit)/T)`, and its `−log₂` as that was rounded: so what is found from both is of one
/// distribution, at nearly that temperature. `unit` is finite.
#[inline(always)]
pub fn weight_and_depth(y: f32, unit: f32, inverse: f32) -> [f32; 2] {
    let exponent = greater(LEAST_EXPONENT, (y - unit) * (inverse * LOG2_E));
    [exp2_approx(exponent), -exponent]
}

/// The temperature that a report measures at: 1 for a greedy row.
#[inline(always)]
pub fn report_temperature(temperature: f32) -> f32 {
    if temperature == 0.0 { 1.0 } else { temperature }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    #[test]
    fn what_is_not_finite_is_as_in_other_reports() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let alone = |y: f32| PartialSum { highest: greater(-inf, y), sum: 1.0 };
        let merged = |values: &[f32], temperature: f32| {
            let merge = |a: PartialSum, &y: &f32| a.merge(alone(y), 1.0 / temperature);
            values.iter().fold(PartialSum::NONE, merge)
        };
        let of = |values: &[f32]| merged(values, 1.0);
        assert_eq!(of(&[-inf, -inf]).log_sum_exp(1.0), -inf);
        assert_eq!(of(&[1.0, inf, 2.0, inf]).log_sum_exp(1.0), inf);
        assert!(of(&[1.0, inf, 2.0]).logprob(inf, 1.0).is_nan());
        assert_eq!(
            [weight(nan, 3.0, 1.0), weight(-inf, 3.0, 1.0), weight(3.0, 3.0, 1.0)],
            [0.0, 0.0, 1.0]
        );
        assert_eq!(greater(3.0, nan), 3.0);
        // The least temperature that there is.
        let least = f32::from_bits(1);
        assert_eq!(merged(&[0.0, -1.0, 0.0], least), PartialSum { highest: 0.0, sum: 2.0 });
    }

    #[test]
    fn a_part_is_a_word() {
        let part = PartialSum { highest: -3.5, sum: 1.25 };
        assert_eq!(PartialSum::from_bits(part.bits()), part);
    }
}
