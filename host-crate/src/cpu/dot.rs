//! Dot products of a few weight rows with a few hidden states, kept in registers.
//!
//! Numerics: lane `l` of sixteen sums the products at `d = l, l + 16, …` in that
//! order, then the lanes are summed by halves. That order depends on D alone: a row has
//! the same logit bits in any batch, block, tile and thread.

use super::lanes::{Chunk, LANES, Lanes, Widen};

/// `out[c][r] = Σ_d hidden[c][d] · weights[r][d]`.
///
/// Every row of `weights` has the same length D, and every row of `hidden` ⌈D / 16⌉
/// chunks, zero beyond D.
///
/// # Safety
/// The caller enables the instructions of `L`.
#[inline(always)]
pub(super) unsafe fn dots<L: Lanes, E: Widen, const R: usize, const C: usize>(
    weights: [&[E]; R],
    hidden: [&[Chunk]; C],
) -> [[f32; R]; C] {
    let d = weights[0].len();
    let n_whole = d / LANES;
    let whole = weights.map(|row| &row.as_chunks::<LANES>().0[..n_whole]);
    let hidden_whole = hidden.map(|row| &row[..n_whole]);
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[L::zero(); R]; C];
        for k in 0..n_whole {
            let w = whole.map(|row| E::widen::<L>(&row[k]));
            multiply(&mut sums, w, hidden_whole.map(|row| &row[k]));
        }
        if d > n_whole * LANES {
            let w = weights.map(|row| {
                let mut rest = [E::default(); LANES];
                rest[..d - n_whole * LANES].copy_from_slice(&row[n_whole * LANES..d]);
                E::widen::<L>(&rest)
            });
            multiply(&mut sums, w, hidden.map(|row| &row[n_whole]));
        }
        sums.map(|row| row.map(|lanes| lanes.sum()))
    }
}

/// Adds the products of one chunk.
#[inline(always)]
unsafe fn multiply<L: Lanes, const R: usize, const C: usize>(
    sums: &mut [[L; R]; C],
    weights: [L; R],
    hidden: [&Chunk; C],
) {
    for (sums, hidden) in sums.iter_mut().zip(hidden) {
        // SAFETY: the caller of `dots` enables the instructions.
        let h = unsafe { L::from_f32(&hidden.0) };
        for (sum, w) in sums.iter_mut().zip(weights) {
            // SAFETY: as above.
            *sum = unsafe { sum.add_product(w, h) };
        }
    }
}
