//! Rows that ask for a random mix of everything.

use std::sync::Arc;

use flash_sampling::{Dtype, EditOrder, FilterOrder, Penalties, SamplingParams, SeenToken};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use super::{Case, HIDDEN_STATES, Head, Matrix, Rules, WEIGHTS, params};

/// A row's parameters, drawn at random.
pub fn random_params(rng: &mut StdRng, temperature: f32, vocab: usize) -> SamplingParams {
    let mut params = params(temperature, rng.random(), rng.random());
    let vocab = vocab as u32;
    let top_ks = [None, None, Some(1), Some(2), Some(7), Some(50), Some(vocab), Some(u32::MAX)];
    params.top_k = *top_ks.choose(rng).unwrap();
    params.top_p = *[1.0, 1.0, 0.999, 0.9, 0.6, 0.2, 1e-6].choose(rng).unwrap();
    params.min_p = *[0.0, 0.0, 1e-30, 1e-3, 0.05, 0.4, 1.0].choose(rng).unwrap();
    params.top_n_sigma = *[None, None, None, Some(0.3), Some(1.0), Some(2.5)].choose(rng).unwrap();
    params.epsilon_cutoff = *[0.0, 0.0, 0.0, 1e-4, 0.01, 0.3].choose(rng).unwrap();
    params.eta_cutoff = *[0.0, 0.0, 0.0, 1e-3, 0.05, 0.5].choose(rng).unwrap();
    let orders = [FilterOrder::Sequential, FilterOrder::MinPLast, FilterOrder::Joint];
    params.filter_order = *orders.choose(rng).unwrap();
    params.filters_at_one = rng.random_ratio(1, 16);
    params.edit_order = *[EditOrder::BiasFirst, EditOrder::BiasLast].choose(rng).unwrap();
    if rng.random_ratio(1, 3) {
        params.penalties = Penalties {
            repetition: *[0.5, 1.0, 1.25, 2.0].choose(rng).unwrap(),
            frequency: *[-0.5, 0.0, 2.0].choose(rng).unwrap(),
            presence: *[-1.0, 0.0, 8.0].choose(rng).unwrap(),
        };
    }
    params
}

/// A row's rules, drawn at random.
pub fn random_rules(rng: &mut StdRng, first: u32, vocab: u32) -> Rules {
    let mut ids = |one_in: u32| -> Vec<u32> {
        (first..first + vocab).filter(|_| rng.random_ratio(1, one_in)).collect()
    };
    let (banned, mut allowed, seen, biased) = (ids(9), ids(3), ids(5), ids(7));
    if allowed.is_empty() {
        allowed.push(first);
    }
    let words = (first + vocab).div_ceil(32);
    let bitmask = (0..words).map(|_| rng.random::<u32>() | rng.random::<u32>()).collect();
    let mut bias = || *[-64.0, 3.5, 40.0, f32::NEG_INFINITY].choose(rng).unwrap();
    Rules {
        logit_bias: biased.into_iter().map(|id| (id, bias())).collect(),
        seen: seen.into_iter().map(|token| SeenToken { token, count: token % 4 }).collect(),
        bitmask: rng.random_bool(0.5).then_some(bitmask),
        allow_list: rng.random_bool(0.3).then_some(allowed),
        ban_list: banned,
    }
}

/// Rows of every kind: from peaked to flat, with ties, and tokens of `−inf`.
pub fn random_case(seed: u64, vocab: usize, first_token: u32) -> Case {
    const BATCH: usize = 200;
    let mut rng = StdRng::seed_from_u64(seed);
    let weights = Matrix::integers(WEIGHTS + seed, Dtype::Bf16, vocab, 24);
    let bias = (0..vocab).map(|_| if rng.random_ratio(1, 11) { f32::NEG_INFINITY } else { 0.0 });
    let head = Head { first_token, ..Head::new(weights).with_bias(bias.collect()) };
    let hidden_states = Matrix::integers(HIDDEN_STATES + seed, Dtype::Bf16, BATCH, 24);
    let rows = (0..BATCH).map(|row| {
        // The logits' deviation is 118.
        let temperature = [0.0, 1.0, 20.0, 60.0, 120.0, 500.0, 1e6][row % 7];
        random_params(&mut rng, temperature, vocab)
    });
    let rows = rows.collect();
    let name = format!("random mixes {seed}, V {vocab}, from {first_token}");
    let case = Case::new(name, &Arc::new(head), hidden_states, rows).with_draws(3);
    if seed.is_multiple_of(3) {
        return case;
    }
    let rules = (0..BATCH).map(|_| random_rules(&mut rng, first_token, vocab as u32)).collect();
    case.with_rules(rules)
}
