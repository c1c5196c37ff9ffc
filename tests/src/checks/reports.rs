//! Are reports true? Log-sum-exp, log-probabilities, ranks, the best and the entropy, of
//! the model's distribution and of each row's.

use std::sync::Arc;

use flash_sampling::{Dtype, NO_TOKEN, Output, Report, SamplingParams, Wanted};

use crate::inputs::mixes::random_case;
use crate::inputs::{Case, HIDDEN_STATES, Head, Matrix, Rules, WEIGHTS, params, rows_of};
use crate::judge::{raw_values, values};
use crate::oracle::summary;
use crate::panel::{Panel, bits, is_near};

/// Tests of this group.
#[macro_export]
macro_rules! reports_checks {
    ($panel:expr) => {
        $crate::check_tests! {
            $panel, reports:
            reports_are_the_oracles, asking_for_reports_changes_no_token,
            what_is_not_wanted_is_empty, a_gap_of_40_is_a_logprob_of_minus_40,
            equal_tokens_have_equal_ranks, the_logprob_of_infinity_is_not_a_number,
            a_row_without_a_token_reports_none, logprobs_alone_are_the_oracles,
            reports_of_few_values_are_the_oracles,
            logprobs_alone_of_what_is_not_finite,
        }
    };
}

/// All there is to report.
pub const ALL: Wanted = Wanted { logprobs: true, ranks: true, entropies: true, best: 20 };

/// From peaked to flat, with ties, banned tokens and shards.
pub fn case(seed: u64, vocab: usize, first_token: u32) -> Case {
    let head = Head::new(Matrix::integers(WEIGHTS + seed, Dtype::Bf16, vocab, 24));
    let head = Arc::new(Head { first_token, ..head });
    let hidden_states = Matrix::integers(HIDDEN_STATES + seed, Dtype::Bf16, 24, 24);
    let rows = rows_of(24, &[1.0, 0.0, 30.0, 120.0, 1e4])
        .into_iter()
        .map(|row| if row.key.position % 2 == 0 { row } else { row.with_top_k(9).with_top_p(0.8) });
    let rows = rows.collect();
    let ids = |step| (first_token..first_token + vocab as u32).step_by(step);
    let rules = Rules {
        logit_bias: ids(3).map(|id| (id, 16.0)).collect(),
        ban_list: ids(4).collect(),
        ..Rules::default()
    };
    Case::new(format!("V {vocab}, from {first_token}"), &head, hidden_states, rows)
        .with_rules(vec![rules; 24])
        .with_draws(3)
        .with_reports(ALL, ALL)
}

fn near(found: f32, expected: f64, what: &str) {
    assert!(is_near(found, expected), "{what}: {found}, the oracle's {expected}");
}

/// Holds what is wanted of a row's report against its values in `f64`, which are exact.
fn assert_true(case: &Case, row: usize, output: &Output, report: &Report, y: &[f64], t: f64) {
    let (first, draws) = (case.head.first_token, case.draws as usize);
    let what = |what: &str| format!("{}, row {row}: {what}", case.name);
    let (lse, entropy) = summary(y, t);
    let logprob = |at: usize| y[at] / t - lse;
    let Wanted { logprobs, ranks, entropies, best, .. } = report.wanted;
    if logprobs {
        near(report.log_sum_exps[row], lse, &what("log-sum-exp"));
    }
    if entropies {
        near(report.entropies[row], entropy, &what("entropy"));
    }
    for draw in row * draws..(row + 1) * draws {
        let token = output.tokens[draw];
        let at = (token != NO_TOKEN).then(|| (token - first) as usize);
        if logprobs {
            near(report.logprobs[draw], at.map_or(f64::NEG_INFINITY, logprob), &what("logprob"));
        }
        if ranks {
            let rank = at.map_or(0, |at| y.iter().filter(|&&other| other >= y[at]).count());
            assert_eq!(report.ranks[draw] as usize, rank, "{}", what("rank"));
        }
    }
    let mut order: Vec<usize> = (0..y.len()).filter(|&at| y[at] > f64::NEG_INFINITY).collect();
    order.sort_by(|&a, &b| y[b].total_cmp(&y[a]));
    let best = best as usize;
    let best_tokens = &report.best_tokens[row * best..][..best];
    let best_logprobs = &report.best_logprobs[row * best..][..best];
    for (n, (&token, &p)) in best_tokens.iter().zip(best_logprobs).enumerate() {
        let Some(&at) = order.get(n) else {
            assert_eq!((token, p), (NO_TOKEN, f32::NEG_INFINITY), "{}", what("best"));
            continue;
        };
        assert_eq!(token, first + at as u32, "{}", what("best"));
        near(p, logprob(at), &what("best"));
    }
}

