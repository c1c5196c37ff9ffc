//! A row's tokens by how far their value lies below the highest: how many there are on
//! each rung, and their probability mass. Every filter keeps the tokens down to some key,
//! and that key lies on the rung where a sum reaches its goal; only there it is searched for.

use std::cmp::Reverse;
use std::ops::SubAssign;

use flash_sampling_kernels::candidate::Key;
use flash_sampling_kernels::filters::{Cut, keeps};
use flash_sampling_kernels::scale::{self, Scale};

use super::lanes::LANES;
use super::tile::TILE_V_LEN;
use super::tops::Tops;
use crate::error::Error;
use crate::output::reserve;

const RUNGS: usize = scale::RUNGS as usize;

/// The keys of a row's tokens are those of (value, index), so their order is that of
/// probability, and of equals the lower index comes first.
#[derive(Debug)]
pub(super) struct Ladder {
    /// What is known of the values, at the scale's temperature.
    known: Known,
    scale: Scale,
    counts: [u32; RUNGS],
    masses: [u64; RUNGS],
    /// Sum of the masses.
    total: u64,
    /// Sum of gaps times weights, if it is known.
    moment: Option<u64>,
    /// The keys of one rung; room for all.
    keys: Vec<Key>,
}

/// What a ladder knows, each with what comes before.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Known {
    Nothing,
    /// The sum of the masses.
    Mass,
    /// How much of it is on which rung.
    Rungs,
    /// And how many tokens are.
    Counts,
}

impl Default for Ladder {
    fn default() -> Self {
        Self {
            known: Known::Nothing,
            scale: Scale::new(0.0, 0.0, 1.0, 1),
            counts: [0; RUNGS],
            masses: [0; RUNGS],
            total: 0,
            moment: None,
            keys: Vec::new(),
        }
    }
}

impl Ladder {
    /// Makes room for `tokens` keys.
    pub(super) fn reserve(&mut self, tokens: u64) -> Result<(), Error> {
        self.keys.clear();
        reserve(&mut self.keys, tokens)?;
        Ok(())
    }

    /// Begins with other values.
    pub(super) fn clear(&mut self) {
        self.known = Known::Nothing;
    }

    /// Finds the sum of the masses at `temperature`, above 0, and that for the entropy, if it is
    /// wanted too. No value is NaN, `highest` is the greatest, above `−inf`, and they are the same
    /// since [`Self::clear`].
    #[inline(always)]
    pub(super) fn weigh(
        &mut self,
        (values, highest): (&[f32], f32),
        temperature: f32,
        with_moment: bool,
    ) {
        if self.known >= Known::Mass && self.scale.temperature() == temperature {
            return;
        }
        // Only rungs ask for the lowest.
        let scale = Scale::new(highest, highest, temperature, values.len() as u32);
        (self.known, self.scale) = (Known::Mass, scale);
        let (mut total, mut sum) = (0, 0);
        for values in values.chunks(TILE_V_LEN) {
            // First all weights, which are narrower than masses.
            let (mut gaps, mut weights) = ([0.0; TILE_V_LEN], [0.0; TILE_V_LEN]);
            for ((gap, weight), &y) in gaps.iter_mut().zip(&mut weights).zip(values) {
                *gap = scale.gap(y);
                *weight = scale.token_weight(*gap);
            }
            for &weight in &weights {
                total += scale.mass_of(weight);
            }
            if with_moment {
                for (&weight, &gap) in weights.iter().zip(&gaps) {
                    sum += scale.moment_of(weight, gap);
                }
            }
        }
        self.total = total;
        self.moment = with_moment.then_some(sum);
    }

    /// Puts every token's mass on its rung at `temperature`; values and temperature as in
    /// [`Self::weigh`].
    #[inline(always)]
    pub(super) fn fill(&mut self, (values, highest): (&[f32], f32), temperature: f32) {
        if self.known >= Known::Rungs && self.scale.temperature() == temperature {
            return;
        }
        let scale = Scale::new(highest, lowest_of(values), temperature, values.len() as u32);
        (self.known, self.scale, self.moment) = (Known::Rungs, scale, None);
        self.masses = [0; RUNGS];
        for values in values.chunks(TILE_V_LEN) {
            let mut rungs = [0; TILE_V_LEN];
            let mut masses = [0; TILE_V_LEN];
            for ((rung, mass), &y) in rungs.iter_mut().zip(&mut masses).zip(values) {
                let gap = scale.gap(y);
                *rung = scale.rung(gap);
                *mass = scale.mass(gap);
            }
            for (&rung, &mass) in rungs.iter().zip(&masses) {
                self.masses[rung as usize] += mass;
            }
        }
        self.total = self.masses.iter().sum();
    }

