//! Are rows that few of their values may serve the same where the sum of their weights is known
//! before their values are read?

use flash_sampling_kernels::abi::kept::{RowFeatures, SeenToken};
use flash_sampling_kernels::status::Status;
use flash_sampling_tests::few::{DRAWS, How, Outputs, Rows};
use flash_sampling_tests::inputs::Lists;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Peaked rows, flat ones, ties, and tokens that are out.
fn random_rows(rng: &mut SmallRng, case: usize, vocab: u32, batch: usize) -> Rows {
    let spread = [1.0, 12.0, 0.0, 1e-3, 3.0][case % 5];
    let mut logits = || {
        let of_token = |_| {
            let y = (0..6).map(|_| rng.random::<f32>()).sum::<f32>() - 3.0;
            match rng.random_range(0..200) {
                0 => f32::NEG_INFINITY,
                1..50 => (y * 4.0).round() * spread,
                _ => y * spread - [0.0, 5.0][case % 2],
            }
        };
        (0..vocab).map(of_token).collect::<Vec<f32>>()
    };
    let logits: Vec<_> = (0..batch).map(|_| logits()).collect();
    let shares = [0.9, 0.5, 0.99, 1e-6, 0.1, 0.999_999, 0.95];
    let features = |row| RowFeatures { top_p: shares[(row + case) % 7], ..RowFeatures::NONE };
    let temperatures = |row| [0.25, 1.0, 0.05, 30.0][(row + case / 7) % 4];
    Rows {
        vocab,
        first_token: [0, 77, 1_000_064][case % 3],
        logits,
        features: (0..batch).map(features).collect(),
        temperatures: (0..batch).map(temperatures).collect(),
        lists: Vec::new(),
    }
}

/// What a row may ask for whose filters keep some of its likeliest tokens.
fn cut(rng: &mut SmallRng) -> RowFeatures {
    let mut any = |choices: &[f32]| choices[rng.random_range(0..choices.len())];
    let (top_k, min_p) = (any(&[1.0, 5.0, 50.0, 300.0, 0.0]) as u32, any(&[0.0, 0.02, 0.3, 1.0]));
    RowFeatures {
        top_k: if min_p == 0.0 { top_k.max(1) } else { top_k },
        min_p,
        top_p: any(&[1.0, 0.9, 0.4]),
        epsilon_cutoff: any(&[0.0, 0.0, 3e-3]),
        eta_cutoff: any(&[0.0, 0.0, 3e-3]),
        top_n_sigma: any(&[0.0, 0.0, 1.0, 2.5]),
        options: any(&[0.0, 0.0, 1.0, 2.0, 4.0]) as u32,
        ..RowFeatures::NONE
    }
}

/// Without sums of weights, and without reports.
const EXACT: How =
    How { factor: None, blocks: 1, with_margins: true, reports: [false; 2], rules_are_left: false };

/// With sums.
const SUMS: How = How { factor: Some(1.0), ..EXACT };

/// What may be reported: of the model's distribution and each row's.
const REPORTS: [[bool; 2]; 4] = [[true, true], [true, false], [false, true], [false; 2]];

/// Checks random rows in `cases` cases, of seven lengths in turn, the third of which is `third`; of
/// the longest there are `longest` rows. Told are the case, and what to call it.
fn check_rows(
    seed: u64,
    cases: usize,
    (third, longest): (u32, usize),
    mut check: impl FnMut(&mut SmallRng, usize, Rows, &str),
) {
    let mut rng = SmallRng::seed_from_u64(seed);
    for case in 0..cases {
        let vocab = [1, 3, third, 513, 3_000, 20_001, 151_936][case % 7];
        let batch = if vocab > 100_000 { longest } else { 9 };
        let rows = random_rows(&mut rng, case, vocab, batch);
        check(&mut rng, case, rows, &format!("case {case}, V = {vocab}"));
    }
}

