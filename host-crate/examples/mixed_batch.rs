//! Four rows of one batch that ask for different things, in one pass over the weights:
//! greedy, nucleus, constrained by a grammar's bitmask, penalized. On a GPU if there is one and
//! the feature `cuda` is on, else on the CPU.
#![allow(clippy::print_stdout)]

use flash_sampling::{
    Error, Inputs, MatrixRef, Operand, Output, Penalties, Sampler, SamplingParams, SeenToken,
    TokenRules, Wanted, bf16,
};

const VOCAB: usize = 50_000;
const HIDDEN: usize = 64;
const NAMES: [&str; 4] = ["greedy", "nucleus", "constrained", "penalized"];

fn main() -> Result<(), Error> {
    // An LM head and hidden states; a model would provide both.
    let wave = |i: usize| bf16::from_f32((i as f32 * 0.731).sin());
    let weights: Vec<bf16> = (0..VOCAB * HIDDEN).map(wave).collect();
    let hidden_states: Vec<bf16> = (0..NAMES.len() * HIDDEN).map(|i| wave(i * i)).collect();

    let repeat = Penalties { repetition: 1.3, frequency: 0.2, presence: 0.0 };
    let sampled = |row| SamplingParams::new(0.8, 42, row);
    let rows = [
        SamplingParams::greedy(),
        sampled(1).with_top_p(0.9).with_min_p(0.02),
        sampled(2),
        sampled(3).with_top_k(50).with_penalties(repeat),
    ];

    // What a JSON grammar may allow after `{`: a quotation mark, white space, a brace.
    let mut bitmask = vec![0; VOCAB.div_ceil(32)];
    for token in [1, 10, 32, 125, 220] {
        bitmask[token / 32] |= 1 << (token % 32);
    }
    let seen = [(7, 3), (19, 1), (4_000, 0)].map(|(token, count)| SeenToken { token, count });
    let none = TokenRules::default();
    let token_rules = [
        none,
        none,
        TokenRules { bitmask: Some(&bitmask), ..none },
        TokenRules { seen: &seen, logit_bias: &[(3, f32::NEG_INFINITY)], ..none },
    ];
    let hidden_states = MatrixRef::new(Operand::HiddenStates, &hidden_states, NAMES.len(), HIDDEN)?;
    let weights = MatrixRef::new(Operand::Weights, &weights, VOCAB, HIDDEN)?;

    let mut output = Output::default();
    output.processed.wanted = Wanted { logprobs: true, best: 3, ..Wanted::default() };
    if let Ok(mut sampler) = Sampler::cuda(0) {
        let head = sampler.upload(weights, None)?;
        sampler.sample_with_rules(&head, hidden_states, &rows, &token_rules, 1, &mut output)?;
        println!("on {}", sampler.device_name());
    } else {
        let inputs = Inputs::new(hidden_states, weights).with_token_rules(&token_rules);
        Sampler::cpu().sample(&inputs, &rows, 1, &mut output)?;
        println!("on the CPU");
    }
    let best = output.processed.best_tokens.chunks(3);
    for (row, (name, best)) in NAMES.iter().zip(best).enumerate() {
        let (token, logprob) = (output.tokens[row], output.processed.logprobs[row]);
        println!("{name:12} token {token:5}, logprob {logprob:7.3}, likeliest {best:?}");
    }
    Ok(())
}
