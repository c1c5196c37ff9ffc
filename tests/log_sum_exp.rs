//! Does the kernel that finishes log-sum-exps merge what sampling kernels leave? Natively: the
//! partial sums, which only the tensor-core kernels write, are made here of known values.

use flash_sampling::NO_TOKEN;
use flash_sampling_kernels::abi::SampleParams;
use flash_sampling_kernels::abi::kept::{KeptParams, ReportParams, values_stride};
use flash_sampling_kernels::kernels::log_sum_exp::{Shared, log_sum_exp};
use flash_sampling_kernels::partial_sum::{PartialSum, greater, report_temperature, weight};
use flash_sampling_tests::panel::is_near;

const DRAWS: usize = 600;
static TEMPERATURES: [f32; 4] = [0.05, 0.0, 0.7, 1e6];

fn value(row: usize, index: u32) -> f32 {
    ((row as u32 * 31 + index * 7_919) % 4_001) as f32 * 0.01 - 20.0
}

/// What the warps of a sampling kernel leave of a row, one of them nothing.
fn partials(row: usize, vocab: u32, warps: u32, temperature: f32) -> Vec<PartialSum> {
    let of_warp = |warp: u32| {
        let values = (warp..vocab).step_by(warps as usize - 1).map(|index| value(row, index));
        let values: Vec<f32> = if warp + 1 == warps { Vec::new() } else { values.collect() };
        let highest = values.iter().copied().fold(f32::NEG_INFINITY, greater);
        let sum = values.iter().map(|&y| weight(y, highest, 1.0 / temperature)).sum();
        PartialSum { highest, sum }
    };
    (0..warps).map(of_warp).collect()
}

#[test]
fn partial_sums_and_drawn_values_become_reports() {
    for (vocab, first_token, warps) in
        [(1, 0, 4), (700, 0, 8), (12_345, 77, 1_056), (151_936, 128, 4_003)]
    {
        let stride = values_stride(vocab) as usize;
        let rows = TEMPERATURES.len();
        let mut of = TEMPERATURES.map(report_temperature).into_iter().enumerate();
        let mut raw: Vec<_> = (0..rows).flat_map(|row| partials(row, vocab, warps, 1.0)).collect();
        let mut own: Vec<_> =
            of.clone().flat_map(|(row, t)| partials(row, vocab, warps, t)).collect();
        let mut drawn = vec![f32::NAN; rows * stride];
        let mut tokens = vec![NO_TOKEN; rows * DRAWS];
        for (at, token) in tokens.iter_mut().enumerate().filter(|(at, _)| at % 5 != 0) {
            let index = (at as u32 * 13) % vocab;
            *token = first_token + index;
            drawn[at / DRAWS * stride + index as usize] = value(at / DRAWS, index);
        }
        let mut found = [(); 2].map(|()| (vec![f32::NAN; rows], vec![f32::NAN; rows * DRAWS]));
        let mut reports = found.each_mut().map(|(log_sum_exps, logprobs)| ReportParams {
            log_sum_exps: log_sum_exps.as_mut_ptr(),
            logprobs: logprobs.as_mut_ptr(),
            ..ReportParams::NONE
        });
        let params = KeptParams {
            sample: SampleParams {
                temperatures: TEMPERATURES.as_ptr(),
                tokens: tokens.as_mut_ptr(),
                drawn_values: drawn.as_mut_ptr(),
                partials: [raw.as_mut_ptr(), own.as_mut_ptr()],
                n_partials: warps,
                vocab,
                first_token,
                batch: TEMPERATURES.len() as u32,
                draws: DRAWS as u32,
                ..SampleParams::NONE
            },
            raw: std::mem::replace(&mut reports[0], ReportParams::NONE),
            processed: std::mem::replace(&mut reports[1], ReportParams::NONE),
            ..KeptParams::new(SampleParams::NONE)
        };
        let mut shared = [[0]; size_of::<Shared>() / 8];
        for block in 0..2 {
            // SAFETY: the pointers hold the sizes; one block has its memory alone.
            unsafe { log_sum_exp(&params, &raw mut shared, block, 2) };
        }
        let is_expected = |row: usize, temperature: f64, (lse, logprobs): (f32, &[f32])| {
            let scaled = |index| f64::from(value(row, index)) / temperature;
            let highest = (0..vocab).map(scaled).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (0..vocab).map(|index| (scaled(index) - highest).exp()).sum();
            let expected = highest + sum.ln();
            assert!(is_near(lse, expected), "V {vocab}, row {row}: {lse}, expected {expected}");
            for (draw, &p) in logprobs.iter().enumerate() {
                let token = tokens[row * DRAWS + draw];
                let y =
                    if token == NO_TOKEN { f64::NEG_INFINITY } else { scaled(token - first_token) };
                assert!(is_near(p, y - expected), "V {vocab}, row {row}, draw {draw}: {p}");
            }
        };
        for (row, t) in of.by_ref() {
            for ((lses, logprobs), t) in found.iter().zip([1.0, f64::from(t)]) {
                is_expected(row, t, (lses[row], &logprobs[row * DRAWS..][..DRAWS]));
            }
        }
    }
}
