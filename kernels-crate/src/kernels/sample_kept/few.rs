//! The rows of a cluster that few of their values may serve, where the sampling kernel has summed
//! up their weights: as many at a time as there are blocks. Each block guesses a floor for one of
//! them; all gather, each of its part of every row; and each finishes its own. Where there are
//! fewer, another block lists a row's likeliest meanwhile.

mod weigh;

use super::THREADS_LEN;
use super::crew::{Crew, add};
use super::guess::{self, Guess};
use super::judged;
use super::moments::{self, from_words};
use super::parts::{collect, gather, part_of};
use super::row::{self, Found, Part};
use super::ruled;
use super::short::for_keys;
use super::way::Way;
use crate::abi::kept::{CLUSTER as LARGEST_CLUSTER, KeptParams, THREADS};
use crate::arch;
use crate::candidate::Key;
use crate::deviation::Sums;

const RANKS: usize = LARGEST_CLUSTER as usize;

/// What the blocks of a cluster tell each other.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Told {
    /// Of the block's own row.
    guess: Guess,
    /// What the block's parts of the rows add to their moments.
    moments: [[u64; 4]; RANKS],
    /// Whether each block's row is finished, 0 or 1, as it has told.
    is_finished: [u32; RANKS],
    /// How many tokens the block has gathered of each row: by the values in memory, and by those
    /// after rules.
    n: [u32; RANKS],
    n_ruled: [u32; RANKS],
    /// The block's parts' greatest and least key, this one inverted, and the sums of their units.
    ends: [[u64; 2]; RANKS],
    units: [[u64; 4]; RANKS],
}

/// Finishes what it can of the rows that few of their values may serve, by their places in
/// `asked`: the place is [`Way::STANDS`] then, else [`Way::ALL`].
///
/// # Safety
/// All threads of the cluster; the module's preconditions; `room` is the block's own, for as many
/// values; the row of place `i` is `first + i·step`, and only rows that there are have another
/// place than that.
#[inline(always)]
pub(super) unsafe fn finish<const CLUSTER: u32>(
    params: &KeptParams,
    (crew, rank): (&Crew<1>, u32),
    room: (*mut f32, u32),
    asked: *mut Way,
    (first, step): (u32, u32),
) {
    let mut from = 0;
    // SAFETY: the caller's promise; places are below the number of threads.
    unsafe {
        while from < THREADS && (from as u64 * step as u64) < (params.sample.batch - first) as u64 {
            let way = |nth| asked.add((from + nth) as usize).read();
            let mut n_rows = 0;
            let mut nth = 0;
            while nth < CLUSTER {
                n_rows = if way(nth).is_few() { nth + 1 } else { n_rows };
                nth += 1;
            }
            if n_rows > 0 {
                let first = first + from * step;
                let rows = Rows { params, crew, rank, first, step, n: n_rows, room };
                rows.finish::<CLUSTER>(way);
                let told = (&raw mut (*crew.shared).told).cast::<Told>();
                crew.leg(|thread| {
                    if thread < n_rows && way(thread).is_few() {
                        let told = (&raw const (*told).is_finished).cast::<u32>();
                        let mut is_finished = told.add(thread as usize).read() != 0;
                        if let Some(helper) = rows.helper::<CLUSTER>(thread) {
                            is_finished &= told.add(helper as usize).read() != 0;
                        }
                        let place = asked.add((from + thread) as usize);
                        place.write(if is_finished { Way::STANDS } else { Way::ALL });
                    }
                });
            }
            from += CLUSTER;
        }
    }
}

/// Rows of which each block has one.
#[derive(Clone, Copy)]
struct Rows<'a> {
    params: &'a KeptParams,
    crew: &'a Crew<1>,
    rank: u32,
    first: u32,
    step: u32,
    n: u32,
    /// The block's memory, for as many values.
    room: (*mut f32, u32),
}

