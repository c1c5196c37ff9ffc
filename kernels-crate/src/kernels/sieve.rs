//! Epilogue of the tensor-core kernels: from finished sums to the tile's candidates,
//! with no logarithm for tokens that cannot win.
//!
//! Both `mma.sync` and `wgmma` leave sums in the same fragments, so both kernels share
//! this. How it goes:
//!
//! 1. *Hints*, while the products run: random words depend on no logit. One call draws
//!    what bounds the noise of a group of sixteen tokens, and tells which of them has the
//!    greatest: four bytes a group and batch row.
//! 2. *Levels*, as the products end: the score that each row has reached in the call.
//!    Where a row has none yet the tile sets it: the token with the greatest noise of
//!    its group has at least the floor of that noise. Blocks share these levels before
//!    they scan, so that the first tiles, too, pass few pairs.
//! 3. *Scan*: a pair passes unless its greater value plus its group's bound stays below
//!    the level: a few instructions for two tokens. NaN and `+inf` always pass.
//! 4. *Drain*: passed pairs, gathered so that every lane has one, go through
//!    [`crate::score::offer_pair`] like everywhere else.
//!
//! The result is exact: each test compares bounds, and every step rounds monotonically.
//!
//! A tile begins with its values (`values.rs`); where log-sum-exps are wanted, with sums of them
//! (`weigh.rs`), and where rows have rules, with these (`rules.rs`).
//!
//! *Shared memory*: `abi::sieve::bytes` for each 128 threads: rows, queues, hints, sums, rules.
//!
//! *Measured*: `docs/findings/`.

mod hint;
mod levels;
mod listing;
mod rules;
mod scan;
mod store;
mod values;
mod weigh;

pub(super) use rules::Marks;

use super::finish::Workspace;
use super::sample_simt::row_params;
use super::schedule::Tile;
use crate::abi::sieve::{HINT_BYTES, PAIR_BYTES, PLACE_BYTES, QUEUE, ROW_BYTES, THREADS, WARPS};
use crate::abi::{SampleParams, sieve};
use crate::arch::{self, LANES};
use crate::gumbel::Hint;
use crate::philox::{GROUP, NoiseKey, PAIR, Subkey};
use crate::score::RowParams;

/// Sums as one thread holds them: `M_TILES` tiles of 16 rows, of each
/// `N_TILES` fragments of eight columns, of each rows `g` and `g + 8` (the pairs) and
/// columns `2·q` and `2·q + 1`, for lane `4·g + q`.
pub(super) type Sums<const M_TILES: usize, const N_TILES: usize> = [[[f32; 4]; N_TILES]; M_TILES];

/// A batch row in shared memory.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Row {
    temperature: f32,
    /// A score that the row's winner has at least; `+inf` past the batch.
    level: f32,
    subkey: Subkey,
}

/// Which lines of the vocabulary tile are whose.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    /// The sieve's first.
    pub(super) first: u32,
    /// From a warp's first to the next warp's.
    pub(super) per_warp: u32,
    /// From one of a warp's tiles of sums to the next.
    pub(super) per_tile: u32,
}

/// The sieve of four warps, as one of their threads sees it. `SUMS` is whether it can sum up
/// weights; its text is longer then.
#[derive(Clone, Copy)]
pub(super) struct Sieve<'a, const M_TILES: usize, const N_TILES: usize, const SUMS: bool> {
    params: &'a SampleParams,
    /// Index of the thread among the 128.
    thread: u32,
    lines: Lines,
    /// Column of the batch tile of the thread's first pair, and its row and hint.
    first_column: u32,
    row: *mut Row,
    hint: *mut Hint,
    /// Named barrier of the four warps.
    barrier: u32,
    /// `abi::sieve::bytes`: rows `[ROWS]`, the warps' queues and places `[WARPS, QUEUE]`,
    /// hints `[GROUPS, ROWS]`, partial sums `[2, WARPS, ROWS]` and what they are
    /// measured with `[WARPS, ROWS]`, rules `[ROWS]`.
    shared: *mut u8,
}

