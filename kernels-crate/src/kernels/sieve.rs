//! Epilogue of the tensor-core kernels: from finished sums to the tile's candidates,
//! with no logarithm and next to no random word for tokens that cannot win.
//!
//! Both `mma.sync` and `wgmma` leave sums in the same fragments, so both kernels share
//! this. How it goes:
//!
//! 1. *Hints*, while the products run: random words depend on no logit. A thread draws
//!    the words of each of its groups of four tokens and keeps 16 bits: a bound of the
//!    group's greatest noise, and which member has it.
//! 2. *Levels*, as the products end: the score that each row has reached in the call.
//!    Where a row has none yet the tile sets it: the member with the greatest noise of
//!    its group has at least the floor of that noise.
//! 3. *Scan*: a group passes unless its greatest value plus the bound stays below the
//!    level: ten instructions for four tokens. NaN and `+inf` always pass.
//! 4. *Drain*: passed groups, gathered so that every lane has one, go through
//!    [`crate::score::offer_group`] like everywhere else.
//!
//! The result is exact: each test compares bounds, and every step rounds monotonically.
//!
//! *Shared memory*: `abi::sieve::bytes` for each 128 threads: hints, queues, levels.
//!
//! *Measured*: `docs/findings/`.

use super::finish::{self, Workspace};
use super::sample_simt::row_params;
use super::schedule::Tile;
use crate::abi::sieve::{PASSED_BYTES, PLACE_BYTES, QUEUE, THREADS, WARPS, hints_bytes};
use crate::abi::{SampleParams, TILE_V};
use crate::arch;
use crate::candidate::Leaders;
use crate::gumbel::{hint_bound, hint_floor, noise_hint};
use crate::philox::{GROUP, GROUP_OFFSETS, group_words};
use crate::score::{at_noise, offer_group, token_value};
use crate::status::Status;

/// Sums of four warps over a 128-row tile, as one thread holds them: two halves of 64
/// rows, of each `N_TILES` fragments of eight columns, of each rows `g` and `g + 8` (the
/// pairs) and columns `2·q` and `2·q + 1`, for lane `4·g + q`.
pub(super) type Sums<const N_TILES: usize> = [[[f32; 4]; N_TILES]; 2];

/// A tile's columns that four warps hold.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The tile.
    pub(super) tile: Tile,
    /// Batch row of the first column.
    pub(super) first_row: u32,
}

/// What a row has reached.
#[derive(Clone, Copy)]
#[repr(C)]
struct Level {
    temperature: f32,
    /// A score that the row's winner has at least; `+inf` past the batch.
    score: f32,
}

/// The values of a group that passed the scan.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Passed([f32; GROUP]);

/// The sieve of four warps, as one of their threads sees it.
#[derive(Clone, Copy)]
pub(super) struct Sieve<'a, const N_TILES: usize> {
    params: &'a SampleParams,
    workspace: Workspace,
    thread: u32,
    /// Named barrier of the four warps.
    barrier: u32,
    /// `[N_TILES, THREADS, 2]`, from the thread's first.
    hints: *mut u16,
    /// `[N_TILES · 8]`.
    levels: *mut Level,
    /// `[QUEUE]`: the warp's.
    queue: *mut Passed,
    /// `[QUEUE]`: lane << 16 | column of each.
    places: *mut u32,
}

impl<'a, const N_TILES: usize> Sieve<'a, N_TILES> {
    const ROWS: u32 = N_TILES as u32 * 8;

    /// Columns of a thread.
    pub(super) const COLUMNS: u32 = N_TILES as u32 * 2;

    /// # Safety
    /// `shared` has room for `abi::sieve::bytes`; `thread < THREADS`.
    #[inline(always)]
    pub(super) unsafe fn new(
        params: &'a SampleParams,
        workspace: Workspace,
        shared: *mut u8,
        thread: u32,
        barrier: u32,
    ) -> Self {
        let first = (thread / 32 * QUEUE) as usize;
        // SAFETY: the parts follow each other as `bytes` counts them.
        unsafe {
            let queues = shared.add(hints_bytes(Self::ROWS) as usize);
            let places = queues.add((WARPS * QUEUE * PASSED_BYTES) as usize);
            let levels = places.add((WARPS * QUEUE * PLACE_BYTES) as usize);
            Self {
                params,
                workspace,
                thread,
                barrier,
                hints: shared.cast::<u16>().add(thread as usize * 2),
                levels: levels.cast(),
                queue: queues.cast::<Passed>().add(first),
                places: places.cast::<u32>().add(first),
            }
        }
    }

    #[inline(always)]
    fn lane(&self) -> u32 {
        self.thread % 32
    }

    /// Line of the tile of the lowest token of a lane of the warp.
    #[inline(always)]
    fn line(&self, lane: u32) -> u32 {
        16 * (self.thread / 32) + lane / 4
    }

    /// Column of the part that the thread holds as `column` of `fragment`.
    #[inline(always)]
    fn column(&self, fragment: usize, column: usize) -> u32 {
        fragment as u32 * 8 + self.lane() % 4 * 2 + column as u32
    }