    /// Counts the tokens on each rung, which have masses.
    #[inline(always)]
    fn count(&mut self, values: &[f32]) {
        if self.known == Known::Counts {
            return;
        }
        self.known = Known::Counts;
        self.counts = [0; RUNGS];
        for values in values.chunks(TILE_V_LEN) {
            let mut rungs = [0; TILE_V_LEN];
            for (rung, &y) in rungs.iter_mut().zip(values) {
                *rung = self.scale.rung(self.scale.gap(y));
            }
            for (&rung, &y) in rungs.iter().zip(values) {
                self.counts[rung as usize] += u32::from(y > f32::NEG_INFINITY);
            }
        }
    }

    /// `ln` of a token's probability.
    pub(super) fn logprob(&self, y: f32) -> f32 {
        self.scale.logprob(y, self.total)
    }

    /// `ln Σ e^(y / T)`.
    pub(super) fn log_sum_exp(&self) -> f32 {
        self.scale.log_sum_exp(self.total)
    }

    /// `−Σ p·ln p`.
    #[inline(always)]
    pub(super) fn entropy(&self, values: &[f32]) -> f32 {
        self.scale.entropy(self.moment_down_to(values, Key::NONE), self.total)
    }

    /// The sum of gaps times weights of the tokens down to a key, as a mass.
    #[inline(always)]
    pub(super) fn moment_down_to(&self, values: &[f32], last: Key) -> u64 {
        match self.moment {
            Some(moment) if last == Key::NONE => moment,
            _ => self.sum_from(values, last, |gap| self.scale.moment(gap)),
        }
    }

    /// The sum over the tokens down to a key of what their gaps give.
    #[inline(always)]
    fn sum_from(&self, values: &[f32], last: Key, of: impl Fn(f32) -> u64) -> u64 {
        let (scale, keeps) = (self.scale, keeps(last));
        let mut sum = 0;
        for (first, values) in (0..).step_by(TILE_V_LEN).zip(values.chunks(TILE_V_LEN)) {
            let mut summands = [0; TILE_V_LEN];
            for (place, (summand, &y)) in summands.iter_mut().zip(values).enumerate() {
                let own = of(scale.gap(y));
                *summand = if keeps(first + place as u32, y) { own } else { 0 };
            }
            for summand in summands {
                sum += summand;
            }
        }
        sum
    }

    /// What masses are measured with.
    pub(super) fn scale(&self) -> Scale {
        self.scale
    }

    /// All tokens.
    pub(super) fn all(&self) -> Cut {
        Cut { last: Key::NONE, mass: self.total }
    }

    /// The mass of the tokens down to a key.
    #[inline(always)]
    pub(super) fn mass_down_to(&mut self, values: &[f32], last: Key) -> u64 {
        if self.known < Known::Rungs {
            return self.sum_from(values, last, |gap| self.scale.mass(gap));
        }
        let rung = self.scale.rung(self.scale.gap(last.score()));
        self.gather(values, rung);
        self.keys.retain(|&key| key >= last);
        self.mass_above(rung) + sum_of(self.scale, &self.keys)
    }

    /// The `n` likeliest tokens; `n ≥ 1`.
    #[inline(always)]
    pub(super) fn likeliest(&mut self, values: &[f32], n: u32) -> Cut {
        self.count(values);
        let Some((rung, left)) = reach(&self.counts, n) else { return self.all() };
        self.gather(values, rung);
        let (scale, before) = (self.scale, self.mass_above(rung));
        let nth = left as usize - 1;
        let (above, &mut last, _) = self.keys.select_nth_unstable_by_key(nth, |&key| Reverse(key));
        Cut { last, mass: before + sum_of(scale, above) + mass_of(scale, last) }
    }

    /// The likeliest tokens up to the one with which their mass reaches `mass`, which is at
    /// least 1 and at most that of all.
    #[inline(always)]
    pub(super) fn reaching(&mut self, values: &[f32], mass: u64) -> Cut {
        let Some((rung, _)) = reach(&self.masses, mass) else { return self.all() };
        self.gather(values, rung);
        let scale = self.scale;
        let mut mass_before = self.mass_above(rung);
        let mut keys = &mut self.keys[..];
        loop {
            let middle = keys.len() / 2;
            let (above, &mut last, below) =
                keys.select_nth_unstable_by_key(middle, |&key| Reverse(key));
            let before = mass_before + sum_of(scale, above);
            let reached = before + mass_of(scale, last);
            if before >= mass {
                keys = above;
            } else if reached >= mass || below.is_empty() {
                return Cut { last, mass: reached };
            } else {
                (mass_before, keys) = (reached, below);
            }
        }
    }

