//! A listed row of too many tokens to be put in order, as its filters measure it: a key is found
//! by halving the range of all keys, a sum over the tokens each time. Such rows are rare.

use super::crew::{Crew, add};
use super::shortlist::Tokens;
use crate::candidate::Key;
use crate::filters::{Cut, Row};
use crate::scale::Scale;

pub(super) struct Halved<'a> {
    crew: &'a Crew<1>,
    tokens: Tokens,
    highest: f32,
    scale: Scale,
    /// Mass of all.
    total: u64,
}

impl<'a> Halved<'a> {
    #[inline(always)]
    pub(super) fn new(crew: &'a Crew<1>, tokens: Tokens, highest: f32) -> Self {
        let scale = Scale::new(highest, highest, 1.0, tokens.list.vocab);
        Self { crew, tokens, highest, scale, total: 0 }
    }

    /// The sum over the tokens with keys from `last` on.
    #[inline(always)]
    fn sum<const N: usize>(&self, last: Key, of: impl Fn(f32) -> [u64; N]) -> [u64; N] {
        let tokens = self.tokens;
        let give = |thread| {
            let mut sums = [0; N];
            // SAFETY: the tokens are there.
            unsafe {
                tokens.each(thread, |key| {
                    if key != Key::NONE && key >= last {
                        sums = add(sums, of(key.score()));
                    }
                });
            }
            sums
        };
        // SAFETY: all threads.
        unsafe { self.crew.reduce_block(give, add) }
    }

    /// How many tokens have keys from `last` on, and their mass.
    #[inline(always)]
    fn down_to_key(&self, last: Key) -> [u64; 2] {
        let scale = self.scale;
        self.sum(last, |y| [1, scale.mass(scale.gap(y))])
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

impl Row for Halved<'_> {
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
    fn measure(&mut self, temperature: f32, _with_masses: bool) -> Cut {
        self.scale = Scale::new(self.highest, self.highest, temperature, self.tokens.list.vocab);
        [_, self.total] = self.down_to_key(Key::NONE);
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
        self.scale
    }

    #[inline(always)]
    fn mass_down_to(&mut self, last: Key) -> u64 {
        let [_, mass] = self.down_to_key(last);
        mass
    }

    #[inline(always)]
    fn moment_down_to(&mut self, last: Key) -> u64 {
        let scale = self.scale;
        let [moment] = self.sum(last, |y| [scale.moment(scale.gap(y))]);
        moment
    }
}
