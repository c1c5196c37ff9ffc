//! What each row of a batch asks for.
#![forbid(unsafe_code)]

use flash_sampling_kernels::philox::NoiseKey;
use flash_sampling_kernels::score::RowParams;
use flash_sampling_kernels::transform::Penalties;

use crate::error::{Error, Param};

pub mod engines;

/// Parameters of one batch row. Greedy and sampled rows mix freely in a batch.
///
/// What a row says of single tokens is in [`TokenRules`](crate::TokenRules).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SamplingParams {
    /// Finite and ≥ 0; 0 is greedy, and then the filters change nothing.
    pub temperature: f32,
    /// Names the row's noise; the same key draws the same token from the same logits.
    pub key: NoiseKey,
    /// Keeps the `k` likeliest tokens, of equals the lower ids; at least 1.
    pub top_k: Option<u32>,
    /// Keeps the likeliest tokens up to the one with which their probability reaches
    /// `top_p`; in (0, 1], and 1 is off.
    pub top_p: f32,
    /// Keeps the tokens with at least `min_p` of the likeliest one's probability; in
    /// [0, 1], and 0 is off.
    pub min_p: f32,
    /// Keeps the tokens at most so many standard deviations of the row's values below the
    /// likeliest one, at any temperature (top-nσ, arXiv 2411.07641); finite and above 0.
    /// The deviation is that of llama.cpp: of all tokens that are admitted, divided by
    /// their number.
    pub top_n_sigma: Option<f32>,
    /// Keeps the tokens with at least this probability, and the likeliest (ε-sampling,
    /// arXiv 2210.15191, as transformers has it); in [0, 1], and 0 is off.
    pub epsilon_cutoff: f32,
    /// Keeps the tokens with at least the probability `min(ε, √ε·e^−H)`, where `ε` is this
    /// and `H` the entropy, and the likeliest (η-sampling, from the same); in [0, 1], and 0
    /// is off.
    pub eta_cutoff: f32,
    /// What probabilities are shares of.
    pub filter_order: FilterOrder,
    /// Measures the filters at temperature 1, whatever the row's.
    pub filters_at_one: bool,
    /// Penalties on the tokens that the row has seen.
    pub penalties: Penalties,
    /// Whether bias or penalties come first.
    pub edit_order: EditOrder,
}

/// In what order the filters count: what probabilities are shares of.
///
/// `top_n_sigma` comes before the three that the orders name, `epsilon_cutoff` and then
/// `eta_cutoff` after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilterOrder {
    /// min_p, top_k, top_p, each measured on what the one before it left.
    #[default]
    Sequential,
    /// top_k, top_p, min_p, each measured on what the one before it left.
    MinPLast,
    /// Each measured on all tokens.
    Joint,
}

/// In what order a row's edits of single tokens happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EditOrder {
    /// Bias; repetition; frequency and presence.
    #[default]
    BiasFirst,
    /// Frequency and presence; repetition; bias.
    BiasLast,
}

impl SamplingParams {
    /// Sampling at `temperature`, with the noise of (seed, position).
    pub const fn new(temperature: f32, seed: u64, position: u64) -> Self {
        Self {
            temperature,
            key: NoiseKey { seed, position },
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            top_n_sigma: None,
            epsilon_cutoff: 0.0,
            eta_cutoff: 0.0,
            filter_order: FilterOrder::Sequential,
            filters_at_one: false,
            penalties: Penalties::NONE,
            edit_order: EditOrder::BiasFirst,
        }
    }

    /// The likeliest token; of equals, the lowest id.
    pub const fn greedy() -> Self {
        Self::new(0.0, 0, 0)
    }

    /// Keeps the `k` likeliest tokens.
    #[must_use]
    pub const fn with_top_k(mut self, k: u32) -> Self {
        self.top_k = Some(k);
        self
    }

    /// Keeps the likeliest tokens that together have the probability `p`.
    #[must_use]
    pub const fn with_top_p(mut self, p: f32) -> Self {
        self.top_p = p;
        self
    }

    /// Keeps the tokens with at least `p` of the likeliest one's probability.
    #[must_use]
    pub const fn with_min_p(mut self, p: f32) -> Self {
        self.min_p = p;
        self
    }

