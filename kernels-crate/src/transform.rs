//! What may happen to a logit before it is compared: the head's cap and scale, and a
//! row's penalties.
//!
//! Each operation is rounded once, in the order written; the hyperbolic tangent is our own.

use crate::arch::Divisor;
use crate::mass::decay;
use crate::quotient::Lifted;

/// What the model does to every logit after the bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitTransform {
    /// `cap·tanh(x / cap)`; finite and above 0.
    pub softcap: Option<f32>,
    /// `x·scale`; finite and above 0, and 1 is off.
    pub scale: f32,
    /// Whether the scale comes before the cap.
    pub scale_first: bool,
}

impl LogitTransform {
    /// Changes nothing.
    pub const NONE: Self = Self { softcap: None, scale: 1.0, scale_first: false };

    /// Whether it may change a logit.
    #[inline(always)]
    pub fn changes(self) -> bool {
        self.softcap.is_some() | (self.scale != Self::NONE.scale)
    }

    /// The logit as the model means it; a NaN stays one.
    #[inline(always)]
    pub fn apply(self, x: f32) -> f32 {
        self.apply_by(x, |x, cap| tanh(x / cap))
    }

    /// [`Self::apply`] to several logits, without a branch for each. `cap` is the cap. `BY_SIZE`
    /// has a shorter way for logits that are all small, as most are, and a longer text: not for
    /// who runs it but once a call.
    #[inline(always)]
    pub fn apply_all<const N: usize, const BY_SIZE: bool>(
        self,
        x: [f32; N],
        cap: Lifted,
    ) -> [f32; N] {
        let scale = if self.scale_first { self.scale } else { 1.0 };
        let divide = |x: f32| cap.divide(x.abs()).copysign(x);
        let (mut are_plain, mut are_small, mut i) = (true, BY_SIZE, 0);
        while i < N {
            are_plain &= cap.is_plain((x[i] * scale).abs());
            are_small &= divide(x[i] * scale).abs() <= SMALL;
            i += 1;
        }
        if !are_plain {
            // Whoever is here is a NaN, or next to nothing.
            x.map(|x| self.apply(x))
        } else if are_small {
            // No exponential, nor another division.
            x.map(|x| self.apply_by(x, |x, _| tanh_small(divide(x))))
        } else {
            x.map(|x| self.apply_by(x, |x, _| tanh(divide(x))))
        }
    }

    /// `tanh` tells that of a logit over the cap.
    #[inline(always)]
    fn apply_by(self, x: f32, tanh: impl Fn(f32, f32) -> f32) -> f32 {
        let x = if self.scale_first { x * self.scale } else { x };
        let x = match self.softcap {
            Some(cap) => cap * tanh(x, cap),
            None => x,
        };
        if self.scale_first { x } else { x * self.scale }
    }
}

/// A [`LogitTransform`] as a kernel reads it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TransformParams {
    /// 0 is off.
    softcap: f32,
    scale: f32,
    /// 0 or 1.
    scale_first: u32,
}

impl TransformParams {
    /// Changes nothing.
    pub const NONE: Self = Self::new(LogitTransform::NONE);

    /// As a kernel reads it.
    pub const fn new(transform: LogitTransform) -> Self {
        let LogitTransform { softcap, scale, scale_first } = transform;
        let softcap = match softcap {
            Some(cap) => cap,
            None => 0.0,
        };
        Self { softcap, scale, scale_first: scale_first as u32 }
    }

    /// The transform.
    #[inline(always)]
    pub fn get(&self) -> LogitTransform {
        let softcap = if self.softcap > 0.0 { Some(self.softcap) } else { None };
        LogitTransform { softcap, scale: self.scale, scale_first: self.scale_first != 0 }
    }

    /// The cap, to divide by; where there is none, any.
    #[inline(always)]
    pub fn cap(&self) -> Lifted {
        Lifted::new(if self.softcap > 0.0 { self.softcap } else { 1.0 })
    }
}

/// A row's penalties on tokens that it has seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalties {
    /// Divides a positive value and multiplies another; finite and above 0, and 1 is off.
    pub repetition: f32,
    /// Subtracted once for each time the token was generated; finite, and 0 is off.
    pub frequency: f32,
    /// Subtracted if the token was generated; finite, and 0 is off.
    pub presence: f32,
}

impl Penalties {
    /// Changes nothing.
    pub const NONE: Self = Self { repetition: 1.0, frequency: 0.0, presence: 0.0 };

    /// The value of a seen token that was generated `count` times; `counts_first` puts the
    /// repetition penalty last. A banned token stays one.
    #[inline(always)]
    pub fn apply(self, y: f32, count: u32, counts_first: bool) -> f32 {
        if y == f32::NEG_INFINITY {
            y
        } else if counts_first {
            self.repeat(self.count(y, count))
        } else {
            self.count(self.repeat(y), count)
        }
    }

    /// The repetition penalty.
    #[inline(always)]
    pub fn repeat(self, y: f32) -> f32 {
        if y > 0.0 { y / self.repetition } else { y * self.repetition }
    }

