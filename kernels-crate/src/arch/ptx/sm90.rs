//! Instructions of `sm_90a`: mbarriers, the tensor memory accelerator, clusters,
//! warpgroup products. Sources: PTX ISA 8.0, sections named at each function.

#![allow(named_asm_labels, reason = "PTX scopes labels by braces")]

use core::arch::asm;

use super::{anchor, thread_idx};

mod products;
pub use products::*;

/// Parameters of a tensor map: `CUtensorMap`, opaque.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct TensorMap([u64; 16]);

/// Prepares a barrier for phases of `arrivals` arrivals ("mbarrier.init").
///
/// # Safety
/// One thread calls it; `barrier` is an 8-byte aligned shared address.
#[inline(always)]
pub unsafe fn barrier_init(barrier: u32, arrivals: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("mbarrier.init.shared::cta.b64 [{}], {};",
             in(reg32) barrier, in(reg32) arrivals, options(nostack));
    }
}

/// Makes initialised barriers visible to the cluster and to the copy engine
/// ("fence.mbarrier_init", "fence.proxy.async").
#[inline(always)]
pub fn barrier_init_fence() {
    // SAFETY: no operands.
    unsafe {
        asm!(
            "fence.mbarrier_init.release.cluster;",
            "fence.proxy.async.shared::cta;",
            options(nostack)
        );
    }
}

/// Waits for the end of the barrier's phase of this parity ("mbarrier.try_wait").
///
/// # Safety
/// `barrier` is an initialised barrier.
#[inline(always)]
pub unsafe fn barrier_wait(barrier: u32, parity: u32) {
    anchor();
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "{{",
            ".reg .pred done;",
            "again:",
            "mbarrier.try_wait.parity.shared::cta.b64 done, [{}], {}, 0x989680;",
            "@done bra.uni leave;",
            "bra.uni again;",
            "leave:",
            "}}",
            in(reg32) barrier,
            in(reg32) parity,
            options(nostack)
        );
    }
    anchor();
}

/// One lane of the warp arrives at the barrier ("mbarrier.arrive").
///
/// # Safety
/// `barrier` is an initialised barrier.
#[inline(always)]
pub unsafe fn barrier_arrive(barrier: u32) {
    anchor();
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "{{",
            ".reg .pred one;",
            "elect.sync _|one, 0xffffffff;",
            "@one mbarrier.arrive.shared::cta.b64 _, [{}];",
            "}}",
            in(reg32) barrier,
            options(nostack)
        );
    }
}

/// The calling thread arrives at the barrier, and hands over what it wrote ("mbarrier.arrive").
///
/// # Safety
/// `barrier` is an initialised barrier.
#[inline(always)]
pub unsafe fn barrier_arrive_each(barrier: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("mbarrier.arrive.shared::cta.b64 _, [{}];", in(reg32) barrier, options(nostack));
    }
}

/// One lane of the warp arrives at the barrier at the same address in block `rank` of
/// the cluster ("mapa", "mbarrier.arrive").
///
/// # Safety
/// `barrier` is an initialised barrier there, and that block has not left.
#[inline(always)]
pub unsafe fn barrier_arrive_at(barrier: u32, rank: u32) {
    anchor();
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "{{",
            ".reg .pred one;",
            ".reg .u32 remote;",
            "mapa.shared::cluster.u32 remote, {}, {};",
            "elect.sync _|one, 0xffffffff;",
            "@one mbarrier.arrive.shared::cluster.b64 _, [remote];",
            "}}",
            in(reg32) barrier,
            in(reg32) rank,
            options(nostack)
        );
    }
}

/// One lane of the warp arrives and announces `bytes` of copies ("mbarrier.arrive.expect_tx").
///
/// # Safety
/// `barrier` is an initialised barrier; copies of exactly `bytes` complete on it.
#[inline(always)]
pub unsafe fn barrier_arrive_expect(barrier: u32, bytes: u32) {
    anchor();
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "{{",
            ".reg .pred one;",
            "elect.sync _|one, 0xffffffff;",
            "@one mbarrier.arrive.expect_tx.shared::cta.b64 _, [{}], {};",
            "}}",
            in(reg32) barrier,
            in(reg32) bytes,
            options(nostack)
        );
    }
}

/// The statement of a copy of a box, by one lane: modifiers, and the operands that they ask for.
macro_rules! one_lane_copies {
    ($modifiers:literal, $more:literal, $($operands:tt)*) => {
        asm!(
            "{{",
            ".reg .pred one;",
            "elect.sync _|one, 0xffffffff;",
            concat!(
                "@one cp.async.bulk.tensor.2d.shared::cluster.global.tile",
                ".mbarrier::complete_tx::bytes", $modifiers,
                " [{}], [{}, {{{}, {}}}], [{}]", $more, ";"
            ),
            "}}",
            $($operands)*
            options(nostack)
        )
    };
}

/// One lane of the warp starts the copy of a box to shared memory; it completes on
/// `barrier` ("cp.async.bulk.tensor"). Elements outside the tensor arrive as zeros.
///
/// # Safety
/// `map` is a tensor map's address, `target` a 1024-byte aligned shared address with
/// room for the box.
#[inline(always)]
pub unsafe fn copy_box(target: u32, map: u64, column: u32, row: i32, barrier: u32) {
    anchor();
    // SAFETY: the caller's promise.
    unsafe {
        one_lane_copies!(
            "", "",
            in(reg32) target,
            in(reg64) map,
            in(reg32) column,
            in(reg32) row,
            in(reg32) barrier,
        );
    }
}

