//! Does a histogram come from a distribution? Every threshold states how often a
//! right sampler would miss it; with literal seeds a miss is a finding, not bad luck.

use statrs::function::gamma::{gamma_lr, gamma_ur};

/// A right sampler fails a chi-squared test for one choice of seeds in 500,000: a
/// fit too bad or too good by a chance of 1e-6 each.
const FALSE_ALARM_TAIL: f64 = 1e-6;

/// The least expected count of a bin for which the chi-squared law holds.
const LEAST_EXPECTED: f64 = 5.0;

/// Pearson's statistic.
#[derive(Clone, Copy, Debug)]
pub struct ChiSquared {
    /// `Σ (observed − expected)² / expected`.
    pub statistic: f64,
    /// Bins minus one.
    pub degrees_of_freedom: u64,
    /// Chance of a statistic at least as large.
    pub p_value: f64,
}

/// Compares counts with probabilities. Bins that expect fewer than 5 are pooled, the
/// rarest first; what remains joins the last.
pub fn chi_squared(observed: &[u64], probabilities: &[f64]) -> ChiSquared {
    assert_eq!(observed.len(), probabilities.len());
    let draws = observed.iter().sum::<u64>() as f64;
    let mut order: Vec<usize> = (0..observed.len()).collect();
    order.sort_by(|&a, &b| probabilities[a].total_cmp(&probabilities[b]));
    let mut bins: Vec<(f64, f64)> = Vec::new();
    let mut pool = (0.0, 0.0);
    for i in order {
        pool.0 += observed[i] as f64;
        pool.1 += draws * probabilities[i];
        if pool.1 >= LEAST_EXPECTED {
            bins.push(std::mem::take(&mut pool));
        }
    }
    let last = bins.last_mut().expect("at least five draws");
    last.0 += pool.0;
    last.1 += pool.1;
    let statistic: f64 = bins.iter().map(|(o, e)| (o - e).powi(2) / e).sum();
    let degrees_of_freedom = bins.len() as u64 - 1;
    assert!(degrees_of_freedom > 0, "one bin tells nothing");
    // The library refuses a statistic of 0.
    let half = (statistic / 2.0).max(f64::MIN_POSITIVE);
    let p_value = gamma_ur(degrees_of_freedom as f64 / 2.0, half);
    ChiSquared { statistic, degrees_of_freedom, p_value }
}

/// Demands that counts fit probabilities, and that what has probability 0 never came.
pub fn assert_fits(observed: &[u64], probabilities: &[f64], what: &str) {
    for (i, (&count, &p)) in observed.iter().zip(probabilities).enumerate() {
        assert!(p > 0.0 || count == 0, "{what}: impossible outcome {i} came {count} times");
    }
    let fit = chi_squared(observed, probabilities);
    let plausible = FALSE_ALARM_TAIL..=1.0 - FALSE_ALARM_TAIL;
    assert!(plausible.contains(&fit.p_value), "{what}: {fit:?}");
}

/// Chance that a Poisson count with this expectation lies at least as far out as
/// `count`, on either side: the law of rare outcomes among many draws.
pub fn poisson_p_value(count: u64, expected: f64) -> f64 {
    let at_most = gamma_ur(count as f64 + 1.0, expected);
    let at_least = if count == 0 { 1.0 } else { gamma_lr(count as f64, expected) };
    (2.0 * at_most.min(at_least)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upper 5 % points of the chi-squared table (NIST/SEMATECH e-Handbook, 1.3.6.7.4).
    #[test]
    fn p_values_are_those_of_the_table() {
        for (degrees, statistic) in [(1.0, 3.841), (10.0, 18.307), (100.0, 124.342)] {
            let p: f64 = gamma_ur(degrees / 2.0, statistic / 2.0);
            assert!((p - 0.05).abs() <= 1e-4, "{degrees} degrees: {p}");
        }
    }

    #[test]
    fn rare_bins_are_pooled_and_none_is_lost() {
        let observed = [60, 30, 4, 3, 2, 1];
        let fit = chi_squared(&observed, &[0.6, 0.3, 0.04, 0.03, 0.02, 0.01]);
        assert!(fit.statistic <= 1e-9, "{fit:?}");
        assert_eq!(fit.degrees_of_freedom, 2);
    }

    #[test]
    fn a_biased_coin_is_told_from_a_fair_one() {
        assert_fits(&[5_050, 4_950], &[0.5, 0.5], "fair");
        let rejected = std::panic::catch_unwind(|| assert_fits(&[5_300, 4_700], &[0.5, 0.5], ""));
        assert!(rejected.is_err());
    }

    #[test]
    fn poisson_tails_are_those_of_the_sum() {
        let probability = |k: i32| 1.5_f64.powi(k) * (-1.5_f64).exp();
        let at_most_1 = probability(0) + probability(1);
        assert!((poisson_p_value(5, 1.5) - 2.0 * 0.018_575_9).abs() <= 1e-6);
        assert!((poisson_p_value(0, 9.0) - 2.0 * (-9.0_f64).exp()).abs() <= 1e-12);
        assert!((poisson_p_value(1, 1.5) - (2.0 * at_most_1).min(1.0)).abs() <= 1e-12);
    }
}
