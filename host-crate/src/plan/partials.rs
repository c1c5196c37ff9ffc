//! Sums of weights that the sampling kernel leaves, for reports and for filters.
#![forbid(unsafe_code)]

use flash_sampling_kernels::abi::{Variant, n_tiles_v, sieve};
use flash_sampling_kernels::partial_sum::PartialSum;

use super::{Finish, LogSumExp, asked_of_rest, values_bytes};
use crate::problem::Problem;

/// Where the sampling kernel leaves partial sums of each row's weights, as it sums up its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Partials {
    /// Sums of a row: one for each warp of the grid that sums up a tile.
    pub n: u32,
    /// Where those of the model's distribution begin in the memory for values, in bytes, if
    /// they are wanted, and those of each row's.
    pub begin: [Option<u64>; 2],
    /// Whether those of each row's are for a report, which is of all rows.
    pub of_all_rows: bool,
    /// Bytes of that memory up to their end.
    pub kept_bytes: u64,
}

/// Alignment of the parts of that memory.
const ALIGNMENT_BYTES: u64 = 16;

impl Partials {
    /// Whether sums in `variant`'s tiles would serve the problem: its reports, or its rows with
    /// filters.
    pub(super) fn suit(problem: &Problem, variant: &Variant) -> bool {
        Self::suit_reports(problem, variant) || Self::suit_filters(problem, variant)
    }

    /// Whether they would serve its reports, of logits that nothing but rules changes, in one batch
    /// tile.
    fn suit_reports(problem: &Problem, variant: &Variant) -> bool {
        let features = asked_of_rest(problem, variant);
        let is_one_tile = problem.batch() <= variant.tile_b;
        is_one_tile && features.wants_reports_alone()
    }

    /// Whether they would serve rows with filters, of one batch tile, whose values nothing but
    /// rules changes.
    fn suit_filters(problem: &Problem, variant: &Variant) -> bool {
        let features = asked_of_rest(problem, variant);
        let suits_rows = !features.of_all_rows() || Self::suit_reports(problem, variant);
        features.filters && suits_rows && problem.batch() <= variant.tile_b
    }

    /// Behind the memory of `finish`, if `variant` on `grid` blocks is to sum up. Without room for
    /// the few values that sums would serve, `finish` takes all.
    pub(super) fn new(
        problem: &Problem,
        variant: &Variant,
        grid: u32,
        finish: Option<&Finish>,
    ) -> Option<Self> {
        if !variant.sums_weights {
            return None;
        }
        let features = asked_of_rest(problem, variant);
        let tiles = n_tiles_v(problem.first_token(), problem.vocab());
        let sieves = grid * variant.sieves();
        let has_room = finish.is_some_and(|finish| finish.slice_in_shared);
        let reports = LogSumExp::suffices(problem, variant)
            || has_room && Self::suit_reports(problem, variant);
        let of_all_rows = reports && features.processed.any();
        let of_rows = has_room && Self::suit_filters(problem, variant);
        let wanted = [reports && features.raw.any(), of_all_rows || of_rows];
        if wanted == [false; 2] {
            return None;
        }
        let finish_bytes = finish.map_or(0, |finish| finish.kept_bytes);
        let n = tiles.min(sieves) * sieve::WARPS;
        let rows = u64::from(problem.batch());
        let part_bytes = rows * u64::from(n) * size_of::<PartialSum>() as u64;
        let mut kept_bytes =
            finish_bytes.max(values_bytes(problem)).next_multiple_of(ALIGNMENT_BYTES);
        let begin = wanted.map(|wanted| {
            wanted.then(|| {
                let begin = kept_bytes;
                kept_bytes += part_bytes.next_multiple_of(ALIGNMENT_BYTES);
                begin
            })
        });
        Some(Self { n, begin, of_all_rows, kept_bytes })
    }
}
