//! From checked operands to an entry on a stream: the only raw launch.

use std::ffi::c_void;
use std::ptr;

use flash_sampling_kernels::abi::kept::ReportParams;
use flash_sampling_kernels::abi::{Kernel, TILE_V, VARIANTS, Variant, WorkspaceLayout};

use super::driver::{self, Handle, check};
use super::finish;
use super::module::Module;
use super::params::{kept_params, sample_params};
use super::programmatic::Launcher;
use super::tensor_map::Layout;
use super::{RawOperands, Start};
use crate::error::{Call, Error, LayoutRule, Need, Operand};
use crate::plan::{Finish, LogSumExp, Plan};
use crate::problem::Problem;
use crate::workspace::check_workspace;

/// Blocks, threads of a block, and its dynamic shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
}

/// Enqueues the plan's entry, and those that finish rows and reports where there are any.
///
/// # Safety
/// The module's context is current; the rest is as
/// [`Sampler::enqueue`](crate::Sampler::enqueue), or
/// [`Sampler::enqueue_programmatic`](crate::Sampler::enqueue_programmatic) if it may start
/// early, with B ≥ 1.
pub(super) unsafe fn sample(
    module: &Module,
    plan: &Plan,
    problem: &Problem,
    operands: &RawOperands,
    start: Start,
    stream: Handle,
) -> Result<(), Error> {
    let (variant, function) = module.entry(plan.variant).ok_or(Error::Unsupported {
        need: Need::VariantName,
        limit: VARIANTS.len() as u64,
        found: 0,
    })?;
    check_operands(variant, problem, operands)?;
    finish::check_operands(plan, problem, operands)?;
    let finish = match &plan.finish {
        Some(finish) => Some((finish, finish::entry(module, finish)?)),
        None => None,
    };
    let mut weights = operands.weights;
    let mut hidden_states = operands.hidden_states;
    let mut params = sample_params(problem, plan, operands);
    let geometry =
        Geometry { blocks: plan.grid, threads: variant.threads, shared_bytes: plan.shared_bytes };
    // SAFETY: a sampling entry takes its two matrices and `SampleParams` (`abi.rs`); the
    // rest is the caller's promise.
    let mut launch_with = |weights, hidden_states, early: Option<&Launcher>| unsafe {
        let arguments = &mut [weights, hidden_states, (&raw mut params).cast()];
        match early {
            Some(launcher) => launcher.launch(function, geometry, arguments, stream),
            None => launch(function, geometry, arguments, stream),
        }
    };
    match &module.hopper {
        Some(hopper) if variant.kernel == Kernel::SampleSm90 => {
            let (weights, hidden_states) = matrices(problem, operands);
            let mut weights = hopper.tensor_maps.encode(weights, TILE_V)?;
            // The blocks of a cluster copy a share each.
            let share_rows = variant.tile_b / variant.cluster;
            let mut hidden_states = hopper.tensor_maps.encode(hidden_states, share_rows)?;
            let early = (start == Start::Early).then_some(&hopper.programmatic);
            launch_with((&raw mut weights).cast(), (&raw mut hidden_states).cast(), early)?;
        }
        // The other kernels do not wait by themselves.
        _ => launch_with((&raw mut weights).cast(), (&raw mut hidden_states).cast(), None)?,
    }
    let params = kept_params(problem, plan, operands, params);
    let early = module.hopper.as_ref().map(|hopper| &hopper.programmatic);
    if let Some((finish, function)) = finish {
        let Finish { grid: blocks, threads, shared_bytes, .. } = *finish;
        let geometry = Geometry { blocks, threads, shared_bytes };
        let mut params = params;
        if plan.log_sum_exp.is_some() {
            // Reports are the next kernel's.
            (params.raw, params.processed) = (ReportParams::NONE, ReportParams::NONE);
        }
        // SAFETY: as above, of the entry that finishes what the one before left.
        unsafe { finish::launch_behind(function, geometry, params, early, stream)? }
    }
    if let Some(log_sum_exp) = &plan.log_sum_exp {
        let LogSumExp { grid: blocks, threads, shared_bytes, .. } = *log_sum_exp;
        let geometry = Geometry { blocks, threads, shared_bytes };
        // SAFETY: the same.
        unsafe {
            finish::launch_behind(module.log_sum_exp, geometry, params, early, stream)?;
        }
    }
    Ok(())
}