/// [`copy_box`] of what is not read again, or soon: it is the first to leave the L2 cache, and what
/// is shared there stays ("createpolicy", `L2::evict_first`).
///
/// # Safety
/// As [`copy_box`].
#[inline(always)]
pub unsafe fn copy_box_once(target: u32, map: u64, column: u32, row: i32, barrier: u32) {
    /// What `createpolicy.fractional.L2::evict_first` makes for all of an access.
    const EVICT_FIRST: u64 = 0x12F0_0000_0000_0000;
    anchor();
    // SAFETY: the caller's promise.
    unsafe {
        one_lane_copies!(
            ".L2::cache_hint", ", {}",
            in(reg32) target,
            in(reg64) map,
            in(reg32) column,
            in(reg32) row,
            in(reg32) barrier,
            in(reg64) EVICT_FIRST,
        );
    }
}

/// [`copy_box`] to the same addresses in every block of the cluster named in `blocks`,
/// completing on each one's barrier.
///
/// # Safety
/// As [`copy_box`], in each of the blocks.
#[inline(always)]
pub unsafe fn copy_box_to(target: u32, map: u64, column: u32, row: i32, barrier: u32, blocks: u16) {
    anchor();
    // SAFETY: the caller's promise.
    unsafe {
        one_lane_copies!(
            ".multicast::cluster", ", {}",
            in(reg32) target,
            in(reg64) map,
            in(reg32) column,
            in(reg32) row,
            in(reg32) barrier,
            in(reg16) blocks,
        );
    }
}

/// Index of the block in its cluster ("%cluster_ctarank").
#[inline(always)]
pub fn cluster_rank() -> u32 {
    let rank;
    // SAFETY: reads a register.
    unsafe {
        asm!("mov.u32 {}, %cluster_ctarank;", out(reg32) rank,
             options(pure, nomem, nostack, preserves_flags));
    }
    rank
}

/// Where block `rank` of the cluster has what this one has at `own` in shared memory ("mapa").
#[inline(always)]
pub fn of_block<T>(own: *mut T, rank: u32) -> *mut T {
    let theirs;
    // SAFETY: arithmetic only.
    unsafe {
        asm!("mapa.u64 {}, {}, {};", out(reg64) theirs, in(reg64) own, in(reg32) rank,
             options(pure, nomem, nostack, preserves_flags));
    }
    theirs
}

/// Waits for all threads of the cluster ("barrier.cluster").
#[inline(always)]
pub fn cluster_barrier() {
    anchor();
    // SAFETY: all threads of the cluster arrive, by this function's contract.
    unsafe {
        asm!(
            "barrier.cluster.arrive.release.aligned;",
            "barrier.cluster.wait.acquire.aligned;",
            options(nostack)
        );
    }
}

/// [`cluster_barrier`] for blocks whose threads have met since they wrote what others shall see:
/// a fence of one of them speaks for all ("fence", "barrier.cluster").
#[inline(always)]
pub fn cluster_meet() {
    anchor();
    // SAFETY: all threads of the cluster arrive, by this function's contract.
    unsafe {
        asm!(
            "{{",
            ".reg .pred speaks;",
            "setp.eq.u32 speaks, {thread}, 0;",
            "@speaks fence.acq_rel.cluster;",
            "barrier.cluster.arrive.relaxed.aligned;",
            "barrier.cluster.wait.acquire.aligned;",
            "}}",
            thread = in(reg32) thread_idx(),
            options(nostack)
        );
    }
}

/// Waits until the grids before this one, in the stream or graph, have ended and what they
/// wrote can be seen ("griddepcontrol"). Nothing to wait for unless the launch has allowed
/// this grid to start before.
#[inline(always)]
pub fn dependencies_wait() {
    // SAFETY: no operands.
    unsafe { asm!("griddepcontrol.wait;", options(nostack)) }
}

/// Lets the next grid start once every block has said so, if its launch allows that
/// ("griddepcontrol").
#[inline(always)]
pub fn dependents_launch() {
    // SAFETY: no operands.
    unsafe { asm!("griddepcontrol.launch_dependents;", options(nostack)) }
}

/// Gives registers of the warpgroup back, down to `KEEP` a thread ("setmaxnreg").
#[inline(always)]
pub fn registers_release<const KEEP: u32>() {
    anchor();
    // SAFETY: all threads of the warpgroup are present, by this function's contract.
    unsafe { asm!("setmaxnreg.dec.sync.aligned.u32 {};", const KEEP, options(nostack)) }
}

/// Waits for registers for the warpgroup, up to `WANT` a thread ("setmaxnreg").
#[inline(always)]
pub fn registers_acquire<const WANT: u32>() {
    anchor();
    // SAFETY: all threads of the warpgroup are present, by this function's contract.
    unsafe { asm!("setmaxnreg.inc.sync.aligned.u32 {};", const WANT, options(nostack)) }
}

/// Address of an entry's parameter in place: `&parameter` would be a local copy, which
/// the copy engine cannot read ("cvta", "Kernel Function Parameters").
#[macro_export]
#[doc(hidden)]
macro_rules! parameter_address {
    ($entry:ident, $index:literal) => {{
        let address: u64;
        // SAFETY: names a parameter of the entry this stands in.
        unsafe {
            core::arch::asm!(
                concat!("mov.b64 {0}, ", stringify!($entry), "_param_", $index, ";"),
                "cvta.param.u64 {0}, {0};",
                out(reg64) address,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        address
    }};
}
pub use crate::parameter_address;
