//! Are the sixteen noises of a group standard Gumbel and independent, though the least
//! exponential is drawn first?
//!
//! Seeds are fixed; a right rule fails a test for one choice of seeds in 500,000 times the
//! number of its histograms (at most 120).

use std::panic::catch_unwind;

use flash_sampling::NoiseKey;
use flash_sampling_kernels::gumbel::{exponential, least_exponential, noise};
use flash_sampling_kernels::philox::{GROUP, Least, PAIR_BIT, Subkey};
use flash_sampling_kernels::score::token_noise;
use flash_sampling_tests::stats::assert_fits;

const MEMBERS: usize = GROUP as usize;
const GROUPS: u64 = 200_000;

/// A check of a rule.
type Check = fn(Rule);

/// The noises of a group of tokens.
type Rule = fn(Subkey, u32) -> [f32; MEMBERS];

fn the_rule(subkey: Subkey, group: u32) -> [f32; MEMBERS] {
    std::array::from_fn(|member| token_noise(subkey, group * GROUP + member as u32))
}

/// For each member, which of `N` equally likely bins its noise falls into.
fn bins<const N: usize>(noises: [f32; MEMBERS]) -> [usize; MEMBERS] {
    noises.map(|g| {
        let distribution = (-(-f64::from(g)).exp()).exp();
        ((distribution * N as f64) as usize).min(N - 1)
    })
}

fn groups(rule: Rule) -> impl Iterator<Item = [f32; MEMBERS]> {
    (0..GROUPS).map(move |i| {
        let key = NoiseKey { seed: 20_261_130, position: i / 64 };
        rule(Subkey::new(key, 0), (i % 64) as u32)
    })
}

fn each_is_gumbel(rule: Rule) {
    const BINS: usize = 100;
    let mut counts = [[0; BINS]; MEMBERS];
    for noises in groups(rule) {
        for (counts, bin) in counts.iter_mut().zip(bins::<BINS>(noises)) {
            counts[bin] += 1;
        }
    }
    for (member, counts) in counts.iter().enumerate() {
        assert_fits(counts, &[1.0 / BINS as f64; BINS], &format!("member {member}"));
    }
}

fn pairs_are_independent(rule: Rule) {
    const BINS: usize = 8;
    let mut counts = vec![[0; BINS * BINS]; MEMBERS * MEMBERS];
    for noises in groups(rule) {
        let bins = bins::<BINS>(noises);
        for (i, a) in bins.iter().enumerate() {
            for (j, b) in bins.iter().enumerate().skip(i + 1) {
                counts[i * MEMBERS + j][a * BINS + b] += 1;
            }
        }
    }
    let uniform = [1.0 / (BINS * BINS) as f64; BINS * BINS];
    for (at, counts) in counts.iter().enumerate() {
        let (i, j) = (at / MEMBERS, at % MEMBERS);
        if i >= j {
            continue;
        }
        assert_fits(counts, &uniform, &format!("members {i} and {j}"));
    }
}

/// Of a group, the greatest noise falls to each member alike, and is that of sixteen.
fn the_greatest_is_anybodys(rule: Rule) {
    const BINS: usize = 50;
    let mut counts = [0; MEMBERS * BINS];
    for noises in groups(rule) {
        let greatest = |a: usize, b: usize| if noises[b] > noises[a] { b } else { a };
        let member = (1..MEMBERS).fold(0, greatest);
        let distribution = (-(MEMBERS as f64) * (-f64::from(noises[member])).exp()).exp();
        counts[member * BINS + ((distribution * BINS as f64) as usize).min(BINS - 1)] += 1;
    }
    assert_fits(&counts, &[1.0 / (MEMBERS * BINS) as f64; MEMBERS * BINS], "greatest");
}

#[test]
fn each_members_noise_is_gumbel() {
    each_is_gumbel(the_rule);
}

#[test]
fn members_are_independent_in_pairs() {
    pairs_are_independent(the_rule);
}

#[test]
fn the_greatest_noise_falls_to_each_alike() {
    the_greatest_is_anybodys(the_rule);
}

/// The noises of a group whose exponentials follow from the group's word, whether the token
/// has the least, and the token.
fn members(subkey: Subkey, group: u32, of: impl Fn(u32, bool, u32) -> f32) -> [f32; MEMBERS] {
    let Least { word, member: least } = subkey.least(group);
    std::array::from_fn(|member| {
        let member = member as u32;
        noise(of(word, member == least, group * GROUP + member))
    })
}

/// What a token's exponential exceeds the least by.
fn excess(subkey: Subkey, is_least: bool, token: u32) -> f32 {
    if is_least { 0.0 } else { exponential(subkey.token_word(token)) }
}

/// Rules that are wrong, each with the checks that must reject it.
#[test]
fn wrong_rules_are_rejected() {
    // The others do not exceed the least.
    let no_excess: Rule = |subkey, group| {
        members(subkey, group, |least, is_least, token| {
            if is_least { least_exponential(least) } else { exponential(subkey.token_word(token)) }
        })
    };
    // The least is not a sixteenth.
    let whole_least: Rule = |subkey, group| {
        members(subkey, group, |least, is_least, token| {
            exponential(least) + excess(subkey, is_least, token)
        })
    };
    // The word that says how much also says whose.
    let one_word: Rule = |subkey, group| {
        members(subkey, group, |least, _, token| {
            let is_least = token % GROUP == least >> 28;
            least_exponential(least) + excess(subkey, is_least, token)
        })
    };
    // Pairs exceed the least by one word.
    let shared_excess: Rule = |subkey, group| {
        members(subkey, group, |least, is_least, token| {
            least_exponential(least) + excess(subkey, is_least, token & !PAIR_BIT)
        })
    };
    let rejected: [(&str, Check, Rule); 5] = [
        ("no excess, each", each_is_gumbel, no_excess),
        ("whole least, each", each_is_gumbel, whole_least),
        ("one word, greatest", the_greatest_is_anybodys, one_word),
        ("shared excess, pairs", pairs_are_independent, shared_excess),
        ("no excess, pairs", pairs_are_independent, no_excess),
    ];
    for (what, check, rule) in rejected {
        assert!(catch_unwind(|| check(rule)).is_err(), "{what} passes");
    }
}
