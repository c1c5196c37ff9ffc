//! Reports on a row of which few tokens were gathered: those from a floor on. The sum of all
//! weights is the sampling kernel's.

use super::crew::{Crew, LIST};
use super::gathered::Gathered;
use super::nucleus::{drawn, sum_of};
use super::report::write_best;
use crate::abi::kept::{KeptParams, ReportParams};
use crate::arch;
use crate::candidate::Key;
use crate::dims::output_index;
use crate::partial_sum::{PartialSum, report_temperature};

/// Reports what is wanted of either distribution, the `best` likeliest tokens at most, and tells
/// whether it is right. `whole` is the sum of the row's own distribution, if that is wanted.
///
/// # Safety
/// All threads of the block; the row's tokens were drawn, and its values and sums are there; the
/// tokens drawn are gathered if their ranks are wanted, and the likeliest if there are so many.
#[inline(always)]
pub(super) unsafe fn report(
    params: &KeptParams,
    crew: &Crew<1>,
    (row, whole): (u32, PartialSum),
    tokens: &Gathered,
    best: u32,
) -> bool {
    // SAFETY: the caller's promise; `row < B`.
    unsafe {
        let mut listed = 0;
        if best > 0 {
            listed = tokens.list_best(crew, best);
            if listed > LIST as u32 {
                return false;
            }
        }
        // Opaque: one text for both distributions.
        let (mut part, parts) = (0, arch::opaque(2));
        while part < parts {
            let (raw, processed) = (params.raw, params.processed);
            let report: ReportParams = if part == 0 { raw } else { processed };
            if report.any() {
                let mut temperature = 1.0;
                let mut of_part = whole;
                if part == 0 {
                    of_part = sum_of(params, crew, row, false, temperature);
                } else {
                    let own = params.sample.temperatures.add(row as usize).read();
                    temperature = report_temperature(own);
                }
                of_distribution(params, crew, row, tokens, &report, (of_part, temperature), listed);
            }
            part += 1;
        }
        true
    }
}

/// Reports what is wanted of a distribution.
#[inline(always)]
unsafe fn of_distribution(
    params: &KeptParams,
    crew: &Crew<1>,
    row: u32,
    tokens: &Gathered,
    report: &ReportParams,
    (whole, temperature): (PartialSum, f32),
    listed: u32,
) {
    let sample = &params.sample;
    let logprob = |y| whole.logprob(y, temperature);
    // SAFETY: the caller's promise.
    unsafe {
        let mut draw = 0;
        while draw < sample.draws {
            let at = output_index(row, sample.draws, draw) as usize;
            let (mut p, mut rank) = (f32::NEG_INFINITY, 0);
            if let Some((_, y)) = drawn(params, row, draw) {
                p = logprob(y);
                if !report.ranks.is_null() {
                    rank = tokens.rank(crew, y);
                }
            }
            crew.leg(|thread| {
                if thread == 0 && !report.logprobs.is_null() {
                    report.logprobs.add(at).write(p);
                }
                if thread == 0 && !report.ranks.is_null() {
                    report.ranks.add(at).write(rank);
                }
            });
            draw += 1;
        }
        let keys = (&raw const (*crew.shared).gathered.keys).cast::<Key>();
        crew.leg(|thread| {
            if thread == 0 && !report.log_sum_exps.is_null() {
                report.log_sum_exps.add(row as usize).write(whole.log_sum_exp(temperature));
            }
            write_best(report, (row, sample.first_token), (keys, listed), thread, logprob);
        });
    }
}
