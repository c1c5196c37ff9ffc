//! Scan and drain: which pairs may hold a winner, and their candidates.

use super::rules::Kind;
use super::{Marks, Row, Sieve, Sums, pair};
use crate::arch::{self, LANES};
use crate::candidate::Leaders;
use crate::kernels::finish;
use crate::kernels::schedule::Tile;
use crate::kernels::select::select;
use crate::philox::{GROUP, PAIR};
use crate::score::{offer_pair, stays_below, token_value};
use crate::status::Status;

impl<const M_TILES: usize, const N_TILES: usize, const SUMS: bool>
    Sieve<'_, M_TILES, N_TILES, SUMS>
{
    /// Gathers the pairs that may hold a winner and offers them.
    #[inline(always)]
    pub(super) unsafe fn scan(
        &self,
        sums: &Sums<M_TILES, N_TILES>,
        marks: Marks,
        tile: Tile,
        first_row: u32,
        draw: u32,
    ) {
        // Bit `slot`, for each of the two columns of a fragment.
        let mut passed = [0u32; 2];
        let mut slot = M_TILES * N_TILES;
        while slot != 0 {
            slot -= 1;
            let (fragment, m) = (slot / M_TILES, slot % M_TILES);
            // SAFETY: hints and rows were written before the last barrier.
            unsafe {
                let sums = &sums[m][fragment];
                passed[0] = 2 * passed[0] + self.passes(sums, m, fragment, 0) as u32;
                passed[1] = 2 * passed[1] + self.passes(sums, m, fragment, 1) as u32;
            }
            // Opaque, step by step: the bits are kept, not the conditions behind them.
            passed = passed.map(arch::opaque);
        }
        let Marks { admitted, listed } = marks;
        passed = [0, 1].map(|c| passed[c] & admitted[c] | listed[c]);
        // Slots of which any lane has a pair to queue: the same in all lanes, like `queued`.
        let mut open = arch::warp_or(passed[0] | passed[1]);
        let mut queued = 0;
        while open != 0 || queued != 0 {
            // SAFETY: the queue is the warp's own.
            unsafe {
                if open != 0 && queued < LANES {
                    let slot = open.trailing_zeros();
                    open &= open - 1;
                    let of = |at: usize| sums[at % M_TILES][at / M_TILES];
                    let values = select(M_TILES * N_TILES, slot, of);
                    queued = self.enqueue(&values, slot, passed, queued);
                } else {
                    let n = core::cmp::min(queued, LANES);
                    queued -= n;
                    if self.lane() < n {
                        self.drain(queued + self.lane(), tile, first_row, draw);
                    }
                }
            }
            arch::warp_barrier();
        }
    }

    /// Queues the pairs of a slot that passed; returns how many are queued then.
    #[inline(always)]
    unsafe fn enqueue(&self, sums: &[f32; 4], slot: u32, passed: [u32; 2], queued: u32) -> u32 {
        let (fragment, m) = (slot / M_TILES as u32, slot % M_TILES as u32);
        let line = self.line(0) + m * self.lines.per_tile;
        let lanes_below = (1 << self.lane()) - 1;
        let mut queued = queued;
        let mut column = 0;
        while column < 2 {
            let passes = passed[column] >> slot & 1 != 0;
            let lanes = arch::warp_ballot(passes);
            if passes {
                let at = (queued + (lanes & lanes_below).count_ones()) as usize;
                let place = line << 16 | (fragment * 8 + self.column(0, column));
                // SAFETY: fewer than a warp's were queued, and two a lane come at most.
                unsafe {
                    self.queue().add(at).write(pair(sums, column));
                    self.places().add(at).write(place);
                }
            }
            queued += lanes.count_ones();
            column += 1;
        }
        queued
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

    /// Offers the queued pair `at`.
    #[inline(always)]
    unsafe fn drain(&self, at: u32, tile: Tile, first_row: u32, draw: u32) {
        // SAFETY: `at` is queued, and places hold lines and columns.
        unsafe {
            let values = self.queue().add(at as usize).read();
            let place = self.places().add(at as usize).read();
            let (line, column) = (place >> 16, place & 0xFFFF);
            if first_row + column < self.params.batch {
                let base = tile.token.wrapping_add(line);
                let Some(values) = self.edited(values, (line, column), first_row) else { return };
                self.offer(values, base, first_row, column, draw);
            }
        }
    }

    /// The values of a pair after its row's edits; none if it cannot hold the winner of a row that
    /// is drawn: one with a listed token has passed unseen. Of other rows all are wanted: what was
    /// stored of them is not edited.
    #[inline(always)]
    unsafe fn edited(
        &self,
        values: [f32; PAIR],
        (line, column): (u32, u32),
        first_row: u32,
    ) -> Option<[f32; PAIR]> {
        if !self.applies_rules() {
            return Some(values);
        }
        let group = (line - self.lines.first) / GROUP;
        // SAFETY: the caller's promise; the hints and rows of the tile are there.
        unsafe {
            let values = self.edit(values, (line, column), first_row + column);
            if self.kind(column) != Kind::Drawn {
                return Some(values);
            }
            let hint = self.hints().add((group * Self::ROWS + column) as usize).read();
            let row = self.rows().add(column as usize);
            let (temperature, level) = ((*row).temperature, (*row).level);
            let highest = arch::max_or_nan(values[0], values[1]);
            (!stays_below(highest, temperature, hint.bound(), level)).then_some(values)
        }
    }

    #[inline(always)]
    unsafe fn offer(&self, values: [f32; PAIR], base: u32, first_row: u32, column: u32, draw: u32) {
        let row = first_row + column;
        let mut status = Status::OK;
        // The bias is already in.
        let values = values.map(|value| token_value(value, 0.0, &mut status));
        // SAFETY: the caller's promise.
        unsafe {
            if self.lists() && self.kind(column) == Kind::Listed {
                finish::publish_status(&self.workspace(), row, status);
                if draw == 0 {
                    self.list(values, base, row, column);
                }
                return;
            }
        }
        let mut leaders = Leaders::NONE;
        // SAFETY: `row < B`, `draw < S`.
        unsafe {
            finish::publish_status(&self.workspace(), row, status);
            let Row { temperature, level, subkey } = self.rows().add(column as usize).read();
            offer_pair(values, base, temperature, subkey, level, &mut leaders);
            if finish::publish(self.params, &self.workspace(), row, draw, leaders) {
                self.leave_drawn(values, base, row, leaders.first);
            }
        }
    }
}
