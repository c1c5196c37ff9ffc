//! The method: from a dot product to the score that is compared.
//!
//! `y = a + bias`, then `score = y + T·g`. The token with the greatest score is an
//! exact draw from `softmax(y / T)` (Gumbel-max). `T = 0` multiplies the noise by
//! zero and is greedy without a branch. Dividing `y + g` by `T` would change
//! nothing: the temperature must reach one of the two alone.
//!
//! Sources: `docs/design/noise.md`; FlashSampling, arXiv 2603.15854, section 3.

use crate::candidate::{Key, Leaders};
use crate::gumbel::{Hint, exponential, least_exponential, noise, noise_bound};
use crate::philox::{GROUP, NoiseKey, PAIR, PAIR_BIT, Subkey};
use crate::status::Status;

/// What one row asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowParams {
    /// `T ≥ 0`; 0 is greedy.
    pub temperature: f32,
    /// Names the row's noise.
    pub key: NoiseKey,
}

/// The value `y` of a token with dot product `a`. A NaN counts as `−inf`.
#[inline(always)]
pub fn token_value(dot: f32, bias: f32, status: &mut Status) -> f32 {
    let y = dot + bias;
    if y.is_nan() {
        status.insert(Status::NAN_SEEN);
        return f32::NEG_INFINITY;
    }
    if y == f32::INFINITY {
        status.insert(Status::INF_SEEN);
    }
    y
}

/// The score of a token that is not `−inf`; never NaN and never `−0`.
///
/// A finite value keeps a finite score at any temperature, so that only a logit of
/// `+inf` ties with `+inf` and no admissible token turns into `−inf`.
#[inline(always)]
pub fn score(y: f32, temperature: f32, g: f32) -> f32 {
    if y == f32::INFINITY {
        return y;
    }
    let s = at_noise(y, temperature, g);
    // Not `clamp`, which keeps a NaN.
    let s = if s >= f32::MIN { s } else { f32::MIN };
    let s = if s <= f32::MAX { s } else { f32::MAX };
    // Turns −0 into +0: the two must tie.
    s + 0.0
}

/// The score at noise `g`, as [`score`] rounds it: what bounds of the noise bound.
#[inline(always)]
pub fn at_noise(y: f32, temperature: f32, g: f32) -> f32 {
    y + temperature * g
}

/// Whether a score stays below `threshold` for every noise up to `g`. False where a NaN
/// leaves it open.
#[inline(always)]
pub fn stays_below(y: f32, temperature: f32, g: f32, threshold: f32) -> bool {
    at_noise(y, temperature, g) < threshold
}

/// Offers tokens `base` and `base + PAIR_BIT` to `leaders`.
///
/// Tokens whose score cannot reach `threshold` are passed over: their noise is
/// bounded first by that of their group, then by the leading zeros of their word. This
/// changes no result as long as `threshold` is at most the score that an offer
/// has to beat, since every step rounds monotonically.
#[inline(always)]
pub fn offer_pair(
    y: [f32; PAIR],
    base: u32,
    temperature: f32,
    subkey: Subkey,
    threshold: f32,
    leaders: &mut Leaders,
) {
    let highest = if y[0] > y[1] { y[0] } else { y[1] };
    let least = subkey.least(base / GROUP);
    let bound = Hint::new(least).bound();
    if highest == f32::NEG_INFINITY || stays_below(highest, temperature, bound, threshold) {
        return;
    }
    let words = subkey.pair_words(base);
    let least_exponential = least_exponential(least.word);
    let mut member = 0;
    while member < PAIR {
        let (value, word) = (y[member], words[member]);
        let token = base + member as u32 * PAIR_BIT;
        let is_least = token % GROUP == least.member;
        let passed_over =
            !is_least && stays_below(value, temperature, noise_bound(word), threshold);
        if value != f32::NEG_INFINITY && !passed_over {
            let beyond = if is_least { 0.0 } else { exponential(word) };
            let s = score(value, temperature, noise(least_exponential + beyond));
            leaders.offer(Key::new(s, token));
        }
        member += 1;
    }
}

/// The noise of one token.
#[inline(always)]
pub fn token_noise(subkey: Subkey, token: u32) -> f32 {
    let least = subkey.least(token / GROUP);
    let beyond =
        if token % GROUP == least.member { 0.0 } else { exponential(subkey.token_word(token)) };
    noise(least_exponential(least.word) + beyond)
}

/// Offers one token: [`offer_pair`] for kernels whose threads own single tokens.
#[inline(always)]
pub fn offer_token(y: f32, token: u32, temperature: f32, subkey: Subkey, leaders: &mut Leaders) {
    if y != f32::NEG_INFINITY {
        let s = score(y, temperature, token_noise(subkey, token));
        leaders.offer(Key::new(s, token));
    }
}
