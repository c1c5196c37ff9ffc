//! Rows that few of their values may serve, finished natively: the sums of weights, which only the
//! tensor-core kernels leave, are made here.

use std::ptr::null_mut;

use flash_sampling_kernels::abi::kept::{
    KeptParams, ReportParams, RowFeatures, slice_len, values_stride,
};
use flash_sampling_kernels::abi::{NO_TOKEN, SampleParams};
use flash_sampling_kernels::candidate::{Key, Leaders};
use flash_sampling_kernels::kernels::rules::any as any_rules;
use flash_sampling_kernels::kernels::sample_kept::{Shared, sample_kept};
use flash_sampling_kernels::partial_sum::{PartialSum, greater, report_temperature, weight};
use flash_sampling_kernels::philox::{NoiseKey, Subkey};
use flash_sampling_kernels::score::offer_token;

use crate::inputs::Lists;
use crate::panel::is_near;

/// Draws of a row.
pub const DRAWS: usize = 3;
const WARPS: u32 = 80;
const BEST: [u32; 2] = [20, 7];

/// Rows, each with its values and what it asks for.
#[derive(Debug)]
pub struct Rows {
    /// Tokens of a row.
    pub vocab: u32,
    /// Id of the first.
    pub first_token: u32,
    /// `[B, V]`.
    pub logits: Vec<Vec<f32>>,
    /// `[B]`.
    pub features: Vec<RowFeatures>,
    /// `[B]`.
    pub temperatures: Vec<f32>,
    /// What the features point to.
    pub lists: Vec<Lists>,
}

/// How they are finished.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Times this are the sums of weights, if there are any.
    pub factor: Option<f32>,
    /// Blocks of the grid.
    pub blocks: u32,
    /// Whether margins are wanted.
    pub with_margins: bool,
    /// Of the model's distribution and each row's.
    pub reports: [bool; 2],
    /// Whether the sampling kernel has applied no rules, though there are no reports.
    pub rules_are_left: bool,
}

/// What a kernel writes for some rows.
#[derive(Debug, PartialEq)]
pub struct Outputs {
    /// Tokens, status, the bits of scores and margins.
    pub drawn: [Vec<u32>; 4],
    /// Of the model's distribution and each row's.
    pub reports: [Report; 2],
}

/// Of one distribution.
#[derive(Debug, PartialEq)]
pub struct Report {
    ranks: Vec<u32>,
    best_tokens: Vec<u32>,
    /// Log-sum-exps, logprobs, those of the best, entropies.
    pub floats: [Vec<f32>; 4],
}

impl Report {
    fn new(batch: usize, best: u32) -> Self {
        let (draws, best) = (batch * DRAWS, batch * best as usize);
        let floats = [batch, draws, best, batch].map(|n| vec![-9.0; n]);
        Self { ranks: vec![!0; draws], best_tokens: vec![!1; best], floats }
    }

    fn params(&mut self, best: u32) -> ReportParams {
        let [log_sum_exps, logprobs, best_logprobs, entropies] =
            self.floats.each_mut().map(|floats| floats.as_mut_ptr());
        ReportParams {
            log_sum_exps,
            logprobs,
            ranks: self.ranks.as_mut_ptr(),
            entropies,
            best_tokens: self.best_tokens.as_mut_ptr(),
            best_logprobs,
            best,
        }
    }

    /// Tokens and ranks to the bit, the others as sums of weights are.
    fn assert_near(&self, other: &Self, what: &str) {
        assert_eq!(self.ranks, other.ranks, "{what}: ranks");
        assert_eq!(self.best_tokens, other.best_tokens, "{what}: best");
        let pairs = self.floats.iter().flatten().zip(other.floats.iter().flatten());
        for (&found, &expected) in pairs {
            let are_none = found.is_nan() && expected.is_nan();
            assert!(
                are_none || is_near(found, expected.into()),
                "{what}: {found}, {expected} {:?} {:?}",
                self.floats,
                other.floats
            );
        }
    }
}

impl Rows {
    /// What the warps of a sampling kernel leave of a row, tile by tile.
    fn partials(&self, row: usize, temperature: f32) -> Vec<PartialSum> {
        let inverse = 1.0 / temperature;
        let mut sums = vec![PartialSum::NONE; WARPS as usize];
        for (tile, values) in self.logits[row].chunks(32).enumerate() {
            let highest = values.iter().copied().fold(f32::NEG_INFINITY, greater);
            let sum = values.iter().map(|&y| weight(y, highest, inverse)).sum::<f32>();
            let sums = &mut sums[tile % (WARPS as usize - 1)];
            *sums = sums.merge(PartialSum { highest, sum }, inverse);
        }
        sums
    }

    /// Those of all rows, times a factor.
    fn all_partials(&self, of_model: bool, factor: f32) -> Vec<PartialSum> {
        let temperature = |row: usize| {
            if of_model { 1.0 } else { report_temperature(self.temperatures[row]) }
        };
        let parts = (0..self.logits.len()).flat_map(|row| self.partials(row, temperature(row)));
        parts.map(|part| PartialSum { sum: part.sum * factor, ..part }).collect()
    }

