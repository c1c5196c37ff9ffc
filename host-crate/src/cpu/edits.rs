//! What a row does to the values of single tokens, by the same
//! [`transform`](flash_sampling_kernels::transform) as every kernel.

use flash_sampling_kernels::transform::add_bias;

use crate::params::{EditOrder, SamplingParams};
use crate::token_rules::{SeenToken, TokenRules, WORD, between};

/// Applies a row's rules and penalties to the values of consecutive tokens, the first of
/// which has id `first`.
#[inline(always)]
pub(super) fn edit(
    values: &mut [f32],
    first: u32,
    rules: &TokenRules<'_>,
    params: &SamplingParams,
) {
    let end = first + values.len() as u32;
    if let Some(words) = rules.bitmask {
        mask(values, first, words);
    }
    if let Some(ids) = rules.allow_list {
        allow(values, first, between(ids, |&id| id, first, end));
    }
    for &id in between(rules.ban_list, |&id| id, first, end) {
        values[(id - first) as usize] = f32::NEG_INFINITY;
    }
    let biases = between(rules.logit_bias, |&(id, _)| id, first, end);
    let seen = between(rules.seen, |seen| seen.token, first, end);
    match params.edit_order {
        EditOrder::BiasFirst => {
            add(values, first, biases);
            penalize(values, first, seen, params);
        }
        EditOrder::BiasLast => {
            penalize(values, first, seen, params);
            add(values, first, biases);
        }
    }
}

/// Bans the tokens whose bit is clear.
#[inline(always)]
fn mask(values: &mut [f32], first: u32, words: &[u32]) {
    let mut id = first;
    let mut rest = values;
    while !rest.is_empty() {
        let n = ((WORD - id % WORD) as usize).min(rest.len());
        let (values, after) = rest.split_at_mut(n);
        let word = words[(id / WORD) as usize] >> (id % WORD);
        if word != u32::MAX {
            for (bit, value) in values.iter_mut().enumerate() {
                *value = if word >> bit & 1 == 0 { f32::NEG_INFINITY } else { *value };
            }
        }
        id = id.wrapping_add(n as u32);
        rest = after;
    }
}

/// Bans all but `ids`.
#[inline(always)]
fn allow(values: &mut [f32], first: u32, ids: &[u32]) {
    let mut next = 0;
    for &id in ids {
        let at = (id - first) as usize;
        values[next..at].fill(f32::NEG_INFINITY);
        next = at + 1;
    }
    values[next..].fill(f32::NEG_INFINITY);
}

/// Adds biases.
#[inline(always)]
fn add(values: &mut [f32], first: u32, biases: &[(u32, f32)]) {
    for &(id, bias) in biases {
        let value = &mut values[(id - first) as usize];
        *value = add_bias(*value, bias);
    }
}

/// Applies the row's penalties.
#[inline(always)]
fn penalize(values: &mut [f32], first: u32, seen: &[SeenToken], params: &SamplingParams) {
    let counts_first = params.edit_order == EditOrder::BiasLast;
    for seen in seen {
        let value = &mut values[(seen.token - first) as usize];
        *value = params.penalties.apply(*value, seen.count, counts_first);
    }
}
