//! A listed row as its filters measure it: its tokens in order, with the mass down to each. Who
//! asks looks a key or a mass up; nobody waits.
//!
//! Lists of more tokens than there are threads are rare, and stay as they are: a key is then
//! found by halving the range of all keys, a sum over the list each time.

use super::crew::{Crew, add, key};
use super::shortlist::Shortlist;
use crate::abi::kept::THREADS;
use crate::candidate::Key;
use crate::filters::{Cut, Row, keeps};
use crate::scale::Scale;

pub(super) struct Ranked<'a> {
    crew: &'a mut Crew<1>,
    list: Shortlist,
    highest: f32,
    scale: Scale,
    /// Tokens that are in order; 0 where there are too many.
    n: u32,
    /// Mass of the whole list.
    total: u64,
}

impl<'a> Ranked<'a> {
    #[inline(always)]
    pub(super) fn new(crew: &'a mut Crew<1>, list: Shortlist, highest: f32) -> Self {
        let scale = Scale::new(highest, highest, 1.0, list.vocab);
        Self { crew, list, highest, scale, n: 0, total: 0 }
    }

    /// The tokens' keys in order.
    #[inline(always)]
    fn keys(&self) -> *mut Key {
        // SAFETY: the block's own memory.
        unsafe { (&raw mut (*self.crew.shared).ranking.keys).cast() }
    }

    /// The mass down to each.
    #[inline(always)]
    fn masses(&self) -> *mut u64 {
        // SAFETY: the same.
        unsafe { (&raw mut (*self.crew.shared).ranking.masses).cast() }
    }

    /// Puts the tokens in order: each counts those before it.
    #[inline(always)]
    unsafe fn rank(&mut self) {
        let (list, scale, n) = (self.list, self.scale, self.list.n);
        let (keys, masses) = (self.keys(), self.masses());
        // SAFETY: there are at most as many tokens as places; legs part what is written from
        // what is read.
        unsafe {
            let unordered = (&raw mut (*self.crew.shared).pieces.masses).cast::<Key>();
            let own_masses = (&raw mut (*self.crew.shared).ladder.masses).cast::<u64>();
            self.crew.leg(|thread| {
                if let Some((key, y)) = list.own(thread) {
                    unordered.add(thread as usize).write(key);
                    own_masses.add(thread as usize).write(scale.mass(scale.gap(y)));
                }
            });
            self.crew.leg(|thread| {
                if thread >= n {
                    return;
                }
                let own = unordered.add(thread as usize).read();
                let (mut rank, mut mass, mut i) = (0, 0, 0);
                while i < n {
                    let is_before = unordered.add(i as usize).read() >= own;
                    rank += is_before as u32;
                    mass += if is_before { own_masses.add(i as usize).read() } else { 0 };
                    i += 1;
                }
                keys.add(rank as usize - 1).write(own);
                masses.add(rank as usize - 1).write(mass);
            });
            self.n = n;
            self.total = masses.add(n as usize - 1).read();
        }
    }

    /// How many tokens have keys from `last` on, and their mass.
    #[inline(always)]
    fn down_to_key(&self, last: Key) -> [u64; 2] {
        let (list, scale) = (self.list, self.scale);
        let give = |thread| {
            let mut sums = [0; 2];
            // SAFETY: the values are there.
            unsafe {
                list.each::<1>(thread, |index, y| {
                    if y > f32::NEG_INFINITY && key(index, y) >= last {
                        sums = add(sums, [1, scale.mass(scale.gap(y))]);
                    }
                });
            }
            sums
        };
        // SAFETY: all threads.
        unsafe { self.crew.reduce_block(give, add) }
    }

    /// The cut with the `i`th token, counted from 0.
    #[inline(always)]
    fn cut_at(&self, i: u32) -> Cut {
        // SAFETY: there are so many.
        unsafe {
            Cut {
                last: self.keys().add(i as usize).read(),
                mass: self.masses().add(i as usize).read(),
            }
        }
    }

    /// The likeliest tokens up to the one with which their number or mass reaches a goal; all if
    /// it does not.
    #[inline(always)]
    fn reach(&self, goal: u64, by_mass: bool) -> Cut {
        let mut cut = Cut { last: Key::NONE, mass: self.total };
        let (mut from, mut to) = (0, u64::MAX);
        while from < to {
            let middle = to - (to - from) / 2;
            let [count, mass] = self.down_to_key(Key::from_bits(middle));
            if (if by_mass { mass } else { count }) >= goal {
                cut = Cut { last: Key::from_bits(middle), mass };
                from = middle;
            } else {
                to = middle - 1;
            }
        }
        cut
    }
}

impl Row for Ranked<'_> {
    #[inline(always)]
    fn highest(&self) -> f32 {
        self.highest
    }

    /// Rows that ask for it are not listed.
    #[inline(always)]
    fn deviation(&mut self) -> f32 {
        0.0
    }

    #[inline(always)]
    fn measure(&mut self, temperature: f32) -> Cut {
        self.scale = Scale::new(self.highest, self.highest, temperature, self.list.vocab);
        if self.list.in_order && self.list.n <= THREADS {
            // SAFETY: all threads.
            unsafe { self.rank() };
        } else {
            [_, self.total] = self.down_to_key(Key::NONE);
        }
        Cut { last: Key::NONE, mass: self.total }
    }

    #[inline(always)]
    fn likeliest(&mut self, n: u32) -> Cut {
        if self.n == 0 {
            self.reach(n as u64, false)
        } else if n <= self.n {
            self.cut_at(n - 1)
        } else {
            Cut { last: Key::NONE, mass: self.total }
        }
    }

    #[inline(always)]
    fn reaching(&mut self, mass: u64) -> Cut {
        if self.n == 0 {
            return self.reach(mass, true);
        }
        let masses = self.masses();
        let (mut from, mut to) = (0, self.n - 1);
        while from < to {
            let middle = (from + to) / 2;
            // SAFETY: there are so many.
            if unsafe { masses.add(middle as usize).read() } < mass {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        self.cut_at(from)
    }

    #[inline(always)]
    fn down_to(&mut self, kept: Cut, last: Key) -> Cut {
        if last <= kept.last {
            return kept;
        }
        if self.n == 0 {
            let [_, mass] = self.down_to_key(last);
            return Cut { last, mass };
        }
        let keys = self.keys();
        let (mut from, mut to) = (0, self.n);
        while from < to {
            let middle = (from + to) / 2;
            // SAFETY: there are so many.
            if unsafe { keys.add(middle as usize).read() } >= last {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        let mass = if from == 0 { 0 } else { self.cut_at(from - 1).mass };
        Cut { last, mass }
    }

    #[inline(always)]
    fn mean_gap(&mut self, kept: Cut) -> f32 {
        let (list, scale, keeps) = (self.list, self.scale, keeps(kept.last));
        let give = |thread| {
            let mut moment = [0];
            // SAFETY: the values are there.
            unsafe {
                list.each::<1>(thread, |index, y| {
                    if y > f32::NEG_INFINITY && keeps(index, y) {
                        moment[0] += scale.moment(scale.gap(y));
                    }
                });
            }
            moment
        };
        // SAFETY: all threads.
        let [moment] = unsafe { self.crew.reduce_block(give, add) };
        self.scale.mean_gap(moment, kept.mass)
    }

    #[inline(always)]
    fn weight(&self, kept: Cut) -> f32 {
        self.scale.weight(kept.mass)
    }
}