    /// Tokens that may have been drawn: likely ones, and of every fourth row one that is not.
    fn drawn(&self) -> Vec<u32> {
        let of_row = |(row, values): (usize, &Vec<f32>)| {
            let is_there = |&at: &usize| values[at] > f32::NEG_INFINITY;
            let mut order: Vec<usize> = (0..values.len()).filter(is_there).collect();
            order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
            let third = if row % 4 == 3 { order.len() / 2 } else { 0 };
            let token = |nth: usize| order.get(nth).map(|&at| self.first_token + at as u32);
            [0, 40, third].map(|nth| token(nth).or(token(0)).unwrap_or(NO_TOKEN))
        };
        self.logits.iter().enumerate().flat_map(of_row).collect()
    }

    /// What the sampling kernel has drawn of a row as if it had no filters: tokens and scores.
    fn leaders(&self, row: usize) -> [Key; DRAWS] {
        std::array::from_fn(|draw| {
            let subkey = Subkey::new(Self::key(row), draw as u32);
            let mut leaders = Leaders::NONE;
            for (token, &y) in (self.first_token..).zip(&self.logits[row]) {
                offer_token(y, token, self.temperatures[row], subkey, &mut leaders);
            }
            leaders.first
        })
    }

    /// The key of a row's noise.
    const fn key(row: usize) -> NoiseKey {
        NoiseKey { seed: row as u64, position: row as u64 }
    }

    /// Finishes them natively.
    pub fn finish(&self, how: How) -> Outputs {
        let How { factor, blocks, with_margins, reports: wanted, rules_are_left } = how;
        let batch = self.logits.len();
        let stride = values_stride(self.vocab) as usize;
        // What lies behind a row's values may be anything.
        let mut values = vec![f32::INFINITY; batch * stride];
        for (row, logits) in values.chunks_mut(stride).zip(&self.logits) {
            row[..logits.len()].copy_from_slice(logits);
        }
        let mut partials =
            [true, false].map(|of_model| self.all_partials(of_model, factor.unwrap_or(1.0)));
        let [of_model, of_row] = partials.each_mut().map(|partials| partials.as_mut_ptr());
        let has_sums = |is_wanted: bool| factor.is_some() && is_wanted;
        let n = batch * DRAWS;
        let (mut tokens, mut status) = (self.drawn(), vec![0; n]);
        let (mut scores, mut margins) = (vec![0.0f32; n], vec![0.0f32; n]);
        for row in 0..batch {
            if !any_rules(&self.features[row]) && !with_margins {
                for (at, first) in (row * DRAWS..).zip(self.leaders(row)) {
                    (tokens[at], scores[at]) = (first.token(), first.score());
                }
            }
        }
        let mut reports = BEST.map(|best| Report::new(batch, best));
        let keys = (0..batch).map(Self::key);
        let (seeds, positions): (Vec<_>, Vec<_>) = keys.map(|key| (key.seed, key.position)).unzip();
        let sample = SampleParams {
            temperatures: self.temperatures.as_ptr(),
            seeds: seeds.as_ptr(),
            positions: positions.as_ptr(),
            tokens: tokens.as_mut_ptr(),
            status: status.as_mut_ptr(),
            scores: scores.as_mut_ptr(),
            margins: if with_margins { margins.as_mut_ptr() } else { null_mut() },
            values: values.as_mut_ptr(),
            partials: [
                if has_sums(wanted[0]) { of_model } else { null_mut() },
                if has_sums(true) { of_row } else { null_mut() },
            ],
            n_partials: WARPS,
            sums_all_rows: wanted[1].into(),
            judges: (!with_margins && factor.is_some()).into(),
            features: self.features.as_ptr(),
            batch: batch as u32,
            vocab: self.vocab,
            hidden: 1,
            draws: DRAWS as u32,
            first_token: self.first_token,
            applies_rules: (wanted == [false; 2] && !rules_are_left).into(),
            ..SampleParams::NONE
        };
        let [raw, processed] = [0, 1].map(|part| {
            if wanted[part] { reports[part].params(BEST[part]) } else { ReportParams::NONE }
        });
        let params = KeptParams { slice_in_shared: 1, raw, processed, ..KeptParams::new(sample) };
        for block in 0..blocks {
            let mut shared = Box::<Shared>::new_uninit();
            let mut slice = vec![f32::NAN; slice_len(self.vocab, 1) as usize];
            let (shared, slice) = (shared.as_mut_ptr(), slice.as_mut_ptr());
            // SAFETY: the buffers have the sizes that the parameters tell.
            unsafe { sample_kept::<1>(&params, shared, slice, block, blocks) };
        }
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
        Outputs { drawn: [tokens, status, bits(scores), bits(margins)], reports }
    }

    /// Demands that with sums of weights, on so many blocks, all is as without.
    ///
    /// # Panics
    /// It is not.
    pub fn assert_few_are_all(&self, how: How, blocks: u32, what: &str) {
        let expected = self.finish(How { factor: None, blocks: 1, ..how });
        let found = self.finish(How { factor: Some(1.0), blocks, ..how });
        for (report, other) in found.reports.iter().zip(&expected.reports) {
            report.assert_near(other, what);
        }
        assert_eq!(found.drawn, expected.drawn, "{what}");
    }
}
