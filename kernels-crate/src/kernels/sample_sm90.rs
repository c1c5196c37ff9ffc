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
//! pairs. The vocabulary is the M axis. Up to 128 batch rows, the two consumer warpgroups
//! take whole tiles in turn, so that one's epilogue runs beside the other's products;
//! beyond, their sums would not fit, and each has 64 rows of every tile. Either way a
//! thread holds pairs of tokens that share random words.
//!
//! *Shared memory*: `sm90::shared_bytes`: the ring of stages (a slab of weights, then one
//! of hidden states, each 1024-byte aligned), the barriers, a sieve a consumer warpgroup.
//!
//! *Roles*: of the first warpgroup, the first warp is the producer (`producer.rs`), the
//! others draw the hints of the tiles to come (`hints.rs`); the other two warpgroups are
//! the consumers (`consumer.rs`). `docs/design/hopper-pipeline.md` shows how they meet.
//!
//! *Barriers* (`ring.rs`): the producer waits on `empty[stage]` (first parity 1),
//! announces the bytes on `full[stage]` and starts the copies. Consumers wait on
//! `full[stage]` (first parity 0), issue the first half of the stage's products, which
//! completes the stage before it, and release that. In a cluster each block copies its
//! share of the hidden states to all blocks, so a stage is empty when the consumers of all
//! of them have released it. The ring runs on across tiles: memory does not idle during
//! an epilogue. `turn` orders the warpgroups where they alternate: a parity tells only two
//! rounds apart, so nobody may wait for a stage further ahead. `hints_free` and
//! `hints_ready` hand a sieve's rows and hints over and back; `levels_wanted` tells when
//! to read the levels where the warpgroups share tiles. A launch may let blocks start
//! before the kernel before has ended: until then the producer reads weights and everyone
//! else waits. Then a block lets the next kernel start, which may read what those left.
//!
//! *Numerics*: f32 sums, in steps of 16 along d, from the slab `Call::first_slab` on and
//! around: the same order in every variant and every shard.
//! NaN and infinities as in [`crate::score::token_value`].
//!
//! *Preconditions*: those of `sample_mma.rs`, one block a multiprocessor, no more clusters
//! than items (`host-crate/src/plan/gpu.rs`), weights that no kernel writes which may still
//! run (`host-crate/src/cuda.rs`).
//!
//! *Sources*: PTX ISA 8.0, "Asynchronous Warpgroup Level Matrix Instructions",
//! "cp.async.bulk.tensor", "mbarrier", "setmaxnreg", "griddepcontrol".
//!
//! *Measured*: `docs/findings/`.

mod consumer;
mod hints;
mod producer;
mod ring;

pub use consumer::WgmmaElement;

use self::ring::Ring;
use super::admit::{self, Ids};
use super::schedule::{Schedule, Tile};
use crate::abi::{SampleParams, TILE_V, sm90};
use crate::arch;
use crate::dims::ceil_div;

/// Tiles of 64 rows that a warpgroup has of a tile, for batch tiles of `n_tiles` · 8 rows.
pub const fn m_tiles(n_tiles: u32) -> usize {
    sm90::m_tiles(n_tiles * 8) as usize
}

/// Blocks of a cluster, for batch tiles of `n_tiles` · 8 rows.
pub const fn cluster(n_tiles: u32) -> u32 {
    sm90::cluster(n_tiles * 8)
}

/// What all roles know of the call.
#[derive(Clone, Copy)]
struct Call<'a> {
    params: &'a SampleParams,
    schedule: Schedule,
    ring: Ring,
    /// Index of the block in its cluster.
    rank: u32,
    /// First item of the block's cluster, and items from one of its items to the next.
    first_item: u64,
    step: u64,
    /// Slabs of a tile.
    slabs: u32,
}

