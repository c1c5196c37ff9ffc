//! The total order of candidates, and the best two of a set.
//!
//! A candidate is (score, token). It travels as one 64-bit key whose unsigned order
//! is the candidates' order: higher score first, and on a tie the lower token. One
//! atomic maximum then merges candidates in any order with one result.

use crate::abi::NO_TOKEN;

/// A candidate as an integer: the score's bits, made monotone, above the
/// complement of the token. 0 is "no candidate" and lies below every other key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Key(u64);

const SIGN: u32 = 1 << 31;

impl Key {
    /// No candidate.
    pub const NONE: Self = Self(0);

    /// The key of a candidate. `score` is not NaN and not `−0`; `token` is not [`NO_TOKEN`].
    #[inline(always)]
    pub fn new(score: f32, token: u32) -> Self {
        debug_assert!(!score.is_nan() && score.to_bits() != SIGN && token != NO_TOKEN);
        let bits = score.to_bits();
        // Negative floats order backwards: flip all their bits, else the sign alone.
        let monotone = bits ^ (((bits as i32 >> 31) as u32) | SIGN);
        Self((monotone as u64) << 32 | !token as u64)
    }

    /// The key that tokens are ordered by where values are compared, not scores: of a value, which
    /// is not NaN, and of its token or index. Adding 0 makes −0 a 0: the two are equal.
    #[inline(always)]
    pub fn of_value(y: f32, token: u32) -> Self {
        Self::new(y + 0.0, token)
    }

    /// What some token is sure to reach, before its score is known: above every key of a
    /// lower score, below that of any token with this one.
    #[inline(always)]
    pub fn floor(score: f32) -> Self {
        Self(Self::new(score, 0).0 & !(u32::MAX as u64))
    }

    /// The token, or [`NO_TOKEN`].
    #[inline(always)]
    pub const fn token(self) -> u32 {
        !(self.0 as u32)
    }

    /// The score; `−inf` without a candidate.
    #[inline(always)]
    pub fn score(self) -> f32 {
        if self.0 == 0 {
            return f32::NEG_INFINITY;
        }
        let monotone = (self.0 >> 32) as u32;
        f32::from_bits(monotone ^ ((!((monotone as i32 >> 31) as u32)) | SIGN))
    }

    /// The bits, as kernels exchange them.
    #[inline(always)]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The key with these bits.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// The best two candidates of a set of distinct tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaders {
    /// The winner.
    pub first: Key,
    /// The best of the others.
    pub second: Key,
}

impl Leaders {
    /// Those of the empty set.
    pub const NONE: Self = Self { first: Key::NONE, second: Key::NONE };

    /// Adds one candidate. Adding the winner again changes nothing.
    #[inline(always)]
    pub fn offer(&mut self, key: Key) {
        if key > self.first {
            self.second = self.first;
            self.first = key;
        } else if key > self.second && key != self.first {
            self.second = key;
        }
    }

    /// Those of the union: associative, commutative and idempotent.
    #[inline(always)]
    pub fn merge(mut self, other: Self) -> Self {
        self.offer(other.first);
        self.offer(other.second);
        self
    }

    /// Score of the winner minus score of the next: `+inf` without a next, 0 for a
    /// tie of infinities.
    #[inline(always)]
    pub fn margin(self) -> f32 {
        let (first, second) = (self.first.score(), self.second.score());
        if first == second { 0.0 } else { first - second }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCORES: [f32; 10] = [
        f32::NEG_INFINITY,
        f32::MIN,
        -1.5,
        -f32::MIN_POSITIVE,
        0.0,
        1e-40,
        1.0,
        1.000_000_1,
        f32::MAX,
        f32::INFINITY,
    ];

    #[test]
    fn keys_order_like_candidates_and_come_back() {
        for (i, &a) in SCORES.iter().enumerate() {
            for (j, &b) in SCORES.iter().enumerate() {
                assert_eq!(Key::new(a, 7).cmp(&Key::new(b, 7)), i.cmp(&j));
            }
            assert!(Key::new(a, 3) > Key::new(a, 4), "on a tie the lower token is greater");
            assert!(Key::new(a, NO_TOKEN - 1) > Key::NONE);
            assert_eq!(Key::new(a, 9).score().to_bits(), a.to_bits());
            assert_eq!(Key::new(a, 9).token(), 9);
        }
        for score in [f32::MIN, -1.0, 0.0, 1.0, f32::INFINITY] {
            assert!(Key::floor(score) < Key::new(score, NO_TOKEN - 1), "{score}");
            assert!(Key::floor(score) > Key::new(score.next_down(), 0), "{score}");
            assert_eq!(Key::floor(score).score(), score);
        }
        assert_eq!(Key::NONE.token(), NO_TOKEN);
        assert_eq!(Key::NONE.score(), f32::NEG_INFINITY);
    }

    #[test]
    fn margin_counts_from_the_second() {
        let mut leaders = Leaders::NONE;
        assert_eq!(leaders.margin(), 0.0);
        leaders.offer(Key::new(2.0, 1));
        assert_eq!(leaders.margin(), f32::INFINITY);
        leaders.offer(Key::new(5.0, 2));
        leaders.offer(Key::new(4.5, 3));
        assert_eq!(leaders.margin(), 0.5);
        leaders.offer(Key::new(5.0, 9));
        assert_eq!((leaders.margin(), leaders.first.token()), (0.0, 2));
    }
}
