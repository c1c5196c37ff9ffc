//! Are rows that ask for top_p alone the same where the sum of their weights is known before their
//! values are read? Natively: the sums, which only the tensor-core kernels leave, are made here.

use std::ptr::null_mut;

use flash_sampling_kernels::abi::SampleParams;
use flash_sampling_kernels::abi::kept::{KeptParams, RowFeatures, slice_len, values_stride};
use flash_sampling_kernels::kernels::sample_kept::{Shared, sample_kept};
use flash_sampling_kernels::partial_sum::{PartialSum, greater, weight};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const DRAWS: usize = 3;
const WARPS: u32 = 40;

/// Rows, each with its values and what it asks for.
struct Rows {
    vocab: u32,
    first_token: u32,
    logits: Vec<Vec<f32>>,
    features: Vec<RowFeatures>,
    temperatures: Vec<f32>,
}

/// What a kernel writes for some rows: tokens, and the bits of scores and margins.
type Outputs = (Vec<u32>, Vec<u32>, Vec<u32>, Vec<u32>);

impl Rows {
    /// What the warps of a sampling kernel leave of a row, tile by tile, times `factor`.
    fn partials(&self, row: usize, factor: f32) -> Vec<PartialSum> {
        let inverse = 1.0 / self.temperatures[row];
        let mut sums = vec![PartialSum::NONE; WARPS as usize];
        for (tile, values) in self.logits[row].chunks(32).enumerate() {
            let highest = values.iter().copied().fold(f32::NEG_INFINITY, greater);
            let sum = values.iter().map(|&y| weight(y, highest, inverse)).sum::<f32>();
            let sums = &mut sums[tile % (WARPS as usize - 1)];
            *sums = sums.merge(PartialSum { highest, sum }, inverse);
        }
        sums.into_iter().map(|part| PartialSum { sum: part.sum * factor, ..part }).collect()
    }

    /// Finished by `blocks` blocks, with sums of weights times `factor` if there is one.
    fn finish(&self, factor: Option<f32>, blocks: u32, with_margins: bool) -> Outputs {
        let batch = self.logits.len();
        let stride = values_stride(self.vocab) as usize;
        // What lies behind a row's values may be anything.
        let mut values = vec![f32::INFINITY; batch * stride];
        for (row, logits) in values.chunks_mut(stride).zip(&self.logits) {
            row[..logits.len()].copy_from_slice(logits);
        }
        let mut partials: Vec<_> =
            (0..batch).flat_map(|row| self.partials(row, factor.unwrap_or(1.0))).collect();
        let n = batch * DRAWS;
        let (mut tokens, mut status) = (vec![u32::MAX - 1; n], vec![0; n]);
        let (mut scores, mut margins) = (vec![0.0f32; n], vec![0.0f32; n]);
        let seeds: Vec<u64> = (0..batch as u64).collect();
        let sample = SampleParams {
            temperatures: self.temperatures.as_ptr(),
            seeds: seeds.as_ptr(),
            positions: seeds.as_ptr(),
            tokens: tokens.as_mut_ptr(),
            status: status.as_mut_ptr(),
            scores: scores.as_mut_ptr(),
            margins: if with_margins { margins.as_mut_ptr() } else { null_mut() },
            values: values.as_mut_ptr(),
            partials: [null_mut(), factor.map_or(null_mut(), |_| partials.as_mut_ptr())],
            n_partials: WARPS,
            features: self.features.as_ptr(),
            batch: batch as u32,
            vocab: self.vocab,
            hidden: 1,
            draws: DRAWS as u32,
            first_token: self.first_token,
            applies_rules: 1,
            ..SampleParams::NONE
        };
        let params = KeptParams { slice_in_shared: 1, ..KeptParams::new(sample) };
        for block in 0..blocks {
            let mut shared = Box::<Shared>::new_uninit();
            let mut slice = vec![f32::NAN; slice_len(self.vocab, 1) as usize];
            let (shared, slice) = (shared.as_mut_ptr(), slice.as_mut_ptr());
            // SAFETY: the buffers have the sizes that the parameters tell.
            unsafe { sample_kept::<1>(&params, shared, slice, block, blocks) };
        }
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
        (tokens, status, bits(scores), bits(margins))
    }
}

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
    }
}

#[test]
fn the_nucleus_of_few_values_is_that_of_all() {
    let mut rng = SmallRng::seed_from_u64(83);
    for case in 0..70 {
        let vocab = [1, 3, 100, 513, 3_000, 20_001, 151_936][case % 7];
        let batch = if vocab > 100_000 { 2 } else { 9 };
        let rows = random_rows(&mut rng, case, vocab, batch);
        let expected = rows.finish(None, 1, true);
        for blocks in [1, 4] {
            assert_eq!(rows.finish(Some(1.0), blocks, true), expected, "case {case}, V = {vocab}");
        }
        let (tokens, ..) = rows.finish(Some(1.0), 2, false);
        assert_eq!(tokens, expected.0, "case {case}, V = {vocab}, without margins");
    }
}

/// Rows that ask for more, and rows with a NaN or an infinity, go the other way; none of them
/// disturbs its neighbors.
#[test]
fn other_rows_are_left_to_the_whole_cluster() {
    let mut rng = SmallRng::seed_from_u64(84);
    for case in 0..6 {
        let mut rows = random_rows(&mut rng, case, 5_000, 9);
        rows.features[1].min_p = 0.01;
        rows.features[2] = RowFeatures::NONE;
        rows.features[3].top_k = 300;
        rows.temperatures[4] = 0.0;
        rows.features[5].options = RowFeatures::FILTERS_AT_ONE;
        rows.logits[6][3_333] = f32::INFINITY;
        rows.logits[7].fill(f32::NEG_INFINITY);
        rows.temperatures[8] = 1e-35;
        let expected = rows.finish(None, 1, true);
        assert_eq!(rows.finish(Some(1.0), 3, true), expected, "case {case}");
    }
}

/// The sum is what the nucleus is told from: with another, it is another.
#[test]
fn a_wrong_sum_would_show() {
    let mut rng = SmallRng::seed_from_u64(85);
    let mut rows = random_rows(&mut rng, 0, 20_001, 9);
    rows.features.fill(RowFeatures { top_p: 0.5, ..RowFeatures::NONE });
    rows.temperatures.fill(0.5);
    let right = rows.finish(Some(1.0), 1, true);
    assert_eq!(right, rows.finish(None, 1, true));
    let half = rows.finish(Some(0.25), 1, true);
    let differ = right.0.iter().zip(&half.0).filter(|(a, b)| a != b).count();
    assert!(differ >= 5, "{differ} of {} tokens differ", right.0.len());
}
