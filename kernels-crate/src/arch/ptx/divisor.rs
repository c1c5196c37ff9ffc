//! Division without a branch. Sources: PTX ISA 8.0, sections named at each function.

use core::arch::asm;

use crate::quotient::{quotient, reciprocal};

/// A divisor, and what its quotients have in common.
#[derive(Clone, Copy, Debug)]
pub struct Divisor {
    value: f32,
    reciprocal: f32,
}

impl Divisor {
    /// For a divisor in the range of [`quotient`].
    #[inline(always)]
    pub fn new(value: f32) -> Self {
        Self { value, reciprocal: 1.0 / value }
    }

    /// For one from 1 to 1.5, without a branch.
    #[inline(always)]
    pub fn above_one(value: f32) -> Self {
        Self { value, reciprocal: reciprocal(value, near_reciprocal(value), fma) }
    }

    /// `a` over the divisor, both in the range of [`quotient`].
    #[inline(always)]
    pub fn divide(self, a: f32) -> f32 {
        quotient(a, self.value, self.reciprocal, fma)
    }
}

/// The fused multiply-add ("fma").
#[inline(always)]
fn fma(a: f32, b: f32, c: f32) -> f32 {
    let result;
    // SAFETY: arithmetic only.
    unsafe {
        asm!("fma.rn.f32 {}, {}, {}, {};", out(reg32) result, in(reg32) a, in(reg32) b,
             in(reg32) c, options(pure, nomem, nostack, preserves_flags));
    }
    result
}

/// The reciprocal, off by a unit in the last place at most ("rcp").
#[inline(always)]
fn near_reciprocal(value: f32) -> f32 {
    let result;
    // SAFETY: arithmetic only.
    unsafe {
        asm!("rcp.approx.ftz.f32 {}, {};", out(reg32) result, in(reg32) value,
             options(pure, nomem, nostack, preserves_flags));
    }
    result
}
