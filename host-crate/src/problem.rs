//! The sizes and layouts of a call: checked once, then trusted.
#![forbid(unsafe_code)]

use flash_sampling_kernels::abi::{Dtype, NO_TOKEN, SampleParams, kept};

use crate::error::{Axis, Error, LayoutRule, Need, Operand, Param, Size};
use crate::matrix::span;

mod features;

pub use features::Features;
pub(crate) use features::check_transform;

use features::Checked;

/// Greatest `B · S`: what keeps every byte count of an output or workspace in 63 bits.
const OUTPUTS_MAX: u64 = 1 << 56;

/// Greatest `B · V` of a call that keeps values: the same for their bytes, twice over.
const VALUES_MAX: u64 = 1 << 59;

/// Alignment that allocations on a GPU have.
const DEVICE_ALIGNMENT_BYTES: u64 = 256;

/// What is computed, without the values: equal problems have equal plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    batch: u32,
    vocab: u32,
    hidden: u32,
    draws: u32,
    first_token: u32,
    weights_dtype: Dtype,
    hidden_dtype: Dtype,
    weights_stride: u64,
    hidden_stride: u64,
    alignment_bytes: u64,
    has_bias: bool,
    features: Checked,
}

impl Problem {
    /// Begins a problem of `batch` rows over weights `[vocab_rows, hidden]`.
    ///
    /// Unless told otherwise: every row of the weights is a token, one draw, no bias,
    /// bf16, no gaps between rows, base addresses aligned as GPU allocations are, and no
    /// features.
    pub const fn builder(batch: u64, vocab_rows: u64, hidden: u64) -> ProblemBuilder {
        ProblemBuilder {
            batch,
            vocab_rows,
            vocab_valid: vocab_rows,
            hidden,
            draws: 1,
            first_token: 0,
            weights_dtype: Dtype::Bf16,
            hidden_dtype: Dtype::Bf16,
            weights_stride: hidden,
            hidden_stride: hidden,
            alignment_bytes: DEVICE_ALIGNMENT_BYTES,
            has_bias: false,
            features: Features::NONE,
        }
    }

    /// B: rows of the hidden states; 0 launches nothing.
    pub const fn batch(&self) -> u32 {
        self.batch
    }

    /// V: rows of the weights that are tokens (`V_valid`).
    pub const fn vocab(&self) -> u32 {
        self.vocab
    }

    /// D.
    pub const fn hidden(&self) -> u32 {
        self.hidden
    }

    /// S.
    pub const fn draws(&self) -> u32 {
        self.draws
    }

    /// Global id of the first row of the weights.
    pub const fn first_token(&self) -> u32 {
        self.first_token
    }

    /// Type of the weights.
    pub const fn weights_dtype(&self) -> Dtype {
        self.weights_dtype
    }

    /// Type of the hidden states.
    pub const fn hidden_dtype(&self) -> Dtype {
        self.hidden_dtype
    }

    /// Elements from one row of the weights to the next.
    pub const fn weights_stride(&self) -> u64 {
        self.weights_stride
    }

    /// Elements from one row of the hidden states to the next.
    pub const fn hidden_stride(&self) -> u64 {
        self.hidden_stride
    }

    /// Alignment of both matrices' base addresses.
    pub const fn alignment_bytes(&self) -> u64 {
        self.alignment_bytes
    }

    /// Whether there is a bias `[V]`.
    pub const fn has_bias(&self) -> bool {
        self.has_bias
    }

    /// What the call may ask for beyond temperature and key.
    pub const fn features(&self) -> Features {
        self.features.get()
    }

    /// The kernels' parameters with this problem's sizes and no addresses.
    pub(crate) const fn sample_params(&self) -> SampleParams {
        SampleParams {
            weights_stride: self.weights_stride(),
            hidden_stride: self.hidden_stride(),
            batch: self.batch(),
            vocab: self.vocab(),
            hidden: self.hidden(),
            draws: self.draws(),
            first_token: self.first_token(),
            weights_dtype: self.weights_dtype() as u32,
            hidden_dtype: self.hidden_dtype() as u32,
            ..SampleParams::NONE
        }
    }

    /// `B · S`.
    pub const fn outputs(&self) -> u64 {
        self.batch as u64 * self.draws as u64
    }
}

/// A problem that is not checked yet.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct ProblemBuilder {
    batch: u64,
    vocab_rows: u64,
    vocab_valid: u64,
    hidden: u64,
    draws: u64,
    first_token: u64,
    weights_dtype: Dtype,
    hidden_dtype: Dtype,
    weights_stride: u64,
    hidden_stride: u64,
    alignment_bytes: u64,
    has_bias: bool,
    features: Features,
}

impl ProblemBuilder {
    /// Rows of the weights that are tokens; later rows are padding and never drawn.
    pub const fn vocab_valid(mut self, vocab_valid: u64) -> Self {
        self.vocab_valid = vocab_valid;
        self
    }

    /// Tokens to draw for each row.
    pub const fn draws(mut self, draws: u64) -> Self {
        self.draws = draws;
        self
    }

    /// Global id of the first row of the weights, for a shard of a vocabulary.
    pub const fn first_token(mut self, first_token: u64) -> Self {
        self.first_token = first_token;
        self
    }

