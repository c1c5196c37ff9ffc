//! The LM head and the sampler, on one device.

use anyhow::{Context, Result};
use flash_sampling::{
    Inputs, MatrixRef, Operand, Output, Plan, Problem, Sampler, SamplingParams, bf16,
    cuda::{Cuda, DeviceHead},
};

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
    place: Place,
    rows: usize,
    hidden: usize,
    output: Output,
}

enum Place {
    Cpu { sampler: Sampler, weights: Vec<bf16> },
    Cuda { sampler: Sampler<Cuda>, weights: DeviceHead },
}

impl Head {
    /// Puts the head's `weights` where `device` says.
    pub(crate) fn new(device: Device, head: LmHead) -> Result<Self> {
        let LmHead { weights, rows, hidden } = head;
        let matrix = MatrixRef::new(Operand::Weights, &weights, rows, hidden)?;
        let place = match device {
            Device::Cpu => None,
            Device::Cuda => Some(
                Place::cuda(matrix).context("no GPU can be used, pass --device cpu")?,
            ),
            Device::Auto => Place::cuda(matrix)
                .inspect_err(|reason| eprintln!("no GPU: {reason:#}"))
                .ok(),
        };
        let place = place.unwrap_or_else(|| Place::Cpu { sampler: Sampler::cpu(), weights });
        Ok(Self { place, rows, hidden, output: Output::default() })
    }

    /// The device and the variant that draw a token.
    pub(crate) fn describe(&self) -> Result<String> {
        let problem = Problem::builder(1, self.rows as u64, self.hidden as u64).build()?;
        let (device, plan) = match &self.place {
            Place::Cpu { sampler, .. } => ("CPU", sampler.plan(&problem)?),
            Place::Cuda { sampler, .. } => (sampler.device_name(), sampler.plan(&problem)?),
        };
        Ok(format!("{device}, variant {}", plan.variant.name()))
    }

    /// Draws `draws` tokens after the hidden state `[D]`.
    pub(crate) fn sample(
        &mut self,
        hidden_state: &[bf16],
        params: SamplingParams,
        draws: u32,
    ) -> Result<&Output> {
        let hidden_states = MatrixRef::new(Operand::HiddenStates, hidden_state, 1, self.hidden)?;
        let output = &mut self.output;
        match &mut self.place {
            Place::Cpu { sampler, weights } => {
                let weights = MatrixRef::new(Operand::Weights, weights, self.rows, self.hidden)?;
                sampler.sample(&Inputs::new(hidden_states, weights), &[params], draws, output)?;
            }
            Place::Cuda { sampler, weights } => {
                sampler.sample(weights, hidden_states, &[params], draws, output)?;
            }
        }
        Ok(output)
    }
}

impl Place {
    fn cuda(weights: MatrixRef<'_>) -> Result<Self> {
        let sampler = Sampler::cuda(0)?;
        let weights = sampler.upload(weights, None)?;
        Ok(Self::Cuda { sampler, weights })
    }
}
