//! Does the kernel that finishes kept rows find what the CPU's ladder finds, in every bit,
//! where many tokens are equal or nearly so?

use std::ptr::null_mut;
use std::sync::Arc;

use flash_sampling::{
    CpuOptions, CpuVariant, Dtype, FilterOrder, Output, Sampler, SamplingParams, Wanted,
};
use flash_sampling_kernels::abi::kept::{KeptParams, RowFeatures, slice_len, values_stride};
use flash_sampling_kernels::abi::{NO_TOKEN, SampleParams, TILE_V};
use flash_sampling_kernels::candidate::Key;
use flash_sampling_kernels::kernels::sample_kept::{Shared, sample_kept};
use flash_sampling_kernels::shortlist::{self, BINS, Tally};
use flash_sampling_kernels::status::Status;
use flash_sampling_tests::inputs::{Case, Head, Matrix, params};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const ALL: Wanted = Wanted { logprobs: true, ranks: true, entropies: true, best: 20 };

/// One row that asks for nothing, of a call without memory.
const NOTHING: SampleParams = SampleParams {
    seeds: &3,
    positions: &4,
    weights_stride: 1,
    hidden_stride: 1,
    batch: 1,
    vocab: 1,
    hidden: 1,
    draws: 1,
    ..SampleParams::NONE
};

/// The same rows by the kernels, run natively, and by the CPU's own tiles.
fn assert_same(case: &Case, raw: Wanted) {
    let outputs = [CpuVariant::Reference, CpuVariant::Portable].map(|variant| {
        let options = CpuOptions { threads: Some(1), variant: Some(variant) };
        let mut output = Output::default();
        (output.raw.wanted, output.processed.wanted) = (raw, ALL);
        let rules = case.token_rules();
        let inputs = case.inputs().with_token_rules(&rules);
        let mut sampler = Sampler::cpu_with(options).unwrap();
        sampler.sample(&inputs, &case.rows, case.draws, &mut output).unwrap();
        // Not `==`: NaN is not equal to itself.
        format!("{output:?}")
    });
    assert_eq!(outputs[0], outputs[1], "{}", case.name);
}

/// Filters whose last token lies anywhere among `vocab` tokens.
fn rows(vocab: u32, temperature: f32) -> Vec<SamplingParams> {
    let counts = [1, 2, 255, 256, 257, 300, 1_000, vocab - 1, vocab, vocab + 1];
    let shares = [1e-6, 0.01, 0.3, 0.5, 0.99, 0.999_999];
    let at = |n: usize| params(temperature, 11, n as u64);
    let by_count = counts.iter().map(|&k| at(1).with_top_k(k));
    let by_share = shares.iter().map(|&p| at(2).with_top_p(p));
    let by_both = counts.iter().zip(shares.iter().cycle()).enumerate().map(|(n, (&k, &p))| {
        let orders = [FilterOrder::Sequential, FilterOrder::MinPLast, FilterOrder::Joint];
        let row = at(n).with_top_k(k).with_top_p(p).with_filter_order(orders[n % 3]);
        row.with_min_p(0.01).with_top_n_sigma(2.0).with_epsilon_cutoff(1e-5).with_eta_cutoff(1e-3)
    });
    by_count.chain(by_share).chain(by_both).collect()
}

/// With reports on the model's distribution values are edited in place, without in a slice.
fn check(name: &str, logits: &[f32], first_token: u32) {
    for temperature in [1.0, 1e4] {
        let rows = rows(logits.len() as u32, temperature);
        let head = Head { first_token, ..Head::of_logits(logits.to_vec()) };
        let ones = Matrix::from_fn(Dtype::Bf16, rows.len(), 1, |_, _| 1.0);
        let case = Case::new(name, &Arc::new(head), ones, rows).with_draws(2);
        for raw in [ALL, Wanted::default()] {
            assert_same(&case, raw);
        }
    }
}

#[test]
fn all_equal() {
    check("all equal", &[1.5; 3_000], 0);
    check("all equal, from 77 on", &[-0.0; 2_049], 77);
}

#[test]
fn steps_of_equal_tokens() {
    let logits: Vec<f32> = (0..5_000).map(|i| (i * 31 % 7) as f32 * 0.5 - 1.0).collect();
    check("steps", &logits, 0);
    check("steps, from 1000003 on", &logits[..4_321], 1_000_003);
}

#[test]
fn neighbors_of_one_float() {
    let at = |i: u32| f32::from_bits(2.0f32.to_bits() - i.wrapping_mul(7_919) % 9_000);
    let logits: Vec<f32> = (0..9_000).map(at).collect();
    check("neighbors", &logits, 5);
}

