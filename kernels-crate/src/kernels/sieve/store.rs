//! Store: a tile's logits, for the kernels that finish rows.

use super::{Sieve, Sums};
use crate::abi::kept::values_stride;
use crate::arch;
use crate::candidate::Key;
use crate::dims::offset;
use crate::kernels::schedule::Tile;
use crate::philox::{PAIR, PAIR_BIT};

impl<const M_TILES: usize, const N_TILES: usize, const SUMS: bool>
    Sieve<'_, M_TILES, N_TILES, SUMS>
{
    /// Leaves the logits of rows that are kept in memory. Eight lanes write a sector of
    /// 32 bytes.
    ///
    /// # Safety
    /// All threads of the four warps; `sums` are values, and `tile` is one of the call's.
    #[inline(always)]
    pub(super) unsafe fn store(&self, sums: &Sums<M_TILES, N_TILES>, tile: Tile, first_row: u32) {
        if self.params.values.is_null() {
            return;
        }
        // Opaque: what follows would be computed once for all tiles, and cost registers.
        let vocab = arch::opaque(self.params.vocab);
        let stride = values_stride(vocab) as usize;
        let mut m = 0;
        while m < M_TILES {
            let mut member = 0;
            while member < PAIR {
                let sieve = self.afresh();
                let line = sieve.line(m) + member as u32 * PAIR_BIT;
                let vocab_row = tile.vocab_row + line as i64;
                // Rows of the batch that have a place for this token.
                let present = vocab_row >= 0 && vocab_row < vocab as i64;
                let end = if present { self.params.batch } else { 0 };
                let mut row = first_row + sieve.first_column;
                let at = offset(row, stride as u64, 0).wrapping_add_signed(vocab_row);
                let mut to = self.params.values.wrapping_add(at as usize);
                let mut fragment = 0;
                while fragment < N_TILES {
                    let mut column = 0;
                    while column < 2 {
                        // SAFETY: the row is one of the batch; the place inside `[B, V]`.
                        unsafe {
                            if row < end && sieve.keeps_values(fragment, column) {
                                to.write(sums[m][fragment][member * 2 + column]);
                            }
                        }
                        let rows = if column == 0 { 1 } else { 7 };
                        row += rows;
                        // One after the other, for the same reason.
                        to = arch::advance(to, rows as usize * stride);
                        column += 1;
                    }
                    fragment += 1;
                }
                member += 1;
            }
            m += 1;
        }
    }

    /// Leaves the value of the token of a pair, from global id `base` on, that may be drawn, if
    /// it is to be reported.
    ///
    /// # Safety
    /// `row < B`; `best` is of one of the pair's tokens.
    #[inline(always)]
    pub(super) unsafe fn leave_drawn(&self, values: [f32; PAIR], base: u32, row: u32, best: Key) {
        if !SUMS || self.params.drawn_values.is_null() {
            return;
        }
        let y = if best.token() == base { values[0] } else { values[1] };
        let index = best.token().wrapping_sub(self.params.first_token);
        let at = offset(row, values_stride(self.params.vocab), index) as usize;
        // SAFETY: the caller's promise: the token is one of the row's.
        unsafe { self.params.drawn_values.add(at).write(y) };
    }
}
