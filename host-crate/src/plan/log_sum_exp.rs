//! The kernel that finishes reports of log-sum-exps, behind the one that multiplies.
#![forbid(unsafe_code)]

use std::fmt;

use flash_sampling_kernels::abi::Variant;
use flash_sampling_kernels::abi::kept::{LOG_SUM_EXP_ENTRY, LOG_SUM_EXP_THREADS};
use flash_sampling_kernels::kernels::log_sum_exp::Shared;

use super::{asked_of_rest, fmt_behind};
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
}

impl LogSumExp {
    /// Whether the sampling kernel `variant` sums up what the problem wants.
    pub(super) fn serves(problem: &Problem, variant: &Variant) -> bool {
        variant.sums_weights && Self::suffices(problem, variant)
    }

    /// Whether sums in `variant`'s tiles would do for the problem: it wants nothing but
    /// log-probabilities, of logits that nothing changes behind its transform, in one batch tile.
    pub(super) fn suffices(problem: &Problem, variant: &Variant) -> bool {
        let features = asked_of_rest(problem, variant);
        let is_one_tile = problem.batch() <= variant.tile_b;
        is_one_tile && features.wants_logprobs_alone() && !features.rules
    }

    pub(super) fn new(problem: &Problem) -> Self {
        Self {
            entry: LOG_SUM_EXP_ENTRY,
            threads: LOG_SUM_EXP_THREADS,
            // A grid has 31 bits; a block takes more rows then.
            grid: problem.batch().min(i32::MAX as u32),
            shared_bytes: size_of::<Shared>() as u32,
        }
    }
}

impl fmt::Display for LogSumExp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_behind(f, self.entry, [self.threads, self.grid, self.shared_bytes])
    }
}