    /// Keeps the tokens at most `n` standard deviations below the likeliest one.
    #[must_use]
    pub const fn with_top_n_sigma(mut self, n: f32) -> Self {
        self.top_n_sigma = Some(n);
        self
    }

    /// Keeps the tokens with at least the probability `p`.
    #[must_use]
    pub const fn with_epsilon_cutoff(mut self, p: f32) -> Self {
        self.epsilon_cutoff = p;
        self
    }

    /// Keeps the tokens with at least the probability `p`, or less where the entropy is high.
    #[must_use]
    pub const fn with_eta_cutoff(mut self, p: f32) -> Self {
        self.eta_cutoff = p;
        self
    }

    /// Measures the filters in this order.
    #[must_use]
    pub const fn with_filter_order(mut self, order: FilterOrder) -> Self {
        self.filter_order = order;
        self
    }

    /// Penalizes the tokens that the row has seen.
    #[must_use]
    pub const fn with_penalties(mut self, penalties: Penalties) -> Self {
        self.penalties = penalties;
        self
    }

    /// Whether a filter may keep a token from being drawn: what
    /// [`Features::filters`](crate::Features::filters) is to say of a call's rows.
    pub fn filters(&self) -> bool {
        self.temperature > 0.0 && self.first_filter().is_some()
    }

    pub(crate) fn first_filter(&self) -> Option<Param> {
        first([
            (self.top_k.is_some(), Param::TopK),
            (self.top_p != 1.0, Param::TopP),
            (self.min_p != 0.0, Param::MinP),
            (self.top_n_sigma.is_some(), Param::TopNSigma),
            (self.epsilon_cutoff != 0.0, Param::EpsilonCutoff),
            (self.eta_cutoff != 0.0, Param::EtaCutoff),
        ])
    }

    pub(crate) fn first_penalty(&self) -> Option<Param> {
        let Penalties { repetition, frequency, presence } = self.penalties;
        first([
            (repetition != 1.0, Param::Repetition),
            (frequency != 0.0, Param::Frequency),
            (presence != 0.0, Param::Presence),
        ])
    }

    pub(crate) const fn row_params(&self) -> RowParams {
        RowParams { temperature: self.temperature, key: self.key }
    }

    fn check(&self) -> Result<(), (Param, f64)> {
        let Self { temperature, top_k, top_p, min_p, penalties, .. } = *self;
        let n = self.top_n_sigma.unwrap_or(1.0);
        let [epsilon, eta] = [self.epsilon_cutoff, self.eta_cutoff];
        let Penalties { repetition, frequency, presence } = penalties;
        let checks = [
            (temperature.is_finite() && temperature >= 0.0, Param::Temperature, temperature),
            (top_k != Some(0), Param::TopK, 0.0),
            (top_p > 0.0 && top_p <= 1.0, Param::TopP, top_p),
            ((0.0..=1.0).contains(&min_p), Param::MinP, min_p),
            (n.is_finite() && n > 0.0, Param::TopNSigma, n),
            ((0.0..=1.0).contains(&epsilon), Param::EpsilonCutoff, epsilon),
            ((0.0..=1.0).contains(&eta), Param::EtaCutoff, eta),
            (repetition.is_finite() && repetition > 0.0, Param::Repetition, repetition),
            (frequency.is_finite(), Param::Frequency, frequency),
            (presence.is_finite(), Param::Presence, presence),
        ];
        match checks.into_iter().find(|(holds, ..)| !holds) {
            Some((_, param, found)) => Err((param, f64::from(found))),
            None => Ok(()),
        }
    }
}

/// The first parameter that is asked for.
pub(crate) fn first<const N: usize>(params: [(bool, Param); N]) -> Option<Param> {
    params.into_iter().find_map(|(asked, param)| asked.then_some(param))
}

/// Checks every row.
///
/// # Errors
/// [`Error::Param`] naming the first row outside the domain, the parameter and its value.
pub fn validate(rows: &[SamplingParams]) -> Result<(), Error> {
    for (row, params) in (0..).zip(rows) {
        params.check().map_err(|(param, found)| Error::Param { row: Some(row), param, found })?;
    }
    Ok(())
}
