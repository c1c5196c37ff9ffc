//! Producer: keeps the ring full, across tiles.

use super::Call;
use super::ring::Cursor;
use crate::abi::sm90;
use crate::arch;

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
    let mut cursor = Cursor::START;
    let share_rows = tile_b / CLUSTER;
    let share_bytes = share_rows * sm90::ROW_BYTES;
    let mut item = call.first_item;
    while item < call.schedule.items() {
        let tile = call.schedule.tile(item);
        let hidden_row = (tile.tile_b * tile_b + call.rank * share_rows) as i32;
        let first_slab = call.first_slab(&tile);
        let mut slab = 0;
        while slab < call.slabs {
            // Adjacent slabs requested together arrive faster: they lie in the same
            // pages of memory.
            let pair = core::cmp::min(sm90::slabs_per_request(tile_b), call.slabs - slab);
            let first = cursor;
            let mut i = 0;
            while i < pair {
                // SAFETY: initialised barriers; the first round passes at once.
                unsafe {
                    arch::barrier_wait(call.ring.empty(cursor.stage), cursor.phase_bit ^ 1);
                }
                cursor.advance(tile_b);
                i += 1;
            }
            cursor = first;
            let mut i = 0;
            while i < pair {
                let rotated = first_slab + slab + i;
                let wraps = if rotated < call.slabs { 0 } else { call.slabs };
                let d = (rotated - wraps) * sm90::TILE_D;
                let full = call.ring.full(cursor.stage);
                let weights = call.ring.weights(cursor.stage);
                let hidden_states = call.ring.hidden_states(cursor.stage);
                // SAFETY: the stage is empty in every block of the cluster.
                unsafe {
                    arch::barrier_arrive_expect(full, sm90::stage_bytes(tile_b));
                    arch::copy_box(weights, weights_map, d, tile.vocab_row as i32, full);
                    if CLUSTER == 1 {
                        arch::copy_box(hidden_states, hidden_map, d, hidden_row, full);
                    } else {
                        let share = hidden_states + call.rank * share_bytes;
                        let blocks = (1 << CLUSTER) - 1;
                        arch::copy_box_to(share, hidden_map, d, hidden_row, full, blocks);
                    }
                }
                cursor.advance(tile_b);
                i += 1;
            }
            slab += pair;
        }
        item += call.step;
    }
}
