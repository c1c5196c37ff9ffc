//! Variant `cpu_reference`: the portable GPU kernel, run natively as one block.

use std::mem::MaybeUninit;
use std::ptr::null;

use flash_sampling_kernels::abi::SampleParams;
use flash_sampling_kernels::dims::ceil_div;
use flash_sampling_kernels::kernels::sample_simt::{Shared, sample_simt};

use super::Run;
use crate::error::Error;
use crate::output::{Output, resize};
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

impl Scratch {
    pub(super) fn run(&mut self, run: &Run<'_>, output: &mut Output) -> Result<(), Error> {
        self.fill(run)?;
        let Run { problem, inputs, .. } = run;
        let params = SampleParams {
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
            ..problem.sample_params()
        };
        let mut shared = MaybeUninit::<Shared>::uninit();
        // SAFETY: `Problem` checked the sizes, `Inputs::problem` and `MatrixRef` that the
        // slices hold them; outputs and scratch were resized to them; `shared` is this
        // block's own, and legs write what later legs read.
        unsafe {
            sample_simt(
                inputs.weights.base_ptr(),
                inputs.hidden_states.base_ptr(),
                &params,
                shared.as_mut_ptr(),
                0,
                1,
            );
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
        let lines = ceil_div(workspace_bytes(run.problem), size_of::<Line>() as u64);
        resize(&mut self.workspace, lines, Line::default())
    }
}
