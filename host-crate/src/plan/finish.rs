//! The kernel that finishes rows with features, behind the one that multiplies.
#![forbid(unsafe_code)]

use std::fmt;

use flash_sampling_kernels::abi::kept::{KEPT_VARIANTS, KeptVariant, THREADS};

use super::DeviceLimits;
use super::gpu::wave;
use crate::problem::Problem;
use crate::workspace::KeptLayout;

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
    pub(crate) layout: KeptLayout,
}

impl Finish {
    /// A cluster of blocks a row, or one wave of them if there are more rows.
    pub(super) fn new(problem: &Problem, limits: &DeviceLimits) -> Self {
        let variant = kept_variant(limits.compute_capability);
        let shared_bytes = |slice| variant.shared_bytes(problem.vocab(), slice);
        let slice_in_shared = shared_bytes(true) <= limits.shared_bytes_per_block.into();
        let shared_bytes = shared_bytes(slice_in_shared) as u32;
        let wave = wave(shared_bytes, variant.blocks_per_sm, limits) / u64::from(variant.cluster);
        let clusters = wave.max(1).min(problem.batch().into()) as u32;
        let raw_values = !slice_in_shared && problem.features().raw.any();
        Self {
            entry: variant.entry,
            threads: THREADS,
            grid: clusters * variant.cluster,
            shared_bytes,
            slice_in_shared,
            layout: KeptLayout::new(problem, raw_values, variant.scratch_bytes(clusters)),
        }
    }

    pub(super) const fn kept_bytes(&self) -> u64 {
        self.layout.bytes
    }
}

/// The one that serves a device.
pub(crate) fn kept_variant(compute_capability: u32) -> &'static KeptVariant {
    let serves = |variant: &&KeptVariant| variant.runs_on(compute_capability);
    // The last runs wherever a sampling kernel does.
    KEPT_VARIANTS.iter().find(serves).unwrap_or(&KEPT_VARIANTS[KEPT_VARIANTS.len() - 1])
}

impl fmt::Display for Finish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "then             {}", self.entry)?;
        writeln!(f, "  threads        {}", self.threads)?;
        writeln!(f, "  grid           {}", self.grid)?;
        writeln!(f, "  shared bytes   {}", self.shared_bytes)
    }
}
