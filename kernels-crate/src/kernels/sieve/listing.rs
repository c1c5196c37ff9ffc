//! Listing: of rows whose filters a shortlist serves, the tokens from a floor on. Their scores
//! are their values, so that the floor is their level.
//!
//! The floor rises with what all blocks have told of the row. A tile that ends before anybody
//! knows one keeps all its values, and tells the highest: of most such tiles nobody will look at
//! another.

use super::rules::Kind;
use super::{Row, Sieve};
use crate::abi::TILE_V;
use crate::abi::kept::{RowFeatures, values_stride};
use crate::arch;
use crate::candidate::Key;
use crate::dims::offset;
use crate::kernels::finish;
use crate::kernels::schedule::Tile;
use crate::philox::{PAIR, PAIR_BIT};
use crate::shortlist::{self, Tally};

impl<const M_TILES: usize, const N_TILES: usize, const SUMS: bool>
    Sieve<'_, M_TILES, N_TILES, SUMS>
{
    /// Whether rows of the call may be listed.
    #[inline(always)]
    pub(super) fn lists(&self) -> bool {
        self.applies_rules() && !self.params.listed.is_null()
    }

    /// Whether a row is listed.
    ///
    /// # Safety
    /// `row < B`.
    #[inline(always)]
    pub(super) unsafe fn is_listed(&self, row: u32) -> bool {
        // SAFETY: the caller's promise.
        self.lists()
            && unsafe {
                let temperature = self.params.temperatures.add(row as usize).read();
                self.kind_of(self.features(row), temperature) == Kind::Listed
            }
    }

    #[inline(always)]
    unsafe fn features(&self, row: u32) -> &RowFeatures {
        // SAFETY: `row < B`.
        unsafe { &*self.params.features.add(row as usize) }
    }

    #[inline(always)]
    fn tally(&self, row: u32) -> *mut Tally {
        self.params.tallies.wrapping_add(row as usize)
    }

    /// The level of the row in slot `at`: what pairs must reach to pass. `−inf` where nobody
    /// knows one.
    ///
    /// # Safety
    /// The rules are written; `row < B`, `draw < S`.
    #[inline(always)]
    pub(super) unsafe fn level(&self, at: u32, row: u32, draw: u32) -> f32 {
        // SAFETY: the caller's promise.
        unsafe {
            match self.kind(at) {
                Kind::Drawn | Kind::Judged => {
                    finish::threshold(self.params, &self.workspace(), row, draw)
                }
                Kind::Listed if draw == 0 => self.floor(row),
                // Later draws have the same list. Of a kept row nothing is to pass.
                Kind::Listed | Kind::Kept => f32::INFINITY,
            }
        }
    }

    /// Notes whether the row in slot `at` keeps all values of the tile: a kept or judged one, and
    /// a listed one that has no floor.
    ///
    /// # Safety
    /// As [`Self::level`], which told `level`.
    #[inline(always)]
    pub(super) unsafe fn keep_tile(&self, at: u32, level: f32) {
        // SAFETY: the slot is the worker's own.
        unsafe {
            if self.applies_rules() {
                let keeps = match self.kind(at) {
                    Kind::Drawn => false,
                    Kind::Listed => level == f32::NEG_INFINITY,
                    Kind::Kept | Kind::Judged => true,
                };
                self.keeps_tile(at).write(keeps as u32);
            }
        }
    }

    /// The level once the tile has told what it reaches: of a row that draws nothing and keeps all
    /// of the tile's values nothing is to pass.
    ///
    /// # Safety
    /// As [`Self::level`].
    #[inline(always)]
    pub(super) unsafe fn level_after(&self, at: u32, row: u32, draw: u32) -> f32 {
        // SAFETY: the caller's promise.
        unsafe {
            let is_kept = !self.kind(at).is_drawn() && self.keeps_tile(at).read() != 0;
            if is_kept { f32::INFINITY } else { self.level(at, row, draw) }
        }
    }

    /// The floor of a listed row, by what has been told of it.
    #[inline(always)]
    unsafe fn floor(&self, row: u32) -> f32 {
        // SAFETY: the caller's promise: `row < B`.
        unsafe {
            let tally = self.tally(row);
            // One after the other, each would be waited for.
            let told = arch::load_shared_2_u64(&raw const (*tally).highest);
            let temperature = self.params.temperatures.add(row as usize).read();
            let [highest, counted] = told.map(shortlist::of_height);
            shortlist::floor(self.features(row), temperature, highest, counted)
        }
    }

    /// The part of worker `worker` of `workers` in telling the floors of listed rows, as the
    /// counts are now. It takes several trips to memory, for which nobody is to wait.
    ///
    /// # Safety
    /// The worker has written its part of the rules; `first_row` is that of a batch tile.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn tell_floors(&self, first_row: u32, worker: u32, workers: u32) {
        if !self.lists() {
            return;
        }
        let mut at = arch::opaque(worker);
        while at < Self::ROWS && first_row + at < self.params.batch {
            // SAFETY: the row is the call's.
            unsafe {
                if self.kind(at) == Kind::Listed {
                    self.tell_floor(arch::opaque(first_row + at));
                }
            }
            at += workers;
        }
    }

    #[inline(always)]
    unsafe fn tell_floor(&self, row: u32) {
        // SAFETY: the caller's promise: `row < B`.
        unsafe {
            let features = self.features(row);
            if !shortlist::counts(features) {
                return;
            }
            let tally = self.tally(row);
            let highest = arch::load_shared_u64(&raw const (*tally).highest);
            let highest = shortlist::of_height(highest);
            let bins = (&raw const (*tally).bins).cast();
            let load = |at| arch::load_shared_4(at);
            let floor = shortlist::counted_floor(features, highest, bins, load);
            // Read now: before, it would cost registers.
            let told = arch::load_shared_u64(&raw const (*tally).floor);
            if floor > shortlist::of_height(told) {
                arch::raise(&raw mut (*tally).floor, shortlist::height(floor));
            }
        }
    }

    /// Tells that all values of the tile are kept, of which those that are final are at most
    /// `reached`.
    ///
    /// # Safety
    /// As [`Self::level`]; one thread for each row.
    #[inline(always)]
    pub(super) unsafe fn tell_tile(&self, tile: Tile, at: u32, row: u32, reached: f32) {
        // SAFETY: the caller's promise. A list has a place for each token, of which a tile takes
        // one.
        unsafe {
            let is_kept = self.kind(at) == Kind::Listed && self.keeps_tile(at).read() != 0;
            if !is_kept {
                return;
            }
            let tally = self.tally(row);
            if reached > f32::NEG_INFINITY {
                arch::raise(&raw mut (*tally).highest, shortlist::height(reached));
                self.count(row, reached);
            }
            let n = arch::atomic_add_u32(&raw mut (*tally).n_tiles, 1);
            let stride = values_stride(self.params.vocab);
            let place = offset(row, stride, 0) + stride - 1 - n as u64;
            let of_call = tile.token / TILE_V - self.params.first_token / TILE_V;
            let bound = if self.is_ruled(at) { f32::INFINITY } else { reached };
            let word = shortlist::kept_tile(of_call, bound);
            self.params.listed.add(place as usize).write(word as u64);
        }
    }

    /// Counts a token of a listed row.
    #[inline(always)]
    unsafe fn count(&self, row: u32, y: f32) {
        // SAFETY: bins are below their number; `row < B`.
        unsafe {
            let bins = (&raw mut (*self.tally(row)).bins).cast::<u32>();
            arch::increase(bins.add(shortlist::bin(y) as usize), 1);
        }
    }

    /// Lists those of a pair's tokens, from global id `base` on, that reach the floor. In a tile
    /// whose values are kept, keeps them as they are now.
    ///
    /// # Safety
    /// The row is a listed one of the batch, in slot `column`; the values are final, none NaN.
    #[inline(always)]
    pub(super) unsafe fn list(&self, values: [f32; PAIR], base: u32, row: u32, column: u32) {
        // Opaque: one text for both.
        let (mut member, members) = (0, arch::opaque(PAIR as u32));
        while member < members {
            let y = if member == 0 { values[0] } else { values[1] };
            let index = (base + member * PAIR_BIT).wrapping_sub(self.params.first_token);
            member += 1;
            if index >= self.params.vocab {
                continue;
            }
            // SAFETY: the caller's promise; the index is one of the row's.
            unsafe {
                let stride = values_stride(self.params.vocab);
                let tally = self.tally(row);
                if self.keeps_tile(column).read() != 0 {
                    self.params.values.add(offset(row, stride, index) as usize).write(y);
                    if y > f32::NEG_INFINITY {
                        arch::raise(&raw mut (*tally).highest, shortlist::height(y));
                    }
                } else {
                    let slot: *const Row = self.rows().add(column as usize);
                    if y > f32::NEG_INFINITY && y >= (*slot).level {
                        // First: it is the one that is waited for.
                        let n = arch::atomic_add_u32(&raw mut (*tally).n_tokens, 1);
                        arch::raise(&raw mut (*tally).highest, shortlist::height(y));
                        self.count(row, y);
                        let place = offset(row, stride, n) as usize;
                        self.params.listed.add(place).write(Key::of_value(y, index).bits());
                    }
                }
            }
        }
    }
}