/// Without scores and margins the level is the first's, and the tokens are the same.
#[test]
fn outputs_that_are_not_wanted_change_no_token() {
    const VOCAB: u32 = 1_000;
    const DRAWS: usize = 50;
    let logits: Vec<f32> = (0..VOCAB).map(|i| (i * 37 % 101) as f32 * 0.05).collect();
    let features = RowFeatures { top_k: 400, ..RowFeatures::NONE };
    let sample = |margins: *mut f32, slice_in_shared| {
        let mut values = logits.clone();
        values.resize(values_stride(VOCAB) as usize, f32::NAN);
        let mut slice = vec![f32::NAN; slice_len(VOCAB, 1) as usize];
        let (mut tokens, mut status) = ([0; DRAWS], [0; DRAWS]);
        let params = KeptParams {
            sample: SampleParams {
                temperatures: &1.0,
                tokens: tokens.as_mut_ptr(),
                status: status.as_mut_ptr(),
                margins,
                values: values.as_mut_ptr(),
                features: &features,
                vocab: VOCAB,
                draws: DRAWS as u32,
                first_token: 50,
                ..NOTHING
            },
            slice_in_shared,
            ..KeptParams::new(NOTHING)
        };
        let mut shared = Box::<Shared>::new_uninit();
        // SAFETY: the pointers hold the sizes; one block has its memory alone.
        unsafe { sample_kept::<1>(&params, shared.as_mut_ptr(), slice.as_mut_ptr(), 0, 1) };
        tokens
    };
    let mut margins = [f32::NAN; DRAWS];
    let tokens = sample(margins.as_mut_ptr(), 1);
    assert!(margins.iter().all(|margin| *margin >= 0.0));
    assert_eq!(sample(null_mut(), 1), tokens);
    assert_eq!(sample(null_mut(), 0), tokens);
    assert!(tokens.iter().collect::<std::collections::BTreeSet<_>>().len() > 20);
}

/// What a sampling kernel would leave of a row: of some tiles all values, of others the tokens
/// from a floor on, in any order. The floor may be anywhere below what the filters keep.
struct Left {
    values: Vec<f32>,
    listed: Vec<u64>,
    tally: Box<Tally>,
}

impl Left {
    fn new(logits: &[f32], first_token: u32, features: &RowFeatures, temperature: f32) -> Self {
        let vocab = logits.len() as u32;
        let stride = values_stride(vocab) as usize;
        let empty =
            Tally { bins: [0; BINS as usize], highest: 0, floor: 0, n_tokens: 0, n_tiles: 0 };
        let mut left = Self {
            values: vec![f32::NAN; stride],
            listed: vec![u64::MAX; stride],
            tally: Box::new(empty),
        };
        let lead = first_token % TILE_V;
        let tiles = (lead + vocab).div_ceil(TILE_V);
        for tile in (0..tiles).map(|i| i.wrapping_mul(7) % tiles) {
            let begin = i64::from(tile * TILE_V) - i64::from(lead);
            let end = (begin + i64::from(TILE_V)).min(vocab.into());
            let indices = begin.max(0) as u32..end as u32;
            let highest = shortlist::of_height(left.tally.highest);
            let bins = left.tally.bins.as_ptr();
            // SAFETY: the tally is there.
            let load = |at: *const u32| unsafe { at.cast::<[u32; 4]>().read() };
            // SAFETY: the same.
            let counted = unsafe { shortlist::counted_floor(features, highest, bins, load) };
            left.tally.floor = left.tally.floor.max(shortlist::height(counted));
            let floor = shortlist::floor(features, temperature, highest, counted);
            if floor == f32::NEG_INFINITY {
                let most = indices.clone().map(|i| logits[i as usize]).fold(floor, f32::max);
                indices.clone().for_each(|i| left.values[i as usize] = logits[i as usize]);
                left.tally.n_tiles += 1;
                // Where rules edit values of the tile, their bound is not known.
                let bound = if tile % 5 == 4 { f32::INFINITY } else { most };
                let at = stride - left.tally.n_tiles as usize;
                left.listed[at] = shortlist::kept_tile(tile, bound).into();
                left.count(most);
                continue;
            }
            for i in indices.rev().filter(|&i| logits[i as usize] >= floor) {
                let key = Key::of_value(logits[i as usize], i);
                left.listed[left.tally.n_tokens as usize] = key.bits();
                left.tally.n_tokens += 1;
                left.count(logits[i as usize]);
            }
        }
        left
    }

    fn count(&mut self, y: f32) {
        if y > f32::NEG_INFINITY {
            self.tally.highest = self.tally.highest.max(shortlist::height(y));
            self.tally.bins[shortlist::bin(y) as usize] += 1;
        }
    }
}

