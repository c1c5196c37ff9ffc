//! What a row's rules and penalties do to single tokens: which are admitted, and what becomes
//! of the values of those that a list names.

mod lists;

pub(super) use lists::{Ids, bans, comes_from, edit, edits, mask_admits};

use lists::{edit_found, seen};

use crate::abi::kept::RowFeatures;
use crate::abi::{TILE_V, sieve};
use crate::arch;
use crate::dims::first_from;
use crate::transform::Penalties;

/// Tokens of a word.
const WORD: u32 = u32::BITS;

const WORDS: usize = sieve::RULE_WORDS as usize;

/// What a row's rules say of a vocabulary tile's tokens, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TileRules {
    /// Those that may be drawn.
    admitted: [u32; WORDS],
    /// Those that have a penalty, and those that have a bias.
    listed: [[u32; WORDS]; LISTS],
    /// Index of the first of them in its list.
    firsts: [u32; LISTS],
}

/// Lists of tokens with penalties, and with biases.
const LISTS: usize = 2;
const SEEN: u32 = 0;

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

/// Of what is behind pointers, the caller promises that it is there: the row's lists, and a
/// `TileRules` that [`Self::write`] has written from them.
impl TileRules {
    /// Writes what the rules say of the tile whose first token has the id `begin`, a multiple of
    /// `TILE_V`; the call's ids end before `id_end`.
    ///
    /// # Safety
    /// The row's lists are there, and `this` is valid.
    #[inline(always)]
    pub unsafe fn write(this: *mut Self, features: &RowFeatures, begin: u32, id_end: u32) {
        let end = core::cmp::min(begin.saturating_add(TILE_V), id_end);
        // SAFETY: the caller's promise; ids are walked inside the tile.
        unsafe {
            let admitted = (&raw mut (*this).admitted).cast::<u32>();
            let listed = (&raw mut (*this).listed).cast::<u32>();
            let firsts = (&raw mut (*this).firsts).cast::<u32>();
            let all = if features.allow_list.is_null() { !0 } else { 0 };
            let (mut word, words) = (0, arch::opaque(sieve::RULE_WORDS) as usize);
            while word < words {
                admitted.add(word).write(all);
                listed.add(word).write(0);
                listed.add(words + word).write(0);
                word += 1;
            }
            // Opaque: one text for all lists.
            let (mut list, lists) = (0, arch::opaque(4));
            while list < lists {
                let ids = match list {
                    0 => Ids { first: features.allow_list, n: features.n_allowed, stride: 1 },
                    1 => bans(features),
                    _ => edits(features, list - 2),
                };
                let to = if list < 2 { admitted } else { listed.add((list - 2) as usize * words) };
                let mut at = first_from(ids.n, begin, |at| ids.get(at));
                if list >= 2 {
                    firsts.add((list - 2) as usize).write(at);
                }
                while at < ids.n && ids.get(at) < end {
                    let place = ids.get(at) - begin;
                    let (to, bit) = (to.add((place / WORD) as usize), 1 << (place % WORD));
                    // Bits that a ban finds set are cleared.
                    to.write(if list == 1 { to.read() & !bit } else { to.read() | bit });
                    at += 1;
                }
                list += 1;
            }
            word = 0;
            while word < words && !features.bitmask.is_null() {
                let id = begin + word as u32 * WORD;
                let mask =
                    if id < end { features.bitmask.add((id / WORD) as usize).read() } else { 0 };
                let admitted = admitted.add(word);
                admitted.write(admitted.read() & mask);
                word += 1;
            }
        }
    }

    /// Writes that nothing is asked for.
    ///
    /// # Safety
    /// `this` is valid.
    #[inline(always)]
    pub unsafe fn write_none(this: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe {
            let words = this.cast::<u32>();
            let (mut word, end) = (0, arch::opaque((size_of::<Self>() / 4) as u32) as usize);
            while word < end {
                words.add(word).write(if word < WORDS { !0 } else { 0 });
                word += 1;
            }
        }
    }

