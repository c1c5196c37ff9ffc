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
        // SAFETY: the caller's promise.
        let stored = unsafe { self.stored_columns(first_row) };
        if stored.are_none() {
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
                let first = offset(first_row + sieve.first_column, stride as u64, 0);
                let at = first.wrapping_add_signed(vocab_row) as usize;
                let mut to = self.params.values.wrapping_add(at);
                // Rows have a place for this token.
                let present = vocab_row >= 0 && vocab_row < vocab as i64;
                let mut slot = 0;
                while present && slot < 2 * N_TILES {
                    if stored.has(slot) {
                        // SAFETY: the row is one of the batch; the place inside `[B, V]`.
                        unsafe { to.write(sums[m][slot / 2][member * 2 + slot % 2]) };
                    }
                    // One after the other, for the same reason.
                    let rows = if slot % 2 == 0 { 1 } else { 7 };
                    to = arch::advance(to, rows * stride);
                    slot += 1;
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
