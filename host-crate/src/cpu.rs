//! The CPU back end.

mod dot;
mod edits;
mod filters;
mod kept;
mod ladder;
mod lanes;
mod pool;
mod reference;
mod short;
mod spill;
mod tile;
mod tiled;
mod tops;
mod variant;

use self::pool::Pool;
pub use self::variant::CpuVariant;
use crate::backend::{Backend, sealed::Sealed};
use crate::error::{Error, Unmet};
use crate::inputs::Inputs;
use crate::output::Output;
use crate::params::SamplingParams;
use crate::plan::Plan;
use crate::problem::Problem;
use crate::report::Wanted;

/// How a CPU sampler is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOptions {
    /// Threads of the sampler's own pool; rayon's global pool without it. With 1, all
    /// work is done in the calling thread.
    pub threads: Option<usize>,
    /// The variant; this CPU's fastest without it.
    pub variant: Option<CpuVariant>,
}

/// This CPU: threads, a variant, and scratch that grows to the largest problem.
#[derive(Debug)]
pub struct Cpu {
    pool: Pool,
    /// Available here.
    variant: CpuVariant,
    forced: bool,
    tiled: tiled::Scratch,
    reference: reference::Scratch,
}

/// What one call reads; it has been checked.
struct Run<'a> {
    problem: &'a Problem,
    inputs: &'a Inputs<'a>,
    /// `[B]`.
    rows: &'a [SamplingParams],
    /// What to report of the model's distribution.
    raw: Wanted,
    /// What to report of each row's.
    processed: Wanted,
}

impl Cpu {
    /// The fastest variant on rayon's threads.
    pub(crate) fn detect() -> Self {
        Self {
            pool: Pool::Global,
            variant: CpuVariant::fastest(),
            forced: false,
            tiled: tiled::Scratch::default(),
            reference: reference::Scratch::default(),
        }
    }

    pub(crate) fn new(options: CpuOptions) -> Result<Self, Error> {
        let mut cpu = Self::detect();
        if let Some(variant) = options.variant {
            if let Some(Unmet { need, limit, found }) = variant.unmet() {
                return Err(Error::Unsupported { need, limit, found });
            }
            (cpu.variant, cpu.forced) = (variant, true);
        }
        cpu.pool = Pool::new(&options)?;
        Ok(cpu)
    }

    /// Fills `output`, which has the problem's size; B ≥ 1.
    pub(crate) fn run(
        &mut self,
        problem: &Problem,
        inputs: &Inputs<'_>,
        rows: &[SamplingParams],
        output: &mut Output,
    ) -> Result<(), Error> {
        let (raw, processed) = (output.raw.wanted, output.processed.wanted);
        let run = Run { problem, inputs, rows, raw, processed };
        match self.variant {
            CpuVariant::Reference => self.reference.run(&run, output),
            // SAFETY: `detect` and `new` take available variants only.
            variant => unsafe { self.tiled.run(&self.pool, variant, &run, output) },
        }
    }
}

impl Sealed for Cpu {}

impl Backend for Cpu {
    fn plan(&self, problem: &Problem) -> Result<Plan, Error> {
        Ok(Plan::for_cpu(problem, self.variant, self.forced))
    }
}
