//! The kernel that finishes rows with features, behind the one that multiplies.
#![forbid(unsafe_code)]

use std::fmt;

use flash_sampling_kernels::abi::TILE_V;
use flash_sampling_kernels::abi::kept::{KEPT_VARIANTS, KeptVariant, THREADS, kept_variant};
use flash_sampling_kernels::candidate::Key;
use flash_sampling_kernels::shortlist::MOST_TILES;

use super::gpu::wave;
use super::{DeviceLimits, fmt_behind, values_bytes};
use crate::problem::Problem;

/// How a GPU finishes the rows of a problem with features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finish {
    /// PTX symbol.
    pub entry: &'static str,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks. 0 for B = 0.
    pub grid: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Whether that has room for a block's values of a row.
    pub slice_in_shared: bool,
    /// Where a second copy of the values begins in the memory for them, in bytes, if there is
    /// one.
    pub raw_values: Option<u64>,
    /// Where, in the same memory, rows have their shortlists, if some may have one.
    pub listed: Option<u64>,
    /// Bytes of that memory, which may hold anything, before a call and after it.
    pub kept_bytes: u64,
}

/// Of a wave of clusters, as multiprocessors are counted, one in so many may not fit: those of
/// one cluster lie together. What does not fit would begin when others have done all their rows.
const MISFITS: u64 = 16;

/// Tokens whose tiles have a number each, wherever the first begins.
const MOST_LISTED: u32 = (MOST_TILES - 1) * TILE_V;

impl Finish {
    /// A cluster of blocks a row, or a wave of them if there are more rows. Rows may be listed
    /// where the sampling kernel applies their rules.
    pub(super) fn new(problem: &Problem, limits: &DeviceLimits, applies_rules: bool) -> Self {
        let variant = variant(limits);
        let (shared_bytes, slice_in_shared) = shared_bytes(variant, problem, limits);
        let clusters = clusters(variant, shared_bytes, limits).min(problem.batch().into()) as u32;
        let two_copies = !slice_in_shared && !applies_rules && problem.features().raw.any();
        let values_bytes = values_bytes(problem);
        let lists = applies_rules && problem.vocab() <= MOST_LISTED;
        // Shortlists, of a key a token, or the second copy: where rules are applied at once, no
        // report is this kernel's.
        let of_a_key = (size_of::<Key>() / size_of::<f32>()) as u64;
        let behind = if lists { of_a_key } else { two_copies.into() };
        Self {
            entry: variant.entry,
            threads: THREADS,
            grid: clusters * variant.cluster,
            shared_bytes,
            slice_in_shared,
            raw_values: two_copies.then_some(values_bytes),
            listed: lists.then_some(values_bytes),
            kept_bytes: (1 + behind) * values_bytes,
        }
    }
}

fn variant(limits: &DeviceLimits) -> &'static KeptVariant {
    // The last runs wherever a sampling kernel does.
    let last = &KEPT_VARIANTS[KEPT_VARIANTS.len() - 1];
    kept_variant(limits.compute_capability).unwrap_or(last)
}

/// Shared memory of a block, and whether that has room for its values of a row.
fn shared_bytes(variant: &KeptVariant, problem: &Problem, limits: &DeviceLimits) -> (u32, bool) {
    let bytes = |slice| variant.shared_bytes(problem.vocab(), slice);
    let slice_in_shared = bytes(true) <= limits.shared_bytes_per_block.into();
    (bytes(slice_in_shared) as u32, slice_in_shared)
}

/// Clusters that a device runs at once: at least one.
fn clusters(variant: &KeptVariant, shared_bytes: u32, limits: &DeviceLimits) -> u64 {
    let wave = wave(shared_bytes, variant.blocks_per_sm, limits) / u64::from(variant.cluster);
    let misfits = if variant.cluster > 1 { wave.div_ceil(MISFITS) } else { 0 };
    (wave - misfits).max(1)
}

impl fmt::Display for Finish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_behind(f, self.entry, [self.threads, self.grid, self.shared_bytes])
    }
}
