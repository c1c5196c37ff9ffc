//! Probabilities as integer masses.
//!
//! A token's weight is `e^−gap`, where `gap = (y_max − y) / T`; its mass is the weight in
//! units of a power of two. Integers add up to one sum in any order, so that a share of
//! the whole is the same for every number of threads, tile and machine.
//!
//! Only IEEE single-precision operations and integer steps, as in [`crate::gumbel`].

use core::f32::consts::LOG2_E;

use crate::gumbel::{LN_2_HIGH, LN_2_LOW, MANTISSA_BITS, ln};

/// Below this, `e^x` counts as 0; above, it is a normal number.
const LEAST_EXPONENT: f32 = -87.0;

/// `1.5·2²³`: what added to it has its integer part in the lowest bits.
const ROUNDING: f32 = 12_582_912.0;

/// `e^x` for `x ≤ 0`; 0 below −87; a NaN stays one.
#[inline(always)]
pub fn decay(x: f32) -> f32 {
    let result = decay_of_number(x);
    if x.is_nan() { x } else { result }
}

/// [`decay`] of what is not NaN: in [0, 1] whatever it is.
#[inline(always)]
fn decay_of_number(x: f32) -> f32 {
    let within = if x >= LEAST_EXPONENT { x } else { LEAST_EXPONENT };
    let within = if within < 0.0 { within } else { 0.0 };
    let rounded = within * LOG2_E + ROUNDING;
    let n = rounded - ROUNDING;
    // The first product is exact: 15 bits by 7.
    let r = (within - n * LN_2_HIGH) - n * LN_2_LOW;
    let power = rounded.to_bits().wrapping_sub(ROUNDING.to_bits()) << MANTISSA_BITS;
    let result = f32::from_bits(exp_reduced(r).to_bits().wrapping_add(power));
    if x >= LEAST_EXPONENT { result } else { 0.0 }
}

/// `e^r` for `|r| ≤ ½·ln 2`: `1 + r + r²·p(r)`, where `p` is the minimax polynomial of
/// degree 4 for the relative error of the whole, 3.1e-9. Fitted for this crate.
#[inline(always)]
fn exp_reduced(r: f32) -> f32 {
    const P: [f32; 5] = [0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_745, 0.001_381_453_9];
    let mut p = P[4];
    p = p * r + P[3];
    p = p * r + P[2];
    p = p * r + P[1];
    p = p * r + P[0];
    1.0 + (r + r * r * p)
}

/// How far a value lies below the highest, in units of the temperature: `−ln` of its
/// weight. `highest` is finite, `y ≤ highest`, `T > 0`.
#[inline(always)]
pub fn gap(highest: f32, y: f32, temperature: f32) -> f32 {
    (highest - y) / temperature
}

/// The least value that has `min_p` of the highest's probability. `T > 0`, `min_p` above 0; beyond 1
/// it counts as 1.
#[inline(always)]
pub fn min_p_floor(highest: f32, temperature: f32, min_p: f32) -> f32 {
    /// Lifts subnormal numbers to normal ones.
    const LIFT: f32 = 16_777_216.0;
    let min_p = if min_p < 1.0 { min_p } else { 1.0 };
    let log = if min_p < f32::MIN_POSITIVE { ln(min_p * LIFT) - ln(LIFT) } else { ln(min_p) };
    highest + temperature * log
}

/// The unit of the masses of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MassUnit {
    /// Units of weight 1: a power of two.
    one: f32,
}

impl MassUnit {
    /// The finest with which `tokens` masses add up to less than 2⁶³.
    pub const fn for_tokens(tokens: u32) -> Self {
        let bits = u32::BITS - (tokens | 1).leading_zeros();
        Self { one: (1u64 << (63 - bits)) as f32 }
    }

    /// The mass of a weight in [0, 1]; what lies outside counts as the nearer end, and a NaN
    /// as 1.
    #[inline(always)]
    pub fn mass(self, weight: f32) -> u64 {
        let weight = if weight < 1.0 { weight } else { 1.0 };
        let weight = if weight > 0.0 { weight } else { 0.0 };
        // SAFETY: it lies from 0 to `one`, which is at most 2⁶². A checked conversion would
        // keep loops of it from becoming vector instructions.
        unsafe { (weight * self.one).to_int_unchecked::<i64>() as u64 }
    }

