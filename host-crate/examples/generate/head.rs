//! The LM head and the sampler, on one device.

use anyhow::Result;
use flash_sampling::{Inputs, MatrixRef, Operand, Output, Problem, Sampler, SamplingParams, bf16};

use crate::model::LmHead;

/// Where to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Device {
    /// The GPU if there is one, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The first NVIDIA GPU.
    Cuda,
}

/// The LM head with a sampler.
pub(crate) struct Head {
    sampler: Sampler,
    weights: LmHead,
    output: Output,
}

impl Head {
    /// Puts the head's `weights` on `device`.
    pub(crate) fn new(_device: Device, weights: LmHead) -> Result<Self> {
        Ok(Self { sampler: Sampler::cpu(), weights, output: Output::default() })
    }

    /// The device and the kernel variant that draw a token.
    pub(crate) fn describe(&self) -> Result<String> {
        let problem = Problem::builder(1, self.weights.rows as u64, self.weights.hidden as u64);
        let plan = self.sampler.plan(&problem.build()?)?;
        Ok(format!("CPU, variant {}", plan.variant.name()))
    }

    /// Draws `draws` tokens after the hidden state `[D]`.
    pub(crate) fn sample(
        &mut self,
        hidden_state: &[bf16],
        params: SamplingParams,
        draws: u32,
    ) -> Result<&Output> {
        let LmHead { weights, rows, hidden } = &self.weights;
        let inputs = Inputs::new(
            MatrixRef::new(Operand::HiddenStates, hidden_state, 1, *hidden)?,
            MatrixRef::new(Operand::Weights, weights, *rows, *hidden)?,
        );
        self.sampler.sample(&inputs, &[params], draws, &mut self.output)?;
        Ok(&self.output)
    }
}