    /// Whether they ban or list any token.
    ///
    /// # Safety
    /// `this` is written.
    #[inline(always)]
    pub unsafe fn say_anything(this: *const Self) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let words = this.cast::<u32>();
            let (mut said, mut word, end) = (0, 0, arch::opaque(WORDS as u32) as usize);
            while word < end {
                let banned = !words.add(word).read();
                said |=
                    banned | words.add(WORDS + word).read() | words.add(2 * WORDS + word).read();
                word += 1;
            }
            said != 0
        }
    }

    /// Of the word that token `place` of the tile is in, the bits of those that are admitted,
    /// and of those among them that are listed.
    ///
    /// # Safety
    /// `this` is written, and `place < TILE_V`.
    #[inline(always)]
    pub unsafe fn bits(this: *const Self, place: u32) -> (u32, u32) {
        let word = (place / WORD) as usize;
        // SAFETY: the caller's promise.
        unsafe {
            let admitted = (&raw const (*this).admitted).cast::<u32>().add(word).read();
            let listed = (&raw const (*this).listed).cast::<u32>();
            (admitted, admitted & (listed.add(word).read() | listed.add(WORDS + word).read()))
        }
    }

    /// The value of token `place` of the tile after its bias and penalty, in the row's order.
    ///
    /// # Safety
    /// As [`Self::bits`]; `features` are those that `this` was written from.
    #[inline(always)]
    pub unsafe fn edit(this: *const Self, features: &RowFeatures, place: u32, y: f32) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { edit_found(features, y, |list| Self::find(this, list, place)) }
    }

    /// Index of a token in a list, if it is there: that of the tile's first, and as many as are
    /// listed before it.
    #[inline(always)]
    unsafe fn find(this: *const Self, list: u32, place: u32) -> Option<u32> {
        // SAFETY: the caller's promise.
        unsafe {
            let listed = (&raw const (*this).listed).cast::<u32>().add(list as usize * WORDS);
            let own = listed.add((place / WORD) as usize).read();
            let bit = 1 << (place % WORD);
            if own & bit == 0 {
                return None;
            }
            let first = (&raw const (*this).firsts).cast::<u32>().add(list as usize).read();
            let mut at = first + (own & (bit - 1)).count_ones();
            let (mut word, end) = (0, arch::opaque(place / WORD));
            while word < end {
                at += listed.add(word as usize).read().count_ones();
                word += 1;
            }
            Some(at)
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::abi::kept::{SeenToken, TokenBias};

    fn of_tile(features: &RowFeatures, begin: u32, id_end: u32) -> TileRules {
        let (admitted, listed) = ([0x5555_5555; WORDS], [[0x3333_3333; WORDS]; LISTS]);
        let mut rules = TileRules { admitted, listed, firsts: [77; LISTS] };
        // SAFETY: the lists are the test's.
        unsafe { TileRules::write(&raw mut rules, features, begin, id_end) };
        rules
    }

    fn ids(rules: &TileRules, begin: u32, of: impl Fn((u32, u32)) -> u32) -> Vec<u32> {
        // SAFETY: the rules are written.
        let bits = |place| of(unsafe { TileRules::bits(&raw const *rules, place) });
        (0..TILE_V).filter(|&i| bits(i) >> (i % WORD) & 1 != 0).map(|i| begin + i).collect()
    }

    #[test]
    fn a_row_without_rules_admits_all() {
        let none =
            |firsts| TileRules { admitted: [!0; WORDS], listed: [[0; WORDS]; LISTS], firsts };
        assert_eq!(of_tile(&RowFeatures::NONE, 256, 10_000), none([0; LISTS]));
        assert!(!any(&RowFeatures::NONE));
        assert_eq!(of_tile(&RowFeatures::NONE, u32::MAX - 127, u32::MAX), none([0; LISTS]));
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
        let admitted = |begin, id_end| {
            ids(&of_tile(&features, begin, id_end), begin, |(admitted, _)| admitted)
        };
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
        assert_eq!(ids(&of_tile(&both, 0, 130), 0, |(admitted, _)| admitted), [5, 33]);
        assert_eq!(ids(&of_tile(&both, 128, 130), 128, |(admitted, _)| admitted), [128]);
        // Ids end in the last word, which is all that there is.
        assert_eq!(ids(&of_tile(&features, 128, 130), 128, |(admitted, _)| admitted), [128]);
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
        assert_eq!(ids(&of_tile(&features, 0, 999), 0, |(_, listed)| listed), [40]);
        let features = RowFeatures { repetition: 2.0, ..features };
        assert_eq!(ids(&of_tile(&features, 0, 999), 0, |(_, listed)| listed), [1, 40, 127]);
        assert_eq!(ids(&of_tile(&features, 128, 999), 128, |(_, listed)| listed), [128, 140]);
        // SAFETY: the lists are the test's.
        let edit = |features: &RowFeatures, id: u32, y| unsafe {
            let rules = of_tile(features, id / TILE_V * TILE_V, 999);
            TileRules::edit(&raw const rules, features, id % TILE_V, y)
        };
        let edited = |id, y| edit(&features, id, y);
        assert_eq!(edited(1, 3.0), 1.5);
        assert_eq!(edited(40, -3.0), -5.0);
        assert_eq!(edited(127, -3.0), -6.0);
        assert_eq!(edited(128, -3.0), -2.5);
        assert_eq!(edited(140, 3.0), 1.5);
        assert_eq!(edited(2, -3.0), -3.0);
        // A bias of +4 before the penalty.
        let four = [TokenBias { token: 1, bias: 4.0 }];
        let features = RowFeatures { logit_bias: four.as_ptr(), n_logit_bias: 1, ..features };
        assert_eq!(edit(&features, 1, -3.0), 0.5);
        let last = RowFeatures { options: RowFeatures::BIAS_LAST, ..features };
        assert_eq!(edit(&last, 1, -3.0), -2.0);
    }

    #[test]
    fn each_token_finds_its_own_item() {
        let seen: Vec<_> = (0..500).map(|i| SeenToken { token: i * 3, count: i }).collect();
        let features =
            RowFeatures { seen: seen.as_ptr(), n_seen: 500, frequency: 1.0, ..RowFeatures::NONE };
        for id in 0..1_500 {
            let rules = of_tile(&features, id / TILE_V * TILE_V, 1_500);
            // SAFETY: the lists are the test's.
            let y = unsafe { TileRules::edit(&raw const rules, &features, id % TILE_V, 0.0) };
            assert_eq!(y, if id % 3 == 0 { -((id / 3) as f32) } else { 0.0 }, "{id}");
        }
    }
}
