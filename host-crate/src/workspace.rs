//! The memory of a call beside its operands: how many bytes, and whether the caller has them.
#![forbid(unsafe_code)]

use flash_sampling_kernels::abi::{WorkspaceLayout, kept};

use crate::error::{Error, LayoutRule, Operand};
use crate::problem::Problem;

/// Bytes of scratch that the kernels need for a problem; they must be zero before the first
/// call and are zero again after each.
pub const fn workspace_bytes(problem: &Problem) -> u64 {
    WorkspaceLayout::new(problem.batch(), problem.draws()).bytes
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

/// Where the parts of a GPU's memory for rows' values begin, in bytes: first the values
/// `[B, V]` f32, rows rounded up to 16 bytes. It may hold anything, before a call and after
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptLayout {
    /// A second copy of the values, if there is one.
    pub(crate) raw_values: Option<u64>,
    /// What the blocks of a cluster tell each other, if they do.
    pub(crate) scratch: Option<u64>,
    /// All of it.
    pub(crate) bytes: u64,
}

impl KeptLayout {
    /// The layout for a problem with features.
    pub(crate) const fn new(problem: &Problem, raw_values: bool, scratch_bytes: u64) -> Self {
        // `Problem` has checked the product.
        let floats = problem.batch() as u64 * kept::values_stride(problem.vocab());
        let values_bytes = floats * size_of::<f32>() as u64;
        let scratch = if raw_values { 2 * values_bytes } else { values_bytes };
        Self {
            raw_values: if raw_values { Some(values_bytes) } else { None },
            scratch: if scratch_bytes > 0 { Some(scratch) } else { None },
            bytes: scratch + scratch_bytes,
        }
    }
}

/// Checks the caller's memory for values.
///
/// # Errors
/// [`Error::Layout`] if `provided_bytes` is too little.
pub(crate) fn check_kept(layout: &KeptLayout, provided_bytes: u64) -> Result<(), Error> {
    if provided_bytes < layout.bytes {
        let (operand, rule) = (Operand::Kept, LayoutRule::Bytes(layout.bytes));
        return Err(Error::Layout { operand, rule, found: provided_bytes });
    }
    Ok(())
}
