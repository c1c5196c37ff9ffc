//! Products: from the stages of the ring to sums in registers.

use half::{bf16, f16};

use crate::abi::{TILE_V, mma};
use crate::arch;
use crate::kernels::sieve::Sums;

/// Elements that tensor cores multiply.
pub trait MmaElement {
    /// `[16, 8] += [16, 16]·[16, 8]`.
    fn mma(sums: &mut [f32; 4], a: [u32; 4], b: [u32; 2]);
}

impl MmaElement for bf16 {
    #[inline(always)]
    fn mma(sums: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
        arch::mma_bf16(sums, a, b);
    }
}

impl MmaElement for f16 {
    #[inline(always)]
    fn mma(sums: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
        arch::mma_f16(sums, a, b);
    }
}

/// Elements of one product along d.
const K: u32 = 16;

/// Byte offset of the warp's second tile of 16 rows.
const M_TILE_BYTES: u32 = 16 * mma::ROW_BYTES;

/// The lane's `ldmatrix` addresses within a slab, for d = 0.
pub(super) struct Fragments {
    weights_line: u32,
    weights_chunk: u32,
    hidden_line: u32,
    hidden_chunk: u32,
}

impl Fragments {
    #[inline(always)]
    pub(super) fn new() -> Self {
        let (warp, lane) = (arch::thread_idx() / 32, arch::thread_idx() % 32);
        // Matrices 0 to 3 of the weights: rows 0–7 and 8–15, then the next 8 of d. Of
        // the hidden states: d, the next 8 of d, then both for 8 more batch rows.
        Self {
            weights_line: (32 * warp + lane % 16) * mma::ROW_BYTES,
            weights_chunk: (lane / 16) ^ (lane % 8),
            hidden_line: (lane % 8 + lane / 16 * 8) * mma::ROW_BYTES,
            hidden_chunk: (lane / 8 % 2) ^ (lane % 8),
        }
    }
}

/// Waits for the oldest slab under way.
#[inline(always)]
pub(super) fn wait_for_slab<const N_TILES: usize>() {
    if mma::stages(N_TILES as u32 * 8) == 5 {
        arch::copy_async_wait::<3>();
    } else {
        arch::copy_async_wait::<2>();
    }
}

/// Adds the products of the slab at shared address `at`.
///
/// # Safety
/// The stage holds a slab that every thread can see.
#[inline(always)]
pub(super) unsafe fn add_slab<E: MmaElement, const N_TILES: usize>(
    sums: &mut Sums<2, N_TILES>,
    at: u32,
    fragments: &Fragments,
) {
    let weights_at = at + fragments.weights_line;
    let hidden_at = at + TILE_V * mma::ROW_BYTES + fragments.hidden_line;
    let mut step = 0;
    while step < mma::TILE_D / K {
        // Two chunks of 16 bytes a step: the swizzle turns the sum into an exclusive or.
        let weights_row = weights_at + ((fragments.weights_chunk ^ (2 * step)) << 4);
        let hidden_row = hidden_at + ((fragments.hidden_chunk ^ (2 * step)) << 4);
        // SAFETY: both lie in the stage.
        unsafe {
            let a = [
                arch::load_matrix_x4(weights_row),
                arch::load_matrix_x4(weights_row + M_TILE_BYTES),
            ];
            if N_TILES == 1 {
                let b = arch::load_matrix_x2(hidden_row);
                E::mma(&mut sums[0][0], a[0], b);
                E::mma(&mut sums[1][0], a[1], b);
            } else {
                let mut n = 0;
                while n < N_TILES {
                    let b = arch::load_matrix_x4(hidden_row + n as u32 * 8 * mma::ROW_BYTES);
                    E::mma(&mut sums[0][n], a[0], [b[0], b[1]]);
                    E::mma(&mut sums[1][n], a[1], [b[0], b[1]]);
                    E::mma(&mut sums[0][n + 1], a[0], [b[2], b[3]]);
                    E::mma(&mut sums[1][n + 1], a[1], [b[2], b[3]]);
                    n += 2;
                }
            }
        }
        step += 1;
    }
}
