//! Which tile a block works on when: (vocabulary tile, batch tile) pairs.
//!
//! Batch tiles vary fastest, so that blocks that run side by side share weights. The
//! blocks of a cluster work on consecutive vocabulary tiles of the same batch tile.

use crate::abi::{SampleParams, TILE_V, n_tiles_v};
use crate::dims::ceil_div;

/// A tile of logits: `TILE_V` tokens of one batch tile.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// Row of the weights of the tile's first token; negative where a shard begins
    /// inside a tile.
    pub(super) vocab_row: i64,
    /// Global id of the tile's first token, a multiple of `TILE_V`.
    pub(super) token: u32,
    /// Index of the batch tile.
    pub(super) tile_b: u32,
}

/// The tiles of one block of each cluster, as a list of `items`.
#[derive(Clone, Copy)]
pub(super) struct Schedule {
    /// Vocabulary tiles that exist.
    pub(super) tiles_v: u32,
    tiles_b: u32,
    /// A cluster's tiles for each batch tile.
    cluster_items: u64,
    /// Tokens of the first cluster's tiles that lie before the vocabulary.
    lead: u32,
    first_token: u32,
    cluster: u32,
    rank: u32,
}

impl Schedule {
    /// For the block of index `rank` in a cluster of `cluster` blocks.
    #[inline(always)]
    pub(super) fn new(params: &SampleParams, tile_b: u32, cluster: u32, rank: u32) -> Self {
        // Clusters begin at multiples of their tokens, whatever the shard.
        let lead = params.first_token % (TILE_V * cluster);
        let tokens = lead as u64 + params.vocab as u64;
        Self {
            tiles_v: n_tiles_v(params.first_token, params.vocab),
            tiles_b: ceil_div(params.batch as u64, tile_b as u64) as u32,
            cluster_items: ceil_div(tokens, (TILE_V * cluster) as u64),
            lead,
            first_token: params.first_token,
            cluster,
            rank,
        }
    }

    #[inline(always)]
    pub(super) fn items(&self) -> u64 {
        self.cluster_items * self.tiles_b as u64
    }

    /// The tile of an item.
    #[inline(always)]
    pub(super) fn tile(&self, item: u64) -> Tile {
        let tile_v = item / self.tiles_b as u64 * self.cluster as u64 + self.rank as u64;
        let tokens = (tile_v as u32).wrapping_mul(TILE_V);
        Tile {
            vocab_row: tile_v as i64 * TILE_V as i64 - self.lead as i64,
            token: (self.first_token - self.lead).wrapping_add(tokens),
            tile_b: (item % self.tiles_b as u64) as u32,
        }
    }
}

/// Splits work evenly over the slabs of a tile.
#[derive(Clone, Copy)]
pub(super) struct Quota {
    total: u32,
    slabs: u32,
    /// Pieces handed out, and the rest of the division so far.
    done: u32,
    rest: u32,
}

impl Quota {
    /// `total` pieces over `slabs ≥ 1` slabs.
    #[inline(always)]
    pub(super) fn new(total: u32, slabs: u32) -> Self {
        Self { total, slabs, done: 0, rest: 0 }
    }

    /// The pieces of the next slab, `from .. to`; all are handed out after the last.
    #[inline(always)]
    pub(super) fn next(&mut self) -> (u32, u32) {
        let from = self.done;
        self.rest += self.total;
        while self.rest >= self.slabs {
            self.rest -= self.slabs;
            self.done += 1;
        }
        (from, self.done)
    }
}
