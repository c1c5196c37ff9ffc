//! How the values of a row become gaps and masses at one temperature, and what follows from
//! their sums.

use crate::mass::{MassUnit, decay, gap};
use crate::quotient::Lifted;

/// Rungs of a ladder; the last has all tokens from there on.
pub const RUNGS: u32 = 512;

const LAST_RUNG: f32 = (RUNGS - 1) as f32;

/// Rungs for a gap of 1, a factor of e in probability: with the least of them they reach
/// down to a gap of 32, where a vocabulary of 2¹⁸ tokens has masses of 0; flat rows have
/// more, as far as they are told apart.
const RUNGS_PER_NAT: [f32; 2] = [16.0, 65_536.0];

/// A row's, at one temperature.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// The highest value, finite.
    highest: f32,
    temperature: f32,
    rungs_per_nat: f32,
    unit: MassUnit,
    /// The temperature.
    lifted: Lifted,
}

impl Scale {
    /// For `tokens` values, none NaN: the highest, above `−inf`, and the least above `−inf`,
    /// at most that of `+inf`. `temperature > 0`.
    #[inline(always)]
    pub fn new(highest: f32, lowest: f32, temperature: f32, tokens: u32) -> Self {
        let highest = if highest < f32::MAX { highest } else { f32::MAX };
        let [least, most] = RUNGS_PER_NAT;
        let rungs_per_nat = LAST_RUNG / gap(highest, lowest, temperature);
        let rungs_per_nat = if rungs_per_nat > least { rungs_per_nat } else { least };
        let rungs_per_nat = if rungs_per_nat < most { rungs_per_nat } else { most };
        let (unit, lifted) = (MassUnit::for_tokens(tokens), Lifted::new(temperature));
        Self { highest, temperature, rungs_per_nat, unit, lifted }
    }

    /// The temperature.
    #[inline(always)]
    pub fn temperature(self) -> f32 {
        self.temperature
    }

    /// The rung of a gap, which is at least 0.
    #[inline(always)]
    pub fn rung(self, gap: f32) -> u32 {
        let rung = gap * self.rungs_per_nat;
        let rung = if rung < LAST_RUNG { rung } else { LAST_RUNG };
        // SAFETY: it lies from 0 to `LAST_RUNG`.
        unsafe { rung.to_int_unchecked::<i32>() as u32 }
    }

    /// How far a value lies below the highest; `+inf` counts as the highest.
    #[inline(always)]
    pub fn gap(self, y: f32) -> f32 {
        let y = if y < self.highest { y } else { self.highest };
        gap(self.highest, y, self.temperature)
    }

    /// [`Self::gap`] for masses, moments and rungs, which it gives alike, in fewer steps on a
    /// GPU: beyond what has a mass it is some number that is, too, and what is too small to
    /// show may be rounded otherwise.
    #[inline(always)]
    pub fn capped_gap(self, y: f32) -> f32 {
        let y = if y < self.highest { y } else { self.highest };
        self.lifted.divide(self.highest - y)
    }

    /// The mass of a token with this gap.
    #[inline(always)]
    pub fn mass(self, gap: f32) -> u64 {
        self.unit.of_decay(-gap)
    }

    /// The weight of a token with this gap, in [0, 1].
    #[inline(always)]
    pub fn token_weight(self, gap: f32) -> f32 {
        decay(-gap)
    }

    /// The mass of a token with this weight.
    #[inline(always)]
    pub fn mass_of(self, weight: f32) -> u64 {
        self.unit.mass(weight)
    }

    /// What a token with this gap adds to the mean gap: the product with its weight, as a mass.
    #[inline(always)]
    pub fn moment(self, gap: f32) -> u64 {
        self.moment_of(self.token_weight(gap), gap)
    }

    /// [`Self::moment`] of a token whose weight is known.
    #[inline(always)]
    pub fn moment_of(self, weight: f32, gap: f32) -> u64 {
        // Far off, the gap may be infinite.
        self.unit.mass(if weight > 0.0 { weight * gap } else { 0.0 })
    }

    /// The mean gap of tokens with these sums of moments and masses.
    #[inline(always)]
    pub fn mean_gap(self, moment: u64, mass: u64) -> f32 {
        self.weight(moment) / self.weight(mass)
    }

    /// The sum of weights that a sum of masses is.
    #[inline(always)]
    pub fn weight(self, mass: u64) -> f32 {
        self.unit.weight(mass)
    }

    /// The mass that a sum of weights is, in exact arithmetic.
    #[inline(always)]
    pub fn mass_of_weight(self, weight: f32) -> f64 {
        self.unit.exact_mass(weight)
    }

    /// `ln` of a token's probability, of which all tokens have the mass `total`.
    #[inline(always)]
    pub fn logprob(self, y: f32, total: u64) -> f32 {
        -self.gap(y) - self.unit.log_of(total)
    }

    /// `ln Σ e^(y / T)`.
    #[inline(always)]
    pub fn log_sum_exp(self, total: u64) -> f32 {
        self.highest / self.temperature + self.unit.log_of(total)
    }

    /// `−Σ p·ln p`: `ln` of the sum of weights, and the mean gap.
    #[inline(always)]
    pub fn entropy(self, moment: u64, total: u64) -> f32 {
        self.unit.log_of(total) + self.mean_gap(moment, total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capped_gap_gives_what_the_gap_gives() {
        let least = f32::from_bits(1);
        let temperatures = [least, 1e-40, f32::MIN_POSITIVE, 1e-20, 0.25, 0.7, 1.0, 1.5, 3e7, 3e38];
        for (temperature, highest) in temperatures.iter().flat_map(|&t| {
            [f32::MAX, 1e30, 17.25, 1.0, 1e-20, least, 0.0, -1e-30, -3.5, -1e38, f32::MIN]
                .map(|h| (t, h))
        }) {
            let scale = Scale::new(highest, f32::MIN, temperature, 151_936);
            let near = (0..200_000u32).map(|i| highest - temperature * (i as f32 * 5e-4));
            let below = (0..500).map(|i| f32::from_bits(highest.to_bits().wrapping_add(i)));
            let rest = [f32::NEG_INFINITY, f32::MIN, f32::INFINITY, -1.0, 0.0, -least];
            for y in near.chain(below).chain(rest).filter(|y| !y.is_nan()) {
                let (gap, capped) = (scale.gap(y), scale.capped_gap(y));
                assert_eq!(
                    scale.mass(gap),
                    scale.mass(capped),
                    "{highest:e} {y:e} {temperature:e}"
                );
                assert_eq!(scale.moment(gap), scale.moment(capped), "{highest:e} {y:e}");
                assert_eq!(scale.mass_of(scale.token_weight(gap)), scale.mass(gap), "{gap:e}");
                assert_eq!(scale.rung(gap), scale.rung(capped), "{highest:e} {y:e}");
            }
        }
    }
}
