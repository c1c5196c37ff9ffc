//! Exact LLM sampling fused into the LM-head matrix product.
//!
//! One call draws tokens from `softmax((H·Wᵀ + bias) / T)` for every row of a batch,
//! without ever storing the logits: noise is added tile by tile, and a maximum of
//! maxima is the maximum (FlashSampling, arXiv 2603.15854).
//!
//! ```
//! use flash_sampling::{Inputs, MatrixRef, Operand, Output, Sampler, SamplingParams, bf16};
//!
//! # fn main() -> Result<(), flash_sampling::Error> {
//! let (vocab, hidden) = (1000, 64);
//! let weights = vec![bf16::from_f32(0.01); vocab * hidden];
//! let states = vec![bf16::ONE; 2 * hidden];
//! let inputs = Inputs::new(
//!     MatrixRef::new(Operand::HiddenStates, &states, 2, hidden)?,
//!     MatrixRef::new(Operand::Weights, &weights, vocab, hidden)?,
//! );
//! let rows = [SamplingParams::new(0.8, 42, 0), SamplingParams::greedy()];
//! let mut output = Output::default();
//! Sampler::cpu().sample(&inputs, &rows, 1, &mut output)?;
//! assert_eq!(output.tokens.len(), 2);
//! assert_eq!(output.tokens[1], 0, "all logits are equal: the lowest id");
//! # Ok(())
//! # }
//! ```
//!
//! Beside temperature and key a row may have filters ([`SamplingParams::with_top_k`],
//! `with_top_p`, `with_min_p` and more), penalties, and rules for single tokens ([`TokenRules`]);
//! [`Output::raw`] and [`Output::processed`] report log-probabilities and more if they are
//! told to ([`Wanted`]).
//!
//! A row's noise depends on its [`NoiseKey`], the draw and the token alone: not on the
//! batch around it, the thread count, the variant or the machine.
//! Nothing panics on bad input; [`Error`] names the operand or row, what was expected
//! and what was found.
//!
//! Features: none by default, which is the CPU back end; `cuda` adds the GPU.

mod backend;
mod cpu;
pub mod cuda;
mod error;
mod features;
mod inputs;
mod matrix;
mod output;
mod params;
mod plan;
mod problem;
mod report;
mod sampler;
mod token_rules;
mod workspace;

pub use backend::Backend;
pub use cpu::{Cpu, CpuOptions, CpuVariant};
pub use error::{
    Axis, Call, CudaFailure, Error, LayoutRule, Need, Operand, Param, ReportPart, Size, TokenRule,
};
pub use flash_sampling_kernels::abi::{Dtype, NO_TOKEN};
pub use flash_sampling_kernels::philox::NoiseKey;
pub use flash_sampling_kernels::status::Status;
pub use flash_sampling_kernels::transform::{LogitTransform, Penalties};
pub use half::{bf16, f16};
pub use inputs::Inputs;
pub use matrix::{Element, MatrixRef};
pub use output::Output;
pub use params::{EditOrder, FilterOrder, SamplingParams, engines, validate};
pub use plan::{DeviceLimits, Finish, LogSumExp, Partials, Plan, Reason, Refusal, VariantId};
pub use problem::{Features, Problem, ProblemBuilder};
pub use report::{Report, Wanted};
pub use sampler::Sampler;
pub use token_rules::{SeenToken, TokenRules};
pub use workspace::{check_workspace, workspace_bytes};
