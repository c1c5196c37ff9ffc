//! The one public door.

use crate::backend::Backend;
use crate::cpu::{Cpu, CpuOptions};
use crate::error::{Axis, Error, Operand, Size};
use crate::inputs::Inputs;
use crate::output::Output;
use crate::params::{SamplingParams, validate};
use crate::plan::Plan;
use crate::problem::Problem;

/// Draws tokens from the distribution that an LM head and each row's parameters define.
#[derive(Debug)]
pub struct Sampler<B: Backend = Cpu> {
    pub(crate) backend: B,
}

impl<B: Backend> Sampler<B> {
    /// How a problem would run here, and why no other way.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if nothing here can run it.
    pub fn plan(&self, problem: &Problem) -> Result<Plan, Error> {
        self.backend.plan(problem)
    }
}

impl Sampler<Cpu> {
    /// A sampler on this CPU: its fastest variant, rayon's threads.
    pub fn cpu() -> Self {
        Self { backend: Cpu::detect() }
    }

    /// A sampler on this CPU, as told.
    ///
    /// # Errors
    /// [`Error::Param`] for no threads, [`Error::Unsupported`] for a variant that this CPU
    /// lacks or threads that the system refuses.
    pub fn cpu_with(options: CpuOptions) -> Result<Self, Error> {
        Ok(Self { backend: Cpu::new(options)? })
    }

    /// Draws `draws` tokens for each row of `inputs.hidden_states` into `output`.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Layout`], [`Error::Param`], [`Error::ParamLength`],
    /// [`Error::Token`] or [`Error::Unsupported`], before anything is computed.
    pub fn sample(
        &mut self,
        inputs: &Inputs<'_>,
        rows: &[SamplingParams],
        draws: u32,
        output: &mut Output,
    ) -> Result<(), Error> {
        let problem = inputs.problem(u64::from(draws))?;
        check_rows(&problem, rows)?;
        output.check()?;
        output.resize(&problem)?;
        if problem.batch() == 0 {
            return Ok(());
        }
        self.backend.run(&problem, inputs, rows, output)
    }
}

/// Checks that there is one valid set of parameters for each batch row.
pub(crate) fn check_rows(problem: &Problem, rows: &[SamplingParams]) -> Result<(), Error> {
    if rows.len() as u64 != u64::from(problem.batch()) {
        return Err(Error::Shape {
            operand: Operand::Params,
            axis: Axis::B,
            expected: Size::Exactly(u64::from(problem.batch())),
            found: rows.len() as u64,
        });
    }
    validate(rows)
}
