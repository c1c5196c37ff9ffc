//! The rows of a cluster that few of their values may serve, where the sampling kernel has summed
//! up their weights: as many at a time as there are blocks. Each block guesses a floor for one of
//! them; all gather, each of its part of every row; and each finishes its own.

use super::THREADS_LEN;
use super::crew::{Crew, block_of, key};
use super::nucleus::{self, Guess};
use super::view::{Four, TOGETHER};
use crate::abi::kept::{CLUSTER as LARGEST_CLUSTER, KeptParams, THREADS};
use crate::arch;
use crate::candidate::Key;
use crate::dims::ceil_div;
use crate::kernels::select::select;

const RANKS: usize = LARGEST_CLUSTER as usize;

/// Fours of a thread that are on their way together.
const READ: usize = 4;

const FOUR: u32 = TOGETHER as u32;

/// Tokens from a thread's fours to its next.
const STEP: u32 = READ as u32 * FOUR * THREADS;

/// A row to come: nothing is to be done here, it may be finished from few of its values, or it is
/// finished from all of them.
pub(super) const STANDS: u32 = 0;
pub(super) const FEW: u32 = 1;
pub(super) const ALL: u32 = 2;

/// What the blocks of a cluster tell each other.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Told {
    /// Of the block's own row.
    floor: f32,
    /// Whether each block's row is finished, 0 or 1, as it has told.
    is_finished: [u32; RANKS],
    /// How many tokens the block has gathered of each row.
    n: [u32; RANKS],
}

/// Finishes what it can of the rows whose place in `asked` is [`FEW`]: their tokens are
/// written and the place is [`STANDS`] then, else [`ALL`].
///
/// # Safety
/// All threads of the cluster; the module's preconditions; `room` is the block's own, for as many
/// keys; the row of place `i` is `first + i·step`, and only rows that there are have another
/// place than [`STANDS`].
#[inline(always)]
pub(super) unsafe fn finish<const CLUSTER: u32>(
    params: &KeptParams,
    (crew, rank): (&Crew<1>, u32),
    room: (*mut Key, u32),
    asked: *mut u32,
    (first, step): (u32, u32),
) {
    let mut from = 0;
    // SAFETY: the caller's promise; places are below the number of threads.
    unsafe {
        while from < THREADS && (from as u64 * step as u64) < (params.sample.batch - first) as u64 {
            let is_asked = |nth| asked.add((from + nth) as usize).read() == FEW;
            let mut n_rows = 0;
            let mut nth = 0;
            while nth < CLUSTER {
                n_rows = if is_asked(nth) { nth + 1 } else { n_rows };
                nth += 1;
            }
            if n_rows > 0 {
                let rows = Rows { first: first + from * step, step, n: n_rows };
                rows.finish::<CLUSTER>(params, (crew, rank), room, is_asked);
                let told = (&raw mut (*crew.shared).told).cast::<Told>();
                crew.leg(|thread| {
                    if thread < n_rows && is_asked(thread) {
                        let is_finished = (&raw const (*told).is_finished).cast::<u32>();
                        let is_finished = is_finished.add(thread as usize).read() != 0;
                        let place = asked.add((from + thread) as usize);
                        place.write(if is_finished { STANDS } else { ALL });
                    }
                });
            }
            from += CLUSTER;
        }
    }
}

/// Rows of which each block has one.
#[derive(Clone, Copy)]
struct Rows {
    first: u32,
    step: u32,
    n: u32,
}

