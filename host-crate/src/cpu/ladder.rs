//! A row's tokens by how far their value lies below the highest: how many there are on
//! each rung, and their probability mass. Every filter keeps the tokens down to some key,
//! and that key lies on the rung where a sum reaches its goal; only there it is searched for.

use std::cmp::Reverse;
use std::ops::SubAssign;

use flash_sampling_kernels::abi::NO_TOKEN;
use flash_sampling_kernels::candidate::Key;
use flash_sampling_kernels::mass::{MassUnit, decay, gap};

use super::lanes::LANES;
use super::tile::{TILE_V_LEN, highest};
use crate::error::Error;
use crate::output::reserve;

/// The last rung has all tokens from there on.
const RUNGS: usize = 512;

const LAST_RUNG: f32 = (RUNGS - 1) as f32;

/// Rungs for a gap of 1, a factor of e in probability: with the least of them they reach
/// down to a gap of 32, where a vocabulary of 2¹⁸ tokens has masses of 0; flat rows have
/// more, as far as they are told apart.
const RUNGS_PER_NAT: [f32; 2] = [16.0, 65_536.0];

/// The keys of a row's tokens are those of (value, index), so their order is that of
/// probability, and of equals the lower index comes first.
#[derive(Debug)]
pub(super) struct Ladder {
    /// Whether the tokens are on their rungs.
    filled: bool,
    scale: Scale,
    counts: [u32; RUNGS],
    masses: [u64; RUNGS],
    /// Sum of the masses.
    total: u64,
    /// The keys of one rung; room for all.
    keys: Vec<Key>,
}

/// The tokens down to a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// The least key that is kept.
    pub(super) last: Key,
    /// Mass of the tokens that are kept.
    pub(super) mass: u64,
}

impl Cut {
    /// The tokens that both keep. One of the two sets contains the other.
    pub(super) fn and(self, other: Self) -> Self {
        Self { last: self.last.max(other.last), mass: self.mass.min(other.mass) }
    }
}

