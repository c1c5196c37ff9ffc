//! What every row of a call may ask for: the features that are compared with the plain call.

use flash_sampling::{
    FilterOrder, LogitTransform, Penalties, SamplingParams, SeenToken, Status, TokenRules, Wanted,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// What the lists and the rows' noise are drawn from.
pub const SEED: u64 = 7;

/// What every row of a call asks for.
#[derive(Clone, Copy, Debug)]
pub struct Feature<'a> {
    /// The name in reports.
    pub name: &'static str,
    /// Of every row.
    pub params: SamplingParams,
    /// Of every row.
    pub rules: TokenRules<'a>,
    /// Of every logit.
    pub transform: LogitTransform,
    /// What to report of the model's distribution.
    pub raw: Wanted,
    /// What to report of each row's.
    pub processed: Wanted,
}

/// Lists that features refer to.
#[derive(Debug)]
pub struct Lists {
    biases: Vec<(u32, f32)>,
    seen: Vec<SeenToken>,
    bitmask: Vec<u32>,
    allowed: Vec<u32>,
}

impl Lists {
    /// For a vocabulary of at least 2,000 tokens.
    pub fn new(vocab: u32) -> Self {
        let every = |n: u32| (0..n).map(move |i| i * (vocab / n));
        let mut rng = SmallRng::seed_from_u64(SEED);
        Self {
            biases: every(100).map(|id| (id, 0.5)).collect(),
            seen: every(2_000).map(|token| SeenToken { token, count: token % 3 }).collect(),
            bitmask: (0..vocab.div_ceil(32)).map(|_| rng.random()).collect(),
            allowed: every(50).collect(),
        }
    }
}

impl Feature<'_> {
    /// Whether it changes neither values nor which tokens may be drawn.
    pub fn draws_plainly(&self) -> bool {
        let Self { params, rules, transform, .. } = self;
        *transform == LogitTransform::NONE && !rules.edits(params) && !params.filters()
    }

    /// Whether it wants a report.
    pub fn reports(&self) -> bool {
        self.raw.any() || self.processed.any()
    }

    /// Checks a row's token and status: the rules admit the token.
    ///
    /// # Panics
    /// They do not, or the status is not clean.
    pub fn check(&self, token: u32, status: Status) {
        let Self { name, rules, .. } = self;
        assert_eq!(status, Status::OK, "{name}");
        let in_mask = |words: &[u32]| words[token as usize / 32] >> (token % 32) & 1 == 1;
        assert!(rules.bitmask.is_none_or(in_mask), "{name}: token {token}");
        assert!(rules.allow_list.is_none_or(|ids| ids.contains(&token)), "{name}: token {token}");
    }
}

/// The plain call at this temperature, then the others.
pub fn features(lists: &Lists, temperature: f32) -> Vec<Feature<'_>> {
    let params = SamplingParams::new(temperature, SEED, 0);
    let plain = Feature {
        name: "plain",
        params,
        rules: TokenRules::default(),
        transform: LogitTransform::NONE,
        raw: Wanted::default(),
        processed: Wanted::default(),
    };
    let penalties = Penalties { repetition: 1.1, frequency: 0.1, presence: 0.1 };
    let logprobs = Wanted::LOGPROBS;
    let best = Wanted { logprobs: true, ranks: true, entropies: true, best: 20 };
    let biased = TokenRules { logit_bias: &lists.biases, ..plain.rules };
    let seen = TokenRules { seen: &lists.seen, ..plain.rules };
    let masked = TokenRules { bitmask: Some(&lists.bitmask), ..plain.rules };
    let allowed = TokenRules { allow_list: Some(&lists.allowed), ..plain.rules };
    let capped = LogitTransform { softcap: Some(30.0), scale: 0.9, scale_first: false };
    let everything = TokenRules { logit_bias: &lists.biases, seen: &lists.seen, ..masked };
    vec![
        plain,
        Feature { name: "softcap and scale", transform: capped, ..plain },
        Feature { name: "logit_bias, 100 ids", rules: biased, ..plain },
        Feature {
            name: "penalties, 2,000 ids",
            rules: seen,
            params: params.with_penalties(penalties),
            ..plain
        },
        Feature { name: "bitmask, half of the tokens", rules: masked, ..plain },
        Feature { name: "allow-list, 50 ids", rules: allowed, ..plain },
        Feature { name: "min_p 0.05", params: params.with_min_p(0.05), ..plain },
        Feature { name: "top_n_sigma 1", params: params.with_top_n_sigma(1.0), ..plain },
        Feature {
            name: "epsilon_cutoff 0.0003",
            params: params.with_epsilon_cutoff(3e-4),
            ..plain
        },
        Feature { name: "eta_cutoff 0.0003", params: params.with_eta_cutoff(3e-4), ..plain },
        Feature { name: "top_k 50", params: params.with_top_k(50), ..plain },
        Feature { name: "top_p 0.9", params: params.with_top_p(0.9), ..plain },
        Feature {
            name: "top_k 50, top_p 0.9",
            params: params.with_top_k(50).with_top_p(0.9),
            ..plain
        },
        Feature {
            name: "the same, joint",
            params: params.with_top_k(50).with_top_p(0.9).with_filter_order(FilterOrder::Joint),
            ..plain
        },
        Feature {
            name: "top_p 0.9 at T = 50",
            params: SamplingParams::new(50.0, SEED, 0).with_top_p(0.9),
            ..plain
        },
        Feature { name: "processed logprobs", processed: logprobs, ..plain },
        Feature { name: "raw logprobs", raw: logprobs, ..plain },
        Feature {
            name: "top_p 0.9, 20 best",
            params: params.with_top_p(0.9),
            processed: Wanted { best: 20, ..logprobs },
            ..plain
        },
        Feature {
            name: "everything",
            params: params
                .with_top_k(50)
                .with_top_p(0.9)
                .with_min_p(0.01)
                .with_top_n_sigma(4.0)
                .with_epsilon_cutoff(3e-4)
                .with_eta_cutoff(3e-4)
                .with_penalties(penalties),
            rules: everything,
            transform: capped,
            raw: best,
            processed: best,
        },
    ]
}
