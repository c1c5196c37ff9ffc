//! From sums to values: the bias, the head's transform, and no tokens outside the vocabulary.

use super::{Sieve, Sums};
use crate::abi::TILE_V;
use crate::arch;
use crate::kernels::schedule::Tile;
use crate::kernels::select::select;
use crate::philox::{PAIR, PAIR_BIT};

impl<const M_TILES: usize, const N_TILES: usize, const SUMS: bool>
    Sieve<'_, M_TILES, N_TILES, SUMS>
{
    /// Adds the bias to the sums.
    ///
    /// # Safety
    /// `tile` is one of the call's.
    #[inline(always)]
    pub(super) unsafe fn add_bias(&self, sums: &mut Sums<M_TILES, N_TILES>, tile: Tile) {
        if self.params.bias.is_null() {
            return;
        }
        let bias = |vocab_row: i64, is_there: bool| {
            // SAFETY: it is one of `[V]`.
            if is_there { unsafe { self.params.bias.add(vocab_row as usize).read() } } else { 0.0 }
        };
        self.each_line(sums, tile, bias, |sum, bias| sum + bias);
    }

    /// Takes tokens outside the vocabulary out.
    #[inline(always)]
    pub(super) fn take_out(&self, sums: &mut Sums<M_TILES, N_TILES>, tile: Tile) {
        let vocab = arch::opaque(self.params.vocab) as i64;
        if tile.vocab_row >= 0 && tile.vocab_row + TILE_V as i64 <= vocab {
            return;
        }
        let of_line = |_, is_there| is_there;
        self.each_line(
            sums,
            tile,
            of_line,
            |sum, is_there| {
                if is_there { sum } else { f32::NEG_INFINITY }
            },
        );
    }

    /// Changes the sums by what their lines tell: the row of their weights, and whether that is a
    /// token's.
    #[inline(always)]
    fn each_line<T: Copy>(
        &self,
        sums: &mut Sums<M_TILES, N_TILES>,
        tile: Tile,
        of_line: impl Fn(i64, bool) -> T,
        change: impl Fn(f32, T) -> f32,
    ) {
        // Opaque: what follows would be computed before, and cost registers until then.
        let sieve = self.afresh();
        let vocab = arch::opaque(self.params.vocab) as i64;
        let mut m = 0;
        while m < M_TILES {
            let mut member = 0;
            while member < PAIR {
                let line = sieve.line(m) + member as u32 * PAIR_BIT;
                let row = tile.vocab_row + line as i64;
                let told = of_line(row, row >= 0 && row < vocab);
                let mut fragment = 0;
                while fragment < N_TILES {
                    let mut column = 0;
                    while column < 2 {
                        let sum = &mut sums[m][fragment][member * 2 + column];
                        *sum = change(*sum, told);
                        column += 1;
                    }
                    fragment += 1;
                }
                member += 1;
            }
            m += 1;
        }
    }

    /// Makes the logits those that the model means, a fragment at a time: one text for all.
    #[inline(always)]
    pub(super) fn transform(&self, sums: &mut Sums<M_TILES, N_TILES>) {
        let transform = self.params.transform.get();
        if !SUMS || !transform.changes() {
            return;
        }
        let cap = self.params.transform.cap();
        let (mut slot, slots) = (0, arch::opaque((M_TILES * N_TILES) as u32));
        while slot < slots {
            let of = |at: usize| sums[at % M_TILES][at / M_TILES];
            let changed = transform.apply_all::<_, true>(select(M_TILES * N_TILES, slot, of), cap);
            let mut at = 0;
            while at < M_TILES * N_TILES {
                // Opaque: LLVM would make it an indexed store.
                let is_it = arch::opaque(((at as u32 == slot) as u32).wrapping_neg());
                let sums = &mut sums[at % M_TILES][at / M_TILES];
                let mut i = 0;
                while i < 4 {
                    let (own, new) = (sums[i].to_bits(), changed[i].to_bits());
                    sums[i] = f32::from_bits(own & !is_it | new & is_it);
                    i += 1;
                }
                at += 1;
            }
            slot += 1;
        }
    }
}
