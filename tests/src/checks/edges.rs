//! What happens at the rim?

use std::collections::HashMap;
use std::sync::Arc;

use flash_sampling::{Dtype, NO_TOKEN, SamplingParams, Status};

use crate::inputs::{Case, HIDDEN_STATES, Head, Matrix, WEIGHTS, params, rows_of, small_integer};
use crate::judge::assert_oracle_agrees;
use crate::panel::Panel;

/// Tests of this group.
#[macro_export]
macro_rules! edges_checks {
    ($panel:expr) => {
        $crate::check_tests! {
            $panel, edges:
            ids_stay_below_v, nan_in_a_hidden_state, nan_in_a_weight, one_admissible_token,
            greedy_beside_sampled, padding_never_appears, keys_do_not_collide, no_rows,
            one_token, all_equal, all_negative, one_huge, infinities, negative_zero,
            extreme_temperatures,
        }
    };
}

/// Where a token's logit comes from.
#[derive(Clone, Copy, Debug)]
enum Through {
    Weights,
    Bias,
}

/// A case whose rows all have these logits: D = 1, every hidden state 1, rows 16 bytes
/// apart with NaN between them. What goes through the weights is rounded to bf16.
fn logits_case(logits: &[f32], through: Through, rows: Vec<SamplingParams>) -> Case {
    const STRIDE: usize = 8;
    let weight = |token: usize| match through {
        Through::Weights => logits[token],
        Through::Bias => 0.0,
    };
    let weights = Matrix::strided(Dtype::Bf16, logits.len(), 1, STRIDE, |token, _| weight(token));
    let head = match through {
        Through::Weights => Head::new(weights),
        Through::Bias => Head::new(weights).with_bias(logits.to_vec()),
    };
    let hidden_states = Matrix::strided(Dtype::Bf16, rows.len(), 1, STRIDE, |_, _| 1.0);
    Case::new(format!("logits through {through:?}"), &Arc::new(head), hidden_states, rows)
}

/// Asks both ways and holds every answer against the oracle and against `expected`,
/// the token of (temperature, what the oracle says nothing else about).
fn ask_logits(
    panel: &mut Panel,
    logits: &[f32],
    rows: &[SamplingParams],
    expected: impl Fn(&SamplingParams) -> Option<u32>,
) {
    for through in [Through::Weights, Through::Bias] {
        let case = logits_case(logits, through, rows.to_vec());
        let output = panel.sample(&case);
        assert_oracle_agrees(&case, "everybody", &output);
        for (row, params) in rows.iter().enumerate() {
            if let Some(token) = expected(params) {
                assert_eq!(output.tokens[row], token, "{}: {params:?}", case.name);
            }
        }
    }
}

fn integer_case(batch: usize, vocab: usize, hidden: usize, temperatures: &[f32]) -> Case {
    let head = Head::new(Matrix::integers(WEIGHTS, Dtype::Bf16, vocab, hidden));
    let hidden_states = Matrix::integers(HIDDEN_STATES, Dtype::Bf16, batch, hidden);
    Case::new("integers", &Arc::new(head), hidden_states, rows_of(batch, temperatures))
}

/// b) A batch and a vocabulary that no tile divides: every id is below V.
pub fn ids_stay_below_v(panel: &mut Panel) {
    let (vocab, positions) = panel.effort().choose((3_000, 1), (32_000, 3), (32_000, 1_000));
    ids_stay_below_v_at(panel, vocab, positions);
}

/// The same of so many tokens, at so many positions.
pub fn ids_stay_below_v_at(panel: &mut Panel, vocab: u32, positions: u64) {
    let mut case = integer_case(989, vocab as usize, 8, &[70.0, 30.0, 1.0]);
    for position in 0..positions {
        for params in &mut case.rows {
            params.key.position = position;
        }
        let output = panel.sample(&case);
        let below = output.tokens.iter().all(|&token| token < vocab);
        assert!(below, "position {position}: the greatest is {:?}", output.tokens.iter().max());
        assert!(output.status.iter().all(|&status| status == Status::OK));
    }
}

