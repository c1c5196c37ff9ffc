//! What a call reports of a row's distribution, beside the tokens.
#![forbid(unsafe_code)]

use flash_sampling_kernels::abi::NO_TOKEN;

use crate::error::{Error, Param};
use crate::output::{reserve, resize};

/// Most tokens that a report lists for a row.
const BEST_MAX: u32 = 20;

/// What to report; nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// The log-sum-exp of each row and the log-probability of each token drawn.
    pub logprobs: bool,
    /// The rank of each token drawn.
    pub ranks: bool,
    /// The entropy of each row.
    pub entropies: bool,
    /// How many of the likeliest tokens of each row, with their log-probabilities; at most 20.
    pub best: u32,
}

impl Wanted {
    /// Nothing.
    pub const NONE: Self = Self { logprobs: false, ranks: false, entropies: false, best: 0 };

    /// The log-sum-exp of each row and the log-probability of each token drawn.
    pub const LOGPROBS: Self = Self { logprobs: true, ..Self::NONE };

    /// Whether that is anything.
    pub fn any(&self) -> bool {
        *self != Self::NONE
    }

    /// Checks how many tokens are to be listed.
    pub(crate) fn check(self) -> Result<(), Error> {
        match self.best {
            0..=BEST_MAX => Ok(()),
            best => Err(Error::Param { row: None, param: Param::Best, found: f64::from(best) }),
        }
    }
}

/// The report of a call on one of the two distributions of its rows; what is not wanted is
/// empty.
///
/// The *raw* one is the model's: `softmax` of the logits after bias, cap and scale. The
/// *processed* one is the row's: after its rules and penalties, at its temperature, or at 1
/// if that is 0, and before the filters.
/// On a GPU log-sum-exps, log-probabilities and entropies may be told from sums in floating point,
/// within 1e-5 and a millionth of themselves where they were measured, 6e-5 at worst ([`Plan::partials`](crate::Plan::partials)); all else has the same bits everywhere.
/// Of a row with a logit of `+inf` the log-probabilities and the entropy are NaN.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// What to report; kept from call to call.
    pub wanted: Wanted,
    /// `[B]`: `ln Σ e^(y / T)`; `−inf` for a row without a token.
    pub log_sum_exps: Vec<f32>,
    /// `[B, S]`: `ln` of the token's probability; `−inf` for [`NO_TOKEN`].
    pub logprobs: Vec<f32>,
    /// `[B, S]`: how many tokens have at least the token's value, itself among them; 0 for
    /// [`NO_TOKEN`].
    pub ranks: Vec<u32>,
    /// `[B]`: `−Σ p·ln p`, in nats.
    pub entropies: Vec<f32>,
    /// `[B, N]`: the likeliest first, of equals the lower id; then [`NO_TOKEN`].
    pub best_tokens: Vec<u32>,
    /// `[B, N]`: their log-probabilities; then `−inf`.
    pub best_logprobs: Vec<f32>,
}

impl Report {
    /// Makes sure of the memory for what is wanted of `rows` rows with `draws` draws each.
    pub(crate) fn reserve(&mut self, rows: u64, draws: u64) -> Result<(), Error> {
        let lens = self.wanted.lens(rows, draws);
        reserve(&mut self.log_sum_exps, lens.log_sum_exps)?;
        reserve(&mut self.logprobs, lens.logprobs)?;
        reserve(&mut self.ranks, lens.ranks)?;
        reserve(&mut self.entropies, lens.entropies)?;
        reserve(&mut self.best_tokens, lens.best)?;
        reserve(&mut self.best_logprobs, lens.best)?;
        Ok(())
    }

    /// Gives everything the size that is wanted, filled as for rows without a token.
    pub(crate) fn clear(&mut self, rows: u64, draws: u64) -> Result<(), Error> {
        let lens = self.wanted.lens(rows, draws);
        refill(&mut self.log_sum_exps, lens.log_sum_exps, f32::NEG_INFINITY)?;
        refill(&mut self.logprobs, lens.logprobs, f32::NEG_INFINITY)?;
        refill(&mut self.ranks, lens.ranks, 0)?;
        refill(&mut self.entropies, lens.entropies, 0.0)?;
        refill(&mut self.best_tokens, lens.best, NO_TOKEN)?;
        refill(&mut self.best_logprobs, lens.best, f32::NEG_INFINITY)
    }

    /// Takes over the report of row `row` from one of that row alone.
    pub(crate) fn set_row(&mut self, row: usize, alone: &Self) {
        fn set<T: Copy>(all: &mut [T], row: usize, alone: &[T]) {
            all[row * alone.len()..][..alone.len()].copy_from_slice(alone);
        }
        set(&mut self.log_sum_exps, row, &alone.log_sum_exps);
        set(&mut self.logprobs, row, &alone.logprobs);
        set(&mut self.ranks, row, &alone.ranks);
        set(&mut self.entropies, row, &alone.entropies);
        set(&mut self.best_tokens, row, &alone.best_tokens);
        set(&mut self.best_logprobs, row, &alone.best_logprobs);
    }
}

/// Makes it `len` times `value`.
fn refill<T: Clone>(values: &mut Vec<T>, len: u64, value: T) -> Result<(), Error> {
    values.clear();
    resize(values, len, value)
}

/// Lengths of the parts of a report.
pub(crate) struct Lens {
    pub(crate) log_sum_exps: u64,
    pub(crate) logprobs: u64,
    pub(crate) ranks: u64,
    pub(crate) entropies: u64,
    pub(crate) best: u64,
}

impl Wanted {
    pub(crate) fn lens(self, rows: u64, draws: u64) -> Lens {
        let if_wanted = |wanted: bool, len: u64| if wanted { len } else { 0 };
        Lens {
            log_sum_exps: if_wanted(self.logprobs, rows),
            logprobs: if_wanted(self.logprobs, rows * draws),
            ranks: if_wanted(self.ranks, rows * draws),
            entropies: if_wanted(self.entropies, rows),
            best: rows * u64::from(self.best),
        }
    }
}
