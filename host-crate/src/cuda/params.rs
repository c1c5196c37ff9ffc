//! From device addresses to the parameters that the kernels take.

use std::ptr::{null_mut, with_exposed_provenance_mut};

use flash_sampling_kernels::abi::kept::{KeptParams, ReportParams};
use flash_sampling_kernels::abi::{SampleParams, WorkspaceLayout};
use flash_sampling_kernels::transform::{LogitTransform, TransformParams};

use super::driver::Address;
use super::{RawOperands, RawReport};
use crate::plan::Plan;
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

/// The transform, of the kernel that applies it.
fn transform_if(applies: bool, transform: LogitTransform) -> TransformParams {
    if applies { TransformParams::new(transform) } else { TransformParams::NONE }
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
    let partials = plan.partials.map_or([None; 2], |partials| partials.begin);
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
        drawn_values: at_if(plan.log_sum_exp.is_some(), operands.kept),
        n_partials: plan.partials.map_or(0, |partials| partials.n),
        sums_all_rows: plan.partials.is_some_and(|partials| partials.of_all_rows).into(),
        partials: partials
            .map(|offset| at_if(offset.is_some(), operands.kept + offset.unwrap_or_default())),
        listed: at_if(listed.is_some(), operands.kept + listed.unwrap_or_default()),
        tallies: at_if(listed.is_some(), operands.workspace + layout.tallies),
        features: at_if(asked.of_rows(), operands.features),
        skips_banned: (!asked.raw.any()).into(),
        // Of a margin's second, no more is left than that.
        judges: (operands.margins == 0 && !transforms_later(problem, plan)).into(),
        applies_rules: plan.applies_rules.into(),
        transform: transform_if(plan.applies_transform, asked.transform),
        ..problem.sample_params()
    }
}

/// Parameters of the kernels behind one with the parameters `sample`.
pub(super) fn kept_params(
    problem: &Problem,
    plan: &Plan,
    operands: &RawOperands,
    sample: SampleParams,
) -> KeptParams {
    let Features { raw, processed, transform, .. } = problem.features();
    let finish = plan.finish.as_ref();
    let raw_values = finish.and_then(|finish| finish.raw_values);
    KeptParams {
        sample,
        raw: report_params(raw, &operands.raw),
        processed: report_params(processed, &operands.processed),
        raw_values: at_if(raw_values.is_some(), operands.kept + raw_values.unwrap_or_default()),
        transform: transform_if(transforms_later(problem, plan), transform),
        slice_in_shared: finish.is_some_and(|finish| finish.slice_in_shared).into(),
    }
}

/// Whether a transform is left to the kernel that finishes rows.
fn transforms_later(problem: &Problem, plan: &Plan) -> bool {
    problem.features().transform.changes() && !plan.applies_transform
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
