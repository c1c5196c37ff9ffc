//! Rows whose values outlive their tiles: those with rules, penalties or filters, and all
//! rows of a call with reports or a transform. The sampling kernel leaves their logits in
//! memory, and one more kernel, launched behind it, finishes them
//! (`kernels/sample_kept.rs`).

use super::SampleParams;
use crate::dims::align_up;

/// A token of the prompt or of the text so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SeenToken {
    /// Its id.
    pub token: u32,
    /// How often it was generated: 0 if it is in the prompt alone. The repetition penalty
    /// applies to every seen token, the others to those that were generated.
    pub count: u32,
}

/// What is added to a token's logit.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct TokenBias {
    /// Its id.
    pub token: u32,
    /// Finite, or `−inf`, which bans the token.
    pub bias: f32,
}

/// What one row asks for beyond temperature and key, as the device reads it; it is trusted.
///
/// Lists are in ascending order of distinct ids. Ids that are not the call's are passed over.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct RowFeatures {
    /// `[n_seen]`: tokens that the penalties apply to.
    pub seen: *const SeenToken,
    /// `[n_logit_bias]`.
    pub logit_bias: *const TokenBias,
    /// `[⌈(first_token + V) / 32⌉]`: bit `j` of word `w` admits token `32·w + j`; or null.
    pub bitmask: *const u32,
    /// `[n_allowed]`: the tokens that are admitted; or null, which admits all.
    pub allow_list: *const u32,
    /// `[n_banned]`: tokens that are not.
    pub ban_list: *const u32,
    /// Length of `seen`.
    pub n_seen: u32,
    /// Length of `logit_bias`.
    pub n_logit_bias: u32,
    /// Length of `allow_list`.
    pub n_allowed: u32,
    /// Length of `ban_list`.
    pub n_banned: u32,
    /// 0 is off.
    pub top_k: u32,
    /// In (0, 1]; 1 is off.
    pub top_p: f32,
    /// In [0, 1]; 0 is off.
    pub min_p: f32,
    /// Above 0; 0 is off.
    pub top_n_sigma: f32,
    /// In [0, 1]; 0 is off.
    pub epsilon_cutoff: f32,
    /// In [0, 1]; 0 is off.
    pub eta_cutoff: f32,
    /// Above 0; 1 is off.
    pub repetition: f32,
    /// 0 is off.
    pub frequency: f32,
    /// 0 is off.
    pub presence: f32,
    /// The orders: bits of this type's constants.
    pub options: u32,
}

impl RowFeatures {
    /// Bit of `options`: min_p comes after top_p.
    pub const MIN_P_LAST: u32 = 1;
    /// Bit of `options`: filters are measured on all tokens.
    pub const JOINT: u32 = 1 << 1;
    /// Bit of `options`: filters are measured at temperature 1.
    pub const FILTERS_AT_ONE: u32 = 1 << 2;
    /// Bit of `options`: frequency, presence, repetition, bias, in this order.
    pub const BIAS_LAST: u32 = 1 << 3;
}

/// Where a report on one of the two distributions goes; null for what is not wanted.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ReportParams {
    /// `[B]` f32, written.
    pub log_sum_exps: *mut f32,
    /// `[B, S]` f32, written.
    pub logprobs: *mut f32,
    /// `[B, S]` u32, written.
    pub ranks: *mut u32,
    /// `[B]` f32, written.
    pub entropies: *mut f32,
    /// `[B, best]` u32, written.
    pub best_tokens: *mut u32,
    /// `[B, best]` f32, written.
    pub best_logprobs: *mut f32,
    /// N; 0 for none.
    pub best: u32,
}

/// Parameters of the kernel that finishes such rows.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KeptParams {
    /// The call's, whose `values` are there.
    pub sample: SampleParams,
    /// `[B]`, or null if rows ask for nothing.
    pub features: *const RowFeatures,
    /// Of the model's distribution.
    pub raw: ReportParams,
    /// Of each row's.
    pub processed: ReportParams,
    /// `cap·tanh(x / cap)`; 0 is off.
    pub softcap: f32,
    /// 1 is off.
    pub scale: f32,
    /// Whether the scale comes before the cap: 0 or 1.
    pub scale_first: u32,
}

/// f32 values from one kept row to the next.
pub const fn values_stride(vocab: u32) -> u64 {
    align_up(vocab as u64, 4)
}
