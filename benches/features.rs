//! What does each feature cost on the CPU, as a ratio to the plain call?
//!
//! `cargo bench -p flash-sampling-benches --bench features`
//!
//! Every round times the plain call and all features in alternation, on the same weights.
//! The table has the medians of the ratios within a round.
#![allow(clippy::print_stdout, missing_docs)]

use std::time::Instant;

use flash_sampling::{Inputs, MatrixRef, Operand, Output, Sampler, TokenRules, bf16};
use flash_sampling_benches::asked::{Feature, Lists, SEED, features};
use flash_sampling_benches::shapes::{CPU_SHAPES, Shape};
use flash_sampling_benches::timing::Summary;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const BATCHES: [usize; 3] = [1, 4, 8];
const ROUNDS: usize = 15;
const TEMPERATURE: f32 = 0.8;

type Failure = Box<dyn std::error::Error>;

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
            compare(shape, batch, &inputs, &features(&lists, TEMPERATURE))?;
        }
    }
    Ok(())
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
                let drawn = output.tokens.iter().zip(&output.status);
                drawn.for_each(|(&token, &status)| feature.check(token, status));
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
