//! *Computes* `token[r, s] = argmax_i (Σ_d H[r,d]·W[i,d] + bias_i + T_r·g_i)` on tensor
//! cores, from `sm_80` on.
//!
//! *Operands*
//!
//! | name | shape | dtype | order | alignment |
//! | --- | --- | --- | --- | --- |
//! | weights | `[V, D]` | bf16 or f16 | row stride ≥ D | base and stride 16 bytes |
//! | hidden states | `[B, D]` | that of the weights | row stride ≥ D | the same |
//! | the rest | [`SampleParams`] | | | natural |
//!
//! Inputs may alias each other, outputs nothing.
//!
//! *Mapping*: a block walks over (vocabulary tile, batch tile) pairs as in
//! `sample_simt.rs`. The vocabulary is the M axis of the product. Warp `w` owns rows
//! `32·w .. 32·w + 32` of the tile for all its batch rows, so that a thread holds, of
//! each batch row, two pairs of tokens that share random words.
//! Grid: `min(tiles, multiprocessors · resident blocks)` (`host-crate/src/plan.rs`).
//!
//! *Shared memory*: a ring of `mma::stages` stages of `mma::stage_bytes`: a slab of
//! weights `[TILE_V, TILE_D]`, then one of hidden states `[TILE_B, TILE_D]`. Chunk `c`
//! (16 bytes) of line `l` lies at chunk `c ^ (l & 7)`, which spreads the eight rows of
//! an `ldmatrix` over all banks.
//!
//! *Roles and barriers*: all threads load, all multiply. One block barrier a slab:
//! it ends the reading of the stage that is refilled next, and publishes the slab
//! that the threads' `cp.async` groups have brought. The loads run ahead across
//! tiles, so memory does not idle during an epilogue.
//!
//! *Numerics*: f32 sums, in the order of d in steps of 16, the same in every variant.
//! NaN and infinities as in [`crate::score::token_value`].
//!
//! *Preconditions*: those of `sample_simt.rs`, dtype and alignment
//! (`host-crate/src/plan.rs`).
//!
//! *Sources*: PTX ISA 8.0, "Matrix Fragments for mma.m16n8k16", "ldmatrix", "cp.async".
//!
//! *Measured*: `docs/findings/`.

mod load;
mod multiply;

pub use multiply::MmaElement;

use self::load::Loader;
use self::multiply::Fragments;
use super::finish::{self, Workspace};
use super::schedule::{Quota, Schedule};
use super::sieve::{Lines, Sieve, Sums};
use crate::abi::{SampleParams, mma};
use crate::arch;
use crate::dims::ceil_div;

/// Runs one block, for batch tiles of `N_TILES` · 8 rows; `SUMS` is that of the sieve.
///
/// # Safety
/// The module's preconditions.
#[inline(always)]
pub unsafe fn sample_mma<E: MmaElement, const N_TILES: usize, const SUMS: bool>(
    weights: *const u8,
    hidden_states: *const u8,
    params: &SampleParams,
) {
    let tile_b = N_TILES as u32 * 8;
    let ring = arch::shared_address(arch::dynamic_shared());
    let schedule = Schedule::new(params, tile_b, 1, 0);
    let slabs = ceil_div(params.hidden as u64, mma::TILE_D as u64) as u32;
    let (block, blocks) = (arch::block_idx() as u64, arch::grid_dim() as u64);
    // SAFETY: the caller's promise; every access is masked by the loader, the
    // epilogue and `finish`.
    unsafe {
        let sieve_at = mma::stages(tile_b) * mma::stage_bytes(tile_b);
        let sieve = Sieve::<2, N_TILES, SUMS>::new(
            params,
            arch::dynamic_shared().add(sieve_at as usize),
            arch::thread_idx(),
            Lines { first: 0, per_warp: 32, per_tile: 16 },
            mma::SIEVE_BARRIER,
        );
        let fragments = Fragments::new();
        let mut loader =
            Loader::<N_TILES>::new(weights, hidden_states, params, schedule, ring, block, blocks);
        let mut stage = 0;
        // Unrolled, the copies of the loader cost more registers than there are.
        let mut ahead = arch::opaque(mma::stages(tile_b) - 1);
        while ahead != 0 {
            loader.load_next();
            ahead -= 1;
        }
        sieve.begin_sums();
        let mut item = block;
        let mut tiles_done = 0;
        while item < schedule.items() {
            let tile = schedule.tile(item);
            let first_row = tile.tile_b * tile_b;
            if tiles_done == 0 {
                sieve.begin_rows(first_row, 0);
            }
            sieve.write_rules(tile, first_row, arch::thread_idx(), mma::THREADS);
            sieve.tell_floors(first_row, arch::thread_idx(), mma::THREADS);
            let portions = Sieve::<2, N_TILES, SUMS>::PORTIONS;
            let rounds = ceil_div(portions as u64, mma::THREADS as u64) as u32;
            let mut hints = Quota::new(rounds, slabs);
            let mut sums: Sums<2, N_TILES> = [[[0.0; 4]; N_TILES]; 2];
            let mut slab = 0;
            while slab < slabs {
                multiply::wait_for_slab::<N_TILES>();
                arch::block_barrier();
                loader.load_next();
                let at = ring + stage * mma::stage_bytes(tile_b);
                multiply::add_slab::<E, N_TILES>(&mut sums, at, &fragments);
                let (from, to) = hints.next();
                let range = (from * mma::THREADS, portions.min(to * mma::THREADS));
                sieve.write_hints(tile, range, arch::thread_idx(), mma::THREADS);
                stage = if stage + 1 == mma::stages(tile_b) { 0 } else { stage + 1 };
                slab += 1;
            }
            let unset = sieve.raise_levels(first_row, 0);
            sieve.offer_tile(&mut sums, tile, first_row, unset);
            tiles_done += 1;
            item += blocks;
            // Report once for each run of tiles of one batch tile.
            if item >= schedule.items() || schedule.tile(item).tile_b != tile.tile_b {
                // Opaque: kept across tiles, it would cost registers.
                let workspace = Workspace::new(params, arch::opaque(params.batch));
                let done = workspace.tiles_done(tile.tile_b);
                if arch::block_arrive(done, tiles_done, schedule.tiles_v) {
                    let rows = (first_row, (first_row + tile_b).min(params.batch));
                    let thread = arch::thread_idx();
                    finish::write_outputs(params, &workspace, rows, thread, mma::THREADS);
                    arch::block_barrier();
                    finish::clear(&workspace, rows, tile.tile_b, thread, mma::THREADS);
                }
                tiles_done = 0;
                sieve.leave_sums(0);
            }
        }
    }
}
