//! What the threads of a cluster do together.

use super::THREADS_LEN;
use super::few::Told;
use super::histogram::Histogram;
use super::short::ShortRow;
use super::view::{TOGETHER, View};
use super::way::Way;
use crate::abi::kept::{CLUSTER as LARGEST_CLUSTER, THREADS};
use crate::arch::{self, PerThread};
use crate::candidate::Key;
use crate::scale::RUNGS;

/// Keys that are searched one by one.
pub(super) const LIST: usize = 256;

const RANKS: usize = LARGEST_CLUSTER as usize;

// A thread has a rung, and at most one key of the list.
const _: () = assert!(RUNGS == THREADS && LIST <= THREADS_LEN);

/// Words that a thread may give to a sum.
const WORDS: usize = 4;

/// What the threads of a block share.
#[repr(C, align(16))]
pub struct Shared {
    slots: [[u64; WORDS]; THREADS_LEN / 32],
    pub(super) told: Told,
    /// Of the rows to come, what is to be done for them.
    pub(super) rows: [Way; THREADS_LEN],
    /// All tokens by their rung.
    pub(super) ladder: Histogram,
    /// Those of a rung, or piece of one, that has too many for the list.
    pub(super) pieces: Histogram,
    pub(super) short: ShortRow,
    /// What the block tells the others of its cluster in turn: the one that is written, and the
    /// one that may still be read.
    exchanges: [Exchange; 2],
    /// Of all blocks of the cluster.
    pub(super) gathered: Gathered,
    /// The mass of each.
    pub(super) masses: [u64; LIST],
    /// How many items a list has.
    pub(super) n_keys: u32,
    /// What one thread found, for all: a rung or piece, [`RUNGS`] if none, and what is left of
    /// the goal there.
    pub(super) place: (u32, u64),
    /// A key, and the mass down to it.
    pub(super) cut: (Key, u64),
}

/// What a block tells the others of its cluster: one of the three.
#[derive(Clone, Copy)]
#[repr(C)]
union Exchange {
    words: [u64; WORDS],
    histogram: Histogram,
    gathered: Gathered,
}

/// The keys that a block gathered.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Gathered {
    pub(super) keys: [Key; LIST],
    n: u32,
}

/// The threads of a cluster. All of them call each method, with the same arguments.
pub(super) struct Crew<const CLUSTER: u32> {
    pub(super) shared: *mut Shared,
    rank: u32,
    /// Of the exchanges, which is written next.
    turn: u32,
}

impl<const CLUSTER: u32> Crew<CLUSTER> {
    /// # Safety
    /// `shared` is the block's alone, but for what it tells the others of its cluster.
    #[inline(always)]
    pub(super) unsafe fn new(shared: *mut Shared, rank: u32) -> Self {
        const { assert!(CLUSTER == 1 || CLUSTER == LARGEST_CLUSTER) }
        Self { shared, rank, turn: 0 }
    }

    /// Index of the block in the cluster.
    #[inline(always)]
    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    /// Runs a leg. The thread is opaque: what follows from it would be computed ahead, and
    /// cost registers until then.
    #[inline(always)]
    pub(super) fn leg(&self, mut run: impl FnMut(u32)) {
        let mut none = PerThread::<(), THREADS_LEN>::new(());
        arch::leg(&mut none, |thread, ()| run(arch::opaque(thread)));
    }

    /// Combines what the block's threads give.
    #[inline(always)]
    pub(super) unsafe fn reduce_block<const N: usize>(
        &self,
        give: impl FnMut(u32) -> [u64; N],
        combine: impl Fn([u64; N], [u64; N]) -> [u64; N],
    ) -> [u64; N] {
        const { assert!(N <= WORDS) }
        // SAFETY: the block's own slots; no leg is running.
        unsafe {
            let slots = (&raw mut (*self.shared).slots).cast();
            arch::block_reduce::<N, THREADS_LEN>(slots, give, combine)
        }
    }

    /// Hands each thread of the block the sum of what those before it give, and its own.
    #[inline(always)]
    pub(super) unsafe fn scan(
        &self,
        give: impl FnMut(u32) -> u64,
        take: impl FnMut(u32, u64, u64),
    ) {
        // SAFETY: the block's own slots; no leg is running.
        unsafe {
            let slots = (&raw mut (*self.shared).slots).cast();
            arch::block_scan::<THREADS_LEN>(slots, give, take);
        }
    }

    /// Combines what the cluster's threads give.
    #[inline(always)]
    pub(super) unsafe fn reduce<const N: usize>(
        &mut self,
        give: impl FnMut(u32) -> [u64; N],
        combine: impl Fn([u64; N], [u64; N]) -> [u64; N],
    ) -> [u64; N] {
        // SAFETY: the exchange that is written is nobody's until the barrier.
        unsafe {
            let mut all = self.reduce_block(give, &combine);
            if CLUSTER == 1 {
                return all;
            }
            let mine = self.exchange(self.rank);
            self.leg(|thread| {
                if thread == 0 {
                    mine.cast::<[u64; N]>().write(all);
                }
            });
            arch::cluster_meet();
            let of_rank = |rank| self.exchange(rank).cast::<[u64; N]>().read();
            all = arch::warp_combine(CLUSTER, of_rank, combine);
            self.turn ^= 1;
            all
        }
    }