/// d) A NaN in one row's hidden state: that row has no token, the others keep theirs.
pub fn nan_in_a_hidden_state(panel: &mut Panel) {
    const ROW: usize = 7;
    let clean = integer_case(20, 300, 33, &[0.0, 100.0]);
    let mut broken = clean.clone();
    broken.hidden_states = Matrix::from_fn(Dtype::Bf16, 20, 33, |row, d| {
        if (row, d) == (ROW, 20) { f32::NAN } else { clean.hidden_states.get(row, d) }
    });
    let (expected, output) = (panel.sample(&clean), panel.sample(&broken));
    assert_oracle_agrees(&broken, "everybody", &output);
    for row in 0..20 {
        if row == ROW {
            let mut status = Status::NAN_SEEN;
            status.insert(Status::NO_CANDIDATE);
            assert_eq!((output.tokens[row], output.status[row]), (NO_TOKEN, status));
        } else {
            assert_eq!(output.tokens[row], expected.tokens[row], "row {row}");
            assert_eq!(output.scores[row].to_bits(), expected.scores[row].to_bits());
            assert_eq!(output.margins[row].to_bits(), expected.margins[row].to_bits());
            assert_eq!(output.status[row], Status::OK, "row {row}");
        }
    }
}

/// d) A NaN in one weight: its token is out, in every row; the other tokens are not, and
/// every row says that it saw one.
pub fn nan_in_a_weight(panel: &mut Panel) {
    let clean = integer_case(20, 300, 33, &[0.0, 100.0]);
    // The token that row 0 would take, and one that nobody asks for.
    let wanted = panel.sample(&clean).tokens[0] as usize;
    for token in [wanted, 0] {
        let mut broken = clean.clone();
        let weights = &clean.head.weights;
        broken.head = Arc::new(Head::new(Matrix::from_fn(Dtype::Bf16, 300, 33, |row, d| {
            if (row, d) == (token, 11) { f32::NAN } else { weights.get(row, d) }
        })));
        let mut without = clean.clone();
        let mut bias = vec![0.0; 300];
        bias[token] = f32::NEG_INFINITY;
        without.head = Arc::new(Head::new(weights.clone()).with_bias(bias));
        let (output, expected) = (panel.sample(&broken), panel.sample(&without));
        assert_oracle_agrees(&broken, "everybody", &output);
        assert_eq!(output.tokens, expected.tokens);
        assert_eq!(output.scores, expected.scores);
        assert!(output.status.iter().all(|&status| status == Status::NAN_SEEN));
        assert!(!output.tokens.contains(&(token as u32)));
    }
}

/// e) All logits `−inf` but one: that token, for 10,000 seeds.
pub fn one_admissible_token(panel: &mut Panel) {
    const TOKEN: usize = 201;
    let mut logits = vec![f32::NEG_INFINITY; 300];
    logits[TOKEN] = -40.0;
    let rows: Vec<SamplingParams> = (0..10_000).map(|seed| params(1.0, seed, 5)).collect();
    ask_logits(panel, &logits, &rows, |_| Some(TOKEN as u32));
}

/// f) Greedy rows beside sampled ones, with biases of `−inf`: no NaN anywhere.
pub fn greedy_beside_sampled(panel: &mut Panel) {
    let bias = (0..500).map(|token| if token % 3 == 1 { 0.5 } else { f32::NEG_INFINITY }).collect();
    let mut case = integer_case(40, 500, 16, &[0.0, 1.0]).with_draws(3);
    case.head = Arc::new(Head::new(case.head.weights.clone()).with_bias(bias));
    let output = panel.sample(&case);
    assert_oracle_agrees(&case, "everybody", &output);
    assert!(output.scores.iter().chain(&output.margins).all(|x| x.is_finite()));
    assert!(output.tokens.iter().all(|token| token % 3 == 1));
    assert!(output.status.iter().all(|&status| status == Status::OK));
    for row in (0..40).step_by(2) {
        let greedy = &output.tokens[3 * row..3 * row + 3];
        assert!(greedy.iter().all(|token| token == &greedy[0]), "row {row}: {greedy:?}");
    }
}

