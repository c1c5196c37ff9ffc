//! Variant `cpu_reference`: the portable GPU kernel, run natively.

use std::mem::MaybeUninit;
use std::ptr::null;

use flash_sampling_kernels::abi::{SampleParams, n_tiles_v, simt::TILE_B};
use flash_sampling_kernels::dims::ceil_div;
use flash_sampling_kernels::kernels::sample_simt::{Shared, sample_simt};

use super::Pool;
use crate::error::Error;
use crate::inputs::Inputs;
use crate::output::{Output, resize};
use crate::params::SamplingParams;
use crate::problem::Problem;
use crate::workspace::workspace_bytes;

/// Sixteen bytes of workspace, aligned.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(16))]
struct Line([u64; 2]);

/// What the kernel reads and writes beside the caller's operands.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    temperatures: Vec<f32>,
    seeds: Vec<u64>,
    positions: Vec<u64>,
    /// Zero between calls.
    workspace: Vec<Line>,
}

/// A launch, shared by the threads that run its blocks.
struct Launch {
    weights: *const u8,
    hidden_states: *const u8,
    params: SampleParams,
    blocks: u32,
}

// SAFETY: blocks may run in parallel: inputs are only read, the workspace is changed
// atomically, and only the block that finishes a batch tile writes its outputs.
unsafe impl Sync for Launch {}

impl Scratch {
    pub(super) fn run(
        &mut self,
        pool: &Pool,
        problem: &Problem,
        inputs: &Inputs<'_>,
        rows: &[SamplingParams],
        output: &mut Output,
    ) -> Result<(), Error> {
        self.fill(problem, rows)?;
        let items = u64::from(n_tiles_v(problem.first_token(), problem.vocab()))
            * ceil_div(problem.batch().into(), TILE_B.into());
        let blocks = items.min(pool.threads() as u64).max(1) as u32;
        let launch = Launch {
            weights: inputs.weights.base_ptr(),
            hidden_states: inputs.hidden_states.base_ptr(),
            params: SampleParams {
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
                weights_stride: problem.weights_stride(),
                hidden_stride: problem.hidden_stride(),
                batch: problem.batch(),
                vocab: problem.vocab(),
                hidden: problem.hidden(),
                draws: problem.draws(),
                first_token: problem.first_token(),
                weights_dtype: problem.weights_dtype() as u32,
                hidden_dtype: problem.hidden_dtype() as u32,
            },
            blocks,
        };
        pool.for_each(blocks as usize, |block| launch.run_block(block as u32));
        Ok(())
    }

    fn fill(&mut self, problem: &Problem, rows: &[SamplingParams]) -> Result<(), Error> {
        let batch = rows.len() as u64;
        resize(&mut self.temperatures, batch, 0.0)?;
        resize(&mut self.seeds, batch, 0)?;
        resize(&mut self.positions, batch, 0)?;
        for (row, params) in rows.iter().enumerate() {
            self.temperatures[row] = params.temperature;
            self.seeds[row] = params.key.seed;
            self.positions[row] = params.key.position;
        }
        let lines = ceil_div(workspace_bytes(problem), size_of::<Line>() as u64);
        resize(&mut self.workspace, lines, Line::default())
    }
}

impl Launch {
    fn run_block(&self, block: u32) {
        let mut shared = MaybeUninit::<Shared>::uninit();
        // SAFETY: `Problem` checked the sizes, `Inputs::problem` and `MatrixRef` that the
        // slices hold them; outputs and scratch were resized to them; `shared` is this
        // block's own, and legs write what later legs read.
        unsafe {
            sample_simt(
                self.weights,
                self.hidden_states,
                &self.params,
                shared.as_mut_ptr(),
                block,
                self.blocks,
            );
        }
    }
}
