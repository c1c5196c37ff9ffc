//! A block's parts of the rows that its cluster finishes from few tokens: gathered, and brought
//! together.

use super::crew::{Crew, add};
use super::row;
use super::view::{Four, TOGETHER};
use crate::abi::kept::{CLUSTER as LARGEST_CLUSTER, KeptParams, THREADS};
use crate::arch::{self, LANES};
use crate::candidate::Key;
use crate::dims::ceil_div;
use crate::kernels::select::select;

/// Fours of a thread that are on their way together.
const READ: usize = 4;

const FOUR: u32 = TOGETHER as u32;

/// Tokens from a thread's fours to its next.
const STEP: u32 = READ as u32 * FOUR * THREADS;

/// The block's part of every row: its first token, and the next one's.
#[inline(always)]
pub(super) fn part_of<const CLUSTER: u32>(params: &KeptParams, rank: u32) -> (u32, u32) {
    // Opaque: what follows would be computed before all rows, and cost registers.
    let (vocab, rank) = (arch::opaque(params.sample.vocab), arch::opaque(rank));
    let part = ceil_div(vocab as u64, (FOUR * CLUSTER) as u64) as u32 * FOUR;
    let begin = core::cmp::min(rank * part, vocab);
    (begin, core::cmp::min(begin + part, vocab))
}

/// Leg: gathers the keys of the thread's tokens from `floor` on, of the block's part of a row, as
/// far as there is room, and counts them.
///
/// # Safety
/// The row's values are there; there is room for `most` keys, and a counter.
#[inline(always)]
pub(super) unsafe fn gather(
    params: &KeptParams,
    (row, (begin, end)): (u32, (u32, u32)),
    floor: f32,
    (keys, most, n): (*mut Key, u32, *mut u32),
    thread: u32,
) {
    // SAFETY: the values are there, and a row's memory ends with a whole four.
    unsafe {
        let values = row::values_of(params, row);
        let read = |at: u32| {
            let mut read = [Four([f32::NEG_INFINITY; TOGETHER]); READ];
            let mut i = 0;
            while i < READ {
                let first = at + i as u32 * FOUR * THREADS;
                if first < end {
                    read[i] = values.add(first as usize).cast::<Four>().read();
                }
                i += 1;
            }
            read
        };
        // False for NaN and `−inf`.
        let floor = if floor > f32::MIN { floor } else { f32::MIN };
        let mut at = begin + FOUR * thread;
        let mut next = read(at);
        while at < end {
            let (own, own_at) = (next, at);
            at += STEP;
            // On their way while these are looked at.
            next = read(at);
            let (mut found, mut i) = (0, 0);
            while i < READ {
                let first = own_at + i as u32 * FOUR * THREADS;
                // Beyond the row may lie anything.
                let there = (1 << core::cmp::min(end.saturating_sub(first), FOUR)) - 1;
                let mut reached = 0;
                let mut k = 0;
                while k < TOGETHER {
                    reached |= ((own[i].0[k] >= floor) as u32) << k;
                    k += 1;
                }
                found |= (reached & there) << (i as u32 * FOUR);
                i += 1;
            }
            if found == 0 {
                continue;
            }
            let mut place = arch::block_add_u32(n, found.count_ones());
            while found != 0 {
                let bit = found.trailing_zeros();
                found &= found - 1;
                let index = own_at + bit / FOUR * FOUR * THREADS + bit % FOUR;
                if place < most {
                    let four = select(READ, bit / FOUR, |i| own[i].0);
                    let [y] = select(TOGETHER, bit % FOUR, |k| [four[k]]);
                    keys.add(place as usize).write(Key::of_value(y, index));
                }
                place += 1;
            }
        }
    }
}

/// Brings together what all blocks have gathered of the block's row, as many keys each as they have
/// told in `told`, and tells how many keys those are; none if there was not enough room.
///
/// # Safety
/// All threads of the block; behind a meeting of the cluster.
#[inline(always)]
pub(super) unsafe fn collect<const CLUSTER: u32>(
    crew: &Crew<1>,
    (told, rank): (*mut u32, u32),
    (parts, of_each): (*mut Key, u32),
    (keys, most): (*mut Key, u32),
) -> Option<u32> {
    // SAFETY: the caller's promise: a part has room for `of_each` keys.
    unsafe {
        let count = |of| arch::of_block(told, of).add(rank as usize).read();
        let give = |of| [count(of) as u64, (count(of) > of_each) as u64];
        let [n, misfits] = arch::warp_combine(CLUSTER, give, add);
        if misfits > 0 || n > most as u64 {
            return None;
        }
        // A block alone has gathered them where they are to be.
        if CLUSTER != 1 {
            crew.leg(|thread| {
                // Of each block a warp or two take the keys.
                let (of, lane) = (thread / LANES % CLUSTER, thread % LANES);
                let earlier = |other| [if other < of { count(other) as u64 } else { 0 }];
                let [before] = arch::warp_combine(CLUSTER, earlier, add);
                let (theirs, n) = (arch::of_block(parts, of), count(of));
                let to = keys.add(before as usize);
                let mut at = thread / (LANES * CLUSTER) * LANES + lane;
                while at < n {
                    to.add(at as usize).write(theirs.add(at as usize).read());
                    at += THREADS / CLUSTER;
                }
            });
        }
        Some(n as u32)
    }
}

const _: () = assert!(THREADS.is_multiple_of(LANES * LARGEST_CLUSTER));
