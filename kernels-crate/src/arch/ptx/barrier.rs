//! Where threads meet. Sources: PTX ISA 8.0, sections named at each function.

use core::arch::asm;

use super::{anchor, block_dim, thread_idx};

/// Waits for all threads of the block ("bar, barrier").
#[inline(always)]
pub fn block_barrier() {
    anchor();
    // SAFETY: all threads of the block arrive, by this function's contract.
    unsafe { asm!("bar.sync 0;", options(nostack)) }
}

/// Waits for the `threads` threads that meet at named barrier `barrier` ("bar").
#[inline(always)]
pub fn warps_barrier(barrier: u32, threads: u32) {
    anchor();
    // SAFETY: whole warps arrive, by this function's contract.
    unsafe { asm!("bar.sync {}, {};", in(reg32) barrier, in(reg32) threads, options(nostack)) }
}

/// Whether `condition` holds in any of the `threads` threads that meet at named barrier
/// `barrier` ("bar.red").
#[inline(always)]
pub fn warps_any(condition: bool, barrier: u32, threads: u32) -> bool {
    let any: u32;
    anchor();
    // SAFETY: whole warps arrive, by this function's contract.
    unsafe {
        asm!(
            "{{",
            ".reg .pred mine, any;",
            "setp.ne.u32 mine, {mine}, 0;",
            "bar.red.or.pred any, {barrier}, {threads}, mine;",
            "selp.u32 {any}, 1, 0, any;",
            "}}",
            mine = in(reg32) condition as u32,
            barrier = in(reg32) barrier,
            threads = in(reg32) threads,
            any = out(reg32) any,
            options(nostack)
        );
    }
    any != 0
}

/// In how many of the `threads` threads that meet at named barrier `barrier` `condition`
/// holds ("bar.red").
#[inline(always)]
pub fn warps_count(condition: bool, barrier: u32, threads: u32) -> u32 {
    let count;
    anchor();
    // SAFETY: whole warps arrive, by this function's contract.
    unsafe {
        asm!(
            "{{",
            ".reg .pred mine;",
            "setp.ne.u32 mine, {mine}, 0;",
            "bar.red.popc.u32 {count}, {barrier}, {threads}, mine;",
            "}}",
            mine = in(reg32) condition as u32,
            barrier = in(reg32) barrier,
            threads = in(reg32) threads,
            count = out(reg32) count,
            options(nostack)
        );
    }
    count
}

/// Adds `count` to the counter at `done` for the block, after all its earlier
/// writes, and tells every thread whether that completes `total`.
///
/// # Safety
/// `done` is a valid global address.
#[inline(always)]
pub unsafe fn block_arrive(done: *mut u32, count: u32, total: u32) -> bool {
    // SAFETY: the caller's promise.
    unsafe { warps_arrive((0, block_dim()), thread_idx(), done, count, total) }
}

/// [`block_arrive`] for the threads that meet at a named barrier: its name, and how many
/// they are; `thread` counts them from 0. Whoever completes the total sees the writes of
/// all the others ("bar.red", "atom", "fence").
///
/// # Safety
/// `done` is a valid global address.
#[inline(always)]
pub unsafe fn warps_arrive(
    (barrier, threads): (u32, u32),
    thread: u32,
    done: *mut u32,
    count: u32,
    total: u32,
) -> bool {
    let complete: u32;
    anchor();
    // SAFETY: the caller's promise; whole warps arrive, all that meet there.
    unsafe {
        asm!(
            "{{",
            ".reg .pred first, last;",
            ".reg .u32 sum;",
            "mov.u32 sum, 0;",
            "setp.eq.u32 first, {thread}, 0;",
            "bar.sync {barrier}, {threads};",
            "@first fence.acq_rel.gpu;",
            "@first atom.add.acq_rel.gpu.global.u32 sum, [{done}], {count};",
            "@first fence.acq_rel.gpu;",
            "add.u32 sum, sum, {count};",
            "setp.eq.and.u32 last, sum, {total}, first;",
            "bar.red.or.pred last, {barrier}, {threads}, last;",
            "selp.u32 {complete}, 1, 0, last;",
            "}}",
            barrier = in(reg32) barrier,
            threads = in(reg32) threads,
            thread = in(reg32) thread,
            done = in(reg64) done,
            count = in(reg32) count,
            total = in(reg32) total,
            complete = out(reg32) complete,
            options(nostack)
        );
    }
    complete != 0
}
