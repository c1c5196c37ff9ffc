//! Instructions that the lanes of a warp execute together. Sources: PTX ISA 8.0, sections
//! named at each function.

use core::arch::asm;

use super::anchor;

/// The value of lane `lane` ("shfl.sync").
#[inline(always)]
pub fn shuffle_from(value: u32, lane: u32) -> u32 {
    let theirs;
    anchor();
    // SAFETY: all lanes are present, by the module's contract.
    unsafe {
        asm!("shfl.sync.idx.b32 {}, {}, {}, 0x1f, 0xffffffff;", out(reg32) theirs,
             in(reg32) value, in(reg32) lane, options(nomem, nostack, preserves_flags));
    }
    theirs
}

/// Waits for all lanes of the warp and orders their shared memory ("bar.warp.sync").
#[inline(always)]
pub fn warp_barrier() {
    anchor();
}

/// The bits that any lane of the warp has set ("redux.sync").
#[inline(always)]
pub fn warp_or(bits: u32) -> u32 {
    let all;
    anchor();
    // SAFETY: all lanes are present, by the module's contract.
    unsafe {
        asm!("redux.sync.or.b32 {}, {}, 0xffffffff;", out(reg32) all, in(reg32) bits,
             options(nomem, nostack, preserves_flags));
    }
    all
}

/// A bit for each lane of the warp whose condition holds ("vote.sync").
#[inline(always)]
pub fn warp_ballot(condition: bool) -> u32 {
    let lanes;
    anchor();
    // SAFETY: all lanes are present, by the module's contract.
    unsafe {
        asm!(
            "{{",
            ".reg .pred holds;",
            "setp.ne.u32 holds, {}, 0;",
            "vote.sync.ballot.b32 {}, holds, 0xffffffff;",
            "}}",
            in(reg32) condition as u32,
            out(reg32) lanes,
            options(nomem, nostack, preserves_flags)
        );
    }
    lanes
}