impl Rows {
    /// Finishes those that are asked for, as far as few of their values tell.
    #[inline(always)]
    unsafe fn finish<const CLUSTER: u32>(
        self,
        params: &KeptParams,
        (crew, rank): (&Crew<1>, u32),
        (keys, n_keys): (*mut Key, u32),
        is_asked: impl Fn(u32) -> bool,
    ) {
        // What the block gathers of each row, and behind it what all have of its own. A block
        // alone has all at once.
        let of_own = if CLUSTER == 1 { n_keys } else { n_keys / 2 };
        let of_each = of_own / core::cmp::max(self.n, 1);
        let own_keys = if CLUSTER == 1 { keys } else { keys.wrapping_add(of_own as usize) };
        let own_row = self.first + rank * self.step;
        // SAFETY: the caller's promise; legs and meetings part what is written from what is read.
        unsafe {
            let told = (&raw mut (*crew.shared).told).cast::<Told>();
            let mut guess = Guess::NONE;
            if rank < self.n && is_asked(rank) {
                guess = nucleus::guess(params, crew, own_row, of_own);
            }
            crew.leg(|thread| {
                if thread == 0 {
                    (&raw mut (*told).floor).write(guess.floor);
                }
                if thread < CLUSTER {
                    (&raw mut (*told).n).cast::<u32>().add(thread as usize).write(0);
                }
            });
            meet::<CLUSTER>();
            let floor_of = |nth| (&raw const (*arch::of_block(told, nth)).floor).read();
            crew.leg(|thread| {
                let mut nth = 0;
                while nth < self.n {
                    let floor = floor_of(nth);
                    if floor < f32::INFINITY {
                        let n = (&raw mut (*told).n).cast::<u32>().add(nth as usize);
                        let to = keys.wrapping_add((nth * of_each) as usize);
                        let row = self.first + nth * self.step;
                        gather::<CLUSTER>(params, (row, rank), floor, (to, of_each, n), thread);
                    }
                    nth += 1;
                }
            });
            meet::<CLUSTER>();
            let mut is_finished = false;
            if guess.floor < f32::INFINITY {
                let parts = keys.wrapping_add((rank * of_each) as usize);
                let own = (own_keys, of_own);
                is_finished = match collect::<CLUSTER>(crew, (told, rank), (parts, of_each), own) {
                    Some(n) => nucleus::finish(params, crew, own_row, guess, (own_keys, n)),
                    None => false,
                };
            }
            crew.leg(|thread| {
                // Told, not asked for: behind the meeting, no block needs another's memory.
                if thread < CLUSTER {
                    let theirs =
                        (&raw mut (*arch::of_block(told, thread)).is_finished).cast::<u32>();
                    theirs.add(rank as usize).write(is_finished as u32);
                }
            });
            meet::<CLUSTER>();
        }
    }
}

/// Waits for all threads of the cluster.
#[inline(always)]
fn meet<const CLUSTER: u32>() {
    if CLUSTER != 1 {
        arch::cluster_meet();
    }
}

/// Leg: gathers the keys of the thread's tokens from `floor` on, of the block's part of a row, as
/// far as there is room, and counts them.
#[inline(always)]
unsafe fn gather<const CLUSTER: u32>(
    params: &KeptParams,
    (row, rank): (u32, u32),
    floor: f32,
    (keys, most, n): (*mut Key, u32, *mut u32),
    thread: u32,
) {
    let vocab = params.sample.vocab;
    let part = ceil_div(vocab as u64, (FOUR * CLUSTER) as u64) as u32 * FOUR;
    let begin = core::cmp::min(rank * part, vocab);
    let end = core::cmp::min(begin + part, vocab);
    // SAFETY: the values are there, and a row's memory ends with a whole four.
    unsafe {
        let values = nucleus::values_of(params, row);
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
                    keys.add(place as usize).write(key(index, y));
                }
                place += 1;
            }
        }
    }
}

/// Brings together what all blocks have gathered of the block's row, and tells how many keys those
/// are; none if there was not enough room.
#[inline(always)]
unsafe fn collect<const CLUSTER: u32>(
    crew: &Crew<1>,
    (told, rank): (*mut Told, u32),
    (parts, of_each): (*mut Key, u32),
    (keys, most): (*mut Key, u32),
) -> Option<u32> {
    let (mut counts, mut n, mut fits, mut of) = ([0; RANKS], 0, true, 0);
    // SAFETY: the caller's promise: a part has room for `of_each` keys.
    unsafe {
        while of < CLUSTER {
            let theirs = arch::of_block(told, of);
            counts[of as usize] = (&raw const (*theirs).n).cast::<u32>().add(rank as usize).read();
            of += 1;
        }
        of = 0;
        while of < CLUSTER {
            fits &= counts[of as usize] <= of_each;
            n += counts[of as usize];
            of += 1;
        }
        if !fits || n > most {
            return None;
        }
        // A block alone has gathered them where they are to be.
        if CLUSTER != 1 {
            crew.leg(|thread| {
                let mut at = thread;
                while at < n {
                    let (from, before) = block_of(&counts, at);
                    let theirs = arch::of_block(parts, from).add((at - before) as usize);
                    keys.add(at as usize).write(theirs.read());
                    at += THREADS;
                }
            });
        }
    }
    Some(n)
}

const _: () = assert!(RANKS <= THREADS_LEN);