    /// The mass of a weight, before it is rounded.
    #[inline(always)]
    pub fn exact_mass(self, weight: f32) -> f64 {
        weight as f64 * self.one as f64
    }

    /// The mass of the weight `e^x`, for `x ≤ 0`; no NaN.
    #[inline(always)]
    pub fn of_decay(self, x: f32) -> u64 {
        // SAFETY: as in `mass`; the weight lies from 0 to 1 by itself.
        unsafe { (decay_of_number(x) * self.one).to_int_unchecked::<i64>() as u64 }
    }

    /// The weight of a mass, which may exceed 1 for a sum.
    #[inline(always)]
    pub fn weight(self, mass: u64) -> f32 {
        mass as f32 / self.one
    }

    /// `ln` of a sum of weights that is at least 1.
    #[inline(always)]
    pub fn log_of(self, mass: u64) -> f32 {
        log_of_weights(self.weight(mass))
    }
}

/// `ln` of a sum of weights that is at least 1.
#[inline(always)]
pub fn log_of_weights(sum: f32) -> f32 {
    ln(sum)
}

/// The least mass that is at least `p` of `total`, and at least 1; `p` in (0, 1].
#[inline(always)]
pub fn share(total: u64, p: f32) -> u64 {
    let exact = total as f64 * f64::from(p);
    let floor = exact as u64;
    let share = if (floor as f64) < exact { floor + 1 } else { floor };
    share.clamp(1, total)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn decay_is_accurate_relative_to_its_size() {
        for i in 0..2_000_000 {
            let x = i as f32 * (LEAST_EXPONENT / 2_000_000.0);
            let expected = f64::from(x).exp();
            let error = (f64::from(decay(x)) - expected).abs() / expected;
            assert!(error <= 1.5e-7, "{x}: relative error {error:e}");
        }
    }

    #[test]
    fn decay_ends_where_it_should() {
        assert_eq!(decay(0.0), 1.0);
        assert_eq!(decay(-0.0), 1.0);
        assert!(decay(LEAST_EXPONENT) >= f32::MIN_POSITIVE);
        assert_eq!(decay(-87.1), 0.0);
        assert_eq!(decay(f32::NEG_INFINITY), 0.0);
        assert!(decay(f32::NAN).is_nan());
    }

    #[test]
    fn the_most_tokens_do_not_overflow() {
        for tokens in [1, 2, 3, 151_936, 1 << 31, u32::MAX] {
            let unit = MassUnit::for_tokens(tokens);
            let sum = u128::from(unit.mass(1.0)) * u128::from(tokens);
            assert!((1 << 62..1 << 63).contains(&sum) || tokens.is_power_of_two(), "{tokens}");
            assert!(sum < 1 << 63, "{tokens}");
        }
    }

    #[test]
    fn a_share_is_the_least_integer_that_reaches() {
        assert_eq!(share(100, 0.5), 50);
        assert_eq!(share(101, 0.5), 51);
        assert_eq!(share(100, 1.0), 100);
        assert_eq!(share(100, f32::from_bits(1)), 1);
        assert_eq!(share(u64::MAX >> 1, 1.0), u64::MAX >> 1);
    }

    #[test]
    fn logs_of_sums_are_accurate() {
        let unit = MassUnit::for_tokens(151_936);
        for (weights, expected) in [(1.0, 0.0), (2.0, 2f64.ln()), (1000.5, 1000.5f64.ln())] {
            let mass = (weights * f64::from(unit.one)) as u64;
            assert!((f64::from(unit.log_of(mass)) - expected).abs() <= 5e-7, "{weights}");
        }
    }

    #[test]
    fn min_p_is_measured_from_the_highest() {
        assert_eq!(min_p_floor(3.0, 0.7, 1.0), 3.0);
        assert_eq!(min_p_floor(3.0, 0.7, 1.5), 3.0);
        assert!((min_p_floor(3.0, 2.0, 0.5) - (3.0 - 2.0 * 2f32.ln())).abs() <= 1e-6);
        let least = f32::from_bits(1);
        assert!((min_p_floor(0.0, 1.0, least) + 103.278_93).abs() <= 1e-4);
    }
}
