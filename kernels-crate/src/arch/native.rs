//! One block as a loop over its threads. Blocks may run in parallel: what they
//! share in the workspace is atomic here too.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// State that each thread of a block keeps from leg to leg.
pub struct PerThread<T, const THREADS: usize>([T; THREADS]);

impl<T: Copy, const THREADS: usize> PerThread<T, THREADS> {
    /// Every thread starts with `value`.
    pub fn new(value: T) -> Self {
        Self([value; THREADS])
    }
}

/// Runs a leg for every thread of the block.
#[inline(always)]
pub fn leg<T, const THREADS: usize>(
    states: &mut PerThread<T, THREADS>,
    mut run: impl FnMut(u32, &mut T),
) {
    for (thread, state) in (0..).zip(&mut states.0) {
        run(thread, state);
    }
}

/// `value`; where a loop must stay a loop it says so.
#[inline(always)]
pub fn opaque(value: u32) -> u32 {
    value
}

/// A divisor; on a GPU, with what its quotients have in common.
#[derive(Clone, Copy, Debug)]
pub struct Divisor(f32);

impl Divisor {
    /// For a divisor in the range of `quotient`.
    #[inline(always)]
    pub fn new(value: f32) -> Self {
        Self(value)
    }

    /// For one from 1 to 1.5.
    #[inline(always)]
    pub fn above_one(value: f32) -> Self {
        Self(value)
    }

    /// `a` over the divisor, both in the range of `quotient`.
    #[inline(always)]
    pub fn divide(self, a: f32) -> f32 {
        a / self.0
    }
}

/// Combines what the block's `THREADS` threads give, in any order.
///
/// # Safety
/// `slots` has room for an element a warp, and is the block's.
#[inline(always)]
pub unsafe fn block_reduce<const N: usize, const THREADS: usize>(
    _slots: *mut [u64; N],
    mut give: impl FnMut(u32) -> [u64; N],
    combine: impl Fn([u64; N], [u64; N]) -> [u64; N],
) -> [u64; N] {
    let mut all = give(0);
    for thread in 1..THREADS as u32 {
        all = combine(all, give(thread));
    }
    all
}

/// Hands each of the block's `THREADS` threads the sum of what those before it give, and
/// what it gave itself.
///
/// # Safety
/// As [`block_reduce`].
#[inline(always)]
pub unsafe fn block_scan<const THREADS: usize>(
    _slots: *mut u64,
    mut give: impl FnMut(u32) -> u64,
    mut take: impl FnMut(u32, u64, u64),
) {
    let mut before = 0;
    for thread in 0..THREADS as u32 {
        let own = give(thread);
        take(thread, before, own);
        before += own;
    }
}

/// Combines what `give` tells of each of `count` things, in any order.
///
/// # Safety
/// None here.
#[inline(always)]
pub unsafe fn warp_combine<const N: usize>(
    count: u32,
    give: impl Fn(u32) -> [u64; N],
    combine: impl Fn([u64; N], [u64; N]) -> [u64; N],
) -> [u64; N] {
    (1..count).fold(give(0), |all, i| combine(all, give(i)))
}

/// Copies `BYTES`.
///
/// # Safety
/// Both are valid for them.
#[inline(always)]
pub unsafe fn copy_to_block<const BYTES: u32>(target: *mut f32, source: *const f32) {
    // SAFETY: the caller's promise.
    unsafe { target.cast::<u8>().copy_from(source.cast(), BYTES as usize) }
}

/// Copies are done at once.
#[inline(always)]
pub fn copies_wait() {}

/// Index of the block in its cluster: a block is one by itself.
#[inline(always)]
pub fn cluster_rank() -> u32 {
    0
}

/// Where block `rank` of the cluster has what this one has at `own`: it is this one.
#[inline(always)]
pub fn of_block<T>(own: *mut T, _rank: u32) -> *mut T {
    own
}

/// Waits for all threads of the cluster.
#[inline(always)]
pub fn cluster_meet() {}

/// Waits until what came before has ended: it has.
#[inline(always)]
pub fn dependencies_wait() {}

/// Adds to a value that the block shares; returns what was there.
///
/// # Safety
/// `at` is valid.
#[inline(always)]
pub unsafe fn block_add_u32(at: *mut u32, value: u32) -> u32 {
    // SAFETY: the caller's promise; a block is one thread here.
    unsafe {
        let before = at.read();
        at.write(before.wrapping_add(value));
        before
    }
}

/// `pointer.wrapping_add(n)`.
#[inline(always)]
pub fn advance(pointer: *mut f32, n: usize) -> *mut f32 {
    pointer.wrapping_add(n)
}

/// Sets bits of a word that the block shares.
///
/// # Safety
/// `at` is valid.
#[inline(always)]
pub unsafe fn block_or_u32(at: *mut u32, bits: u32) {
    // SAFETY: the caller's promise; a block is one thread here.
    unsafe { at.write(at.read() | bits) };
}

/// Adds 1 to value `at` of those that the block shares.
///
/// # Safety
/// `values` is valid for more than `at`.
#[inline(always)]
pub unsafe fn block_count(values: *mut u32, at: u32) {
    // SAFETY: the caller's promise.
    unsafe { block_add_u32(values.add(at as usize), 1) };
}

/// Adds the lower half of `value` to value `at` of those that the block shares; returns the
/// upper half, one more if there is a carry.
///
/// # Safety
/// `values` is valid for more than `at`.
#[inline(always)]
pub unsafe fn block_add_low(values: *mut u32, at: u32, value: u64) -> u32 {
    // SAFETY: the caller's promise.
    let before = unsafe { block_add_u32(values.add(at as usize), value as u32) };
    let (_, carries) = before.overflowing_add(value as u32);
    (value >> u32::BITS) as u32 + carries as u32
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

/// `2^x`.
#[inline(always)]
pub fn exp2_approx(x: f32) -> f32 {
    let of_size = crate::mass::decay(-x.abs() * core::f32::consts::LN_2);
    if x > 0.0 { 1.0 / of_size } else { of_size }
}

/// Reads four values, each of which other blocks may be changing.
///
/// # Safety
/// `at` is valid for atomic access to four, and a multiple of their size.
#[inline(always)]
pub unsafe fn load_shared_4(at: *const u32) -> [u32; 4] {
    // SAFETY: the caller's promise.
    [0, 1, 2, 3].map(|i| unsafe { load_shared_u32(at.add(i)) })
}

/// Reads two values, each of which other threads may be changing.
///
/// # Safety
/// `at` is valid for atomic access to two.
#[inline(always)]
pub unsafe fn load_shared_2_u64(at: *const u64) -> [u64; 2] {
    // SAFETY: the caller's promise.
    [0, 1].map(|i| unsafe { load_shared_u64(at.add(i)) })
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
