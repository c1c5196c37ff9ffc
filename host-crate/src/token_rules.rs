//! What a row says of single tokens.
#![forbid(unsafe_code)]

pub use flash_sampling_kernels::abi::kept::SeenToken;

use crate::error::{Axis, Error, Operand, Param, Size, TokenRule};
use crate::params::SamplingParams;
use crate::problem::Problem;

/// Tokens of a bitmask's word.
pub(crate) const WORD: u32 = u32::BITS;

/// What one batch row says of single tokens; empty by default. All ids are global, and
/// all lists in ascending order of distinct ids.
///
/// A token is admitted if the bitmask, the allow-list and the ban-list all admit it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenRules<'a> {
    /// Tokens that the row's penalties apply to. Ids that are not the call's are passed over.
    pub seen: &'a [SeenToken],
    /// Added to the logits, each finite or `−inf`, which bans the token.
    pub logit_bias: &'a [(u32, f32)],
    /// `[⌈V / 32⌉]`: bit `j` of word `w` admits token `32·w + j`. Further bits do not count.
    /// A shard of a vocabulary takes the whole vocabulary's words, as far as its last token.
    pub bitmask: Option<&'a [u32]>,
    /// The tokens that are admitted; not empty.
    pub allow_list: Option<&'a [u32]>,
    /// Tokens that are not.
    pub ban_list: &'a [u32],
}

impl TokenRules<'_> {
    /// Checks the rules of batch row `row`.
    pub(crate) fn check(&self, row: u32, problem: &Problem) -> Result<(), Error> {
        let begin = problem.first_token();
        let end = begin + problem.vocab();
        let ids = Ids { row, begin, end };
        ids.check(Param::Seen, self.seen.iter().map(|seen| seen.token), false)?;
        ids.check(Param::LogitBias, self.logit_bias.iter().map(|&(token, _)| token), true)?;
        ids.check(Param::AllowList, self.allow_list.into_iter().flatten().copied(), true)?;
        ids.check(Param::BanList, self.ban_list.iter().copied(), true)?;
        for &(_, bias) in self.logit_bias {
            if bias.is_nan() || bias == f32::INFINITY {
                let (param, found) = (Param::LogitBias, f64::from(bias));
                return Err(Error::Param { row: Some(row), param, found });
            }
        }
        let at_least = |param, expected, found: Option<usize>| match found {
            Some(found) if (found as u64) < expected => {
                Err(Error::ParamLength { row, param, expected, found: found as u64 })
            }
            _ => Ok(()),
        };
        at_least(Param::AllowList, 1, self.allow_list.map(<[u32]>::len))?;
        let words = u64::from(end.div_ceil(WORD));
        at_least(Param::Bitmask, words, self.bitmask.map(<[u32]>::len))
    }

    /// Whether they change the value of any token of a row with these parameters: what
    /// [`Features::rules`](crate::Features::rules) is to say of a call's rows.
    pub fn edits(&self, params: &SamplingParams) -> bool {
        let Self { seen, logit_bias, bitmask, allow_list, ban_list } = self;
        let penalizes = !seen.is_empty() && params.first_penalty().is_some();
        let bans = bitmask.is_some() || allow_list.is_some() || !ban_list.is_empty();
        penalizes || bans || !logit_bias.is_empty()
    }

    /// Whether any token from `begin` to before `end` is admitted by the bitmask and the
    /// allow-list.
    pub(crate) fn admit_any(&self, begin: u32, end: u32) -> bool {
        let masked = self.bitmask.is_none_or(|words| {
            (begin / WORD..end.div_ceil(WORD)).any(|word| {
                let id = word * WORD;
                let before = begin.saturating_sub(id);
                let after = (id + WORD).saturating_sub(end);
                words[word as usize] & (u32::MAX << before) & (u32::MAX >> after) != 0
            })
        });
        masked && self.allow_list.is_none_or(|ids| !between(ids, |&id| id, begin, end).is_empty())
    }
}

/// Checks that there are rules for each batch row, or none, and each row's.
pub(crate) fn check_token_rules(rules: &[TokenRules<'_>], problem: &Problem) -> Result<(), Error> {
    let (expected, found) = (u64::from(problem.batch()), rules.len() as u64);
    if found != 0 && found != expected {
        return Err(Error::Shape {
            operand: Operand::TokenRules,
            axis: Axis::B,
            expected: Size::Exactly(expected),
            found,
        });
    }
    (0..).zip(rules).try_for_each(|(row, rules)| rules.check(row, problem))
}

/// The part of a list in ascending order with ids from `begin` to before `end`.
pub(crate) fn between<T>(list: &[T], id: impl Fn(&T) -> u32, begin: u32, end: u32) -> &[T] {
    if list.is_empty() {
        return list;
    }
    let from = list.partition_point(|item| id(item) < begin);
    let list = &list[from..];
    &list[..list.partition_point(|item| id(item) < end)]
}

/// The ids of a call, for the lists of one row.
struct Ids {
    row: u32,
    begin: u32,
    end: u32,
}

impl Ids {
    fn check(
        &self,
        param: Param,
        list: impl Iterator<Item = u32>,
        within: bool,
    ) -> Result<(), Error> {
        let Self { row, begin, end } = *self;
        let mut last = None;
        for found in list {
            let rule = match last {
                Some(last) if found <= last => TokenRule::Above(last),
                _ if within && !(begin..end).contains(&found) => TokenRule::Within(begin, end),
                _ => {
                    last = Some(found);
                    continue;
                }
            };
            return Err(Error::Token { row, param, rule, found });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_admitted_if_one_of_its_tokens_is() {
        let words = [1 << 31, 0, 1 << 3];
        let rules = TokenRules { bitmask: Some(&words), ..TokenRules::default() };
        for begin in 0..96 {
            for end in begin + 1..=96 {
                let expected = [31, 67].iter().any(|id| (begin..end).contains(id));
                assert_eq!(rules.admit_any(begin, end), expected, "{begin}..{end}");
                let ids = [31, 67];
                let listed = TokenRules { allow_list: Some(&ids), ..TokenRules::default() };
                assert_eq!(listed.admit_any(begin, end), expected, "{begin}..{end}");
            }
        }
    }

    #[test]
    fn rules_edit_if_a_token_may_fare_otherwise() {
        use flash_sampling_kernels::transform::Penalties;

        let (plain, none) = (SamplingParams::greedy(), TokenRules::default());
        let repeats = plain.with_penalties(Penalties { repetition: 2.0, ..Penalties::NONE });
        let seen = [SeenToken { token: 1, count: 1 }];
        let seen = TokenRules { seen: &seen, ..none };
        assert!(!none.edits(&plain) && !none.edits(&repeats) && !seen.edits(&plain));
        assert!(seen.edits(&repeats));
        for rules in [
            TokenRules { logit_bias: &[(1, 0.5)], ..none },
            TokenRules { bitmask: Some(&[1]), ..none },
            TokenRules { allow_list: Some(&[1]), ..none },
            TokenRules { ban_list: &[1], ..none },
        ] {
            assert!(rules.edits(&plain), "{rules:?}");
        }
    }

    #[test]
    fn both_must_admit() {
        let rules =
            TokenRules { bitmask: Some(&[1]), allow_list: Some(&[1]), ..TokenRules::default() };
        assert!(rules.admit_any(0, 32), "a range may hold tokens that each bans in turn");
        assert!(!rules.admit_any(0, 1));
    }
}
