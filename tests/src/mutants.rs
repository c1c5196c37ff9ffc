//! Samplers wrong in ways that have shipped, each with the check that must reject it.
//!
//! All are one plain sampler over the kernels' own words, noise and candidates, with one
//! defect; without a defect it is right, and must pass every one of those checks.

use flash_sampling::{NO_TOKEN, NoiseKey, Output, Status, bf16};
use flash_sampling_kernels::candidate::{Key, Leaders};
use flash_sampling_kernels::gumbel::{Hint, noise_bound};
use flash_sampling_kernels::philox::{GROUP, Subkey};
use flash_sampling_kernels::score::{score, token_noise, token_value};
use rayon::prelude::*;

use crate::checks::{distribution, edges, exact, features, properties};
use crate::inputs::Case;
use crate::panel::{Effort, Implementation, Panel};

mod row;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Uniforms above 0.999 are cut to it.
    NoiseCut,
    /// Uniforms of 24 bits.
    TwentyFourBits,
    /// Position and draw make one counter, a decimal sum.
    DecimalSum,
    /// The position is cut to 32 bits.
    ShortPosition,
    /// Scores rounded to bf16 before they are compared.
    Bf16Candidates,
    /// A logit of `−inf` becomes 0.
    MaskedToZero,
    /// Padding rows of the weights count as tokens.
    PaddingCounts,
    /// Noise keyed by the batch slot.
    KeyedBySlot,
    /// `(logit + noise) / T`.
    AllDividedByTemperature,
    /// The vocabulary cut into eight equal groups, the rest forgotten.
    TailDropped,
    /// Of equal scores the highest id.
    TiesToHighest,
    /// Noise named by the token's place in its shard.
    LocalIds,
    /// A NaN reaches the comparison, which it wins.
    NanWins,
    /// A row without a candidate answers 0.
    ZeroByDefault,
    /// In filtered rows noise is keyed by the token's rank.
    NoiseByRank,
    /// min_p is measured on what top_p left.
    MinPAfterTopP,
    /// The token after the one that meets `top_p` is kept.
    OneMore,
    /// Filters are measured before the temperature.
    MassBeforeTemperature,
    /// The standard deviation of top-nσ is that of a sample.
    DeviationOfSample,
    /// The greater of the two bounds of `eta_cutoff` counts.
    EtaGreater,
    /// Bits of a mask beyond the vocabulary admit padding rows.
    TrailingBits,
}

