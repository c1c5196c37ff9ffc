//! Do all implementations agree bit for bit, and with the oracle?

use std::sync::Arc;

use flash_sampling::{Dtype, NO_TOKEN};

use crate::golden;
use crate::inputs::{BIAS, Case, HIDDEN_STATES, Head, Matrix, WEIGHTS, rows_of, small_integer};
use crate::judge::assert_oracle_agrees;
use crate::panel::Panel;

/// Tests of this group.
#[macro_export]
macro_rules! exact_checks {
    ($panel:expr) => {
        $crate::check_tests! {
            $panel, exact:
            shapes, ragged_edges, batches, dtypes, strides, bias_and_draws, ids_of_a_shard,
            random_inputs, tokens_are_golden,
        }
    };
}

/// Asks everybody, and the oracle.
fn ask(panel: &mut Panel, case: &Case) {
    let output = panel.sample(case);
    assert_oracle_agrees(case, "everybody", &output);
}

/// Greedy, and temperatures at which noise and logits decide together: the dot product
/// of D small integers has a deviation of 24·√D.
fn temperatures(hidden: usize) -> [f32; 4] {
    let deviation = 24.0 * (hidden as f32).sqrt();
    [deviation, 0.0, deviation / 4.0, 1.0]
}

fn case(batch: usize, vocab: usize, hidden: usize) -> Case {
    let weights = Matrix::integers(WEIGHTS, Dtype::Bf16, vocab, hidden);
    let hidden_states = Matrix::integers(HIDDEN_STATES, Dtype::Bf16, batch, hidden);
    let rows = rows_of(batch, &temperatures(hidden));
    Case::new(
        format!("B {batch}, V {vocab}, D {hidden}"),
        &Arc::new(Head::new(weights)),
        hidden_states,
        rows,
    )
}

/// i) Sizes of every kind against each other.
pub fn shapes(panel: &mut Panel) {
    let all: &[usize] = &[1, 7, 63, 65, 576, 1_000];
    for &hidden in panel.effort().choose(&[7, 576][..], all, all) {
        for (vocab, batch) in [(1, 3), (2, 5), (127, 9), (129, 17), (49_152, 2)] {
            ask(panel, &case(batch, vocab, hidden));
        }
    }
}

/// Sizes one off the tiles' multiples.
pub fn ragged_edges(panel: &mut Panel) {
    let all: &[usize] = &[8, 127, 128, 129, 255, 257, 1_000];
    for &vocab in panel.effort().choose(&[127, 257][..], all, all) {
        for hidden in [8, 31, 33, 64, 72] {
            ask(panel, &case(9, vocab, hidden));
        }
    }
}

/// Every batch tile, full and one off.
pub fn batches(panel: &mut Panel) {
    let all: &[usize] = &[
        1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 191, 192,
        193, 255, 256, 257, 600,
    ];
    for &batch in panel.effort().choose(&[1, 17, 65, 200, 300][..], all, all) {
        ask(panel, &case(batch, 300, 72));
    }
}

/// Every pair of element types; here no implementation may stand aside.
pub fn dtypes(panel: &mut Panel) {
    let dtypes = [Dtype::Bf16, Dtype::F16, Dtype::F32];
    for (weights_dtype, hidden_dtype) in
        dtypes.into_iter().flat_map(|weights| dtypes.map(|hidden| (weights, hidden)))
    {
        let all: &[usize] = &[5, 70];
        for &batch in panel.effort().choose(&[70][..], all, all) {
            let mut case = case(batch, 300, 64);
            case.name = format!("weights {weights_dtype:?}, hidden states {hidden_dtype:?}");
            case.head = Arc::new(Head::new(Matrix::integers(WEIGHTS, weights_dtype, 300, 64)));
            case.hidden_states = Matrix::integers(HIDDEN_STATES, hidden_dtype, batch, 64);
            ask(panel, &case);
        }
    }
    panel.assert_everyone_answered();
}

/// i) Rows that do not follow each other, NaN between them; odd strides leave rows at
/// odd addresses.
pub fn strides(panel: &mut Panel) {
    let (batch, vocab, hidden) = (11, 200, 63);
    for (weights_stride, hidden_stride) in [(63, 64), (64, 63), (77, 131), (128, 72)] {
        let integers = |matrix| move |row, column| small_integer(matrix, row, column);
        let weights =
            Matrix::strided(Dtype::Bf16, vocab, hidden, weights_stride, integers(WEIGHTS));
        let mut case = case(batch, vocab, hidden);
        case.name = format!("strides {weights_stride} and {hidden_stride}");
        case.head = Arc::new(Head::new(weights));
        case.hidden_states =
            Matrix::strided(Dtype::Bf16, batch, hidden, hidden_stride, integers(HIDDEN_STATES));
        ask(panel, &case);
    }
}

/// A bias of eighths, and several draws of every row in one pass.
pub fn bias_and_draws(panel: &mut Panel) {
    let bias = (0..777).map(|token| small_integer(BIAS, 0, token) / 8.0).collect();
    let base = case(13, 777, 40);
    let head = Arc::new(Head::new(base.head.weights.clone()).with_bias(bias));
    for draws in [1, 2, 5, 33] {
        let mut case = base.clone().with_draws(draws);
        case.name = format!("bias, {draws} draws");
        case.head = Arc::clone(&head);
        ask(panel, &case);
    }
}

/// Shards that begin at, before and after a tile's first id, and the last ids there are.
pub fn ids_of_a_shard(panel: &mut Panel) {
    let base = case(6, 300, 24);
    for first_token in [0, 1, 77, 127, 128, 1 << 20, (1 << 31) - 5, NO_TOKEN - 300] {
        let mut case = base.clone().with_draws(2);
        case.name = format!("first token {first_token}");
        case.head = Arc::new(Head { first_token, ..Head::clone(&base.head) });
        ask(panel, &case);
    }
}

/// Sums that depend on their order: everybody within the oracle's gap.
pub fn random_inputs(panel: &mut Panel) {
    for (seed, dtype) in [(1, Dtype::Bf16), (2, Dtype::F16), (3, Dtype::F32)] {
        let (batch, vocab, hidden) = (19, 1_500, 576);
        let weights = Matrix::random(10 * seed, dtype, vocab, hidden, 0.1);
        let hidden_states = Matrix::random(10 * seed + 1, dtype, batch, hidden, 2.0);
        let rows = rows_of(batch, &[1.0, 0.0, 0.7, 2.5]);
        let name = format!("random {dtype:?}");
        let case = Case::new(name, &Arc::new(Head::new(weights)), hidden_states, rows)
            .with_draws(2)
            .inexact();
        panel.sample_each(&case, |name, output| {
            assert_oracle_agrees(&case, name, output);
        });
    }
}

/// Tokens, scores and margins that no change may move.
pub fn tokens_are_golden(panel: &mut Panel) {
    let mut lines = Vec::new();
    for (vocab, hidden, first_token) in [(1_000, 64, 0), (49_152, 8, 0), (300, 33, 1_000_003)] {
        let mut case = case(4, vocab, hidden).with_draws(2);
        case.head = Arc::new(Head { first_token, ..Head::clone(&case.head) });
        let output = panel.sample(&case);
        for i in 0..output.tokens.len() {
            lines.push(format!(
                "{vocab} {hidden} {first_token} {} {} {} {:08x} {:08x}",
                i / 2,
                i % 2,
                output.tokens[i],
                output.scores[i].to_bits(),
                output.margins[i].to_bits(),
            ));
        }
    }
    golden::TOKENS
        .assert_equal("vocab hidden first-token row draw token score-bits margin-bits", lines);
}
