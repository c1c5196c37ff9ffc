//! Rows of which top_k leaves few tokens: the filters are measured on these alone, and the others
//! need no ladder.

use flash_sampling_kernels::abi::kept::RowFeatures;
use flash_sampling_kernels::candidate::Key;
use flash_sampling_kernels::filters::{Cut, Row};
use flash_sampling_kernels::scale::Scale;
use flash_sampling_kernels::shortlist;

use super::filters::deviation;

/// Tokens that may be left.
const MOST: usize = shortlist::MOST_COUNTED as usize;

/// One row.
pub(super) struct Short<'a> {
    values: &'a [f32],
    /// The greatest value, finite.
    highest: f32,
    /// What top_k leaves, in descending order.
    keys: &'a [Key],
    scale: Scale,
    /// The mass down to each of them.
    masses: [u64; MOST],
}

impl<'a> Short<'a> {
    /// Whether the filters of such a row look at no more than what top_k leaves.
    pub(super) fn serves(features: &RowFeatures) -> bool {
        let is_joint = features.options & RowFeatures::JOINT != 0;
        shortlist::counts(features) && !is_joint
    }

    /// A row with these `keys` left, at least one.
    pub(super) fn new(values: &'a [f32], highest: f32, keys: &'a [Key]) -> Self {
        let scale = Scale::new(highest, highest, 1.0, values.len() as u32);
        Self { values, highest, keys, scale, masses: [0; MOST] }
    }

    /// The first `n` tokens.
    fn first(&self, n: usize) -> Cut {
        let last = n.checked_sub(1);
        last.map_or(Cut { last: self.keys[0], mass: 0 }, |last| Cut {
            last: self.keys[last],
            mass: self.masses[last],
        })
    }

    /// All of them. What is not among them has no mass, as the filters go.
    fn all(&self) -> Cut {
        Cut { last: Key::NONE, ..self.first(self.keys.len()) }
    }
}

impl Row for Short<'_> {
    #[inline(always)]
    fn highest(&self) -> f32 {
        self.highest
    }

    #[inline(always)]
    fn deviation(&mut self) -> f32 {
        deviation(self.values, self.highest)
    }

    #[inline(always)]
    fn measure(&mut self, temperature: f32, _with_masses: bool) -> Cut {
        self.scale = Scale::new(self.highest, self.highest, temperature, self.values.len() as u32);
        let mut sum = 0;
        for (mass, key) in self.masses.iter_mut().zip(self.keys) {
            sum += self.scale.mass(self.scale.gap(key.score()));
            *mass = sum;
        }
        self.all()
    }

    #[inline(always)]
    fn likeliest(&mut self, n: u32) -> Cut {
        if n as usize <= self.keys.len() { self.first(n as usize) } else { self.all() }
    }

    #[inline(always)]
    fn reaching(&mut self, mass: u64) -> Cut {
        let before = self.masses[..self.keys.len()].partition_point(|&sum| sum < mass);
        self.first(before + 1)
    }

    #[inline(always)]
    fn scale(&self) -> Scale {
        self.scale
    }

    #[inline(always)]
    fn mass_down_to(&mut self, last: Key) -> u64 {
        self.first(self.keys.partition_point(|&key| key >= last)).mass
    }

    #[inline(always)]
    fn moment_down_to(&mut self, last: Key) -> u64 {
        let kept_keys = self.keys.iter().filter(|&&key| key >= last);
        kept_keys.map(|key| self.scale.moment(self.scale.gap(key.score()))).sum()
    }
}
