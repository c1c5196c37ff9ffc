//! A row as its filters and reports measure it: the ladder of `host-crate/src/cpu/ladder.rs`,
//! climbed by all threads of a cluster.

use super::crew::{Crew, LIST};
use super::edit::Edited;
use super::goal::{find_key, find_place};
use super::histogram::Histogram;
use super::view::View;
use crate::candidate::Key;
use crate::deviation::{Sums, Units};
use crate::filters::{Cut, Row, keeps};
use crate::scale::{RUNGS, Scale};

/// The row, its values as they are.
pub(super) struct KeptRow<'a, const CLUSTER: u32> {
    pub(super) crew: &'a mut Crew<CLUSTER>,
    pub(super) view: View<'a>,
    pub(super) edited: Edited,
    /// Whether the tokens are on their rungs, at the scale's temperature.
    filled: bool,
    pub(super) scale: Scale,
    /// Sum of the masses.
    pub(super) total: u64,
}

/// What the likeliest tokens are to reach.
#[derive(Clone, Copy)]
enum Goal {
    Count(u32),
    Mass(u64),
}

/// How tokens are told apart.
#[derive(Clone, Copy)]
struct Split {
    /// By their rung, or by their key.
    by_key: bool,
    /// The greatest and least key of all pieces.
    greatest: Key,
    least: Key,
    /// A piece has `2^shift` keys.
    shift: u32,
}

impl Split {
    const RUNGS: Self = Self { by_key: false, greatest: Key::NONE, least: Key::NONE, shift: 0 };

    /// Keys from `greatest` down to `least`, in as many pieces as there are rungs or fewer.
    #[inline(always)]
    fn keys(greatest: Key, least: Key) -> Self {
        let bits = u64::BITS - (greatest.bits() - least.bits()).leading_zeros();
        Self { by_key: true, greatest, least, shift: bits.saturating_sub(RUNGS.ilog2()) }
    }

    /// The rung or piece of a token with this gap, or one that there is not.
    #[inline(always)]
    fn place(self, scale: Scale, index: u32, y: f32, gap: f32) -> u32 {
        let mut place = scale.rung(gap);
        if self.by_key {
            let key = Key::of_value(y, index);
            let is_outside = (key > self.greatest) | (key < self.least);
            let piece = self.greatest.bits().wrapping_sub(key.bits()) >> self.shift;
            place = if is_outside { RUNGS } else { piece as u32 };
        }
        if y == f32::NEG_INFINITY { RUNGS } else { place }
    }

    /// Where a token counts, and with which mass.
    #[inline(always)]
    fn bucket(self, scale: Scale) -> impl Fn(u32, f32) -> (u32, u64) {
        move |index, y| {
            let gap = scale.capped_gap(y);
            (self.place(scale, index, y, gap), scale.mass(gap))
        }
    }
}

impl<'a, const CLUSTER: u32> KeptRow<'a, CLUSTER> {
    #[inline(always)]
    pub(super) fn new(crew: &'a mut Crew<CLUSTER>, view: View<'a>, edited: Edited) -> Self {
        let scale = Scale::new(0.0, 0.0, 1.0, view.vocab());
        Self { crew, view, edited, filled: false, scale, total: 0 }
    }

    /// Finds the sum of the masses at a temperature, above 0, if it is not known.
    #[inline(always)]
    pub(super) fn weigh(&mut self, temperature: f32) {
        if self.filled && self.scale.temperature() == temperature {
            return;
        }
        self.filled = false;
        let scale = self.scale_at(temperature);
        self.scale = scale;
        // SAFETY: the values are there.
        [self.total] =
            unsafe { self.crew.sum(self.view, |_, y| [scale.mass(scale.capped_gap(y))]) };
    }

    #[inline(always)]
    fn scale_at(&self, temperature: f32) -> Scale {
        let Edited { highest, lowest, .. } = self.edited;
        Scale::new(highest, lowest, temperature, self.view.vocab())
    }