/// Holds what is wanted of both distributions against the oracle.
fn assert_both(case: &Case, output: &Output) {
    for (row, params) in case.rows.iter().enumerate() {
        let t = if params.temperature > 0.0 { f64::from(params.temperature) } else { 1.0 };
        assert_true(case, row, output, &output.processed, &values(case, row).values, t);
        assert_true(case, row, output, &output.raw, &raw_values(case, row).values, 1.0);
    }
}

/// Every part of both reports, in `f64`.
pub fn reports_are_the_oracles(panel: &mut Panel) {
    for (seed, vocab, first_token) in [(1, 300, 0), (2, 1_000, 77), (3, 3_000, 0), (4, 12, 5)] {
        let case = case(seed, vocab, first_token);
        panel.sample_each(&case, |_, output| assert_both(&case, output));
        // And they agree with each other.
        panel.sample(&case);
    }
}

/// Nor a status, a score or a margin.
pub fn asking_for_reports_changes_no_token(panel: &mut Panel) {
    let none = Wanted::default();
    let case = case(7, 700, 0).with_reports(none, none);
    let expected = panel.sample(&case);
    assert_eq!((&expected.raw, &expected.processed), (&Report::default(), &Report::default()));
    let plain = Case { rules: Vec::new(), rows: rows_of(24, &[30.0, 0.0, 120.0]), ..case.clone() };
    let expected_plain = panel.sample(&plain);
    for (case, expected) in [(&case, expected), (&plain, expected_plain)] {
        for (raw, processed) in [(ALL, none), (none, ALL)] {
            let output = panel.sample(&case.clone().with_reports(raw, processed));
            for at in 0..expected.tokens.len() {
                assert_eq!(bits(&output, at), bits(&expected, at), "{at}");
            }
        }
    }
}

/// Whatever else is.
pub fn what_is_not_wanted_is_empty(panel: &mut Panel) {
    let wanted = Wanted { ranks: true, ..Wanted::default() };
    let case = case(8, 40, 0).with_reports(wanted, Wanted::default());
    panel.sample_each(&case, |_, output| {
        let Report { log_sum_exps, logprobs, ranks, entropies, best_tokens, best_logprobs, .. } =
            &output.raw;
        assert_eq!(ranks.len(), 72);
        assert!(log_sum_exps.is_empty() && logprobs.is_empty() && entropies.is_empty());
        assert!(best_tokens.is_empty() && best_logprobs.is_empty());
        assert_eq!(output.processed, Report::default());
    });
}

/// Asks for all of one row with these logits.
fn of_logits(panel: &mut Panel, logits: &[f32], row: SamplingParams, look: impl Fn(&Output)) {
    let hidden_states = Matrix::from_fn(Dtype::Bf16, 1, 1, |_, _| 1.0);
    let head = Arc::new(Head::of_logits(logits.to_vec()));
    let case = Case::new("logits", &head, hidden_states, vec![row]).with_reports(ALL, ALL);
    panel.sample_each(&case, |_, output| look(output));
}

/// Where a sum of probabilities would lose it.
pub fn a_gap_of_40_is_a_logprob_of_minus_40(panel: &mut Panel) {
    for temperature in [1.0, 0.0] {
        of_logits(panel, &[60.0, 20.0], params(temperature, 0, 0), |output| {
            assert_eq!(output.processed.best_tokens[..3], [0, 1, NO_TOKEN]);
            near(output.processed.best_logprobs[0], 0.0, "likeliest");
            near(output.processed.best_logprobs[1], -40.0, "next");
            near(output.raw.log_sum_exps[0], 60.0, "log-sum-exp");
            assert_eq!(output.raw.ranks[0], 1);
        });
    }
}

/// Ties count, filtered or not.
pub fn equal_tokens_have_equal_ranks(panel: &mut Panel) {
    of_logits(panel, &[3.0, 5.0, 5.0, 1.0], params(0.0, 0, 0).with_top_k(1), |output| {
        assert_eq!((output.tokens[0], output.processed.ranks[0]), (1, 2));
    });
}

/// But its rank and place are known.
pub fn the_logprob_of_infinity_is_not_a_number(panel: &mut Panel) {
    of_logits(panel, &[3.0, f32::INFINITY, 5.0], params(1.0, 0, 0), |output| {
        let report = &output.processed;
        assert!(report.logprobs[0].is_nan() && report.entropies[0].is_nan());
        assert_eq!((report.log_sum_exps[0], report.ranks[0]), (f32::INFINITY, 1));
        assert_eq!(report.best_tokens[..4], [1, 2, 0, NO_TOKEN]);
    });
}

/// Of either distribution.
pub fn a_row_without_a_token_reports_none(panel: &mut Panel) {
    of_logits(panel, &[f32::NEG_INFINITY, f32::NAN], params(1.0, 0, 0), |output| {
        for report in [&output.raw, &output.processed] {
            assert_eq!((report.logprobs[0], report.ranks[0]), (f32::NEG_INFINITY, 0));
            assert_eq!(report.log_sum_exps[0], f32::NEG_INFINITY);
            assert_eq!(report.best_tokens, [NO_TOKEN; 20]);
        }
    });
}

