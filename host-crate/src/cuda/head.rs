//! An LM head on the device: what a problem has to know of it.
#![forbid(unsafe_code)]

use flash_sampling_kernels::abi::{Dtype, VARIANTS};
use flash_sampling_kernels::dims::align_up;
use flash_sampling_kernels::transform::LogitTransform;

use super::engine::HeadMemory;
use crate::error::{Axis, Error, Operand, Size};
use crate::matrix::MatrixRef;
use crate::problem::{Features, Problem};

/// Weights `[V_rows, D]` and a bias `[V]` on the device, made by
/// [`Sampler::upload`](crate::Sampler::upload) and freed when dropped.
#[derive(Debug)]
pub struct DeviceHead {
    memory: HeadMemory,
    vocab_rows: u64,
    vocab_valid: u64,
    hidden: u64,
    first_token: u64,
    dtype: Dtype,
    bias_len: Option<u64>,
    transform: LogitTransform,
}

impl DeviceHead {
    /// Checks the operands and lets `upload` copy them, with rows that many bytes apart.
    pub(super) fn new(
        weights: MatrixRef<'_>,
        bias: Option<&[f32]>,
        upload: impl FnOnce(u64) -> Result<HeadMemory, Error>,
    ) -> Result<Self, Error> {
        let (vocab_rows, hidden) = (weights.rows() as u64, weights.columns() as u64);
        Problem::builder(0, vocab_rows, hidden).build()?;
        let stride = device_stride(hidden, weights.dtype());
        Ok(Self {
            memory: upload(stride * weights.dtype().bytes())?,
            vocab_rows,
            vocab_valid: vocab_rows,
            hidden,
            first_token: 0,
            dtype: weights.dtype(),
            bias_len: bias.map(|bias| bias.len() as u64),
            transform: LogitTransform::NONE,
        })
    }

    /// Rows of the weights from `vocab_valid` on are padding and never drawn.
    #[must_use]
    pub fn with_vocab_valid(mut self, vocab_valid: u64) -> Self {
        self.vocab_valid = vocab_valid;
        self
    }

    /// The weights are the shard of a vocabulary that begins at this id.
    #[must_use]
    pub fn with_first_token(mut self, first_token: u64) -> Self {
        self.first_token = first_token;
        self
    }

    /// Caps and scales every logit.
    #[must_use]
    pub fn with_transform(mut self, transform: LogitTransform) -> Self {
        self.transform = transform;
        self
    }

    pub(super) fn transform(&self) -> LogitTransform {
        self.transform
    }

    pub(super) fn memory(&self) -> &HeadMemory {
        &self.memory
    }

    /// The problem that these hidden states `[B, D]` pose, once they are on the device.
    pub(super) fn problem(
        &self,
        hidden_states: MatrixRef<'_>,
        draws: u64,
        features: Features,
    ) -> Result<Problem, Error> {
        if hidden_states.columns() as u64 != self.hidden {
            return Err(Error::Shape {
                operand: Operand::HiddenStates,
                axis: Axis::D,
                expected: Size::Exactly(self.hidden),
                found: hidden_states.columns() as u64,
            });
        }
        let dtype = hidden_states.dtype();
        let problem = Problem::builder(hidden_states.rows() as u64, self.vocab_rows, self.hidden)
            .vocab_valid(self.vocab_valid)
            .draws(draws)
            .first_token(self.first_token)
            .weights_dtype(self.dtype)
            .hidden_dtype(dtype)
            .weights_stride(device_stride(self.hidden, self.dtype))
            .hidden_stride(device_stride(self.hidden, dtype))
            .bias(self.bias_len.is_some())
            .features(features)
            .build()?;
        match self.bias_len {
            Some(len) if len < u64::from(problem.vocab()) => Err(Error::Shape {
                operand: Operand::Bias,
                axis: Axis::V,
                expected: Size::AtLeast(problem.vocab().into()),
                found: len,
            }),
            _ => Ok(problem),
        }
    }
}

/// Elements from one row to the next in our own buffers: every variant's alignment.
/// `columns` fits 32 bits.
fn device_stride(columns: u64, dtype: Dtype) -> u64 {
    let alignment = VARIANTS.iter().map(|variant| variant.alignment_bytes).max().unwrap_or(1);
    align_up(columns * dtype.bytes(), alignment) / dtype.bytes()
}