impl<'a, const M_TILES: usize, const N_TILES: usize, const SUMS: bool>
    Sieve<'a, M_TILES, N_TILES, SUMS>
{
    const ROWS: u32 = N_TILES as u32 * 8;
    const GROUPS: u32 = sieve::groups(M_TILES as u32);
    const QUEUES_AT: u32 = Self::ROWS * ROW_BYTES;
    const PLACES_AT: u32 = Self::QUEUES_AT + WARPS * QUEUE * PAIR_BYTES;
    const HINTS_AT: u32 = Self::PLACES_AT + WARPS * QUEUE * PLACE_BYTES;
    const SUMS_AT: u32 = Self::HINTS_AT + Self::GROUPS * Self::ROWS * HINT_BYTES;
    const RULES_AT: u32 = Self::SUMS_AT + sieve::sums_bytes(Self::ROWS);

    /// # Safety
    /// `shared` has room for `abi::sieve::bytes`, aligned to 16; `thread < THREADS`.
    #[inline(always)]
    pub(super) unsafe fn new(
        params: &'a SampleParams,
        shared: *mut u8,
        thread: u32,
        lines: Lines,
        barrier: u32,
    ) -> Self {
        Self {
            params,
            thread,
            lines,
            barrier,
            shared,
            first_column: 0,
            row: shared.cast(),
            hint: shared.cast(),
        }
        .afresh()
    }

    /// The same sieve. What follows from the thread is computed again from here on: kept
    /// across a tile's products, it would cost registers.
    #[inline(always)]
    fn afresh(&self) -> Self {
        let mut sieve = Self { thread: arch::opaque(self.thread), ..*self };
        // Opaque: known to have no bits in common with what is added, they would be joined
        // to it one by one, in a register each.
        sieve.first_column = arch::opaque(sieve.thread % 4 * 2);
        let group = sieve.line_of_warp(0) / GROUP;
        let hint = arch::opaque(group * Self::ROWS + sieve.first_column);
        sieve.row = sieve.rows().wrapping_add(sieve.first_column as usize);
        sieve.hint = sieve.hints().wrapping_add(hint as usize);
        sieve
    }

    /// The call's; computed at each use, for the same reason.
    #[inline(always)]
    fn workspace(&self) -> Workspace {
        // SAFETY: the parameters are the call's.
        unsafe { Workspace::new(self.params, arch::opaque(self.params.batch)) }
    }

    #[inline(always)]
    fn rows(&self) -> *mut Row {
        self.shared.cast()
    }

    /// Values of the pairs that passed, the warp's `[QUEUE]`.
    #[inline(always)]
    fn queue(&self) -> *mut [f32; PAIR] {
        let warp = self.thread / LANES;
        self.shared.wrapping_add((Self::QUEUES_AT + warp * QUEUE * PAIR_BYTES) as usize).cast()
    }

    /// line << 16 | column of each, the warp's `[QUEUE]`.
    #[inline(always)]
    fn places(&self) -> *mut u32 {
        let warp = self.thread / LANES;
        self.shared.wrapping_add((Self::PLACES_AT + warp * QUEUE * PLACE_BYTES) as usize).cast()
    }

    #[inline(always)]
    fn hints(&self) -> *mut Hint {
        self.shared.wrapping_add(Self::HINTS_AT as usize).cast()
    }

    #[inline(always)]
    fn lane(&self) -> u32 {
        self.thread % LANES
    }

    /// Line of the vocabulary tile of the lower token of the thread's pairs.
    #[inline(always)]
    fn line(&self, m: usize) -> u32 {
        self.lines.first + self.line_of_warp(m) + self.lane() / 4
    }

    /// The first line of one of the warp's tiles of sums, from the sieve's first.
    #[inline(always)]
    fn line_of_warp(&self, m: usize) -> u32 {
        self.thread / LANES * self.lines.per_warp + m as u32 * self.lines.per_tile
    }

    /// Column of the batch tile that the thread holds as `column` of `fragment`.
    #[inline(always)]
    fn column(&self, fragment: usize, column: usize) -> u32 {
        self.first_column + fragment as u32 * 8 + column as u32
    }

    #[inline(always)]
    fn row_slot(&self, fragment: usize, column: usize) -> *mut Row {
        self.row.wrapping_add(fragment * 8 + column)
    }

    /// The hints of the thread's two columns of a fragment, for its tokens of `m`.
    #[inline(always)]
    fn hint_slot(&self, fragment: usize, m: usize) -> *mut [Hint; 2] {
        let groups = m * (self.lines.per_tile / GROUP) as usize;
        self.hint.wrapping_add(groups * Self::ROWS as usize + fragment * 8).cast()
    }

    /// Reads the parameters of a batch tile's rows, derives their subkeys, and makes both
    /// known to the four warps.
    ///
    /// # Safety
    /// All threads of the four warps; `first_row` is that of a batch tile of the call.
    #[inline(always)]
    pub(super) unsafe fn begin_rows(&self, first_row: u32, draw: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.write_rows(first_row, draw, self.thread, THREADS) };
        arch::warps_barrier(self.barrier, THREADS);
    }

    /// The part of worker `worker` of `workers` in [`Self::begin_rows`], up to the barrier.
    ///
    /// # Safety
    /// `first_row` is that of a batch tile of the call; nobody reads the rows meanwhile.
    #[inline(always)]
    pub(super) unsafe fn write_rows(&self, first_row: u32, draw: u32, worker: u32, workers: u32) {
        let mut at = worker;
        while at < Self::ROWS {
            let row = first_row + at;
            let mut params = RowParams { temperature: 0.0, key: NoiseKey::default() };
            // SAFETY: `row < B`; the slot is the thread's own until the barrier.
            unsafe {
                if row < self.params.batch {
                    params = row_params(self.params, row);
                    // Its scores are its values.
                    if self.is_listed(row) {
                        params.temperature = 0.0;
                    }
                }
                let subkey = Subkey::new(params.key, draw);
                let slot = self.rows().add(at as usize);
                slot.write(Row { temperature: params.temperature, level: f32::INFINITY, subkey });
            }
            at += workers;
        }
    }

    /// Turns finished sums into candidates, for every draw. The rules, and the hints and levels
    /// of draw 0 are there; `unset` is what [`Self::raise_levels`] told.
    ///
    /// # Safety
    /// All threads of the four warps; `tile` is one of the call's.
    #[inline(always)]
    pub(super) unsafe fn offer_tile(
        &self,
        sums: &mut Sums<M_TILES, N_TILES>,
        tile: Tile,
        first_row: u32,
        unset: bool,
    ) {
        let (mut draw, mut unset) = (0, unset);
        // SAFETY: the caller's promise.
        unsafe {
            let mut marks = Marks::NONE;
            loop {
                let unset_anywhere = arch::warps_any(unset, self.barrier, THREADS);
                if draw == 0 {
                    marks = self.begin_tile(sums, tile, first_row);
                }
                self.offer_draw(sums, marks, tile, first_row, draw, unset_anywhere);
                if self.params.draws == 1 {
                    break;
                }
                arch::warps_barrier(self.barrier, THREADS);
                draw += 1;
                // After the last draw, the first's subkeys come back for the next tile.
                let next = if draw == self.params.draws { 0 } else { draw };
                self.begin_rows(first_row, next);
                if draw == self.params.draws {
                    break;
                }
                self.write_hints(tile, (0, Self::PORTIONS), self.thread, THREADS);
                unset = self.raise_levels(first_row, draw);
            }
            arch::warps_barrier(self.barrier, THREADS);
        }
    }

    /// Turns finished sums into values, applies rules, and leaves those in memory that are kept.
    ///
    /// # Safety
    /// As [`Self::offer_tile`]; the levels are there.
    #[inline(always)]
    pub(super) unsafe fn begin_tile(
        &self,
        sums: &mut Sums<M_TILES, N_TILES>,
        tile: Tile,
        first_row: u32,
    ) -> Marks {
        // SAFETY: the caller's promise.
        unsafe {
            self.add_bias(sums, tile);
            self.transform(sums);
            self.take_out(sums, tile);
            self.weigh(sums, first_row);
            let marks = self.apply_rules(sums, first_row);
            self.store(sums, tile, first_row);
            marks
        }
    }

    /// Turns values into candidates, for one draw, whose hints and levels are there;
    /// `unset` where one of the rows has no level, the same in all threads.
    ///
    /// # Safety
    /// As [`Self::offer_tile`].
    #[inline(always)]
    pub(super) unsafe fn offer_draw(
        &self,
        values: &mut Sums<M_TILES, N_TILES>,
        marks: Marks,
        tile: Tile,
        first_row: u32,
        draw: u32,
        unset: bool,
    ) {
        let sieve = self.afresh();
        // SAFETY: the caller's promise.
        unsafe {
            // A margin's level is that of the second, which this does not bound.
            if unset && (self.params.margins.is_null() || self.lists()) {
                sieve.set_levels(values, marks);
                arch::warps_barrier(self.barrier, THREADS);
                sieve.share_levels(tile, first_row, draw);
                arch::warps_barrier(self.barrier, THREADS);
            }
            sieve.scan(values, marks, tile, first_row, draw);
        }
    }
}

/// The values of one of the thread's pairs.
#[inline(always)]
fn pair(sums: &[f32; 4], column: usize) -> [f32; PAIR] {
    [sums[column], sums[column + 2]]
}
