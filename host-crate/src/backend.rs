//! Where a sampler runs.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::plan::Plan;
use crate::problem::Problem;

/// A machine that plans and runs problems: [`Cpu`](crate::Cpu) or
/// [`Cuda`](crate::cuda::Cuda). Sealed.
pub trait Backend: sealed::Sealed {
    /// The plan for a problem.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if nothing here can run it.
    fn plan(&self, problem: &Problem) -> Result<Plan, Error>;
}

pub(crate) mod sealed {
    /// Keeps [`Backend`](super::Backend) closed.
    pub trait Sealed {}
}