impl Default for Ladder {
    fn default() -> Self {
        Self {
            filled: false,
            scale: Scale {
                highest: 0.0,
                temperature: 1.0,
                rungs_per_nat: RUNGS_PER_NAT[0],
                unit: MassUnit::for_tokens(1),
            },
            counts: [0; RUNGS],
            masses: [0; RUNGS],
            total: 0,
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
        self.filled = false;
    }

    /// Puts every token on its rung at `temperature`, above 0. No value is NaN, one is above
    /// `−inf`, and they are the same since [`Self::clear`].
    #[inline(always)]
    pub(super) fn fill(&mut self, values: &[f32], temperature: f32) {
        if self.filled && self.scale.temperature == temperature {
            return;
        }
        self.filled = true;
        let scale = Scale::new(values, temperature);
        self.scale = scale;
        self.counts = [0; RUNGS];
        self.masses = [0; RUNGS];
        for values in values.chunks(TILE_V_LEN) {
            let mut rungs = [0; TILE_V_LEN];
            let mut masses = [0; TILE_V_LEN];
            for ((rung, mass), &y) in rungs.iter_mut().zip(&mut masses).zip(values) {
                let gap = scale.gap(y);
                *rung = scale.rung(gap);
                *mass = scale.unit.mass(decay(-gap));
            }
            for ((&rung, &mass), &y) in rungs.iter().zip(&masses).zip(values) {
                self.counts[rung as usize] += u32::from(y > f32::NEG_INFINITY);
                self.masses[rung as usize] += mass;
            }
        }
        self.total = self.masses.iter().sum();
    }

    /// `ln` of a token's probability.
    pub(super) fn logprob(&self, y: f32) -> f32 {
        -self.scale.gap(y) - self.scale.unit.log_of(self.total)
    }

    /// `ln Σ e^(y / T)`.
    pub(super) fn log_sum_exp(&self) -> f32 {
        self.scale.highest / self.scale.temperature + self.scale.unit.log_of(self.total)
    }

    /// `−Σ p·ln p`: `ln` of the sum of weights, and the mean gap.
    #[inline(always)]
    pub(super) fn entropy(&self, values: &[f32]) -> f32 {
        self.scale.unit.log_of(self.total) + self.mean_gap(values, self.all())
    }

    /// The mean gap of tokens that are kept, each counted by its weight.
    #[inline(always)]
    pub(super) fn mean_gap(&self, values: &[f32], kept: Cut) -> f32 {
        let (scale, keeps) = (self.scale, keeps(kept.last));
        let mut moment = 0;
        for (first, values) in (0..).step_by(TILE_V_LEN).zip(values.chunks(TILE_V_LEN)) {
            let mut moments = [0.0; TILE_V_LEN];
            for (place, (moment, &y)) in moments.iter_mut().zip(values).enumerate() {
                let gap = scale.gap(y);
                let weight = decay(-gap);
                let is_kept = (weight > 0.0) & keeps(first + place as u32, y);
                *moment = if is_kept { weight * gap } else { 0.0 };
            }
            for moment_of_one in moments {
                moment += scale.unit.mass(moment_of_one);
            }
        }
        scale.unit.weight(moment) / self.weight(kept)
    }

    /// The sum of the weights of tokens that are kept.
    pub(super) fn weight(&self, kept: Cut) -> f32 {
        self.scale.unit.weight(kept.mass)
    }

    /// All tokens.
    pub(super) fn all(&self) -> Cut {
        Cut { last: Key::NONE, mass: self.total }
    }

    /// Of the tokens that are kept those down to a key.
    #[inline(always)]
    pub(super) fn down_to(&mut self, values: &[f32], kept: Cut, last: Key) -> Cut {
        if last <= kept.last {
            return kept;
        }
        let rung = self.scale.rung(self.scale.gap(last.score()));
        self.gather(values, rung);
        self.keys.retain(|&key| key >= last);
        Cut { last, mass: self.mass_above(rung) + self.scale.sum(&self.keys) }
    }

    /// The `n` likeliest tokens; `n ≥ 1`.
    #[inline(always)]
    pub(super) fn likeliest(&mut self, values: &[f32], n: u32) -> Cut {
        let Some((rung, left)) = reach(&self.counts, n) else { return self.all() };
        self.gather(values, rung);
        let (scale, before) = (self.scale, self.mass_above(rung));
        let nth = left as usize - 1;
        let (above, &mut last, _) = self.keys.select_nth_unstable_by_key(nth, |&key| Reverse(key));
        Cut { last, mass: before + scale.sum(above) + scale.mass(last) }
    }

    /// The likeliest tokens up to the one with which their mass reaches `mass`, which is at
    /// least 1 and at most that of all.
    #[inline(always)]
    pub(super) fn reaching(&mut self, values: &[f32], mass: u64) -> Cut {
        let Some((rung, _)) = reach(&self.masses, mass) else { return self.all() };
        self.gather(values, rung);
        let scale = self.scale;
        let mut sum = self.mass_above(rung);
        let mut keys = &mut self.keys[..];
        loop {
            let middle = keys.len() / 2;
            let (above, &mut last, below) =
                keys.select_nth_unstable_by_key(middle, |&key| Reverse(key));
            let before = sum + scale.sum(above);
            let reached = before + scale.mass(last);
            if before >= mass {
                keys = above;
            } else if reached >= mass || below.is_empty() {
                return Cut { last, mass: reached };
            } else {
                (sum, keys) = (reached, below);
            }
        }
    }

    /// The keys down to that of `cut`, in descending order.
    #[inline(always)]
    pub(super) fn sorted(&mut self, values: &[f32], cut: Cut) -> &[Key] {
        let least = cut.last.score();
        self.collect(values, |y| (y >= least) & (y > f32::NEG_INFINITY));
        self.keys.retain(|&key| key >= cut.last);
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
        for (first, values) in (0..).step_by(TILE_V_LEN).zip(values.chunks(TILE_V_LEN)) {
            // Most pieces have none, which vector instructions tell.
            let mut any = false;
            for &y in values {
                any |= wanted(y);
            }
            if !any {
                continue;
            }
            for (index, &y) in (first..).zip(values) {
                if wanted(y) {
                    // Adding 0 makes −0 a 0.
                    self.keys.push(Key::new(y + 0.0, index));
                }
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

/// How the values of a row become masses.
#[derive(Clone, Copy, Debug)]
struct Scale {
    /// The highest value, finite.
    highest: f32,
    temperature: f32,
    rungs_per_nat: f32,
    unit: MassUnit,
}

impl Scale {
    #[inline(always)]
    fn new(values: &[f32], temperature: f32) -> Self {
        let highest = highest_of(values).min(f32::MAX);
        let [least, most] = RUNGS_PER_NAT;
        let rungs_per_nat = LAST_RUNG / gap(highest, lowest_of(values), temperature);
        Self {
            highest,
            temperature,
            rungs_per_nat: rungs_per_nat.clamp(least, most),
            unit: MassUnit::for_tokens(values.len() as u32),
        }
    }

    /// The rung of a gap, which is at least 0.
    #[inline(always)]
    fn rung(self, gap: f32) -> u32 {
        let rung = gap * self.rungs_per_nat;
        let rung = if rung < LAST_RUNG { rung } else { LAST_RUNG };
        // SAFETY: it lies from 0 to `LAST_RUNG`.
        unsafe { rung.to_int_unchecked::<i32>() as u32 }
    }

    /// How far a value lies below the highest; `+inf` counts as the highest.
    #[inline(always)]
    fn gap(self, y: f32) -> f32 {
        let y = if y < self.highest { y } else { self.highest };
        gap(self.highest, y, self.temperature)
    }

    #[inline(always)]
    fn mass(self, key: Key) -> u64 {
        self.unit.mass(decay(-self.gap(key.score())))
    }

    #[inline(always)]
    fn sum(self, keys: &[Key]) -> u64 {
        let mut sum = 0;
        for &key in keys {
            sum += self.mass(key);
        }
        sum
    }
}

/// Whether a token with this index and value has a key from `last` on. Without a branch, so
/// that it becomes vector instructions.
#[inline(always)]
pub(super) fn keeps(last: Key) -> impl Fn(u32, f32) -> bool {
    let (last_y, last_index) = (last.score(), last.token());
    move |index, y| (y > last_y) | ((y == last_y) & (index <= last_index))
}

/// Of all keys with a value the least; adding 0 makes −0 a 0.
pub(super) fn least_key(y: f32) -> Key {
    Key::new(y + 0.0, NO_TOKEN - 1)
}

/// The greatest value; none is NaN.
#[inline(always)]
pub(super) fn highest_of(values: &[f32]) -> f32 {
    let (tiles, rest) = values.as_chunks::<TILE_V_LEN>();
    let mut greatest = rest.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for tile in tiles {
        greatest = greatest.max(highest(tile));
    }
    greatest
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
