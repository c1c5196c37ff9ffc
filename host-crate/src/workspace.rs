//! The scratch of a call: how many bytes, and whether the caller has them.
#![forbid(unsafe_code)]

use flash_sampling_kernels::abi::WorkspaceLayout;

use crate::error::Error;
use crate::problem::Problem;

/// Bytes that the kernels need for a problem; they must be zero before the first call
/// and are zero again after each.
pub const fn workspace_bytes(problem: &Problem) -> u64 {
    let layout = WorkspaceLayout::new(problem.batch(), problem.draws());
    if problem.features().filters {
        layout.bytes_with_tallies(problem.batch())
    } else {
        layout.bytes
    }
}

/// Checks the caller's scratch.
///
/// # Errors
/// [`Error::Workspace`] if `provided_bytes` is too little for the problem.
pub fn check_workspace(problem: &Problem, provided_bytes: u64) -> Result<(), Error> {
    let required_bytes = workspace_bytes(problem);
    if provided_bytes < required_bytes {
        let clip = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        return Err(Error::Workspace {
            required: clip(required_bytes),
            provided: clip(provided_bytes),
        });
    }
    Ok(())
}
