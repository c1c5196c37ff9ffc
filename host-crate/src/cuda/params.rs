//! From device addresses to the parameters that the kernels take.

use std::ptr::{null_mut, with_exposed_provenance_mut};

use flash_sampling_kernels::abi::kept::{KeptParams, ReportParams};
use flash_sampling_kernels::abi::{SampleParams, WorkspaceLayout};

use super::driver::Address;
use super::{RawOperands, RawReport};
use crate::plan::{Finish, Plan};
use crate::problem::{Features, Problem};
use crate::report::Wanted;

/// What lies at an address: a device's, or the host's in tests.
fn at<T>(address: Address) -> *mut T {
    with_exposed_provenance_mut(address as usize)
}

/// The same, or null.
fn at_if<T>(wanted: bool, address: Address) -> *mut T {
    if wanted { at(address) } else { null_mut() }
}

/// Parameters of the sampling kernel, which leaves values behind for the one that finishes
/// rows, if there is one.
pub(super) fn sample_params(
    problem: &Problem,
    plan: &Plan,
    operands: &RawOperands,
) -> SampleParams {
    let asked = problem.features();
    let layout = WorkspaceLayout::new(problem.batch(), problem.draws());
    let listed = plan.finish.and_then(|finish| finish.listed);
    SampleParams {
        bias: at_if(problem.has_bias(), operands.bias),
        temperatures: at(operands.temperatures),
        seeds: at(operands.seeds),
        positions: at(operands.positions),
        tokens: at(operands.tokens),
        status: at(operands.status),
        scores: at(operands.scores),
        margins: at(operands.margins),
        workspace: at(operands.workspace),
        values: at_if(plan.finish.is_some(), operands.kept),
        listed: at_if(listed.is_some(), operands.kept + listed.unwrap_or_default()),
        tallies: at_if(listed.is_some(), operands.workspace + layout.tallies),
        features: at_if(asked.of_rows(), operands.features),
        skips_banned: (!asked.raw.any()).into(),
        applies_rules: plan.applies_rules.into(),
        ..problem.sample_params()
    }
}

/// Parameters of the kernel that finishes rows, behind one with the parameters `sample`.
pub(super) fn kept_params(
    problem: &Problem,
    finish: &Finish,
    operands: &RawOperands,
    sample: SampleParams,
) -> KeptParams {
    let Features { raw, processed, transform, .. } = problem.features();
    let part = |offset: Option<u64>| {
        at_if::<u8>(offset.is_some(), operands.kept + offset.unwrap_or_default())
    };
    KeptParams {
        sample,
        raw: report_params(raw, &operands.raw),
        processed: report_params(processed, &operands.processed),
        raw_values: part(finish.raw_values).cast(),
        softcap: transform.softcap.unwrap_or(0.0),
        scale: transform.scale,
        scale_first: transform.scale_first.into(),
        slice_in_shared: finish.slice_in_shared.into(),
    }
}

fn report_params(wanted: Wanted, report: &RawReport) -> ReportParams {
    let lists = wanted.best > 0;
    ReportParams {
        log_sum_exps: at_if(wanted.logprobs, report.log_sum_exps),
        logprobs: at_if(wanted.logprobs, report.logprobs),
        ranks: at_if(wanted.ranks, report.ranks),
        entropies: at_if(wanted.entropies, report.entropies),
        best_tokens: at_if(lists, report.best_tokens),
        best_logprobs: at_if(lists, report.best_logprobs),
        best: wanted.best,
    }
}

#[cfg(test)]
mod tests;
