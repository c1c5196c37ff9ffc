//! Prints the plan for a problem, and why each other variant was refused.
//!
//! `cargo run --example explain -- 8 151936 4096 sm_90`: batch, vocabulary and hidden
//! size, then a GPU (bf16 matrices without gaps) or `cpu`.
#![allow(clippy::print_stdout)]

use anyhow::{Context, Result, bail};
use flash_sampling::{DeviceLimits, Plan, Problem, Sampler};

/// One GPU of each architecture: its limits in the CUDA C++ Programming Guide, table
/// "Technical Specifications per Compute Capability", and its multiprocessors.
const GPUS: [(&str, DeviceLimits); 4] = [
    ("sm_80", gpu(80, 108, 163, 164)),
    ("sm_86", gpu(86, 84, 99, 100)),
    ("sm_89", gpu(89, 128, 99, 100)),
    ("sm_90", gpu(90, 132, 227, 228)),
];

const fn gpu(capability: u32, multiprocessors: u32, block_kib: u32, sm_kib: u32) -> DeviceLimits {
    DeviceLimits {
        compute_capability: capability,
        multiprocessors,
        shared_bytes_per_block: block_kib * 1024,
        shared_bytes_per_sm: sm_kib * 1024,
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [batch, vocab, hidden, machine] = arguments.as_slice() else {
        bail!("usage: explain BATCH VOCAB HIDDEN sm_80|sm_86|sm_89|sm_90|cpu");
    };
    let size = |text: &str| text.parse::<u64>().with_context(|| format!("{text} is no size"));
    let problem = Problem::builder(size(batch)?, size(vocab)?, size(hidden)?).build()?;
    let plan = if machine == "cpu" {
        Sampler::cpu().plan(&problem)?
    } else {
        let known = GPUS.iter().find(|(name, _)| name == machine);
        let (_, limits) = known.with_context(|| format!("{machine} is no machine known here"))?;
        Plan::for_gpu(&problem, limits, None)?
    };
    print!("{plan}");
    Ok(())
}
