//! A row of values, as filters measure it.

use flash_sampling_kernels::abi::kept::RowFeatures;
use flash_sampling_kernels::candidate::Key;
use flash_sampling_kernels::deviation::{Sums, Units};
use flash_sampling_kernels::filters::{Cut, Row};
use flash_sampling_kernels::scale::Scale;

use super::ladder::{Ladder, lowest_of};

/// One row.
pub(super) struct Measured<'a> {
    pub(super) ladder: &'a mut Ladder,
    pub(super) values: &'a [f32],
    /// The greatest value, finite.
    pub(super) highest: f32,
    /// What it asks for.
    pub(super) features: &'a RowFeatures,
}

impl Row for Measured<'_> {
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
        let RowFeatures { top_k, top_p, eta_cutoff, .. } = *self.features;
        let values = (self.values, self.highest);
        // Only what counts up to a goal looks at rungs.
        if top_k > 0 || top_p < 1.0 {
            self.ladder.fill(values, temperature);
        } else {
            self.ladder.weigh(values, temperature, eta_cutoff > 0.0);
        }
        self.ladder.all()
    }

    #[inline(always)]
    fn likeliest(&mut self, n: u32) -> Cut {
        self.ladder.likeliest(self.values, n)
    }

    #[inline(always)]
    fn reaching(&mut self, mass: u64) -> Cut {
        self.ladder.reaching(self.values, mass)
    }

    #[inline(always)]
    fn scale(&self) -> Scale {
        self.ladder.scale()
    }

    #[inline(always)]
    fn mass_down_to(&mut self, last: Key) -> u64 {
        self.ladder.mass_down_to(self.values, last)
    }

    #[inline(always)]
    fn moment_down_to(&mut self, last: Key) -> u64 {
        self.ladder.moment_down_to(self.values, last)
    }
}

/// The standard deviation of the values above `−inf`.
#[inline(always)]
pub(super) fn deviation(values: &[f32], highest: f32) -> f32 {
    let units = Units::new(highest, lowest_of(values));
    let mut sums = Sums::default();
    for &y in values {
        sums.add(units.of(y));
    }
    units.deviation(sums)
}

#[cfg(test)]
mod tests {
    use flash_sampling_kernels::filters::Filters;
    use flash_sampling_kernels::mass::{MassUnit, decay, gap, min_p_floor, share};

    use super::super::short::Short;
    use super::super::tops::Tops;
    use super::*;
    use crate::features::row_features;
    use crate::params::{FilterOrder, SamplingParams};

    /// Numerical Recipes' generator: its upper bits will do for test rows.
    fn random(state: &mut u32) -> f32 {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (*state >> 8) as f32 / 16_777_216.0
    }

    /// The keys that the filters keep, by sorting and adding up all of them.
    fn sorted(values: &[f32], params: &SamplingParams) -> Vec<Key> {
        let admitted = (0..).zip(values).filter(|(_, y)| **y > f32::NEG_INFINITY);
        let mut keys: Vec<Key> = admitted.map(|(i, &y)| Key::of_value(y, i)).collect();
        keys.sort_unstable_by(|a, b| b.cmp(a));
        let highest = keys[0].score();
        let unit = MassUnit::for_tokens(values.len() as u32);
        let mass = |key: Key| unit.mass(decay(-gap(highest, key.score(), params.temperature)));
        let sum = |keys: &[Key]| keys.iter().map(|&key| mass(key)).sum::<u64>();
        let (all, whole) = (keys.clone(), sum(&keys));
        let min_p = |keys: &mut Vec<Key>| {
            if params.min_p > 0.0 {
                let floor = min_p_floor(highest, params.temperature, params.min_p);
                keys.retain(|key| key.score() >= floor);
            }
        };
        if let Some(n) = params.top_n_sigma {
            let floor = highest - n * deviation(values, highest);
            keys.retain(|key| key.score() >= floor);
        }
        if params.filter_order == FilterOrder::Sequential {
            min_p(&mut keys);
        }
        keys.truncate(params.top_k.unwrap_or(u32::MAX) as usize);
        let joint = params.filter_order == FilterOrder::Joint;
        if params.top_p < 1.0 {
            let goal = share(if joint { whole } else { sum(&keys) }, params.top_p);
            let mut before = 0;
            keys.retain(|&key| {
                let kept = before < goal;
                before += mass(key);
                kept
            });
        }
        min_p(&mut keys);
        let cut = |keys: &mut Vec<Key>, least: f32| {
            let floor = min_p_floor(highest, params.temperature, least);
            keys.retain(|key| key.score() >= floor);
        };
        let whole = |keys: &[Key]| if joint { all.clone() } else { keys.to_vec() };
        if params.epsilon_cutoff > 0.0 {
            let weights = unit.weight(sum(&whole(&keys)));
            cut(&mut keys, params.epsilon_cutoff * weights);
        }
        if params.eta_cutoff > 0.0 {
            let whole = whole(&keys);
            let moment = |key: &Key| {
                let gap = gap(highest, key.score(), params.temperature);
                if decay(-gap) > 0.0 { unit.mass(decay(-gap) * gap) } else { 0 }
            };
            let weights = unit.weight(sum(&whole));
            let mean_gap = unit.weight(whole.iter().map(moment).sum()) / weights;
            let by_entropy = params.eta_cutoff.sqrt() * decay(-mean_gap);
            cut(&mut keys, by_entropy.min(params.eta_cutoff * weights));
        }
        keys
    }

