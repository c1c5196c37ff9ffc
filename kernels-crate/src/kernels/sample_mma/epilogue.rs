//! Epilogue: from finished sums to the tile's candidates.

use super::Tile;
use super::multiply::Sums;
use crate::abi::SampleParams;
use crate::arch;
use crate::candidate::{Key, Leaders};
use crate::kernels::finish::{self, Workspace};
use crate::kernels::rotate;
use crate::kernels::sample_simt::row_params;
use crate::philox::{GROUP, GROUP_OFFSETS};
use crate::score::{offer_group, token_value};
use crate::status::Status;

/// The thread's part of a tile.
#[derive(Clone, Copy)]
struct Part {
    /// Lowest of the thread's four tokens.
    token: u32,
    /// Batch row of its first column.
    row: u32,
    /// Whether it speaks for the eight lanes that hold its columns.
    speaker: bool,
}

/// Columns the thread holds of the batch tile: two of each fragment of eight.
#[inline(always)]
const fn column_row(fragment: usize, column: usize) -> u32 {
    (fragment * 8 + column) as u32
}

/// Exchanges the two columns of a fragment; see [`rotate`].
#[inline(always)]
fn swap_columns(fragment: &mut [f32; 4]) {
    fragment.swap(0, 1);
    fragment.swap(2, 3);
}

/// Turns the tile's sums into values and offers them for every draw.
///
/// # Safety
/// `tile` is one of the call's, `workspace` that of `params`.
#[inline(always)]
pub(super) unsafe fn offer_tile<const N_TILES: usize>(
    sums: &mut Sums<N_TILES>,
    params: &SampleParams,
    workspace: &Workspace,
    tile: Tile,
) {
    let (warp, lane) = (arch::thread_idx() / 32, arch::thread_idx() % 32);
    let line = 16 * warp + lane / 4;
    let part = Part {
        token: tile.token + line,
        row: tile.tile_b * (N_TILES as u32 * 8) + lane % 4 * 2,
        speaker: lane < 4,
    };
    // SAFETY: the caller's promise; rows and tokens are masked below.
    unsafe {
        to_values(sums, params, workspace, tile.vocab_row + line as i64, part);
        let mut draw = 0;
        while draw < params.draws {
            offer_draw(sums, params, workspace, part, draw);
            draw += 1;
        }
    }
}

/// Replaces the thread's sums by the values of their tokens, `−inf` outside the
/// vocabulary.
#[inline(always)]
unsafe fn to_values<const N_TILES: usize>(
    sums: &mut Sums<N_TILES>,
    params: &SampleParams,
    workspace: &Workspace,
    vocab_row: i64,
    part: Part,
) {
    let mut member = 0;
    while member < GROUP {
        let token_row = vocab_row + GROUP_OFFSETS[member] as i64;
        let present = token_row >= 0 && token_row < params.vocab as i64;
        // SAFETY: `present` says that the row is one of `[V]`.
        let bias = unsafe {
            if present && !params.bias.is_null() {
                params.bias.add(token_row as usize).read()
            } else {
                0.0
            }
        };
        let mut fragment = 0;
        while fragment < N_TILES {
            let mut column = 0;
            while column < 2 {
                // Members in word order: rows g, g + 8 of the first half, then of the second.
                let sum = &mut sums[member / 2][fragment][member % 2 * 2 + column];
                let row = part.row + column_row(fragment, column);
                let mut status = Status::OK;
                let value = token_value(*sum, bias, &mut status);
                *sum = if present { value } else { f32::NEG_INFINITY };
                if present && row < params.batch {
                    // SAFETY: `row < B`.
                    unsafe { finish::publish_status(workspace, row, status) };
                }
                column += 1;
            }
            fragment += 1;
        }
        member += 1;
    }
}

/// Offers the thread's tokens for one draw: thread → warp → call.
#[inline(always)]
unsafe fn offer_draw<const N_TILES: usize>(
    sums: &mut Sums<N_TILES>,
    params: &SampleParams,
    workspace: &Workspace,
    part: Part,
    draw: u32,
) {
    // All thresholds first: their loads overlap.
    let mut thresholds = [[f32::INFINITY; 2]; N_TILES];
    let mut fragment = 0;
    while fragment < N_TILES {
        let mut column = 0;
        while column < 2 {
            let row = part.row + column_row(fragment, column);
            if row < params.batch {
                // SAFETY: `row < B`, `draw < S`.
                thresholds[fragment][column] =
                    unsafe { finish::threshold(params, workspace, row, draw) };
            }
            column += 1;
        }
        fragment += 1;
    }
    let mut fragment = 0;
    while fragment < N_TILES {
        let mut column = 0;
        while column < 2 {
            let row = part.row + column_row(fragment, column);
            let values = [sums[0][0][0], sums[0][0][2], sums[1][0][0], sums[1][0][2]];
            // SAFETY: the caller's promise.
            unsafe {
                offer_column(values, params, workspace, part, row, draw, thresholds[0][0]);
            }
            swap_columns(&mut sums[0][0]);
            swap_columns(&mut sums[1][0]);
            rotate(&mut thresholds[0]);
            column += 1;
        }
        rotate(&mut sums[0]);
        rotate(&mut sums[1]);
        rotate(&mut thresholds);
        fragment += 1;
    }
}

/// Offers the thread's four tokens of one batch row.
#[inline(always)]
unsafe fn offer_column(
    values: [f32; GROUP],
    params: &SampleParams,
    workspace: &Workspace,
    part: Part,
    row: u32,
    draw: u32,
    threshold: f32,
) {
    let mut leaders = Leaders::NONE;
    if row < params.batch {
        // SAFETY: `row < B`.
        let row = unsafe { row_params(params, row) };
        offer_group(values, part.token, row, draw, threshold, &mut leaders);
    }
    if arch::warp_any(leaders.first != Key::NONE) {
        let leaders = merge_columns(leaders);
        if part.speaker && row < params.batch {
            // SAFETY: `row < B`, `draw < S`.
            unsafe { finish::publish(params, workspace, row, draw, leaders) };
        }
    }
}

/// Merges over the eight lanes that hold the same columns: lane bits 2, 3 and 4.
#[inline(always)]
fn merge_columns(mut leaders: Leaders) -> Leaders {
    let mut lane_mask = 4;
    while lane_mask < 32 {
        let theirs = Leaders {
            first: shuffle_key(leaders.first, lane_mask),
            second: shuffle_key(leaders.second, lane_mask),
        };
        leaders = leaders.merge(theirs);
        lane_mask *= 2;
    }
    leaders
}

#[inline(always)]
fn shuffle_key(key: Key, lane_mask: u32) -> Key {
    let bits = key.bits();
    let low = arch::shuffle_xor(bits as u32, lane_mask);
    let high = arch::shuffle_xor((bits >> 32) as u32, lane_mask);
    Key::from_bits((high as u64) << 32 | low as u64)
}