#[test]
fn the_nucleus_of_few_values_is_that_of_all() {
    check_rows(83, 70, (100, 2), |_, case, mut rows, what| {
        // A cutoff in its place, that some rows are far above, or below.
        for (row, features) in rows.features.iter_mut().enumerate().filter(|(row, _)| row % 4 == 3)
        {
            features.top_p = 1.0;
            features.epsilon_cutoff = [3e-3, 1e-5, 0.3, 1.0][(row + case) % 4];
        }
        // Without margins, the sampling kernel has drawn from all tokens.
        for with_margins in [true, false] {
            let expected = rows.finish(How { with_margins, ..EXACT });
            for blocks in [1, 4] {
                assert_eq!(rows.finish(How { blocks, with_margins, ..SUMS }), expected, "{what}");
            }
        }
    });
}

#[test]
fn reports_of_few_values_are_those_of_all() {
    check_rows(86, 42, (19, 3), |_, case, mut rows, what| {
        // Every third row has no filter, and some no temperature.
        for row in (0..rows.features.len()).step_by(3) {
            rows.features[row].top_p = 1.0;
            rows.temperatures[row] *= ((row + case) % 2) as f32;
        }
        let how = How { reports: REPORTS[case % 3], with_margins: case % 2 == 0, ..EXACT };
        rows.assert_few_are_all(how, 2, what);
    });
}

#[test]
fn what_filters_keep_of_few_values_is_what_they_keep_of_all() {
    check_rows(87, 84, (60, 3), |rng, case, mut rows, what| {
        rows.features.fill_with(|| cut(rng));
        rows.assert_few_are_all(How { reports: REPORTS[case % 4], ..EXACT }, 2, what);
    });
}

/// Each filter measured on all tokens, as SGLang and candle do.
#[test]
fn joint_filters_of_few_values_are_those_of_all() {
    check_rows(90, 84, (60, 3), |_, case, mut rows, what| {
        for (row, features) in rows.features.iter_mut().enumerate() {
            features.options = RowFeatures::JOINT;
            features.top_k = [0, 1, 7, 50, 256, 5_000][(row + case) % 6];
            features.min_p = [0.0, 0.05, 1e-4, 1.0][(row + case / 6) % 4];
            features.epsilon_cutoff = [0.0, 0.0, 1e-3, 0.05, 1e-6][(row + case / 5) % 5];
        }
        let how = How { reports: REPORTS[case % 4], with_margins: case % 3 != 0, ..EXACT };
        rows.assert_few_are_all(how, 2, what);
    });
}

/// The same of rows with rules: top_p, or what cuts.
#[test]
fn rules_count_for_few_values_as_for_all() {
    check_rows(88, 84, (60, 3), |rng, case, mut rows, what| {
        let lists = rows.logits.iter().map(|y| Lists::new(rng, rows.first_token, y));
        rows.lists = lists.collect();
        for (row, features) in rows.features.iter_mut().enumerate() {
            if row % 3 != 0 {
                *features = cut(rng);
            }
            rows.lists[row].add_to(features, rng.random_range(0..32));
        }
        // Nothing applies rules before.
        let how = How { reports: REPORTS[case % 4], rules_are_left: true, ..EXACT };
        rows.assert_few_are_all(how, 2, what);
    });
}

/// A penalty may make a NaN of a finite logit: the token is out, and the status tells.
#[test]
fn numbers_that_rules_spoil_show_in_the_status() {
    let mut rng = SmallRng::seed_from_u64(89);
    let mut rows = random_rows(&mut rng, 1, 5_000, 9);
    // An infinity, less another.
    let spoiled = SeenToken { token: rows.first_token + 77, count: 2 };
    for row in 0..9 {
        rows.logits[row][77] = 4.0;
        rows.features[row].top_p = 0.5;
        if row % 3 != 0 {
            let features = &mut rows.features[row];
            (features.seen, features.n_seen) = (&raw const spoiled, 1);
            (features.repetition, features.frequency) = (1e-38, 3e38);
        }
    }
    let [_, status, ..] = rows.finish(How { rules_are_left: true, ..SUMS }).drawn;
    for (row, status) in status.chunks(DRAWS).enumerate() {
        let expected = if row % 3 != 0 { Status::NAN_SEEN } else { Status::OK };
        assert!(status.iter().all(|&status| status == expected.bits()), "row {row}: {status:?}");
    }
    for reports in [[true, true], [false; 2]] {
        let how = How { reports, rules_are_left: true, ..EXACT };
        rows.assert_few_are_all(how, 2, &format!("{reports:?}"));
    }
}

