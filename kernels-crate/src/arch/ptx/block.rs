//! What the threads of a block find out together. Sources: PTX ISA 8.0, sections named at
//! each function.

use core::arch::asm;

use crate::arch::LANES;

use super::{block_barrier, opaque, shared_address, shuffle_from, thread_idx};

/// Combines what the block's `THREADS` threads give, in any order; all get the result.
///
/// # Safety
/// All threads; `slots` has room for an element a warp, and is the block's.
#[inline(always)]
pub unsafe fn block_reduce<const N: usize, const THREADS: usize>(
    slots: *mut [u64; N],
    mut give: impl FnMut(u32) -> [u64; N],
    combine: impl Fn([u64; N], [u64; N]) -> [u64; N],
) -> [u64; N] {
    let thread = own_thread();
    let (warp, lane) = (thread / LANES, thread % LANES);
    let mut mine = give(thread);
    let mut distance = opaque(LANES / 2);
    while distance != 0 {
        mine = combine(mine, mine.map(|word| shuffle_u64(word, lane ^ distance)));
        distance /= 2;
    }
    // SAFETY: the caller's promise; barriers part the writes from the reads.
    unsafe {
        if lane == 0 {
            slots.add(warp as usize).write(mine);
        }
        block_barrier();
        let warps = THREADS as u32 / LANES;
        let all = warp_combine(warps, |warp| slots.add(warp as usize).read(), combine);
        block_barrier();
        all
    }
}

/// Hands each of the block's `THREADS` threads the sum of what those before it give, and
/// what it gave itself; then waits for all of them.
///
/// # Safety
/// As [`block_reduce`].
#[inline(always)]
pub unsafe fn block_scan<const THREADS: usize>(
    slots: *mut u64,
    mut give: impl FnMut(u32) -> u64,
    mut take: impl FnMut(u32, u64, u64),
) {
    let thread = own_thread();
    let (warp, lane) = (thread / LANES, thread % LANES);
    let own = give(thread);
    let mut sum = own;
    let (mut distance, lanes) = (1, opaque(LANES));
    while distance < lanes {
        let before = shuffle_u64(sum, lane.wrapping_sub(distance) % LANES);
        sum += if lane >= distance { before } else { 0 };
        distance *= 2;
    }
    // SAFETY: the caller's promise; barriers part the writes from the reads.
    unsafe {
        if lane == LANES - 1 {
            slots.add(warp as usize).write(sum);
        }
        block_barrier();
        let mut before = sum - own;
        let (mut earlier, warps) = (0, opaque(THREADS as u32 / LANES));
        while earlier < warps {
            let theirs = slots.add(earlier as usize).read();
            before += if earlier < warp { theirs } else { 0 };
            earlier += 1;
        }
        take(thread, before, own);
    }
    block_barrier();
}

/// Combines what `give` tells of each of `count` things, a power of two up to a warp's lanes,
/// in any order: each lane asks for one of them.
///
/// # Safety
/// Whole warps.
#[inline(always)]
pub unsafe fn warp_combine<const N: usize>(
    count: u32,
    give: impl Fn(u32) -> [u64; N],
    combine: impl Fn([u64; N], [u64; N]) -> [u64; N],
) -> [u64; N] {
    let lane = own_thread() % LANES;
    let mut all = give(lane % count);
    let mut distance = opaque(count / 2);
    while distance != 0 {
        all = combine(all, all.map(|word| shuffle_u64(word, lane ^ distance)));
        distance /= 2;
    }
    all
}

/// Starts to copy an element to shared memory, or four at once, as `BYTES` says
/// ("cp.async").
///
/// # Safety
/// Both are valid for `BYTES`, 4 or 16, and aligned to them; nobody touches the target before
/// [`copies_wait`] and a barrier.
#[inline(always)]
pub unsafe fn copy_to_block<const BYTES: u32>(target: *mut f32, source: *const f32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("cp.async.ca.shared.global [{}], [{}], {};",
             in(reg32) shared_address(target.cast()), in(reg64) source, const BYTES,
             options(nostack));
    }
}

/// Waits for the thread's own copies ("cp.async.wait_all").
#[inline(always)]
pub fn copies_wait() {
    // SAFETY: waits.
    unsafe { asm!("cp.async.wait_all;", options(nostack)) }
}

/// Index of the thread; opaque, or what follows from it in each leg of a long kernel would
/// be computed ahead and cost registers until then.
#[inline(always)]
fn own_thread() -> u32 {
    opaque(thread_idx())
}

/// The value of lane `lane`, in two halves.
#[inline(always)]
fn shuffle_u64(value: u64, lane: u32) -> u64 {
    let low = shuffle_from(value as u32, lane);
    let high = shuffle_from((value >> 32) as u32, lane);
    (high as u64) << 32 | low as u64
}

/// Adds to a value in shared memory; returns what was there ("atom").
///
/// # Safety
/// `at` is a valid shared pointer.
#[inline(always)]
pub unsafe fn block_add_u32(at: *mut u32, value: u32) -> u32 {
    let before;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("atom.relaxed.cta.shared.add.u32 {}, [{}], {};", out(reg32) before,
             in(reg32) shared_address(at.cast()), in(reg32) value, options(nostack));
    }
    before
}

/// Sets bits of a word in shared memory ("red").
///
/// # Safety
/// `at` is a valid shared pointer.
#[inline(always)]
pub unsafe fn block_or_u32(at: *mut u32, bits: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("red.relaxed.cta.shared.or.b32 [{}], {};",
             in(reg32) shared_address(at.cast()), in(reg32) bits, options(nostack));
    }
}

/// Adds 1 to value `at` of those in shared memory ("red").
///
/// # Safety
/// `values` is a valid shared pointer to more than `at`.
#[inline(always)]
pub unsafe fn block_count(values: *mut u32, at: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("red.relaxed.cta.shared.add.u32 [{}], 1;",
             in(reg32) element_address(values, at), options(nostack));
    }
}

/// Adds the lower half of `value` to value `at` of those in shared memory; returns the upper
/// half, one more if there is a carry ("atom"). So 64-bit sums grow by halves: of the whole the
/// instruction is a loop.
///
/// # Safety
/// `values` is a valid shared pointer to more than `at`.
#[inline(always)]
pub unsafe fn block_add_low(values: *mut u32, at: u32, value: u64) -> u32 {
    let upper;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "{{",
            ".reg .u32 low, high, before, after;",
            "mov.b64 {{low, high}}, {value};",
            "atom.relaxed.cta.shared.add.u32 before, [{at}], low;",
            "add.cc.u32 after, before, low;",
            "addc.u32 {upper}, high, 0;",
            "}}",
            at = in(reg32) element_address(values, at),
            value = in(reg64) value,
            upper = out(reg32) upper,
            options(nostack)
        );
    }
    upper
}

/// The shared address of value `at` of those at `values`.
#[inline(always)]
fn element_address(values: *mut u32, at: u32) -> u32 {
    shared_address(values.cast()).wrapping_add(at * size_of::<u32>() as u32)
}
