//! What every kernel computes: temperature and key, bias and shards. The rest is refused
//! where it is not computed, never passed over.
#![forbid(unsafe_code)]

use flash_sampling_kernels::transform::LogitTransform;

use crate::error::{Error, Param};
use crate::inputs::Inputs;
use crate::output::Output;
use crate::params::{SamplingParams, first};
use crate::token_rules::TokenRules;

/// Refuses parameters and reports that no kernel computes.
pub(crate) fn check_plain(rows: &[SamplingParams], output: &Output) -> Result<(), Error> {
    for (row, params) in (0..).zip(rows) {
        if let Some(param) = params.first_filter().or_else(|| params.first_penalty()) {
            return Err(Error::UnsupportedParam { row: Some(row), param });
        }
    }
    if output.raw.wanted.any() || output.processed.wanted.any() {
        return Err(Error::UnsupportedParam { row: None, param: Param::Report });
    }
    Ok(())
}

/// Refuses transforms and rules that no kernel computes.
pub(crate) fn check_plain_inputs(inputs: &Inputs<'_>) -> Result<(), Error> {
    let LogitTransform { softcap, scale, .. } = inputs.transform;
    let asked = [(softcap.is_some(), Param::Softcap), (scale != 1.0, Param::LogitScale)];
    if let Some(param) = first(asked) {
        return Err(Error::UnsupportedParam { row: None, param });
    }
    for (row, rules) in (0..).zip(inputs.token_rules) {
        if let Some(param) = first_rule(rules) {
            return Err(Error::UnsupportedParam { row: Some(row), param });
        }
    }
    Ok(())
}

fn first_rule(rules: &TokenRules<'_>) -> Option<Param> {
    first([
        (!rules.seen.is_empty(), Param::Seen),
        (!rules.logit_bias.is_empty(), Param::LogitBias),
        (rules.bitmask.is_some(), Param::Bitmask),
        (rules.allow_list.is_some(), Param::AllowList),
        (!rules.ban_list.is_empty(), Param::BanList),
    ])
}