    /// The frequency and presence penalties of a token that was generated `count` times.
    #[inline(always)]
    pub fn count(self, y: f32, count: u32) -> f32 {
        let y = y - self.frequency * count as f32;
        if count > 0 { y - self.presence } else { y }
    }
}

/// A value after its bias; `−inf` bans, whatever the value.
#[inline(always)]
pub fn add_bias(y: f32, bias: f32) -> f32 {
    if bias == f32::NEG_INFINITY { bias } else { y + bias }
}

/// Up to here a polynomial is as accurate, relative to its size, as what an exponential gives.
const SMALL: f32 = 0.625;

/// The hyperbolic tangent; ±1 for what is large, and a NaN stays one.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    let size = x.abs();
    let e = decay(-2.0 * size);
    // Where it counts, `e` is below ⅓.
    let large = Divisor::above_one(1.0 + e).divide(1.0 - e).copysign(x);
    if size <= SMALL { tanh_small(x) } else { large }
}

/// `x + x³·p(x²)` for `|x| ≤` [`SMALL`], where `p` is the minimax polynomial of degree 4 for
/// the relative error of the whole, 4.4e-9. Fitted for this crate.
#[inline(always)]
fn tanh_small(x: f32) -> f32 {
    const P: [f32; 5] = [-0.333_332_8, 0.133_314_36, -0.053_739_116, 0.020_637_045, -0.005_702_611];
    let square = x * x;
    let mut p = P[4];
    p = p * square + P[3];
    p = p * square + P[2];
    p = p * square + P[1];
    p = p * square + P[0];
    x + x * square * p
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn tanh_is_accurate_and_odd() {
        for i in 1..1_000_000 {
            let x = i as f32 * 1.2e-5;
            let expected = f64::from(x).tanh();
            let error = (f64::from(tanh(x)) - expected).abs() / expected;
            assert!(error <= 2.5e-7, "{x}: relative error {error:e}");
            assert_eq!(tanh(-x), -tanh(x));
        }
    }

    #[test]
    fn tanh_saturates() {
        for x in [10.0, 44.0, 1e30, f32::MAX, f32::INFINITY] {
            assert_eq!((tanh(x), tanh(-x)), (1.0, -1.0));
        }
        assert_eq!(tanh(0.0).to_bits(), 0);
        assert_eq!(tanh(1e-30), 1e-30);
        assert!(tanh(f32::NAN).is_nan());
    }

    #[test]
    fn several_at_once_are_changed_alike() {
        for cap in [f32::MIN_POSITIVE, 0.3, 1.0, 30.0, 1e38] {
            for scale_first in [false, true] {
                let transform = LogitTransform { softcap: Some(cap), scale: 0.7, scale_first };
                let sizes =
                    [0.0, 1e-45, 1e-38, 1e-30, 1e-9, 0.01, 0.5, 0.7, 3.0, 200.0, 1e30, 3e38];
                for x in sizes.iter().flat_map(|size| [*size, -size, size * cap, f32::INFINITY]) {
                    // Alone, and beside a larger one and a lesser one.
                    for other in [x, cap, cap / 1e3] {
                        let (x, by) = ([x, other], Lifted::new(cap));
                        let bits = |x: [f32; 2]| x.map(f32::to_bits);
                        let expected = bits(x.map(|x| transform.apply(x)));
                        let found = transform.apply_all::<2, true>(x, by);
                        assert_eq!(bits(found), expected, "{x:?}, {cap:e}");
                        let found = transform.apply_all::<2, false>(x, by);
                        assert_eq!(bits(found), expected, "{x:?}, {cap:e}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_cap_keeps_the_largest_logits_finite() {
        let cap = LogitTransform { softcap: Some(30.0), ..LogitTransform::NONE };
        assert_eq!(cap.apply(1e30), 30.0);
        assert_eq!(cap.apply(-1e30), -30.0);
        assert_eq!(cap.apply(f32::NEG_INFINITY), -30.0);
    }

    #[test]
    fn the_order_of_cap_and_scale_shows() {
        let cap_first = LogitTransform { softcap: Some(1.0), scale: 2.0, scale_first: false };
        let scale_first = LogitTransform { scale_first: true, ..cap_first };
        assert_eq!(cap_first.apply(100.0), 2.0);
        assert_eq!(scale_first.apply(100.0), 1.0);
    }

    #[test]
    fn repetition_moves_down_from_either_side() {
        let penalties = Penalties { repetition: 2.0, ..Penalties::NONE };
        assert_eq!([3.0, -3.0, 0.0].map(|y| penalties.repeat(y)), [1.5, -6.0, 0.0]);
        assert_eq!(penalties.repeat(-3.0 + 4.0), 0.5);
    }

    #[test]
    fn presence_counts_once_and_frequency_each_time() {
        let penalties = Penalties { frequency: 0.5, presence: 0.25, ..Penalties::NONE };
        assert_eq!([0, 1, 4].map(|count| penalties.count(1.0, count)), [1.0, 0.25, -1.25]);
    }
}
