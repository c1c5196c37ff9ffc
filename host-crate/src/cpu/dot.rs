//! Dot products of a few weight rows with a few hidden states, kept in registers.
//!
//! Numerics: lane `l` of sixteen sums the products at `d = l, l + 16, …` in that
//! order, then the lanes are summed by halves. That order depends on D alone: a row has
//! the same logit bits in any batch, block, tile and thread.

use super::lanes::{Chunk, LANES, Lanes, Widen};

/// `out[c][r] = Σ_d hidden[c][d] · weights[r][d]`.
///
/// Every row of `weights` has the same length D, and every row of `hidden` ⌈D / 16⌉
/// chunks, zero beyond D. The weights `ahead` elements further on are prefetched.
///
/// # Safety
/// The caller enables the instructions of `L`, and the lengths are as above.
#[inline(always)]
pub(super) unsafe fn dots<L: Lanes, E: Widen, const R: usize, const C: usize>(
    weights: [&[E]; R],
    hidden: [&[Chunk]; C],
    ahead: usize,
) -> [[f32; R]; C] {
    let d = weights[0].len();
    let n_whole = d / LANES;
    debug_assert!(weights.iter().all(|row| row.len() == d));
    debug_assert!(hidden.iter().all(|row| row.len() == d.div_ceil(LANES)));
    // Loops and pointers on purpose: a closure would be compiled without the
    // instructions of `L`, and a bounds check would send the sums to memory.
    // SAFETY: the caller's promise; `k < n_whole`, and the lengths are as above.
    unsafe {
        let mut sums = [[L::zero(); R]; C];
        let mut w = [L::zero(); R];
        for k in 0..n_whole {
            for (w, row) in w.iter_mut().zip(&weights) {
                let at = row.as_ptr().add(k * LANES);
                // A lone row leaves the stream to the hardware, which is faster then.
                if C > 1 {
                    L::prefetch(at.wrapping_add(ahead).cast());
                }
                *w = E::widen(&*at.cast());
            }
            for (sums, row) in sums.iter_mut().zip(&hidden) {
                multiply(sums, &w, row.get_unchecked(k));
            }
        }
        if d > n_whole * LANES {
            for (w, row) in w.iter_mut().zip(&weights) {
                let mut rest = [E::default(); LANES];
                rest[..d - n_whole * LANES].copy_from_slice(&row[n_whole * LANES..]);
                *w = E::widen(&rest);
            }
            for (sums, row) in sums.iter_mut().zip(&hidden) {
                multiply(sums, &w, &row[n_whole]);
            }
        }
        let mut dots = [[0.0; R]; C];
        for c in 0..C {
            for r in 0..R {
                dots[c][r] = sums[c][r].sum();
            }
        }
        dots
    }
}

/// Adds the products of one chunk of hidden states.
#[inline(always)]
unsafe fn multiply<L: Lanes, const R: usize>(sums: &mut [L; R], weights: &[L; R], hidden: &Chunk) {
    // SAFETY: the caller of `dots` enables the instructions.
    let h = unsafe { L::from_f32(&hidden.0) };
    for (sum, &w) in sums.iter_mut().zip(weights) {
        // SAFETY: as above.
        *sum = unsafe { sum.add_product(w, h) };
    }
}
