//! Rows whose values outlive their tiles: those with filters, those with rules or penalties
//! where the sampling kernel does not apply them itself, and all rows of a call with reports, or
//! with a transform that it does not apply. The sampling kernel leaves their logits in memory, and
//! one more kernel, launched behind it, finishes them (`kernels/sample_kept.rs`).

use core::mem::size_of;
use core::ptr::{null, null_mut};

use super::{SampleParams, TILE_V};
use crate::dims::{align_up, ceil_div};
use crate::kernels::sample_kept::Shared;
use crate::transform::TransformParams;

/// One compilation of that kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptVariant {
    /// PTX symbol; its one parameter is [`KeptParams`].
    pub entry: &'static str,
    /// Least compute capability, as major · 10 + minor.
    pub compute_capability: u32,
    /// Whether it runs on that compute capability alone.
    pub arch_specific: bool,
    /// Blocks of a cluster, which work on one row together; a grid holds whole clusters.
    pub cluster: u32,
    /// Blocks that should share a multiprocessor when its shared memory allows.
    pub blocks_per_sm: u32,
}

impl KeptVariant {
    /// Whether a device of this compute capability runs it.
    pub const fn runs_on(&self, compute_capability: u32) -> bool {
        if self.arch_specific {
            compute_capability == self.compute_capability
        } else {
            compute_capability >= self.compute_capability
        }
    }

    /// Dynamic shared memory of a block, with or without its slice of a row of `vocab`
    /// values.
    pub const fn shared_bytes(&self, vocab: u32, slice_in_shared: bool) -> u64 {
        let slice = if slice_in_shared { slice_len(vocab, self.cluster) * 4 } else { 0 };
        size_of::<Shared>() as u64 + slice
    }
}

/// The one that serves a device of this compute capability: the first that runs there. PTX for
/// an architecture has no other.
pub fn kept_variant(compute_capability: u32) -> Option<&'static KeptVariant> {
    KEPT_VARIANTS.iter().find(|variant| variant.runs_on(compute_capability))
}

/// The best first.
pub const KEPT_VARIANTS: &[KeptVariant] = &[
    KeptVariant {
        entry: "flash_sampling_sample_kept_cluster",
        compute_capability: 90,
        arch_specific: true,
        cluster: CLUSTER,
        blocks_per_sm: 1,
    },
    KeptVariant {
        entry: "flash_sampling_sample_kept",
        compute_capability: 80,
        arch_specific: false,
        cluster: 1,
        blocks_per_sm: 1,
    },
];

/// Threads of a block.
pub const THREADS: u32 = 512;

/// Blocks of a cluster, where there are clusters: as many as every such device can have.
pub const CLUSTER: u32 = 8;

/// Most values of a row of `vocab` that a block of a cluster of `cluster` has: whole tiles,
/// wherever the first begins.
pub const fn slice_len(vocab: u32, cluster: u32) -> u64 {
    let most_lead = TILE_V as u64 - 1;
    let tiles = ceil_div(most_lead + vocab as u64, TILE_V as u64);
    ceil_div(tiles, cluster as u64) * TILE_V as u64
}

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

// SAFETY: addresses; who reads through them sees to it that they are valid there.
unsafe impl Send for RowFeatures {}
// SAFETY: the same.
unsafe impl Sync for RowFeatures {}

impl RowFeatures {
    /// Asks for nothing.
    pub const NONE: Self = Self {
        seen: null(),
        logit_bias: null(),
        bitmask: null(),
        allow_list: null(),
        ban_list: null(),
        n_seen: 0,
        n_logit_bias: 0,
        n_allowed: 0,
        n_banned: 0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        top_n_sigma: 0.0,
        epsilon_cutoff: 0.0,
        eta_cutoff: 0.0,
        repetition: 1.0,
        frequency: 0.0,
        presence: 0.0,
        options: 0,
    };

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

impl ReportParams {
    /// Wants nothing.
    pub const NONE: Self = Self {
        log_sum_exps: null_mut(),
        logprobs: null_mut(),
        ranks: null_mut(),
        entropies: null_mut(),
        best_tokens: null_mut(),
        best_logprobs: null_mut(),
        best: 0,
    };

    /// The lists of the likeliest tokens alone.
    #[inline(always)]
    pub fn of_best(&self) -> Self {
        let Self { best_tokens, best_logprobs, best, .. } = *self;
        Self { best_tokens, best_logprobs, best, ..Self::NONE }
    }

    /// All but these.
    #[inline(always)]
    pub fn without_best(&self) -> Self {
        let Self { best_tokens, best_logprobs, best, .. } = Self::NONE;
        Self { best_tokens, best_logprobs, best, ..*self }
    }

    /// Whether it wants anything.
    #[inline(always)]
    pub fn any(&self) -> bool {
        !self.log_sum_exps.is_null()
            | !self.logprobs.is_null()
            | !self.ranks.is_null()
            | !self.entropies.is_null()
            | (self.best > 0)
    }
}

/// Parameters of the kernel that finishes such rows.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KeptParams {
    /// The call's, whose `values` are there.
    pub sample: SampleParams,
    /// Of the model's distribution.
    pub raw: ReportParams,
    /// Of each row's.
    pub processed: ReportParams,
    /// `[B, values_stride(V)]` f32, written, if slices are not in shared memory and `raw` is
    /// wanted; else null.
    pub raw_values: *mut f32,
    /// What this kernel does to every logit: the sampling kernel's values are not transformed yet
    /// then.
    pub transform: TransformParams,
    /// Whether the launch gave each block shared memory for its slice of a row's values: 0 or
    /// 1. Without it, the kernel changes them in `sample.values`.
    pub slice_in_shared: u32,
}

impl KeptParams {
    /// A call of which no report is wanted, without a transform, whose values stay in memory.
    pub const fn new(sample: SampleParams) -> Self {
        Self {
            sample,
            raw: ReportParams::NONE,
            processed: ReportParams::NONE,
            raw_values: null_mut(),
            transform: TransformParams::NONE,
            slice_in_shared: 0,
        }
    }
}

/// Entry that finishes reports of log-sum-exps from partial sums
/// (`kernels/log_sum_exp.rs`): `(params: KeptParams)`, a block a row.
pub const LOG_SUM_EXP_ENTRY: &str = "flash_sampling_log_sum_exp";

/// Threads of one of its blocks.
pub const LOG_SUM_EXP_THREADS: u32 = 512;

/// f32 values from one kept row to the next.
pub const fn values_stride(vocab: u32) -> u64 {
    align_up(vocab as u64, 4)
}
