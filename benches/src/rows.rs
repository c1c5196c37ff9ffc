//! What the rows of a call have in device memory besides matrices.

use anyhow::ensure;
use flash_sampling::cuda::RawOperands;
use flash_sampling_kernels::abi::{Dtype, SampleParams};

use crate::contender::Outcome;
use crate::gpu::{Buffer, Gpu};
use crate::shapes::Shape;

/// Parameters and outputs of B rows with one draw each, and the call's workspace.
#[derive(Debug)]
pub struct Rows {
    /// `[B]` f32, all equal.
    pub temperatures: Buffer,
    /// `[B]` u64; see [`key`].
    pub seeds: Buffer,
    /// `[STEPS, B]` u64.
    pub positions: Buffer,
    /// `[B]` u32.
    pub tokens: Buffer,
    /// `[B]` u32.
    pub status: Buffer,
    /// Zero until the first call.
    pub workspace: Buffer,
    batch: u32,
}

/// Decode steps that calls may take in turn: what a filter does to a row depends on its noise.
pub const STEPS: u32 = 16;

/// Key of a row's noise at the first step: (seed, position).
pub const fn key(row: u32) -> (u64, u64) {
    (0x5EED_0000 + row as u64, 1000 + 3 * row as u64)
}

impl Rows {
    /// Rows that differ in their keys alone, and a cleared workspace.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(
        gpu: &Gpu,
        batch: u32,
        temperature: f32,
        workspace_bytes: u64,
    ) -> anyhow::Result<Self> {
        let (seeds, first): (Vec<_>, Vec<_>) = (0..batch).map(key).unzip();
        let steps = (0..u64::from(STEPS)).flat_map(|step| first.iter().map(move |at| at + step));
        let positions: Vec<_> = steps.collect();
        let rows = Self {
            temperatures: gpu.upload(&vec![temperature; batch as usize])?,
            seeds: gpu.upload(&seeds)?,
            positions: gpu.upload(&positions)?,
            tokens: gpu.allocate(u64::from(batch) * 4)?,
            status: gpu.allocate(u64::from(batch) * 4)?,
            workspace: gpu.allocate(workspace_bytes)?,
            batch,
        };
        gpu.fill(&rows.workspace, 0)?;
        Ok(rows)
    }

    /// The address of the positions at a step.
    pub fn positions_at(&self, step: u32) -> u64 {
        self.positions.address() + u64::from(step % STEPS) * u64::from(self.batch) * 8
    }

    /// The operands of a call that asks for tokens and status, at the first step.
    pub fn operands(&self, weights: u64, hidden_states: u64) -> RawOperands {
        RawOperands {
            weights,
            hidden_states,
            temperatures: self.temperatures.address(),
            seeds: self.seeds.address(),
            positions: self.positions_at(0),
            tokens: self.tokens.address(),
            status: self.status.address(),
            workspace: self.workspace.address(),
            workspace_bytes: self.workspace.bytes() as u64,
            ..RawOperands::default()
        }
    }

    /// What a kernel over stored logits is told: a draw a row, and nothing else asked for.
    pub fn sample_params(&self, shape: &Shape) -> SampleParams {
        SampleParams {
            temperatures: self.temperatures.pointer(),
            seeds: self.seeds.pointer(),
            positions: self.positions.pointer(),
            tokens: self.tokens.pointer(),
            status: self.status.pointer(),
            workspace: self.workspace.pointer(),
            weights_stride: shape.hidden.into(),
            hidden_stride: shape.hidden.into(),
            batch: self.batch,
            vocab: shape.vocab,
            hidden: shape.hidden,
            draws: 1,
            weights_dtype: Dtype::Bf16 as u32,
            hidden_dtype: Dtype::Bf16 as u32,
            ..SampleParams::NONE
        }
    }

    /// Overwrites the outputs with a token beyond every vocabulary that is not
    /// `NO_TOKEN`, and with status bits that do not exist.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn poison(&self, gpu: &Gpu) -> anyhow::Result<()> {
        gpu.fill(&self.tokens, 0xA5)?;
        gpu.fill(&self.status, 0xA5)
    }

    /// The tokens, when all that is enqueued has run.
    ///
    /// # Errors
    /// The call has failed, or a row's status is not clean.
    pub fn outcome(&self, gpu: &Gpu) -> anyhow::Result<Outcome> {
        let rows = self.batch as usize;
        for (row, status) in gpu.download::<u32>(&self.status, rows)?.iter().enumerate() {
            ensure!(*status == 0, "row {row} has status {status:#x}");
        }
        Ok(Outcome::Tokens(gpu.download(&self.tokens, rows)?))
    }
}
