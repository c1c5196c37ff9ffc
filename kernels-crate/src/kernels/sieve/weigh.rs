//! Weigh: of each row the sum of a warp's `e^(y/T)`, for reports of log-sum-exps, and for rows
//! that are finished from few of their values.
//!
//! Some fragments at a time, out of registers like a pair that passed: a column's values are eight
//! lanes', and the greatest is the sum's unit. From tile to tile a warp keeps its sums in shared
//! memory, and leaves them once, at its end: from each tile they would come between the reads of
//! the weights, a sector here and there.

use super::rules::Kind;
use super::{Sieve, Sums, pair};
use crate::abi::sieve::WARPS;
use crate::arch::{self, LANES};
use crate::dims::offset;
use crate::kernels::select::select;
use crate::nucleus;
use crate::partial_sum::{PartialSum, greater, report_temperature, weight};

/// Lanes that each have columns of their own; the others have the same.
const COLUMN_LANES: u32 = 4;

/// Fragments that are weighed together at most: what one waits for, the others fill.
const MOST_FRAGMENTS: usize = 2;

/// The distributions: the model's, and the row's.
const PARTS: u32 = 2;

impl<const M_TILES: usize, const N_TILES: usize, const SUMS: bool>
    Sieve<'_, M_TILES, N_TILES, SUMS>
{
    /// Where the sums of a distribution go; null if they are not wanted.
    #[inline(always)]
    fn partials(&self, part: u32) -> *mut PartialSum {
        let [of_model, of_row] = self.params.partials;
        if part == 0 { of_model } else { of_row }
    }

    /// The sums of all warps, `[PARTS, WARPS, ROWS]`, before the inverse temperatures.
    #[inline(always)]
    fn all_sums(&self) -> *mut PartialSum {
        self.shared.wrapping_add(Self::SUMS_AT as usize).cast()
    }

    /// The warp's sums so far, `[ROWS]`.
    #[inline(always)]
    fn sums(&self, part: u32) -> *mut PartialSum {
        let warp = part * WARPS + self.thread / LANES;
        self.all_sums().wrapping_add((warp * Self::ROWS) as usize)
    }

    /// `1/T` of the rows, of all warps, `[WARPS, ROWS]`, before the words of [`Self::wanted`].
    #[inline(always)]
    fn all_inverses(&self) -> *mut f32 {
        self.all_sums().wrapping_add((PARTS * WARPS * Self::ROWS) as usize).cast()
    }

    /// `1/T` of the rows, the warp's own `[ROWS]`.
    #[inline(always)]
    fn inverses(&self) -> *mut f32 {
        self.all_inverses().wrapping_add((self.thread / LANES * Self::ROWS) as usize)
    }

    /// Which distributions the warp sums up: bit `part`.
    #[inline(always)]
    fn wanted(&self) -> *mut u32 {
        let wanted: *mut u32 =
            self.all_inverses().wrapping_add((WARPS * Self::ROWS) as usize).cast();
        wanted.wrapping_add((self.thread / LANES) as usize)
    }

    /// Begins with sums of nothing.
    ///
    /// # Safety
    /// All lanes of the warp.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn begin_sums(&self) {
        let [of_model, of_row] = self.params.partials;
        if !SUMS || of_model.is_null() && of_row.is_null() {
            return;
        }
        let mut of_any = self.params.sums_all_rows != 0;
        let mut row = self.lane();
        while row < self.params.batch {
            // SAFETY: `row < B`; the slots are the warp's own.
            unsafe {
                let temperature = self.params.temperatures.add(row as usize).read();
                self.sums(0).add(row as usize).write(PartialSum::NONE);
                self.sums(1).add(row as usize).write(PartialSum::NONE);
                self.inverses().add(row as usize).write(1.0 / report_temperature(temperature));
                if !self.params.features.is_null() {
                    let features = &*self.params.features.add(row as usize);
                    let kind = self.kind_of(features, temperature);
                    let is_kept = (kind == Kind::Kept) | (kind == Kind::Judged);
                    of_any |= is_kept & nucleus::may_serve(features, temperature);
                }
            }
            row += LANES;
        }
        let of_model = !of_model.is_null() as u32;
        let of_row = !of_row.is_null() as u32 & arch::warp_or(of_any as u32);
        if self.lane() == 0 {
            // SAFETY: the word is the warp's own.
            unsafe { self.wanted().write(of_model | of_row << 1) };
        }
        arch::warp_barrier();
    }

    /// Whether the sums of a distribution are wanted, the same in all lanes.
    ///
    /// # Safety
    /// The warp has begun with them.
    #[inline(always)]
    unsafe fn sums_up(&self, part: u32) -> bool {
        // SAFETY: the caller's promise.
        !self.partials(part).is_null() && unsafe { self.wanted().read() } >> part & 1 != 0
    }

    /// Leaves the sums of all tiles so far in memory, `sieve_index` counting the sieves of a
    /// block. First come the first sieves of all blocks: those of later ones may have no tile.
    ///
    /// # Safety
    /// As [`Self::begin_sums`]; the sieve has had a tile.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn leave_sums(&self, sieve_index: u32) {
        if !SUMS {
            return;
        }
        arch::warp_barrier();
        // Opaque: one text for both distributions.
        let (mut part, parts) = (0, arch::opaque(PARTS));
        while part < parts {
            let partials = self.partials(part);
            let sieve = sieve_index * arch::grid_dim() + arch::block_idx();
            let warp = sieve * WARPS + self.thread / LANES;
            let mut row = self.lane();
            // SAFETY: the sieve has begun.
            let is_wanted = unsafe { self.sums_up(part) };
            while is_wanted && row < self.params.batch {
                let at = offset(row, self.params.n_partials as u64, warp) as usize;
                // SAFETY: the row and the warp are the call's.
                unsafe { partials.add(at).write(self.sums(part).add(row as usize).read()) };
                row += LANES;
            }
            part += 1;
        }
    }

    /// Adds the tile's weights to the sums that are wanted.
    ///
    /// # Safety
    /// All threads of the four warps; `sums` are values.
    #[inline(always)]
    pub(super) unsafe fn weigh(&self, sums: &Sums<M_TILES, N_TILES>, first_row: u32) {
        if !SUMS {
            return;
        }
        let (mut part, parts) = (0, arch::opaque(PARTS));
        while part < parts {
            let (mut first, end) = (0, arch::opaque(N_TILES as u32));
            // SAFETY: the caller's promise.
            let is_wanted = unsafe { self.sums_up(part) };
            while is_wanted && first < end && first_row + first * 8 < self.params.batch {
                // SAFETY: the caller's promise.
                unsafe { self.weigh_fragments(sums, part, first) };
                first += Self::FRAGMENTS as u32;
            }
            part += 1;
        }
    }

    /// Fragments that are weighed together.
    const FRAGMENTS: usize = if N_TILES < MOST_FRAGMENTS { N_TILES } else { MOST_FRAGMENTS };

    /// The same for the eight columns of each fragment from `first` on.
    #[inline(always)]
    unsafe fn weigh_fragments(&self, sums: &Sums<M_TILES, N_TILES>, part: u32, first: u32) {
        let index = first / Self::FRAGMENTS as u32;
        let mut values = [[[0.0; 4]; M_TILES]; MOST_FRAGMENTS];
        let mut k = 0;
        while k < Self::FRAGMENTS {
            let mut m = 0;
            while m < M_TILES {
                let of = |at: usize| sums[m][at * Self::FRAGMENTS + k];
                values[k][m] = select(N_TILES / Self::FRAGMENTS, index, of);
                m += 1;
            }
            k += 1;
        }
        let sieve = self.afresh();
        let at = sieve.first_column + first * 8;
        let so_far = sieve.sums(part).wrapping_add(at as usize);
        let so_far = |k: usize| so_far.wrapping_add(k * 8).cast::<[PartialSum; 2]>();
        let mut before = [[PartialSum::NONE; 2]; MOST_FRAGMENTS];
        let mut inverse = [[1.0; 2]; MOST_FRAGMENTS];
        k = 0;
        while k < Self::FRAGMENTS {
            // SAFETY: there is a slot for each column.
            unsafe {
                before[k] = so_far(k).read();
                if part != 0 {
                    let at = at as usize + k * 8;
                    inverse[k] = sieve.inverses().add(at).cast::<[f32; 2]>().read();
                }
            }
            k += 1;
        }
        let after = sieve.add_over_lanes(before, &values, inverse);
        // Of the lanes with the same columns one writes their sums.
        if sieve.lane() < COLUMN_LANES {
            k = 0;
            while k < Self::FRAGMENTS {
                // SAFETY: the same. Of a column past the batch, nobody asks for the sum.
                unsafe { so_far(k).write(after[k]) };
                k += 1;
            }
        }
    }

    /// The sums before, and over the values that the warp has of two columns of each fragment.
    #[inline(always)]
    fn add_over_lanes(
        &self,
        before: [[PartialSum; 2]; MOST_FRAGMENTS],
        values: &[[[f32; 4]; M_TILES]; MOST_FRAGMENTS],
        inverse: [[f32; 2]; MOST_FRAGMENTS],
    ) -> [[PartialSum; 2]; MOST_FRAGMENTS] {
        let mut after = before;
        let mut k = 0;
        while k < Self::FRAGMENTS {
            let mut m = 0;
            while m < M_TILES {
                let [a, b, c, d] = values[k][m];
                let [one, other] = &mut after[k];
                one.highest = greater(greater(one.highest, a), c);
                other.highest = greater(greater(other.highest, b), d);
                m += 1;
            }
            k += 1;
        }
        // Lanes `4·g + q` have the columns of `q`.
        let mut distance = arch::opaque(LANES / 2);
        while distance >= COLUMN_LANES {
            self.each_column(&mut after, |sum| {
                sum.highest = greater(sum.highest, self.of_lane(sum.highest, distance));
            });
            distance /= 2;
        }
        // The sum before is one lane's.
        let own = if self.lane() < COLUMN_LANES { 1.0 } else { 0.0 };
        k = 0;
        while k < Self::FRAGMENTS {
            let mut column = 0;
            while column < 2 {
                let highest = after[k][column].highest;
                let weight = |y| weight(y, highest, inverse[k][column]);
                let before = before[k][column];
                let mut sum = own * before.sum * weight(before.highest);
                let mut m = 0;
                while m < M_TILES {
                    let [lower, upper] = pair(&values[k][m], column).map(weight);
                    sum += lower + upper;
                    m += 1;
                }
                after[k][column].sum = sum;
                column += 1;
            }
            k += 1;
        }
        distance = arch::opaque(LANES / 2);
        while distance >= COLUMN_LANES {
            self.each_column(&mut after, |sum| sum.sum += self.of_lane(sum.sum, distance));
            distance /= 2;
        }
        after
    }

    /// Does something with each column's sum.
    #[inline(always)]
    fn each_column(
        &self,
        sums: &mut [[PartialSum; 2]; MOST_FRAGMENTS],
        run: impl Fn(&mut PartialSum),
    ) {
        let mut at = 0;
        while at < 2 * Self::FRAGMENTS {
            run(&mut sums[at / 2][at % 2]);
            at += 1;
        }
    }

    /// What the lane in that distance has.
    #[inline(always)]
    fn of_lane(&self, own: f32, distance: u32) -> f32 {
        f32::from_bits(arch::shuffle_from(own.to_bits(), self.lane() ^ distance))
    }
}
