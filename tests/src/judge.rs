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

use flash_sampling::{NO_TOKEN, Output, Status};
use rayon::prelude::*;

use crate::inputs::Case;
use crate::oracle::{self, Verdict};

/// Logits of one row, and how far an f32 sum may lie from each.
pub struct Logits {
    /// `[V_valid]`.
    pub values: Vec<f64>,
    sum_errors: Vec<f64>,
}

/// Demands that every output is one the oracle would give, within its gap. Greedy rows
/// of an exact case must have the oracle's token.
pub fn assert_oracle_agrees(case: &Case, name: &str, output: &Output) {
    let fault = (0..case.batch()).into_par_iter().find_map_first(|row| {
        let logits = logits(case, row);
        (0..case.draws).find_map(|draw| {
            let at = row * case.draws as usize + draw as usize;
            let verdict =
                oracle::draw(&logits.values, case.head.first_token, oracle_row(case, row), draw);
            let fault = compare(case, row, &logits, &verdict, output, at).err()?;
            Some(format!("row {row}, draw {draw}: {fault}"))
        })
    });
    assert_eq!(fault, None, "{}: {name}", case.name);
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
        if !y.is_finite() {
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