    /// The keys of the `n` likeliest tokens, or of all if there are fewer, in descending order;
    /// `n ≥ 1`. They reach the `n`th of the greatest values of tiles.
    #[inline(always)]
    pub(super) fn best(&mut self, values: &[f32], tops: &Tops, n: u32) -> &[Key] {
        let nth = n as usize - 1;
        self.keys.clear();
        for (tile, &greatest) in (0..).zip(tops.of_tiles()) {
            if greatest > f32::NEG_INFINITY {
                self.keys.push(Key::of_value(greatest, tile));
            }
        }
        let mut least = f32::NEG_INFINITY;
        if nth < self.keys.len() {
            let (_, tile, _) = self.keys.select_nth_unstable_by_key(nth, |&key| Reverse(key));
            least = tile.score();
        }
        self.keys.clear();
        let tiles = values.chunks(TILE_V_LEN).zip(tops.of_tiles()).enumerate();
        for (tile, (values, &greatest)) in tiles {
            if greatest >= least {
                self.push(tile, values, |y| (y >= least) & (y > f32::NEG_INFINITY));
            }
        }
        if nth < self.keys.len() {
            self.keys.select_nth_unstable_by_key(nth, |&key| Reverse(key));
            self.keys.truncate(n as usize);
        }
        self.keys.sort_unstable_by_key(|&key| Reverse(key));
        &self.keys
    }

    /// Takes the keys of one rung.
    #[inline(always)]
    fn gather(&mut self, values: &[f32], rung: u32) {
        let scale = self.scale;
        self.collect(values, |y| (scale.rung(scale.gap(y)) == rung) & (y > f32::NEG_INFINITY));
    }

    /// Takes the keys of the values that are `wanted`.
    #[inline(always)]
    fn collect(&mut self, values: &[f32], wanted: impl Fn(f32) -> bool) {
        self.keys.clear();
        for (tile, values) in values.chunks(TILE_V_LEN).enumerate() {
            // Most pieces have none, which vector instructions tell.
            let mut any = false;
            for &y in values {
                any |= wanted(y);
            }
            if any {
                self.push(tile, values, &wanted);
            }
        }
    }

    /// Adds the keys of those values of a tile that are `wanted`.
    #[inline(always)]
    fn push(&mut self, tile: usize, values: &[f32], wanted: impl Fn(f32) -> bool) {
        let first = (tile * TILE_V_LEN) as u32;
        for (index, &y) in (first..).zip(values) {
            if wanted(y) {
                self.keys.push(Key::of_value(y, index));
            }
        }
    }

    fn mass_above(&self, rung: u32) -> u64 {
        self.masses[..rung as usize].iter().sum()
    }
}

/// The rung on which the running sum reaches `goal`, and what is left of it there.
#[inline(always)]
fn reach<T: Copy + PartialOrd + SubAssign>(on_rungs: &[T], goal: T) -> Option<(u32, T)> {
    let mut left = goal;
    for (rung, &on_rung) in (0..).zip(on_rungs) {
        if left <= on_rung {
            return Some((rung, left));
        }
        left -= on_rung;
    }
    None
}

#[inline(always)]
fn mass_of(scale: Scale, key: Key) -> u64 {
    scale.mass(scale.gap(key.score()))
}

#[inline(always)]
fn sum_of(scale: Scale, keys: &[Key]) -> u64 {
    let mut sum = 0;
    for &key in keys {
        sum += mass_of(scale, key);
    }
    sum
}

/// The least value above `−inf`, at most that of `+inf`; none is NaN.
#[inline(always)]
pub(super) fn lowest_of(values: &[f32]) -> f32 {
    let admitted = |y: f32| if y > f32::NEG_INFINITY { y } else { f32::MAX };
    let lower = |a: f32, b: f32| if b < a { b } else { a };
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [f32::MAX; LANES];
    for values in chunks {
        for (lane, &y) in lanes.iter_mut().zip(values) {
            *lane = lower(*lane, admitted(y));
        }
    }
    let mut lowest = f32::MAX;
    for &y in lanes.iter().chain(rest) {
        lowest = lower(lowest, admitted(y));
    }
    lowest
}