/// Rows that ask for more, and rows with a NaN or an infinity, go the other way; none of them
/// disturbs its neighbors.
#[test]
fn other_rows_are_left_to_the_whole_cluster() {
    let mut rng = SmallRng::seed_from_u64(84);
    for case in 0..12 {
        let mut rows = random_rows(&mut rng, case, 5_000, 9);
        rows.features[1].top_n_sigma = 1.0;
        rows.features[2] = RowFeatures::NONE;
        rows.features[3].eta_cutoff = 3e-3;
        rows.temperatures[4] = 0.0;
        rows.features[5].options = RowFeatures::FILTERS_AT_ONE;
        rows.logits[6][3_333] = f32::INFINITY;
        rows.logits[7].fill(f32::NEG_INFINITY);
        rows.temperatures[8] = 1e-35;
        let reports = [case % 2 == 0, case % 4 == 0];
        let how = How { reports, with_margins: case % 3 == 0, ..EXACT };
        rows.assert_few_are_all(how, 3, &format!("case {case}"));
    }
}

/// The sum is what the nucleus and the reports are told from: with another, they are others.
#[test]
fn a_wrong_sum_would_show() {
    let mut rng = SmallRng::seed_from_u64(85);
    let mut rows = random_rows(&mut rng, 0, 20_001, 9);
    rows.temperatures.fill(0.5);
    let quarter = How { factor: Some(0.25), ..SUMS };
    let alone = RowFeatures { top_p: 0.5, ..RowFeatures::NONE };
    let joint = RowFeatures { top_k: 20_000, min_p: 1e-6, options: RowFeatures::JOINT, ..alone };
    for features in [joint, alone] {
        rows.features.fill(features);
        for with_margins in [true, false] {
            let right = rows.finish(How { with_margins, ..SUMS });
            assert_eq!(right, rows.finish(How { with_margins, ..EXACT }));
            let wrong = rows.finish(How { with_margins, ..quarter });
            let [right, wrong] = [right, wrong].map(|Outputs { drawn: [tokens, ..], .. }| tokens);
            let differ = right.iter().zip(&wrong).filter(|(a, b)| a != b).count();
            assert!(differ >= 5, "{differ} of {} tokens differ", right.len());
        }
    }
    rows.features[4] = RowFeatures { top_k: 50, ..RowFeatures::NONE };
    rows.features[5] = RowFeatures { min_p: 0.1, ..RowFeatures::NONE };
    rows.features[6] = RowFeatures { top_k: 50, top_n_sigma: 1.0, ..RowFeatures::NONE };
    rows.lists = vec![Lists::new(&mut rng, rows.first_token, &rows.logits[7])];
    rows.features[7].top_p = 0.9;
    rows.lists[0].add_to(&mut rows.features[7], 15);
    let reports = [true, true];
    let [right, wrong] = [SUMS, quarter].map(|how| rows.finish(How { reports, ..how }).reports);
    for (part, (right, wrong)) in right.iter().zip(&wrong).enumerate() {
        for (row, (right, wrong)) in right.floats[0].iter().zip(&wrong.floats[0]).enumerate() {
            // After rules, the weights are summed up anew.
            let factor: f32 = if (part, row) == (1, 7) { 1.0 } else { 4.0 };
            assert!((right - wrong - factor.ln()).abs() < 1e-4, "{right} {wrong}");
        }
    }
}
