//! Rows whose values outlive their tiles: those with filters, which need the whole row,
//! and all rows of a call that wants reports. One thread finishes a row.

use flash_sampling_kernels::abi::{NO_TOKEN, TILE_V, n_tiles_v};
use flash_sampling_kernels::candidate::{Key, Leaders};
use flash_sampling_kernels::mass::{min_p_floor, share};

use super::Run;
use super::ladder::{Ladder, highest_of, least_key};
use super::spill::Spill;
use super::tile::{Span, TILE_V_LEN, highest, offer_row};
use crate::error::Error;
use crate::output::{Output, resize};
use crate::params::{FilterOrder, SamplingParams};
use crate::problem::Problem;
use crate::report::Report;

/// One such row.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Which one.
    row: u32,
    /// `[V]` logits after bias, cap and scale; empty unless a report on them is wanted.
    pub(super) raw: Spill,
    /// `[V]` values.
    pub(super) values: Spill,
    ladder: Ladder,
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
        self.raw.resize(if run.raw.any() { vocab } else { 0 })?;
        self.ladder.reserve(vocab)?;
        self.leaders.clear();
        resize(&mut self.leaders, draws, Leaders::NONE)
    }

    /// Draws and reports, once all values are there.
    #[inline(always)]
    pub(super) fn finish(&mut self, problem: &Problem, rows: &[SamplingParams]) {
        let params = &rows[self.row as usize];
        let values = self.values.values();
        let highest = highest_of(values);
        let (ladder, first_token) = (&mut self.ladder, problem.first_token());
        ladder.clear();
        let mut last = Key::NONE;
        // Where the highest is infinite, it wins whatever the filters keep.
        if params.filters() && highest.is_finite() {
            last = filter(ladder, values, highest, params);
        }
        draw(values, last, problem, params, &mut self.leaders);
        let drawn = &self.leaders[..];
        let temperature = if params.temperature > 0.0 { params.temperature } else { 1.0 };
        report(ladder, (values, first_token), temperature, drawn, &mut self.processed_report);
        ladder.clear();
        report(ladder, (self.raw.values(), first_token), 1.0, drawn, &mut self.raw_report);
    }

    /// Writes this row's reports.
    pub(super) fn write_reports(&self, output: &mut Output) {
        output.raw.set_row(self.row as usize, &self.raw_report);
        output.processed.set_row(self.row as usize, &self.processed_report);
    }
}

/// The least key that a row's filters keep.
#[inline(always)]
fn filter(ladder: &mut Ladder, values: &[f32], highest: f32, params: &SamplingParams) -> Key {
    let temperature = if params.filters_at_one { 1.0 } else { params.temperature };
    let floor = match params.min_p {
        0.0 => Key::NONE,
        min_p => least_key(min_p_floor(highest, temperature, min_p)),
    };
    if params.top_k.is_none() && params.top_p == 1.0 {
        return floor;
    }
    ladder.fill(values, temperature);
    let all = ladder.all();
    let by_min_p = if floor == Key::NONE { all } else { ladder.down_to(values, floor) };
    let by_top_k = params.top_k.map_or(all, |k| ladder.likeliest(values, k));
    let kept = by_min_p.and(by_top_k);
    if params.top_p == 1.0 {
        return kept.last;
    }
    let whole = match params.filter_order {
        FilterOrder::Sequential => kept,
        FilterOrder::MinPLast => by_top_k,
        FilterOrder::Joint => all,
    };
    kept.and(ladder.reaching(values, share(whole.mass, params.top_p))).last
}

/// Offers the tokens with keys from `last` on to the leaders of each draw.
#[inline(always)]
fn draw(
    values: &[f32],
    last: Key,
    problem: &Problem,
    params: &SamplingParams,
    leaders: &mut [Leaders],
) {
    let (last_y, last_index) = (last.score(), last.token());
    for tile in 0..n_tiles_v(problem.first_token(), problem.vocab()) {
        let span = Span::new(problem, tile);
        let mut kept = [f32::NEG_INFINITY; TILE_V_LEN];
        let n_tokens = span.to - span.from;
        kept[span.from..span.to].copy_from_slice(&values[span.weights_row..][..n_tokens]);
        // Places before the span have no index, and no value either.
        let first_index = (span.weights_row as u32).wrapping_sub(span.from as u32);
        for (place, y) in (0..TILE_V).zip(&mut kept) {
            let index = first_index.wrapping_add(place);
            let keep = (*y > last_y) | ((*y == last_y) & (index <= last_index));
            *y = if keep { *y } else { f32::NEG_INFINITY };
        }
        if highest(&kept) > f32::NEG_INFINITY {
            offer_row(&kept, &span, params.row_params(), leaders);
        }
    }
}

