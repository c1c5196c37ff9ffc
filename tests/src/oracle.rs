//! The contract in `f64`, slowly: what every implementation is judged by.
//!
//! Shares no code with the kernels and imports nothing from this workspace. Sources:
//! Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11;
//! Gumbel, "Statistical theory of extreme values", 1954; the noise rule of
//! `docs/design/noise.md`.

mod row;

pub use row::{Filters, Order, Rules, Survivors, Transform, summary};

/// What names a row's noise, and its temperature.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// `T ≥ 0`.
    pub temperature: f64,
    /// The request's seed.
    pub seed: u64,
    /// The decode step.
    pub position: u64,
}

/// The oracle's answer for one row and draw.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Score of each token in order; `−inf` where not admissible.
    pub scores: Vec<f64>,
    /// Index into `scores` of the winner, the lowest on a tie; `None` without a candidate.
    pub winner: Option<usize>,
    /// Winner's score minus the best of the others: 0 without a winner and for a tie
    /// of infinities, `+inf` without another.
    pub margin: f64,
}

/// The largest finite score, of either sign.
const LARGEST: f64 = f32::MAX as f64;

/// Draws from tokens with these logits, the first of which has id `first_token`. A NaN
/// counts as `−inf`; a finite logit keeps a finite score at any temperature.
pub fn draw(logits: &[f64], first_token: u32, row: Row, draw: u32) -> Verdict {
    let subkey = subkey(row, draw);
    let scores: Vec<f64> = (first_token..)
        .zip(logits)
        .map(|(token, &logit)| {
            if logit.is_nan() || logit == f64::NEG_INFINITY {
                f64::NEG_INFINITY
            } else if logit == f64::INFINITY {
                logit
            } else {
                let score = logit + row.temperature * noise(subkey, token);
                score.clamp(-LARGEST, LARGEST)
            }
        })
        .collect();
    let best = |skip: Option<usize>| {
        let mut best = None;
        for (i, &score) in scores.iter().enumerate() {
            let better = best.is_none_or(|b: usize| score > scores[b]);
            if Some(i) != skip && score > f64::NEG_INFINITY && better {
                best = Some(i);
            }
        }
        best
    };
    let winner = best(None);
    let score_of = |at: Option<usize>| at.map_or(f64::NEG_INFINITY, |i| scores[i]);
    let second = winner.and_then(|_| best(winner));
    let (first_score, second_score) = (score_of(winner), score_of(second));
    let margin = if first_score == second_score { 0.0 } else { first_score - second_score };
    Verdict { scores, winner, margin }
}

/// `softmax(logits / T)` for `T > 0` and logits that are `−inf` or finite.
pub fn probabilities(logits: &[f64], temperature: f64) -> Vec<f64> {
    let highest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> =
        logits.iter().map(|logit| ((logit - highest) / temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

/// A standard exponential from a random word: `−ln(1 − v)`, `v = (word + ½)·2⁻³²`.
pub fn exponential(word: u32) -> f64 {
    let v = (f64::from(word) + 0.5) / 2f64.powi(32);
    -(-v).ln_1p()
}

/// Standard Gumbel noise of a token. The least exponential of its sixteen neighbours is a
/// sixteenth of a standard one; the others exceed it by standard ones of their own.
pub fn noise(subkey: [u32; 2], token: u32) -> f64 {
    let (least, member) = least(subkey, token);
    let beyond = if token % 16 == member { 0.0 } else { exponential(word(subkey, token)) };
    -(exponential(least) / 16.0 + beyond).ln()
}

/// What the tokens of a row share for one draw: the first two words of a block named by
/// draw, position and seed.
pub fn subkey(row: Row, draw: u32) -> [u32; 2] {
    let counter = [draw, 0, low(row.position), high(row.position)];
    let [key, counter, ..] = philox4x32(10, counter, [low(row.seed), high(row.seed)]);
    [key, counter]
}

/// The word of the least exponential among a token's neighbours, and which of them has
/// it: the first four bits of the second word.
pub fn least([key, counter]: [u32; 2], token: u32) -> (u32, u32) {
    let [word, which] = philox2x32(10, [token / 16, counter], key);
    (word, which >> 28)
}

/// A token's own word: bit 3 of the id says which of a pair's two.
pub fn word([key, counter]: [u32; 2], token: u32) -> u32 {
    philox2x32(10, [(1 << 31) + pair(token), counter], key)[usize::from(token & 8 != 0)]
}

/// The token's id with bit 3 removed, one bit after the other.
pub fn pair(token: u32) -> u32 {
    let kept = (0..32).filter(|&bit| bit != 3);
    kept.enumerate().map(|(to, from)| (token >> from & 1) << to).sum()
}

// The golden ratio and √3 − 1, as 32-bit fractions: what round keys grow by.
const WEYL: [u64; 2] = [0x9E37_79B9, 0xBB67_AE85];

fn round_key(key: u32, round: u64, weyl: u64) -> u32 {
    low(u64::from(key) + round * weyl)
}

/// Philox-4×32 with `rounds` rounds: figure 2 and section 3.3 of the paper, the
/// counter as two blocks (left, right), each multiplied into a high and a low half.
pub fn philox4x32(rounds: u64, counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
    let mut state = counter;
    for round in 0..rounds {
        let products = [0, 1].map(|i| MULTIPLIERS[i] * u64::from(state[2 * i]));
        let keys = [0, 1].map(|i| round_key(key[i], round, WEYL[i]));
        state = [
            high(products[1]) ^ state[1] ^ keys[0],
            low(products[1]),
            high(products[0]) ^ state[3] ^ keys[1],
            low(products[0]),
        ];
    }
    state
}

/// Philox-2×32 with `rounds` rounds: one such block alone.
pub fn philox2x32(rounds: u64, counter: [u32; 2], key: u32) -> [u32; 2] {
    let mut state = counter;
    for round in 0..rounds {
        let product = 0xD256_D193 * u64::from(state[0]);
        state = [high(product) ^ round_key(key, round, WEYL[0]) ^ state[1], low(product)];
    }
    state
}

fn low(x: u64) -> u32 {
    (x & 0xFFFF_FFFF) as u32
}

fn high(x: u64) -> u32 {
    (x >> 32) as u32
}
