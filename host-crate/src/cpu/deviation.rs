//! How far a row's values spread.

use super::ladder::lowest_of;

/// The standard deviation of the values above `−inf`: the root of the mean square, divided
/// by their number. `highest` is the greatest of them, finite; none is NaN.
///
/// Values count as whole units below the highest, more than 2³⁰ of which reach the lowest,
/// and the sums are integers: they depend on no order.
#[inline(always)]
pub(super) fn deviation(values: &[f32], highest: f32) -> f32 {
    let per_value = units_per_value(depth(highest, lowest_of(values)));
    let (mut n, mut sum, mut squares) = (0u64, 0, [0, 0]);
    for &y in values {
        let is_value = y > f32::NEG_INFINITY;
        let units = if is_value { depth(highest, y) * per_value } else { 0.0 };
        // SAFETY: it lies from 0 to below 2³¹.
        let units = u64::from(unsafe { units.to_int_unchecked::<i32>() } as u32);
        n += u64::from(is_value);
        sum += units;
        // By halves, which have room for 2³² of them.
        let square = units * units;
        squares[0] += square & u64::from(u32::MAX);
        squares[1] += square >> u32::BITS;
    }
    let squares = squares.map(u128::from);
    let squares = (squares[1] << u32::BITS) + squares[0];
    let spread = u128::from(n) * squares - u128::from(sum) * u128::from(sum);
    ((spread as f64).sqrt() / n as f64 / f64::from(per_value)) as f32
}

/// How far a value lies below the highest; finite.
#[inline(always)]
fn depth(highest: f32, y: f32) -> f32 {
    let depth = highest - y;
    if depth < f32::MAX { depth } else { f32::MAX }
}

/// The power of two that takes `depth` to between 2³⁰ and 2³¹, or the greatest there is.
fn units_per_value(depth: f32) -> f32 {
    /// Biased exponents: those of a number and of the power sum up to this.
    const SUM: u32 = 127 + 127 + 30;
    const MOST: u32 = 254;
    let exponent = depth.to_bits() >> 23;
    f32::from_bits((SUM - exponent).min(MOST) << 23)
}

#[cfg(test)]
mod tests {
    use super::super::ladder::highest_of;
    use super::*;

    /// By two passes in `f64`.
    fn expected(values: &[f32]) -> f64 {
        let values = values.iter().filter(|y| **y > f32::NEG_INFINITY).map(|&y| f64::from(y));
        let n = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / n;
        (values.map(|y| (y - mean) * (y - mean)).sum::<f64>() / n).sqrt()
    }

    fn near(values: &[f32]) {
        let found = deviation(values, highest_of(values));
        let expected = expected(values);
        let error = (f64::from(found) - expected).abs();
        assert!(error <= 2e-7 * expected, "{found}, by two passes {expected}");
        let backwards: Vec<f32> = values.iter().copied().rev().collect();
        assert_eq!(deviation(&backwards, highest_of(values)).to_bits(), found.to_bits());
    }

    #[test]
    fn it_is_that_of_two_passes() {
        let bell: Vec<f32> = (0..30_000)
            .map(|i| (0..6).map(|j| ((i * 7_919) >> j) as f32 % 97.0).sum::<f32>() / 40.0 - 3.0)
            .collect();
        near(&bell);
        // One value far away from many that are near each other.
        let mut outlier = bell.clone();
        outlier[17] = -1e30;
        near(&outlier);
        outlier[17] = 3e4;
        near(&outlier);
        let banned: Vec<f32> =
            bell.iter().map(|&y| if y < 2.0 { f32::NEG_INFINITY } else { y }).collect();
        near(&banned);
        near(&[1.0, 1.0 + f32::EPSILON, 1.0]);
        near(&[1e-25, 2e-25, -1e-25]);
        near(&[f32::MAX / 2.0, 0.0, f32::MIN / 2.0, -1.0]);
    }

    #[test]
    fn equal_values_have_none() {
        for values in [&[3.0][..], &[-7.5; 300], &[f32::NEG_INFINITY, f32::MAX], &[0.0, -0.0]] {
            assert_eq!(deviation(values, highest_of(values)), 0.0);
        }
        let widest = deviation(&[f32::MAX, f32::MIN], f32::MAX);
        assert!(widest.is_finite() && widest >= f32::MAX / 4.0, "{widest}");
    }
}
