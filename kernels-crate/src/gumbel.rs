//! Random words to Gumbel noise, with a logarithm of our own.
//!
//! `v = (word + ½)·2⁻³²` lies in `[2⁻³³, 1 − 2⁻³³]`; `F = −ln(1 − v)` is a standard
//! exponential in `[1.17e-10, 22.87]`. Neither end needs a clamp: `1 − v` is taken from
//! the complement of the word, so it never rounds to zero.
//!
//! A token's noise is `g = −ln E`. The exponentials of a group of sixteen tokens are drawn
//! least first: the least of sixteen is `E₁ = F/16` and falls to each token alike; what the
//! others exceed it by is a standard exponential again, so `E = E₁ + F` with a word of
//! their own. So `g` lies in `[−3.2, 25.65]`, and one word bounds sixteen.
//!
//! Small `E` are the winners of the argmax, so `E` must be accurate *relative* to
//! its size down to 7e-12: the small side uses `ln(1 + f)` at `f = −v` directly.
//!
//! Only IEEE single-precision add, subtract and multiply, integer steps and exact
//! conversions: no fused multiply-add, no approximate instruction, no library
//! call. Every compiler and every machine gives the same bits.
//!
//! Source of the order: Rényi, "On the theory of order statistics", 1953, section 1.

use crate::philox::{GROUP, Least};

/// The largest noise there is: that of word 0 where it is a group's least,
/// `−ln 2⁻³⁷` rounded.
pub const NOISE_MAX: f32 = 25.646_446;

/// Below the least noise, `−ln(22.87·17/16) = −3.191`.
pub const NOISE_BELOW_ALL: f32 = -3.2;

/// Above `ln 2`, by more than the roundings of a bound.
const LN_2_ABOVE: f32 = 0.693_16;

// `ln 2` in two parts: the first has 15 significant bits, so that its product with
// an exponent in [−38, 5] is exact.
pub(crate) const LN_2_HIGH: f32 = 0.693_145_75;
pub(crate) const LN_2_LOW: f32 = 1.428_606_8e-6;

const TWO_POW_MINUS_32: f32 = 1.0 / 4_294_967_296.0;
pub(crate) const MANTISSA_BITS: u32 = 23;
const MANTISSA_MASK: u32 = (1 << MANTISSA_BITS) - 1;

/// Bits of `√½`, the lower end of the interval of reduced arguments.
const SQRT_HALF_BITS: u32 = 0x3F35_04F3;

/// Words below this have `1 − v > √½`: `⌊(1 − √½)·2³²⌋`.
const SMALL_WORDS: u32 = 0x4AFB_0CCC;

/// Standard Gumbel noise: that of an exponential.
#[inline(always)]
pub fn noise(exponential: f32) -> f32 {
    -ln(exponential)
}

/// `−ln(1 − v)`, a standard exponential.
#[inline(always)]
pub fn exponential(word: u32) -> f32 {
    // Small `v` as they are; the others by `ln` of the complement, exponent and rest.
    let is_small = word < SMALL_WORDS;
    let (m, e) = reduced(unit(!word));
    let (f, e) = if is_small { (-unit(word), 0.0) } else { (m - 1.0, e) };
    -ln_of_reduced(f, e)
}

/// A group's least exponential, from its word.
#[inline(always)]
pub fn least_exponential(word: u32) -> f32 {
    exponential(word) * (1.0 / GROUP as f32)
}

/// An upper bound of the noise of a token that is not its group's least, in three
/// operations: `E ≥ v`, and `v ≥ 2⁻ᶻ⁻¹` for a word with `z` leading zeros.
#[inline(always)]
pub fn noise_bound(word: u32) -> f32 {
    (word.leading_zeros() + 1) as f32 * LN_2_ABOVE
}

/// What is known of a group's noise without a logarithm: an upper bound, in whose last
/// four bits stands the member that has the greatest. 4 bytes, any of whose values is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Hint(u32);

impl Hint {
    /// For noise that is multiplied by zero.
    pub const NONE: Self = Self(0);

    const MEMBER_MASK: u32 = GROUP - 1;

    /// From what was drawn for the group.
    ///
    /// `E ≥ v/16`, and with `v = 2ᵉ·(1 + f)` its binary logarithm is at least `e + f`, the
    /// bits of the float as a fixed-point number.
    #[inline(always)]
    pub fn new(least: Least) -> Self {
        const ONE: f32 = (1 << MANTISSA_BITS) as f32;
        const BIAS: f32 = (127 + 32 + GROUP.ilog2()) as f32;
        let bits = (least.word as f32 + 0.5).to_bits();
        let bound = BIAS * LN_2_ABOVE - bits as f32 * (LN_2_HIGH / ONE);
        // Upwards to where the last bits are free.
        Self((bound.to_bits() + Self::MEMBER_MASK) & !Self::MEMBER_MASK | least.member)
    }

    /// Not less than the noise of any member. The bits that name the member only add.
    #[inline(always)]
    pub fn bound(self) -> f32 {
        f32::from_bits(self.0)
    }

    /// The member with the greatest noise, and a lower bound of that noise.
    #[inline(always)]
    pub fn floor(self) -> (u32, f32) {
        let bound = self.bound();
        // What the logarithm's chord and `E ≥ v` add. Without a branch: kernels unroll this.
        let gap = if bound > HALF_BOUND { 0.4 } else { 3.2 };
        let gap = if bound > QUARTER_BOUND { 0.21 } else { gap };
        let gap = if bound > EIGHTH_BOUND { 0.13 } else { gap };
        (self.0 & Self::MEMBER_MASK, bound - gap)
    }
}

