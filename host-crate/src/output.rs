//! What a call writes.
#![forbid(unsafe_code)]

use flash_sampling_kernels::abi::NO_TOKEN;
use flash_sampling_kernels::status::Status;

use crate::error::{Error, Need};
use crate::problem::Problem;
use crate::report::Report;

/// The results of a call, each `[B, S]` in row-major order, and reports if they are wanted.
/// Reused from call to call: it grows to the largest problem and then allocates nothing.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Output {
    /// Tokens drawn, or [`NO_TOKEN`] for a row without an admissible one.
    pub tokens: Vec<u32>,
    /// What else there is to say about each token.
    pub status: Vec<Status>,
    /// Score of each token: `logit + temperature · noise`; `−inf` for [`NO_TOKEN`].
    pub scores: Vec<f32>,
    /// By how much each score exceeds the next best of the tokens that the filters keep: a
    /// small margin is a near-tie, which another order of summation may decide otherwise.
    pub margins: Vec<f32>,
    /// What is reported of the model's distribution: nothing unless [`Report::wanted`] says so.
    pub raw: Report,
    /// What is reported of each row's distribution: as `raw`.
    pub processed: Report,
}

impl Output {
    /// Checks what is wanted.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.raw.wanted.check()?;
        self.processed.wanted.check()
    }

    /// Makes room for the problem's results.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if there is no memory for them; nothing changes then.
    pub(crate) fn resize(&mut self, problem: &Problem) -> Result<(), Error> {
        let outputs = problem.outputs();
        let (rows, draws) = (problem.batch().into(), problem.draws().into());
        self.raw.reserve(rows, draws)?;
        self.processed.reserve(rows, draws)?;
        reserve(&mut self.tokens, outputs)?;
        reserve(&mut self.status, outputs)?;
        reserve(&mut self.scores, outputs)?;
        reserve(&mut self.margins, outputs)?;
        resize(&mut self.tokens, outputs, NO_TOKEN)?;
        resize(&mut self.status, outputs, Status::OK)?;
        resize(&mut self.scores, outputs, f32::NEG_INFINITY)?;
        resize(&mut self.margins, outputs, 0.0)?;
        self.raw.clear(rows, draws)?;
        self.processed.clear(rows, draws)
    }
}

/// Gives `values` the length `len`, without panicking for want of memory.
pub(crate) fn resize<T: Clone>(values: &mut Vec<T>, len: u64, value: T) -> Result<(), Error> {
    let len = reserve(values, len)?;
    values.resize(len, value);
    Ok(())
}

pub(crate) fn reserve<T>(values: &mut Vec<T>, len: u64) -> Result<usize, Error> {
    let len_here = usize::try_from(len).unwrap_or(usize::MAX);
    match values.try_reserve(len_here.saturating_sub(values.len())) {
        Ok(()) => Ok(len_here),
        Err(_) => Err(Error::Unsupported {
            need: Need::HostMemory,
            limit: isize::MAX as u64,
            found: len.saturating_mul(size_of::<T>() as u64),
        }),
    }
}
