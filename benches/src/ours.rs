//! Our call through the engine door, with nothing asked for but tokens and status.

use std::rc::Rc;

use flash_sampling::cuda::{Cuda, RawOperands};
use flash_sampling::{Plan, Problem, Sampler};

use crate::contender::{Call, Contender, Outcome};
use crate::gpu::{Buffer, Gpu};
use crate::shapes::Shape;

/// Our sampler at one temperature.
#[derive(Debug)]
pub struct Ours {
    sampler: Rc<Sampler<Cuda>>,
    name: String,
    temperature: f32,
}

impl Ours {
    /// The sampler, with the variant it is forced to or the planner's. At temperature 0
    /// the noise is off.
    pub const fn new(sampler: Rc<Sampler<Cuda>>, name: String, temperature: f32) -> Self {
        Self { sampler, name, temperature }
    }
}

/// Key of a row in the tests of tokens and in the timed calls: (seed, position).
pub const fn key(row: u32) -> (u64, u64) {
    (0x5EED_0000 + row as u64, 1000 + 3 * row as u64)
}

impl Contender for Ours {
    fn name(&self) -> &str {
        &self.name
    }

    fn temperature(&self) -> f32 {
        self.temperature
    }

    fn prepare<'a>(
        &'a self,
        gpu: &'a Gpu,
        shape: &Shape,
        batch: u32,
        hidden_states: u64,
    ) -> anyhow::Result<Box<dyn Call + 'a>> {
        let problem =
            Problem::builder(batch.into(), shape.vocab.into(), shape.hidden.into()).build()?;
        let plan = self.sampler.plan(&problem)?;
        let (seeds, positions): (Vec<_>, Vec<_>) = (0..batch).map(key).unzip();
        let workspace = gpu.allocate(plan.workspace_bytes)?;
        // SAFETY: the buffer has that size, and the stream is the primary context's.
        unsafe {
            let bytes = plan.workspace_bytes;
            self.sampler.clear_workspace(workspace.address(), bytes, gpu.raw_stream())?;
        }
        Ok(Box::new(OurCall {
            sampler: &self.sampler,
            gpu,
            temperatures: gpu.upload(&vec![self.temperature; batch as usize])?,
            seeds: gpu.upload(&seeds)?,
            positions: gpu.upload(&positions)?,
            tokens: gpu.allocate(u64::from(batch) * 4)?,
            status: gpu.allocate(u64::from(batch) * 4)?,
            workspace,
            hidden_states,
            plan,
            problem,
        }))
    }
}

struct OurCall<'a> {
    sampler: &'a Sampler<Cuda>,
    gpu: &'a Gpu,
    plan: Plan,
    problem: Problem,
    hidden_states: u64,
    temperatures: Buffer,
    seeds: Buffer,
    positions: Buffer,
    tokens: Buffer,
    status: Buffer,
    workspace: Buffer,
}

impl Call for OurCall<'_> {
    fn detail(&self) -> String {
        self.plan.variant.name().into()
    }

    unsafe fn enqueue(&self, weights: u64) -> anyhow::Result<()> {
        let operands = RawOperands {
            weights,
            hidden_states: self.hidden_states,
            bias: 0,
            temperatures: self.temperatures.address(),
            seeds: self.seeds.address(),
            positions: self.positions.address(),
            tokens: self.tokens.address(),
            status: self.status.address(),
            scores: 0,
            margins: 0,
            workspace: self.workspace.address(),
            workspace_bytes: self.plan.workspace_bytes,
        };
        // SAFETY: the plan is this sampler's for this problem; our buffers have its sizes
        // and live as long as the call, the caller promises the rest. One stream orders
        // the calls, and the workspace was cleared on it.
        unsafe {
            let stream = self.gpu.raw_stream();
            self.sampler.enqueue(&self.plan, &self.problem, &operands, stream)?;
        }
        Ok(())
    }

    fn poison(&self) -> anyhow::Result<()> {
        // A token beyond every vocabulary that is not `NO_TOKEN`, and impossible status bits.
        self.gpu.fill(&self.tokens, 0xA5)?;
        self.gpu.fill(&self.status, 0xA5)
    }

    fn outcome(&self) -> anyhow::Result<Outcome> {
        let rows = self.problem.batch() as usize;
        for (row, status) in self.gpu.download::<u32>(&self.status, rows)?.iter().enumerate() {
            anyhow::ensure!(*status == 0, "row {row} has status {status:#x}");
        }
        Ok(Outcome::Tokens(self.gpu.download(&self.tokens, rows)?))
    }
}
