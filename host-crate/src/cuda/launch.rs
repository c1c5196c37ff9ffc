//! From checked operands to an entry on a stream: the only raw launch.

use std::ffi::c_void;
use std::ptr::{self, without_provenance, without_provenance_mut};

use flash_sampling_kernels::abi::{SampleParams, VARIANTS, Variant, WorkspaceLayout};

use super::RawOperands;
use super::driver::{self, Handle, check};
use super::module::Module;
use crate::error::{Call, Error, LayoutRule, Need, Operand};
use crate::plan::Plan;
use crate::problem::Problem;
use crate::workspace::check_workspace;

/// Blocks, threads of a block, and its dynamic shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
}

/// Enqueues the plan's entry.
///
/// # Safety
/// The module's context is current; the rest is as
/// [`Sampler::enqueue`](crate::Sampler::enqueue), with B ≥ 1.
pub(super) unsafe fn sample(
    module: &Module,
    plan: &Plan,
    problem: &Problem,
    operands: &RawOperands,
    stream: Handle,
) -> Result<(), Error> {
    let (function, variant) = module.entry(plan.variant).ok_or(Error::Unsupported {
        need: Need::VariantName,
        limit: VARIANTS.len() as u64,
        found: 0,
    })?;
    check_operands(variant, problem, operands)?;
    let bias = if problem.has_bias() { operands.bias } else { 0 };
    let mut weights = operands.weights;
    let mut hidden_states = operands.hidden_states;
    let mut params = SampleParams {
        bias: without_provenance(bias as usize),
        temperatures: without_provenance(operands.temperatures as usize),
        seeds: without_provenance(operands.seeds as usize),
        positions: without_provenance(operands.positions as usize),
        tokens: without_provenance_mut(operands.tokens as usize),
        status: without_provenance_mut(operands.status as usize),
        scores: without_provenance_mut(operands.scores as usize),
        margins: without_provenance_mut(operands.margins as usize),
        workspace: without_provenance_mut(operands.workspace as usize),
        weights_stride: problem.weights_stride(),
        hidden_stride: problem.hidden_stride(),
        batch: problem.batch(),
        vocab: problem.vocab(),
        hidden: problem.hidden(),
        draws: problem.draws(),
        first_token: problem.first_token(),
        weights_dtype: problem.weights_dtype() as u32,
        hidden_dtype: problem.hidden_dtype() as u32,
    };
    let mut arguments =
        [(&raw mut weights).cast(), (&raw mut hidden_states).cast(), (&raw mut params).cast()];
    let geometry =
        Geometry { blocks: plan.grid, threads: variant.threads, shared_bytes: plan.shared_bytes };
    // SAFETY: every sampling entry takes two matrix addresses and `SampleParams`
    // (`abi.rs`); the rest is the caller's promise.
    unsafe { launch(function, geometry, &mut arguments, stream) }
}

/// Enqueues an entry.
///
/// # Safety
/// `function` is an entry of the current context, `arguments` point to values of the
/// types that it takes, and what they lead to is valid until the stream has run it.
pub(super) unsafe fn launch(
    function: Handle,
    geometry: Geometry,
    arguments: &mut [*mut c_void],
    stream: Handle,
) -> Result<(), Error> {
    let Geometry { blocks, threads, shared_bytes } = geometry;
    // SAFETY: the caller's promise; the driver copies the arguments before it returns.
    let code = unsafe {
        driver::cuLaunchKernel(
            function,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            shared_bytes,
            stream,
            arguments.as_mut_ptr(),
            ptr::null_mut(),
        )
    };
    check(Call::Launch, code)
}

/// Checks what can be known of addresses without touching memory.
fn check_operands(
    variant: &Variant,
    problem: &Problem,
    operands: &RawOperands,
) -> Result<(), Error> {
    let matrix_alignment = |element_bytes: u64| variant.alignment_bytes.max(element_bytes);
    let required = [
        (Operand::Weights, operands.weights, matrix_alignment(problem.weights_dtype().bytes())),
        (
            Operand::HiddenStates,
            operands.hidden_states,
            matrix_alignment(problem.hidden_dtype().bytes()),
        ),
        (Operand::Temperatures, operands.temperatures, 4),
        (Operand::Seeds, operands.seeds, 8),
        (Operand::Positions, operands.positions, 8),
        (Operand::Tokens, operands.tokens, 4),
        (Operand::Status, operands.status, 4),
        (Operand::Workspace, operands.workspace, WorkspaceLayout::ALIGNMENT_BYTES),
    ];
    let optional = [
        (Operand::Bias, operands.bias, 4),
        (Operand::Scores, operands.scores, 4),
        (Operand::Margins, operands.margins, 4),
    ];
    let bias_required = problem.has_bias().then_some((Operand::Bias, operands.bias));
    let not_null = required.map(|(operand, address, _)| (operand, address));
    for (operand, address) in not_null.into_iter().chain(bias_required) {
        if address == 0 {
            return Err(Error::Layout { operand, rule: LayoutRule::NotNull, found: 0 });
        }
    }
    for (operand, address, alignment) in required.into_iter().chain(optional) {
        if !address.is_multiple_of(alignment) {
            let rule = LayoutRule::Alignment(alignment);
            return Err(Error::Layout { operand, rule, found: address });
        }
    }
    check_workspace(problem, operands.workspace_bytes)
}
