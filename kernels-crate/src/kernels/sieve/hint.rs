//! Hints: bounds of the noise of groups to come, for which no logit is needed.

use super::{Row, Sieve};
use crate::gumbel::Hint;
use crate::kernels::schedule::Tile;
use crate::philox::GROUP;

impl<const M_TILES: usize, const N_TILES: usize> Sieve<'_, M_TILES, N_TILES> {
    /// The part of worker `worker` of `workers` in drawing the hints `range.0 .. range.1`
    /// of [`Self::HINTS`].
    ///
    /// # Safety
    /// The rows are written; nobody reads the hints before the next barrier.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn write_hints(
        &self,
        tile: Tile,
        range: (u32, u32),
        worker: u32,
        workers: u32,
    ) {
        // The first line of the sieve's tokens in the vocabulary tile.
        let origin = self.lines.0 / (Self::GROUPS * GROUP) * (Self::GROUPS * GROUP);
        let first = tile.token.wrapping_add(origin) / GROUP;
        let mut at = range.0 + worker;
        while at < range.1 {
            // SAFETY: `at < HINTS`, of which the slot is this worker's.
            unsafe {
                let Row { temperature, subkey, .. } =
                    self.rows().add((at % Self::ROWS) as usize).read();
                // Greedy, or past the batch.
                let hint = if temperature == 0.0 {
                    Hint::NONE
                } else {
                    Hint::new(subkey.least(first + at / Self::ROWS))
                };
                self.hints().add(at as usize).write(hint);
            }
            at += workers;
        }
    }
}
