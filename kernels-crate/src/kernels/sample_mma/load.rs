//! Loads: from the operands in global memory to the stages of the ring.
//!
//! A row of a slab is eight chunks of 16 bytes. Thread `t` brings chunk `t % 8` of
//! lines `t / 8`, `t / 8 + 16`, … Rows outside the operand and elements from D on
//! arrive as zeros.

use crate::abi::{SampleParams, TILE_V, mma};
use crate::arch;
use crate::kernels::admit::{self, Ids};
use crate::kernels::schedule::{Schedule, Tile};

const CHUNK_BYTES: u32 = 16;
const ELEMENT_BYTES: u32 = 2;
const CHUNK_ELEMENTS: u32 = CHUNK_BYTES / ELEMENT_BYTES;
const CHUNKS: u32 = mma::ROW_BYTES / CHUNK_BYTES;

/// Lines that the threads of a block bring at once.
const LINES: u32 = mma::THREADS / CHUNKS;

/// One matrix as one thread sees it.
#[derive(Clone, Copy)]
struct Source {
    /// The operand's base: a valid address for copies of nothing.
    base: *const u8,
    /// The thread's chunk of its first line of the tile, slab 0.
    first: *const u8,
    /// Bytes from one of the thread's lines to the next.
    step_bytes: u64,
    /// Bit `i`: the thread's line `i` is a row of the operand.
    present: u32,
}

impl Source {
    /// `row` is the operand's row at the thread's first line; it may be negative.
    #[inline(always)]
    fn new(base: *const u8, stride: u64, rows: u32, row: i64, passes: u32, chunk: u32) -> Self {
        let row_bytes = stride * ELEMENT_BYTES as u64;
        let mut present = 0;
        let mut pass = 0;
        while pass < passes {
            let line_row = row + (pass * LINES) as i64;
            present |= ((line_row >= 0 && line_row < rows as i64) as u32) << pass;
            pass += 1;
        }
        let from_base = (row as u64).wrapping_mul(row_bytes) + (chunk * CHUNK_BYTES) as u64;
        Self {
            base,
            first: base.wrapping_add(from_base as usize),
            step_bytes: row_bytes * LINES as u64,
            present,
        }
    }

    /// Starts the copy of the thread's line `pass` at byte `column` of the row, of
    /// which `bytes` exist.
    #[inline(always)]
    unsafe fn copy(&self, pass: u32, column: u64, bytes: u32, target: u32) {
        let bytes = if self.present >> pass & 1 != 0 { bytes } else { 0 };
        let offset = pass as u64 * self.step_bytes + column;
        let source = if bytes != 0 { self.first.wrapping_add(offset as usize) } else { self.base };
        // SAFETY: `present` and `bytes` keep the copy inside the operand.
        unsafe { arch::copy_async_16(target, source, bytes) }
    }
}

/// Where the next slab comes from and goes to.
pub(super) struct Loader<'a, const N_TILES: usize> {
    weights: *const u8,
    hidden_states: *const u8,
    params: &'a SampleParams,
    schedule: Schedule,
    ring: u32,
    blocks: u64,
    item: u64,
    /// First element of the next slab.
    d: u32,
    stage: u32,
    weights_source: Source,
    hidden_source: Source,
}

impl<'a, const N_TILES: usize> Loader<'a, N_TILES> {
    const TILE_B: u32 = N_TILES as u32 * 8;
    const WEIGHTS_PASSES: u32 = TILE_V / LINES;
    const HIDDEN_PASSES: u32 = Self::TILE_B.div_ceil(LINES);

    #[inline(always)]
    pub(super) fn new(
        weights: *const u8,
        hidden_states: *const u8,
        params: &'a SampleParams,
        schedule: Schedule,
        ring: u32,
        block: u64,
        blocks: u64,
    ) -> Self {
        let nothing = Source { base: weights, first: weights, step_bytes: 0, present: 0 };
        let mut loader = Self {
            weights,
            hidden_states,
            params,
            schedule,
            ring,
            blocks,
            item: block,
            d: 0,
            stage: 0,
            weights_source: nothing,
            hidden_source: nothing,
        };
        loader.enter_tile();
        loader
    }