    /// Sums over the tokens of all blocks' parts.
    #[inline(always)]
    pub(super) unsafe fn sum<const N: usize>(
        &mut self,
        view: View<'_>,
        of: impl Fn(u32, f32) -> [u64; N],
    ) -> [u64; N] {
        let part = view.slice(self);
        // SAFETY: the caller's promise.
        unsafe {
            self.reduce(
                |thread| {
                    let mut sums = [0; N];
                    part.for_each(thread, |index, y| sums = add(sums, of(index, y)));
                    sums
                },
                add,
            )
        }
    }

    /// Makes a histogram that of all tokens: `bucket` tells where a token counts, or beyond
    /// the last, and with which mass.
    #[inline(always)]
    pub(super) unsafe fn fill(
        &mut self,
        histogram: *mut Histogram,
        view: View<'_>,
        bucket: impl Fn(u32, f32) -> (u32, u64),
    ) {
        // SAFETY: buckets are below the lengths; legs part what is written from what is read.
        unsafe {
            let mut mine = histogram;
            if CLUSTER != 1 {
                mine = self.exchange(self.rank).cast();
            }
            self.leg(|thread| Histogram::write(mine, thread, 0, 0));
            let part = view.slice(self);
            self.leg(|thread| {
                part.for_each_four(thread, |first, values| {
                    let (mut buckets, mut masses, mut i) = ([0; TOGETHER], [0; TOGETHER], 0);
                    while i < TOGETHER {
                        (buckets[i], masses[i]) = bucket(first + i as u32, values[i]);
                        i += 1;
                    }
                    Histogram::add(mine, thread, buckets, masses);
                });
            });
            if CLUSTER == 1 {
                return;
            }
            arch::cluster_meet();
            self.leg(|thread| {
                let (mut of_masses, mut of_counts) = ([0; RANKS], [0; RANKS]);
                let mut rank = 0;
                while rank < RANKS {
                    let theirs = self.exchange(rank as u32).cast::<Histogram>();
                    (of_masses[rank], of_counts[rank]) = Histogram::read(theirs, thread);
                    rank += 1;
                }
                let (mut mass, mut count) = (0, 0);
                let mut rank = 0;
                while rank < RANKS {
                    mass += of_masses[rank];
                    count += of_counts[rank];
                    rank += 1;
                }
                Histogram::write(histogram, thread, mass, count);
            });
            self.turn ^= 1;
        }
    }

    /// Gathers the keys of all tokens that are `wanted`, at most [`LIST`], and tells how many
    /// there are.
    #[inline(always)]
    pub(super) unsafe fn gather(
        &mut self,
        view: View<'_>,
        wanted: impl Fn(u32, f32) -> bool,
    ) -> u32 {
        // SAFETY: as in `fill`.
        unsafe {
            let all = &raw mut (*self.shared).gathered;
            let mut mine = all;
            if CLUSTER != 1 {
                mine = self.exchange(self.rank).cast();
            }
            let n = &raw mut (*mine).n;
            self.leg(|thread| {
                if thread == 0 {
                    n.write(0);
                }
            });
            let part = view.slice(self);
            self.leg(|thread| {
                part.for_each(thread, |index, y| {
                    if wanted(index, y) {
                        let at = arch::block_add_u32(n, 1) as usize;
                        (&raw mut (*mine).keys)
                            .cast::<Key>()
                            .add(at)
                            .write(Key::of_value(y, index));
                    }
                });
            });
            if CLUSTER == 1 {
                return n.read();
            }
            arch::cluster_meet();
            self.leg(|thread| {
                let (mut ns, mut rank) = ([0; RANKS], 0);
                while rank < RANKS {
                    let theirs = self.exchange(rank as u32).cast::<Gathered>();
                    ns[rank] = (&raw const (*theirs).n).read();
                    rank += 1;
                }
                let sum = ns.iter().sum();
                let (of, before) = block_of(&ns, thread);
                if thread < sum {
                    let theirs = self.exchange(of).cast::<Gathered>();
                    let from = (&raw const (*theirs).keys).cast::<Key>();
                    let key = from.add((thread - before) as usize).read();
                    (&raw mut (*all).keys).cast::<Key>().add(thread as usize).write(key);
                }
                if thread == 0 {
                    (&raw mut (*all).n).write(sum);
                }
            });
            self.turn ^= 1;
            (&raw const (*all).n).read()
        }
    }

    /// Block `rank`'s part of the exchange whose turn it is, in its shared memory.
    #[inline(always)]
    fn exchange(&self, rank: u32) -> *mut Exchange {
        // SAFETY: the block's own memory.
        let mine = unsafe { (&raw mut (*self.shared).exchanges).cast::<Exchange>() };
        arch::of_block(mine.wrapping_add(self.turn as usize), rank)
    }
}

/// Where the blocks of a cluster have so many items each, the block that has the item `at` of all,
/// and how many come before that block's.
#[inline(always)]
fn block_of(counts: &[u32; RANKS], at: u32) -> (u32, u32) {
    let (mut of, mut before, mut end, mut rank) = (0, 0, 0, 0);
    while rank < RANKS {
        let is_behind = at >= end;
        before = if is_behind { end } else { before };
        of = if is_behind { rank as u32 } else { of };
        end += counts[rank];
        rank += 1;
    }
    (of, before)
}

/// The sum of each word.
#[inline(always)]
pub(super) fn add<const N: usize>(a: [u64; N], b: [u64; N]) -> [u64; N] {
    let mut sums = a;
    let mut i = 0;
    while i < N {
        sums[i] += b[i];
        i += 1;
    }
    sums
}
