//! Tokens and their mass, by rung or piece, as the threads of a block count them.

use crate::arch;
use crate::scale::RUNGS;

const RUNGS_LEN: usize = RUNGS as usize;

/// Places beyond the last bucket, for tokens that have none, or no mass: a lane has its own,
/// so that none waits for another.
const SPARE: usize = 32;

const LEN: usize = RUNGS_LEN + SPARE;

/// In shared memory.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct Histogram {
    /// Lower halves, then upper ones: so neighbours lie in different banks.
    pub(super) masses: [[u32; LEN]; 2],
    pub(super) counts: [u32; LEN],
}

impl Histogram {
    /// Adds tokens and their masses, each in its bucket if there is one. Nearly without a
    /// branch: few masses have an upper half.
    ///
    /// # Safety
    /// Threads of a block, in a leg of their own.
    #[inline(always)]
    pub(super) unsafe fn add<const N: usize>(
        histogram: *mut Self,
        thread: u32,
        buckets: [u32; N],
        masses: [u64; N],
    ) {
        let spare = RUNGS + thread % SPARE as u32;
        let [low, high, counts] = Self::parts(histogram);
        let (mut upper, mut i) = ([0; N], 0);
        // SAFETY: places are below the lengths.
        unsafe {
            while i < N {
                let bucket = if buckets[i] < RUNGS { buckets[i] } else { spare };
                arch::block_count(counts, bucket);
                let place = if masses[i] != 0 { bucket } else { spare };
                upper[i] = arch::block_add_low(low, place, masses[i]);
                i += 1;
            }
            if upper.iter().fold(0, |any, upper| any | upper) == 0 {
                return;
            }
            i = 0;
            while i < N {
                if upper[i] != 0 && buckets[i] < RUNGS {
                    arch::block_add_u32(high.add(buckets[i] as usize), upper[i]);
                }
                i += 1;
            }
        }
    }

    /// Mass and number of tokens of a bucket.
    ///
    /// # Safety
    /// There is one; nobody writes it meanwhile.
    #[inline(always)]
    pub(super) unsafe fn read(histogram: *const Self, bucket: u32) -> (u64, u32) {
        // SAFETY: the caller's promise.
        unsafe {
            let part = |part: *mut u32| part.add(bucket as usize).read();
            let [low, high, count] = Self::parts(histogram.cast_mut()).map(part);
            ((high as u64) << u32::BITS | low as u64, count)
        }
    }

    /// Makes them what they shall be.
    ///
    /// # Safety
    /// As [`Self::read`].
    #[inline(always)]
    pub(super) unsafe fn write(histogram: *mut Self, bucket: u32, mass: u64, count: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            let [low, high, counts] = Self::parts(histogram);
            low.add(bucket as usize).write(mass as u32);
            high.add(bucket as usize).write((mass >> u32::BITS) as u32);
            counts.add(bucket as usize).write(count);
        }
    }

    /// Lower halves, upper halves, counts.
    #[inline(always)]
    fn parts(histogram: *mut Self) -> [*mut u32; 3] {
        let first = histogram.cast::<u32>();
        [first, first.wrapping_add(LEN), first.wrapping_add(2 * LEN)]
    }
}
