//! Does the kernel that finishes kept rows find what the CPU's ladder finds, in every bit,
//! where many tokens are equal or nearly so?

use std::ptr::{null, null_mut};
use std::sync::Arc;

use flash_sampling::{
    CpuOptions, CpuVariant, Dtype, FilterOrder, Output, Sampler, SamplingParams, Wanted,
};
use flash_sampling_kernels::abi::SampleParams;
use flash_sampling_kernels::abi::kept::{
    KeptParams, ReportParams, RowFeatures, slice_len, values_stride,
};
use flash_sampling_kernels::kernels::sample_kept::{Shared, sample_kept};
use flash_sampling_tests::inputs::{Case, Head, Matrix, params};

const ALL: Wanted = Wanted { logprobs: true, ranks: true, entropies: true, best: 20 };

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
                bias: null(),
                temperatures: &1.0,
                seeds: &3,
                positions: &4,
                tokens: tokens.as_mut_ptr(),
                status: status.as_mut_ptr(),
                scores: null_mut(),
                margins,
                workspace: null_mut(),
                values: values.as_mut_ptr(),
                features: &features,
                weights_stride: 1,
                hidden_stride: 1,
                batch: 1,
                vocab: VOCAB,
                hidden: 1,
                draws: DRAWS as u32,
                first_token: 50,
                weights_dtype: 0,
                hidden_dtype: 0,
                skips_banned: 0,
                applies_rules: 0,
            },
            raw: ReportParams::NONE,
            processed: ReportParams::NONE,
            raw_values: null_mut(),
            scratch: null_mut(),
            softcap: 0.0,
            scale: 1.0,
            scale_first: 0,
            slice_in_shared,
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
