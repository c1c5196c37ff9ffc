//! One block as a loop over its threads. Blocks may run in parallel: what they
//! share in the workspace is atomic here too.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::abi::simt::THREADS;

/// State that each thread of a block keeps from leg to leg.
pub struct PerThread<T>([T; THREADS as usize]);

impl<T: Copy> PerThread<T> {
    /// Every thread starts with `value`.
    pub fn new(value: T) -> Self {
        Self([value; THREADS as usize])
    }
}

/// Runs a leg for every thread of the block.
#[inline(always)]
pub fn leg<T>(states: &mut PerThread<T>, mut run: impl FnMut(u32, &mut T)) {
    for (thread, state) in (0..).zip(&mut states.0) {
        run(thread, state);
    }
}

/// Adds `count` to the counter at `done` for the block, after all its earlier
/// writes, and tells whether that completes `total`.
///
/// # Safety
/// `done` is valid for atomic access.
#[inline(always)]
pub unsafe fn block_arrive(done: *mut u32, count: u32, total: u32) -> bool {
    // SAFETY: the caller's promise.
    let done = unsafe { AtomicU32::from_ptr(done) };
    done.fetch_add(count, Ordering::AcqRel) + count == total
}

/// Raises the value at `at` to at least `value`; returns what was there.
///
/// # Safety
/// `at` is valid for atomic access.
#[inline(always)]
pub unsafe fn atomic_max(at: *mut u64, value: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(at) }.fetch_max(value, Ordering::Relaxed)
}

/// [`atomic_max`] for who does not ask what was there.
///
/// # Safety
/// `at` is valid for atomic access.
#[inline(always)]
pub unsafe fn raise(at: *mut u64, value: u64) {
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(at) }.fetch_max(value, Ordering::Relaxed);
}

/// Sets bits of the value at `at`.
///
/// # Safety
/// `at` is valid for atomic access.
#[inline(always)]
pub unsafe fn atomic_or(at: *mut u32, bits: u32) {
    // SAFETY: the caller's promise.
    unsafe { AtomicU32::from_ptr(at) }.fetch_or(bits, Ordering::Relaxed);
}

/// Reads a value that other blocks may be changing.
///
/// # Safety
/// `at` is valid for atomic access.
#[inline(always)]
pub unsafe fn load_shared_u64(at: *const u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(at.cast_mut()) }.load(Ordering::Relaxed)
}

/// Reads a value that other blocks may have changed.
///
/// # Safety
/// `at` is valid for atomic access.
#[inline(always)]
pub unsafe fn load_shared_u32(at: *const u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU32::from_ptr(at.cast_mut()) }.load(Ordering::Relaxed)
}

/// Adds to the value at `at`, wrapping.
///
/// # Safety
/// `at` is valid for atomic access.
#[inline(always)]
pub unsafe fn atomic_add(at: *mut u64, value: u64) {
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(at) }.fetch_add(value, Ordering::Relaxed);
}