impl Rows<'_> {
    /// Finishes those that are asked for, as far as few of their values tell.
    #[inline(always)]
    unsafe fn finish<const CLUSTER: u32>(self, way: impl Fn(u32) -> Way) {
        let (mut any, mut nth) = (Way::STANDS, 0);
        while nth < self.n {
            any = any.or(way(nth));
            nth += 1;
        }
        // SAFETY: the caller's promise.
        unsafe {
            // Two texts: what nobody needs is not to be fetched, nor jumped over.
            if any.is_plain() && !self.wants_entropies() {
                self.finish_as::<CLUSTER, false>(way, any);
            } else {
                self.finish_as::<CLUSTER, true>(way, any);
            }
        }
    }

    /// The same; `any` has the bits of all ways. Unless `FULL`, none of the rows has rules or
    /// filters that cut, and entropies are not wanted.
    #[inline(always)]
    unsafe fn finish_as<const CLUSTER: u32, const FULL: bool>(
        self,
        way: impl Fn(u32) -> Way,
        any: Way,
    ) {
        let Self { params, crew, rank, .. } = self;
        // SAFETY: the caller's promise; legs and meetings part what is written from what is read.
        unsafe {
            let told = self.told();
            let mut guess = Guess::NONE;
            if rank < self.n && way(rank).is_few() {
                let has_room = || ruled::has_room(self.n, part_of::<CLUSTER>(params, 0).1);
                let (asked, most) = ((self.row(rank), way(rank)), self.own_room::<CLUSTER>().1);
                if way(rank).is_judged() {
                    guess = judged::known(params, crew, asked, most);
                } else if !FULL || !way(rank).needs_marks() || has_room() {
                    guess = guess::guess::<FULL>(params, crew, asked, most);
                }
            }
            crew.leg(|thread| {
                if thread == 0 {
                    (&raw mut (*told).guess).write(guess);
                }
                if thread < CLUSTER {
                    (&raw mut (*told).n).cast::<u32>().add(thread as usize).write(0);
                    (&raw mut (*told).n_ruled).cast::<u32>().add(thread as usize).write(0);
                }
            });
            meet::<CLUSTER>();
            self.gather_all::<CLUSTER, FULL>();
            if FULL {
                if any.needs_marks() {
                    self.mark_all::<CLUSTER>();
                }
                self.weigh_all::<CLUSTER>();
                if any.is_spread() {
                    meet::<CLUSTER>();
                    self.measure_all::<CLUSTER>();
                }
            }
            meet::<CLUSTER>();
            let is_finished = self.finish_part::<CLUSTER, FULL>();
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

    /// The block that lists the likeliest of a row, if they are wanted and one is left for that
    /// beside the row's own.
    #[inline(always)]
    fn helper<const CLUSTER: u32>(&self, nth: u32) -> Option<u32> {
        let wanted = (self.params.raw.best > 0) | (self.params.processed.best > 0);
        let helper = nth + self.n;
        (wanted & (helper < CLUSTER)).then_some(helper)
    }

    /// Does the block's part of a row: of its own, or as the helper of another's.
    #[inline(always)]
    unsafe fn finish_part<const CLUSTER: u32, const FULL: bool>(self) -> bool {
        let Self { params, crew, rank, .. } = self;
        let draws = rank < self.n;
        let nth = if draws { rank } else { rank - self.n };
        let helper = self.helper::<CLUSTER>(nth);
        if nth >= self.n || !draws && helper.is_none() {
            return false;
        }
        let part = Part { draws, lists: !draws || helper.is_none() };
        let told = self.told();
        // SAFETY: the caller's promise: all blocks have told what they have.
        unsafe {
            let guess = self.guess(nth);
            if guess.floor == f32::INFINITY {
                return false;
            }
            let of_block = |of| arch::of_block(told, of);
            let (mut moments, mut deviation) = ([0; 4], 0.0);
            if FULL {
                let sums = |of| (&raw const (*of_block(of)).moments).cast::<[u64; 4]>();
                let of = |of| sums(of).add(nth as usize).read();
                moments = arch::warp_combine(CLUSTER, of, moments::merge);
            }
            if FULL && guess.way.is_spread() {
                let sums = |of| (&raw const (*of_block(of)).units).cast::<[u64; 4]>();
                let units =
                    arch::warp_combine(CLUSTER, |of| sums(of).add(nth as usize).read(), add);
                let [n, units, low, high] = units;
                let sums = Sums { n, units, squares: [low, high] };
                deviation = self.units::<CLUSTER>(nth).deviation(sums);
            }
            let (mut to, mut most) = self.own_room::<CLUSTER>();
            let mut lists = [(to, 0); 2];
            // Opaque: one text for both.
            let end = if FULL { arch::opaque(1 + guess.way.is_ruled() as u32) } else { 1 };
            let mut list = 0;
            while list < end {
                let is_edited = list != 0;
                let is_ruled = FULL && guess.way.is_ruled();
                let (parts, of_each) = self.list_room::<CLUSTER>(nth, is_edited, is_ruled);
                // A block alone has gathered them where they are to be.
                if CLUSTER == 1 {
                    (to, most) = (parts, of_each);
                }
                let n = if is_edited { &raw mut (*told).n_ruled } else { &raw mut (*told).n };
                let from = (parts, of_each);
                let Some(n) = collect::<CLUSTER>(crew, (n.cast(), nth), from, (to, most)) else {
                    return false;
                };
                lists = if is_edited { [lists[0], (to, n)] } else { [(to, n); 2] };
                (to, most) = (to.wrapping_add(n as usize), most - n);
                list += 1;
            }
            let [of_model, of_row] = lists;
            let found = Found { of_model, of_row, moments: from_words(moments), deviation };
            row::finish::<FULL>(params, crew, (self.row(nth), part), guess, found)
        }
    }

    /// Gathers, of the block's part of every row, the tokens from its floor on, by their values
    /// in memory.
    #[inline(always)]
    unsafe fn gather_all<const CLUSTER: u32, const FULL: bool>(self) {
        let part = part_of::<CLUSTER>(self.params, self.rank);
        let raw = &self.params.raw;
        // Of a row with rules they are only what is reported of the model's distribution.
        let of_ruled = (raw.best > 0) | !raw.ranks.is_null();
        self.crew.leg(|thread| {
            let mut nth = 0;
            while nth < self.n {
                // SAFETY: the caller's promise.
                unsafe {
                    let guess = self.guess(nth);
                    let is_ruled = FULL && guess.way.is_ruled();
                    if guess.floor < f32::INFINITY && (of_ruled || !is_ruled) {
                        let n = (&raw mut (*self.told()).n).cast::<u32>().add(nth as usize);
                        let (to, most) = self.list_room::<CLUSTER>(nth, false, is_ruled);
                        let of_row = (self.row(nth), part);
                        gather(self.params, of_row, guess.floor, (to, most, n), thread);
                    }
                }
                nth += 1;
            }
        });
    }

    #[inline(always)]
    fn told(&self) -> *mut Told {
        // SAFETY: the block's own memory.
        unsafe { &raw mut (*self.crew.shared).told }
    }

    #[inline(always)]
    fn row(&self, nth: u32) -> u32 {
        self.first + nth * self.step
    }

    /// Whether entropies are wanted.
    #[inline(always)]
    fn wants_entropies(&self) -> bool {
        !self.params.raw.entropies.is_null() | !self.params.processed.entropies.is_null()
    }

    /// What the row's block has told.
    #[inline(always)]
    unsafe fn guess(&self, nth: u32) -> Guess {
        // SAFETY: the caller's promise.
        unsafe { (&raw const (*arch::of_block(self.told(), nth)).guess).read() }
    }

    /// The block's memory. Opaque: what follows would be computed before all rows, and cost
    /// registers.
    #[inline(always)]
    fn room(&self) -> (*mut Key, u32) {
        for_keys((arch::advance(self.room.0, 0), arch::opaque(self.room.1)))
    }

    /// Room for what all blocks have of the block's own row: behind what it gathers of each. A
    /// block alone has all at once.
    #[inline(always)]
    fn own_room<const CLUSTER: u32>(&self) -> (*mut Key, u32) {
        let (keys, n) = self.room();
        if CLUSTER == 1 {
            return (keys, n);
        }
        (keys.wrapping_add((n / 2) as usize), n / 2)
    }

    /// Room for what the block gathers of a row: by the values in memory, and, of a row with
    /// rules, by those after them.
    #[inline(always)]
    fn list_room<const CLUSTER: u32>(
        &self,
        nth: u32,
        is_edited: bool,
        is_ruled: bool,
    ) -> (*mut Key, u32) {
        let (keys, n) = self.room();
        let of_own = if CLUSTER == 1 { n } else { n / 2 };
        let of_each = of_own / core::cmp::max(self.n, 1);
        let first = keys.wrapping_add((nth * of_each) as usize);
        let of_values = if is_ruled { of_each / 2 } else { of_each };
        if is_edited {
            (first.wrapping_add(of_values as usize), of_each - of_values)
        } else {
            (first, of_values)
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

const _: () = assert!(RANKS <= THREADS_LEN);
