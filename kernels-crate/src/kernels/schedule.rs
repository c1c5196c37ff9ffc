//! Which tile a block works on when: (vocabulary tile, batch tile) pairs.
//!
//! Batch tiles vary fastest, so that blocks that run side by side share weights.

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

/// The tiles of a call, as a list of `items`.
#[derive(Clone, Copy)]
pub(super) struct Schedule {
    pub(super) tiles_v: u32,
    tiles_b: u32,
    /// Tokens of the first tile that lie before the vocabulary.
    lead: u32,
    first_tile_token: u32,
}

impl Schedule {
    #[inline(always)]
    pub(super) fn new(params: &SampleParams, tile_b: u32) -> Self {
        let lead = params.first_token % TILE_V;
        Self {
            tiles_v: n_tiles_v(params.first_token, params.vocab),
            tiles_b: ceil_div(params.batch as u64, tile_b as u64) as u32,
            lead,
            first_tile_token: params.first_token - lead,
        }
    }

    #[inline(always)]
    pub(super) fn items(&self) -> u64 {
        self.tiles_v as u64 * self.tiles_b as u64
    }

    /// The tile of an item.
    #[inline(always)]
    pub(super) fn tile(&self, item: u64) -> Tile {
        let tile_v = (item / self.tiles_b as u64) as u32;
        Tile {
            vocab_row: tile_v as i64 * TILE_V as i64 - self.lead as i64,
            token: self.first_tile_token + tile_v * TILE_V,
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
