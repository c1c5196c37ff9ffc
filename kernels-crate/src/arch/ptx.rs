//! One function per instruction: the only place with PTX text.
//!
//! Neither code generator knows that `asm!` may be convergent, so LLVM may copy a
//! barrier, shuffle or matrix instruction into both sides of a branch. Every
//! `.sync` or `.aligned` instruction here therefore follows [`anchor`], an LLVM
//! intrinsic that *is* convergent and costs nothing (ptxas removes it). Call these
//! functions with all lanes of the warp present, and branch around them only on
//! values that are the same in the whole warp.
//!
//! Sources: PTX ISA 8.0, sections named at each function.

use core::arch::asm;

mod barrier;
mod block;
mod divisor;
#[cfg(feature = "sm_90a")]
mod sm90;
mod tensor;
mod warp;
pub use barrier::*;
pub use block::*;
pub use divisor::Divisor;
#[cfg(feature = "sm_90a")]
pub use sm90::*;
pub use tensor::*;
pub use warp::*;

unsafe extern "C" {
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn bar_warp_sync(mask: u32);
}

/// All lanes of a warp.
const FULL_WARP: u32 = 0xFFFF_FFFF;

/// Keeps the next `asm!` in one place of the control flow.
#[inline(always)]
fn anchor() {
    // SAFETY: every function that calls this requires all lanes to be present.
    unsafe { bar_warp_sync(FULL_WARP) }
}

macro_rules! special_register {
    ($(#[$doc:meta])* $name:ident, $text:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() -> u32 {
            let value;
            // SAFETY: reads a register.
            unsafe {
                asm!(concat!("mov.u32 {}, ", $text, ";"), out(reg32) value,
                     options(pure, nomem, nostack, preserves_flags));
            }
            value
        }
    };
}

special_register!(
    /// Index of the thread in its block.
    thread_idx, "%tid.x");
special_register!(
    /// Threads of the block.
    block_dim, "%ntid.x");
special_register!(
    /// Index of the block in the grid.
    block_idx, "%ctaid.x");
special_register!(
    /// Blocks of the grid.
    grid_dim, "%nctaid.x");

/// `value`, of which the compiler knows nothing: a loop to it stays a loop ("mov").
#[inline(always)]
pub fn opaque(value: u32) -> u32 {
    let mut value = value;
    // SAFETY: moves a register.
    unsafe { asm!("mov.b32 {0}, {0};", inout(reg32) value, options(nomem, nostack)) };
    value
}

/// `pointer.wrapping_add(n)`, of which the compiler knows nothing: a chain of these stays one
/// ("mov").
#[inline(always)]
pub fn advance(pointer: *mut f32, n: usize) -> *mut f32 {
    let mut pointer = pointer.wrapping_add(n);
    // SAFETY: moves a register.
    unsafe { asm!("mov.b64 {0}, {0};", inout(reg64) pointer, options(nomem, nostack)) };
    pointer
}

/// State that each thread of a block keeps from leg to leg.
pub struct PerThread<T, const THREADS: usize>(T);

impl<T: Copy, const THREADS: usize> PerThread<T, THREADS> {
    /// Every thread starts with `value`.
    #[inline(always)]
    pub fn new(value: T) -> Self {
        Self(value)
    }
}

/// Runs a leg in every thread of the block, then waits for all of them.
#[inline(always)]
pub fn leg<T, const THREADS: usize>(
    states: &mut PerThread<T, THREADS>,
    mut run: impl FnMut(u32, &mut T),
) {
    run(thread_idx(), &mut states.0);
    block_barrier();
}

/// Raises the value at `at` to at least `value`; returns what was there ("atom").
///
/// # Safety
/// `at` is a valid global address.
#[inline(always)]
pub unsafe fn atomic_max(at: *mut u64, value: u64) -> u64 {
    let before;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("atom.relaxed.gpu.global.max.u64 {}, [{}], {};",
             out(reg64) before, in(reg64) at, in(reg64) value, options(nostack));
    }
    before
}

