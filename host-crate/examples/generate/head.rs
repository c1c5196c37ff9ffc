//! The LM head and the sampler, on one device.

use anyhow::{Result, bail};
use flash_sampling::{
    Inputs, MatrixRef, Operand, Output, Problem, Sampler, SamplingParams, TokenRules, bf16,
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

#[allow(clippy::large_enum_variant, reason = "a program has one")]
enum Place {
    Cpu { sampler: Sampler, weights: Vec<bf16>, no_gpu: Option<anyhow::Error> },
    Cuda { sampler: Sampler<Cuda>, weights: DeviceHead },
}

impl Head {
    /// Puts the head's `weights` where `device` says.
    pub(crate) fn new(device: Device, head: LmHead) -> Result<Self> {
        let LmHead { weights, rows, hidden } = head;
        let matrix = MatrixRef::new(Operand::Weights, &weights, rows, hidden)?;
        let cuda = (device != Device::Cpu).then(|| Place::cuda(matrix)).transpose();
        let place = match cuda {
            Ok(Some(place)) => place,
            Err(reason) if device == Device::Cuda => {
                bail!("no GPU: {reason:#}; pass --device cpu");
            }
            other => Place::Cpu { sampler: Sampler::cpu(), weights, no_gpu: other.err() },
        };
        Ok(Self { place, rows, hidden, output: Output::default() })
    }

    /// The device and the variant that draw a token.
    pub(crate) fn describe(&self) -> Result<String> {
        let problem = Problem::builder(1, self.rows as u64, self.hidden as u64).build()?;
        Ok(match &self.place {
            Place::Cpu { sampler, no_gpu, .. } => {
                let variant = sampler.plan(&problem)?.variant.name();
                let why = no_gpu.as_ref().map(|reason| format!(" (no GPU: {reason:#})"));
                format!("CPU, variant {variant}{}", why.unwrap_or_default())
            }
            Place::Cuda { sampler, .. } => {
                let variant = sampler.plan(&problem)?.variant.name();
                format!("{}, variant {variant}", sampler.device_name())
            }
        })
    }

    /// Draws `draws` tokens after the hidden state `[D]`.
    pub(crate) fn sample(
        &mut self,
        hidden_state: &[bf16],
        params: SamplingParams,
        rules: TokenRules<'_>,
        draws: u32,
    ) -> Result<&Output> {
        let hidden_states = MatrixRef::new(Operand::HiddenStates, hidden_state, 1, self.hidden)?;
        let (rules, output) = ([rules], &mut self.output);
        match &mut self.place {
            Place::Cpu { sampler, weights, .. } => {
                let weights = MatrixRef::new(Operand::Weights, weights, self.rows, self.hidden)?;
                let inputs = Inputs::new(hidden_states, weights).with_token_rules(&rules);
                sampler.sample(&inputs, &[params], draws, output)?;
            }
            Place::Cuda { sampler, weights } => {
                let (rows, rules) = ([params], &rules);
                sampler.sample_with_rules(weights, hidden_states, &rows, rules, draws, output)?;
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
