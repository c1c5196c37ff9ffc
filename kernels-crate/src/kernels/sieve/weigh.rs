//! Weigh: of each row the sum of a warp's `e^(y/T)`, for reports of log-sum-exps.
//!
//! A fragment at a time, out of registers like a pair that passed: its values are the eight
//! lanes' of a column, whose greatest is the sum's unit.

use super::scan::select;
use super::{Sieve, Sums};
use crate::abi::kept::{TILE_PARTIALS, n_partials};
use crate::abi::{TILE_V, sieve};
use crate::arch;
use crate::dims::offset;
use crate::kernels::schedule::Tile;
use crate::partial_sum::{PartialSum, greater, report_temperature, weight};
use crate::philox::PAIR;

impl<const M_TILES: usize, const N_TILES: usize> Sieve<'_, M_TILES, N_TILES> {
    /// Leaves the partial sums of the tile's values that the call wants.
    ///
    /// # Safety
    /// All threads of the four warps; `sums` are values, and `tile` is one of the call's.
    #[inline(always)]
    pub(super) unsafe fn weigh(&self, sums: &Sums<M_TILES, N_TILES>, tile: Tile, first_row: u32) {
        if Self::ROWS > sieve::RULED_ROWS {
            return;
        }
        // Opaque: one text for both distributions.
        let (mut part, parts) = (0, arch::opaque(2));
        while part < parts {
            let [of_model, of_row] = self.params.partials;
            let partials = if part == 0 { of_model } else { of_row };
            if !partials.is_null() {
                // SAFETY: the caller's promise.
                unsafe { self.weigh_for(sums, tile, first_row, partials, part == 0) };
            }
            part += 1;
        }
    }

    /// The same for one distribution: the model's is measured at temperature 1.
    #[inline(always)]
    unsafe fn weigh_for(
        &self,
        sums: &Sums<M_TILES, N_TILES>,
        tile: Tile,
        first_row: u32,
        partials: *mut PartialSum,
        is_model: bool,
    ) {
        let sieve = self.afresh();
        let (first_token, vocab) = (self.params.first_token, self.params.vocab);
        let tile_v = (tile.token - first_token / TILE_V * TILE_V) / TILE_V;
        let place = tile_v * TILE_PARTIALS + sieve.thread / super::LANES;
        let (mut fragment, fragments) = (0, arch::opaque(N_TILES as u32));
        // The same in all lanes: fragments past the batch have nothing.
        while fragment < fragments && first_row + fragment * 8 < self.params.batch {
            let mut values = [[0.0; 4]; M_TILES];
            let mut m = 0;
            while m < M_TILES {
                values[m] = select(sums, fragment * M_TILES as u32 + m as u32);
                m += 1;
            }
            let (mut column, columns) = (0, arch::opaque(2));
            while column < columns {
                let row = first_row + sieve.column(0, 0) + fragment * 8 + column;
                let mut temperature = 1.0;
                if !is_model && row < self.params.batch {
                    // SAFETY: `row < B`.
                    let own = unsafe { self.params.temperatures.add(row as usize).read() };
                    temperature = report_temperature(own);
                }
                let part = sieve.sum_over_lanes(&values, column, 1.0 / temperature);
                // One of the lanes that have the column.
                if sieve.lane() < 4 && row < self.params.batch {
                    let at = offset(row, n_partials(first_token, vocab), place);
                    // SAFETY: the row and the tile are the call's.
                    unsafe { partials.add(at as usize).write(part) };
                }
                column += 1;
            }
            fragment += 1;
        }
    }

    /// The sum over the values that the warp has of a column.
    #[inline(always)]
    fn sum_over_lanes(
        &self,
        values: &[[f32; 4]; M_TILES],
        column: u32,
        inverse: f32,
    ) -> PartialSum {
        let mut own = [[0.0; PAIR]; M_TILES];
        let mut highest = f32::NEG_INFINITY;
        let mut m = 0;
        while m < M_TILES {
            let [a, b, c, d] = values[m];
            own[m] = if column == 0 { [a, c] } else { [b, d] };
            highest = greater(greater(highest, own[m][0]), own[m][1]);
            m += 1;
        }
        // Lanes `4·g + q` have the columns of `q`.
        let mut distance = arch::opaque(super::LANES / 2);
        while distance >= 4 {
            let theirs = arch::shuffle_from(highest.to_bits(), self.lane() ^ distance);
            highest = greater(highest, f32::from_bits(theirs));
            distance /= 2;
        }
        let mut sum = 0.0;
        m = 0;
        while m < M_TILES {
            sum += weight(own[m][0], highest, inverse) + weight(own[m][1], highest, inverse);
            m += 1;
        }
        distance = arch::opaque(super::LANES / 2);
        while distance >= 4 {
            let theirs = arch::shuffle_from(sum.to_bits(), self.lane() ^ distance);
            sum += f32::from_bits(theirs);
            distance /= 2;
        }
        PartialSum { highest, sum }
    }
}
