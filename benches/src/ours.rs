//! Our call through the engine door, with nothing asked for but tokens and status.

use std::rc::Rc;

use flash_sampling::cuda::Cuda;
use flash_sampling::{Plan, Problem, Sampler};

use crate::contender::{Call, Contender, Outcome};
use crate::gpu::Gpu;
use crate::rows::Rows;
use crate::shapes::Shape;

/// Our sampler at one temperature.
#[derive(Debug)]
pub struct Ours {
    sampler: Rc<Sampler<Cuda>>,
    name: String,
    temperature: f32,
    programmatic: bool,
}

impl Ours {
    /// The sampler, with the variant it is forced to or the planner's. At temperature 0
    /// the noise is off.
    pub const fn new(sampler: Rc<Sampler<Cuda>>, name: String, temperature: f32) -> Self {
        Self { sampler, name, temperature, programmatic: false }
    }

    /// The same, whose calls may start before the call before has ended.
    #[must_use]
    pub fn programmatic(self) -> Self {
        Self { programmatic: true, ..self }
    }
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
        Ok(Box::new(OurCall {
            sampler: &self.sampler,
            programmatic: self.programmatic,
            gpu,
            rows: Rows::new(gpu, batch, self.temperature, plan.workspace_bytes)?,
            hidden_states,
            plan,
            problem,
        }))
    }
}

struct OurCall<'a> {
    sampler: &'a Sampler<Cuda>,
    programmatic: bool,
    gpu: &'a Gpu,
    plan: Plan,
    problem: Problem,
    hidden_states: u64,
    rows: Rows,
}

impl Call for OurCall<'_> {
    fn detail(&self) -> String {
        self.plan.variant.name().into()
    }

    unsafe fn enqueue(&self, weights: u64) -> anyhow::Result<()> {
        let operands = self.rows.operands(weights, self.hidden_states);
        // SAFETY: the plan is this sampler's for this problem; our buffers have its sizes
        // and live as long as the call, the caller promises the rest. One stream orders
        // the calls, and the workspace was cleared on it. The weights were written before
        // the host last waited.
        unsafe {
            let stream = self.gpu.raw_stream();
            if self.programmatic {
                self.sampler.enqueue_programmatic(&self.plan, &self.problem, &operands, stream)?;
            } else {
                self.sampler.enqueue(&self.plan, &self.problem, &operands, stream)?;
            }
        }
        Ok(())
    }

    fn poison(&self) -> anyhow::Result<()> {
        self.rows.poison(self.gpu)
    }

    fn outcome(&self) -> anyhow::Result<Outcome> {
        self.rows.outcome(self.gpu)
    }
}