/// [`atomic_max`] for who does not ask what was there: nothing waits ("red").
///
/// # Safety
/// `at` is a valid global address.
#[inline(always)]
pub unsafe fn raise(at: *mut u64, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("red.relaxed.gpu.global.max.u64 [{}], {};",
             in(reg64) at, in(reg64) value, options(nostack));
    }
}

/// Sets bits of the value at `at` ("red").
///
/// # Safety
/// `at` is a valid global address.
#[inline(always)]
pub unsafe fn atomic_or(at: *mut u32, bits: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("red.relaxed.gpu.global.or.b32 [{}], {};",
             in(reg64) at, in(reg32) bits, options(nostack));
    }
}

/// Adds to the value at `at`, wrapping; returns what was there ("atom").
///
/// # Safety
/// `at` is a valid global address.
#[inline(always)]
pub unsafe fn atomic_add_u32(at: *mut u32, value: u32) -> u32 {
    let before;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("atom.relaxed.gpu.global.add.u32 {}, [{}], {};",
             out(reg32) before, in(reg64) at, in(reg32) value, options(nostack));
    }
    before
}

/// [`atomic_add_u32`] for who does not ask what was there: nothing waits ("red").
///
/// # Safety
/// `at` is a valid global address.
#[inline(always)]
pub unsafe fn increase(at: *mut u32, value: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("red.relaxed.gpu.global.add.u32 [{}], {};",
             in(reg64) at, in(reg32) value, options(nostack));
    }
}

/// Adds to the value at `at`, wrapping ("red").
///
/// # Safety
/// `at` is a valid global address.
#[inline(always)]
pub unsafe fn atomic_add(at: *mut u64, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("red.relaxed.gpu.global.add.u64 [{}], {};",
             in(reg64) at, in(reg64) value, options(nostack));
    }
}

/// Reads a value that other blocks may be changing ("ld", relaxed: past the L1 cache).
///
/// # Safety
/// `at` is a valid global address.
#[inline(always)]
pub unsafe fn load_shared_u64(at: *const u64) -> u64 {
    let value;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ld.relaxed.gpu.global.u64 {}, [{}];",
             out(reg64) value, in(reg64) at, options(nostack));
    }
    value
}

/// Reads a value that other blocks may have changed ("ld", relaxed).
///
/// # Safety
/// `at` is a valid global address.
#[inline(always)]
pub unsafe fn load_shared_u32(at: *const u32) -> u32 {
    let value;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ld.relaxed.gpu.global.u32 {}, [{}];",
             out(reg32) value, in(reg64) at, options(nostack));
    }
    value
}

/// Reads four values, each of which other blocks may be changing ("ld", relaxed).
///
/// # Safety
/// `at` is a valid global address of four, and a multiple of their size.
#[inline(always)]
pub unsafe fn load_shared_4(at: *const u32) -> [u32; 4] {
    let (a, b, c, d);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ld.relaxed.gpu.global.v4.u32 {{{}, {}, {}, {}}}, [{}];",
             out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) at,
             options(nostack));
    }
    [a, b, c, d]
}

/// Reads two values together, each of which other blocks may be changing ("ld", relaxed).
///
/// # Safety
/// `at` is a valid global address of two, and a multiple of their size.
#[inline(always)]
pub unsafe fn load_shared_2_u64(at: *const u64) -> [u64; 2] {
    let (a, b);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ld.relaxed.gpu.global.v2.u64 {{{}, {}}}, [{}];",
             out(reg64) a, out(reg64) b, in(reg64) at, options(nostack));
    }
    [a, b]
}

/// Index of the block in its cluster: before `sm_90` a block is one by itself.
#[cfg(not(feature = "sm_90a"))]
#[inline(always)]
pub fn cluster_rank() -> u32 {
    0
}

/// Where block `rank` of the cluster has what this one has at `own` in shared memory.
#[cfg(not(feature = "sm_90a"))]
#[inline(always)]
pub fn of_block<T>(own: *mut T, _rank: u32) -> *mut T {
    own
}

