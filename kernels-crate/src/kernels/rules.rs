//! What a row's rules and penalties do to single tokens: which are admitted, and what becomes
//! of the values of those that a list names.

use core::ptr::null;

use crate::abi::kept::{RowFeatures, SeenToken, TokenBias};
use crate::abi::{TILE_V, sieve};
use crate::arch;
use crate::dims::first_from;
use crate::transform::{Penalties, add_bias};

/// Tokens of a word.
const WORD: u32 = u32::BITS;

/// Of 32 tokens, from the lowest bit on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct TokenBits {
    /// Those that may be drawn.
    pub admitted: u32,
    /// Those of them that have a bias or a penalty.
    pub listed: u32,
}

impl TokenBits {
    /// As they are without rules.
    pub const NONE: Self = Self { admitted: !0, listed: 0 };
}

/// A list of ids in ascending order, alone or each before another word.
#[derive(Clone, Copy)]
struct Ids {
    first: *const u32,
    n: u32,
    /// Words from one to the next.
    stride: u32,
}

const _: () = assert!(size_of::<SeenToken>() == 8 && size_of::<TokenBias>() == 8);

impl Ids {
    const NONE: Self = Self { first: null(), n: 0, stride: 1 };

    #[inline(always)]
    unsafe fn get(&self, at: u32) -> u32 {
        // SAFETY: the caller's promise: the list has this item.
        unsafe { self.first.add(at as usize * self.stride as usize).read() }
    }

    /// Index of the first from `least` on.
    #[inline(always)]
    unsafe fn first_from(&self, least: u32) -> u32 {
        // SAFETY: the list has all items up to its length.
        first_from(self.n, least, |at| unsafe { self.get(at) })
    }

    /// Index of an id, if it is there.
    #[inline(always)]
    unsafe fn find(&self, id: u32) -> Option<u32> {
        // SAFETY: the index is checked.
        unsafe {
            let at = self.first_from(id);
            (at < self.n && self.get(at) == id).then_some(at)
        }
    }
}

#[inline(always)]
fn seen(features: &RowFeatures) -> Ids {
    let asks = penalties(features) != Penalties::NONE;
    let seen = Ids { first: features.seen.cast(), n: features.n_seen, stride: 2 };
    if asks { seen } else { Ids::NONE }
}

#[inline(always)]
fn biased(features: &RowFeatures) -> Ids {
    Ids { first: features.logit_bias.cast(), n: features.n_logit_bias, stride: 2 }
}

/// A row's penalties.
#[inline(always)]
pub fn penalties(features: &RowFeatures) -> Penalties {
    let RowFeatures { repetition, frequency, presence, .. } = *features;
    Penalties { repetition, frequency, presence }
}

/// Whether a row has any rules or penalties that concern a token.
#[inline(always)]
pub fn any(features: &RowFeatures) -> bool {
    (seen(features).n > 0)
        | (features.n_logit_bias > 0)
        | (features.n_banned > 0)
        | !features.bitmask.is_null()
        | !features.allow_list.is_null()
}

/// The value of a token after its bias and penalty, in the row's order.
///
/// # Safety
/// The row's lists are there.
#[inline(always)]
pub unsafe fn edit(features: &RowFeatures, id: u32, y: f32) -> f32 {
    let bias_last = features.options & RowFeatures::BIAS_LAST != 0;
    let mut y = y;
    // Opaque: one text for each kind of edit.
    let (mut step, steps) = (0, arch::opaque(2));
    while step < steps {
        // SAFETY: what is found is one of the list's.
        unsafe {
            if (step == 0) != bias_last {
                if let Some(at) = biased(features).find(id) {
                    y = add_bias(y, (*features.logit_bias.add(at as usize)).bias);
                }
            } else if let Some(at) = seen(features).find(id) {
                let count = (*features.seen.add(at as usize)).count;
                y = penalties(features).apply(y, count, bias_last);
            }
        }
        step += 1;
    }
    y
}