    /// Type of the weights.
    pub const fn weights_dtype(mut self, dtype: Dtype) -> Self {
        self.weights_dtype = dtype;
        self
    }

    /// Type of the hidden states.
    pub const fn hidden_dtype(mut self, dtype: Dtype) -> Self {
        self.hidden_dtype = dtype;
        self
    }

    /// Elements from one row of the weights to the next.
    pub const fn weights_stride(mut self, stride: u64) -> Self {
        self.weights_stride = stride;
        self
    }

    /// Elements from one row of the hidden states to the next.
    pub const fn hidden_stride(mut self, stride: u64) -> Self {
        self.hidden_stride = stride;
        self
    }

    /// A power of two that divides both matrices' base addresses.
    pub const fn alignment_bytes(mut self, bytes: u64) -> Self {
        self.alignment_bytes = bytes;
        self
    }

    /// Whether there is a bias `[V]`.
    pub const fn bias(mut self, has_bias: bool) -> Self {
        self.has_bias = has_bias;
        self
    }

    /// What the call may ask for beyond temperature and key.
    pub const fn features(mut self, features: Features) -> Self {
        self.features = features;
        self
    }

    /// Checks everything.
    ///
    /// # Errors
    /// [`Error::Shape`] for an empty axis or `V_valid > V_rows`, [`Error::Layout`] for a
    /// stride below D or beyond what can be addressed, [`Error::Param`] for S = 0, a cap, a
    /// scale or a number of likeliest tokens, [`Error::Unsupported`] for sizes and token ids
    /// that 32 bits do not hold.
    pub fn build(self) -> Result<Problem, Error> {
        let at_least_one = |operand, axis, found| match found {
            0 => Err(Error::Shape { operand, axis, expected: Size::AtLeast(1), found }),
            _ => Ok(()),
        };
        at_least_one(Operand::Weights, Axis::V, self.vocab_rows)?;
        at_least_one(Operand::Weights, Axis::VValid, self.vocab_valid)?;
        at_least_one(Operand::Weights, Axis::D, self.hidden)?;
        if self.vocab_valid > self.vocab_rows {
            return Err(Error::Shape {
                operand: Operand::Weights,
                axis: Axis::VValid,
                expected: Size::AtMost(self.vocab_rows),
                found: self.vocab_valid,
            });
        }
        if self.draws == 0 {
            return Err(Error::Param { row: None, param: Param::Draws, found: 0.0 });
        }
        let hidden = at_most_u32(Need::Hidden, self.hidden)?;
        let batch = at_most_u32(Need::Batch, self.batch)?;
        let draws = at_most_u32(Need::Draws, self.draws)?;
        let end_token = self.first_token.saturating_add(self.vocab_valid);
        at_most(Need::TokenIds, u64::from(NO_TOKEN), end_token)?;
        // Both are at most `end_token`, which fits.
        let (vocab, first_token) = (self.vocab_valid as u32, self.first_token as u32);
        at_most(Need::Outputs, OUTPUTS_MAX, self.batch * self.draws)?;
        let weights = (self.vocab_rows, self.weights_stride, self.weights_dtype);
        check_layout(Operand::Weights, weights, self.hidden)?;
        let hidden_states = (self.batch, self.hidden_stride, self.hidden_dtype);
        check_layout(Operand::HiddenStates, hidden_states, self.hidden)?;
        let features = self.features.check()?;
        if self.features.any() {
            // Both sides of the product are at most 2³².
            let values = u64::from(batch).saturating_mul(kept::values_stride(vocab));
            at_most(Need::Values, VALUES_MAX, values)?;
        }
        Ok(Problem {
            batch,
            vocab,
            first_token,
            hidden,
            draws,
            weights_dtype: self.weights_dtype,
            hidden_dtype: self.hidden_dtype,
            weights_stride: self.weights_stride,
            hidden_stride: self.hidden_stride,
            alignment_bytes: self.alignment_bytes,
            has_bias: self.has_bias,
            features,
        })
    }
}

fn at_most(need: Need, limit: u64, found: u64) -> Result<(), Error> {
    if found <= limit { Ok(()) } else { Err(Error::Unsupported { need, limit, found }) }
}

fn at_most_u32(need: Need, found: u64) -> Result<u32, Error> {
    let limit = u64::from(u32::MAX);
    u32::try_from(found).map_err(|_| Error::Unsupported { need, limit, found })
}

/// Checks a matrix of `(rows, row stride, dtype)` and `columns`.
fn check_layout(
    operand: Operand,
    (rows, row_stride, dtype): (u64, u64, Dtype),
    columns: u64,
) -> Result<(), Error> {
    if row_stride < columns {
        let rule = LayoutRule::RowStride(columns);
        return Err(Error::Layout { operand, rule, found: row_stride });
    }
    let limit = i64::MAX as u64;
    let bytes = span(rows, columns, row_stride).saturating_mul(u128::from(dtype.bytes()));
    if bytes > u128::from(limit) {
        let found = u64::try_from(bytes).unwrap_or(u64::MAX);
        return Err(Error::Layout { operand, rule: LayoutRule::Span(limit), found });
    }
    Ok(())
}