/// Tokens, scores, margins and status of a row, from all of its values or from its shortlist.
fn finish(
    (logits, first_token): (&[f32], u32),
    (features, temperature): (&RowFeatures, f32),
    (lists, slice_in_shared): (bool, bool),
) -> (Vec<u32>, Vec<u32>, Vec<u32>, Vec<u32>) {
    const DRAWS: usize = 5;
    let vocab = logits.len() as u32;
    let mut left = Left::new(logits, first_token, features, temperature);
    if !lists {
        left.values[..logits.len()].copy_from_slice(logits);
    }
    let mut slice = vec![f32::NAN; slice_len(vocab, 1) as usize];
    let (mut tokens, mut status) = ([0; DRAWS], [Status::NO_CANDIDATE.bits(); DRAWS]);
    let (mut scores, mut margins) = ([0.0f32; DRAWS], [0.0f32; DRAWS]);
    let params = KeptParams {
        sample: SampleParams {
            temperatures: &temperature,
            tokens: tokens.as_mut_ptr(),
            status: status.as_mut_ptr(),
            scores: scores.as_mut_ptr(),
            margins: margins.as_mut_ptr(),
            values: left.values.as_mut_ptr(),
            listed: if lists { left.listed.as_mut_ptr() } else { null_mut() },
            tallies: &raw mut *left.tally,
            features,
            vocab,
            draws: DRAWS as u32,
            first_token,
            applies_rules: 1,
            ..NOTHING
        },
        slice_in_shared: slice_in_shared.into(),
        ..KeptParams::new(NOTHING)
    };
    let mut shared = Box::<Shared>::new_uninit();
    // SAFETY: the buffers have the sizes that the parameters tell, for one block.
    unsafe { sample_kept::<1>(&params, shared.as_mut_ptr(), slice.as_mut_ptr(), 0, 1) };
    if lists {
        let Tally { bins, highest, floor, n_tokens, n_tiles } = *left.tally;
        assert_eq!((highest, floor, n_tokens, n_tiles), (0, 0, 0, 0), "the tally is zero again");
        assert!(bins.iter().all(|&n| n == 0), "the tally is zero again");
    }
    let bits = |values: [f32; DRAWS]| values.map(f32::to_bits).to_vec();
    (tokens.to_vec(), status.to_vec(), bits(scores), bits(margins))
}

/// Peaked rows, flat ones, ties, and infinities: what is found in the shortlist is what is found
/// in the whole row.
#[test]
fn shortlists_have_all_that_counts() {
    let mut rng = SmallRng::seed_from_u64(71);
    let none = RowFeatures::NONE;
    let last = RowFeatures::MIN_P_LAST;
    let asked = [
        RowFeatures { top_k: 1, ..none },
        RowFeatures { top_k: 50, ..none },
        RowFeatures { top_k: 256, top_p: 0.9, ..none },
        RowFeatures { top_k: 20, top_p: 0.5, min_p: 0.05, ..none },
        RowFeatures { top_k: 40, top_p: 0.95, min_p: 0.1, options: last, ..none },
        RowFeatures { min_p: 0.05, ..none },
        RowFeatures { min_p: 1e-6, ..none },
        RowFeatures { min_p: 0.02, top_p: 0.8, epsilon_cutoff: 1e-3, eta_cutoff: 2e-3, ..none },
        RowFeatures { min_p: 0.2, options: RowFeatures::FILTERS_AT_ONE, ..none },
        RowFeatures { top_k: 9, options: RowFeatures::JOINT, min_p: 1e-4, ..none },
    ];
    let (mut short, mut rows) = (0, 0);
    for case in 0..60 {
        let vocab = [1, 100, 128, 3_000, 20_000][case % 5];
        let first_token = [0, 77, 1_000_064][case % 3];
        let spread = [1.0, 30.0, 0.0, 1e-3][case % 4];
        let logits: Vec<f32> = (0..vocab)
            .map(|_| {
                let y = (0..6).map(|_| rng.random::<f32>()).sum::<f32>() - 3.0;
                match rng.random_range(0..200) {
                    0 => f32::NEG_INFINITY,
                    1 if case % 7 == 6 => f32::INFINITY,
                    // Ties.
                    2..50 => (y * 4.0).round() * spread,
                    _ => y * spread - [0.0, 5.0][case % 2],
                }
            })
            .collect();
        for features in &asked {
            for temperature in [0.3, 1.0, 50.0] {
                let row = ((&logits[..], first_token), (features, temperature));
                assert!(shortlist::serves(features, temperature));
                let (tokens, _, scores, margins) = finish(row.0, row.1, (false, true));
                let name = format!("case {case}, {features:?}, temperature {temperature}");
                for slice_in_shared in [true, false] {
                    let (tokens_, status, scores_, margins_) =
                        finish(row.0, row.1, (true, slice_in_shared));
                    assert_eq!(
                        (&tokens_, &scores_, &margins_),
                        (&tokens, &scores, &margins),
                        "{name}"
                    );
                    // Of values that are not listed nobody says here what they were.
                    let none = tokens.iter().map(|&token| (token == NO_TOKEN) as u32);
                    assert!(status.iter().copied().eq(none), "{name}");
                }
                let left = Left::new(&logits, first_token, features, temperature);
                let counted = left.tally.n_tokens + left.tally.n_tiles * TILE_V;
                short += u32::from(counted < vocab / 2);
                rows += 1;
            }
        }
    }
    assert!(short * 5 > rows, "{short} of {rows} rows were short");
}
