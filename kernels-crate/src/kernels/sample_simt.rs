//! *Computes* `token[r, s] = argmax_i (Σ_d H[r,d]·W[i,d] + bias_i + T_r·g_i)` with plain
//! multiplications: any dtype, stride and alignment, any GPU, and natively.
//!
//! *Operands*
//!
//! | name | shape | dtype | order | alignment |
//! | --- | --- | --- | --- | --- |
//! | weights | `[V, D]` | bf16, f16, f32 | row stride ≥ D | element |
//! | hidden states | `[B, D]` | bf16, f16, f32 | row stride ≥ D | element |
//! | the rest | [`SampleParams`] | | | natural |
//!
//! Inputs may alias each other, outputs nothing.
//!
//! *Mapping*: a block walks over (vocabulary tile, batch tile) pairs, its index first,
//! then a grid further; batch tiles vary fastest, so that neighbours share weights.
//! A thread owns one token of the tile for all batch rows of the tile.
//!
//! *Shared memory*: [`Shared`].
//!
//! *Roles and barriers*: legs; a barrier after each.
//!
//! *Numerics*: products and sums in f32, each rounded, d ascending: the same bits
//! natively and on any GPU. NaN and infinities as in [`crate::score::token_value`].
//!
//! *Preconditions*: sizes ≥ 1, strides ≥ D, pointers valid for their shapes
//! (`host-crate/src/problem.rs`).

use half::{bf16, f16};

use super::finish::{self, Workspace};
use super::rotate;
use crate::abi::kept::values_stride;
use crate::abi::simt::{THREADS, TILE_B, TILE_D};
use crate::abi::{Dtype, SampleParams, TILE_V, n_tiles_v};
use crate::arch::{self, PerThread, leg};
use crate::candidate::Leaders;
use crate::dims::{ceil_div, offset};
use crate::philox::{NoiseKey, Subkey};
use crate::score::{RowParams, offer_token, token_value};
use crate::status::Status;

const TILE_V_LEN: usize = TILE_V as usize;
const TILE_B_LEN: usize = TILE_B as usize;
const TILE_D_LEN: usize = TILE_D as usize;

/// What the threads of a block share.
#[repr(C)]
pub struct Shared {
    /// Slab of the weights; the odd row length spreads a column over the banks.
    weights: [[f32; TILE_D_LEN + 1]; TILE_V_LEN],
    /// Slab of the hidden states.
    hidden_states: [[f32; TILE_D_LEN]; TILE_B_LEN],
    /// Each thread's candidates for one draw.
    leaders: [[Leaders; TILE_V_LEN]; TILE_B_LEN],
}

/// A tile of logits: `TILE_V` tokens of `TILE_B` rows.
#[derive(Clone, Copy)]
struct Tile {
    /// Global id of the tile's first token, a multiple of `TILE_V`.
    first_token: u32,
    /// First batch row.
    first_row: u32,
}

/// Runs block `block` of `blocks`.
///
/// # Safety
/// The module's preconditions; `shared` belongs to this block alone.
#[inline(always)]
pub unsafe fn sample_simt(
    weights: *const u8,
    hidden_states: *const u8,
    params: &SampleParams,
    shared: *mut Shared,
    block: u32,
    blocks: u32,
) {
    // SAFETY: the caller's promise covers all of the below; tiles are masked by
    // `token_row` and `params.batch`.
    unsafe {
        let workspace = Workspace::new(params, params.batch);
        let tiles_v = n_tiles_v(params.first_token, params.vocab);
        let tiles_b = ceil_div(params.batch as u64, TILE_B as u64);
        let mut item = block as u64;
        while item < tiles_v as u64 * tiles_b {
            let tile_b = (item % tiles_b) as u32;
            let tile = Tile {
                first_token: params.first_token / TILE_V * TILE_V
                    + (item / tiles_b) as u32 * TILE_V,
                first_row: tile_b * TILE_B,
            };
            let mut values = PerThread::<_, TILE_V_LEN>::new([0.0f32; TILE_B_LEN]);
            let mut slab = 0;
            while slab < params.hidden {
                leg(&mut values, |thread, _| {
                    load_slab(weights, hidden_states, params, tile, slab, shared, thread);
                });
                leg(&mut values, |thread, dots| multiply_slab(shared, thread, dots));
                slab = slab.saturating_add(TILE_D);
            }
            let mut draw = 0;
            while draw < params.draws {
                leg(&mut values, |thread, dots| {
                    offer_tile(params, &workspace, tile, draw, shared, thread, dots);
                });
                leg(&mut values, |thread, _| {
                    merge_tile(params, &workspace, tile, draw, shared, thread);
                });
                draw += 1;
            }
            if arch::block_arrive(workspace.tiles_done(tile_b), 1, tiles_v) {
                let rows = (tile.first_row, (tile.first_row + TILE_B).min(params.batch));
                leg(&mut values, |thread, _| {
                    finish::write_outputs(params, &workspace, rows, thread, THREADS);
                });
                leg(&mut values, |thread, _| {
                    finish::clear(&workspace, rows, tile_b, thread, THREADS);
                });
            }
            item += blocks as u64;
        }
    }
}

/// Row of the weights that holds a token, if the call has it.
#[inline(always)]
fn token_row(params: &SampleParams, token: u32) -> Option<u32> {
    let row = token.wrapping_sub(params.first_token);
    (row < params.vocab).then_some(row)
}