    #[test]
    fn what_is_kept_is_what_sorting_keeps() {
        let mut state = 7;
        let (mut ladder, mut tops) = (Ladder::default(), Tops::default());
        for case in 0..4_000 {
            let vocab = [1, 2, 5, 100, 128, 300, 1_000][case % 7];
            // From all equal to all apart, some a long way down.
            let (steps, step) = [(1.0, 1.0), (3.0, 0.5), (40.0, 0.25), (1e6, 1e-4)][case % 4];
            let values: Vec<f32> = (0..vocab)
                .map(|_| match random(&mut state) {
                    chance if chance < 0.1 => f32::NEG_INFINITY,
                    chance if chance < 0.2 => -80.0 * chance,
                    _ => (random(&mut state) * steps).floor() * step - 3.0,
                })
                .collect();
            let mut pick = |from: &[f32]| from[(random(&mut state) * from.len() as f32) as usize];
            let mut params = SamplingParams::new(pick(&[1e-3, 0.3, 1.0, 7.0, 1e6]), 0, 0);
            params.top_k = match pick(&[0.0, 1.0, 2.0, 30.0, 2e3]) {
                0.0 => None,
                k => Some(k as u32),
            };
            params.top_p = pick(&[1.0, 0.9999, 0.9, 0.5, 0.25, 1e-5]);
            params.min_p = pick(&[0.0, 1e-38, 0.02, 0.5, 1.0]);
            params.top_n_sigma = match pick(&[0.0, 0.0, 0.1, 1.0, 2.5]) {
                0.0 => None,
                n => Some(n),
            };
            params.epsilon_cutoff = pick(&[0.0, 0.0, 1e-6, 1e-3, 0.2]);
            params.eta_cutoff = pick(&[0.0, 0.0, 1e-3, 0.03, 1.0]);
            params.filter_order =
                [FilterOrder::Sequential, FilterOrder::MinPLast, FilterOrder::Joint][case % 3];
            let highest = tops.find(&values);
            if highest == f32::NEG_INFINITY {
                continue;
            }
            ladder.clear();
            let features = row_features(&params);
            let filters = Filters::new(&features, params.temperature);
            let (ladder, values) = (&mut ladder, &values[..]);
            let mut row = Measured { ladder, values, highest, features: &features };
            let mut lasts = vec![filters.last_of(&mut row)];
            if Short::serves(&features) {
                let keys = ladder.best(values, &tops, features.top_k);
                lasts.push(filters.last_of(&mut Short::new(values, highest, keys)));
            }
            let expected = sorted(values, &params);
            for last in lasts {
                let mut found = sorted(values, &SamplingParams::new(1.0, 0, 0));
                found.retain(|&key| key >= last);
                assert_eq!(found, expected, "case {case}: {params:?}");
            }
        }
    }
}