/// Writes what the row's rules say of the tokens of a vocabulary tile, whose first has the id
/// `begin`; the call's ids end before `id_end`.
///
/// # Safety
/// The row's lists are there, and room for `sieve::RULE_WORDS` words; `begin` is a multiple of
/// `TILE_V`.
#[inline(always)]
pub unsafe fn write_tile(features: &RowFeatures, begin: u32, id_end: u32, words: *mut TokenBits) {
    let end = core::cmp::min(begin.saturating_add(TILE_V), id_end);
    // SAFETY: the caller's promise; ids are walked inside the tile.
    unsafe {
        let admitted = if features.allow_list.is_null() { !0 } else { 0 };
        let (mut word, end_word) = (0, arch::opaque(sieve::RULE_WORDS));
        while word < end_word {
            words.add(word as usize).write(TokenBits { admitted, listed: 0 });
            word += 1;
        }
        // Opaque: one text for all lists.
        let (mut list, lists) = (0, arch::opaque(4));
        while list < lists {
            let ids = match list {
                0 => Ids { first: features.allow_list, n: features.n_allowed, stride: 1 },
                1 => Ids { first: features.ban_list, n: features.n_banned, stride: 1 },
                2 => seen(features),
                _ => biased(features),
            };
            let mut at = ids.first_from(begin);
            while at < ids.n && ids.get(at) < end {
                let place = ids.get(at) - begin;
                let (bits, bit) = (words.add((place / WORD) as usize), 1 << (place % WORD));
                match list {
                    0 => (*bits).admitted |= bit,
                    1 => (*bits).admitted &= !bit,
                    _ => (*bits).listed |= bit,
                }
                at += 1;
            }
            list += 1;
        }
        word = 0;
        while word < end_word {
            let (id, bits) = (begin + word * WORD, words.add(word as usize));
            let mut mask = !0;
            if !features.bitmask.is_null() {
                mask = if id < end { features.bitmask.add((id / WORD) as usize).read() } else { 0 };
            }
            (*bits).admitted &= mask;
            (*bits).listed &= (*bits).admitted;
            word += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    const WORDS: usize = sieve::RULE_WORDS as usize;

    fn of_tile(features: &RowFeatures, begin: u32, id_end: u32) -> [TokenBits; WORDS] {
        let mut words = [TokenBits { admitted: 0x5555_5555, listed: 0x3333_3333 }; WORDS];
        // SAFETY: the lists are the test's, and there are as many words.
        unsafe { write_tile(features, begin, id_end, words.as_mut_ptr()) };
        words
    }

    fn ids(words: &[TokenBits], begin: u32, of: impl Fn(&TokenBits) -> u32) -> Vec<u32> {
        (0..TILE_V)
            .filter(|i| of(&words[(i / WORD) as usize]) >> (i % WORD) & 1 != 0)
            .map(|i| begin + i)
            .collect()
    }

    #[test]
    fn a_row_without_rules_admits_all() {
        assert_eq!(of_tile(&RowFeatures::NONE, 256, 10_000), [TokenBits::NONE; WORDS]);
        assert!(!any(&RowFeatures::NONE));
        let last = of_tile(&RowFeatures::NONE, u32::MAX - 127, u32::MAX);
        assert_eq!(last, [TokenBits::NONE; WORDS]);
    }

    #[test]
    fn lists_are_cut_to_the_tile() {
        let allowed = [3, 127, 128, 130, 200, 255, 256, 300];
        let banned = [127, 130, 256];
        let features = RowFeatures {
            allow_list: allowed.as_ptr(),
            n_allowed: 8,
            ban_list: banned.as_ptr(),
            n_banned: 3,
            ..RowFeatures::NONE
        };
        let admitted =
            |begin, id_end| ids(&of_tile(&features, begin, id_end), begin, |w| w.admitted);
        assert_eq!(admitted(0, 1_000), [3]);
        assert_eq!(admitted(128, 1_000), [128, 200, 255]);
        assert_eq!(admitted(128, 201), [128, 200]);
        assert_eq!(admitted(256, 1_000), [300]);
        assert_eq!(admitted(384, 1_000), []);
        assert!(any(&features));
    }

    #[test]
    fn a_bitmask_counts_with_the_lists_and_is_not_read_past_its_end() {
        let mask = [!0, 0b110, !0, 0, 1];
        let allowed = [5, 33, 35, 96, 128];
        let features = RowFeatures { bitmask: mask.as_ptr(), ..RowFeatures::NONE };
        let both = RowFeatures { allow_list: allowed.as_ptr(), n_allowed: 5, ..features };
        assert_eq!(ids(&of_tile(&both, 0, 130), 0, |w| w.admitted), [5, 33]);
        assert_eq!(ids(&of_tile(&both, 128, 130), 128, |w| w.admitted), [128]);
        // Ids end in the last word, which is all that there is.
        assert_eq!(ids(&of_tile(&features, 128, 130), 128, |w| w.admitted), [128]);
    }

    #[test]
    fn what_has_a_bias_or_a_penalty_is_listed_if_it_is_admitted() {
        let seen = [1, 40, 127, 140].map(|token| SeenToken { token, count: 2 });
        let biases = [40, 60, 128].map(|token| TokenBias { token, bias: 0.5 });
        let banned = [60];
        let features = RowFeatures {
            seen: seen.as_ptr(),
            n_seen: 4,
            logit_bias: biases.as_ptr(),
            n_logit_bias: 3,
            ban_list: banned.as_ptr(),
            n_banned: 1,
            ..RowFeatures::NONE
        };
        // Without penalties, seen tokens are like others.
        assert_eq!(ids(&of_tile(&features, 0, 999), 0, |w| w.listed), [40]);
        let features = RowFeatures { repetition: 2.0, ..features };
        assert_eq!(ids(&of_tile(&features, 0, 999), 0, |w| w.listed), [1, 40, 127]);
        assert_eq!(ids(&of_tile(&features, 128, 999), 128, |w| w.listed), [128, 140]);
        // SAFETY: the lists are the test's.
        let edited = |id, y| unsafe { edit(&features, id, y) };
        assert_eq!(edited(1, 3.0), 1.5);
        assert_eq!(edited(40, -3.0), -5.0);
        assert_eq!(edited(128, -3.0), -2.5);
        assert_eq!(edited(2, -3.0), -3.0);
        // A bias of +4 before the penalty.
        let four = [TokenBias { token: 1, bias: 4.0 }];
        let features = RowFeatures { logit_bias: four.as_ptr(), n_logit_bias: 1, ..features };
        // SAFETY: the same.
        assert_eq!(unsafe { edit(&features, 1, -3.0) }, 0.5);
        let last = RowFeatures { options: RowFeatures::BIAS_LAST, ..features };
        // SAFETY: the same.
        assert_eq!(unsafe { edit(&last, 1, -3.0) }, -2.0);
    }
}
