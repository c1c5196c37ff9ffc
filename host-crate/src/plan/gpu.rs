//! Which kernel in PTX a GPU can run, which suits best, and on how many blocks.
#![forbid(unsafe_code)]

use flash_sampling_kernels::abi::{Kernel, Variant, n_tiles_v};
use flash_sampling_kernels::dims::ceil_div;

use super::{DeviceLimits, Partials};
use crate::error::{Need, Unmet};
use crate::problem::Problem;

/// Shared memory that a multiprocessor keeps for itself with each resident block
/// (CUDA C++ Programming Guide, compute capabilities 8.x and 9.0).
const RESERVED_SHARED_BYTES: u32 = 1024;

/// Greatest row stride of a tensor map in bytes: a multiple of 16 below 2⁴⁰ (CUDA driver
/// API, `cuTensorMapEncodeTiled`).
const TENSOR_MAP_STRIDE_MAX: u64 = (1 << 40) - 16;

/// Rows that leave the coordinates of every box, which are `i32`, a tile of room.
const TENSOR_MAP_ROWS_MAX: u64 = i32::MAX as u64 - 512;

/// What a kernel in PTX lacks for the problem on that GPU.
pub(super) fn unmet_by_gpu(
    variant: &'static Variant,
    problem: &Problem,
    limits: &DeviceLimits,
) -> Option<Unmet> {
    let at_least =
        |need, limit: u64, found: u64| (found < limit).then_some(Unmet { need, limit, found });
    let same_dtype = |need, found| match variant.dtype {
        Some(dtype) if dtype != found => {
            Some(Unmet { need, limit: dtype as u64, found: found as u64 })
        }
        _ => None,
    };
    let stride_alignment = |need, stride: u64, bytes: u64| {
        // Strides are at least D, so not zero.
        let found = 1 << (stride * bytes).trailing_zeros();
        at_least(need, variant.alignment_bytes, found)
    };
    let (weights, hidden) = (problem.weights_dtype(), problem.hidden_dtype());
    unmet_capability(variant, limits.compute_capability)
        .or_else(|| same_dtype(Need::WeightsDtype, weights))
        .or_else(|| same_dtype(Need::HiddenDtype, hidden))
        .or_else(|| {
            at_least(Need::BaseAlignment, variant.alignment_bytes, problem.alignment_bytes())
        })
        .or_else(|| {
            let stride = problem.weights_stride();
            stride_alignment(Need::WeightsStrideAlignment, stride, weights.bytes())
        })
        .or_else(|| {
            let stride = problem.hidden_stride();
            stride_alignment(Need::HiddenStrideAlignment, stride, hidden.bytes())
        })
        .or_else(|| {
            let found = limits.shared_bytes_per_block.into();
            at_least(Need::SharedBytes, variant.shared_bytes.into(), found)
        })
        .or_else(|| match variant.kernel {
            Kernel::SampleSm90 => unmet_by_copy_engine(problem),
            Kernel::SampleSimt | Kernel::SampleMma => None,
        })
}

fn unmet_capability(variant: &Variant, found: u32) -> Option<Unmet> {
    if variant.runs_on(found) {
        return None;
    }
    let need =
        if variant.arch_specific { Need::ExactComputeCapability } else { Need::ComputeCapability };
    Some(Unmet { need, limit: variant.compute_capability.into(), found: found.into() })
}

/// What of the problem is too large for a tensor map.
fn unmet_by_copy_engine(problem: &Problem) -> Option<Unmet> {
    let at_most =
        |need, limit: u64, found: u64| (found > limit).then_some(Unmet { need, limit, found });
    let weights_stride = problem.weights_stride() * problem.weights_dtype().bytes();
    let hidden_stride = problem.hidden_stride() * problem.hidden_dtype().bytes();
    at_most(Need::RowStrideBytes, TENSOR_MAP_STRIDE_MAX, weights_stride.max(hidden_stride)).or_else(
        || {
            let rows = problem.vocab().max(problem.batch());
            at_most(Need::Rows, TENSOR_MAP_ROWS_MAX, rows.into())
        },
    )
}

/// The lower, the better: the newest kernel first, then what reads the fewest rows, then what can
/// do no more than is wanted.
pub(super) fn rank(variant: &Variant, problem: &Problem) -> (u32, u64, bool) {
    let kernel = match variant.kernel {
        Kernel::SampleSm90 => 0,
        Kernel::SampleMma => 1,
        Kernel::SampleSimt => 2,
    };
    let transforms = problem.features().transform.changes();
    let is_idle = variant.sums_weights != (transforms || Partials::suit(problem, variant));
    (kernel, variant.rows_read(problem.batch()), is_idle)
}

/// One wave of resident blocks, or fewer if there are fewer tiles; whole clusters.
pub(super) fn grid(variant: &Variant, problem: &Problem, limits: &DeviceLimits) -> u32 {
    let tiles_v = u64::from(n_tiles_v(problem.first_token(), problem.vocab()));
    let tiles_b = ceil_div(problem.batch().into(), variant.tile_b.into());
    let wave = wave(variant.shared_bytes, variant.blocks_per_sm, limits);
    let wave_clusters = u32::try_from(wave).unwrap_or(u32::MAX) / variant.cluster;
    // Saturates: tiles of 32-bit sizes are fewer than 2⁶⁴, and a grid has 31 bits.
    let blocks =
        u32::try_from(tiles_v.saturating_mul(tiles_b).min(wave)).unwrap_or(i32::MAX as u32);
    let clusters = blocks.div_ceil(variant.cluster).min(wave_clusters);
    clusters * variant.cluster
}

/// Blocks that a device runs at once, if at most `blocks_per_sm` share a multiprocessor.
pub(super) fn wave(shared_bytes: u32, blocks_per_sm: u32, limits: &DeviceLimits) -> u64 {
    let block_bytes = shared_bytes.saturating_add(RESERVED_SHARED_BYTES);
    let resident = (limits.shared_bytes_per_sm / block_bytes).clamp(1, blocks_per_sm);
    u64::from(limits.multiprocessors.max(1)) * u64::from(resident)
}