/// Fills in what a report wants of the values of tokens from `first_token` on.
#[inline(always)]
fn report(
    ladder: &mut Ladder,
    (values, first_token): (&[f32], u32),
    temperature: f32,
    drawn: &[Leaders],
    report: &mut Report,
) {
    let wanted = report.wanted;
    let highest = highest_of(values);
    if !wanted.any() || highest == f32::NEG_INFINITY {
        return;
    }
    ladder.fill(values, temperature);
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
            report.ranks[draw] = values.iter().map(|&other| u32::from(other >= y)).sum();
        }
    }
    if wanted.logprobs {
        report.log_sum_exps[0] = if is_infinite { highest } else { ladder.log_sum_exp() };
    }
    if wanted.entropies {
        report.entropies[0] = if is_infinite { f32::NAN } else { ladder.entropy(values) };
    }
    if wanted.best > 0 {
        let best = ladder.likeliest(values, wanted.best);
        for (token, key) in report.best_tokens.iter_mut().zip(ladder.sorted(values, best)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use flash_sampling_kernels::mass::{MassUnit, decay, gap};

    /// Numerical Recipes' generator: its upper bits will do for test rows.
    fn random(state: &mut u32) -> f32 {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (*state >> 8) as f32 / 16_777_216.0
    }

    /// The keys that the filters keep, by sorting and adding up all of them.
    fn sorted(values: &[f32], params: &SamplingParams) -> Vec<Key> {
        let admitted = (0..).zip(values).filter(|(_, y)| **y > f32::NEG_INFINITY);
        let mut keys: Vec<Key> = admitted.map(|(i, &y)| Key::new(y + 0.0, i)).collect();
        keys.sort_unstable_by(|a, b| b.cmp(a));
        let highest = keys[0].score();
        let unit = MassUnit::for_tokens(values.len() as u32);
        let mass = |key: Key| unit.mass(decay(-gap(highest, key.score(), params.temperature)));
        let sum = |keys: &[Key]| keys.iter().map(|&key| mass(key)).sum::<u64>();
        let whole = sum(&keys);
        let min_p = |keys: &mut Vec<Key>| {
            if params.min_p > 0.0 {
                let floor = min_p_floor(highest, params.temperature, params.min_p);
                keys.retain(|key| key.score() >= floor);
            }
        };
        if params.filter_order == FilterOrder::Sequential {
            min_p(&mut keys);
        }
        keys.truncate(params.top_k.unwrap_or(u32::MAX) as usize);
        if params.top_p < 1.0 {
            let joint = params.filter_order == FilterOrder::Joint;
            let goal = share(if joint { whole } else { sum(&keys) }, params.top_p);
            let mut before = 0;
            keys.retain(|&key| {
                let kept = before < goal;
                before += mass(key);
                kept
            });
        }
        min_p(&mut keys);
        keys
    }

    #[test]
    fn what_is_kept_is_what_sorting_keeps() {
        let mut state = 7;
        let mut ladder = Ladder::default();
        for case in 0..4_000 {
            let vocab = [1, 2, 5, 100, 128, 300, 1_000][case % 7];
            // From all equal to all apart, some a long way down.
            let (steps, step) = [(1.0, 1.0), (3.0, 0.5), (40.0, 0.25), (1e6, 1e-4)][case % 4];
            let values: Vec<f32> = (0..vocab)
                .map(|_| match random(&mut state) {
                    chance if chance < 0.1 => f32::NEG_INFINITY,
                    chance if chance < 0.2 => -80.0 * chance,
                    _ => (random(&mut state) * steps).floor() * step - 3.0,
                })
                .collect();
            let mut pick = |from: &[f32]| from[(random(&mut state) * from.len() as f32) as usize];
            let mut params = SamplingParams::new(pick(&[1e-3, 0.3, 1.0, 7.0, 1e6]), 0, 0);
            params.top_k = match pick(&[0.0, 1.0, 2.0, 30.0, 2e3]) {
                0.0 => None,
                k => Some(k as u32),
            };
            params.top_p = pick(&[1.0, 0.9999, 0.9, 0.5, 0.25, 1e-5]);
            params.min_p = pick(&[0.0, 1e-38, 0.02, 0.5, 1.0]);
            params.filter_order =
                [FilterOrder::Sequential, FilterOrder::MinPLast, FilterOrder::Joint][case % 3];
            let highest = highest_of(&values);
            if highest == f32::NEG_INFINITY {
                continue;
            }
            ladder.clear();
            let last = filter(&mut ladder, &values, highest, &params);
            let mut found = sorted(&values, &SamplingParams::new(1.0, 0, 0));
            found.retain(|&key| key >= last);
            assert_eq!(found, sorted(&values, &params), "case {case}: {params:?}");
        }
    }
}
