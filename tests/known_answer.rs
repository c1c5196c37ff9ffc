//! Are these the specified values? Published vectors, and our own pinned ones.

use flash_sampling::NoiseKey;
use flash_sampling_kernels::gumbel::{exponential, noise};
use flash_sampling_kernels::kernels::noise_probe::digest;
use flash_sampling_kernels::philox::{
    GROUP, Least, Subkey, philox2x32_10, philox4x32_10, token_pair,
};
use flash_sampling_kernels::score::token_noise;
use flash_sampling_tests::{golden, oracle};
use rayon::prelude::*;

/// `(counter, key, output)` from `kat_vectors` among the tests of Random123, the generators
/// that the authors of the SC'11 paper publish: zeros, ones, and the digits of π.
const PHILOX4X32_10: [([u32; 4], [u32; 2], [u32; 4]); 3] = [
    ([0; 4], [0; 2], [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]),
    ([u32::MAX; 4], [u32::MAX; 2], [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD]),
    (
        [0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344],
        [0xA409_3822, 0x299F_31D0],
        [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1],
    ),
];

/// From the same file.
const PHILOX2X32_10: [([u32; 2], u32, [u32; 2]); 3] = [
    ([0; 2], 0, [0xFF1D_AE59, 0x6CD1_0DF2]),
    ([u32::MAX; 2], u32::MAX, [0x2C3F_628B, 0xAB4F_D7AD]),
    ([0x243F_6A88, 0x85A3_08D3], 0x1319_8A2E, [0xDD7C_E038, 0xF62A_4C12]),
];

#[test]
fn philox_gives_the_published_vectors() {
    for (counter, key, expected) in PHILOX4X32_10 {
        assert_eq!(philox4x32_10(counter, key), expected, "kernels");
        assert_eq!(oracle::philox4x32(10, counter, key), expected, "oracle");
    }
    for (counter, key, expected) in PHILOX2X32_10 {
        assert_eq!(philox2x32_10(counter, key), expected, "kernels");
        assert_eq!(oracle::philox2x32(10, counter, key), expected, "oracle");
    }
}

/// Keys, draws and tokens that reach every field of the counter.
fn named_words() -> impl Iterator<Item = (NoiseKey, u32, u32)> {
    let keys = [(0, 0), (42, 7), (u64::MAX, 1 << 32), (7 << 32, u64::MAX), (8, (1 << 32) - 1)];
    let tokens = [0, 1, 7, 8, 63, 64, 72, 127, 128, 49_151, 151_935, (1 << 31) + 9, u32::MAX - 1];
    keys.into_iter().flat_map(move |(seed, position)| {
        [0, 1, u32::MAX]
            .into_iter()
            .flat_map(move |draw| tokens.map(|token| (NoiseKey { seed, position }, draw, token)))
    })
}

#[test]
fn words_are_the_oracles_and_the_golden_ones() {
    golden::WORDS.assert_equal(
        "seed position draw token word least member noise-bits",
        named_words().map(|(key, draw, token)| {
            let subkey = Subkey::new(key, draw);
            let (word, least) = (subkey.token_word(token), subkey.least(token / GROUP));
            let row = oracle::Row { temperature: 1.0, seed: key.seed, position: key.position };
            let at = format!("{} {} {draw} {token}", key.seed, key.position);
            let expected = oracle::subkey(row, draw);
            assert_eq!(word, oracle::word(expected, token), "{at}");
            assert_eq!((least.word, least.member), oracle::least(expected, token), "{at}");
            let (noise, expected) = (token_noise(subkey, token), oracle::noise(expected, token));
            assert!((f64::from(noise) - expected).abs() <= 4e-7 + 1.2e-7 * expected.abs(), "{at}");
            let Least { word: least, member } = least;
            format!("{at} {word:08x} {least:08x} {member} {:08x}", noise.to_bits())
        }),
    );
}

#[test]
fn pairs_are_the_oracles() {
    for token in (0..4_096).chain((0..1 << 20).map(|i: u32| i.wrapping_mul(0x9E37_79B1))) {
        assert_eq!(token_pair(token), oracle::pair(token), "token {token:#x}");
    }
}

#[test]
fn noise_is_golden() {
    let ends = (0..32).flat_map(|bit| [1 << bit, !(1 << bit), (1 << bit) - 1]);
    let strided = (0..64_u32).map(|i| i.wrapping_mul(0x9E37_79B1));
    golden::NOISE.assert_equal(
        "word noise-bits",
        ends.chain(strided)
            .map(|word| format!("{word:08x} {:08x}", noise(exponential(word)).to_bits())),
    );
}

/// One word of 251, so that neighbours and all bits vary, against the oracle's noise.
#[test]
fn noise_is_the_oracles_within_rounding() {
    (0..u32::MAX / 251).into_par_iter().for_each(|i| {
        let word = 251 * i;
        let expected = -oracle::exponential(word).ln();
        let error = (f64::from(noise(exponential(word))) - expected).abs();
        assert!(error <= 3e-7 + 1.2e-7 * expected.abs(), "word {word:#010x}: {error:e}");
    });
}

/// Every word of both ends and of the middle; `device.rs` compares all 2³² words.
#[test]
fn digests_are_golden() {
    const WORDS: u64 = 1 << 26;
    const PIECES: u64 = 64;
    let ranges = [0, (1 << 31) - WORDS / 2, (1 << 32) - WORDS];
    golden::DIGESTS.assert_equal(
        "first-word words digest",
        ranges.map(|first| {
            let pieces = (0..PIECES).into_par_iter();
            let sum = pieces
                .map(|piece| digest(first, WORDS, piece, PIECES))
                .reduce(|| 0, u64::wrapping_add);
            format!("{first} {WORDS} {sum:016x}")
        }),
    );
}
