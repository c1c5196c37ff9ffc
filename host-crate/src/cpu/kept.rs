//! Rows whose values outlive their tiles: those with filters, which need the whole row,
//! and all rows of a call that wants reports. One thread finishes a row.

use flash_sampling_kernels::abi::{NO_TOKEN, TILE_V, n_tiles_v};
use flash_sampling_kernels::candidate::{Key, Leaders};
use flash_sampling_kernels::filters::{Filters, keeps};

use super::Run;
use super::filters::Measured;
use super::ladder::Ladder;
use super::short::Short;
use super::spill::Spill;
use super::tile::{Span, TILE_V_LEN, highest, offer_row};
use super::tops::Tops;
use crate::error::Error;
use crate::features::row_features;
use crate::output::{Output, resize};
use crate::params::SamplingParams;
use crate::problem::Problem;
use crate::report::Report;

/// One such row.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Which one.
    row: u32,
    /// `[V]` logits after bias, cap and scale; empty unless a report on them is wanted, and the
    /// row's rules may make values of them that are others.
    pub(super) raw: Spill,
    /// `[V]` values.
    pub(super) values: Spill,
    ladder: Ladder,
    tops: Tops,
    /// `[S]`.
    pub(super) leaders: Vec<Leaders>,
    /// Of this row alone.
    raw_report: Report,
    processed_report: Report,
}

impl Kept {
    /// Makes it row `row` of a call.
    pub(super) fn begin(&mut self, row: u32, run: &Run<'_>) -> Result<(), Error> {
        let (vocab, draws) = (u64::from(run.problem.vocab()), u64::from(run.problem.draws()));
        self.row = row;
        self.raw_report.wanted = run.raw;
        self.processed_report.wanted = run.processed;
        for report in [&mut self.raw_report, &mut self.processed_report] {
            report.reserve(1, draws)?;
            report.clear(1, draws)?;
        }
        self.values.resize(vocab)?;
        let rules = run.inputs.token_rules.get(row as usize);
        let edits = rules.is_some_and(|rules| rules.edits(&run.rows[row as usize]));
        self.raw.resize(if run.raw.any() && edits { vocab } else { 0 })?;
        self.ladder.reserve(vocab)?;
        self.tops.reserve(vocab)?;
        self.leaders.clear();
        resize(&mut self.leaders, draws, Leaders::NONE)
    }

    /// Draws and reports, once all values are there.
    #[inline(always)]
    pub(super) fn finish(&mut self, problem: &Problem, rows: &[SamplingParams]) {
        let params = &rows[self.row as usize];
        let values = self.values.values();
        let (ladder, tops) = (&mut self.ladder, &mut self.tops);
        let (highest, first_token) = (tops.find(values), problem.first_token());
        ladder.clear();
        let mut last = Key::NONE;
        // Where the highest is infinite, it wins whatever the filters keep.
        let features = row_features(params);
        let filters = Filters::new(&features, params.temperature);
        if filters.any() && highest.is_finite() {
            last = if Short::serves(&features) {
                let keys = ladder.best(values, tops, features.top_k);
                filters.last_of(&mut Short::new(values, highest, keys))
            } else {
                filters.last_of(&mut Measured { ladder, values, highest, features: &features })
            };
        }
        draw((values, tops), last, problem, params, &mut self.leaders);
        let drawn = &self.leaders[..];
        let temperature = if params.temperature > 0.0 { params.temperature } else { 1.0 };
        let processed = (values, highest, first_token);
        report(ladder, tops, processed, temperature, drawn, &mut self.processed_report);
        if self.raw_report.wanted.any() {
            let mut raw = processed;
            if let edited @ [_, ..] = self.raw.values() {
                ladder.clear();
                raw = (edited, tops.find(edited), first_token);
            }
            report(ladder, tops, raw, 1.0, drawn, &mut self.raw_report);
        }
    }

    /// Writes this row's reports.
    pub(super) fn write_reports(&self, output: &mut Output) {
        output.raw.set_row(self.row as usize, &self.raw_report);
        output.processed.set_row(self.row as usize, &self.processed_report);
    }
}

/// Offers the tokens with keys from `last` on to the leaders of each draw.
#[inline(always)]
fn draw(
    (values, tops): (&[f32], &Tops),
    last: Key,
    problem: &Problem,
    params: &SamplingParams,
    leaders: &mut [Leaders],
) {
    let keeps = keeps(last);
    for tile in 0..n_tiles_v(problem.first_token(), problem.vocab()) {
        let span = Span::new(problem, tile);
        let n_tokens = span.to - span.from;
        if !tops.may_reach(span.weights_row, n_tokens, last.score()) {
            continue;
        }
        let mut kept = [f32::NEG_INFINITY; TILE_V_LEN];
        kept[span.from..span.to].copy_from_slice(&values[span.weights_row..][..n_tokens]);
        // Places before the span have no index, and no value either.
        let first_index = (span.weights_row as u32).wrapping_sub(span.from as u32);
        for (place, y) in (0..TILE_V).zip(&mut kept) {
            let index = first_index.wrapping_add(place);
            *y = if keeps(index, *y) { *y } else { f32::NEG_INFINITY };
        }
        if highest(&kept) > f32::NEG_INFINITY {
            offer_row(&kept, &span, params.row_params(), leaders);
        }
    }
}

/// Fills in what a report wants of the values, of which the greatest is known, of tokens from
/// `first_token` on.
#[inline(always)]
fn report(
    ladder: &mut Ladder,
    tops: &Tops,
    (values, highest, first_token): (&[f32], f32, u32),
    temperature: f32,
    drawn: &[Leaders],
    report: &mut Report,
) {
    let wanted = report.wanted;
    if !wanted.any() || highest == f32::NEG_INFINITY {
        return;
    }
    ladder.weigh((values, highest), temperature, wanted.entropies);
    let is_infinite = highest == f32::INFINITY;
    let logprob = |ladder: &Ladder, y| if is_infinite { f32::NAN } else { ladder.logprob(y) };
    for (draw, token) in drawn.iter().map(|leaders| leaders.first.token()).enumerate() {
        if token == NO_TOKEN {
            continue;
        }
        let y = values[(token - first_token) as usize];
        if wanted.logprobs {
            report.logprobs[draw] = logprob(ladder, y);
        }
        if wanted.ranks {
            for &other in values {
                report.ranks[draw] += u32::from(other >= y);
            }
        }
    }
    if wanted.logprobs {
        report.log_sum_exps[0] = if is_infinite { highest } else { ladder.log_sum_exp() };
    }
    if wanted.entropies {
        report.entropies[0] = if is_infinite { f32::NAN } else { ladder.entropy(values) };
    }
    if wanted.best > 0 {
        for (token, key) in
            report.best_tokens.iter_mut().zip(ladder.best(values, tops, wanted.best))
        {
            *token = key.token();
        }
        for (p, token) in report.best_logprobs.iter_mut().zip(&mut report.best_tokens) {
            if *token != NO_TOKEN {
                *p = logprob(ladder, values[*token as usize]);
                *token += first_token;
            }
        }
    }
}
