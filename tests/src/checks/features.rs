//! Do filters, rules, penalties and transforms do what they say, and nothing else?

use std::sync::Arc;

use flash_sampling::{
    Dtype, EditOrder, FilterOrder, LogitTransform, Output, Penalties, SamplingParams, SeenToken,
};
use rand::{SeedableRng, rngs::StdRng};

use crate::checks::distribution::assert_row_fits;
use crate::inputs::mixes::{random_case, random_params, random_rules};
use crate::inputs::{Case, HIDDEN_STATES, Head, Matrix, Rules, WEIGHTS, params, rows_of};
use crate::judge::assert_oracle_agrees;
use crate::panel::{Panel, bits};

/// Tests of this group.
#[macro_export]
macro_rules! features_checks {
    ($panel:expr) => {
        $crate::check_tests! {
            $panel, features:
            random_mixes, random_mixes_of_real_numbers, shares_that_are_met_exactly,
            sequential_and_joint, deviations_below_the_likeliest, least_probabilities,
            one_survivor_is_greedy, off_is_off, ties_at_the_last_place,
            edits_of_single_tokens, order_of_bias_and_penalties, bits_of_a_mask, caps_and_scales,
            neighbours_do_not_matter, shards_share_rules, infinities_under_filters,
        }
    };
}

/// Three thousand rows against the oracle, whose tokens and margins must come.
pub fn random_mixes(panel: &mut Panel) {
    let (mut rows, mut doubtful) = (0, 0);
    let n_cases = panel.effort().choose(3, usize::MAX, usize::MAX);
    let cases = [
        (0, 300, 0),
        (1, 300, 0),
        (2, 1_000, 0),
        (3, 1_000, 77),
        (4, 130, 1_000_003),
        (5, 5, 0),
        (6, 40, 120),
        (7, 2_000, 0),
        (8, 33, 0),
        (9, 128, 128),
        (10, 700, 31),
        (11, 300, 96),
        (12, 3_000, 0),
        (13, 257, 0),
        (14, 1, 0),
    ];
    for (seed, vocab, first) in cases.into_iter().take(n_cases) {
        let case = random_case(seed, vocab, first);
        let output = panel.sample(&case);
        doubtful += assert_oracle_agrees(&case, "everybody", &output);
        rows += case.batch();
    }
    assert!(doubtful * 50 < rows, "{doubtful} of {rows} rows are decided within rounding");
}

/// The same with sums that depend on their order, a cap and a scale.
pub fn random_mixes_of_real_numbers(panel: &mut Panel) {
    let mut rng = StdRng::seed_from_u64(77);
    for (seed, scale_first) in [(21, false), (22, true)] {
        let weights = Matrix::random(seed, Dtype::F16, 1_200, 64, 1.0);
        let hidden_states = Matrix::random(seed + 100, Dtype::F16, 120, 64, 1.0);
        let rows = (0..120)
            .map(|row| random_params(&mut rng, [0.0, 0.3, 1.0, 4.0][row % 4], 1_200))
            .collect();
        let transform = LogitTransform { softcap: Some(10.0), scale: 0.8, scale_first };
        let case = Case::new("real numbers", &Arc::new(Head::new(weights)), hidden_states, rows)
            .with_rules((0..120).map(|_| random_rules(&mut rng, 0, 1_200)).collect())
            .with_transform(transform)
            .with_draws(2)
            .inexact();
        panel.sample_each(&case, |name, output| {
            let doubtful = assert_oracle_agrees(&case, name, output);
            assert!(doubtful * 4 < case.batch(), "{doubtful} rows decided within rounding");
        });
    }
}

/// Many draws from these logits with these parameters.
fn draw_many(panel: &mut Panel, logits: &[f32], params: SamplingParams) -> (Case, Output) {
    let hidden_states = Matrix::from_fn(Dtype::Bf16, 1, 1, |_, _| 1.0);
    let head = Arc::new(Head::of_logits(logits.to_vec()));
    let case = Case::new(format!("{params:?}"), &head, hidden_states, vec![params]);
    let case = case.with_draws(4_000);
    let output = panel.sample(&case);
    (case, output)
}