/// Waits for all threads of the cluster.
#[cfg(not(feature = "sm_90a"))]
#[inline(always)]
pub fn cluster_meet() {
    block_barrier();
}

/// Waits until the grids before this one have ended: without programmatic launches they have.
#[cfg(not(feature = "sm_90a"))]
#[inline(always)]
pub fn dependencies_wait() {}

/// The block's dynamic shared memory.
#[inline(always)]
pub fn dynamic_shared() -> *mut u8 {
    dynamic_shared::base()
}

/// Its declaration, which the code generators spell differently.
mod dynamic_shared {
    /// Aligned for the 16-byte accesses of `cp.async` and `ldmatrix`.
    #[repr(C, align(16))]
    struct Base([u8; 0]);

    // Our linker gives a zero-size static in this section no size of its own.
    #[cfg(not(feature = "codegen-rust-cuda"))]
    #[unsafe(link_section = ".shared")]
    static mut DYNAMIC_SHARED: Base = Base([]);

    // An external static, whose alignment Rust-CUDA drops: `xtask` restores it in
    // the PTX.
    #[cfg(feature = "codegen-rust-cuda")]
    unsafe extern "C" {
        #[nvvm_internal::addrspace(3)]
        static mut DYNAMIC_SHARED: Base;
    }

    #[inline(always)]
    pub(super) fn base() -> *mut u8 {
        (&raw mut DYNAMIC_SHARED).cast()
    }
}

/// The 32-bit shared-window address of a pointer to shared memory ("cvta").
#[inline(always)]
pub fn shared_address(pointer: *const u8) -> u32 {
    let address;
    // SAFETY: arithmetic only.
    unsafe {
        asm!(
            "{{",
            ".reg .u64 window;",
            "cvta.to.shared.u64 window, {1};",
            "cvt.u32.u64 {0}, window;",
            "}}",
            out(reg32) address,
            in(reg64) pointer,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    address
}

/// The greater of two values, or NaN if either is ("max.NaN").
#[inline(always)]
pub fn max_or_nan(a: f32, b: f32) -> f32 {
    let greater;
    // SAFETY: arithmetic only.
    unsafe {
        asm!("max.NaN.f32 {}, {}, {};", out(reg32) greater, in(reg32) a, in(reg32) b,
             options(pure, nomem, nostack, preserves_flags));
    }
    greater
}

/// `2^x`, off by 2⁻²² of itself at most; 0 below the normal numbers ("ex2", approx.ftz).
#[inline(always)]
pub fn exp2_approx(x: f32) -> f32 {
    let power;
    // SAFETY: arithmetic only.
    unsafe {
        asm!("ex2.approx.ftz.f32 {}, {};", out(reg32) power, in(reg32) x,
             options(pure, nomem, nostack, preserves_flags));
    }
    power
}

/// Where `condition` holds, raises the value at the shared address `at` to at least `value`,
/// by the order of integers: signed for positive values, unsigned and reversed for
/// negative ones ("red"). Predicates, no branch.
///
/// # Safety
/// `at` is a valid shared address; neither value is NaN or −0.
#[inline(always)]
pub unsafe fn atomic_max_shared(at: u32, value: f32, condition: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "{{",
            ".reg .pred raises, positive, negative;",
            "setp.ne.u32 raises, {condition}, 0;",
            "setp.ge.and.s32 positive, {value}, 0, raises;",
            "setp.lt.and.s32 negative, {value}, 0, raises;",
            "@positive red.relaxed.cta.shared.max.s32 [{at}], {value};",
            "@negative red.relaxed.cta.shared.min.u32 [{at}], {value};",
            "}}",
            at = in(reg32) at,
            value = in(reg32) value.to_bits(),
            condition = in(reg32) condition as u32,
            options(nostack)
        );
    }
}

/// Stops the kernel with an error ("trap").
pub fn trap() -> ! {
    // SAFETY: does not return.
    unsafe { asm!("trap;", options(noreturn, nostack)) }
}
