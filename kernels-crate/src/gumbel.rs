//! Random words to Gumbel noise, with a logarithm of our own.
//!
//! `v = (word + ½)·2⁻³²` lies in `[2⁻³³, 1 − 2⁻³³]`; `E = −ln(1 − v)` is a standard
//! exponential in `[1.17e-10, 22.87]`; `g = −ln E` is standard Gumbel noise in
//! `[−3.13, 22.87]`. Neither end needs a clamp: `1 − v` is taken from the
//! complement of the word, so it never rounds to zero.
//!
//! Small `E` are the winners of the argmax, so `E` must be accurate *relative* to
//! its size down to 1e-10: the small side uses `ln(1 + f)` at `f = −v` directly.
//!
//! Only IEEE single-precision add, subtract and multiply, integer steps and exact
//! conversions: no fused multiply-add, no approximate instruction, no library
//! call. Every compiler and every machine gives the same bits.

use crate::philox::PAIR;

/// The largest noise there is: that of word 0, `−ln 2⁻³³` rounded.
pub const NOISE_MAX: f32 = 22.873_857;

/// Below the least noise, that of word 2³² − 1: `−ln 22.87 = −3.13`.
const NOISE_BELOW_ALL: f32 = -3.2;

/// A step above `ln 2`, so that [`noise_bound`] rounds upwards.
const LN_2_ABOVE: f32 = 0.693_147_24;

/// A step above `½·ln 2`.
const HALF_LN_2_ABOVE: f32 = 0.5 * LN_2_ABOVE;

// `ln 2` in two parts: the first has 15 significant bits, so that its product with
// an exponent in [−34, 5] is exact.
pub(crate) const LN_2_HIGH: f32 = 0.693_145_75;
pub(crate) const LN_2_LOW: f32 = 1.428_606_8e-6;

const TWO_POW_MINUS_32: f32 = 1.0 / 4_294_967_296.0;
pub(crate) const MANTISSA_BITS: u32 = 23;
const MANTISSA_MASK: u32 = (1 << MANTISSA_BITS) - 1;

/// Bits of `√½`, the lower end of the interval of reduced arguments.
const SQRT_HALF_BITS: u32 = 0x3F35_04F3;

/// Words below this have `1 − v > √½`: `⌊(1 − √½)·2³²⌋`.
const SMALL_WORDS: u32 = 0x4AFB_0CCC;

/// The standard Gumbel noise of a random word.
#[inline(always)]
pub fn noise(word: u32) -> f32 {
    -ln(exponential(word))
}

/// An upper bound of [`noise`], in three operations: `E ≥ v`, and `v ≥ 2⁻ᶻ⁻¹` for a
/// word with `z` leading zeros. A token whose score stays below the best even
/// with this bound needs no logarithm.
#[inline(always)]
pub fn noise_bound(word: u32) -> f32 {
    (word.leading_zeros() + 1) as f32 * LN_2_ABOVE
}

/// What a byte can say of the noise of a pair of words: twice one more than the leading
/// zeros of the smaller word, plus which of the two it is. From 2 to 67.
#[inline(always)]
pub fn noise_hint(words: [u32; PAIR]) -> u8 {
    let member = words[1] < words[0];
    let least = if member { words[1] } else { words[0] };
    (2 * (least.leading_zeros() + 1) + member as u32) as u8
}

/// An upper bound of the noise of both words behind a [`noise_hint`]. The bit that
/// names the word only adds to it.
#[inline(always)]
pub fn hint_bound(hint: u8) -> f32 {
    hint as f32 * HALF_LN_2_ABOVE
}

/// The member with the greater noise of the pair behind a [`noise_hint`], and a lower
/// bound of that noise.
#[inline(always)]
pub fn hint_floor(hint: u8) -> (usize, f32) {
    ((hint & 1) as usize, floor_of((hint >> 1) as u32 - 1))
}

/// A lower bound of [`noise`] of a word with this many leading zeros, `z`. For `z ≥ 1`,
/// `v < 2⁻ᶻ ≤ ½`, so `E < v·(1 + v)` and `g > z·ln 2 − ½`; for 0, below every noise.
#[inline(always)]
fn floor_of(leading_zeros: u32) -> f32 {
    if leading_zeros == 0 { NOISE_BELOW_ALL } else { leading_zeros as f32 * LN_2_HIGH - 0.5 }
}

/// `−ln(1 − v)`, a standard exponential.
#[inline(always)]
fn exponential(word: u32) -> f32 {
    if word < SMALL_WORDS { -ln_1p_reduced(-unit(word)) } else { -ln(unit(!word)) }
}

/// `(word + ½)·2⁻³²`, rounded twice: exact below 2²³.
#[inline(always)]
fn unit(word: u32) -> f32 {
    (word as f32 + 0.5) * TWO_POW_MINUS_32
}

/// `ln x` for a positive normal `x`: `x = m·2ᵉ` with `m` in `[√½, √2)`.
#[inline(always)]
pub(crate) fn ln(x: f32) -> f32 {
    let from_sqrt_half = x.to_bits().wrapping_sub(SQRT_HALF_BITS);
    let exponent = (from_sqrt_half as i32) >> MANTISSA_BITS;
    let m = f32::from_bits((from_sqrt_half & MANTISSA_MASK) + SQRT_HALF_BITS);
    let e = exponent as f32;
    // `m − 1` is exact (Sterbenz).
    (ln_1p_reduced(m - 1.0) + e * LN_2_LOW) + e * LN_2_HIGH
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
            let error = (f64::from(noise(word)) - expected).abs();
            let tolerance = 3e-7 + 1.2e-7 * expected.abs();
            assert!(error <= tolerance, "word {word:#x}: error {error:e}");
        }
    }

    #[test]
    fn the_bound_bounds() {
        for word in words() {
            assert!(noise(word) <= noise_bound(word), "word {word:#x}");
            assert!(noise(word) <= NOISE_MAX, "word {word:#x}");
            assert!(noise(word) >= floor_of(word.leading_zeros()), "word {word:#x}");
        }
        assert_eq!(noise(0), NOISE_MAX);
    }

    #[test]
    fn a_hint_bounds_its_pair_from_both_sides() {
        let words: std::vec::Vec<u32> = words().collect();
        for pair in words.chunks_exact(PAIR) {
            let pair: [u32; PAIR] = pair.try_into().unwrap();
            let hint = noise_hint(pair);
            let (member, floor) = hint_floor(hint);
            let greater = noise(pair[member]);
            assert!(greater >= floor && greater >= noise(pair[1 - member]), "{pair:x?}");
            assert!(greater <= hint_bound(hint), "{pair:x?}");
        }
        assert_eq!(hint_floor(noise_hint([u32::MAX; PAIR])), (0, NOISE_BELOW_ALL));
        assert_eq!(noise_hint([1, 0]), 67);
    }

    #[test]
    fn both_ends_are_finite() {
        assert_eq!(noise(0).to_bits(), NOISE_MAX.to_bits());
        assert!((noise(u32::MAX) + 3.13).abs() < 0.01, "{}", noise(u32::MAX));
    }

    #[test]
    fn the_seam_is_where_the_complement_passes_sqrt_half() {
        assert!(unit(!SMALL_WORDS) <= core::f32::consts::FRAC_1_SQRT_2);
        assert!(unit(!(SMALL_WORDS - 512)) > core::f32::consts::FRAC_1_SQRT_2);
    }
}