/// Above the bounds of groups with `v ≥ ⅛`, `¼` and `½`.
const EIGHTH_BOUND: f32 = 4.86;
const QUARTER_BOUND: f32 = 4.17;
const HALF_BOUND: f32 = 3.48;

/// `(word + ½)·2⁻³²`, rounded twice: exact below 2²³.
#[inline(always)]
fn unit(word: u32) -> f32 {
    (word as f32 + 0.5) * TWO_POW_MINUS_32
}

/// `ln x` for a positive normal `x`.
#[inline(always)]
pub(crate) fn ln(x: f32) -> f32 {
    let (m, e) = reduced(x);
    // `m − 1` is exact (Sterbenz).
    ln_of_reduced(m - 1.0, e)
}

/// `m` in `[√½, √2)` and `e` with `x = m·2ᵉ`.
#[inline(always)]
fn reduced(x: f32) -> (f32, f32) {
    let from_sqrt_half = x.to_bits().wrapping_sub(SQRT_HALF_BITS);
    let exponent = (from_sqrt_half as i32) >> MANTISSA_BITS;
    let m = f32::from_bits((from_sqrt_half & MANTISSA_MASK) + SQRT_HALF_BITS);
    (m, exponent as f32)
}

/// `ln((1 + f)·2ᵉ)`.
#[inline(always)]
fn ln_of_reduced(f: f32, e: f32) -> f32 {
    (ln_1p_reduced(f) + e * LN_2_LOW) + e * LN_2_HIGH
}

/// `ln(1 + f)` for `f` in `[√½ − 1, √2 − 1]`: `f − f²/2 + f³·p(f)`, where `p` is the
/// minimax polynomial of degree 7 for the relative error of the whole, 5.9e-9.
/// Fitted by the Remez exchange for this crate.
#[inline(always)]
fn ln_1p_reduced(f: f32) -> f32 {
    const P: [f32; 8] = [
        0.333_333_3,
        -0.250_008_2,
        0.200_012_27,
        -0.166_233_57,
        0.142_017_59,
        -0.131_601_83,
        0.127_615_75,
        -0.076_344_95,
    ];
    let mut p = P[7];
    p = p * f + P[6];
    p = p * f + P[5];
    p = p * f + P[4];
    p = p * f + P[3];
    p = p * f + P[2];
    p = p * f + P[1];
    p = p * f + P[0];
    let square = f * f;
    f + (square * f * p - 0.5 * square)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    fn exact_exponential(word: u32) -> f64 {
        let v = (f64::from(word) + 0.5) / 4_294_967_296.0;
        -(-v).ln_1p()
    }

    /// Every exponent of the word and of its complement, and the seams.
    fn words() -> impl Iterator<Item = u32> {
        let near = |word: u32| (0..200).map(move |i| word.wrapping_add(i).wrapping_sub(100));
        let powers = (0..32).flat_map(move |bit| near(1 << bit).chain(near(!(1 << bit))));
        let strided = (0..1_000_000_u32).map(|i| i.wrapping_mul(0x9E37_79B1));
        powers.chain(near(SMALL_WORDS)).chain(near(0)).chain(strided)
    }

    #[test]
    fn exponential_is_accurate_relative_to_its_size() {
        for word in words() {
            let expected = exact_exponential(word);
            let error = (f64::from(exponential(word)) - expected).abs() / expected;
            assert!(error <= 2.5e-7, "word {word:#x}: relative error {error:e}");
        }
    }

    #[test]
    fn noise_is_accurate() {
        for word in words() {
            let expected = -exact_exponential(word).ln();
            let error = (f64::from(noise(exponential(word))) - expected).abs();
            let tolerance = 3e-7 + 1.2e-7 * expected.abs();
            assert!(error <= tolerance, "word {word:#x}: error {error:e}");
        }
    }

    /// Adding the least of the group only lowers a token's noise.
    #[test]
    fn the_bound_bounds() {
        for word in words() {
            for least in [1, 1 << 16, 1 << 28, u32::MAX].map(least_exponential) {
                let noise = noise(least + exponential(word));
                assert!(noise <= noise_bound(word), "word {word:#x}");
                assert!(noise >= NOISE_BELOW_ALL, "word {word:#x}");
            }
        }
    }

    #[test]
    fn a_hint_bounds_its_group_from_both_sides() {
        for word in words() {
            let member = word % GROUP;
            let hint = Hint::new(Least { word, member });
            let greatest = noise(least_exponential(word));
            let (found, floor) = hint.floor();
            assert_eq!(found, member);
            assert!(greatest >= floor && greatest <= hint.bound(), "word {word:#x}: {hint:?}");
            assert!(noise(least_exponential(word) + exponential(0)) <= hint.bound());
            assert!(greatest <= NOISE_MAX);
            let gap = if word < 1 << 29 { 0.14 } else { 3.2 };
            assert!(hint.bound() - greatest <= gap, "word {word:#x}: {hint:?}");
        }
        assert_eq!(noise(least_exponential(0)), NOISE_MAX);
    }

    #[test]
    fn both_ends_are_finite() {
        let both = least_exponential(u32::MAX) + exponential(u32::MAX);
        assert!((noise(both) + 3.191).abs() < 0.01, "{}", noise(both));
        assert!((noise(least_exponential(u32::MAX)) + 0.357).abs() < 0.01);
    }

    #[test]
    fn the_seam_is_where_the_complement_passes_sqrt_half() {
        assert!(unit(!SMALL_WORDS) <= core::f32::consts::FRAC_1_SQRT_2);
        assert!(unit(!(SMALL_WORDS - 512)) > core::f32::consts::FRAC_1_SQRT_2);
    }
}
