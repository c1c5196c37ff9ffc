//! Hints: bounds of the noise of groups to come, for which no logit is needed.

use super::{Row, Sieve};
use crate::gumbel::Hint;
use crate::kernels::schedule::Tile;
use crate::philox::GROUP;

/// Groups of a batch row that a worker takes together: their chains run side by side.
const TOGETHER: u32 = 4;

impl<const M_TILES: usize, const N_TILES: usize, const SUMS: bool>
    Sieve<'_, M_TILES, N_TILES, SUMS>
{
    /// Portions that the hints of a tile come in.
    pub(in crate::kernels) const PORTIONS: u32 = Self::GROUPS / TOGETHER * Self::ROWS;

    /// The part of worker `worker` of `workers` in drawing the hints of portions
    /// `range.0 .. range.1` of [`Self::PORTIONS`].
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
        let first = tile.token.wrapping_add(self.lines.first) / GROUP;
        let mut at = range.0 + worker;
        while at < range.1 {
            let (column, from) = (at % Self::ROWS, at / Self::ROWS * TOGETHER);
            let mut hints = [Hint::NONE; TOGETHER as usize];
            // SAFETY: the portion's slots are this worker's.
            unsafe {
                let row: *mut Row = self.rows().add(column as usize);
                // Volatile: ptxas would read all of the row, whose level others may be writing.
                let temperature = (&raw const (*row).temperature).read_volatile();
                let subkey = (*row).subkey;
                // Not greedy, nor past the batch.
                if temperature != 0.0 {
                    hints = [0, 1, 2, 3].map(|i| Hint::new(subkey.least(first + from + i)));
                }
                let slot = self.hints().add((from * Self::ROWS + column) as usize);
                let mut i = 0;
                while i < hints.len() {
                    slot.add(i * Self::ROWS as usize).write(hints[i]);
                    i += 1;
                }
            }
            at += workers;
        }
    }
}
