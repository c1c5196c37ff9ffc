//! What the threads of a cluster do together.

use super::THREADS_LEN;
use super::short::ShortRow;
use super::view::View;
use crate::abi::kept::{CLUSTER as LARGEST_CLUSTER, THREADS};
use crate::arch::{self, PerThread};
use crate::candidate::Key;
use crate::scale::RUNGS;

/// Keys that are searched one by one.
pub(super) const LIST: usize = 256;

const RUNGS_LEN: usize = RUNGS as usize;

const RANKS: usize = LARGEST_CLUSTER as usize;

// A thread has a rung, and at most one key of the list.
const _: () = assert!(RUNGS == THREADS && LIST <= RUNGS_LEN);

/// Words that a thread may give to a sum.
const WORDS: usize = 4;

/// Tokens and their mass, by rung or piece.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Histogram {
    pub(super) masses: [u64; RUNGS_LEN],
    pub(super) counts: [u32; RUNGS_LEN],
}

/// What the threads of a block share.
#[repr(C, align(16))]
pub struct Shared {
    slots: [[u64; WORDS]; THREADS_LEN / 32],
    /// Of the rows to come, which are kept: 0 or 1.
    pub(super) rows: [u32; THREADS_LEN],
    /// All tokens by their rung.
    pub(super) ladder: Histogram,
    /// Those of a rung, or piece of one, that has too many for the list.
    pub(super) pieces: Histogram,
    pub(super) short: ShortRow,
    /// What the block tells the others of its cluster in turn: the one that is written, and the
    /// one that may still be read.
    exchanges: [Exchange; 2],
    pub(super) keys: [Key; LIST],
    pub(super) masses: [u64; LIST],
    pub(super) n_keys: u32,
    /// How many keys each block gathered.
    ns: [u32; RANKS],
    /// What one thread found, for all: a rung or piece, [`RUNGS`] if none, and what is left of
    /// the goal there.
    pub(super) place: (u32, u64),
    /// A key, and the mass down to it.
    pub(super) cut: (Key, u64),
}

/// What a block tells the others of its cluster.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct Exchange {
    words: [u64; RUNGS_LEN],
    counts: [u32; RUNGS_LEN],
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
                    (&raw mut (*mine).words).cast::<[u64; N]>().write(all);
                }
            });
            arch::cluster_barrier();
            let of_rank = |rank| {
                let theirs = (&raw const (*self.exchange(rank)).words).cast::<u64>();
                let mut words = [0; N];
                let mut i = 0;
                while i < N {
                    words[i] = theirs.add(i).read_volatile();
                    i += 1;
                }
                words
            };
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
            let masses = (&raw mut (*histogram).masses).cast::<u64>();
            let counts = (&raw mut (*histogram).counts).cast::<u32>();
            self.leg(|thread| {
                masses.add(thread as usize).write(0);
                counts.add(thread as usize).write(0);
            });
            let part = view.slice(self);
            self.leg(|thread| {
                part.for_each(thread, |index, y| {
                    let (bucket, mass) = bucket(index, y);
                    if bucket < RUNGS {
                        arch::block_add_u32(counts.add(bucket as usize), 1);
                        if mass != 0 {
                            arch::block_add_u64(masses.add(bucket as usize), mass);
                        }
                    }
                });
            });
            if CLUSTER == 1 {
                return;
            }
            let mine = self.exchange(self.rank);
            self.leg(|thread| {
                let at = thread as usize;
                (&raw mut (*mine).words).cast::<u64>().add(at).write(masses.add(at).read());
                (&raw mut (*mine).counts).cast::<u32>().add(at).write(counts.add(at).read());
            });
            arch::cluster_barrier();
            self.leg(|thread| {
                let at = thread as usize;
                let (mut of_masses, mut of_counts) = ([0; RANKS], [0; RANKS]);
                let mut rank = 0;
                while rank < CLUSTER {
                    let theirs = self.exchange(rank);
                    let words = (&raw const (*theirs).words).cast::<u64>();
                    of_masses[rank as usize] = words.add(at).read_volatile();
                    let tokens = (&raw const (*theirs).counts).cast::<u32>();
                    of_counts[rank as usize] = tokens.add(at).read_volatile();
                    rank += 1;
                }
                let (mut mass, mut count) = (0, 0);
                let mut rank = 0;
                while rank < RANKS {
                    mass += of_masses[rank];
                    count += of_counts[rank];
                    rank += 1;
                }
                masses.add(at).write(mass);
                counts.add(at).write(count);
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
            let keys = (&raw mut (*self.shared).keys).cast::<Key>();
            let n_keys = &raw mut (*self.shared).n_keys;
            self.leg(|thread| {
                if thread == 0 {
                    n_keys.write(0);
                }
            });
            let part = view.slice(self);
            self.leg(|thread| {
                part.for_each(thread, |index, y| {
                    if wanted(index, y) {
                        let at = arch::block_add_u32(n_keys, 1) as usize;
                        keys.add(at).write(key(index, y));
                    }
                });
            });
            if CLUSTER == 1 {
                return n_keys.read();
            }
            let mine = self.exchange(self.rank);
            self.leg(|thread| {
                let (at, n) = (thread as usize, n_keys.read());
                if thread < n {
                    (&raw mut (*mine).words).cast::<Key>().add(at).write(keys.add(at).read());
                }
                if thread == 0 {
                    (&raw mut (*mine).counts).cast::<u32>().write(n);
                }
            });
            arch::cluster_barrier();
            let ns = (&raw mut (*self.shared).ns).cast::<u32>();
            self.leg(|thread| {
                if thread < CLUSTER {
                    let theirs = (&raw const (*self.exchange(thread)).counts).cast::<u32>();
                    ns.add(thread as usize).write(theirs.read_volatile());
                }
            });
            self.leg(|thread| {
                let (mut before, mut rank, ranks) = (0, 0, arch::opaque(CLUSTER));
                while rank < ranks {
                    let (at, n) = (thread.wrapping_sub(before), ns.add(rank as usize).read());
                    if at < n {
                        let words = (&raw const (*self.exchange(rank)).words).cast::<u64>();
                        let word = words.add(at as usize).read_volatile();
                        keys.add(thread as usize).write(Key::from_bits(word));
                    }
                    before += n;
                    rank += 1;
                }
            });
            self.turn ^= 1;
            let (mut all, mut rank, ranks) = (0, 0, arch::opaque(CLUSTER));
            while rank < ranks {
                all += ns.add(rank as usize).read();
                rank += 1;
            }
            all
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

/// The key of a token's value; adding 0 makes −0 a 0.
#[inline(always)]
pub(super) fn key(index: u32, y: f32) -> Key {
    Key::new(y + 0.0, index)
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