/// The tokens that come in many draws: a token of probability 0.01 stays away from all of
/// them once in e⁴⁰ choices of seeds.
fn tokens_of(panel: &mut Panel, logits: &[f32], params: SamplingParams) -> Vec<u32> {
    let (_, output) = draw_many(panel, logits, params);
    let mut tokens = output.tokens;
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

fn at(temperature: f32) -> SamplingParams {
    params(temperature, 5, 17)
}

/// Equal tokens have equal shares, so that a sum can meet `top_p` to the bit: the token
/// that meets it is the last.
pub fn shares_that_are_met_exactly(panel: &mut Panel) {
    for (top_p, kept) in [(0.25, 1), (0.5, 2), (0.500_000_1, 3), (0.75, 3), (0.8, 4), (1.0, 4)] {
        for order in [FilterOrder::Sequential, FilterOrder::MinPLast, FilterOrder::Joint] {
            let params = at(1.0).with_top_p(top_p).with_filter_order(order);
            let expected: Vec<u32> = (0..kept).collect();
            assert_eq!(tokens_of(panel, &[2.0; 4], params), expected, "{params:?}");
        }
    }
    // Half of the likeliest one's probability, as near as logits go to both sides.
    let half = -std::f32::consts::LN_2;
    for (logit, kept) in [(half.next_up().next_up(), 2), (half.next_down().next_down(), 1)] {
        let tokens = tokens_of(panel, &[0.0, logit], at(1.0).with_min_p(0.5));
        assert_eq!(tokens.len(), kept, "{logit}");
    }
    assert_eq!(tokens_of(panel, &[1.0, 1.0, 0.0], at(1.0).with_min_p(1.0)), [0, 1]);
}

/// The worked example that tells the orders apart.
pub fn sequential_and_joint(panel: &mut Panel) {
    let logits = [0.30_f32, 0.25, 0.24, 0.11, 0.10].map(f32::ln);
    let both = at(1.0).with_top_k(3).with_top_p(0.35);
    assert_eq!(tokens_of(panel, &logits, both), [0]);
    let joint = both.with_filter_order(FilterOrder::Joint);
    assert_eq!(tokens_of(panel, &logits, joint), [0, 1]);
    // min_p keeps three; .35 of these .79 is met by the first, .35 of all is not.
    let both = at(1.0).with_min_p(0.7).with_top_p(0.35);
    assert_eq!(tokens_of(panel, &logits, both), [0]);
    let last = both.with_filter_order(FilterOrder::MinPLast);
    assert_eq!(tokens_of(panel, &logits, last), [0, 1]);
    // Before the temperature the first token has .35 alone; after it, it has not.
    let mut early = at(4.0).with_top_p(0.29);
    assert_eq!(tokens_of(panel, &logits, early), [0, 1]);
    early.filters_at_one = true;
    assert_eq!(tokens_of(panel, &logits, early), [0]);
}

/// The deviation of 0, 1, 2 and 4 is √2.1875; as a sample's it would be √2.917. No
/// temperature changes what is kept, and banned tokens do not count.
pub fn deviations_below_the_likeliest(panel: &mut Panel) {
    let banned = f32::NEG_INFINITY;
    for logits in [&[0.0, 1.0, 2.0, 4.0][..], &[0.0, 1.0, 2.0, 4.0, banned, f32::NAN, banned]] {
        for temperature in [3.0, 1e3] {
            for (n, kept) in [(1.25, &[3][..]), (1.36, &[2, 3]), (2.75, &[0, 1, 2, 3])] {
                let row = at(temperature).with_top_n_sigma(n);
                assert_eq!(tokens_of(panel, logits, row), kept, "{n} at {temperature}");
            }
        }
    }
    // All equal: none lies below.
    assert_eq!(tokens_of(panel, &[5.0; 3], at(1.0).with_top_n_sigma(1e-6)), [0, 1, 2]);
}

/// ε- and η-cutoffs of worked distributions.
pub fn least_probabilities(panel: &mut Panel) {
    let logits = [0.30_f32, 0.25, 0.24, 0.11, 0.10].map(f32::ln);
    for (p, kept) in [(0.099, 5), (0.105, 4), (0.245, 2), (1.0, 1)] {
        let expected: Vec<u32> = (0..kept).collect();
        assert_eq!(tokens_of(panel, &logits, at(1.0).with_epsilon_cutoff(p)), expected, "{p}");
    }
    // Of the four that top_k leaves the last has .122; of all, .11.
    let both = at(1.0).with_top_k(4).with_epsilon_cutoff(0.115);
    assert_eq!(tokens_of(panel, &logits, both), [0, 1, 2, 3]);
    let joint = both.with_filter_order(FilterOrder::Joint);
    assert_eq!(tokens_of(panel, &logits, joint), [0, 1, 2]);
    // e^−entropy is .218, so that the bound is .0975 and .109.
    for (p, kept) in [(0.2, 5), (0.25, 4)] {
        let expected: Vec<u32> = (0..kept).collect();
        assert_eq!(tokens_of(panel, &logits, at(1.0).with_eta_cutoff(p)), expected, "{p}");
    }
    // Here it is .675: √.01 of it would drop all but the first.
    let peaked = [0.9_f32, 0.06, 0.04].map(f32::ln);
    assert_eq!(tokens_of(panel, &peaked, at(1.0).with_eta_cutoff(0.01)), [0, 1, 2]);
    // Whoever is likeliest stays, with equals.
    for row in [at(1.0).with_epsilon_cutoff(0.9), at(1.0).with_eta_cutoff(1.0)] {
        assert_eq!(tokens_of(panel, &[2.0; 4], row), [0, 1, 2, 3]);
    }
}

/// What keeps one token draws the likeliest, of equals the lowest id.
pub fn one_survivor_is_greedy(panel: &mut Panel) {
    let logits: Vec<f32> = (0..300).map(|i| [1.0, 4.0, -2.0, 4.0][i % 4]).collect();
    for params in [
        at(0.0),
        at(0.0).with_top_k(5).with_top_p(0.5).with_min_p(0.1).with_top_n_sigma(1.0),
        at(0.0).with_epsilon_cutoff(0.1).with_eta_cutoff(0.1),
        at(3.0).with_top_k(1),
        at(3.0).with_top_k(1).with_top_p(0.5),
        at(3.0).with_top_k(1).with_top_p(1e-6),
        at(1e6).with_top_p(1e-6),
        at(1.0).with_top_p(f32::from_bits(1)),
    ] {
        assert_eq!(tokens_of(panel, &logits, params), [1], "{params:?}");
    }
}

/// Filters at the ends of their domains change no bit.
pub fn off_is_off(panel: &mut Panel) {
    let vocab = 700;
    let head = Arc::new(Head::new(Matrix::integers(WEIGHTS, Dtype::Bf16, vocab, 24)));
    let hidden_states = Matrix::integers(HIDDEN_STATES, Dtype::Bf16, 12, 24);
    let rows = rows_of(12, &[120.0, 0.0, 30.0]);
    let plain = Case::new("plain", &head, hidden_states, rows).with_draws(2);
    let expected = panel.sample(&plain);
    let with = |change: fn(SamplingParams) -> SamplingParams| {
        let mut case = plain.clone();
        case.rows.iter_mut().for_each(|params| *params = change(*params));
        case
    };
    for case in [
        with(|params| params.with_top_k(700)),
        with(|params| params.with_top_k(u32::MAX)),
        with(|params| params.with_min_p(f32::from_bits(1)).with_top_k(701)),
        with(|params| params.with_top_p(1.0).with_min_p(0.0)),
        with(|params| params.with_epsilon_cutoff(0.0).with_eta_cutoff(0.0)),
        with(|params| params.with_top_n_sigma(f32::MAX).with_epsilon_cutoff(f32::from_bits(1))),
        plain.clone().with_rules(vec![Rules::of_bitmask(&[u32::MAX; 22]); 12]),
        plain.clone().with_rules(vec![Rules::default(); 12]),
    ] {
        let output = panel.sample(&case);
        assert_eq!(output, expected, "{:?}", case.rows[0]);
    }
}

/// Exactly k survive, of equals the lower ids, in any tile.
pub fn ties_at_the_last_place(panel: &mut Panel) {
    let logits = vec![1.0; 400];
    for k in [1, 2, 7, 129] {
        let (_, output) = draw_many(panel, &logits, at(1.0).with_top_k(k));
        assert_eq!(output.tokens.iter().max(), Some(&(k - 1)));
    }
    // Two above, then ties on both sides of a tile's end.
    let tied = |i: usize| if i == 300 || i == 7 { 2.0 } else { f32::from(120 < i && i < 140) };
    let logits: Vec<f32> = (0..400).map(tied).collect();
    assert_eq!(tokens_of(panel, &logits, at(1.0).with_top_k(4)), [7, 121, 122, 300]);
}

/// The scores of greedy rows are their values.
fn greedy_values(
    panel: &mut Panel,
    logits: &[f32],
    rules: &Rules,
    row: SamplingParams,
) -> Vec<f32> {
    let vocab = logits.len();
    let rules = |only: usize| Rules { allow_list: Some(vec![only as u32]), ..rules.clone() };
    let hidden_states = Matrix::from_fn(Dtype::Bf16, vocab, 1, |_, _| 1.0);
    let head = Arc::new(Head::of_logits(logits.to_vec()));
    let case = Case::new("values", &head, hidden_states, vec![row; vocab])
        .with_rules((0..vocab).map(rules).collect());
    let output = panel.sample(&case);
    assert_oracle_agrees(&case, "everybody", &output);
    output.scores
}

fn seen(tokens: &[(u32, u32)]) -> Rules {
    let seen = tokens.iter().map(|&(token, count)| SeenToken { token, count }).collect();
    Rules { seen, ..Rules::default() }
}

/// The worked examples of penalties.
pub fn edits_of_single_tokens(panel: &mut Panel) {
    let repeat = Penalties { repetition: 2.0, ..Penalties::NONE };
    let all = seen(&[(0, 0), (1, 1), (2, 5)]);
    let row = at(0.0).with_penalties(repeat);
    let values = greedy_values(panel, &[3.0, -3.0, 0.0, 5.0], &all, row);
    assert_eq!(values, [1.5, -6.0, 0.0, 5.0]);
    let count = Penalties { frequency: 0.5, presence: 0.25, ..Penalties::NONE };
    let row = at(0.0).with_penalties(count);
    let values = greedy_values(panel, &[3.0, -3.0, 0.0, 5.0], &all, row);
    assert_eq!(values, [3.0, -3.75, -2.75, 5.0]);
}

/// A bias of 4 before the repetition penalty, and after.
pub fn order_of_bias_and_penalties(panel: &mut Panel) {
    let rules = Rules { logit_bias: vec![(1, 4.0)], ..seen(&[(1, 1)]) };
    let repeat = Penalties { repetition: 2.0, ..Penalties::NONE };
    let mut row = at(0.0).with_penalties(repeat);
    assert_eq!(greedy_values(panel, &[0.0, -3.0], &rules, row), [0.0, 0.5]);
    row.edit_order = EditOrder::BiasLast;
    assert_eq!(greedy_values(panel, &[0.0, -3.0], &rules, row), [0.0, -2.0]);
}

/// Bits of the last word beyond the vocabulary count for nothing, whether or not the
/// weights have rows there.
pub fn bits_of_a_mask(panel: &mut Panel) {
    let weights = Matrix::from_fn(Dtype::Bf16, 96, 1, |token, _| token as f32);
    let head = Arc::new(Head { vocab_valid: 70, ..Head::new(weights) });
    let hidden_states = Matrix::from_fn(Dtype::Bf16, 40, 1, |_, _| 0.125);
    let words = [0x8000_0001, 0x0000_0001, 0x0000_0020];
    let plain = Case::new("mask", &head, hidden_states, rows_of(40, &[0.0, 8.0])).with_draws(20);
    let masked = plain.clone().with_rules(vec![Rules::of_bitmask(&words); 40]);
    let output = panel.sample(&masked);
    assert_oracle_agrees(&masked, "everybody", &output);
    let mut tokens = output.tokens.clone();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens, [0, 31, 32, 69]);
    let trailing = [0x8000_0001, 0x0000_0001, 0xFFFF_FFE0, u32::MAX];
    let mut allowed = Rules::of_bitmask(&trailing);
    allowed.bitmask.as_mut().unwrap()[2] &= !0x0000_001F;
    assert_eq!(panel.sample(&plain.with_rules(vec![allowed; 40])), output);
}

