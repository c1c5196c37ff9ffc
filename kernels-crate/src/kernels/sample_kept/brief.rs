//! Reports on a row of which few tokens were gathered: those from a floor on. The sum of all
//! weights is the sampling kernel's.

use super::crew::{Crew, LIST};
use super::gathered::{Gathered, drawn_key};
use super::moments::{Moments, OfBoth};
use super::report::write_best;
use super::row::{Part, drawn, sum_of, value_after_rules, values_of};
use crate::abi::kept::{KeptParams, ReportParams};
use crate::arch;
use crate::candidate::Key;
use crate::dims::output_index;
use crate::partial_sum::{PartialSum, report_temperature};

/// The tokens of a row that were gathered.
#[derive(Clone, Copy)]
pub(super) struct Lists {
    /// By their values before rules, and after them.
    pub(super) of_model: Gathered,
    pub(super) of_row: Gathered,
    /// How many of the row's own are in order, the likeliest: if any, as many as are wanted.
    pub(super) in_order: u32,
    /// Whether these are others.
    pub(super) is_ruled: bool,
    /// All tokens from here on are.
    pub(super) floor: f32,
    /// Whether the keys of the tokens drawn are left.
    pub(super) are_drawn: bool,
}

/// Reports what is wanted of either distribution, as far as it is the block's part, and tells
/// whether it is right. `whole` is the sum of the row's own distribution, if that is wanted, and
/// `moments` are those of all tokens if entropies are.
///
/// # Safety
/// All threads of the block; the row's tokens were drawn, and its values and sums are there; the
/// likeliest are gathered if there are so many, and the tokens drawn, if their ranks are wanted
/// and the row has no rules. Its own tokens are in order, or on their rungs, if the likeliest are
/// wanted.
#[inline(always)]
pub(super) unsafe fn report(
    params: &KeptParams,
    crew: &Crew<1>,
    (row, part, whole): (u32, Part, PartialSum),
    lists: &Lists,
    moments: OfBoth,
) -> bool {
    // SAFETY: the caller's promise; `row < B`.
    unsafe {
        // Opaque: one text for both distributions; the row's own first, whose rungs are there.
        let (mut step, steps) = (0, arch::opaque(2));
        while step < steps {
            let (raw, processed) = (params.raw, params.processed);
            let of_row = step == 0;
            let mut report: ReportParams = if of_row { processed } else { raw };
            report = if part.lists { report } else { report.without_best() };
            report = if part.draws { report } else { report.of_best() };
            if report.any() {
                let mut temperature = 1.0;
                let mut of_part = whole;
                if of_row {
                    let own = params.sample.temperatures.add(row as usize).read();
                    temperature = report_temperature(own);
                } else {
                    of_part = sum_of(params, crew, row, false, temperature);
                }
                let mut tokens = lists.of_row;
                if !of_row && lists.is_ruled {
                    tokens = lists.of_model;
                    if report.best > 0 {
                        tokens.climb(crew);
                    }
                }
                let mut keys = (&raw const (*crew.shared).gathered.keys).cast::<Key>();
                let mut listed = 0;
                if lists.in_order > 0 && (of_row || !lists.is_ruled) {
                    keys = (&raw const (*crew.shared).short.ranked).cast();
                    listed = core::cmp::min(lists.in_order, report.best);
                } else if report.best > 0 {
                    listed = tokens.list_best(crew, report.best);
                    if listed > LIST as u32 {
                        return false;
                    }
                }
                let sums = if of_row { moments[1] } else { moments[0] };
                let is_edited = lists.is_ruled & of_row;
                let floor = if lists.is_ruled { lists.floor } else { f32::NEG_INFINITY };
                let of_part = (of_part, temperature, sums);
                let asked = (row, is_edited, lists.is_ruled & !of_row, floor, lists.are_drawn);
                if !of_distribution(params, crew, asked, &tokens, &report, of_part, (keys, listed))
                {
                    return false;
                }
            }
            step += 1;
        }
        true
    }
}

/// Reports what is wanted of a distribution, and tells whether it is right: of a token whose value
/// is less than `floor`, the rank is not known.
#[inline(always)]
unsafe fn of_distribution(
    params: &KeptParams,
    crew: &Crew<1>,
    (row, is_edited, is_before_rules, floor, are_drawn): (u32, bool, bool, f32, bool),
    tokens: &Gathered,
    report: &ReportParams,
    (whole, temperature, sums): (PartialSum, f32, Moments),
    listed: (*const Key, u32),
) -> bool {
    let sample = &params.sample;
    let logprob = |y| whole.logprob(y, temperature);
    // SAFETY: the caller's promise.
    unsafe {
        let of_drawn = !report.logprobs.is_null() | !report.ranks.is_null();
        let (mut draw, draws) = (0, if of_drawn { sample.draws } else { 0 });
        while draw < draws {
            let at = output_index(row, sample.draws, draw) as usize;
            let (mut p, mut rank) = (f32::NEG_INFINITY, 0);
            let own = if are_drawn && draw < LIST as u32 {
                drawn_key(crew, draw).read()
            } else {
                let y = |index| value_after_rules(params, (row, is_edited), index);
                let of = |index| Key::of_value(y(index), index);
                drawn(params, row, draw).map_or(Key::NONE, of)
            };
            if own != Key::NONE {
                let mut y = own.score();
                if are_drawn && is_before_rules {
                    y = values_of(params, row).add(own.token() as usize).read();
                }
                p = logprob(y);
                if !report.ranks.is_null() {
                    if y < floor {
                        return false;
                    }
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
        crew.leg(|thread| {
            if thread == 0 && !report.log_sum_exps.is_null() {
                report.log_sum_exps.add(row as usize).write(whole.log_sum_exp(temperature));
            }
            if thread == 0 && !report.entropies.is_null() {
                report.entropies.add(row as usize).write(sums.entropy());
            }
            write_best(report, (row, sample.first_token), listed, thread, logprob);
        });
    }
    true
}
