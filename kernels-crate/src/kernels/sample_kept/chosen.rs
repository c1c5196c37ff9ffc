//! A row of which the likeliest tokens were gathered, as its filters measure it: those, as if
//! there were no others.

use super::crew::{Crew, LIST, add};
use super::gathered::Gathered;
use super::goal::{find_key, find_place};
use crate::candidate::Key;
use crate::filters::{Cut, Row};
use crate::scale::{RUNGS, Scale};

pub(super) struct Chosen<'a> {
    crew: &'a Crew<1>,
    pub(super) tokens: Gathered,
    highest: f32,
    /// The least value that was gathered, and how many tokens the row has.
    floor: f32,
    vocab: u32,
    /// The row's, if it asks for it.
    deviation: f32,
    /// Mass of all that were.
    total: u64,
    /// Whether they are on their rungs.
    pub(super) climbed: bool,
    /// Whether too many tokens lay near each other to be told apart: what was found has no
    /// meaning then.
    pub(super) failed: bool,
}

impl<'a> Chosen<'a> {
    #[inline(always)]
    pub(super) fn new(
        crew: &'a Crew<1>,
        tokens: Gathered,
        (highest, floor): (f32, f32),
        (vocab, deviation): (u32, f32),
    ) -> Self {
        let (climbed, failed) = (false, false);
        Self { crew, tokens, highest, floor, vocab, deviation, total: 0, climbed, failed }
    }

    /// The sum over the tokens with keys from `last` on.
    #[inline(always)]
    fn sum(&self, last: Key, of: impl Fn(f32) -> u64) -> u64 {
        let give = |thread| {
            let mut sum = 0;
            // SAFETY: the keys are there.
            unsafe {
                self.tokens.each(thread, |_, key| {
                    sum += if key >= last { of(self.tokens.gap(key)) } else { 0 };
                });
            }
            [sum]
        };
        // SAFETY: all threads.
        let [sum] = unsafe { self.crew.reduce_block(give, add) };
        sum
    }

    /// The likeliest tokens up to the one with which their number or mass reaches a goal; all if
    /// it does not.
    #[inline(always)]
    fn reach(&mut self, goal: u64, by_mass: bool) -> Cut {
        let all = Cut { last: Key::NONE, mass: self.total };
        // SAFETY: all threads; the tokens are on their rungs.
        unsafe {
            let ladder = &raw mut (*self.crew.shared).ladder;
            let (place, left) = find_place(self.crew, ladder, by_mass, goal);
            if place == RUNGS {
                return all;
            }
            let n = self.tokens.list(self.crew, |rung| rung == place);
            if n > LIST as u32 {
                self.failed = true;
                return all;
            }
            let (last, _) = find_key(self.crew, self.tokens.scale, n, by_mass, left);
            Cut { last, mass: self.mass_down_to(last) }
        }
    }
}

impl Row for Chosen<'_> {
    #[inline(always)]
    fn highest(&self) -> f32 {
        self.highest
    }

    #[inline(always)]
    fn deviation(&mut self) -> f32 {
        self.deviation
    }

    #[inline(always)]
    fn measure(&mut self, temperature: f32, _with_masses: bool) -> Cut {
        self.tokens.scale = Scale::new(self.highest, self.floor, temperature, self.vocab);
        // SAFETY: all threads.
        unsafe { self.tokens.climb(self.crew) };
        self.climbed = true;
        self.total = self.mass_down_to(Key::NONE);
        Cut { last: Key::NONE, mass: self.total }
    }

    #[inline(always)]
    fn likeliest(&mut self, n: u32) -> Cut {
        self.reach(n as u64, false)
    }

    #[inline(always)]
    fn reaching(&mut self, mass: u64) -> Cut {
        self.reach(mass, true)
    }

    #[inline(always)]
    fn scale(&self) -> Scale {
        self.tokens.scale
    }

    #[inline(always)]
    fn mass_down_to(&mut self, last: Key) -> u64 {
        let scale = self.tokens.scale;
        self.sum(last, |gap| scale.mass(gap))
    }

    #[inline(always)]
    fn moment_down_to(&mut self, last: Key) -> u64 {
        let scale = self.tokens.scale;
        self.sum(last, |gap| scale.moment(gap))
    }
}