/// The largest logits under a cap, and both orders.
pub fn caps_and_scales(panel: &mut Panel) {
    let logits = [1e30, -1e30, 15.0, -0.25];
    for (scale, scale_first) in [(1.0, false), (0.5, false), (0.5, true)] {
        let transform = LogitTransform { softcap: Some(30.0), scale, scale_first };
        let hidden_states = Matrix::from_fn(Dtype::Bf16, 8, 1, |_, _| 1.0);
        let head = Arc::new(Head::of_logits(logits.to_vec()));
        let case = Case::new("capped", &head, hidden_states, rows_of(8, &[0.0, 10.0]))
            .with_transform(transform)
            .with_draws(8);
        panel.sample_each(&case, |name, output| {
            assert_oracle_agrees(&case, name, output);
            assert!(output.scores.iter().all(|score| score.is_finite()));
            let expected = if scale_first { 30.0 } else { 30.0 * scale };
            assert_eq!((output.tokens[0], output.scores[0]), (0, expected));
        });
    }
}

/// A row among neighbours that ask for other things, and alone.
pub fn neighbours_do_not_matter(panel: &mut Panel) {
    let case = random_case(40, 300, 0).with_draws(1);
    let all = panel.sample(&case);
    for row in [0, 1, 9, 57, 198, 199] {
        let alone = panel.sample(&case.select(&[row]));
        assert_eq!(bits(&alone, 0), bits(&all, row), "row {row}");
    }
    // A plain row among them is as among plain ones.
    let mut plain = case.clone();
    plain.rules = Vec::new();
    let mut mixed = plain.clone();
    for row in (0..case.batch()).step_by(3) {
        for case in [&mut plain, &mut mixed] {
            case.rows[row] = params(100.0, 3, row as u64);
        }
    }
    for row in (0..case.batch()).filter(|row| row % 3 != 0) {
        plain.rows[row] = params(100.0, 3, row as u64);
    }
    let (plain, mixed) = (panel.sample(&plain), panel.sample(&mixed));
    for row in (0..case.batch()).step_by(3) {
        assert_eq!(bits(&plain, row), bits(&mixed, row), "row {row}");
    }
}

