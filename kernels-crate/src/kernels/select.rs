//! One of several values that a thread has in registers, which have no addresses.

use crate::arch;

/// Values at most.
const MOST: usize = 32;

/// Of `n` values of so many words, at most [`MOST`], the one of an index, bit by bit of it.
#[inline(always)]
pub(super) fn select<const WORDS: usize>(
    n: usize,
    index: u32,
    of: impl Fn(usize) -> [f32; WORDS],
) -> [f32; WORDS] {
    let mut all = [[0; WORDS]; MOST];
    let mut at = 0;
    while at < n {
        all[at] = of(at).map(f32::to_bits);
        at += 1;
    }
    let (mut n, mut bit) = (n, 0);
    while n > 1 {
        // Opaque: LLVM would make it a condition, and that an indexed load.
        let odd = arch::opaque((index >> bit & 1).wrapping_neg());
        n = n.div_ceil(2);
        at = 0;
        while at < n {
            let mut i = 0;
            while i < WORDS {
                all[at][i] = all[2 * at][i] & !odd | all[2 * at + 1][i] & odd;
                i += 1;
            }
            at += 1;
        }
        bit += 1;
    }
    all[0].map(f32::from_bits)
}
