//! The kernel that finishes reports of log-sum-exps, behind the one that multiplies.
#![forbid(unsafe_code)]

use std::fmt;

use flash_sampling_kernels::abi::kept::{LOG_SUM_EXP_ENTRY, LOG_SUM_EXP_THREADS};
use flash_sampling_kernels::abi::{Variant, n_tiles_v, sieve};
use flash_sampling_kernels::kernels::log_sum_exp::Shared;
use flash_sampling_kernels::partial_sum::PartialSum;

use super::{fmt_behind, values_bytes};
use crate::problem::Problem;

/// How a GPU finishes reports of log-sum-exps and log-probabilities alone: the sampling kernel
/// sums up its tiles, and values stay in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogSumExp {
    /// PTX symbol.
    pub entry: &'static str,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks: one a row. 0 for B = 0.
    pub grid: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Sums of a row: one for each warp of the grid that sums up a tile.
    pub n_partials: u32,
    /// Where the sums of the model's distribution begin in the memory for values, in bytes, if
    /// they are wanted, and those of each row's.
    pub partials: [Option<u64>; 2],
    /// Bytes of that memory up to their end.
    pub kept_bytes: u64,
}

/// Alignment of the parts of that memory.
const ALIGNMENT_BYTES: u64 = 16;

impl LogSumExp {
    /// Whether the sampling kernel `variant` sums up what the problem wants.
    pub(super) fn serves(problem: &Problem, variant: &Variant) -> bool {
        variant.sums_weights && Self::suffices(problem, variant)
    }

    /// Whether sums in `variant`'s tiles would do for the problem: it wants nothing but
    /// log-probabilities, of logits that neither a transform nor rules change, in one batch tile.
    pub(super) fn suffices(problem: &Problem, variant: &Variant) -> bool {
        let features = problem.features();
        let is_one_tile = problem.batch() <= variant.tile_b;
        is_one_tile && features.wants_logprobs_alone() && !features.rules
    }

    /// Behind `variant` on `grid` blocks; the sums lie behind `others_bytes` of the memory for
    /// values.
    pub(super) fn new(problem: &Problem, variant: &Variant, grid: u32, others_bytes: u64) -> Self {
        let features = problem.features();
        let batch = u64::from(problem.batch());
        let tiles = n_tiles_v(problem.first_token(), problem.vocab());
        let n_partials = tiles.min(grid * variant.sieves()) * sieve::WARPS;
        let part_bytes = batch * u64::from(n_partials) * size_of::<PartialSum>() as u64;
        let mut kept_bytes =
            others_bytes.max(values_bytes(problem)).next_multiple_of(ALIGNMENT_BYTES);
        let partials = [features.raw, features.processed].map(|wanted| {
            wanted.any().then(|| {
                let begin = kept_bytes;
                kept_bytes += part_bytes.next_multiple_of(ALIGNMENT_BYTES);
                begin
            })
        });
        Self {
            entry: LOG_SUM_EXP_ENTRY,
            threads: LOG_SUM_EXP_THREADS,
            // A grid has 31 bits; a block takes more rows then.
            grid: problem.batch().min(i32::MAX as u32),
            shared_bytes: size_of::<Shared>() as u32,
            n_partials,
            partials,
            kept_bytes,
        }
    }
}

impl fmt::Display for LogSumExp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_behind(f, self.entry, [self.threads, self.grid, self.shared_bytes])
    }
}
