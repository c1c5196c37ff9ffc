//! Sixteen f32 lanes on each kind of CPU, under the same names.
//!
//! Methods are always inlined into functions that enable the instructions they use;
//! see [`super::variant`].

use half::{bf16, f16};

/// Lanes of every variant, whatever its registers hold: the order of summation is
/// then the same wherever multiply-add is fused.
pub(super) const LANES: usize = 16;

/// Sixteen values in memory, aligned to a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Chunk(pub(super) [f32; LANES]);

/// Sixteen values in registers.
pub(super) trait Lanes: Copy {
    /// # Safety
    /// The caller enables this type's instructions; so for every method.
    unsafe fn zero() -> Self;
    /// # Safety
    /// As [`Lanes::zero`].
    unsafe fn from_f32(values: &[f32; LANES]) -> Self;
    /// Exact.
    /// # Safety
    /// As [`Lanes::zero`].
    unsafe fn from_bf16(values: &[bf16; LANES]) -> Self;
    /// Exact, subnormals too.
    /// # Safety
    /// As [`Lanes::zero`].
    unsafe fn from_f16(values: &[f16; LANES]) -> Self;
    /// `self + a · b`.
    /// # Safety
    /// As [`Lanes::zero`].
    unsafe fn add_product(self, a: Self, b: Self) -> Self;
    /// The sum, by halves: lanes `i` and `i + 8` first, at last 0 and 1.
    /// # Safety
    /// As [`Lanes::zero`].
    unsafe fn sum(self) -> f32;
    /// Asks for a cache line; any address will do.
    fn prefetch(at: *const u8);
}

/// An element of a matrix as lanes.
pub(super) trait Widen: Copy + Default + Sync {
    /// Sixteen consecutive elements; exact.
    /// # Safety
    /// The caller enables the instructions of `L`.
    unsafe fn widen<L: Lanes>(values: &[Self; LANES]) -> L;
}

impl Widen for bf16 {
    #[inline(always)]
    unsafe fn widen<L: Lanes>(values: &[Self; LANES]) -> L {
        // SAFETY: the caller's promise.
        unsafe { L::from_bf16(values) }
    }
}

impl Widen for f16 {
    #[inline(always)]
    unsafe fn widen<L: Lanes>(values: &[Self; LANES]) -> L {
        // SAFETY: the caller's promise.
        unsafe { L::from_f16(values) }
    }
}

impl Widen for f32 {
    #[inline(always)]
    unsafe fn widen<L: Lanes>(values: &[Self; LANES]) -> L {
        // SAFETY: the caller's promise.
        unsafe { L::from_f32(values) }
    }
}

/// Lanes as an array: any CPU; multiplies, then adds, each rounded.
#[derive(Clone, Copy)]
pub(super) struct Portable([f32; LANES]);

impl Lanes for Portable {
    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.0; LANES])
    }

    #[inline(always)]
    unsafe fn from_f32(values: &[f32; LANES]) -> Self {
        Self(*values)
    }

    #[inline(always)]
    unsafe fn from_bf16(values: &[bf16; LANES]) -> Self {
        Self(values.map(|value| f32::from_bits(u32::from(value.to_bits()) << 16)))
    }

    #[inline(always)]
    unsafe fn from_f16(values: &[f16; LANES]) -> Self {
        Self(values.map(widen_f16))
    }

    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + a.0[i] * b.0[i]))
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        let mut lanes = self.0;
        let mut n = LANES / 2;
        while n > 0 {
            for i in 0..n {
                lanes[i] += lanes[i + n];
            }
            n /= 2;
        }
        lanes[0]
    }

    #[inline(always)]
    fn prefetch(_: *const u8) {}
}

