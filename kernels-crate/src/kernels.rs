//! The kernels. Which variants each serves is in [`crate::abi::VARIANTS`].

#[cfg(target_arch = "nvptx64")]
mod admit;
pub mod finish;
pub mod log_sum_exp;
pub mod noise_probe;
pub mod rules;
pub mod sample_kept;
#[cfg(target_arch = "nvptx64")]
pub mod sample_mma;
pub mod sample_simt;
#[cfg(all(target_arch = "nvptx64", feature = "sm_90a"))]
pub mod sample_sm90;
#[cfg(target_arch = "nvptx64")]
mod schedule;
mod select;
#[cfg(target_arch = "nvptx64")]
mod sieve;

/// Moves every element one place down and the first to the end.
///
/// A register array must be indexed by constants. A loop whose body is too long to
/// unroll takes element 0 and rotates; after `N` rounds the array is as before.
#[inline(always)]
fn rotate<T: Copy, const N: usize>(array: &mut [T; N]) {
    let first = array[0];
    let mut i = 1;
    while i < N {
        array[i - 1] = array[i];
        i += 1;
    }
    array[N - 1] = first;
}
