//! What a row's filters keep: the tokens down to a key. The keys are those of (value, index),
//! so their order is that of probability, and of equals the lower index comes first.

use crate::abi::NO_TOKEN;
use crate::abi::kept::RowFeatures;
use crate::candidate::Key;
use crate::deviation::sqrt;
use crate::mass::{decay, min_p_floor, share};
use crate::scale::Scale;

/// The tokens down to a key.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The least key that is kept.
    pub last: Key,
    /// Mass of the tokens that are kept.
    pub mass: u64,
}

impl Cut {
    /// The tokens that both keep. One of the two sets contains the other.
    #[inline(always)]
    fn and(self, other: Self) -> Self {
        Self {
            last: core::cmp::max(self.last, other.last),
            mass: core::cmp::min(self.mass, other.mass),
        }
    }
}

/// A row of values, none NaN, the highest finite.
pub trait Row {
    /// The highest.
    fn highest(&self) -> f32;

    /// The standard deviation of those above `−inf`.
    fn deviation(&mut self) -> f32;

    /// Begins with masses at this temperature, above 0; all tokens. Unless `with_masses`, nobody will
    /// ask for any.
    fn measure(&mut self, temperature: f32, with_masses: bool) -> Cut;

    /// The `n` likeliest tokens; `n ≥ 1`.
    fn likeliest(&mut self, n: u32) -> Cut;

    /// The likeliest tokens up to the one with which their mass reaches `mass`, which is at
    /// least 1 and at most that of all.
    fn reaching(&mut self, mass: u64) -> Cut;

    /// What its masses are measured with.
    fn scale(&self) -> Scale;

    /// The mass of the tokens down to a key.
    fn mass_down_to(&mut self, last: Key) -> u64;

    /// The sum of their gaps times their weights, as a mass.
    fn moment_down_to(&mut self, last: Key) -> u64;

    /// Of the tokens that are kept those down to a key.
    #[inline(always)]
    fn down_to(&mut self, kept: Cut, last: Key) -> Cut {
        if last <= kept.last {
            return kept;
        }
        Cut { last, mass: self.mass_down_to(last) }
    }

    /// The mean gap of tokens that are kept, each counted by its weight.
    #[inline(always)]
    fn mean_gap(&mut self, kept: Cut) -> f32 {
        let moment = self.moment_down_to(kept.last);
        self.scale().mean_gap(moment, kept.mass)
    }

    /// The sum of the weights of tokens that are kept.
    #[inline(always)]
    fn weight(&self, kept: Cut) -> f32 {
        self.scale().weight(kept.mass)
    }
}

/// A row's filters, read where they are used: a kernel has no registers for all of them.
#[derive(Clone, Copy, Debug)]
pub struct Filters<'a> {
    features: &'a RowFeatures,
    /// The row's.
    temperature: f32,
}

impl<'a> Filters<'a> {
    /// Those of a row at this temperature.
    #[inline(always)]
    pub fn new(features: &'a RowFeatures, temperature: f32) -> Self {
        Self { features, temperature }
    }

    /// Whether they may keep a token from being drawn.
    #[inline(always)]
    pub fn any(&self) -> bool {
        let RowFeatures { top_k, min_p, top_n_sigma, .. } = *self.features;
        let asked = self.need_masses() | (top_k > 0) | (min_p > 0.0) | (top_n_sigma > 0.0);
        asked & (self.temperature > 0.0)
    }

    #[inline(always)]
    fn need_masses(&self) -> bool {
        let RowFeatures { top_p, epsilon_cutoff, eta_cutoff, .. } = *self.features;
        (top_p < 1.0) | (epsilon_cutoff > 0.0) | (eta_cutoff > 0.0)
    }

    /// The least key that they keep; they are [`Self::any`].
    #[inline(always)]
    pub fn last_of(&self, row: &mut impl Row) -> Key {
        let features = self.features;
        let is = |option: u32| features.options & option != 0;
        let temperature = if is(RowFeatures::FILTERS_AT_ONE) { 1.0 } else { self.temperature };
        let highest = row.highest();
        let floor = |weight| least_key(min_p_floor(highest, temperature, weight));
        let mut by_sigma = Key::NONE;
        if features.top_n_sigma > 0.0 {
            by_sigma = least_key(highest - features.top_n_sigma * row.deviation());
        }
        let by_min_p = if features.min_p > 0.0 { floor(features.min_p) } else { Key::NONE };
        let by_value = core::cmp::max(by_sigma, by_min_p);
        if !self.need_masses() && features.top_k == 0 {
            return by_value;
        }
        let all = row.measure(temperature, self.need_masses());
        let by_top_k = if features.top_k > 0 { row.likeliest(features.top_k) } else { all };
        if !self.need_masses() {
            return core::cmp::max(by_value, by_top_k.last);
        }
        let by_counts = row.down_to(by_top_k, by_sigma);
        let mut kept = row.down_to(by_counts, by_min_p);
        if features.top_p < 1.0 {
            let whole = if is(RowFeatures::MIN_P_LAST) { by_counts } else { kept };
            let whole = if is(RowFeatures::JOINT) { all } else { whole };
            kept = kept.and(row.reaching(share(whole.mass, features.top_p)));
        }
        // A probability is a weight divided by the sum of the weights: cutoffs are multiplied
        // by that sum instead.
        if features.epsilon_cutoff > 0.0 {
            let whole = if is(RowFeatures::JOINT) { all } else { kept };
            kept = row.down_to(kept, floor(features.epsilon_cutoff * row.weight(whole)));
        }
        if features.eta_cutoff > 0.0 {
            let whole = if is(RowFeatures::JOINT) { all } else { kept };
            // e^−entropy is e^−mean gap, divided by the sum of the weights.
            let root = sqrt(features.eta_cutoff as f64) as f32;
            let by_entropy = root * decay(-row.mean_gap(whole));
            let by_weight = features.eta_cutoff * row.weight(whole);
            let least = if by_entropy < by_weight { by_entropy } else { by_weight };
            return core::cmp::max(kept.last, floor(least));
        }
        kept.last
    }
}

/// Of all keys with a value the least.
#[inline(always)]
fn least_key(y: f32) -> Key {
    Key::of_value(y, NO_TOKEN - 1)
}

/// Whether a token with this index and value has a key from `last` on. Without a branch, so
/// that it becomes vector instructions.
#[inline(always)]
pub fn keeps(last: Key) -> impl Fn(u32, f32) -> bool + Copy {
    let (last_y, last_index) = (last.score(), last.token());
    move |index, y| (y > last_y) | ((y == last_y) & (index <= last_index))
}
