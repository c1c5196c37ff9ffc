//! Levels: scores that the rows' winners have at least.

use core::mem::offset_of;

use super::{Marks, Row, Sieve, Sums, pair};
use crate::abi::sieve::{ROW_BYTES, THREADS};
use crate::arch;
use crate::candidate::{Key, Leaders};
use crate::gumbel::NOISE_BELOW_ALL;
use crate::kernels::finish::{self, Workspace};
use crate::kernels::schedule::Tile;
use crate::philox::PAIR_BIT;
use crate::score::score;

/// How often a first tile looks.
const TRIES: u32 = 16;

/// Of a grid of so many blocks, a tile is rarely the best of a row's.
const MANY_BLOCKS: u32 = 64;

/// Of the threads, at most one in so many may have a row for which no other tile is better:
/// about as many other tiles are there then.
const FEW: u32 = 16;

impl<const M_TILES: usize, const N_TILES: usize, const SUMS: bool>
    Sieve<'_, M_TILES, N_TILES, SUMS>
{
    /// Whether a call's first tile waits for what other blocks' have reached: the first to
    /// end would pass half of its pairs. With fewer rows memory is what everybody waits for.
    const WAITS: bool = Self::ROWS >= 96;

    /// Reads the scores that the call's rows have reached. Tells whether one of the
    /// thread's rows has reached none.
    ///
    /// # Safety
    /// As [`Self::begin_rows`]; no thread is in [`Self::offer_tile`].
    #[inline(always)]
    pub(in crate::kernels) unsafe fn raise_levels(&self, first_row: u32, draw: u32) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.write_levels(first_row, draw, self.thread, THREADS) }
    }

    /// The part of worker `worker` of `workers` in [`Self::raise_levels`].
    ///
    /// # Safety
    /// As [`Self::write_rows`].
    #[inline(always)]
    pub(in crate::kernels) unsafe fn write_levels(
        &self,
        first_row: u32,
        draw: u32,
        worker: u32,
        workers: u32,
    ) -> bool {
        let mut unset = false;
        let mut at = worker;
        while at < Self::ROWS {
            let row = first_row + at;
            let mut level = f32::INFINITY;
            // SAFETY: `row < B`; the slot is the thread's own until the next barrier.
            unsafe {
                if row < self.params.batch {
                    level = self.level(at, row, draw);
                    unset |= level == f32::NEG_INFINITY;
                    self.keep_tile(at, level);
                }
                (&raw mut (*self.rows().add(at as usize)).level).write(level);
            }
            at += workers;
        }
        unset
    }

    /// Raises the rows' levels to what the tile's own tokens are sure to reach.
    #[inline(always)]
    pub(super) unsafe fn set_levels(&self, sums: &Sums<M_TILES, N_TILES>, marks: Marks) {
        // Opaque: computed ahead, each row's address would cost a register.
        let levels = self.row_slot(0, 0).cast::<u8>().wrapping_add(offset_of!(Row, level));
        let levels = arch::opaque(arch::shared_address(levels));
        // In quarters: LLVM does not unroll a loop as long as all of it.
        // SAFETY: levels only rise until the barrier that follows.
        unsafe {
            self.set_quarter_of_levels::<0>(sums, marks, levels);
            self.set_quarter_of_levels::<1>(sums, marks, levels);
            self.set_quarter_of_levels::<2>(sums, marks, levels);
            self.set_quarter_of_levels::<3>(sums, marks, levels);
        }
    }

    #[inline(always)]
    unsafe fn set_quarter_of_levels<const QUARTER: usize>(
        &self,
        sums: &Sums<M_TILES, N_TILES>,
        marks: Marks,
        levels: u32,
    ) {
        let slots = M_TILES * N_TILES;
        let mut slot = QUARTER * slots / 4;
        while slot < (QUARTER + 1) * slots / 4 {
            let (fragment, m) = (slot / M_TILES, slot % M_TILES);
            // SAFETY: the caller's promise.
            unsafe {
                let is_final = marks.listed.map(|listed| listed >> slot & 1 == 0);
                self.set_level(&sums[m][fragment], m, fragment, 0, is_final[0], levels);
                self.set_level(&sums[m][fragment], m, fragment, 1, is_final[1], levels);
            }
            slot += 1;
        }
    }

    #[inline(always)]
    unsafe fn set_level(
        &self,
        sums: &[f32; 4],
        m: usize,
        fragment: usize,
        column: usize,
        is_final: bool,
        levels: u32,
    ) {
        // SAFETY: hints and rows were written before the last barrier.
        unsafe {
            let (member, floor) = self.hint_slot(fragment, m).read()[column].floor();
            let [lower, upper] = pair(sums, column);
            let row = self.row_slot(fragment, column);
            let temperature = (*row).temperature;
            // The rows of the fragment that are the thread's. Without noise the greater counts.
            let is_mine = (member % PAIR_BIT == self.lane() / 4) & (temperature != 0.0);
            // By bits: LLVM would make an `if` an indexed load, and the sums an array in
            // local memory.
            let differ = (lower.to_bits() ^ upper.to_bits()) & (member / PAIR_BIT).wrapping_neg();
            let least = f32::from_bits(lower.to_bits() ^ differ);
            // Of the others no more is known than what bounds all noise. A NaN hides no other.
            let highest = lower.max(upper);
            let (value, floor) = if is_mine { (least, floor) } else { (highest, NOISE_BELOW_ALL) };
            let reached = score(value, temperature, floor);
            // False for NaN and `−inf`, and past the batch, where the level is `+inf`.
            let raises = is_final && value > f32::NEG_INFINITY && reached > (*row).level;
            let column = (fragment * 8 + column) as u32;
            arch::atomic_max_shared(levels + column * ROW_BYTES, reached, raises);
        }
    }

    /// Tells the call what the tile's own tokens are sure to reach, and learns what those of
    /// other blocks are: the first tiles of all blocks end at about the same time.
    #[inline(always)]
    pub(super) unsafe fn share_levels(&self, tile: Tile, first_row: u32, draw: u32) {
        // SAFETY: the slots are the thread's own between the barriers.
        let tell = |workspace: &Workspace, row, level: *mut f32| unsafe {
            let at = row - first_row;
            if !self.kind(at).is_drawn() {
                self.tell_tile(tile, at, row, level.read());
            } else if level.read() > f32::NEG_INFINITY && self.params.margins.is_null() {
                let leaders = Leaders { first: Key::floor(level.read()), second: Key::NONE };
                finish::publish(self.params, workspace, row, draw, leaders);
            }
        };
        // SAFETY: the same.
        let learn = |row, level: *mut f32| unsafe {
            level.write(self.level_after(row - first_row, row, draw));
        };
        // SAFETY: the caller's promise.
        unsafe {
            if Self::WAITS && arch::grid_dim() >= MANY_BLOCKS {
                self.each_own_row(first_row, |row, level| tell(&self.workspace(), row, level));
                self.wait_for_others(first_row, draw);
                self.each_own_row(first_row, learn);
            } else {
                self.each_own_row(first_row, |row, level| {
                    tell(&self.workspace(), row, level);
                    learn(row, level);
                });
            }
        }
    }

    /// Waits a little until other blocks have told what they are sure to reach.
    #[inline(always)]
    unsafe fn wait_for_others(&self, first_row: u32, draw: u32) {
        let mut tries = TRIES;
        while tries != 0 {
            let mut alone = false;
            // SAFETY: the caller's promise.
            unsafe {
                self.each_own_row(first_row, |row, level| {
                    let reached = finish::threshold(self.params, &self.workspace(), row, draw);
                    alone |= reached <= level.read();
                });
            }
            let few = arch::warps_count(alone, self.barrier, THREADS) <= THREADS / FEW;
            tries = if few { 0 } else { tries - 1 };
        }
    }

    /// Hands the thread its share of the rows, with their levels.
    #[inline(always)]
    unsafe fn each_own_row(&self, first_row: u32, mut run: impl FnMut(u32, *mut f32)) {
        let mut at = self.thread;
        while at < Self::ROWS && first_row + at < self.params.batch {
            // SAFETY: there is a slot for each row.
            run(first_row + at, unsafe { &raw mut (*self.rows().add(at as usize)).level });
            at += THREADS;
        }
    }
}
