//! How far a row's values spread.
//!
//! Values count as whole units below the highest, more than 2³⁰ of which reach the lowest,
//! and the sums are integers: they depend on no order.

/// What becomes of single values.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    highest: f32,
    per_value: f32,
}

/// What they add up to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// Of the values above `−inf`, how many there are.
    pub n: u64,
    /// Their units.
    pub units: u64,
    /// The squares of these by halves, lower first, which have room for 2³² of them.
    pub squares: [u64; 2],
}

impl Sums {
    /// Those of both.
    #[inline(always)]
    pub fn add(&mut self, other: Self) {
        self.n += other.n;
        self.units += other.units;
        self.squares[0] += other.squares[0];
        self.squares[1] += other.squares[1];
    }
}

impl Units {
    /// For a row whose highest value is this, finite, and whose lowest above `−inf` that.
    #[inline(always)]
    pub fn new(highest: f32, lowest: f32) -> Self {
        /// Biased exponents: those of a number and of the power sum up to this.
        const SUM: u32 = 127 + 127 + 30;
        const MOST: u32 = 254;
        // The power of two that takes the depth to between 2³⁰ and 2³¹, or the greatest.
        let exponent = SUM - (depth(highest, lowest).to_bits() >> 23);
        let exponent = if exponent < MOST { exponent } else { MOST };
        Self { highest, per_value: f32::from_bits(exponent << 23) }
    }

    /// The sums of one value, which is not NaN.
    #[inline(always)]
    pub fn of(self, y: f32) -> Sums {
        let is_value = y > f32::NEG_INFINITY;
        let units = if is_value { depth(self.highest, y) * self.per_value } else { 0.0 };
        // SAFETY: it lies from 0 to below 2³¹.
        let units = unsafe { units.to_int_unchecked::<i32>() } as u32 as u64;
        let square = units * units;
        let squares = [square & u32::MAX as u64, square >> u32::BITS];
        Sums { n: is_value as u64, units, squares }
    }

    /// The standard deviation: the root of the mean square, divided by their number.
    #[inline(always)]
    pub fn deviation(self, sums: Sums) -> f32 {
        /// 2⁶⁴.
        const HIGH: f64 = 18_446_744_073_709_551_616.0;
        let [low, high] = sums.squares;
        let squares = ((high as u128) << u32::BITS) + low as u128;
        let spread = sums.n as u128 * squares - sums.units as u128 * sums.units as u128;
        // By halves: kernels have no conversion of the whole.
        let spread = (spread >> 64) as u64 as f64 * HIGH + spread as u64 as f64;
        (sqrt(spread) / sums.n as f64 / self.per_value as f64) as f32
    }
}

/// How far a value lies below the highest; finite.
#[inline(always)]
fn depth(highest: f32, y: f32) -> f32 {
    let depth = highest - y;
    if depth < f32::MAX { depth } else { f32::MAX }
}

/// The root of a number that is 0 or normal, by Newton's steps from one that is 4 % off at
/// most: each squares the error.
#[inline(always)]
pub fn sqrt(x: f64) -> f64 {
    const STEPS: u32 = 4;
    /// Half of the bits of 1, less what centers the error.
    const HALF_OF_ONE: u64 = 0x1FF7_A3BE_A91D_9B1B;
    if x == 0.0 {
        return 0.0;
    }
    let mut root = f64::from_bits((x.to_bits() >> 1) + HALF_OF_ONE);
    let mut step = 0;
    while step < STEPS {
        root = 0.5 * (root + x / root);
        step += 1;
    }
    root
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    fn deviation(values: &[f32], highest: f32) -> f32 {
        let admitted = values.iter().copied().filter(|y| *y > f32::NEG_INFINITY);
        let units = Units::new(highest, admitted.fold(f32::MAX, f32::min));
        let mut sums = Sums::default();
        values.iter().for_each(|&y| sums.add(units.of(y)));
        units.deviation(sums)
    }

    fn highest_of(values: &[f32]) -> f32 {
        values.iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }

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

    #[test]
    fn roots_are_accurate() {
        for i in 0..1_000_000 {
            let x = f64::from_bits((i * 0x0000_0FF0_1357_9BDF_u64) % 0x7FE0_0000_0000_0000);
            if x.is_normal() {
                assert!((sqrt(x) / x.sqrt() - 1.0).abs() <= 4.5e-16, "{x}");
            }
        }
        assert_eq!((sqrt(0.0), sqrt(4.0)), (0.0, 2.0));
    }
}
