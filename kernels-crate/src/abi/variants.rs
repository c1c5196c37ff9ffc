//! The compiled sampling kernels.

use super::{Dtype, TILE_V, mma, sieve, simt, sm90};
use crate::dims::ceil_div;

/// Which kernel a variant is an instance of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// `kernels/sample_simt.rs`: any dtype, layout and GPU; also runs natively.
    SampleSimt,
    /// `kernels/sample_mma.rs`: `mma.sync` and `cp.async`, bf16 or f16.
    SampleMma,
    /// `kernels/sample_sm90.rs`: `wgmma` and the copy engine of Hopper, bf16 or f16. Its
    /// matrices come as tensor maps instead of addresses.
    SampleSm90,
}

/// One compiled sampling kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Stable name.
    pub name: &'static str,
    /// PTX symbol.
    pub entry: &'static str,
    /// The kernel.
    pub kernel: Kernel,
    /// The dtype of both matrices, or `None` for any two.
    pub dtype: Option<Dtype>,
    /// Least compute capability, as major · 10 + minor.
    pub compute_capability: u32,
    /// Whether it runs on that compute capability alone: its PTX is for an `a` architecture.
    pub arch_specific: bool,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks of a cluster; a grid holds whole clusters.
    pub cluster: u32,
    /// Batch rows of a tile.
    pub tile_b: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Blocks that should share a multiprocessor when its shared memory allows.
    pub blocks_per_sm: u32,
    /// Alignment that base pointers and row strides must have.
    pub alignment_bytes: u64,
    /// Whether the kernel can sum up the weights of rows, for reports of log-sum-exps and for
    /// [`crate::nucleus`], and apply a transform. Where its text would be too long for those who
    /// ask for neither, there is one without.
    pub sums_weights: bool,
}

impl Variant {
    /// Whether a device of this compute capability runs it.
    pub const fn runs_on(&self, compute_capability: u32) -> bool {
        if self.arch_specific {
            compute_capability == self.compute_capability
        } else {
            compute_capability >= self.compute_capability
        }
    }

    /// Whether the kernel can apply the rules of rows itself.
    pub const fn applies_rules(&self) -> bool {
        !matches!(self.kernel, Kernel::SampleSimt) && self.tile_b <= sieve::RULED_ROWS
    }

    /// Whether the kernel can apply a transform itself: so can those of the long text.
    pub const fn applies_transform(&self) -> bool {
        self.sums_weights
    }

    /// Sieves of a block, which take vocabulary tiles in turn.
    pub const fn sieves(&self) -> u32 {
        match self.kernel {
            Kernel::SampleSimt => 0,
            Kernel::SampleMma => 1,
            Kernel::SampleSm90 => sm90::GROUPS,
        }
    }

    /// Rows of both matrices that a batch of `batch` rows has blocks read for each
    /// vocabulary tile: what the time of a call grows with.
    pub const fn rows_read(&self, batch: u32) -> u64 {
        ceil_div(batch as u64, self.tile_b as u64) * (TILE_V + self.tile_b) as u64
    }
}

const fn mma_variant(
    name: &'static str,
    entry: &'static str,
    dtype: Dtype,
    tile_b: u32,
) -> Variant {
    Variant {
        name,
        entry,
        kernel: Kernel::SampleMma,
        dtype: Some(dtype),
        compute_capability: 80,
        arch_specific: false,
        threads: mma::THREADS,
        cluster: 1,
        tile_b,
        shared_bytes: mma::shared_bytes(tile_b),
        blocks_per_sm: 2,
        alignment_bytes: 16,
        sums_weights: tile_b < sieve::RULED_ROWS,
    }
}

const fn sm90_variant(
    name: &'static str,
    entry: &'static str,
    dtype: Dtype,
    tile_b: u32,
) -> Variant {
    Variant {
        name,
        entry,
        kernel: Kernel::SampleSm90,
        dtype: Some(dtype),
        compute_capability: 90,
        arch_specific: true,
        threads: sm90::THREADS,
        cluster: sm90::cluster(tile_b),
        tile_b,
        shared_bytes: sm90::shared_bytes(tile_b),
        blocks_per_sm: 1,
        alignment_bytes: 16,
        sums_weights: tile_b < sieve::RULED_ROWS,
    }
}

/// The same, with sums of weights.
const fn with_sums(variant: Variant) -> Variant {
    Variant { sums_weights: true, ..variant }
}

