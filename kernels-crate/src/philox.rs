//! Random words: a pure function of (seed, position, draw, token).
//!
//! Philox4x32-10, a counter-based generator: ten rounds of multiply and xor turn
//! a 128-bit counter under a 64-bit key into four 32-bit words.
//!
//! | counter word | holds | key word | holds |
//! | --- | --- | --- | --- |
//! | 0 | token group | 0 | seed, low half |
//! | 1 | draw | 1 | seed, high half |
//! | 2 | position, low half | | |
//! | 3 | position, high half | | |
//!
//! One call serves the four tokens of a *group*, whose ids differ only in bits 3
//! and 6: the ids one thread holds in a tensor-core accumulator fragment
//! (rows `g` and `g + 8` of two 16-row or 64-row fragments that lie 64 apart).
//! The group is the id with those bits removed; the word is `bit 3 | bit 6 << 1`.
//!
//! Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
//! 1, 2, 3", SC'11, sections 3.3 and 4.3 (constants and round).

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

/// Tokens that share one Philox call.
pub const GROUP: usize = 4;

/// Id offsets of a group's members from its lowest id, in word order.
pub const GROUP_OFFSETS: [u32; GROUP] = [0, 8, 64, 72];

const MULTIPLIER_0: u32 = 0xD251_1F53;
const MULTIPLIER_1: u32 = 0xCD9E_8D57;
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
        let product_0 = MULTIPLIER_0 as u64 * c0 as u64;
        let product_1 = MULTIPLIER_1 as u64 * c2 as u64;
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

/// The group of a token: its id without bits 3 and 6.
#[inline(always)]
pub const fn token_group(token: u32) -> u32 {
    (token & 0x7) | ((token >> 4) & 0x3) << 3 | (token >> 7) << 5
}

/// Which word of its group's call a token takes.
#[inline(always)]
pub const fn token_word(token: u32) -> usize {
    (((token >> 3) & 1) | ((token >> 6) & 1) << 1) as usize
}

/// The words of the four tokens `base + GROUP_OFFSETS[..]`; `base` has bits 3 and 6 clear.
#[inline(always)]
pub fn group_words(key: NoiseKey, draw: u32, base: u32) -> [u32; GROUP] {
    debug_assert!(token_word(base) == 0);
    philox4x32_10(
        [token_group(base), draw, key.position as u32, (key.position >> 32) as u32],
        [key.seed as u32, (key.seed >> 32) as u32],
    )
}

/// The word of one token.
#[inline(always)]
pub fn token_random_word(key: NoiseKey, draw: u32, token: u32) -> u32 {
    let base = token & !GROUP_OFFSETS[GROUP - 1];
    let [w0, w1, w2, w3] = group_words(key, draw, base);
    // Selects, not an indexed array: a run-time index would send the words to local memory.
    let low = if token & 8 == 0 { w0 } else { w1 };
    let high = if token & 8 == 0 { w2 } else { w3 };
    if token & 64 == 0 { low } else { high }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_four_ids_that_differ_in_bits_3_and_6() {
        for token in 0..512 {
            let base = token & !72;
            assert_eq!(token_group(token), token_group(base));
            assert_eq!(base + GROUP_OFFSETS[token_word(token)], token);
        }
    }

    #[test]
    fn groups_are_dense_and_reach_the_last_id() {
        for group in 0..64 {
            let members = (0..256).filter(|&token| token_group(token) == group).count();
            assert_eq!(members, GROUP);
        }
        assert_eq!(token_group(u32::MAX), u32::MAX >> 2);
    }

    #[test]
    fn one_token_and_its_group_agree() {
        let key = NoiseKey { seed: 0x0123_4567_89AB_CDEF, position: 1 << 40 };
        for base in [0, 5, 0x1234_5600] {
            let words = group_words(key, 3, base);
            for (word, offset) in words.into_iter().zip(GROUP_OFFSETS) {
                assert_eq!(token_random_word(key, 3, base + offset), word);
            }
        }
    }
}
