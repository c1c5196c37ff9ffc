//! Scan and drain: which pairs may hold a winner, and their candidates.

use super::{LANES, Row, Sieve, Sums, pair};
use crate::abi::sieve::QUEUE;
use crate::arch;
use crate::candidate::Leaders;
use crate::kernels::finish;
use crate::kernels::schedule::Tile;
use crate::philox::PAIR;
use crate::score::{offer_pair, stays_below, token_value};
use crate::status::Status;

impl<const M_TILES: usize, const N_TILES: usize> Sieve<'_, M_TILES, N_TILES> {
    /// Gathers the pairs that may hold a winner and offers them: to the call, or with
    /// `gather` to the sieve's keys.
    #[inline(always)]
    pub(super) unsafe fn scan(
        &self,
        sums: &Sums<M_TILES, N_TILES>,
        tile: Tile,
        first_row: u32,
        draw: u32,
        gather: bool,
    ) {
        // Bit `fragment`, for each of the two columns of each tile of sums.
        let mut passed = [[0u32; 2]; M_TILES];
        let mut fragment = 0;
        while fragment < N_TILES {
            let mut m = 0;
            while m < M_TILES {
                // SAFETY: hints and rows were written before the last barrier.
                unsafe {
                    let sums = &sums[m][fragment];
                    passed[m][0] |= (self.passes(sums, m, fragment, 0) as u32) << fragment;
                    passed[m][1] |= (self.passes(sums, m, fragment, 1) as u32) << fragment;
                }
                // Opaque, step by step: the bits are kept, not the conditions behind them.
                passed[m] = passed[m].map(arch::opaque);
                m += 1;
            }
            fragment += 1;
        }
        let mut mine = 0;
        let mut m = 0;
        while m < M_TILES {
            mine += passed[m][0].count_ones() + passed[m][1].count_ones();
            m += 1;
        }
        let (before, total) = arch::warp_sum(mine);
        // The queue holds a window of the warp's pairs.
        let mut window = 0;
        while window < total {
            // SAFETY: the queue is the warp's own.
            unsafe {
                self.fill_queue(sums, passed, before.wrapping_sub(window));
                arch::warp_barrier();
                let queued = core::cmp::min(total - window, QUEUE);
                self.drain(queued, tile, first_row, draw, gather);
                arch::warp_barrier();
            }
            window += QUEUE;
        }
    }

    /// Writes the thread's passed pairs to the queue, the first to place `at`; those
    /// that fall outside are left out.
    #[inline(always)]
    unsafe fn fill_queue(
        &self,
        sums: &Sums<M_TILES, N_TILES>,
        passed: [[u32; 2]; M_TILES],
        at: u32,
    ) {
        let mut at = at;
        // Opaque: hoisted out of the loop over windows, each pair's place would cost a
        // register.
        let place = arch::opaque(self.line(0) << 16 | self.column(0, 0));
        let mut fragment = 0;
        while fragment < N_TILES {
            let mut m = 0;
            while m < M_TILES {
                let mut column = 0;
                while column < 2 {
                    if passed[m][column] >> fragment & 1 != 0 {
                        if at < QUEUE {
                            let values = pair(&sums[m][fragment], column);
                            let place = place
                                + (m as u32 * self.lines.per_tile << 16
                                    | (fragment * 8 + column) as u32);
                            // SAFETY: `at` is inside the queue.
                            unsafe {
                                self.queue().add(at as usize).write(values);
                                self.places().add(at as usize).write(place);
                            }
                        }
                        at = at.wrapping_add(1);
                    }
                    column += 1;
                }
                m += 1;
            }
            fragment += 1;
        }
    }

    /// Whether a pair may hold its row's winner.
    #[inline(always)]
    unsafe fn passes(&self, sums: &[f32; 4], m: usize, fragment: usize, column: usize) -> bool {
        let [lower, upper] = pair(sums, column);
        let highest = arch::max_or_nan(lower, upper);
        let row = self.row_slot(fragment, column);
        // SAFETY: the caller's promise.
        let (hints, temperature, level) =
            unsafe { (self.hint_slot(fragment, m).read(), (*row).temperature, (*row).level) };
        !stays_below(highest, temperature, hints[column].bound(), level)
    }

    /// Offers the warp's queued pairs, one a lane.
    #[inline(always)]
    unsafe fn drain(&self, queued: u32, tile: Tile, first_row: u32, draw: u32, gather: bool) {
        let mut at = self.lane();
        while at < queued {
            // SAFETY: `at < queued`, and places hold lines and columns.
            unsafe {
                let values = self.queue().add(at as usize).read();
                let place = self.places().add(at as usize).read();
                let (line, column) = (place >> 16, place & 0xFFFF);
                if first_row + column < self.params.batch {
                    let base = tile.token.wrapping_add(line);
                    self.offer(values, base, first_row, column, draw, gather);
                }
            }
            at += LANES;
        }
    }

    #[inline(always)]
    unsafe fn offer(
        &self,
        values: [f32; PAIR],
        base: u32,
        first_row: u32,
        column: u32,
        draw: u32,
        gather: bool,
    ) {
        let row = first_row + column;
        let mut status = Status::OK;
        // The bias is already in.
        let values = values.map(|value| token_value(value, 0.0, &mut status));
        let mut leaders = Leaders::NONE;
        // SAFETY: `row < B`, `draw < S`.
        unsafe {
            finish::publish_status(&self.workspace(), row, status);
            let Row { temperature, level, subkey } = self.rows().add(column as usize).read();
            offer_pair(values, base, temperature, subkey, level, &mut leaders);
            if gather {
                let slot = arch::shared_address(self.keys().add(column as usize).cast());
                arch::raise_shared(slot, leaders.first.bits());
            } else {
                finish::publish(self.params, &self.workspace(), row, draw, leaders);
            }
        }
    }
}
