//! Division in a few fused steps: what `/` is on a GPU, but for the branch that asks for
//! numbers near the ends of the range.
//!
//! Source: Markstein, "Computation of elementary functions on the IBM RISC System/6000
//! processor", 1990, theorem 4: from a correctly rounded reciprocal and a quotient that is off
//! by less than a unit in the last place, one more remainder gives the correctly rounded one.

use crate::arch::Divisor;
use crate::gumbel::MANTISSA_BITS;

/// A positive divisor of any size, for many quotients.
#[derive(Clone, Copy, Debug)]
pub struct Lifted {
    /// A power of two that takes the divisor to between 1 and 2, or near.
    by: f32,
    divisor: Divisor,
}

impl Lifted {
    /// Dividends are cut off here, so that they are far from the ends of the range:
    /// any quotient above 128 may become another one.
    const MOST: f32 = 512.0;

    /// `divisor > 0`, finite.
    #[inline(always)]
    pub fn new(divisor: f32) -> Self {
        // Biased exponents: subtracted from twice that of 1, it is that of the inverse.
        let exponent = 2 * 127 - (divisor.to_bits() >> MANTISSA_BITS);
        let exponent = if exponent > 0 { exponent } else { 1 };
        let by = f32::from_bits(exponent << MANTISSA_BITS);
        Self { by, divisor: Divisor::new(divisor * by) }
    }

    /// `a` over the divisor; `a ≥ 0`, or NaN. Beyond 128 it is any number that is, too, and
    /// where `a` is not [`Self::is_plain`], it may be rounded otherwise.
    #[inline(always)]
    pub fn divide(self, a: f32) -> f32 {
        let a = a * self.by;
        self.divisor.divide(if a > Self::MOST { Self::MOST } else { a })
    }

    /// Whether the quotient is far from the least numbers there are.
    #[inline(always)]
    pub fn is_plain(self, a: f32) -> bool {
        /// Remainders have 2 · 24 bits fewer.
        const LEAST: f32 = 1.0 / (1u64 << 60) as f32;
        (a == 0.0) | (a * self.by >= LEAST)
    }
}

/// The reciprocal of `b` from 1 to 1.5, correctly rounded, from one that is off by a unit in the
/// last place or two. Near 2 it may stay off. `fma` is the fused multiply-add.
#[inline(always)]
pub fn reciprocal(b: f32, near: f32, fma: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let nearer = fma(fma(-b, near, 1.0), near, near);
    fma(fma(-b, nearer, 1.0), nearer, nearer)
}

/// `a / b`, correctly rounded but for the sign of a zero, from the correctly rounded
/// reciprocal of `b`. Both are finite; `b` lies between 2⁻²⁴ and 2²⁴, and where `a` is not 0, so do quotient and `a`
/// between 2⁻⁹⁶ and 2⁹⁶.
#[inline(always)]
pub fn quotient(a: f32, b: f32, reciprocal: f32, fma: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let near = a * reciprocal;
    let nearer = fma(fma(-b, near, a), reciprocal, near);
    fma(fma(-b, nearer, a), reciprocal, nearer)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "on a GPU it is these quotients' instruction")]
mod tests {
    extern crate std;
    use super::*;

    fn of_bits(exponent: u32, mantissa: u32) -> f32 {
        f32::from_bits((127 + exponent) << 23 | mantissa & 0x7F_FFFF)
    }

    fn divide(a: f32, b: f32) -> f32 {
        quotient(a, b, 1.0 / b, f32::mul_add)
    }

    #[test]
    fn quotients_are_those_of_the_division() {
        let words =
            (0_u32..1_000_000).map(|i| (i.wrapping_mul(0x9E37_79B1), i.wrapping_mul(0x85EB_CA6B)));
        // Mantissas near all zeros and all ones.
        let seams = (0..4096_u32).map(|i| ((i / 64).wrapping_sub(32), (i % 64).wrapping_sub(32)));
        for (a, b) in words.chain(seams) {
            let (a, b) = (of_bits(a >> 29, a), of_bits(0, b));
            assert_eq!(divide(a, b), a / b, "{a:e} / {b:e}");
        }
    }

    #[test]
    fn zero_and_the_ends_divide_too() {
        for b in [1.0, 1.999_999_9, 0.3, 3.9] {
            for a in [0.0, -0.0, 1e-28, -1e-28, 1e28, 512.0] {
                assert_eq!(divide(a, b), a / b, "{a:e} / {b:e}");
            }
        }
    }

    #[test]
    fn reciprocals_are_rounded_correctly() {
        for mantissa in (0..1 << 22).step_by(7) {
            let b = of_bits(0, mantissa);
            for ulps in -2..=2 {
                let near = f32::from_bits((1.0 / b).to_bits().wrapping_add_signed(ulps));
                assert_eq!(reciprocal(b, near, f32::mul_add), 1.0 / b, "1 / {b:e}, {ulps}");
            }
        }
    }
}
