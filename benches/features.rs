//! What does each feature cost on the CPU, as a ratio to the plain call?
//!
//! `cargo bench -p flash-sampling-benches --bench features`
//!
//! Every round times the plain call and all features in alternation, on the same weights.
//! The table has the medians of the ratios within a round.
#![allow(clippy::print_stdout, missing_docs)]

use std::time::Instant;

use flash_sampling::{
    FilterOrder, Inputs, LogitTransform, MatrixRef, Operand, Output, Penalties, Sampler,
    SamplingParams, SeenToken, Status, TokenRules, Wanted, bf16,
};
use flash_sampling_benches::shapes::{CPU_SHAPES, Shape};
use flash_sampling_benches::timing::Summary;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const BATCHES: [usize; 3] = [1, 4, 8];
const ROUNDS: usize = 15;
const SEED: u64 = 7;
const TEMPERATURE: f32 = 0.8;

type Failure = Box<dyn std::error::Error>;

/// What every row of a call asks for.
#[derive(Clone, Copy)]
struct Feature<'a> {
    name: &'static str,
    params: SamplingParams,
    rules: TokenRules<'a>,
    transform: LogitTransform,
    raw: Wanted,
    processed: Wanted,
}

/// Lists that features refer to.
struct Lists {
    biases: Vec<(u32, f32)>,
    seen: Vec<SeenToken>,
    bitmask: Vec<u32>,
    allowed: Vec<u32>,
}

impl Lists {
    fn new(vocab: u32) -> Self {
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

fn features(lists: &Lists) -> Vec<Feature<'_>> {
    let params = SamplingParams::new(TEMPERATURE, SEED, 0);
    let plain = Feature {
        name: "plain",
        params,
        rules: TokenRules::default(),
        transform: LogitTransform::NONE,
        raw: Wanted::default(),
        processed: Wanted::default(),
    };
    let penalties = Penalties { repetition: 1.1, frequency: 0.1, presence: 0.1 };
    let logprobs = Wanted { logprobs: true, ..Wanted::default() };
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

fn main() -> Result<(), Failure> {
    println!("| head | B | feature | ms | ratio to plain |\n| --- | --- | --- | --- | --- |");
    for &shape in CPU_SHAPES {
        let lists = Lists::new(shape.vocab);
        let (vocab, hidden) = (shape.vocab as usize, shape.hidden as usize);
        let mut rng = SmallRng::seed_from_u64(SEED);
        let mut random = |n: usize, scale: f32| -> Vec<bf16> {
            (0..n).map(|_| bf16::from_f32(rng.random_range(-scale..scale))).collect()
        };
        let weights = random(vocab * hidden, 0.25);
        for batch in BATCHES {
            let states = random(batch * hidden, 1.0);
            let inputs = Inputs::new(
                MatrixRef::new(Operand::HiddenStates, &states, batch, hidden)?,
                MatrixRef::new(Operand::Weights, &weights, vocab, hidden)?,
            );
            compare(shape, batch, &inputs, &features(&lists))?;
        }
    }
    Ok(())
}

/// Checks that every row has a token, one that its rules admit.
fn check(feature: &Feature<'_>, output: &Output) {
    let Feature { name, rules, .. } = feature;
    for (&token, &status) in output.tokens.iter().zip(&output.status) {
        assert_eq!(status, Status::OK, "{name}");
        let in_mask = |words: &[u32]| words[token as usize / 32] >> (token % 32) & 1 == 1;
        assert!(rules.bitmask.is_none_or(in_mask), "{name}: token {token}");
        assert!(rules.allow_list.is_none_or(|ids| ids.contains(&token)), "{name}: token {token}");
    }
}

fn compare(
    shape: Shape,
    batch: usize,
    inputs: &Inputs<'_>,
    features: &[Feature<'_>],
) -> Result<(), Failure> {
    let mut sampler = Sampler::cpu();
    let mut times = vec![Vec::new(); features.len()];
    let mut outputs = vec![Output::default(); features.len()];
    for round in 0..=ROUNDS {
        for (feature, (times, output)) in features.iter().zip(times.iter_mut().zip(&mut outputs)) {
            let rows: Vec<_> = (0..batch as u64)
                .map(|row| {
                    let mut params = feature.params;
                    params.key.position = row;
                    params
                })
                .collect();
            let rules = vec![feature.rules; batch];
            let inputs = inputs.with_transform(feature.transform);
            let has_rules = feature.rules != TokenRules::default();
            let inputs = if has_rules { inputs.with_token_rules(&rules) } else { inputs };
            (output.raw.wanted, output.processed.wanted) = (feature.raw, feature.processed);
            let start = Instant::now();
            sampler.sample(&inputs, &rows, 1, output)?;
            let elapsed = start.elapsed().as_secs_f64();
            // The first round grows the buffers and is checked.
            if round > 0 {
                times.push(elapsed);
            } else {
                check(feature, output);
            }
        }
    }
    for (feature, own) in features.iter().zip(&times) {
        let median = |samples| Summary::of(samples).map_or(f64::NAN, |summary| summary.median);
        let ratio = median(own.iter().zip(&times[0]).map(|(own, plain)| own / plain).collect());
        let ms = 1e3 * median(own.clone());
        println!("| {} | {batch} | {} | {ms:.2} | {ratio:.2} |", shape.name, feature.name);
    }
    Ok(())
}
