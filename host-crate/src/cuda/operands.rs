//! Device addresses of a call.
#![forbid(unsafe_code)]

/// Device addresses of a call, with natural alignment; the matrices as the plan's
/// variant asks for. All 0 by default.
///
/// Inputs may overlap each other; outputs, the workspace and `kept` overlap nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawOperands {
    /// `[V_rows, D]`, with the problem's dtype and row stride.
    pub weights: u64,
    /// `[B, D]`, with the problem's dtype and row stride.
    pub hidden_states: u64,
    /// `[V]` f32; read if the problem has a bias, else anything.
    pub bias: u64,
    /// `[B]` f32, each finite and ≥ 0, which is not checked here.
    pub temperatures: u64,
    /// `[B]` u64.
    pub seeds: u64,
    /// `[B]` u64.
    pub positions: u64,
    /// `[B, S]` u32, written.
    pub tokens: u64,
    /// `[B, S]` u32 of [`Status`](crate::Status) bits, written.
    pub status: u64,
    /// `[B, S]` f32, written, or 0 to do without.
    pub scores: u64,
    /// `[B, S]` f32, written, or 0 to do without.
    pub margins: u64,
    /// [`Plan::workspace_bytes`](crate::Plan::workspace_bytes) of scratch, aligned to 16
    /// bytes: zero before its first call
    /// ([`Sampler::clear_workspace`](crate::Sampler::clear_workspace)) and zero again after
    /// each.
    pub workspace: u64,
    /// Bytes of the scratch.
    pub workspace_bytes: u64,
    /// `[B]` [`RowFeatures`](super::RowFeatures), which are not checked here; read if the
    /// problem's rows have features, else anything.
    pub features: u64,
    /// [`Plan::kept_bytes`](crate::Plan::kept_bytes) for the rows' values, aligned to 16 bytes,
    /// whatever they hold; used if the problem has features, else anything.
    pub kept: u64,
    /// Bytes of that memory.
    pub kept_bytes: u64,
    /// The report on the model's distribution.
    pub raw: RawReport,
    /// The report on each row's.
    pub processed: RawReport,
}

/// Device addresses of a [`Report`](crate::Report), written: parts that the problem wants,
/// else anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawReport {
    /// `[B]` f32.
    pub log_sum_exps: u64,
    /// `[B, S]` f32.
    pub logprobs: u64,
    /// `[B, S]` u32.
    pub ranks: u64,
    /// `[B]` f32.
    pub entropies: u64,
    /// `[B, N]` u32.
    pub best_tokens: u64,
    /// `[B, N]` f32.
    pub best_logprobs: u64,
}
