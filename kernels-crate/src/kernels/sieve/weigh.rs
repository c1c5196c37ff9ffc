//! Weigh: of each row the sum of a warp's `e^(y/T)`, for reports of log-sum-exps.
//!
//! A fragment at a time, out of registers like a pair that passed: a column's values are eight
//! lanes', and the greatest is the sum's unit. From tile to tile a warp keeps its sums in shared
//! memory, and leaves them once, at its end: from each tile they would come between the reads of
//! the weights, a sector here and there.

use super::scan::select;
use super::{LANES, Sieve, Sums};
use crate::abi::sieve::{self, WARPS};
use crate::arch;
use crate::dims::offset;
use crate::partial_sum::{PartialSum, greater, report_temperature, weight};
use crate::philox::PAIR;

/// Lanes that each have columns of their own; the others have the same.
const COLUMN_LANES: u32 = 4;

/// The distributions: the model's, and the row's.
const PARTS: u32 = 2;

impl<const M_TILES: usize, const N_TILES: usize> Sieve<'_, M_TILES, N_TILES> {
    /// Whether there is room for sums.
    pub(super) const SUMS_WEIGHTS: bool = sieve::sums_bytes(Self::ROWS) > 0;

    /// Where the sums of a distribution go; null if they are not wanted.
    #[inline(always)]
    fn partials(&self, part: u32) -> *mut PartialSum {
        let [of_model, of_row] = self.params.partials;
        if part == 0 { of_model } else { of_row }
    }

    /// The warp's sums so far, `[ROWS]`.
    #[inline(always)]
    fn sums(&self, part: u32) -> *mut PartialSum {
        let sums: *mut PartialSum = self.shared.wrapping_add(Self::SUMS_AT as usize).cast();
        let warp = part * WARPS + self.thread / LANES;
        sums.wrapping_add((warp * Self::ROWS) as usize)
    }

    /// Hands over, for each distribution that is wanted, the lane's share of the rows, with where
    /// the warp's sum goes in memory. `sieve_index` counts the `sieves` of a block.
    #[inline(always)]
    fn each_row(
        &self,
        (sieves, sieve_index): (u32, u32),
        mut run: impl FnMut(*mut PartialSum, *mut PartialSum),
    ) {
        // Opaque: one text for both distributions.
        let (mut part, parts) = (0, arch::opaque(PARTS));
        while part < parts {
            let partials = self.partials(part);
            let mut row = self.lane();
            while !partials.is_null() && row < self.params.batch {
                let warp = (arch::block_idx() * sieves + sieve_index) * WARPS + self.thread / LANES;
                let at = offset(row, self.params.n_partials as u64, warp) as usize;
                run(self.sums(part).wrapping_add(row as usize), partials.wrapping_add(at));
                row += LANES;
            }
            part += 1;
        }
    }

    /// Begins with sums of nothing, also in memory: a sieve may have no tile.
    ///
    /// # Safety
    /// All lanes of the warp.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn begin_sums(&self, sieve_index: (u32, u32)) {
        if !Self::SUMS_WEIGHTS {
            return;
        }
        self.each_row(sieve_index, |so_far, left| {
            // SAFETY: both are the warp's own, and the row is one of the batch.
            unsafe {
                so_far.write(PartialSum::NONE);
                left.write(PartialSum::NONE);
            }
        });
        arch::warp_barrier();
    }

    /// Leaves the sums of all tiles so far in memory.
    ///
    /// # Safety
    /// As [`Self::begin_sums`].
    #[inline(always)]
    pub(in crate::kernels) unsafe fn leave_sums(&self, sieve_index: (u32, u32)) {
        if !Self::SUMS_WEIGHTS {
            return;
        }
        arch::warp_barrier();
        // SAFETY: as there.
        self.each_row(sieve_index, |so_far, left| unsafe { left.write(so_far.read()) });
    }

    /// Adds the tile's weights to the sums that are wanted.
    ///
    /// # Safety
    /// All threads of the four warps; `sums` are values.
    #[inline(always)]
    pub(super) unsafe fn weigh(&self, sums: &Sums<M_TILES, N_TILES>, first_row: u32) {
        if !Self::SUMS_WEIGHTS {
            return;
        }
        let (mut part, parts) = (0, arch::opaque(PARTS));
        while part < parts {
            let (mut fragment, fragments) = (0, arch::opaque(N_TILES as u32));
            let is_wanted = !self.partials(part).is_null();
            // The same in all lanes.
            while is_wanted && fragment < fragments && first_row + fragment * 8 < self.params.batch
            {
                // SAFETY: the caller's promise.
                unsafe { self.weigh_fragment(sums, part, fragment, first_row) };
                fragment += 1;
            }
            part += 1;
        }
    }

    #[inline(always)]
    unsafe fn weigh_fragment(
        &self,
        sums: &Sums<M_TILES, N_TILES>,
        part: u32,
        fragment: u32,
        first_row: u32,
    ) {
        // Opaque: one text for both columns.
        let (mut column, columns) = (0, arch::opaque(2));
        while column < columns {
            let mut values = [[0.0; PAIR]; M_TILES];
            let mut m = 0;
            while m < M_TILES {
                let slot = arch::opaque(fragment * M_TILES as u32 + m as u32);
                let [a, b, c, d] = select(sums, slot);
                values[m] = if column == 0 { [a, c] } else { [b, d] };
                m += 1;
            }
            let sieve = self.afresh();
            let at = sieve.first_column + fragment * 8 + column;
            // SAFETY: `row < B`; of the lanes with the same column one writes its sum.
            unsafe {
                let mut temperature = 1.0;
                if part != 0 && first_row + at < self.params.batch {
                    temperature = self.params.temperatures.add((first_row + at) as usize).read();
                }
                let inverse = 1.0 / report_temperature(temperature);
                let of_tile = sieve.sum_over_lanes(&values, inverse);
                if sieve.lane() < COLUMN_LANES && first_row + at < self.params.batch {
                    let so_far = sieve.sums(part).add(at as usize);
                    so_far.write(so_far.read().merge(of_tile, inverse));
                }
            }
            column += 1;
        }
    }

    /// The sum over the values that the warp has of a column.
    #[inline(always)]
    fn sum_over_lanes(&self, values: &[[f32; PAIR]; M_TILES], inverse: f32) -> PartialSum {
        let mut highest = f32::NEG_INFINITY;
        let mut m = 0;
        while m < M_TILES {
            highest = greater(greater(highest, values[m][0]), values[m][1]);
            m += 1;
        }
        // Lanes `4·g + q` have the columns of `q`.
        let mut distance = arch::opaque(LANES / 2);
        while distance >= COLUMN_LANES {
            let theirs = arch::shuffle_from(highest.to_bits(), self.lane() ^ distance);
            highest = greater(highest, f32::from_bits(theirs));
            distance /= 2;
        }
        let mut sum = 0.0;
        m = 0;
        while m < M_TILES {
            let [lower, upper] = values[m].map(|y| weight(y, highest, inverse));
            sum += lower + upper;
            m += 1;
        }
        distance = arch::opaque(LANES / 2);
        while distance >= COLUMN_LANES {
            let theirs = arch::shuffle_from(sum.to_bits(), self.lane() ^ distance);
            sum += f32::from_bits(theirs);
            distance /= 2;
        }
        PartialSum { highest, sum }
    }
}
