//! A real language model speaks through the sampler.
//!
//! candle runs a llama from a GGUF file on the CPU up to the last hidden state; the LM head's
//! product, the noise and the choice of the token are this crate's.
//! The text goes to standard output, everything else to standard error.
//!
//! ```sh
//! cargo xtask demo --prompt "Why is the sky blue?"      # fetches a small model
//! cargo run --release --example generate -- --model llama.gguf --prompt "Why is the sky blue?"
//! ```
//!
//! A seed names one text: token `n` is drawn with the noise of (seed, position `n`) on any device.
//! The CPU and a GPU sum the logits in different orders, so their texts may part at a token
//! whose margin (by how much the best score exceeds the next) is within rounding; the smallest
//! margin is printed.

use std::{
    cmp::Reverse, collections::BTreeMap, io::Write, path::PathBuf, process::ExitCode, time::Instant,
};

use anyhow::{Result, ensure};
use clap::{Parser, value_parser};
use flash_sampling::NO_TOKEN;

use asked::{Asked, Seen};
use gguf::Gguf;
use head::{Device, Head};
use model::Llama;
use tally::Tally;
use tokenizer::Vocabulary;

mod asked;
mod gguf;
mod head;
mod model;
mod tally;
mod tokenizer;

#[derive(Parser)]
#[command(name = "generate", about = "A real language model speaks through the sampler")]
struct Args {
    /// A GGUF file of the llama architecture
    #[arg(long)]
    model: PathBuf,
    /// What the user says to the model
    #[arg(long, default_value = "What is the capital of France?")]
    prompt: String,
    /// Continue the prompt itself, without the model's chat format
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    asked: Asked,
    /// Stop after this many tokens, if the model does not before
    #[arg(long, default_value_t = 128, value_parser = value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// Draw the first token this often in one pass and list what came; the text goes on with draw 0
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    draws: u32,
    /// Where to sample; the rest of the model runs on the CPU
    #[arg(long, value_enum, default_value_t = Device::Auto)]
    device: Device,
}

fn main() -> ExitCode {
    match generate(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // candle appends a backtrace where the environment asks for one.
            let error = format!("{error:#}");
            eprintln!("error: {}", error.lines().next().unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

fn generate(args: &Args) -> Result<()> {
    let mut gguf = Gguf::open(&args.model)?;
    let (mut model, mut weights) = Llama::load(&mut gguf)?;
    let vocabulary = Vocabulary::load(&mut gguf)?;
    weights.drop_padding(vocabulary.size());
    let mut head = Head::new(args.device, weights)?;
    eprintln!("device: {}", head.describe()?);

    let prompt = vocabulary.encode(&args.prompt, args.raw)?;
    let room = model.context().saturating_sub(prompt.len());
    ensure!(
        args.max_tokens as usize <= room,
        "the prompt's {} tokens leave room for {room} of the model's {}: lower --max-tokens",
        prompt.len(),
        model.context()
    );

    let mut text = vocabulary.stream();
    let mut stdout = std::io::stdout().lock();
    let mut tally = Tally::start(prompt.len());
    let mut seen = Seen::of_prompt(&prompt);
    let mut tokens = prompt;
    for position in 0..args.max_tokens {
        let hidden_state = model.forward(&tokens)?;
        if position == 0 {
            tally.prompt_done();
        }
        let params = args.asked.params(position.into());
        let draws = if position == 0 { args.draws } else { 1 };
        let sampling = Instant::now();
        let drawn = head.sample(&hidden_state, params, seen.rules(), draws)?;
        tally.token_drawn(sampling.elapsed(), drawn.margins[0]);
        let token = drawn.tokens[0];
        ensure!(token != NO_TOKEN, "the model computed no number at token {position}");
        if draws > 1 {
            eprintln!("{}", list_draws(&vocabulary, &drawn.tokens));
        }
        if vocabulary.is_stop(token) {
            break;
        }
        if let Some(text) = text(token)? {
            write!(stdout, "{text}")?;
            stdout.flush()?;
        }
        seen.add(token);
        tokens = vec![token];
    }
    writeln!(stdout)?;
    eprint!("{tally}");
    Ok(())
}

/// The tokens of several draws, the most frequent first.
fn list_draws(vocabulary: &Vocabulary, tokens: &[u32]) -> String {
    let mut counts = BTreeMap::new();
    for &token in tokens {
        *counts.entry(token).or_insert(0_u32) += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|&(token, count)| (Reverse(count), token));
    let counts: Vec<_> = counts
        .into_iter()
        .map(|(token, count)| format!("{count} × {}", vocabulary.quote(token)))
        .collect();
    format!("first token, {} draws: {}", tokens.len(), counts.join(", "))
}