/// Leg: brings `TILE_D` elements of every row of the tile to shared memory, as f32.
#[inline(always)]
unsafe fn load_slab(
    weights: *const u8,
    hidden_states: *const u8,
    params: &SampleParams,
    tile: Tile,
    slab: u32,
    shared: *mut Shared,
    thread: u32,
) {
    let mut i = thread;
    while i < (TILE_V + TILE_B) * TILE_D {
        let (line, column) = (i / TILE_D, i % TILE_D);
        let d = slab as u64 + column as u64;
        let inside = d < params.hidden as u64;
        // SAFETY: `line` and `column` index the arrays; loads happen only for rows of
        // the operands and d < D.
        unsafe {
            if line < TILE_V {
                let row = token_row(params, tile.first_token.wrapping_add(line));
                let value = match row {
                    Some(row) if inside => {
                        let at = offset(row, params.weights_stride, d as u32);
                        load(weights, params.weights_dtype, at)
                    }
                    _ => 0.0,
                };
                (&raw mut (*shared).weights[line as usize][column as usize]).write(value);
            } else {
                let line = line - TILE_V;
                let row = tile.first_row + line;
                let value = if inside && row < params.batch {
                    let at = offset(row, params.hidden_stride, d as u32);
                    load(hidden_states, params.hidden_dtype, at)
                } else {
                    0.0
                };
                (&raw mut (*shared).hidden_states[line as usize][column as usize]).write(value);
            }
        }
        i += THREADS;
    }
}

/// One element as f32; exact for every dtype.
#[inline(always)]
unsafe fn load(base: *const u8, dtype: u32, at: u64) -> f32 {
    // SAFETY: the caller passes an element of the operand; bases are element-aligned.
    unsafe {
        if dtype == Dtype::Bf16 as u32 {
            base.cast::<bf16>().add(at as usize).read().to_f32()
        } else if dtype == Dtype::F16 as u32 {
            base.cast::<f16>().add(at as usize).read().to_f32()
        } else {
            base.cast::<f32>().add(at as usize).read()
        }
    }
}

/// Leg: adds a slab's products to the thread's dot products.
#[inline(always)]
unsafe fn multiply_slab(shared: *const Shared, thread: u32, dots: &mut [f32; TILE_B_LEN]) {
    let mut d = 0;
    while d < TILE_D_LEN {
        // SAFETY: indices are below the arrays' lengths; the slab was written before
        // the last barrier.
        unsafe {
            let weight = (&raw const (*shared).weights[thread as usize][d]).read();
            let mut row = 0;
            while row < TILE_B_LEN {
                let hidden = (&raw const (*shared).hidden_states[row][d]).read();
                dots[row] += hidden * weight;
                row += 1;
            }
        }
        d += 1;
    }
}

/// Leg: leaves the thread's candidate for each row in shared memory.
#[inline(always)]
unsafe fn offer_tile(
    params: &SampleParams,
    workspace: &Workspace,
    tile: Tile,
    draw: u32,
    shared: *mut Shared,
    thread: u32,
    dots: &mut [f32; TILE_B_LEN],
) {
    let token = tile.first_token.wrapping_add(thread);
    let vocab_row = token_row(params, token);
    let mut line = 0;
    while line < TILE_B_LEN {
        let row = tile.first_row + line as u32;
        let mut leaders = Leaders::NONE;
        if let Some(vocab_row) = vocab_row
            && row < params.batch
        {
            // SAFETY: `vocab_row < V`, `row < B`.
            unsafe {
                let bias = if params.bias.is_null() {
                    0.0
                } else {
                    params.bias.add(vocab_row as usize).read()
                };
                let logit = dots[0] + bias;
                if draw == 0 && !params.values.is_null() {
                    store_logit(params, row, vocab_row, logit);
                }
                let mut status = Status::OK;
                let value = token_value(logit, 0.0, &mut status);
                finish::publish_status(workspace, row, status);
                let RowParams { temperature, key } = row_params(params, row);
                let subkey = Subkey::new(key, draw);
                offer_token(value, token, temperature, subkey, &mut leaders);
            }
        }
        // SAFETY: indices are below the array's lengths.
        unsafe { (&raw mut (*shared).leaders[line][thread as usize]).write(leaders) };
        rotate(dots);
        line += 1;
    }
}

/// Leaves a logit for the kernel that finishes kept rows.
///
/// # Safety
/// `row < batch`, `vocab_row < vocab`, and the values are not null.
#[inline(always)]
pub unsafe fn store_logit(params: &SampleParams, row: u32, vocab_row: u32, logit: f32) {
    let at = offset(row, values_stride(params.vocab), vocab_row);
    // SAFETY: it lies inside `[B, V]`.
    unsafe { params.values.add(at as usize).write(logit) }
}

/// A row's parameters.
///
/// # Safety
/// `row < batch`.
#[inline(always)]
pub unsafe fn row_params(params: &SampleParams, row: u32) -> RowParams {
    let at = row as usize;
    // SAFETY: the arrays have B elements.
    unsafe {
        RowParams {
            temperature: params.temperatures.add(at).read(),
            key: NoiseKey {
                seed: params.seeds.add(at).read(),
                position: params.positions.add(at).read(),
            },
        }
    }
}

/// Leg: the first `TILE_B` threads merge a row's candidates each and publish the result.
#[inline(always)]
unsafe fn merge_tile(
    params: &SampleParams,
    workspace: &Workspace,
    tile: Tile,
    draw: u32,
    shared: *const Shared,
    thread: u32,
) {
    let row = tile.first_row + thread;
    if thread >= TILE_B || row >= params.batch {
        return;
    }
    let mut leaders = Leaders::NONE;
    let mut i = 0;
    while i < TILE_V_LEN {
        // SAFETY: written by thread `i` before the last barrier.
        let theirs = unsafe { (&raw const (*shared).leaders[thread as usize][i]).read() };
        leaders = leaders.merge(theirs);
        i += 1;
    }
    // SAFETY: `row < B`.
    unsafe { finish::publish(params, workspace, row, draw, leaders) };
}
