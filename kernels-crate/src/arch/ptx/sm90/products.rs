//! Products of warpgroups ("Asynchronous Warpgroup Level Matrix Instructions").

use core::arch::asm;

use crate::arch::ptx::anchor;

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

/// Upper half of a matrix descriptor: 128-byte swizzle, 1024 bytes from one group of
/// eight rows to the next ("Matrix Descriptor Format").
const DESCRIPTOR_HIGH: u32 = 0x4000_0040;

macro_rules! wgmma {
    ($($name:ident, $dtype:literal, $n:literal, $len:literal, [$($i:literal)*])*) => {$(
        /// `[64, N] += [64, 16]·[16, N]`, sums in f32 ("wgmma.mma_async").
        #[inline(always)]
        unsafe fn $name(sums: *mut f32, a: u32, b: u32) {
            // SAFETY: the caller passes `[f32; $len]`.
            let sums = unsafe { &mut *sums.cast::<[f32; $len]>() };
            anchor();
            // SAFETY: all threads of the warpgroup are present and the descriptors name
            // operands in shared memory, by the contract of `products`.
            unsafe {
                asm!(
                    "{{",
                    ".reg .pred accumulate;",
                    ".reg .b64 a, b;",
                    "mov.b64 a, {{{a}, {high}}};",
                    "mov.b64 b, {{{b}, {high}}};",
                    "setp.eq.b32 accumulate, 0, 0;",
                    concat!(
                        "wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $dtype, ".", $dtype,
                        " {{{0}", $(", {", $i, "}",)* "}}, a, b, accumulate, 1, 1, 0, 0;"
                    ),
                    "}}",
                    inout(reg32) sums[0],
                    $(inout(reg32) sums[$i],)*
                    a = in(reg32) a,
                    b = in(reg32) b,
                    high = const DESCRIPTOR_HIGH,
                    options(nostack)
                );
            }
        }
    )*};
}

macro_rules! wgmma_shapes {
    ($dtype:literal, $n8:ident, $n16:ident, $n32:ident, $n64:ident, $n96:ident, $n128:ident, $n160:ident, $n192:ident, $n224:ident, $n256:ident) => {
        wgmma! {
            $n8, $dtype, "8", 4, [
                1 2 3
            ]
            $n16, $dtype, "16", 8, [
                1 2 3 4 5 6 7
            ]
            $n32, $dtype, "32", 16, [
                1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
            ]
            $n64, $dtype, "64", 32, [
                1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
                30 31
            ]
            $n96, $dtype, "96", 48, [
                1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
                30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47
            ]
            $n128, $dtype, "128", 64, [
                1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
                30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55
                56 57 58 59 60 61 62 63
            ]
            $n160, $dtype, "160", 80, [
                1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
                30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55
                56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79
            ]
            $n192, $dtype, "192", 96, [
                1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
                30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55
                56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81
                82 83 84 85 86 87 88 89 90 91 92 93 94 95
            ]
            $n224, $dtype, "224", 112, [
                1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
                30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55
                56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81
                82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105
                106 107 108 109 110 111
            ]
            $n256, $dtype, "256", 128, [
                1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
                30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55
                56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81
                82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105
                106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125
                126 127
            ]
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
        /// `a` and `b` are lower halves of descriptors of slabs in shared memory. Nothing
        /// touches `sums` before a wait that covers the product's group.
        #[inline(always)]
        pub unsafe fn $name<const N_TILES: usize>(sums: &mut [[f32; 4]; N_TILES], a: u32, b: u32) {
            let sums = sums.as_mut_ptr().cast();
            // SAFETY: the shape is chosen by the array's length.
            unsafe {
                match N_TILES {
                    $($n_tiles => $shape(sums, a, b),)*
                    _ => crate::arch::trap(),
                }
            }
        }
    };
}

products!(
    /// `[64, 8·N_TILES] += [64, 16]·[16, 8·N_TILES]` in bf16.
    wgmma_bf16,
    1 => bf16_n8, 2 => bf16_n16, 4 => bf16_n32, 8 => bf16_n64, 12 => bf16_n96, 16 => bf16_n128, 20 => bf16_n160, 24 => bf16_n192, 28 => bf16_n224, 32 => bf16_n256
);
products!(
    /// `[64, 8·N_TILES] += [64, 16]·[16, 8·N_TILES]` in f16.
    wgmma_f16,
    1 => f16_n8, 2 => f16_n16, 4 => f16_n32, 8 => f16_n64, 12 => f16_n96, 16 => f16_n128, 20 => f16_n160, 24 => f16_n192, 28 => f16_n224, 32 => f16_n256
);
