//! Producer: keeps the ring full, across tiles.

use super::Call;
use super::ring::Cursor;
use crate::abi::sm90;
use crate::arch;
use crate::kernels::schedule::Tile;

/// Runs the producer warp.
///
/// # Safety
/// All lanes of one warp; the maps describe the call's matrices.
#[inline(always)]
pub(super) unsafe fn run<const CLUSTER: u32>(
    call: &Call<'_>,
    weights_map: u64,
    hidden_map: u64,
    tile_b: u32,
) {
    let copies = Copies::<CLUSTER> { call, weights_map, hidden_map, tile_b };
    let mut cursor = Cursor::START;
    let mut item = call.first_item;
    // SAFETY: initialised barriers; the ring is unused before its first round, and after
    // that a stage is empty in every block of the cluster when its copies begin.
    unsafe {
        // Every block has a tile: the grid is no larger than the tiles.
        let mut slab = copies.fill_ring(&call.schedule.tile(item));
        cursor.skip(slab, tile_b);
        while item < call.schedule.items() {
            let tile = call.schedule.tile(item);
            // Nobody asks for what comes of them: the ring goes round with what it holds.
            let banned = call.are_banned(&tile, tile_b);
            while slab < call.slabs {
                // Adjacent slabs requested together arrive faster: they lie in the same
                // pages of memory.
                let pair = core::cmp::min(sm90::slabs_per_request(tile_b), call.slabs - slab);
                let first = cursor;
                let mut i = 0;
                while i < pair {
                    let empty = call.ring.empty(cursor.stage);
                    arch::barrier_wait(empty, cursor.phase_bit ^ 1);
                    cursor.advance(tile_b);
                    i += 1;
                }
                cursor = first;
                let mut i = 0;
                while i < pair {
                    if banned {
                        arch::barrier_arrive(call.ring.full(cursor.stage));
                    } else {
                        copies.copy_weights(&tile, slab + i, cursor.stage);
                        copies.copy_hidden_states(&tile, slab + i, cursor.stage);
                    }
                    cursor.advance(tile_b);
                    i += 1;
                }
                slab += pair;
            }
            slab = 0;
            item += call.step;
        }
    }
}

/// Starts copies into the ring.
struct Copies<'a, const CLUSTER: u32> {
    call: &'a Call<'a>,
    weights_map: u64,
    hidden_map: u64,
    tile_b: u32,
}

impl<const CLUSTER: u32> Copies<'_, CLUSTER> {
    /// The first round of the ring, as far as the block's first tile goes; returns its
    /// slabs. No kernel before writes weights, so their copies begin before it has ended.
    ///
    /// # Safety
    /// No stage has been used.
    #[inline(always)]
    unsafe fn fill_ring(&self, tile: &Tile) -> u32 {
        let slabs = core::cmp::min(sm90::stages(self.tile_b), self.call.slabs);
        // SAFETY: the caller's promise.
        unsafe {
            let mut slab = 0;
            while slab < slabs {
                self.copy_weights(tile, slab, slab);
                slab += 1;
            }
            arch::dependencies_wait();
            let mut slab = 0;
            while slab < slabs {
                self.copy_hidden_states(tile, slab, slab);
                slab += 1;
            }
        }
        slabs
    }

    /// A slab's weights, and the announcement of all bytes of the stage.
    ///
    /// # Safety
    /// The stage is empty.
    #[inline(always)]
    unsafe fn copy_weights(&self, tile: &Tile, slab: u32, stage: u32) {
        let full = self.call.ring.full(stage);
        let target = self.call.ring.weights(stage);
        // SAFETY: the caller's promise.
        unsafe {
            arch::barrier_arrive_expect(full, sm90::stage_bytes(self.tile_b));
            let row = tile.vocab_row as i32;
            arch::copy_box_once(target, self.weights_map, self.column(tile, slab), row, full);
        }
    }

    /// The block's share of a slab's hidden states, to all blocks of the cluster.
    ///
    /// # Safety
    /// The stage is empty in every block of the cluster.
    #[inline(always)]
    unsafe fn copy_hidden_states(&self, tile: &Tile, slab: u32, stage: u32) {
        let full = self.call.ring.full(stage);
        let rows = self.tile_b / CLUSTER;
        let first = self.call.rank * rows;
        let target = self.call.ring.hidden_states(stage) + first * sm90::ROW_BYTES;
        let row = (tile.tile_b * self.tile_b + first) as i32;
        let column = self.column(tile, slab);
        // SAFETY: the caller's promise.
        unsafe {
            if CLUSTER == 1 {
                arch::copy_box(target, self.hidden_map, column, row, full);
            } else {
                let blocks = (1 << CLUSTER) - 1;
                arch::copy_box_to(target, self.hidden_map, column, row, full, blocks);
            }
        }
    }

    /// A slab's first column, counted from the slab that the tile's sums begin with.
    #[inline(always)]
    fn column(&self, tile: &Tile, slab: u32) -> u32 {
        let rotated = self.call.first_slab(tile) + slab;
        let wraps = if rotated < self.call.slabs { 0 } else { self.call.slabs };
        (rotated - wraps) * sm90::TILE_D
    }
}