    /// Draws the words of the thread's columns `from .. to` and keeps their hints.
    ///
    /// # Safety
    /// `part` is one of the call's.
    #[inline(always)]
    pub(super) unsafe fn hint(&self, part: Part, draw: u32, from: u32, to: u32) {
        let base = part.tile.token.wrapping_add(self.line(self.lane()));
        let mut index = from;
        while index < to {
            let (fragment, column) = (index as usize / 2, index as usize % 2);
            let row = part.first_row + self.column(fragment, column);
            if row < self.params.batch {
                // SAFETY: `row < B`; the slot is the thread's own.
                unsafe {
                    let key = row_params(self.params, row).key;
                    self.hint_slot(fragment, column)
                        .write(noise_hint(group_words(key, draw, base)));
                }
            }
            index += 1;
        }
    }

    /// Reads the scores that the call's rows have reached. Tells whether the thread's
    /// row has reached none.
    ///
    /// # Safety
    /// As [`Self::hint`]; no thread is in [`Self::offer_tile`].
    #[inline(always)]
    pub(super) unsafe fn raise_levels(&self, part: Part, draw: u32) -> bool {
        if self.thread >= Self::ROWS {
            return false;
        }
        let row = part.first_row + self.thread;
        let mut level = Level { temperature: 0.0, score: f32::INFINITY };
        // SAFETY: `row < B`; the slot is the thread's own.
        unsafe {
            if row < self.params.batch {
                level.temperature = row_params(self.params, row).temperature;
                level.score = finish::threshold(self.params, &self.workspace, row, draw);
            }
            self.levels.add(self.thread as usize).write(level);
        }
        level.score == f32::NEG_INFINITY
    }

    /// Turns finished sums into candidates, for every draw. The hints and levels of
    /// draw 0 are there; `unset` is what [`Self::raise_levels`] told.
    ///
    /// # Safety
    /// All threads of the four warps; `part` is one of the call's.
    #[inline(always)]
    pub(super) unsafe fn offer_tile(&self, sums: &mut Sums<N_TILES>, part: Part, unset: bool) {
        let (mut draw, mut unset) = (0, unset);
        // SAFETY: the caller's promise.
        unsafe {
            self.to_values(sums, part.tile);
            loop {
                let unset_anywhere = arch::warps_any(unset, self.barrier, THREADS);
                // A margin's level is that of the second, which this does not bound.
                if unset_anywhere && self.params.margins.is_null() {
                    self.set_levels(sums);
                    arch::warps_barrier(self.barrier, THREADS);
                }
                self.scan(sums, part, draw);
                arch::warps_barrier(self.barrier, THREADS);
                draw += 1;
                if draw == self.params.draws {
                    break;
                }
                self.hint(part, draw, 0, Self::COLUMNS);
                unset = self.raise_levels(part, draw);
            }
        }
    }

    /// Adds the bias to the sums and takes tokens outside the vocabulary out.
    #[inline(always)]
    unsafe fn to_values(&self, sums: &mut Sums<N_TILES>, tile: Tile) {
        let vocab = self.params.vocab as i64;
        let whole = tile.vocab_row >= 0 && tile.vocab_row + TILE_V as i64 <= vocab;
        if whole && self.params.bias.is_null() {
            return;
        }
        let mut member = 0;
        while member < GROUP {
            let row = tile.vocab_row + (self.line(self.lane()) + GROUP_OFFSETS[member]) as i64;
            let present = row >= 0 && row < vocab;
            let mut bias = 0.0;
            if present && !self.params.bias.is_null() {
                // SAFETY: `row` is one of `[V]`.
                bias = unsafe { self.params.bias.add(row as usize).read() };
            }
            let mut fragment = 0;
            while fragment < N_TILES {
                let mut column = 0;
                while column < 2 {
                    let sum = &mut sums[member / 2][fragment][member % 2 * 2 + column];
                    *sum = if present { *sum + bias } else { f32::NEG_INFINITY };
                    column += 1;
                }
                fragment += 1;
            }
            member += 1;
        }
    }

    /// Raises the rows' levels to what the tile's own tokens are sure to reach.
    #[inline(always)]
    unsafe fn set_levels(&self, sums: &Sums<N_TILES>) {
        let mut fragment = 0;
        while fragment < N_TILES {
            let mut column = 0;
            while column < 2 {
                let values = group(sums, fragment, column);
                // SAFETY: levels only rise until the barrier that follows.
                unsafe {
                    let (member, floor) = hint_floor(self.hint_slot(fragment, column).read());
                    let low = if member & 1 == 0 { values[0] } else { values[1] };
                    let high = if member & 1 == 0 { values[2] } else { values[3] };
                    let value = if member & 2 == 0 { low } else { high };
                    let level = self.level_slot(fragment, column);
                    // `+ 0.0` turns −0 into +0.
                    let reached = at_noise(value, (*level).temperature, floor) + 0.0;
                    // False for NaN.
                    if reached > (*level).score {
                        arch::atomic_max_shared(&raw mut (*level).score, reached);
                    }
                }
                column += 1;
            }
            fragment += 1;
        }
    }

