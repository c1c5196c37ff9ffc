//! Hints: bounds of the noise of pairs to come, for which no logit is needed.

use super::{LANES, Sieve};
use crate::gumbel::noise_hint;
use crate::kernels::schedule::Tile;

/// Lines of the vocabulary tile from a warp to the next, where warps share a tile of sums.
const WARP_LINES: u32 = 16;

impl<const M_TILES: usize, const N_TILES: usize> Sieve<'_, M_TILES, N_TILES> {
    /// Draws the words of the thread's fragments `from .. to` and keeps their hints.
    ///
    /// # Safety
    /// After [`Self::begin_rows`].
    #[inline(always)]
    pub(in crate::kernels) unsafe fn hint(&self, tile: Tile, from: u32, to: u32) {
        let mut fragment = from;
        while fragment < to {
            // SAFETY: the caller's promise.
            unsafe { self.hint_fragment(tile, fragment, 1) };
            fragment += 1;
        }
    }

    /// [`Self::hint`] for one fragment, and for the same lane of the `warps` warps from
    /// the thread's on, which have the same columns.
    ///
    /// # Safety
    /// As [`Self::hint`].
    #[inline(always)]
    pub(in crate::kernels) unsafe fn hint_fragment(&self, tile: Tile, fragment: u32, warps: u32) {
        let fragment = fragment as usize;
        // SAFETY: written before the barrier of `begin_rows`; past the batch the level
        // decides, whatever the subkey.
        let subkeys =
            unsafe { [(*self.row_slot(fragment, 0)).subkey, (*self.row_slot(fragment, 1)).subkey] };
        let mut warp = 0;
        while warp < warps {
            let mut hints = [[0; 2]; M_TILES];
            let mut m = 0;
            while m < M_TILES {
                let line = self.line(m) + warp * WARP_LINES;
                let base = tile.token.wrapping_add(line);
                hints[m] = subkeys.map(|subkey| noise_hint(subkey.pair_words(base)));
                m += 1;
            }
            let mut m = 0;
            while m < M_TILES {
                let slot = self.hint_slot(fragment, m);
                // SAFETY: the slots are the thread's own, or those of threads that wait.
                unsafe { slot.add((warp * LANES) as usize * M_TILES).write(hints[m]) };
                m += 1;
            }
            warp += 1;
        }
    }
}