/// Ways to want nothing but log-probabilities.
const LOGPROBS_ALONE: [(Wanted, Wanted); 3] = [
    (Wanted::LOGPROBS, Wanted::NONE),
    (Wanted::NONE, Wanted::LOGPROBS),
    (Wanted::LOGPROBS, Wanted::LOGPROBS),
];

/// What sums of weights and few values are enough for.
const OF_FEW: Wanted = Wanted { logprobs: true, ranks: true, entropies: false, best: 20 };

/// Ways to want no more than that.
const NO_ENTROPIES: [(Wanted, Wanted); 4] = [
    (OF_FEW, Wanted::NONE),
    (Wanted::NONE, OF_FEW),
    (OF_FEW, Wanted { best: 3, ranks: false, ..OF_FEW }),
    (Wanted { ranks: true, ..Wanted::NONE }, Wanted { best: 1, ..Wanted::NONE }),
];

/// Rows of all temperatures, with filters and without, and no rules.
fn unruled_cases() -> impl Iterator<Item = Case> {
    let filtered = [(3, 700, 0), (6, 1_000, 77)].map(|(seed, vocab, first)| {
        random_case(seed, vocab, first).select(&(0..40).collect::<Vec<_>>())
    });
    let plain = [(1, 300, 0), (2, 3_000, 77), (4, 12, 5)].map(|(seed, vocab, first)| {
        let case = case(seed, vocab, first);
        Case { rules: Vec::new(), rows: rows_of(24, &[1.0, 0.0, 30.0, 120.0, 1e4]), ..case }
    });
    filtered.into_iter().chain(plain)
}

/// Of all such rows.
pub fn logprobs_alone_are_the_oracles(panel: &mut Panel) {
    for (at, case) in unruled_cases().enumerate() {
        let (raw, processed) = LOGPROBS_ALONE[at % 3];
        let case = case.with_reports(raw, processed);
        panel.sample_each(&case, |_, output| assert_both(&case, output));
        // And they agree with each other.
        panel.sample(&case);
    }
}

/// Of such rows, and of larger vocabularies, with top_p alone or without filters.
pub fn reports_of_few_values_are_the_oracles(panel: &mut Panel) {
    let large = [(9, 20_000, 0), (10, 5_000, 77)].map(|(seed, vocab, first)| {
        let rows = rows_of(24, &[30.0, 0.0, 100.0, 10.0, 400.0]).into_iter();
        let shares = [0.9, 1.0, 0.5, 0.99];
        let rows = rows.enumerate().map(|(at, row)| row.with_top_p(shares[at % 4]));
        Case { rules: Vec::new(), rows: rows.collect(), ..case(seed, vocab, first) }
    });
    for (at, case) in unruled_cases().chain(large).enumerate() {
        for way in [at % 4, (at + 2) % 4] {
            let (raw, processed) = NO_ENTROPIES[way];
            let case = case.clone().with_reports(raw, processed);
            panel.sample_each(&case, |_, output| assert_both(&case, output));
            // And they agree with each other.
            panel.sample(&case);
        }
    }
}

/// Infinities, NaN, rows without a token: as in other reports.
pub fn logprobs_alone_of_what_is_not_finite(panel: &mut Panel) {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let mut logits = vec![-inf; 300];
    logits[..4].copy_from_slice(&[0.0, nan, 40.0, nan]);
    for (first, lse, logprob) in [(0.0, 40.0, 0.0), (inf, inf, nan)] {
        logits[0] = first;
        for (raw, processed) in LOGPROBS_ALONE {
            let hidden_states = Matrix::from_fn(Dtype::Bf16, 1, 1, |_, _| 1.0);
            let head = Arc::new(Head::of_logits(logits.clone()));
            let row = params(0.0, 1, 2);
            let case = Case::new("logits", &head, hidden_states, vec![row]);
            let case = case.with_reports(raw, processed);
            panel.sample_each(&case, |_, output| {
                for report in [&output.raw, &output.processed] {
                    if report.wanted.logprobs {
                        assert_eq!(report.log_sum_exps, [lse]);
                        let found = report.logprobs[0];
                        assert!(found == logprob || found.is_nan() && logprob.is_nan(), "{found}");
                    }
                }
            });
        }
    }
    let none = vec![-inf; 300];
    let hidden_states = Matrix::from_fn(Dtype::Bf16, 1, 1, |_, _| 1.0);
    let head = Arc::new(Head::of_logits(none));
    let case = Case::new("no token", &head, hidden_states, vec![params(1.0, 1, 2)])
        .with_reports(Wanted::LOGPROBS, Wanted::LOGPROBS);
    panel.sample_each(&case, |_, output| {
        assert_eq!(output.tokens, [NO_TOKEN]);
        for report in [&output.raw, &output.processed] {
            assert_eq!((report.log_sum_exps[0], report.logprobs[0]), (-inf, -inf));
        }
    });
}