    /// Gathers the groups that may hold a winner and offers them.
    #[inline(always)]
    unsafe fn scan(&self, sums: &Sums<N_TILES>, part: Part, draw: u32) {
        let mut resume = 0;
        loop {
            let mut queued = 0;
            let mut fragment = 0;
            while fragment < N_TILES {
                // Both columns of all lanes must fit.
                if fragment >= resume && queued + 2 * 32 <= QUEUE {
                    // SAFETY: the queue is the warp's own and has room.
                    unsafe {
                        let first = self.passes(sums, fragment, 0);
                        let second = self.passes(sums, fragment, 1);
                        if arch::warp_any(first | second) {
                            queued = self.append(queued, first, sums, fragment, 0);
                            queued = self.append(queued, second, sums, fragment, 1);
                        }
                    }
                    resume = fragment + 1;
                }
                fragment += 1;
            }
            if queued != 0 {
                arch::warp_barrier();
                // SAFETY: `queued` groups are there.
                unsafe { self.drain(queued, part, draw) };
                arch::warp_barrier();
            }
            if resume == N_TILES {
                break;
            }
        }
    }

    /// Whether a group may hold the row's winner.
    #[inline(always)]
    unsafe fn passes(&self, sums: &Sums<N_TILES>, fragment: usize, column: usize) -> bool {
        let [a, b, c, d] = group(sums, fragment, column);
        let highest = arch::max_or_nan(arch::max_or_nan(a, b), arch::max_or_nan(c, d));
        // SAFETY: written before the last barrier.
        let (hint, level) = unsafe {
            (self.hint_slot(fragment, column).read(), self.level_slot(fragment, column).read())
        };
        // Not `>=`, which is false for NaN.
        !(at_noise(highest, level.temperature, hint_bound(hint)) < level.score)
    }

    /// Puts the lanes' passed groups behind the `queued` ones; returns how many there are.
    #[inline(always)]
    unsafe fn append(
        &self,
        queued: u32,
        passed: bool,
        sums: &Sums<N_TILES>,
        fragment: usize,
        column: usize,
    ) -> u32 {
        let lanes = arch::warp_ballot(passed);
        if passed {
            let before = lanes & ((1 << self.lane()) - 1);
            let at = (queued + before.count_ones()) as usize;
            // SAFETY: the scan made room.
            unsafe {
                self.queue.add(at).write(Passed(group(sums, fragment, column)));
                self.places.add(at).write(self.lane() << 16 | self.column(fragment, column));
            }
        }
        queued + lanes.count_ones()
    }

    /// Offers the warp's queued groups, one a lane.
    #[inline(always)]
    unsafe fn drain(&self, queued: u32, part: Part, draw: u32) {
        let mut at = self.lane();
        while at < queued {
            // SAFETY: `at < queued`, and places hold lanes and columns.
            unsafe {
                let Passed(values) = self.queue.add(at as usize).read();
                let place = self.places.add(at as usize).read();
                let (lane, column) = (place >> 16, place & 0xFFFF);
                let row = part.first_row + column;
                if row < self.params.batch {
                    let base = part.tile.token.wrapping_add(self.line(lane));
                    let level = (*self.levels.add(column as usize)).score;
                    self.offer(values, base, row, draw, level);
                }
            }
            at += 32;
        }
    }

    #[inline(always)]
    unsafe fn offer(&self, values: [f32; GROUP], base: u32, row: u32, draw: u32, level: f32) {
        let mut values = values;
        let mut status = Status::OK;
        let mut member = 0;
        while member < GROUP {
            // The bias is already in.
            values[member] = token_value(values[member], 0.0, &mut status);
            member += 1;
        }
        let mut leaders = Leaders::NONE;
        // SAFETY: `row < B`, `draw < S`.
        unsafe {
            finish::publish_status(&self.workspace, row, status);
            let row_params = row_params(self.params, row);
            offer_group(values, base, row_params, draw, level, &mut leaders);
            finish::publish(self.params, &self.workspace, row, draw, leaders);
        }
    }

    #[inline(always)]
    fn hint_slot(&self, fragment: usize, column: usize) -> *mut u16 {
        self.hints.wrapping_add(fragment * THREADS as usize * 2 + column)
    }

    #[inline(always)]
    fn level_slot(&self, fragment: usize, column: usize) -> *mut Level {
        self.levels.wrapping_add(self.column(fragment, column) as usize)
    }
}

/// The values of the thread's four tokens in one of its columns, in word order.
#[inline(always)]
fn group<const N_TILES: usize>(
    sums: &Sums<N_TILES>,
    fragment: usize,
    column: usize,
) -> [f32; GROUP] {
    [
        sums[0][fragment][column],
        sums[0][fragment][column + 2],
        sums[1][fragment][column],
        sums[1][fragment][column + 2],
    ]
}