/// Without branches, so that a loop of it becomes vector instructions.
#[inline(always)]
fn widen_f16(value: f16) -> f32 {
    /// `2¹¹²`: the difference of the two formats' exponent biases.
    const REBIAS: f32 = f32::from_bits((112 + 127) << 23);
    const EXPONENT: u32 = 0x7F80_0000;
    let bits = u32::from(value.to_bits());
    let sign = (bits & 0x8000) << 16;
    let magnitude = bits & 0x7FFF;
    // Subnormals become normal in the product, which is exact.
    let finite = (f32::from_bits(magnitude << 13) * REBIAS).to_bits();
    // Infinities and NaNs keep their mantissa.
    let special = if magnitude >= 0x7C00 { EXPONENT } else { 0 };
    f32::from_bits(sign | finite | special)
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use half::{bf16, f16};

    use super::{LANES, Lanes};

    /// Two registers of eight: AVX2, FMA and F16C.
    #[derive(Clone, Copy)]
    pub(in crate::cpu) struct Avx2([__m256; 2]);

    impl Lanes for Avx2 {
        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller enables AVX2.
            unsafe { Self([_mm256_setzero_ps(); 2]) }
        }

        #[inline(always)]
        unsafe fn from_f32(values: &[f32; LANES]) -> Self {
            let at = values.as_ptr();
            // SAFETY: sixteen values are readable; the caller enables AVX2.
            unsafe { Self([_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))]) }
        }

        #[inline(always)]
        unsafe fn from_bf16(values: &[bf16; LANES]) -> Self {
            let at = values.as_ptr().cast::<__m128i>();
            // SAFETY: sixteen values are readable; the caller enables AVX2.
            unsafe {
                let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(at));
                let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.add(1)));
                Self([
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)),
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high)),
                ])
            }
        }

        #[inline(always)]
        unsafe fn from_f16(values: &[f16; LANES]) -> Self {
            let at = values.as_ptr().cast::<__m128i>();
            // SAFETY: sixteen values are readable; the caller enables F16C.
            unsafe {
                Self([
                    _mm256_cvtph_ps(_mm_loadu_si128(at)),
                    _mm256_cvtph_ps(_mm_loadu_si128(at.add(1))),
                ])
            }
        }

        #[inline(always)]
        unsafe fn add_product(self, a: Self, b: Self) -> Self {
            // SAFETY: the caller enables FMA.
            unsafe {
                Self([
                    _mm256_fmadd_ps(a.0[0], b.0[0], self.0[0]),
                    _mm256_fmadd_ps(a.0[1], b.0[1], self.0[1]),
                ])
            }
        }

        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            // SAFETY: the caller enables AVX2.
            unsafe { sum_of_8(_mm256_add_ps(self.0[0], self.0[1])) }
        }

        #[inline(always)]
        fn prefetch(at: *const u8) {
            // SAFETY: a prefetch does not fault.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }
    }

    /// By halves.
    #[inline(always)]
    unsafe fn sum_of_8(lanes: __m256) -> f32 {
        // SAFETY: the caller enables AVX2.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<0b01>(two, two)))
        }
    }

    /// One register of sixteen: AVX-512 F.
    ///
    /// `vdpbf16ps` of AVX-512 BF16 is not used: it flushes subnormals.
    #[derive(Clone, Copy)]
    pub(in crate::cpu) struct Avx512(__m512);

    impl Lanes for Avx512 {
        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller enables AVX-512.
            unsafe { Self(_mm512_setzero_ps()) }
        }

        #[inline(always)]
        unsafe fn from_f32(values: &[f32; LANES]) -> Self {
            // SAFETY: sixteen values are readable; the caller enables AVX-512.
            unsafe { Self(_mm512_loadu_ps(values.as_ptr())) }
        }

        #[inline(always)]
        unsafe fn from_bf16(values: &[bf16; LANES]) -> Self {
            // SAFETY: sixteen values are readable; the caller enables AVX-512.
            unsafe {
                let halves = _mm256_loadu_si256(values.as_ptr().cast());
                Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves))))
            }
        }

        #[inline(always)]
        unsafe fn from_f16(values: &[f16; LANES]) -> Self {
            // SAFETY: sixteen values are readable; the caller enables AVX-512.
            unsafe { Self(_mm512_cvtph_ps(_mm256_loadu_si256(values.as_ptr().cast()))) }
        }

        #[inline(always)]
        unsafe fn add_product(self, a: Self, b: Self) -> Self {
            // SAFETY: the caller enables AVX-512.
            unsafe { Self(_mm512_fmadd_ps(a.0, b.0, self.0)) }
        }

        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            // SAFETY: the caller enables AVX-512.
            unsafe {
                let low = _mm512_castps512_ps256(self.0);
                let high = _mm512_extractf32x8_ps::<1>(self.0);
                sum_of_8(_mm256_add_ps(low, high))
            }
        }

        #[inline(always)]
        fn prefetch(at: *const u8) {
            // SAFETY: a prefetch does not fault.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums whose last bits depend on their order.
    #[test]
    fn every_kind_sums_in_the_same_order() {
        let mut sensitive = 0;
        for seed in 0..100 {
            let values: [f32; LANES] =
                std::array::from_fn(|i| ((seed * 31 + i) * 7_919 % 1_000) as f32 / 7.0 - 70.0);
            // SAFETY: the portable lanes need no instructions, the others are tested for.
            unsafe {
                let expected = Portable::from_f32(&values).sum();
                sensitive += usize::from(expected != values.iter().sum::<f32>());
                #[cfg(target_arch = "x86_64")]
                {
                    if is_x86_feature_detected!("avx2") {
                        assert_eq!(Avx2::from_f32(&values).sum(), expected);
                    }
                    if is_x86_feature_detected!("avx512dq") {
                        assert_eq!(Avx512::from_f32(&values).sum(), expected);
                    }
                }
            }
        }
        assert!(sensitive > 50, "{sensitive} of 100 depend on their order");
    }

    #[test]
    fn every_f16_widens_exactly() {
        for bits in 0..=u16::MAX {
            let value = f16::from_bits(bits);
            let (ours, theirs) = (widen_f16(value), value.to_f32());
            if value.is_nan() {
                assert!(ours.is_nan(), "{bits:#x}");
            } else {
                assert_eq!(ours.to_bits(), theirs.to_bits(), "{bits:#x}");
            }
        }
    }
}
