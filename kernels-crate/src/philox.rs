//! Random words: a pure function of (seed, position, draw, token).
//!
//! Two counter-based generators, each ten rounds of multiply and xor:
//!
//! | step | generator | counter | key | gives |
//! | --- | --- | --- | --- | --- |
//! | once a row and draw | Philox4x32-10 | draw, 0, position low, position high | seed low, seed high | [`Subkey`]: words 0 and 1 |
//! | once a group of tokens | Philox2x32-10 | group, word 1 of the subkey | word 0 of the subkey | [`Least`] |
//! | once a pair that may win | Philox2x32-10 | 2³¹ + pair, word 1 of the subkey | word 0 of the subkey | two words |
//!
//! A *group* are the sixteen tokens whose ids differ in the last four bits alone: the
//! rows of a tensor-core accumulator fragment. Its least exponential, and which token
//! has it, are drawn first ([`crate::gumbel`] says how), so that one call bounds the noise
//! of all sixteen.
//!
//! A *pair* are two tokens whose ids differ only in bit 3: the ids that one thread
//! holds in a fragment, rows `g` and `g + 8`, on `mma.sync` and `wgmma` alike. The
//! pair's number is the id with bit 3 removed; the token takes the word that bit 3 names.
//!
//! Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
//! 1, 2, 3", SC'11, sections 3.3 and 4.3 (constants and rounds). Why groups and pairs:
//! `docs/design/noise.md`.

use crate::arch::opaque;

/// Names one row's noise: two calls with the same key draw the same tokens from
/// the same logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(C)]
pub struct NoiseKey {
    /// The request's seed.
    pub seed: u64,
    /// The row's decode step.
    pub position: u64,
}

/// Tokens that share a least exponential.
pub const GROUP: u32 = 16;

/// Tokens that share one Philox2x32 call of their own.
pub const PAIR: usize = 2;

/// The bit of an id that tells a pair's tokens apart.
pub const PAIR_BIT: u32 = 8;

/// Tells the counters of pairs from those of groups.
const PAIRS: u32 = 1 << 31;

const MULTIPLIER_4X32_0: u32 = 0xD251_1F53;
const MULTIPLIER_4X32_1: u32 = 0xCD9E_8D57;
const MULTIPLIER_2X32: u32 = 0xD256_D193;
const WEYL_0: u32 = 0x9E37_79B9;
const WEYL_1: u32 = 0xBB67_AE85;
const ROUNDS: u32 = 10;

/// One block of Philox4x32-10.
#[inline(always)]
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    let mut round = 0;
    while round < ROUNDS {
        let product_0 = MULTIPLIER_4X32_0 as u64 * c0 as u64;
        let product_1 = MULTIPLIER_4X32_1 as u64 * c2 as u64;
        c0 = (product_1 >> 32) as u32 ^ c1 ^ k0;
        c1 = product_1 as u32;
        c2 = (product_0 >> 32) as u32 ^ c3 ^ k1;
        c3 = product_0 as u32;
        k0 = k0.wrapping_add(WEYL_0);
        k1 = k1.wrapping_add(WEYL_1);
        round += 1;
    }
    [c0, c1, c2, c3]
}

/// One block of Philox2x32-10.
#[inline(always)]
pub fn philox2x32_10(counter: [u32; 2], key: u32) -> [u32; 2] {
    let [mut c0, mut c1] = counter;
    let mut k = key;
    let mut round = 0;
    while round < ROUNDS {
        let product = MULTIPLIER_2X32 as u64 * c0 as u64;
        c0 = (product >> 32) as u32 ^ k ^ c1;
        c1 = product as u32;
        k = k.wrapping_add(WEYL_0);
        round += 1;
    }
    [c0, c1]
}

/// What a row's tokens share for one draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Subkey {
    key: u32,
    counter: u32,
}

impl Subkey {
    /// That of a row and draw.
    #[inline(always)]
    pub fn new(key: NoiseKey, draw: u32) -> Self {
        let [word, counter, _, _] = philox4x32_10(
            [draw, 0, key.position as u32, (key.position >> 32) as u32],
            [key.seed as u32, (key.seed >> 32) as u32],
        );
        Self { key: word, counter }
    }

    /// The same, of which the compiler knows nothing: what follows from it is computed where
    /// it is used, not ahead of a loop, where it would cost registers.
    #[inline(always)]
    pub(crate) fn opaque(self) -> Self {
        Self { key: opaque(self.key), counter: opaque(self.counter) }
    }

    /// What is drawn for a group of tokens; `group` is their id over [`GROUP`].
    #[inline(always)]
    pub fn least(self, group: u32) -> Least {
        let [word, member] = philox2x32_10([group, self.counter], self.key);
        Least { word, member: member / (u32::MAX / GROUP + 1) }
    }

    /// The words of tokens `base` and `base + PAIR_BIT`; `base` has that bit clear.
    #[inline(always)]
    pub fn pair_words(self, base: u32) -> [u32; PAIR] {
        debug_assert!(base & PAIR_BIT == 0);
        philox2x32_10([PAIRS | token_pair(base), self.counter], self.key)
    }

    /// The word of one token.
    #[inline(always)]
    pub fn token_word(self, token: u32) -> u32 {
        let [low, high] = self.pair_words(token & !PAIR_BIT);
        if token & PAIR_BIT == 0 { low } else { high }
    }
}

/// Of a group of tokens, the one with the least exponential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Least {
    /// The word that the exponential comes from.
    pub word: u32,
    /// Whose it is: the last four bits of the id.
    pub member: u32,
}

/// The number of a token's pair: its id without the bit that tells the two apart.
#[inline(always)]
pub const fn token_pair(token: u32) -> u32 {
    let low = token & (PAIR_BIT - 1);
    (token / (2 * PAIR_BIT) * PAIR_BIT) | low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_are_two_ids_that_differ_in_bit_3() {
        for token in 0..512 {
            assert_eq!(token_pair(token), token_pair(token ^ 8));
        }
    }

    #[test]
    fn pairs_are_dense_and_reach_the_last_id() {
        for pair in 0..64 {
            assert_eq!((0..128).filter(|&token| token_pair(token) == pair).count(), PAIR);
        }
        assert_eq!(token_pair(u32::MAX), u32::MAX >> 1);
    }

    #[test]
    fn one_token_and_its_pair_agree() {
        let subkey = Subkey::new(NoiseKey { seed: 0x0123_4567_89AB_CDEF, position: 1 << 40 }, 3);
        for base in [0, 5, 0x1234_5600] {
            let words = [subkey.token_word(base), subkey.token_word(base + PAIR_BIT)];
            assert_eq!(subkey.pair_words(base), words);
        }
    }
}