/// g) Padding rows with the largest weights of all: their ids never appear.
pub fn padding_never_appears(panel: &mut Panel) {
    const PADDING: usize = 17;
    for vocab_rows in [145, 300, 1_041] {
        let vocab_valid = vocab_rows - PADDING;
        let weights = Matrix::from_fn(Dtype::Bf16, vocab_rows, 16, |token, d| {
            if token < vocab_valid { small_integer(WEIGHTS, token, d) } else { 1_000.0 }
        });
        let hidden_states = Matrix::from_fn(Dtype::Bf16, 12, 16, |row, d| {
            small_integer(HIDDEN_STATES, row, d).abs() + 1.0
        });
        let head = Arc::new(Head { vocab_valid, ..Head::new(weights) });
        let rows = rows_of(12, &[1.0, 0.0, 500.0]);
        let case = Case::new(format!("V_valid {vocab_valid}"), &head, hidden_states, rows);
        let output = panel.sample(&case.with_draws(20));
        let valid = output.tokens.iter().all(|&token| (token as usize) < vocab_valid);
        assert!(valid, "V_valid {vocab_valid}: {:?}", output.tokens.iter().max());
    }
}

/// h) Seeds, positions and draws are fields of their own: no two combinations draw alike,
/// and all are the oracle's. A token and its score's bits name a draw: 10 and about 20
/// bits, so that one of the 74,000 pairs collides by chance for one choice of seeds in 10,000.
pub fn keys_do_not_collide(panel: &mut Panel) {
    const DRAWS: u32 = 11;
    let positions = [0, 1, 100, (1 << 32) - 1, 1 << 32, 1 << 63, u64::MAX];
    let seeds = [7, 8, 17, 1 << 32, 7 << 32];
    let keys = seeds.into_iter().flat_map(|seed| positions.map(|position| (seed, position)));
    let rows = keys.map(|(seed, position)| params(1.0, seed, position)).collect();
    let case = logits_case(&[0.0; 1_000], Through::Weights, rows).with_draws(DRAWS);
    let output = panel.sample(&case);
    assert_oracle_agrees(&case, "everybody", &output);
    let mut seen = HashMap::new();
    for (i, (&token, score)) in output.tokens.iter().zip(&output.scores).enumerate() {
        let key = (case.rows[i / DRAWS as usize].key, i % DRAWS as usize);
        if let Some(other) = seen.insert((token, score.to_bits()), key) {
            panic!("{other:?} and {key:?} both draw token {token} with score {score}");
        }
    }
}

/// h) B·V beyond 2³²: the token with the largest or the smallest weight, by the sign of
/// the row's hidden state. The next best come first, so that a sampler which passes over
/// hopeless tokens may.
pub fn more_than_2_to_32_logits(panel: &mut Panel) {
    const HIDDEN: usize = 16;
    const SIZE: usize = 65_600;
    const LARGEST: usize = 65_577;
    const SMALLEST: usize = 40_000;
    let weight = |token| match token {
        0..2 => 7.0,
        2..4 => -7.0,
        LARGEST => 9.0,
        SMALLEST => -9.0,
        _ => small_integer(WEIGHTS, token, 0) / 2.0,
    };
    // One chunk of what the CPU multiplies at once, so that the test takes seconds there.
    let first = |d, value| if d == 0 { value } else { 0.0 };
    let weights = Matrix::from_fn(Dtype::Bf16, SIZE, HIDDEN, |token, d| first(d, weight(token)));
    let sign = |row| small_integer(HIDDEN_STATES, row, 0) >= 0.0;
    let hidden_states = Matrix::from_fn(Dtype::Bf16, SIZE, HIDDEN, |row, d| {
        first(d, if sign(row) { 1.0 } else { -1.0 })
    });
    let rows = vec![SamplingParams::greedy(); SIZE];
    let case = Case::new("B·V > 2³²", &Arc::new(Head::new(weights)), hidden_states, rows);
    let output = panel.sample(&case);
    for row in 0..SIZE {
        let expected = if sign(row) { LARGEST } else { SMALLEST };
        let found = (output.tokens[row] as usize, output.scores[row], output.margins[row]);
        assert_eq!(found, (expected, 9.0, 2.0), "row {row}");
    }
}

