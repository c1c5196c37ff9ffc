//! Do the laws hold: does a token depend on nothing but its row and its key?

use std::sync::Arc;

use flash_sampling::{Dtype, NO_TOKEN, SamplingParams};

use crate::inputs::{Case, HIDDEN_STATES, Head, Matrix, WEIGHTS, params, rows_of};
use crate::panel::{Panel, bits};

/// Tests of this group.
#[macro_export]
macro_rules! properties_checks {
    ($panel:expr) => {
        $crate::check_tests! {
            $panel, properties:
            slot_and_neighbours, shard_splits, draws_are_numbered, padding_is_truncation,
            calls_leave_nothing_behind,
        }
    };
}

fn head(vocab: usize, hidden: usize) -> Arc<Head> {
    Arc::new(Head::new(Matrix::integers(WEIGHTS, Dtype::Bf16, vocab, hidden)))
}

/// Temperatures of the order of a logit's deviation for D = 64.
const TEMPERATURES: [f32; 3] = [150.0, 0.0, 60.0];

/// c) One row alone, and in slots of batches of other rows.
pub fn slot_and_neighbours(panel: &mut Panel) {
    const DRAWS: u32 = 2;
    let head = head(300, 64);
    let batch_max = 256;
    let hidden_states = Matrix::integers(HIDDEN_STATES, Dtype::Bf16, batch_max + 1, 64);
    let ours = batch_max;
    for own in [params(150.0, 7, 41), params(0.0, 7, 41)] {
        let mut rows = rows_of(batch_max, &TEMPERATURES);
        rows.push(own);
        let all = Case::new("slots", &head, hidden_states.clone(), rows).with_draws(DRAWS);
        let alone = panel.sample(&all.select(&[ours]));
        for batch in [1, 15, 16, 17, 63, 64, 65, batch_max] {
            for slot in [0, 7, 63, 255].into_iter().filter(|&slot| slot < batch) {
                let mut chosen: Vec<usize> = (0..batch).collect();
                chosen[slot] = ours;
                let output = panel.sample(&all.select(&chosen));
                for draw in 0..DRAWS as usize {
                    assert_eq!(
                        bits(&output, slot * DRAWS as usize + draw),
                        bits(&alone, draw),
                        "slot {slot} of {batch}, draw {draw}, {own:?}"
                    );
                }
            }
        }
    }
}

/// A vocabulary cut into shards, at tiles and elsewhere, and merged by score and then
/// by lowest id.
pub fn shard_splits(panel: &mut Panel) {
    const VOCAB: usize = 1_000;
    let head = head(VOCAB, 24);
    let hidden_states = Matrix::integers(HIDDEN_STATES, Dtype::Bf16, 10, 24);
    let whole = Case::new("whole", &head, hidden_states, rows_of(10, &TEMPERATURES)).with_draws(3);
    let expected = panel.sample(&whole);
    let cuts: [&[usize]; 5] =
        [&[128], &[512, 896], &[1], &[77, 500, 999], &[3, 130, 131, 260, 777]];
    for cut in cuts {
        let mut merged = vec![(f32::NEG_INFINITY, NO_TOKEN); expected.tokens.len()];
        let ends = cut.iter().copied().chain([VOCAB]);
        for (from, to) in [0].into_iter().chain(cut.iter().copied()).zip(ends) {
            let mut shard = whole.clone();
            shard.name = format!("shard {from}..{to}");
            shard.head = Arc::new(head.shard(from, to));
            let output = panel.sample(&shard);
            for (best, found) in merged.iter_mut().zip(output.scores.iter().zip(&output.tokens)) {
                let (score, token) = (*found.0, *found.1);
                if score > best.0 || score == best.0 && token < best.1 {
                    *best = (score, token);
                }
            }
        }
        for (i, (score, token)) in merged.into_iter().enumerate() {
            let whole = (expected.scores[i].to_bits(), expected.tokens[i]);
            assert_eq!((score.to_bits(), token), whole, "cut at {cut:?}, output {i}");
        }
    }
}

/// Draw `s` is the same however many draws are asked for.
pub fn draws_are_numbered(panel: &mut Panel) {
    let hidden_states = Matrix::integers(HIDDEN_STATES, Dtype::Bf16, 5, 24);
    let case = Case::new("draws", &head(500, 24), hidden_states, rows_of(5, &TEMPERATURES));
    let many = panel.sample(&case.clone().with_draws(9));
    for draws in [1, 4] {
        let few = panel.sample(&case.clone().with_draws(draws as u32));
        for (row, draw) in (0..5).flat_map(|row| (0..draws).map(move |draw| (row, draw))) {
            assert_eq!(bits(&few, row * draws + draw), bits(&many, row * 9 + draw));
        }
    }
}

/// Rows of the weights from V_valid on are as good as absent.
pub fn padding_is_truncation(panel: &mut Panel) {
    let padded = Matrix::integers(WEIGHTS, Dtype::Bf16, 300, 24);
    let hidden_states = Matrix::integers(HIDDEN_STATES, Dtype::Bf16, 9, 24);
    for vocab_valid in [1, 127, 128, 129, 283] {
        let truncated = Head::new(padded.clone()).shard(0, vocab_valid);
        let valid = Head { vocab_valid, ..Head::new(padded.clone()) };
        let [truncated, valid] = [truncated, valid].map(|head| {
            let rows = rows_of(9, &TEMPERATURES);
            panel.sample(&Case::new("padding", &Arc::new(head), hidden_states.clone(), rows))
        });
        assert_eq!(valid, truncated, "V_valid {vocab_valid}");
    }
}

/// A call's scratch, grown and reused by others, leaves no trace.
pub fn calls_leave_nothing_behind(panel: &mut Panel) {
    let small_head = head(130, 8);
    let small = |rows: Vec<SamplingParams>| {
        let hidden_states = Matrix::integers(HIDDEN_STATES, Dtype::Bf16, rows.len(), 8);
        Case::new("small", &small_head, hidden_states, rows).with_draws(2)
    };
    let hidden_states = Matrix::from_fn(Dtype::Bf16, 70, 40, |_, _| f32::INFINITY);
    let large =
        Case::new("large", &head(999, 40), hidden_states, rows_of(70, &TEMPERATURES)).with_draws(7);
    let case = small(rows_of(3, &TEMPERATURES));
    let first = panel.sample(&case);
    panel.sample(&large);
    assert_eq!(panel.sample(&case), first, "after a larger call");
    panel.sample(&small(rows_of(20, &TEMPERATURES)));
    assert_eq!(panel.sample(&case), first, "after calls of other sizes");
}