    #[inline(always)]
    fn chunk() -> u32 {
        arch::thread_idx() % CHUNKS
    }

    #[inline(always)]
    fn line() -> u32 {
        arch::thread_idx() / CHUNKS
    }

    #[inline(always)]
    fn enter_tile(&mut self) {
        if self.item >= self.schedule.items() {
            return;
        }
        let Tile { vocab_row, token, tile_b } = self.schedule.tile(self.item);
        let (params, chunk, line) = (self.params, Self::chunk(), Self::line() as i64);
        let ids = Ids { begin: token, end: token.saturating_add(TILE_V) };
        let first_row = tile_b * Self::TILE_B;
        let rows = (first_row, core::cmp::min(first_row + Self::TILE_B, params.batch));
        // Nobody asks for what comes of them: zeros do.
        // SAFETY: whole warps; the rows are the call's.
        if unsafe { admit::banned(params, ids, rows, arch::thread_idx() % 32) } {
            self.weights_source.present = 0;
            self.hidden_source.present = 0;
            return;
        }
        self.weights_source = Source::new(
            self.weights,
            params.weights_stride,
            params.vocab,
            vocab_row + line,
            Self::WEIGHTS_PASSES,
            chunk,
        );
        self.hidden_source = Source::new(
            self.hidden_states,
            params.hidden_stride,
            params.batch,
            tile_b as i64 * Self::TILE_B as i64 + line,
            Self::HIDDEN_PASSES,
            chunk,
        );
    }

    /// Starts the copies of the next slab, if there is one, and closes their group.
    #[inline(always)]
    pub(super) unsafe fn load_next(&mut self) {
        if self.item < self.schedule.items() {
            // SAFETY: the slab is one of the block's tiles.
            unsafe { self.copy_slab() };
            self.stage =
                if self.stage + 1 == mma::stages(Self::TILE_B) { 0 } else { self.stage + 1 };
            self.d = self.d.saturating_add(mma::TILE_D);
            if self.d >= self.params.hidden {
                self.d = 0;
                self.item += self.blocks;
                self.enter_tile();
            }
        }
        arch::copy_async_commit();
    }

    #[inline(always)]
    unsafe fn copy_slab(&self) {
        let (chunk, line) = (Self::chunk(), Self::line());
        let begin = self.d as u64 + (chunk * CHUNK_ELEMENTS) as u64;
        let left = (self.params.hidden as u64).saturating_sub(begin);
        let bytes = left.min(CHUNK_ELEMENTS as u64) as u32 * ELEMENT_BYTES;
        let column = self.d as u64 * ELEMENT_BYTES as u64;
        let weights_at = self.ring + self.stage * mma::stage_bytes(Self::TILE_B);
        let hidden_at = weights_at + TILE_V * mma::ROW_BYTES;
        // `LINES` is a multiple of 8: the swizzle is the same in every pass.
        let in_slab = line * mma::ROW_BYTES + (chunk ^ (line & 7)) * CHUNK_BYTES;
        let pass_bytes = LINES * mma::ROW_BYTES;
        // SAFETY: `Source` masks rows, `bytes` masks columns; targets are in the stage.
        unsafe {
            let mut pass = 0;
            while pass < Self::WEIGHTS_PASSES {
                let target = weights_at + in_slab + pass * pass_bytes;
                self.weights_source.copy(pass, column, bytes, target);
                pass += 1;
            }
            let mut pass = 0;
            while pass < Self::HIDDEN_PASSES {
                if Self::TILE_B >= LINES || line < Self::TILE_B {
                    let target = hidden_at + in_slab + pass * pass_bytes;
                    self.hidden_source.copy(pass, column, bytes, target);
                }
                pass += 1;
            }
        }
    }
}
