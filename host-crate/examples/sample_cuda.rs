//! The easy door of the GPU back end: upload a head once, then sample step by step.
//!
//! `cargo run --release --features cuda --example sample_cuda`
#![allow(clippy::print_stdout)]

use flash_sampling::cuda::Cuda;
use flash_sampling::{Error, MatrixRef, Operand, Output, Sampler, SamplingParams, bf16};

fn main() -> Result<(), Error> {
    let (batch, vocab, hidden) = (2, 32_000, 1024);
    let mut sampler = Sampler::<Cuda>::cuda(0)?;

    // Where a model would give its LM head, some numbers.
    let weights: Vec<bf16> = (0..vocab * hidden).map(|i| number(i as u32)).collect();
    let head = sampler.upload(MatrixRef::new(Operand::Weights, &weights, vocab, hidden)?, None)?;

    let mut output = Output::default();
    for step in 0..4 {
        // Where a model would give its last hidden states, other numbers.
        let states: Vec<bf16> = (0..batch * hidden).map(|i| number(!i as u32 ^ step)).collect();
        let states = MatrixRef::new(Operand::HiddenStates, &states, batch, hidden)?;
        let rows = [SamplingParams::new(0.8, 42, step.into()), SamplingParams::greedy()];
        sampler.sample(&head, states, &rows, 1, &mut output)?;
        println!("step {step}: tokens {:?}, scores {:?}", output.tokens, output.scores);
    }
    println!("on {}", sampler.device_name());
    Ok(())
}

/// A number in −1/8 … 1/8 that looks random.
fn number(i: u32) -> bf16 {
    let mixed = (i ^ i >> 15).wrapping_mul(0x9E37_79B1) >> 16;
    bf16::from_f32(mixed as f32 / 262_144.0 - 0.125)
}