/// A batch of nothing.
pub fn no_rows(panel: &mut Panel) {
    let output = panel.sample(&integer_case(0, 300, 16, &[1.0]));
    assert!(output.tokens.is_empty());
}

/// Greedy and sampled rows for the cases below.
fn rows() -> Vec<SamplingParams> {
    rows_of(20, &[0.0, 1.0, 0.3])
}

/// V = 1: there is no choice.
pub fn one_token(panel: &mut Panel) {
    for batch in [1, 20] {
        ask_logits(panel, &[-3.0], &rows()[..batch], |_| Some(0));
    }
}

/// All logits equal: greedy takes the lowest id.
pub fn all_equal(panel: &mut Panel) {
    for value in [-3.5, 0.0, 2.0] {
        ask_logits(panel, &[value; 400], &rows(), |params| {
            (params.temperature == 0.0).then_some(0)
        });
    }
}

/// All logits negative, V off the tile: zeros around the tile must not win.
pub fn all_negative(panel: &mut Panel) {
    let logits: Vec<f32> =
        (0..130).map(|token| -50.0 - small_integer(WEIGHTS, token, 0).abs() * 8.0).collect();
    ask_logits(panel, &logits, &rows(), |_| None);
}

/// One logit far above the rest.
pub fn one_huge(panel: &mut Panel) {
    for (huge, token) in [(1e30, 77), (1e38, 299), (40.0, 0)] {
        let mut logits = vec![0.0; 300];
        logits[token] = huge;
        ask_logits(panel, &logits, &rows(), |_| Some(token as u32));
    }
}

/// `+inf` wins, the lowest id of several; rows of `−inf` and NaN have no token.
pub fn infinities(panel: &mut Panel) {
    let mut logits = vec![0.0; 300];
    (logits[33], logits[200]) = (f32::INFINITY, f32::INFINITY);
    ask_logits(panel, &logits, &rows(), |_| Some(33));
    logits[10] = f32::NAN;
    ask_logits(panel, &logits, &rows(), |_| Some(33));
    for nothing in [f32::NEG_INFINITY, f32::NAN] {
        ask_logits(panel, &[nothing; 300], &rows(), |_| Some(NO_TOKEN));
    }
}

/// `−0` and `+0` tie.
pub fn negative_zero(panel: &mut Panel) {
    for zeros in [[-0.0, 0.0], [0.0, -0.0]] {
        let logits: Vec<f32> = zeros.into_iter().cycle().take(300).collect();
        ask_logits(panel, &logits, &rows(), |params| (params.temperature == 0.0).then_some(0));
    }
}

/// The smallest temperatures, whose noise is subnormal, and the largest, whose scores
/// saturate and then tie.
pub fn extreme_temperatures(panel: &mut Panel) {
    let temperatures =
        [f32::from_bits(1), 1e-40, f32::MIN_POSITIVE, 1e30, f32::MAX / 8.0, f32::MAX];
    ask_logits(panel, &[0.0; 300], &rows_of(60, &temperatures), |_| None);
    let spread: Vec<f32> = (0..300).map(|token| small_integer(WEIGHTS, token, 0)).collect();
    ask_logits(panel, &spread, &rows_of(60, &temperatures), |_| None);
}
