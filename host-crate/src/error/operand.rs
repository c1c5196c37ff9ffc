//! What a call reads and writes.

use std::fmt;

/// An operand of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operand {
    /// `[B, D]`.
    HiddenStates,
    /// `[V_rows, D]`.
    Weights,
    /// `[V]` f32.
    Bias,
    /// `[B]` sampling parameters on the host.
    Params,
    /// `[B]` rules for single tokens on the host, or none.
    TokenRules,
    /// `[B]` f32 on the device.
    Temperatures,
    /// `[B]` u64 on the device.
    Seeds,
    /// `[B]` u64 on the device.
    Positions,
    /// `[B, S]` u32, written.
    Tokens,
    /// `[B, S]` u32, written.
    Status,
    /// `[B, S]` f32, written.
    Scores,
    /// `[B, S]` f32, written.
    Margins,
    /// Scratch that a call leaves as it found it.
    Workspace,
    /// `[B]` features of rows on the device.
    Features,
    /// Memory for the values of rows.
    Kept,
    /// Part of the report on the model's distribution, written.
    Raw(ReportPart),
    /// Part of the report on each row's distribution, written.
    Processed(ReportPart),
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HiddenStates => "hidden_states",
            Self::Weights => "weights",
            Self::Bias => "bias",
            Self::Params => "params",
            Self::TokenRules => "token_rules",
            Self::Temperatures => "temperatures",
            Self::Seeds => "seeds",
            Self::Positions => "positions",
            Self::Tokens => "tokens",
            Self::Status => "status",
            Self::Scores => "scores",
            Self::Margins => "margins",
            Self::Workspace => "workspace",
            Self::Features => "features",
            Self::Kept => "kept",
            Self::Raw(part) => return write!(f, "raw.{part}"),
            Self::Processed(part) => return write!(f, "processed.{part}"),
        })
    }
}

/// A part of a [`Report`](crate::Report).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReportPart {
    /// `[B]` f32.
    LogSumExps,
    /// `[B, S]` f32.
    Logprobs,
    /// `[B, S]` u32.
    Ranks,
    /// `[B]` f32.
    Entropies,
    /// `[B, N]` u32.
    BestTokens,
    /// `[B, N]` f32.
    BestLogprobs,
}

impl fmt::Display for ReportPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LogSumExps => "log_sum_exps",
            Self::Logprobs => "logprobs",
            Self::Ranks => "ranks",
            Self::Entropies => "entropies",
            Self::BestTokens => "best_tokens",
            Self::BestLogprobs => "best_logprobs",
        })
    }
}
