//! The operands of a call on the host.
#![forbid(unsafe_code)]

use flash_sampling_kernels::transform::LogitTransform;

use crate::error::{Axis, Error, Operand, Size};
use crate::matrix::MatrixRef;
use crate::problem::{Problem, check_transform};
use crate::token_rules::{TokenRules, check_token_rules};

/// Greatest alignment worth telling apart.
const ALIGNMENT_BYTES_MAX: u64 = 256;

/// What a call reads, borrowed from the caller.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Inputs<'a> {
    /// `[B, D]`.
    pub hidden_states: MatrixRef<'a>,
    /// `[V_rows, D]`.
    pub weights: MatrixRef<'a>,
    /// `[V]`, added to the logits.
    pub bias: Option<&'a [f32]>,
    /// How many rows of the weights are tokens; all without it.
    pub vocab_valid: Option<u64>,
    /// Global id of the weights' first row.
    pub first_token: u64,
    /// What the model does to every logit after the bias.
    pub transform: LogitTransform,
    /// `[B]` rules for single tokens, or none.
    pub token_rules: &'a [TokenRules<'a>],
}

impl<'a> Inputs<'a> {
    /// Hidden states `[B, D]` and LM-head weights `[V, D]`.
    pub const fn new(hidden_states: MatrixRef<'a>, weights: MatrixRef<'a>) -> Self {
        Self {
            hidden_states,
            weights,
            bias: None,
            vocab_valid: None,
            first_token: 0,
            transform: LogitTransform::NONE,
            token_rules: &[],
        }
    }

    /// Adds `bias` `[V]` to the logits.
    #[must_use]
    pub const fn with_bias(mut self, bias: &'a [f32]) -> Self {
        self.bias = Some(bias);
        self
    }

    /// Rows of the weights from `vocab_valid` on are padding and never drawn.
    #[must_use]
    pub const fn with_vocab_valid(mut self, vocab_valid: u64) -> Self {
        self.vocab_valid = Some(vocab_valid);
        self
    }

    /// The weights are the shard of a vocabulary that begins at this id.
    #[must_use]
    pub const fn with_first_token(mut self, first_token: u64) -> Self {
        self.first_token = first_token;
        self
    }

    /// Caps and scales every logit.
    #[must_use]
    pub const fn with_transform(mut self, transform: LogitTransform) -> Self {
        self.transform = transform;
        self
    }

    /// Adds rules for single tokens, one set for each batch row.
    #[must_use]
    pub const fn with_token_rules(mut self, token_rules: &'a [TokenRules<'a>]) -> Self {
        self.token_rules = token_rules;
        self
    }

    /// The problem that these operands pose with `draws` tokens a row.
    ///
    /// # Errors
    /// [`Error::Shape`] where operands disagree, [`Error::Param`] for a cap or scale,
    /// [`Error::Param`], [`Error::ParamLength`] and [`Error::Token`] for token rules, and as
    /// [`ProblemBuilder::build`](crate::ProblemBuilder::build).
    pub fn problem(&self, draws: u64) -> Result<Problem, Error> {
        let (weights, hidden_states) = (&self.weights, &self.hidden_states);
        let hidden = weights.columns() as u64;
        if hidden_states.columns() as u64 != hidden {
            return Err(Error::Shape {
                operand: Operand::HiddenStates,
                axis: Axis::D,
                expected: Size::Exactly(hidden),
                found: hidden_states.columns() as u64,
            });
        }
        let vocab_rows = weights.rows() as u64;
        let addresses = weights.base_ptr() as u64 | hidden_states.base_ptr() as u64;
        let problem = Problem::builder(hidden_states.rows() as u64, vocab_rows, hidden)
            .vocab_valid(self.vocab_valid.unwrap_or(vocab_rows))
            .draws(draws)
            .first_token(self.first_token)
            .weights_dtype(weights.dtype())
            .hidden_dtype(hidden_states.dtype())
            .weights_stride(weights.row_stride() as u64)
            .hidden_stride(hidden_states.row_stride() as u64)
            .alignment_bytes(1 << (addresses | ALIGNMENT_BYTES_MAX).trailing_zeros())
            .bias(self.bias.is_some())
            .build()?;
        if let Some(bias) = self.bias
            && (bias.len() as u64) < u64::from(problem.vocab())
        {
            return Err(Error::Shape {
                operand: Operand::Bias,
                axis: Axis::V,
                expected: Size::AtLeast(u64::from(problem.vocab())),
                found: bias.len() as u64,
            });
        }
        check_transform(self.transform)?;
        check_token_rules(self.token_rules, &problem)?;
        Ok(problem)
    }
}