    /// The likeliest tokens up to the one with which the goal is reached; all if it is not.
    #[inline(always)]
    fn reach(&mut self, goal: Goal) -> Cut {
        let (scale, view) = (self.scale, self.view);
        let (by_mass, mut left) = match goal {
            Goal::Count(n) => (false, n as u64),
            Goal::Mass(mass) => (true, mass),
        };
        // SAFETY: the values are there, and the ladder was filled.
        unsafe {
            let shared = self.crew.shared;
            let mut histogram = &raw mut (*shared).ladder;
            let (mut split, mut mass_above) = (Split::RUNGS, 0);
            loop {
                let (place, left_there) = find_place(self.crew, histogram, by_mass, left);
                if place == RUNGS {
                    return Cut { last: Key::NONE, mass: self.total };
                }
                if by_mass {
                    mass_above += left - left_there;
                } else {
                    let mass_of = |thread| {
                        [if thread < place { Histogram::read(histogram, thread).0 } else { 0 }]
                    };
                    let [mass] = self.crew.reduce_block(mass_of, |[a], [b]| [a + b]);
                    mass_above += mass;
                }
                left = left_there;
                let (_, n) = Histogram::read(histogram, place);
                let is_there =
                    move |index, y| split.place(scale, index, y, scale.capped_gap(y)) == place;
                if n <= LIST as u32 {
                    self.crew.gather(view, is_there);
                    let (last, mass) = find_key(self.crew, scale, n, by_mass, left);
                    return Cut { last, mass: mass_above + mass };
                }
                let (greatest, least) = self.ends(is_there);
                split = Split::keys(greatest, least);
                histogram = &raw mut (*shared).pieces;
                self.crew.fill(histogram, view, split.bucket(scale));
            }
        }
    }

    /// The greatest and the least key of the tokens that are `wanted`.
    #[inline(always)]
    unsafe fn ends(&mut self, wanted: impl Fn(u32, f32) -> bool) -> (Key, Key) {
        let part = self.view.slice(self.crew);
        let greater =
            |a: [u64; 2], b: [u64; 2]| [core::cmp::max(a[0], b[0]), core::cmp::max(a[1], b[1])];
        // SAFETY: the values are there.
        let [greatest, least] = unsafe {
            let give = |thread| {
                let mut ends = [0; 2];
                part.for_each(thread, |index, y| {
                    if wanted(index, y) {
                        let bits = Key::of_value(y, index).bits();
                        ends = greater(ends, [bits, !bits]);
                    }
                });
                ends
            };
            self.crew.reduce(give, greater)
        };
        (Key::from_bits(greatest), Key::from_bits(!least))
    }
}

impl<const CLUSTER: u32> Row for KeptRow<'_, CLUSTER> {
    #[inline(always)]
    fn highest(&self) -> f32 {
        self.edited.highest
    }

    #[inline(always)]
    fn deviation(&mut self) -> f32 {
        let units = Units::new(self.edited.highest, self.edited.lowest);
        let of = |_, y| {
            let Sums { n, units, squares } = units.of(y);
            [n, units, squares[0], squares[1]]
        };
        // SAFETY: the values are there.
        let [n, sum, low, high] = unsafe { self.crew.sum(self.view, of) };
        units.deviation(Sums { n, units: sum, squares: [low, high] })
    }

    #[inline(always)]
    fn measure(&mut self, temperature: f32, _with_masses: bool) -> Cut {
        if !self.filled || self.scale.temperature() != temperature {
            self.filled = true;
            let scale = self.scale_at(temperature);
            self.scale = scale;
            // SAFETY: the values are there.
            unsafe {
                let ladder = &raw mut (*self.crew.shared).ladder;
                self.crew.fill(ladder, self.view, Split::RUNGS.bucket(scale));
                let give = |thread| [Histogram::read(ladder, thread).0];
                [self.total] = self.crew.reduce_block(give, |[a], [b]| [a + b]);
            }
        }
        Cut { last: Key::NONE, mass: self.total }
    }

    #[inline(always)]
    fn likeliest(&mut self, n: u32) -> Cut {
        self.reach(Goal::Count(n))
    }

    #[inline(always)]
    fn reaching(&mut self, mass: u64) -> Cut {
        self.reach(Goal::Mass(mass))
    }

    #[inline(always)]
    fn scale(&self) -> Scale {
        self.scale
    }

    #[inline(always)]
    fn mass_down_to(&mut self, last: Key) -> u64 {
        let (scale, keeps) = (self.scale, keeps(last));
        let of = |index, y| [if keeps(index, y) { scale.mass(scale.capped_gap(y)) } else { 0 }];
        // SAFETY: the values are there.
        let [mass] = unsafe { self.crew.sum(self.view, of) };
        mass
    }

    #[inline(always)]
    fn moment_down_to(&mut self, last: Key) -> u64 {
        let (scale, keeps) = (self.scale, keeps(last));
        let of = |index, y| [if keeps(index, y) { scale.moment(scale.capped_gap(y)) } else { 0 }];
        // SAFETY: the values are there.
        let [moment] = unsafe { self.crew.sum(self.view, of) };
        moment
    }
}
