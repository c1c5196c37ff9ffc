//! The variants: one body, compiled for each set of instructions and chosen at run time.
//!
//! Only what is inlined into the body gets its instructions. So loops over tokens are
//! loops: `for_each`, `fold`, `sum` and an `Option`'s `map_or` may remain functions of their
//! own, compiled for any CPU.

use std::sync::atomic::{AtomicU32, Ordering};

use flash_sampling_kernels::abi::n_tiles_v;

use super::kept::Kept;
#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::lanes::{Lanes, Portable, Widen};
use super::tile::{Call, Worker, sample_tile};
use crate::error::{Need, Unmet};
use crate::params::SamplingParams;
use crate::problem::Problem;

/// A way to compute on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CpuVariant {
    /// The portable GPU kernel, run natively in the calling thread: slow, and the
    /// reference.
    Reference,
    /// Any CPU.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, CD, DQ and VL.
    Avx512,
}

impl CpuVariant {
    /// All of them, least preferred first.
    pub const ALL: [Self; 4] = [Self::Reference, Self::Portable, Self::Avx2, Self::Avx512];

    /// Stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reference => "cpu_reference",
            Self::Portable => "cpu_portable",
            Self::Avx2 => "cpu_avx2",
            Self::Avx512 => "cpu_avx512",
        }
    }

    /// Whether this CPU can run it.
    pub fn available(self) -> bool {
        self.unmet().is_none()
    }

    /// The fastest that this CPU can run.
    pub fn fastest() -> Self {
        let available = Self::ALL.into_iter().rev().find(|variant| variant.available());
        available.unwrap_or(Self::Portable)
    }

    /// What this CPU lacks for it.
    pub(crate) fn unmet(self) -> Option<Unmet> {
        let (need, has) = match self {
            Self::Reference | Self::Portable => return None,
            Self::Avx2 => (Need::Avx2, has_avx2()),
            Self::Avx512 => (Need::Avx512, has_avx512()),
        };
        (!has).then_some(Unmet { need, limit: 1, found: 0 })
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

/// Samples tiles that `next_tile` hands out until there are no more.
///
/// # Safety
/// `variant` is available; the call's slices have the problem's sizes.
pub(super) unsafe fn sample_tiles<E: Widen>(
    variant: CpuVariant,
    call: &Call<'_, E>,
    next_tile: &AtomicU32,
    worker: &mut Worker,
) {
    // SAFETY: an available variant's instructions were detected.
    unsafe {
        match variant {
            #[cfg(target_arch = "x86_64")]
            CpuVariant::Avx2 => avx2(call, next_tile, worker),
            #[cfg(target_arch = "x86_64")]
            CpuVariant::Avx512 => avx512(call, next_tile, worker),
            _ => run::<Portable, E, 1, 2, 4>(call, next_tile, worker),
        }
    }
}

/// Finishes a row whose values are all there.
///
/// # Safety
/// `variant` is available.
pub(super) unsafe fn finish_row(
    variant: CpuVariant,
    problem: &Problem,
    rows: &[SamplingParams],
    kept: &mut Kept,
) {
    // SAFETY: an available variant's instructions were detected.
    unsafe {
        match variant {
            #[cfg(target_arch = "x86_64")]
            CpuVariant::Avx2 => finish_avx2(problem, rows, kept),
            #[cfg(target_arch = "x86_64")]
            CpuVariant::Avx512 => finish_avx512(problem, rows, kept),
            _ => kept.finish(problem, rows),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn finish_avx2(problem: &Problem, rows: &[SamplingParams], kept: &mut Kept) {
    kept.finish(problem, rows);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
fn finish_avx512(problem: &Problem, rows: &[SamplingParams], kept: &mut Kept) {
    kept.finish(problem, rows);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn avx2<E: Widen>(call: &Call<'_, E>, next_tile: &AtomicU32, worker: &mut Worker) {
    // SAFETY: this function enables AVX2, FMA and F16C.
    unsafe { run::<Avx2, E, 1, 2, 4>(call, next_tile, worker) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
fn avx512<E: Widen>(call: &Call<'_, E>, next_tile: &AtomicU32, worker: &mut Worker) {
    // SAFETY: this function enables AVX-512.
    unsafe { run::<Avx512, E, 2, 4, 8>(call, next_tile, worker) }
}

/// # Safety
/// As [`sample_tile`].
#[inline(always)]
unsafe fn run<L, E, const R: usize, const FEW: usize, const MANY: usize>(
    call: &Call<'_, E>,
    next_tile: &AtomicU32,
    worker: &mut Worker,
) where
    L: Lanes,
    E: Widen,
{
    let n_tiles = n_tiles_v(call.problem.first_token(), call.problem.vocab());
    loop {
        let tile = next_tile.fetch_add(1, Ordering::Relaxed);
        if tile >= n_tiles {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { sample_tile::<L, E, R, FEW, MANY>(call, tile, worker) };
    }
}