impl<'a> Call<'a> {
    #[inline(always)]
    fn new<const CLUSTER: u32>(params: &'a SampleParams, ring: Ring, tile_b: u32) -> Self {
        let rank = if CLUSTER == 1 { 0 } else { arch::cluster_rank() };
        Self {
            params,
            schedule: Schedule::new(params, tile_b, CLUSTER, rank),
            ring,
            rank,
            first_item: (arch::block_idx() / CLUSTER) as u64,
            step: (arch::grid_dim() / CLUSTER) as u64,
            slabs: ceil_div(params.hidden as u64, sm90::TILE_D as u64) as u32,
        }
    }

    /// Whether a tile holds tokens. One that fills up a cluster may not.
    #[inline(always)]
    fn holds_tokens(&self, tile: &Tile) -> bool {
        tile.vocab_row > -(TILE_V as i64) && tile.vocab_row < self.params.vocab as i64
    }

    /// Whether no row admits any token of the cluster's tiles, of which this is one.
    ///
    /// # Safety
    /// All lanes of a warp, after the kernels before have ended.
    #[inline(always)]
    unsafe fn are_banned(&self, tile: &Tile, tile_b: u32) -> bool {
        let begin = tile.token.wrapping_sub(self.rank * TILE_V);
        let ids = Ids { begin, end: begin.saturating_add(sm90::cluster(tile_b) * TILE_V) };
        let first_row = tile.tile_b * tile_b;
        let rows = (first_row, core::cmp::min(first_row + tile_b, self.params.batch));
        // SAFETY: the caller's promise.
        unsafe { admit::banned(self.params, ids, rows, arch::thread_idx() % 32) }
    }

    /// The slab that a tile's sums begin with, the same for the tiles of a cluster. Blocks
    /// that read the same columns of their rows at the same time would crowd the same
    /// channels of memory. It follows from the tile's tokens alone: a row's logits do not
    /// depend on its batch.
    #[inline(always)]
    fn first_slab(&self, tile: &Tile) -> u32 {
        tile.token / (TILE_V * sm90::LARGEST_CLUSTER) * sm90::SLAB_ROTATION % self.slabs
    }
}

/// Runs one block, for batch tiles of `N_TILES` · 8 rows; `SUMS` is that of the sieve.
///
/// # Safety
/// The module's preconditions; `weights_map` and `hidden_map` are addresses of the tensor maps.
#[inline(always)]
pub unsafe fn sample_sm90<
    E,
    const M_TILES: usize,
    const N_TILES: usize,
    const CLUSTER: u32,
    const SUMS: bool,
>(
    weights_map: u64,
    hidden_map: u64,
    params: &SampleParams,
) where
    E: WgmmaElement,
{
    let tile_b = N_TILES as u32 * 8;
    let ring = Ring::new(tile_b);
    let (thread, warp) = (arch::thread_idx(), arch::thread_idx() / 32);
    // Made by each role: what lives across the roles' branch costs all of them registers.
    let call = || Call::new::<CLUSTER>(params, ring, tile_b);
    // SAFETY: the caller's promise; every thread runs its role to the end, and every
    // role accounts for every slab.
    unsafe {
        if thread == 0 {
            ring.init(sm90::GROUPS / consumer::turns(M_TILES) * CLUSTER);
        }
        if CLUSTER == 1 {
            arch::block_barrier();
        } else {
            arch::cluster_barrier();
        }
        if warp < sm90::GROUP_WARPS {
            arch::registers_release::<{ sm90::SUPPORT_REGISTERS }>();
            if warp == 0 {
                producer::run::<CLUSTER>(&call(), weights_map, hidden_map, tile_b);
            } else {
                arch::dependencies_wait();
                arch::dependents_launch();
                hints::run::<M_TILES, N_TILES, SUMS>(&call(), thread - 32);
            }
        } else {
            arch::registers_acquire::<{ sm90::CONSUMER_REGISTERS }>();
            arch::dependencies_wait();
            let consumer = thread - sm90::GROUP_THREADS;
            consumer::run::<E, M_TILES, N_TILES, CLUSTER, SUMS>(&call(), consumer);
        }
        // A block must not leave while another may still write to it.
        if CLUSTER != 1 {
            arch::cluster_barrier();
        }
    }
}
