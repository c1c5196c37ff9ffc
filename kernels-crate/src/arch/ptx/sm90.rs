//! Instructions of `sm_90a`: mbarriers, the tensor memory accelerator, clusters,
//! warpgroup products. Sources: PTX ISA 8.0, sections named at each function.

#![allow(named_asm_labels, reason = "PTX scopes labels by braces")]

use core::arch::asm;

use super::anchor;

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
        asm!(
            "{{",
            ".reg .pred one;",
            "elect.sync _|one, 0xffffffff;",
            concat!(
                "@one cp.async.bulk.tensor.2d.shared::cluster.global.tile",
                ".mbarrier::complete_tx::bytes [{}], [{}, {{{}, {}}}], [{}];"
            ),
            "}}",
            in(reg32) target,
            in(reg64) map,
            in(reg32) column,
            in(reg32) row,
            in(reg32) barrier,
            options(nostack)
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
        asm!(
            "{{",
            ".reg .pred one;",
            "elect.sync _|one, 0xffffffff;",
            concat!(
                "@one cp.async.bulk.tensor.2d.shared::cluster.global.tile",
                ".mbarrier::complete_tx::bytes.multicast::cluster ",
                "[{}], [{}, {{{}, {}}}], [{}], {};"
            ),
            "}}",
            in(reg32) target,
            in(reg64) map,
            in(reg32) column,
            in(reg32) row,
            in(reg32) barrier,
            in(reg16) blocks,
            options(nostack)
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

/// Orders register accesses before the next products ("wgmma.fence").
#[inline(always)]
pub fn products_fence() {
    anchor();
    // SAFETY: all threads of the warpgroup are present, by this function's contract.
    unsafe { asm!("wgmma.fence.sync.aligned;", options(nostack)) }
}

/// Closes the group of products issued since the last ("wgmma.commit_group").
#[inline(always)]
pub fn products_commit() {
    anchor();
    // SAFETY: all threads of the warpgroup are present, by this function's contract.
    unsafe { asm!("wgmma.commit_group.sync.aligned;", options(nostack)) }
}

/// Waits until at most `PENDING` groups of products are under way ("wgmma.wait_group").
#[inline(always)]
pub fn products_wait<const PENDING: u32>() {
    anchor();
    // SAFETY: all threads of the warpgroup are present, by this function's contract.
    unsafe { asm!("wgmma.wait_group.sync.aligned {};", const PENDING, options(nostack)) }
}

macro_rules! wgmma {
    ($($name:ident, $dtype:literal, $n:literal, $len:literal, [$($i:literal)*])*) => {$(
        /// `[64, N] (+)= [64, 16]·[16, N]`, sums in f32 ("wgmma.mma_async").
        #[inline(always)]
        unsafe fn $name(sums: *mut f32, a: u64, b: u64, accumulate: u32) {
            // SAFETY: the caller passes `[f32; $len]`.
            let sums = unsafe { &mut *sums.cast::<[f32; $len]>() };
            anchor();
            // SAFETY: all threads of the warpgroup are present and the descriptors name
            // operands in shared memory, by the contract of `products`.
            unsafe {
                asm!(
                    "{{",
                    ".reg .pred accumulate;",
                    "setp.ne.b32 accumulate, {accumulate}, 0;",
                    concat!(
                        "wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $dtype, ".", $dtype,
                        " {{{0}", $(", {", $i, "}",)* "}}, {a}, {b}, accumulate, 1, 1, 0, 0;"
                    ),
                    "}}",
                    inout(reg32) sums[0],
                    $(inout(reg32) sums[$i],)*
                    a = in(reg64) a,
                    b = in(reg64) b,
                    accumulate = in(reg32) accumulate,
                    options(nostack)
                );
            }
        }
    )*};
}

macro_rules! wgmma_shapes {
    ($dtype:literal, $n8:ident, $n16:ident, $n32:ident, $n64:ident, $n96:ident, $n128:ident, $n160:ident, $n192:ident, $n224:ident, $n256:ident) => {
        wgmma! {
            $n8, $dtype, "8", 4,
                [1 2 3]
            $n16, $dtype, "16", 8,
                [1 2 3 4 5 6 7]
            $n32, $dtype, "32", 16,
                [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]
            $n64, $dtype, "64", 32,
                [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30
                31]
            $n96, $dtype, "96", 48,
                [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
                32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47]
            $n128, $dtype, "128", 64,
                [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
                32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54
                55 56 57 58 59 60 61 62 63]
            $n160, $dtype, "160", 80,
                [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
                32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54
                55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77
                78 79]
            $n192, $dtype, "192", 96,
                [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
                32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54
                55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77
                78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95]
            $n224, $dtype, "224", 112,
                [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
                32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54
                55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77
                78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99
                100 101 102 103 104 105 106 107 108 109 110 111]
            $n256, $dtype, "256", 128,
                [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
                32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54
                55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77
                78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99
                100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116
                117 118 119 120 121 122 123 124 125 126 127]
        }
    };
}

wgmma_shapes!(
    "bf16", bf16_n8, bf16_n16, bf16_n32, bf16_n64, bf16_n96, bf16_n128, bf16_n160, bf16_n192,
    bf16_n224, bf16_n256
);
wgmma_shapes!(
    "f16", f16_n8, f16_n16, f16_n32, f16_n64, f16_n96, f16_n128, f16_n160, f16_n192, f16_n224,
    f16_n256
);

macro_rules! products {
    ($(#[$doc:meta])* $name:ident, $($n_tiles:literal => $shape:ident),*) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The descriptors name slabs in shared memory. Nothing touches `sums` before a
        /// wait that covers the product's group.
        #[inline(always)]
        pub unsafe fn $name<const N_TILES: usize>(
            sums: &mut [[f32; 4]; N_TILES],
            a: u64,
            b: u64,
            accumulate: bool,
        ) {
            let sums = sums.as_mut_ptr().cast();
            // SAFETY: the shape is chosen by the array's length.
            unsafe {
                match N_TILES {
                    $($n_tiles => $shape(sums, a, b, accumulate as u32),)*
                    _ => super::trap(),
                }
            }
        }
    };
}

products!(
    /// `[64, 8·N_TILES] (+)= [64, 16]·[16, 8·N_TILES]` in bf16.
    wgmma_bf16,
    1 => bf16_n8, 2 => bf16_n16, 4 => bf16_n32, 8 => bf16_n64, 12 => bf16_n96, 16 => bf16_n128, 20 => bf16_n160, 24 => bf16_n192, 28 => bf16_n224, 32 => bf16_n256);
products!(
    /// `[64, 8·N_TILES] (+)= [64, 16]·[16, 8·N_TILES]` in f16.
    wgmma_f16,
    1 => f16_n8, 2 => f16_n16, 4 => f16_n32, 8 => f16_n64, 12 => f16_n96, 16 => f16_n128, 20 => f16_n160, 24 => f16_n192, 28 => f16_n224, 32 => f16_n256);
