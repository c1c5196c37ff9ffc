//! Whether a contender computes what it should, on a problem small enough for the CPU.

use anyhow::{Context, ensure};
use flash_sampling::{Inputs, MatrixRef, Operand, Output, Sampler, SamplingParams};
use half::bf16;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::contender::{Contender, Outcome};
use crate::gpu::Gpu;
use crate::rows::key;
use crate::shapes::Shape;

/// Tokens of the small problem: no multiple of a tile, and of 8 for cuBLASLt.
const VOCAB: u32 = 1_000;
/// The hidden size is cut to below twice this, with the same remainder.
const HIDDEN: u32 = 512;
/// Bound of the integers that fill the weights.
const BOUND: i32 = 2;
/// Elements of a hidden state that are ±1, not 0: every logit is an integer of at most
/// `NONZERO · BOUND`, exact in f32 in every order of summation, and in bf16.
const NONZERO: usize = 64;

/// Compares a contender's outcome with the CPU's for the shape's hidden size, cut, and
/// `batch` rows of small integers, where every way gives the same logits: tokens and
/// logits must be equal.
///
/// # Errors
/// The contender cannot run, or its outcome is wrong.
pub fn check(
    gpu: &Gpu,
    contender: &dyn Contender,
    shape: &Shape,
    batch: u32,
) -> anyhow::Result<()> {
    let (small, weights, hidden_states) = small_integers(shape, VOCAB, batch);
    let on_device = [gpu.upload(&weights)?, gpu.upload(&hidden_states)?];

    let call = contender.prepare(gpu, &small, batch, on_device[1].address())?;
    call.poison()?;
    // SAFETY: the weights have the shape, and `outcome` waits for the call.
    unsafe { call.enqueue(on_device[0].address()) }?;
    match call.outcome().context("on a small problem")? {
        Outcome::Tokens(tokens) => {
            let temperature = contender.temperature();
            check_tokens(&tokens, &weights, &hidden_states, &small, batch, temperature)
        }
        Outcome::Logits(logits) => check_logits(&logits, &weights, &hidden_states, &small, batch),
    }
}

/// A shape with `vocab` tokens and the hidden size of `shape`, cut, and for it weights and
/// hidden states of small integers.
pub(crate) fn small_integers(
    shape: &Shape,
    vocab: u32,
    batch: u32,
) -> (Shape, Vec<bf16>, Vec<bf16>) {
    let hidden = if shape.hidden < HIDDEN { shape.hidden } else { HIDDEN + shape.hidden % HIDDEN };
    let small = Shape { name: shape.name, vocab, hidden };
    let mut random = SmallRng::seed_from_u64(u64::from(batch) << 32 | u64::from(hidden));
    let weights = (0..vocab * hidden)
        .map(|_| bf16::from_f32(random.random_range(-BOUND..=BOUND) as f32))
        .collect();
    let mut hidden_states = vec![bf16::ZERO; (batch * hidden) as usize];
    for state in hidden_states.chunks_exact_mut(hidden as usize) {
        for _ in 0..NONZERO {
            let d = random.random_range(0..state.len());
            state[d] = if random.random() { bf16::ONE } else { bf16::NEG_ONE };
        }
    }
    (small, weights, hidden_states)
}

fn check_tokens(
    tokens: &[u32],
    weights: &[bf16],
    hidden_states: &[bf16],
    shape: &Shape,
    batch: u32,
    temperature: f32,
) -> anyhow::Result<()> {
    let (rows, columns) = (batch as usize, shape.hidden as usize);
    let inputs = Inputs::new(
        MatrixRef::new(Operand::HiddenStates, hidden_states, rows, columns)?,
        MatrixRef::new(Operand::Weights, weights, shape.vocab as usize, columns)?,
    );
    let params: Vec<_> = (0..batch)
        .map(key)
        .map(|(seed, position)| SamplingParams::new(temperature, seed, position))
        .collect();
    let mut expected = Output::default();
    Sampler::cpu().sample(&inputs, &params, 1, &mut expected)?;
    ensure!(tokens.len() == rows, "{} tokens for {rows} rows", tokens.len());
    for (row, (found, expected)) in tokens.iter().zip(&expected.tokens).enumerate() {
        ensure!(found == expected, "wrong token of row {row}: expected {expected}, found {found}");
    }
    Ok(())
}

/// Looks at the first and the last row: a product that is right there strides right.
fn check_logits(
    logits: &[bf16],
    weights: &[bf16],
    hidden_states: &[bf16],
    shape: &Shape,
    batch: u32,
) -> anyhow::Result<()> {
    let (vocab, hidden) = (shape.vocab as usize, shape.hidden as usize);
    for row in [0, batch as usize - 1] {
        let state = &hidden_states[row * hidden..][..hidden];
        for (token, weights) in weights.chunks_exact(hidden).enumerate() {
            let exact: f32 = state.iter().zip(weights).map(|(h, w)| h.to_f32() * w.to_f32()).sum();
            let (expected, found) = (bf16::from_f32(exact), logits[row * vocab + token]);
            ensure!(
                found == expected,
                "wrong logit of row {row}, token {token}: expected {expected}, found {found}"
            );
        }
    }
    Ok(())
}
