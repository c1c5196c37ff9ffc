//! *Computes* the noise of consecutive words, each alone: what tests compare between machines.
//!
//! *Mapping*: a grid-stride loop over the words.

use crate::arch;
use crate::gumbel::{exponential, noise};

/// Writes `noise(first_word + i)` to `out[i]` for the `i < n` of one thread.
///
/// # Safety
/// `out` is valid for `n` values.
#[inline(always)]
pub unsafe fn write_noise(out: *mut f32, first_word: u32, n: u32, thread: u32, threads: u32) {
    let mut i = thread as u64;
    while i < n as u64 {
        // SAFETY: `i < n`.
        unsafe { out.add(i as usize).write(noise(exponential(first_word.wrapping_add(i as u32)))) };
        i += threads as u64;
    }
}

/// Sum of the digests of `n` words' noise, over the words of one thread. Wrapping
/// addition: the order of the words does not matter, their identity does.
#[inline(always)]
pub fn digest(first_word: u64, n: u64, thread: u64, threads: u64) -> u64 {
    let mut sum = 0u64;
    let mut i = thread;
    while i < n {
        let word = (first_word + i) as u32;
        sum =
            sum.wrapping_add(mix((word as u64) << 32 | noise(exponential(word)).to_bits() as u64));
        i += threads;
    }
    sum
}

/// Adds a thread's [`digest`] to `sum`.
///
/// # Safety
/// `sum` is valid for atomic access.
#[inline(always)]
pub unsafe fn add_digest(sum: *mut u64, first_word: u64, n: u64, thread: u64, threads: u64) {
    // SAFETY: the caller's promise.
    unsafe { arch::atomic_add(sum, digest(first_word, n, thread, threads)) };
}

/// The finaliser of MurmurHash3, a bijection of 64-bit words.
#[inline(always)]
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    x = (x ^ x >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    x ^ x >> 33
}
