//! What the command line asks of each token: temperature, filters and penalties.

use std::collections::BTreeSet;

use flash_sampling::{Penalties, SamplingParams, SeenToken, TokenRules};

#[derive(clap::Args)]
pub(crate) struct Asked {
    /// 0 always takes the likeliest token
    #[arg(long, default_value_t = 0.7)]
    temperature: f32,
    /// Keep this many of the likeliest tokens
    #[arg(long)]
    top_k: Option<u32>,
    /// Keep the likeliest tokens that together have this probability
    #[arg(long, default_value_t = 1.0)]
    top_p: f32,
    /// Keep the tokens with at least this share of the likeliest one's probability
    #[arg(long, default_value_t = 0.0)]
    min_p: f32,
    /// Keep the tokens at most this many standard deviations of the logits below the likeliest
    #[arg(long = "top-nsigma")]
    top_n_sigma: Option<f32>,
    /// Keep the tokens with at least this probability
    #[arg(long, default_value_t = 0.0)]
    epsilon_cutoff: f32,
    /// Keep the tokens with at least this probability, or less where the entropy is high
    #[arg(long, default_value_t = 0.0)]
    eta_cutoff: f32,
    /// Divide or multiply the logits of the prompt's and the text's tokens
    #[arg(long, default_value_t = 1.0)]
    repeat_penalty: f32,
    /// Lower the logit of a token of the text by this, for each time it came
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// Lower the logit of a token of the text by this
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// Another seed, another text
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Asked {
    /// The parameters of the token at `position`.
    pub(crate) fn params(&self, position: u64) -> SamplingParams {
        let mut params = SamplingParams::new(self.temperature, self.seed, position)
            .with_top_p(self.top_p)
            .with_min_p(self.min_p)
            .with_epsilon_cutoff(self.epsilon_cutoff)
            .with_eta_cutoff(self.eta_cutoff)
            .with_penalties(self.penalties());
        (params.top_k, params.top_n_sigma) = (self.top_k, self.top_n_sigma);
        params
    }

    fn penalties(&self) -> Penalties {
        Penalties {
            repetition: self.repeat_penalty,
            frequency: self.frequency_penalty,
            presence: self.presence_penalty,
        }
    }
}

/// The tokens so far, in ascending order.
pub(crate) struct Seen(Vec<SeenToken>);

impl Seen {
    /// Those of the prompt.
    pub(crate) fn of_prompt(tokens: &[u32]) -> Self {
        let distinct: BTreeSet<u32> = tokens.iter().copied().collect();
        Self(distinct.into_iter().map(|token| SeenToken { token, count: 0 }).collect())
    }

    /// Counts a token of the text.
    pub(crate) fn add(&mut self, token: u32) {
        match self.0.binary_search_by_key(&token, |seen| seen.token) {
            Ok(at) => self.0[at].count += 1,
            Err(at) => self.0.insert(at, SeenToken { token, count: 1 }),
        }
    }

    /// As rules of a row.
    pub(crate) fn rules(&self) -> TokenRules<'_> {
        TokenRules { seen: &self.0, ..TokenRules::default() }
    }
}
