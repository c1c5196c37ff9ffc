//! Variant `cpu_reference`: the portable GPU kernels, run natively as one block.

use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use flash_sampling_kernels::abi::SampleParams;
use flash_sampling_kernels::abi::kept::{
    KeptParams, ReportParams, RowFeatures, TokenBias, slice_len, values_stride,
};
use flash_sampling_kernels::dims::ceil_div;
use flash_sampling_kernels::kernels::{sample_kept, sample_simt};
use flash_sampling_kernels::transform::TransformParams;

use super::Run;
use crate::error::Error;
use crate::features::row_features;
use crate::output::{Output, reserve, resize};
use crate::report::Report;
use crate::token_rules::TokenRules;
use crate::workspace::workspace_bytes;

/// Sixteen bytes of workspace, aligned.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(16))]
struct Line([u64; 2]);

/// What the kernels read and write beside the caller's operands.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    temperatures: Vec<f32>,
    seeds: Vec<u64>,
    positions: Vec<u64>,
    /// Zero between calls.
    workspace: Vec<Line>,
    /// `[B, values_stride(V)]`.
    values: Vec<f32>,
    /// The same, for reports on the model's distribution.
    raw_values: Vec<f32>,
    /// One row's, for calls that want none.
    slice: Vec<f32>,
    /// `[B]`; their addresses are those of the last call.
    features: Vec<RowFeatures>,
    /// Those of all rows.
    biases: Vec<TokenBias>,
    shared: Option<Box<MaybeUninit<sample_kept::Shared>>>,
}

impl Scratch {
    pub(super) fn run(&mut self, run: &Run<'_>, output: &mut Output) -> Result<(), Error> {
        self.fill(run)?;
        let Run { problem, inputs, .. } = run;
        let keeps_rows = self.keeps_rows(run);
        self.resize_values(run, keeps_rows)?;
        let params = KeptParams {
            sample: SampleParams {
                bias: inputs.bias.map_or(null(), <[f32]>::as_ptr),
                temperatures: self.temperatures.as_ptr(),
                seeds: self.seeds.as_ptr(),
                positions: self.positions.as_ptr(),
                tokens: output.tokens.as_mut_ptr(),
                // `Status` is a transparent u32.
                status: output.status.as_mut_ptr().cast(),
                scores: output.scores.as_mut_ptr(),
                margins: output.margins.as_mut_ptr(),
                workspace: self.workspace.as_mut_ptr().cast(),
                features: self.features.as_ptr(),
                values: if keeps_rows { self.values.as_mut_ptr() } else { null_mut() },
                ..problem.sample_params()
            },
            raw: report_params(&mut output.raw),
            processed: report_params(&mut output.processed),
            raw_values: if run.raw.any() { self.raw_values.as_mut_ptr() } else { null_mut() },
            transform: TransformParams::new(inputs.transform),
            // So that both ways are gone.
            slice_in_shared: (!run.raw.any()).into(),
        };
        let mut shared = MaybeUninit::<sample_simt::Shared>::uninit();
        let kept_shared = self.shared.get_or_insert_with(Box::new_uninit);
        // SAFETY: `Problem` checked the sizes, `Inputs::problem` and `MatrixRef` that the
        // slices hold them, `TokenRules` the lists; outputs and scratch were resized to them;
        // the shared memories are this block's own, and legs write what later legs read.
        unsafe {
            sample_simt::sample_simt(
                inputs.weights.base_ptr(),
                inputs.hidden_states.base_ptr(),
                &params.sample,
                shared.as_mut_ptr(),
                0,
                1,
            );
            let (kept_shared, slice) = (kept_shared.as_mut_ptr(), self.slice.as_mut_ptr());
            if keeps_rows {
                sample_kept::sample_kept::<1>(&params, kept_shared, slice, 0, 1);
            }
        }
        Ok(())
    }

    fn fill(&mut self, run: &Run<'_>) -> Result<(), Error> {
        let batch = run.rows.len() as u64;
        resize(&mut self.temperatures, batch, 0.0)?;
        resize(&mut self.seeds, batch, 0)?;
        resize(&mut self.positions, batch, 0)?;
        for (row, params) in run.rows.iter().enumerate() {
            self.temperatures[row] = params.temperature;
            self.seeds[row] = params.key.seed;
            self.positions[row] = params.key.position;
        }
        self.fill_features(run)?;
        let lines = ceil_div(workspace_bytes(run.problem), size_of::<Line>() as u64);
        resize(&mut self.workspace, lines, Line::default())
    }

    /// Whether any row of the call is kept.
    fn keeps_rows(&self, run: &Run<'_>) -> bool {
        let mut rows = self.features.iter().zip(run.rows);
        run.raw.any()
            || run.processed.any()
            || run.inputs.transform.changes()
            || rows.any(|(features, row)| sample_kept::asks(features, row.temperature))
    }

    fn resize_values(&mut self, run: &Run<'_>, keeps_rows: bool) -> Result<(), Error> {
        let (batch, vocab) = (run.problem.batch(), run.problem.vocab());
        let values = u64::from(batch) * values_stride(vocab);
        let if_so = |holds: bool, len: u64| if holds { len } else { 0 };
        resize(&mut self.values, if_so(keeps_rows, values), 0.0)?;
        resize(&mut self.raw_values, if_so(run.raw.any(), values), 0.0)?;
        resize(&mut self.slice, if_so(keeps_rows, slice_len(vocab, 1)), 0.0)
    }

    fn fill_features(&mut self, run: &Run<'_>) -> Result<(), Error> {
        let rules = run.inputs.token_rules.iter();
        let biases = rules.flat_map(|rules| rules.logit_bias);
        self.biases.clear();
        reserve(&mut self.biases, biases.clone().count() as u64)?;
        self.biases.extend(biases.map(|&(token, bias)| TokenBias { token, bias }));
        self.features.clear();
        reserve(&mut self.features, run.rows.len() as u64)?;
        let mut biases = &self.biases[..];
        for (row, params) in run.rows.iter().enumerate() {
            let rules = run.inputs.token_rules.get(row).copied().unwrap_or_default();
            let TokenRules { seen, bitmask, allow_list, ban_list, .. } = rules;
            let (logit_bias, rest) = biases.split_at(rules.logit_bias.len());
            biases = rest;
            self.features.push(RowFeatures {
                seen: seen.as_ptr(),
                logit_bias: logit_bias.as_ptr(),
                bitmask: bitmask.map_or(null(), <[u32]>::as_ptr),
                allow_list: allow_list.map_or(null(), <[u32]>::as_ptr),
                ban_list: ban_list.as_ptr(),
                n_seen: seen.len() as u32,
                n_logit_bias: logit_bias.len() as u32,
                n_allowed: allow_list.map_or(0, <[u32]>::len) as u32,
                n_banned: ban_list.len() as u32,
                ..row_features(params)
            });
        }
        Ok(())
    }
}

/// Where a report goes, which has its size.
fn report_params(report: &mut Report) -> ReportParams {
    fn if_any<T>(values: &mut [T]) -> *mut T {
        if values.is_empty() { null_mut() } else { values.as_mut_ptr() }
    }
    ReportParams {
        log_sum_exps: if_any(&mut report.log_sum_exps),
        logprobs: if_any(&mut report.logprobs),
        ranks: if_any(&mut report.ranks),
        entropies: if_any(&mut report.entropies),
        best_tokens: if_any(&mut report.best_tokens),
        best_logprobs: if_any(&mut report.best_logprobs),
        best: report.wanted.best,
    }
}
