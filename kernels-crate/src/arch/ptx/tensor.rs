//! Instructions of tensor-core kernels: copies to shared memory that run ahead, and
//! products of matrices.

use core::arch::asm;

use super::anchor;

/// Starts a copy of 16 bytes to shared memory, the last `16 − bytes` of them zeros
/// ("cp.async"). `source` is not read past `bytes`.
///
/// # Safety
/// `target` is a 16-byte aligned shared address of the block, `source` a 16-byte
/// aligned global address valid for `bytes ≤ 16`.
#[inline(always)]
pub unsafe fn copy_async_16(target: u32, source: *const u8, bytes: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("cp.async.cg.shared.global.L2::128B [{}], [{}], 16, {};",
             in(reg32) target, in(reg64) source, in(reg32) bytes, options(nostack));
    }
}

/// Closes the group of copies started since the last ("cp.async.commit_group").
#[inline(always)]
pub fn copy_async_commit() {
    // SAFETY: no operands.
    unsafe { asm!("cp.async.commit_group;", options(nostack)) }
}

/// Waits until at most `PENDING` of the thread's groups are under way
/// ("cp.async.wait_group").
#[inline(always)]
pub fn copy_async_wait<const PENDING: u32>() {
    // SAFETY: no operands.
    unsafe { asm!("cp.async.wait_group {};", const PENDING, options(nostack)) }
}

/// Four 8×8 matrices of 16-bit elements; lane `8·i + j` gives the address of row `j`
/// of matrix `i` ("ldmatrix").
///
/// # Safety
/// Every lane's `row` is a 16-byte aligned shared address of the block.
#[inline(always)]
pub unsafe fn load_matrix_x4(row: u32) -> [u32; 4] {
    let (m0, m1, m2, m3);
    anchor();
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{}, {}, {}, {}}}, [{}];",
             out(reg32) m0, out(reg32) m1, out(reg32) m2, out(reg32) m3,
             in(reg32) row, options(nostack));
    }
    [m0, m1, m2, m3]
}

/// Two 8×8 matrices of 16-bit elements, addressed by lanes 0 to 15 ("ldmatrix").
///
/// # Safety
/// As [`load_matrix_x4`].
#[inline(always)]
pub unsafe fn load_matrix_x2(row: u32) -> [u32; 2] {
    let (m0, m1);
    anchor();
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{{}, {}}}, [{}];",
             out(reg32) m0, out(reg32) m1, in(reg32) row, options(nostack));
    }
    [m0, m1]
}

macro_rules! mma {
    ($(#[$doc:meta])* $name:ident, $dtype:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(sums: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
            anchor();
            let [d0, d1, d2, d3] = sums;
            // SAFETY: registers only; all lanes are present, by the module's contract.
            unsafe {
                asm!(
                    concat!(
                        "mma.sync.aligned.m16n8k16.row.col.f32.", $dtype, ".", $dtype, ".f32 ",
                        "{{{d0}, {d1}, {d2}, {d3}}}, {{{a0}, {a1}, {a2}, {a3}}}, {{{b0}, {b1}}}, ",
                        "{{{d0}, {d1}, {d2}, {d3}}};"
                    ),
                    d0 = inout(reg32) *d0,
                    d1 = inout(reg32) *d1,
                    d2 = inout(reg32) *d2,
                    d3 = inout(reg32) *d3,
                    a0 = in(reg32) a[0],
                    a1 = in(reg32) a[1],
                    a2 = in(reg32) a[2],
                    a3 = in(reg32) a[3],
                    b0 = in(reg32) b[0],
                    b1 = in(reg32) b[1],
                    options(nomem, nostack, preserves_flags)
                );
            }
        }
    };
}

mma!(
    /// `[16, 8] += [16, 16]·[16, 8]` in bf16, summed in f32 ("mma", m16n8k16).
    mma_bf16, "bf16");
mma!(
    /// `[16, 8] += [16, 16]·[16, 8]` in f16, summed in f32 ("mma", m16n8k16).
    mma_f16, "f16");
