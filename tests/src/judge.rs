//! An output against the oracle.
//!
//! The oracle's scores are exact to `f64`; an implementation's differ by at most
//!
//! ```text
//! δ = (D/4 + 16)·2⁻²⁴·Σ|h·w|          sums in f32, none if the case is exact
//!   + T·(3e-7 + 1.2e-7·|g|)            noise: the bound that gumbel.rs keeps
//!   + 2⁻²³·(|y| + T·|g|) + 2⁻¹⁴⁹       bias, product, sum and score, rounded once each
//! ```
//!
//! The first line is a quarter of the worst case, which no sum of mixed signs nears.
//! Transforms and penalties add a few roundings. A row whose filters decide within those
//! errors is passed over.

use flash_sampling::{
    EditOrder, FilterOrder, LogitTransform, NO_TOKEN, Output, Penalties, SamplingParams, Status,
};
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::inputs::{Case, Rules};
use crate::oracle::{self, Filters, Order, Transform, Verdict};

/// Logits of one row, and how far an f32 sum may lie from each.
pub struct Logits {
    /// `[V_valid]`.
    pub values: Vec<f64>,
    sum_errors: Vec<f64>,
}

/// Demands that every output is one the oracle would give, within its gap. Greedy rows
/// of an exact case must have the oracle's token. Answers how many rows were passed over.
pub fn assert_oracle_agrees(case: &Case, name: &str, output: &Output) -> usize {
    let doubtful = AtomicUsize::new(0);
    let fault = (0..case.batch()).into_par_iter().find_map_first(|row| {
        let logits = values(case, row);
        let Some(filtered) = filtered(case, row, &logits) else {
            doubtful.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        (0..case.draws).find_map(|draw| {
            let at = row * case.draws as usize + draw as usize;
            let verdict =
                oracle::draw(&filtered, case.head.first_token, oracle_row(case, row), draw);
            let fault = compare(case, row, &logits, &verdict, output, at).err()?;
            Some(format!("row {row}, draw {draw}: {fault}"))
        })
    });
    assert_eq!(fault, None, "{}: {name}", case.name);
    doubtful.into_inner()
}

/// The values of a row in `f64`: its logits after transform, rules and penalties.
pub fn values(case: &Case, row: usize) -> Logits {
    let logits = raw_values(case, row);
    let (params, first) = (&case.rows[row], case.head.first_token);
    if case.rules.is_empty() {
        return logits;
    }
    let rules = oracle_rules(&case.rules[row], params, first, logits.values.len());
    let is_plain = params.penalties == Penalties::NONE;
    let edited = logits.values.iter().zip(logits.sum_errors).enumerate();
    let (values, sum_errors) = edited
        .map(|(at, (&x, error))| {
            let y = rules.apply(at, x);
            // A penalty scales the error, too.
            let growth = if is_plain { 1.0 } else { rules.penalties[0].max(1.0) };
            let rounding = if is_plain { 0.0 } else { 2f64.powi(-22) * (x.abs() + y.abs() + 10.0) };
            (y, if y.is_finite() { error * growth + rounding } else { 0.0 })
        })
        .unzip();
    Logits { values, sum_errors }
}

/// The logits of a row in `f64` after the transform.
pub fn raw_values(case: &Case, row: usize) -> Logits {
    let mut logits = logits(case, row);
    if case.transform == LogitTransform::NONE {
        return logits;
    }
    let LogitTransform { softcap, scale, scale_first } = case.transform;
    let transform =
        Transform { softcap: softcap.map(f64::from), scale: f64::from(scale), scale_first };
    for (value, error) in logits.values.iter_mut().zip(&mut logits.sum_errors) {
        *value = transform.apply(*value);
        *error = if value.is_finite() { *error * transform.scale.max(1.0) } else { 0.0 };
        *error += 1e-6 * value.abs();
    }
    logits
}

/// The values with `−inf` for what the filters drop, unless rounding may decide.
pub fn filtered(case: &Case, row: usize, logits: &Logits) -> Option<Vec<f64>> {
    let params = &case.rows[row];
    let cutoffs = [params.min_p, params.epsilon_cutoff, params.eta_cutoff];
    let has_counts = params.top_k.is_some() || params.top_n_sigma.is_some();
    if !has_counts && params.top_p == 1.0 && cutoffs == [0.0; 3] {
        return Some(logits.values.clone());
    }
    let numbers = logits.values.iter().map(|y| if y.is_nan() { f64::NEG_INFINITY } else { *y });
    let numbers: Vec<f64> = numbers.collect();
    if params.temperature == 0.0 || numbers.contains(&f64::INFINITY) {
        return Some(logits.values.clone());
    }
    let filters = oracle_filters(params);
    let survivors = filters.survivors(&numbers);
    // Weights are accurate to 3e-7; a value's error, and the rounding of a floor among the
    // values, count in units of the temperature.
    let largest = |errors: &mut dyn Iterator<Item = f64>| errors.fold(0.0, f64::max);
    let largest_error = largest(&mut logits.sum_errors.iter().copied());
    let admitted = numbers.iter().filter(|y| y.is_finite());
    let rounding = 2f64.powi(-22) * largest(&mut admitted.map(|y| y.abs()));
    let value_error = 4.0 * largest_error + rounding;
    let certain = survivors.clearance >= 1e-6 + value_error / filters.temperature
        && survivors.value_clearance >= value_error;
    if !certain {
        return None;
    }
    let kept = numbers.into_iter().zip(survivors.kept);
    Some(kept.map(|(y, kept)| if kept { y } else { f64::NEG_INFINITY }).collect())
}

/// A row's filters for the oracle.
pub fn oracle_filters(params: &SamplingParams) -> Filters {
    Filters {
        top_k: params.top_k.map(|k| k as usize),
        top_p: f64::from(params.top_p),
        min_p: f64::from(params.min_p),
        top_n_sigma: params.top_n_sigma.map(f64::from),
        epsilon: f64::from(params.epsilon_cutoff),
        eta: f64::from(params.eta_cutoff),
        order: match params.filter_order {
            FilterOrder::Sequential => Order::Sequential,
            FilterOrder::MinPLast => Order::MinPLast,
            FilterOrder::Joint => Order::Joint,
        },
        temperature: if params.filters_at_one { 1.0 } else { f64::from(params.temperature) },
    }
}

/// A row's rules for the oracle, a table of all tokens.
fn oracle_rules(rules: &Rules, params: &SamplingParams, first: u32, vocab: usize) -> oracle::Rules {
    let Penalties { repetition, frequency, presence } = params.penalties;
    let mut table = oracle::Rules {
        banned: (0..vocab as u32).map(|at| !rules.admits(first + at)).collect(),
        bias: vec![0.0; vocab],
        seen: vec![None; vocab],
        penalties: [repetition, frequency, presence].map(f64::from),
        bias_last: params.edit_order == EditOrder::BiasLast,
    };
    for &(id, bias) in &rules.logit_bias {
        table.bias[(id - first) as usize] = f64::from(bias);
    }
    for seen in &rules.seen {
        // Ids of other shards are passed over.
        if let Some(entry) = table.seen.get_mut(seen.token.wrapping_sub(first) as usize) {
            *entry = Some(seen.count);
        }
    }
    table
}

/// The logits of a row in `f64`.
pub fn logits(case: &Case, row: usize) -> Logits {
    let (head, columns) = (&case.head, case.hidden_states.columns());
    let hidden: Vec<f64> =
        (0..columns).map(|d| f64::from(case.hidden_states.get(row, d))).collect();
    let per_magnitude =
        if case.exact { 0.0 } else { (columns as f64 / 4.0 + 16.0) * 2f64.powi(-24) };
    let (values, sum_errors) = (0..head.vocab_valid)
        .map(|token| {
            let (mut sum, mut magnitude) = (0.0, 0.0);
            for (d, h) in hidden.iter().enumerate() {
                let product = h * f64::from(head.weights.get(token, d));
                sum += product;
                magnitude += product.abs();
            }
            let bias = head.bias.as_ref().map_or(0.0, |bias| f64::from(bias[token]));
            // An infinite product has no rounding error, exact case or not.
            let error = if magnitude.is_finite() { per_magnitude * magnitude } else { 0.0 };
            (sum + bias, error)
        })
        .unzip();
    Logits { values, sum_errors }
}

/// A row's parameters for the oracle.
pub fn oracle_row(case: &Case, row: usize) -> oracle::Row {
    let params = &case.rows[row];
    oracle::Row {
        temperature: f64::from(params.temperature),
        seed: params.key.seed,
        position: params.key.position,
    }
}

fn compare(
    case: &Case,
    row: usize,
    logits: &Logits,
    verdict: &Verdict,
    output: &Output,
    at: usize,
) -> Result<(), String> {
    let mut status = Status::OK;
    if logits.values.iter().any(|y| y.is_nan()) {
        status.insert(Status::NAN_SEEN);
    }
    if logits.values.contains(&f64::INFINITY) {
        status.insert(Status::INF_SEEN);
    }
    if verdict.winner.is_none() {
        status.insert(Status::NO_CANDIDATE);
    }
    let (token, score, margin) = (output.tokens[at], output.scores[at], output.margins[at]);
    expect(output.status[at] == status, || {
        format!("status {:?}, the oracle's {status:?}", output.status[at])
    })?;
    let Some(winner) = verdict.winner else {
        return expect(token == NO_TOKEN && score == f32::NEG_INFINITY && margin == 0.0, || {
            format!("token {token}, score {score}, margin {margin} without a candidate")
        });
    };
    let temperature = f64::from(case.rows[row].temperature);
    let error = |i: usize| {
        let (y, noise) = (logits.values[i].abs(), (verdict.scores[i] - logits.values[i]).abs());
        if !y.is_finite() || !noise.is_finite() {
            return 0.0;
        }
        let noise_error = 3e-7 * temperature + 1.2e-7 * noise;
        logits.sum_errors[i] + noise_error + 2f64.powi(-23) * (y + noise) + 2f64.powi(-149)
    };
    let chosen = token.wrapping_sub(case.head.first_token) as usize;
    expect(chosen < logits.values.len(), || format!("token {token} is not one of the call's"))?;
    let (best, ours) = (verdict.scores[winner], verdict.scores[chosen]);
    let context = || {
        format!(
            "token {token} with score {score} ({:#010x}), by the oracle {ours}; \
             the oracle's token {} has {best}",
            score.to_bits(),
            winner as u32 + case.head.first_token,
        )
    };
    if case.exact && temperature == 0.0 {
        expect(chosen == winner, context)?;
    }
    expect(ours == best || ours + error(chosen) >= best - error(winner), context)?;
    expect(near(f64::from(score), ours, error(chosen)), context)?;
    let largest_error = (0..logits.values.len()).map(error).fold(0.0, f64::max);
    expect(near(f64::from(margin), f64::from(verdict.margin as f32), 4.0 * largest_error), || {
        format!("margin {margin}, the oracle's {}; {}", verdict.margin, context())
    })
}

/// Within the tolerance, or the same infinity; false for NaN.
fn near(found: f64, expected: f64, tolerance: f64) -> bool {
    found == expected || (found - expected).abs() <= tolerance
}

fn expect(holds: bool, fault: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(fault()) }
}