/// Every variant.
pub const VARIANTS: &[Variant] = &[
    Variant {
        name: "simt",
        entry: "flash_sampling_sample_simt",
        kernel: Kernel::SampleSimt,
        dtype: None,
        compute_capability: 80,
        arch_specific: false,
        threads: simt::THREADS,
        cluster: 1,
        tile_b: simt::TILE_B,
        shared_bytes: core::mem::size_of::<crate::kernels::sample_simt::Shared>() as u32,
        blocks_per_sm: 4,
        alignment_bytes: 1,
        sums_weights: false,
    },
    mma_variant("mma_b8_bf16", "flash_sampling_sample_mma_b8_bf16", Dtype::Bf16, 8),
    mma_variant("mma_b16_bf16", "flash_sampling_sample_mma_b16_bf16", Dtype::Bf16, 16),
    mma_variant("mma_b32_bf16", "flash_sampling_sample_mma_b32_bf16", Dtype::Bf16, 32),
    mma_variant("mma_b64_bf16", "flash_sampling_sample_mma_b64_bf16", Dtype::Bf16, 64),
    with_sums(mma_variant(
        "mma_b64_sums_bf16",
        "flash_sampling_sample_mma_b64_sums_bf16",
        Dtype::Bf16,
        64,
    )),
    mma_variant("mma_b8_f16", "flash_sampling_sample_mma_b8_f16", Dtype::F16, 8),
    mma_variant("mma_b16_f16", "flash_sampling_sample_mma_b16_f16", Dtype::F16, 16),
    mma_variant("mma_b32_f16", "flash_sampling_sample_mma_b32_f16", Dtype::F16, 32),
    mma_variant("mma_b64_f16", "flash_sampling_sample_mma_b64_f16", Dtype::F16, 64),
    with_sums(mma_variant(
        "mma_b64_sums_f16",
        "flash_sampling_sample_mma_b64_sums_f16",
        Dtype::F16,
        64,
    )),
    sm90_variant("sm90_b8_bf16", "flash_sampling_sample_sm90_b8_bf16", Dtype::Bf16, 8),
    sm90_variant("sm90_b16_bf16", "flash_sampling_sample_sm90_b16_bf16", Dtype::Bf16, 16),
    sm90_variant("sm90_b32_bf16", "flash_sampling_sample_sm90_b32_bf16", Dtype::Bf16, 32),
    sm90_variant("sm90_b64_bf16", "flash_sampling_sample_sm90_b64_bf16", Dtype::Bf16, 64),
    with_sums(sm90_variant(
        "sm90_b64_sums_bf16",
        "flash_sampling_sample_sm90_b64_sums_bf16",
        Dtype::Bf16,
        64,
    )),
    sm90_variant("sm90_b96_bf16", "flash_sampling_sample_sm90_b96_bf16", Dtype::Bf16, 96),
    sm90_variant("sm90_b128_bf16", "flash_sampling_sample_sm90_b128_bf16", Dtype::Bf16, 128),
    sm90_variant("sm90_b160_bf16", "flash_sampling_sample_sm90_b160_bf16", Dtype::Bf16, 160),
    sm90_variant("sm90_b192_bf16", "flash_sampling_sample_sm90_b192_bf16", Dtype::Bf16, 192),
    sm90_variant("sm90_b224_bf16", "flash_sampling_sample_sm90_b224_bf16", Dtype::Bf16, 224),
    sm90_variant("sm90_b256_bf16", "flash_sampling_sample_sm90_b256_bf16", Dtype::Bf16, 256),
    sm90_variant("sm90_b8_f16", "flash_sampling_sample_sm90_b8_f16", Dtype::F16, 8),
    sm90_variant("sm90_b16_f16", "flash_sampling_sample_sm90_b16_f16", Dtype::F16, 16),
    sm90_variant("sm90_b32_f16", "flash_sampling_sample_sm90_b32_f16", Dtype::F16, 32),
    sm90_variant("sm90_b64_f16", "flash_sampling_sample_sm90_b64_f16", Dtype::F16, 64),
    with_sums(sm90_variant(
        "sm90_b64_sums_f16",
        "flash_sampling_sample_sm90_b64_sums_f16",
        Dtype::F16,
        64,
    )),
    sm90_variant("sm90_b96_f16", "flash_sampling_sample_sm90_b96_f16", Dtype::F16, 96),
    sm90_variant("sm90_b128_f16", "flash_sampling_sample_sm90_b128_f16", Dtype::F16, 128),
    sm90_variant("sm90_b160_f16", "flash_sampling_sample_sm90_b160_f16", Dtype::F16, 160),
    sm90_variant("sm90_b192_f16", "flash_sampling_sample_sm90_b192_f16", Dtype::F16, 192),
    sm90_variant("sm90_b224_f16", "flash_sampling_sample_sm90_b224_f16", Dtype::F16, 224),
    sm90_variant("sm90_b256_f16", "flash_sampling_sample_sm90_b256_f16", Dtype::F16, 256),
];
