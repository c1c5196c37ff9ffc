//! Two rows of one batch, one sampled and one greedy, on the CPU.
#![allow(clippy::print_stdout)]

use flash_sampling::{Error, Inputs, MatrixRef, Operand, Output, Sampler, SamplingParams, bf16};

const VOCAB: usize = 50_000;
const HIDDEN: usize = 64;

fn main() -> Result<(), Error> {
    // An LM head and hidden states; a model would provide both.
    let wave = |i: usize| bf16::from_f32((i as f32 * 0.731).sin());
    let weights: Vec<bf16> = (0..VOCAB * HIDDEN).map(wave).collect();
    let hidden_states: Vec<bf16> = (0..2 * HIDDEN).map(|i| wave(i * i)).collect();
    let inputs = Inputs::new(
        MatrixRef::new(Operand::HiddenStates, &hidden_states, 2, HIDDEN)?,
        MatrixRef::new(Operand::Weights, &weights, VOCAB, HIDDEN)?,
    );

    let mut sampler = Sampler::cpu();
    let mut output = Output::default();
    for position in 0..3 {
        // Temperature, seed and decode step of each row.
        let rows = [SamplingParams::new(0.8, 42, position), SamplingParams::greedy()];
        sampler.sample(&inputs, &rows, 1, &mut output)?;
        println!("position {position}: tokens {:?}, margins {:?}", output.tokens, output.margins);
    }
    Ok(())
}