/// Rules have global ids: each shard takes its own from the same bitmask.
pub fn shards_share_rules(panel: &mut Panel) {
    let words: Vec<u32> = (0..19).map(|word| 0x9249_2492_u32.rotate_left(word)).collect();
    let head = Head::new(Matrix::integers(WEIGHTS, Dtype::Bf16, 600, 24));
    let hidden_states = Matrix::integers(HIDDEN_STATES, Dtype::Bf16, 9, 24);
    let rules = Rules { bitmask: Some(words), ..seen(&[(3, 1), (257, 2), (258, 0), (599, 1)]) };
    let rows: Vec<SamplingParams> = rows_of(9, &[100.0, 0.0])
        .into_iter()
        .map(|row| row.with_penalties(Penalties { repetition: 2.0, ..Penalties::NONE }))
        .collect();
    let sample = |panel: &mut Panel, head: Head| {
        let case = Case::new("shard", &Arc::new(head), hidden_states.clone(), rows.clone());
        panel.sample(&case.with_rules(vec![rules.clone(); 9]))
    };
    let whole = sample(panel, head.clone());
    let shards = [sample(panel, head.shard(0, 257)), sample(panel, head.shard(257, 600))];
    for row in 0..9 {
        let best = usize::from(shards[1].scores[row] > shards[0].scores[row]);
        assert_eq!(shards[best].tokens[row], whole.tokens[row]);
    }
}

/// `+inf` wins under any filter, and of several the lowest; a row without a candidate has
/// none under filters, too.
pub fn infinities_under_filters(panel: &mut Panel) {
    let filters = at(1.0).with_top_k(3).with_top_p(0.5).with_min_p(0.1);
    let infinite = [0.0, f32::INFINITY, f32::NAN, f32::INFINITY];
    for logits in [&infinite[..], &[f32::NEG_INFINITY; 200], &[f32::NAN, 1.0, f32::MAX]] {
        let (case, output) = draw_many(panel, logits, filters);
        assert_oracle_agrees(&case, "everybody", &output);
    }
}

/// Histograms of filtered rows.
pub fn filtered_softmax(panel: &mut Panel) {
    for params in [
        at(1.0).with_top_k(20).with_top_p(0.9),
        at(0.7).with_top_p(0.8),
        at(2.0).with_top_n_sigma(1.5).with_eta_cutoff(0.03),
        at(1.5).with_min_p(0.1).with_filter_order(FilterOrder::Joint),
    ] {
        assert_row_fits(panel, 61, 300, params);
    }
}
