//! A row of few tokens, as its filters measure it: in order, with the mass down to each.
//! Who asks looks a key or a mass up; nobody waits.

use super::crew::{Crew, add};
use super::short::ShortRow;
use crate::abi::kept::THREADS;
use crate::candidate::Key;
use crate::filters::{Cut, Row};
use crate::scale::Scale;

/// Two keys, which are read together.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Two([Key; 2]);

/// Pairs of keys that are on their way together.
const TOGETHER: u32 = 4;

pub(super) struct Ranked<'a> {
    crew: &'a Crew<1>,
    /// How many tokens count: at least one, and at most as many as there are threads.
    n: u32,
    highest: f32,
    vocab: u32,
    scale: Scale,
    /// Of the row's values, if its filters ask for it.
    deviation: f32,
    /// Whether they are in order.
    is_ordered: bool,
    /// Mass of all; 0 before it is known.
    total: u64,
}

impl<'a> Ranked<'a> {
    /// Of the `n` tokens in [`ShortRow::found`].
    #[inline(always)]
    pub(super) fn new(
        crew: &'a Crew<1>,
        n: u32,
        (highest, deviation): (f32, f32),
        vocab: u32,
    ) -> Self {
        let scale = Scale::new(highest, highest, 1.0, vocab);
        Self { crew, n, highest, vocab, scale, deviation, is_ordered: false, total: 0 }
    }

    /// How many tokens are in order: none if no filter has asked for it.
    #[inline(always)]
    pub(super) fn n_in_order(&self) -> u32 {
        if self.is_ordered { self.n } else { 0 }
    }

    #[inline(always)]
    fn short(&self) -> *mut ShortRow {
        // SAFETY: the block's own memory.
        unsafe { &raw mut (*self.crew.shared).short }
    }

    /// The keys in order.
    #[inline(always)]
    fn keys(&self) -> *mut Key {
        // SAFETY: the same.
        unsafe { (&raw mut (*self.short()).ranked).cast() }
    }

    /// The mass down to each.
    #[inline(always)]
    fn masses(&self) -> *mut u64 {
        // SAFETY: the same.
        unsafe { (&raw mut (*self.short()).masses).cast() }
    }

    #[inline(always)]
    fn mass(&self, key: Key) -> u64 {
        self.scale.mass(self.scale.gap(key.score()))
    }

    /// Puts the tokens in order: each counts those before it.
    #[inline(always)]
    unsafe fn order(&mut self) {
        let (n, keys) = (self.n, self.keys());
        // SAFETY: there are at most as many tokens as places, and behind them keys below all;
        // legs part what is written from what is read.
        unsafe {
            let found = (&raw const (*self.short()).found).cast::<Key>();
            self.crew.leg(|thread| {
                if thread >= n {
                    return;
                }
                let own = found.add(thread as usize).read();
                let (mut rank, mut at) = (0, found.cast::<Two>());
                let end = at.add(n.div_ceil(2) as usize);
                while at < end {
                    let mut i = 0;
                    while i < TOGETHER {
                        let Two([one, other]) = at.add(i as usize).read();
                        rank += (one >= own) as u32 + (other >= own) as u32;
                        i += 1;
                    }
                    at = at.add(TOGETHER as usize);
                }
                keys.add(rank as usize - 1).write(own);
            });
        }
        self.is_ordered = true;
    }

    /// Finds the mass down to each token; they are in order.
    #[inline(always)]
    unsafe fn weigh(&mut self) {
        let (n, keys, masses) = (self.n, self.keys(), self.masses());
        // SAFETY: there are at most as many tokens as places.
        unsafe {
            let give = |thread| {
                if thread < n { self.mass(keys.add(thread as usize).read()) } else { 0 }
            };
            self.crew.scan(give, |thread, before, own| {
                masses.add(thread as usize).write(before + own);
            });
            self.total = masses.add(n as usize - 1).read();
        }
    }

    /// The cut with the `i`th token, counted from 0.
    #[inline(always)]
    fn cut_at(&self, i: u32) -> Cut {
        // SAFETY: there are so many.
        unsafe {
            let is_weighed = self.total > 0;
            Cut {
                last: self.keys().add(i as usize).read(),
                mass: if is_weighed { self.masses().add(i as usize).read() } else { 0 },
            }
        }
    }

    /// How many of the first tokens are before what is looked for, as `is_before` tells.
    #[inline(always)]
    fn count(&self, is_before: impl Fn(usize) -> bool) -> u32 {
        let (mut from, mut to) = (0, self.n);
        while from < to {
            let middle = (from + to) / 2;
            if is_before(middle as usize) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }
}

// Two keys at a time, of as many as there are threads.
const _: () = assert!(THREADS.is_multiple_of(2 * TOGETHER));

impl Row for Ranked<'_> {
    #[inline(always)]
    fn highest(&self) -> f32 {
        self.highest
    }

    #[inline(always)]
    fn deviation(&mut self) -> f32 {
        self.deviation
    }

    #[inline(always)]
    fn measure(&mut self, temperature: f32, with_masses: bool) -> Cut {
        self.scale = Scale::new(self.highest, self.highest, temperature, self.vocab);
        // SAFETY: all threads.
        unsafe {
            self.order();
            if with_masses {
                self.weigh();
            }
        }
        Cut { last: Key::NONE, mass: self.total }
    }

    #[inline(always)]
    fn likeliest(&mut self, n: u32) -> Cut {
        if n <= self.n { self.cut_at(n - 1) } else { Cut { last: Key::NONE, mass: self.total } }
    }

    #[inline(always)]
    fn reaching(&mut self, mass: u64) -> Cut {
        let masses = self.masses();
        // SAFETY: there are so many, and the last reaches it.
        self.cut_at(self.count(|i| unsafe { masses.add(i).read() } < mass))
    }

    #[inline(always)]
    fn scale(&self) -> Scale {
        self.scale
    }

    #[inline(always)]
    fn mass_down_to(&mut self, last: Key) -> u64 {
        let keys = self.keys();
        // SAFETY: there are so many.
        let n = self.count(|i| unsafe { keys.add(i).read() } >= last);
        if n == 0 { 0 } else { self.cut_at(n - 1).mass }
    }

    #[inline(always)]
    fn moment_down_to(&mut self, last: Key) -> u64 {
        let (keys, n, scale) = (self.keys(), self.n, self.scale);
        let give = |thread: u32| {
            let mut moment = 0;
            if thread < n {
                // SAFETY: there are so many.
                let key = unsafe { keys.add(thread as usize).read() };
                moment = if key >= last { scale.moment(scale.gap(key.score())) } else { 0 };
            }
            [moment]
        };
        // SAFETY: all threads.
        let [moment] = unsafe { self.crew.reduce_block(give, add) };
        moment
    }
}