/// A check and its name.
pub type Check = (&'static str, fn(&mut Panel));

macro_rules! check {
    ($group:ident::$check:ident) => {
        (concat!(stringify!($group), "::", stringify!($check)), $group::$check)
    };
}

impl Defect {
    /// All of them, each with the check that must reject it.
    pub const ALL: [(Self, Check); 21] = [
        (Self::NoiseCut, check!(distribution::small_vocabularies)),
        (Self::TwentyFourBits, check!(distribution::rare_tokens)),
        (Self::DecimalSum, check!(edges::keys_do_not_collide)),
        (Self::ShortPosition, check!(edges::keys_do_not_collide)),
        (Self::Bf16Candidates, check!(exact::ragged_edges)),
        (Self::MaskedToZero, check!(distribution::excluded_tokens_never_come)),
        (Self::PaddingCounts, check!(edges::padding_never_appears)),
        (Self::KeyedBySlot, check!(properties::slot_and_neighbours)),
        (Self::AllDividedByTemperature, check!(distribution::temperature_divides_the_logit)),
        (Self::TailDropped, check!(exact::ragged_edges)),
        (Self::TiesToHighest, check!(edges::all_equal)),
        (Self::LocalIds, check!(properties::shard_splits)),
        (Self::NanWins, check!(edges::nan_in_a_weight)),
        (Self::ZeroByDefault, check!(edges::nan_in_a_hidden_state)),
        (Self::NoiseByRank, check!(features::random_mixes)),
        (Self::MinPAfterTopP, check!(features::random_mixes)),
        (Self::OneMore, check!(features::shares_that_are_met_exactly)),
        (Self::MassBeforeTemperature, check!(features::random_mixes)),
        (Self::DeviationOfSample, check!(features::deviations_below_the_likeliest)),
        (Self::EtaGreater, check!(features::least_probabilities)),
        (Self::TrailingBits, check!(features::bits_of_a_mask)),
    ];
}

/// A sampler with a defect, alone.
pub fn panel_of(defect: Option<Defect>) -> Panel {
    Panel::new(vec![Box::new(Mutant { name: format!("{defect:?}"), defect })], Effort::Host)
}

struct Mutant {
    name: String,
    defect: Option<Defect>,
}

impl Implementation for Mutant {
    fn name(&self) -> &str {
        &self.name
    }

    fn sample(&mut self, case: &Case, output: &mut Output) -> bool {
        *output = Output::default();
        let rows = (0..case.batch()).into_par_iter().map(|row| self.row(case, row));
        for (leaders, mut status) in rows.collect::<Vec<_>>().into_iter().flatten() {
            let mut token = leaders.first.token();
            if token == NO_TOKEN {
                status.insert(Status::NO_CANDIDATE);
                if self.defect == Some(Defect::ZeroByDefault) {
                    token = 0;
                }
            }
            output.tokens.push(token);
            output.status.push(status);
            output.scores.push(leaders.first.score());
            output.margins.push(leaders.margin());
        }
        true
    }
}

impl Mutant {
    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// The best two and the status of each draw.
    fn row(&self, case: &Case, row: usize) -> Vec<(Leaders, Status)> {
        let (logits, status) = self.logits(case, row);
        let survivors = row::survivors(&logits, &case.rows[row], self.defect);
        if self.has(Defect::NoiseByRank) && case.rows[row].top_p < 1.0 {
            let ranked: Vec<f32> = survivors.iter().map(|&at| logits[at]).collect();
            let draw = |draw| {
                let mut leaders = self.draw(case, row, draw, &ranked);
                if leaders.first != Key::NONE {
                    let rank = leaders.first.token() - case.head.first_token;
                    let token = case.head.first_token + survivors[rank as usize] as u32;
                    leaders.first = Key::new(leaders.first.score(), token);
                }
                (leaders, status)
            };
            return (0..case.draws).map(draw).collect();
        }
        let mut kept = vec![f32::NEG_INFINITY; logits.len()];
        survivors.into_iter().for_each(|at| kept[at] = logits[at]);
        (0..case.draws).map(|draw| (self.draw(case, row, draw, &kept), status)).collect()
    }

    fn logits(&self, case: &Case, row: usize) -> (Vec<f32>, Status) {
        let head = &case.head;
        let mask = case.rules.get(row).and_then(|rules| rules.bitmask.as_ref());
        let vocab = if self.has(Defect::PaddingCounts) {
            head.weights.rows()
        } else if let Some(words) = mask.filter(|_| self.has(Defect::TrailingBits)) {
            head.weights.rows().min(32 * words.len())
        } else if self.has(Defect::TailDropped) {
            head.vocab_valid / 8 * 8
        } else {
            head.vocab_valid
        };
        let mut status = Status::OK;
        let hidden: Vec<f32> =
            (0..case.hidden_states.columns()).map(|d| case.hidden_states.get(row, d)).collect();
        let logits = (0..vocab).map(|token| {
            let products = hidden.iter().enumerate().map(|(d, h)| h * head.weights.get(token, d));
            let dot = products.fold(0.0, |sum, product| sum + product);
            let bias = head.bias.as_ref().and_then(|bias| bias.get(token)).copied().unwrap_or(0.0);
            let id = head.first_token + token as u32;
            let x = case.transform.apply(dot + bias);
            let y = row::edited(case, row, id, x);
            let is_nan = y.is_nan();
            let y = token_value(y, 0.0, &mut status);
            if self.has(Defect::MaskedToZero) && y == f32::NEG_INFINITY {
                0.0
            } else if self.has(Defect::NanWins) && is_nan {
                f32::INFINITY
            } else {
                y
            }
        });
        (logits.collect(), status)
    }

    fn draw(&self, case: &Case, row: usize, draw: u32, logits: &[f32]) -> Leaders {
        let params = &case.rows[row];
        let temperature = params.temperature;
        let (key, draw) = self.key(params.key, row, draw);
        let subkey = Subkey::new(key, draw);
        let first = if self.has(Defect::LocalIds) { 0 } else { case.head.first_token };
        let mut leaders = Leaders::NONE;
        let mut hint = (u32::MAX, Hint::NONE);
        for (at, &y) in (0..).zip(logits) {
            let token = first + at;
            let group = token / GROUP;
            if hint.0 != group {
                hint = (group, Hint::new(subkey.least(group)));
            }
            // Most tokens need no noise.
            let bound = y + temperature * self.noise_bound(subkey, token, hint.1);
            if y == f32::NEG_INFINITY || bound < leaders.second.score() {
                continue;
            }
            let s = self.score(y, temperature, self.noise(subkey, token));
            leaders.offer(Key::new(s, self.rank(case.head.first_token + at)));
        }
        if leaders.first != Key::NONE {
            leaders.first = Key::new(leaders.first.score(), self.rank(leaders.first.token()));
        }
        leaders
    }

    /// What names the noise.
    fn key(&self, key: NoiseKey, row: usize, draw: u32) -> (NoiseKey, u32) {
        let NoiseKey { seed, position } = key;
        match self.defect {
            Some(Defect::DecimalSum) => {
                let position = position.wrapping_mul(10).wrapping_add(u64::from(draw));
                (NoiseKey { seed, position }, 0)
            }
            Some(Defect::ShortPosition) => {
                (NoiseKey { seed, position: u64::from(position as u32) }, draw)
            }
            Some(Defect::KeyedBySlot) => (NoiseKey { seed: seed ^ row as u64, position }, draw),
            _ => (key, draw),
        }
    }

    /// Not less than the noise, where that is known.
    fn noise_bound(&self, subkey: Subkey, token: u32, hint: Hint) -> f32 {
        match self.defect {
            None | Some(Defect::NoiseCut) => hint.bound(),
            Some(Defect::TwentyFourBits) => noise_bound(subkey.token_word(token)),
            _ => f32::INFINITY,
        }
    }

    fn noise(&self, subkey: Subkey, token: u32) -> f32 {
        match self.defect {
            Some(Defect::NoiseCut) => token_noise(subkey, token).min(-(-0.999_f32.ln()).ln()),
            // Each token alone, whose least exponential is 2⁻²⁴.
            Some(Defect::TwentyFourBits) => {
                const STEP: f32 = 1.0 / 16_777_216.0;
                let uniform = 1.0 - ((subkey.token_word(token) >> 8) + 1) as f32 * STEP;
                -(-uniform.max(STEP).ln()).ln()
            }
            _ => token_noise(subkey, token),
        }
    }

    fn score(&self, y: f32, temperature: f32, g: f32) -> f32 {
        match self.defect {
            Some(Defect::AllDividedByTemperature) if temperature > 0.0 => (y + g) / temperature,
            Some(Defect::Bf16Candidates) => bf16::from_f32(score(y, temperature, g)).to_f32(),
            _ => score(y, temperature, g),
        }
    }

    /// What a candidate is ordered by beside its score; its own inverse.
    fn rank(&self, token: u32) -> u32 {
        if self.has(Defect::TiesToHighest) { NO_TOKEN - 1 - token } else { token }
    }
}