/// The weights' and the hidden states' place in memory.
fn matrices(problem: &Problem, operands: &RawOperands) -> (Layout, Layout) {
    let columns = problem.hidden();
    let weights = Layout {
        address: operands.weights,
        dtype: problem.weights_dtype(),
        rows: problem.vocab(),
        columns,
        row_stride: problem.weights_stride(),
    };
    let hidden_states = Layout {
        address: operands.hidden_states,
        dtype: problem.hidden_dtype(),
        rows: problem.batch(),
        columns,
        row_stride: problem.hidden_stride(),
    };
    (weights, hidden_states)
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

#[cfg(test)]
mod tests {
    use super::*;

    const VARIANT: &Variant = &VARIANTS[1];

    fn problem() -> Problem {
        Problem::builder(3, 1000, 64).draws(2).bias(true).build().unwrap()
    }

    /// Addresses without fault for the variant; nothing is behind them.
    fn operands() -> RawOperands {
        RawOperands {
            weights: 0x1_0000,
            hidden_states: 0x2_0010,
            bias: 0x3_0004,
            temperatures: 0x4_0004,
            seeds: 0x5_0008,
            positions: 0x6_0008,
            tokens: 0x7_0004,
            status: 0x8_0004,
            scores: 0,
            margins: 0,
            workspace: 0x9_0010,
            workspace_bytes: crate::workspace_bytes(&problem()),
            ..RawOperands::default()
        }
    }

    fn refusal(change: impl FnOnce(&mut RawOperands)) -> String {
        let mut operands = operands();
        change(&mut operands);
        check_operands(VARIANT, &problem(), &operands).unwrap_err().to_string()
    }

    #[test]
    fn good_addresses_pass() {
        assert_eq!(check_operands(VARIANT, &problem(), &operands()), Ok(()));
    }

    #[test]
    fn every_null_is_refused_but_the_optional_outputs() {
        let expected = |name: &str| format!("{name} address: expected not null, found 0");
        assert_eq!(refusal(|o| o.weights = 0), expected("weights"));
        assert_eq!(refusal(|o| o.hidden_states = 0), expected("hidden_states"));
        assert_eq!(refusal(|o| o.bias = 0), expected("bias"));
        assert_eq!(refusal(|o| o.temperatures = 0), expected("temperatures"));
        assert_eq!(refusal(|o| o.seeds = 0), expected("seeds"));
        assert_eq!(refusal(|o| o.positions = 0), expected("positions"));
        assert_eq!(refusal(|o| o.tokens = 0), expected("tokens"));
        assert_eq!(refusal(|o| o.status = 0), expected("status"));
        assert_eq!(refusal(|o| o.workspace = 0), expected("workspace"));
    }

    #[test]
    fn alignment_is_the_variants_for_matrices_and_natural_for_the_rest() {
        let expected = |name: &str, alignment: u64, found: u64| {
            format!("{name} address: expected a multiple of {alignment}, found {found}")
        };
        assert_eq!(refusal(|o| o.weights = 8), expected("weights", 16, 8));
        assert_eq!(refusal(|o| o.hidden_states = 18), expected("hidden_states", 16, 18));
        assert_eq!(refusal(|o| o.seeds = 4), expected("seeds", 8, 4));
        assert_eq!(refusal(|o| o.scores = 2), expected("scores", 4, 2));
        assert_eq!(refusal(|o| o.workspace = 8), expected("workspace", 16, 8));
        // The portable variant asks for the elements' alignment only.
        let mut operands = operands();
        operands.weights = 2;
        assert_eq!(check_operands(&VARIANTS[0], &problem(), &operands), Ok(()));
        operands.weights = 1;
        let refusal = check_operands(&VARIANTS[0], &problem(), &operands).unwrap_err();
        assert_eq!(refusal.to_string(), expected("weights", 2, 1));
    }

    #[test]
    fn too_little_workspace_is_refused_with_both_sizes() {
        let required = crate::workspace_bytes(&problem());
        let expected =
            format!("workspace: expected at least {required} bytes, found {}", required - 1);
        assert_eq!(refusal(|o| o.workspace_bytes -= 1), expected);
    }
}
