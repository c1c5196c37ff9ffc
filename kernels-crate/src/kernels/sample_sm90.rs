//! *Computes* `token[r, s] = argmax_i (Σ_d H[r,d]·W[i,d] + bias_i + T_r·g_i)` with Hopper's
//! copy engine and warpgroup products (`sm_90a`).
//!
//! *Operands*
//!
//! | name | shape | dtype | order | alignment |
//! | --- | --- | --- | --- | --- |
//! | weights | `[V, D]` | bf16 or f16 | row stride ≥ D | base and stride 16 bytes |
//! | hidden states | `[B, D]` | that of the weights | row stride ≥ D | the same |
//! | the rest | [`SampleParams`] | | | natural |
//!
//! The matrices come as tensor maps: boxes of `[TILE_V, TILE_D]` and
//! `[TILE_B / CLUSTER, TILE_D]`, 128-byte swizzle. Inputs may alias each other,
//! outputs nothing.
//!
//! *Mapping*: one block a multiprocessor walks over (vocabulary tile, batch tile)
//! pairs. The vocabulary is the M axis. Each of two consumer warpgroups owns 64 rows of
//! the tile for all its batch rows, so that a thread holds, of each batch row, one pair
//! of tokens that share random words.
//!
//! *Shared memory*: `sm90::shared_bytes`: the ring of stages (a slab of weights, then one
//! of hidden states, each 1024-byte aligned), the barriers, a sieve a consumer warpgroup.
//!
//! *Roles and barriers*: the first warp of the first warpgroup is the producer: it
//! waits on `empty[stage]` (first parity 1), announces the bytes on `full[stage]` and
//! starts the copies. Consumers wait on `full[stage]` (first parity 0), issue the
//! stage's products, and release the stage before it, whose products are complete. In
//! a cluster each block copies its share of the hidden states to all blocks, so a
//! stage is empty when the consumers of all of them have released it. The ring runs
//! on across tiles: memory does not idle during an epilogue.
//!
//! *Numerics*: f32 sums, in the order of d in steps of 16, the same in every variant.
//! NaN and infinities as in [`crate::score::token_value`].
//!
//! *Preconditions*: those of `sample_mma.rs`, one block a multiprocessor
//! (`host-crate/src/plan.rs`).
//!
//! *Sources*: PTX ISA 8.0, "Asynchronous Warpgroup Level Matrix Instructions",
//! "cp.async.bulk.tensor", "mbarrier", "setmaxnreg".
//!
//! *Measured*: `docs/findings/`.

mod consumer;
mod producer;
mod ring;

pub use consumer::WgmmaElement;

use self::ring::Ring;
use super::schedule::Schedule;
use crate::abi::{SampleParams, sm90};
use crate::arch;
use crate::dims::ceil_div;

/// What all roles know of the call.
#[derive(Clone, Copy)]
struct Call<'a> {
    params: &'a SampleParams,
    schedule: Schedule,
    ring: Ring,
    /// First item of the block's cluster, and items from one of its items to the next.
    first_item: u64,
    step: u64,
    /// Slabs of a tile.
    slabs: u32,
}

/// Runs one block, for batch tiles of `N_TILES` · 8 rows.
///
/// # Safety
/// The module's preconditions; `weights_map` and `hidden_map` are addresses of the tensor maps.
#[inline(always)]
pub unsafe fn sample_sm90<E: WgmmaElement, const N_TILES: usize, const CLUSTER: u32>(
    weights_map: u64,
    hidden_map: u64,
    params: &SampleParams,
) {
    let tile_b = N_TILES as u32 * 8;
    let rank = if CLUSTER == 1 { 0 } else { arch::cluster_rank() };
    let call = Call {
        params,
        schedule: Schedule::new(params, tile_b, CLUSTER, rank),
        ring: Ring::new(tile_b),
        first_item: (arch::block_idx() / CLUSTER) as u64,
        step: (arch::grid_dim() / CLUSTER) as u64,
        slabs: ceil_div(params.hidden as u64, sm90::TILE_D as u64) as u32,
    };
    let (thread, warp) = (arch::thread_idx(), arch::thread_idx() / 32);
    // SAFETY: the caller's promise; every thread runs its role to the end, and every
    // role accounts for every slab.
    unsafe {
        if thread == 0 {
            call.ring.init(sm90::GROUPS * CLUSTER);
        }
        if CLUSTER == 1 {
            arch::block_barrier();
        } else {
            arch::cluster_barrier();
        }
        if warp < sm90::GROUP_WARPS {
            arch::registers_release::<{ sm90::PRODUCER_REGISTERS }>();
            if warp == 0 {
                producer::run::<CLUSTER>(&call, weights_map, hidden_map, tile_b, rank);
            }
        } else {
            arch::registers_acquire::<{ sm90::CONSUMER_REGISTERS }>();
            consumer::run::<E, N_TILES, CLUSTER>(&call);
        }
        // A block must not leave while another may still write to it.
        if CLUSTER != 1 {
            arch::cluster_barrier();
        }
    }
}
