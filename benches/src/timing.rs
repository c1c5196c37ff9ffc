//! What is said of repeated measurements.

/// The middle and the spread of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The 10th percentile.
    pub p10: f64,
    /// The median.
    pub median: f64,
    /// The 90th percentile.
    pub p90: f64,
}

impl Summary {
    /// Of `samples` in any order; `None` if there are none.
    pub fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let last = samples.len().checked_sub(1)? as f64;
        // Between the two nearest ranks, by linear interpolation.
        let percentile = |share: f64| {
            let rank = share * last;
            let (low, high) = (rank.floor(), rank.ceil());
            let weight = rank - low;
            samples[low as usize] * (1.0 - weight) + samples[high as usize] * weight
        };
        Some(Self { p10: percentile(0.1), median: percentile(0.5), p90: percentile(0.9) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_ranks() {
        let samples = vec![5.0, 1.0, 4.0, 2.0, 3.0, 6.0];
        let expected = Summary { p10: 1.5, median: 3.5, p90: 5.5 };
        assert_eq!(Summary::of(samples), Some(expected));
        let one = Summary { p10: 7.0, median: 7.0, p90: 7.0 };
        assert_eq!(Summary::of(vec![7.0]), Some(one));
        assert_eq!(Summary::of(Vec::new()), None);
    }
}
