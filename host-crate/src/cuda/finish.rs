//! The launches behind a sampling kernel's: rows with features, and reports.

use flash_sampling_kernels::abi::kept::{KEPT_VARIANTS, KeptParams};

use super::driver::Handle;
use super::launch::{Geometry, launch};
use super::module::Module;
use super::programmatic::Launcher;
use super::{RawOperands, RawReport};
use crate::error::{Error, LayoutRule, Need, Operand, ReportPart};
use crate::plan::{Finish, Plan};
use crate::problem::Problem;
use crate::report::Wanted;

/// Alignment of the memory for values.
const KEPT_ALIGNMENT_BYTES: u64 = 16;

/// The entry of a plan for the module's device.
pub(super) fn entry(module: &Module, plan: &Finish) -> Result<Handle, Error> {
    module.finish(plan.entry).ok_or(Error::Unsupported {
        need: Need::VariantName,
        limit: KEPT_VARIANTS.len() as u64,
        found: 0,
    })
}

/// Enqueues a kernel that finishes rows or reports. With `early`, it may be set up while the
/// kernel before it ends, for which it waits by itself: those for Hopper do.
///
/// # Safety
/// As [`launch::sample`](super::launch::sample), which has enqueued the call with these
/// parameters on the same stream.
pub(super) unsafe fn launch_behind(
    function: Handle,
    geometry: Geometry,
    mut params: KeptParams,
    early: Option<&Launcher>,
    stream: Handle,
) -> Result<(), Error> {
    let arguments = &mut [(&raw mut params).cast()];
    // SAFETY: the entry takes `KeptParams` (`abi/kept.rs`); the rest is the caller's promise.
    unsafe {
        match early {
            Some(launcher) => launcher.launch(function, geometry, arguments, stream),
            None => launch(function, geometry, arguments, stream),
        }
    }
}

/// Checks what can be known of addresses without touching memory.
pub(super) fn check_operands(
    plan: &Plan,
    problem: &Problem,
    operands: &RawOperands,
) -> Result<(), Error> {
    let features = problem.features();
    if features.of_rows() {
        check_address(Operand::Features, operands.features, 8)?;
    }
    if plan.kept_bytes == 0 {
        return Ok(());
    }
    check_address(Operand::Kept, operands.kept, KEPT_ALIGNMENT_BYTES)?;
    if operands.kept_bytes < plan.kept_bytes {
        let (operand, rule) = (Operand::Kept, LayoutRule::Bytes(plan.kept_bytes));
        return Err(Error::Layout { operand, rule, found: operands.kept_bytes });
    }
    check_report(features.raw, &operands.raw, Operand::Raw)?;
    check_report(features.processed, &operands.processed, Operand::Processed)
}

fn check_report(
    wanted: Wanted,
    report: &RawReport,
    operand: impl Fn(ReportPart) -> Operand,
) -> Result<(), Error> {
    let lists = wanted.best > 0;
    for (wanted, part, address) in [
        (wanted.logprobs, ReportPart::LogSumExps, report.log_sum_exps),
        (wanted.logprobs, ReportPart::Logprobs, report.logprobs),
        (wanted.ranks, ReportPart::Ranks, report.ranks),
        (wanted.entropies, ReportPart::Entropies, report.entropies),
        (lists, ReportPart::BestTokens, report.best_tokens),
        (lists, ReportPart::BestLogprobs, report.best_logprobs),
    ] {
        if wanted {
            check_address(operand(part), address, 4)?;
        }
    }
    Ok(())
}

fn check_address(operand: Operand, address: u64, alignment: u64) -> Result<(), Error> {
    let rule = match address {
        0 => LayoutRule::NotNull,
        _ if !address.is_multiple_of(alignment) => LayoutRule::Alignment(alignment),
        _ => return Ok(()),
    };
    Err(Error::Layout { operand, rule, found: address })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::DeviceLimits;
    use crate::problem::Features;
    use flash_sampling_kernels::transform::LogitTransform;

    const LIMITS: DeviceLimits = DeviceLimits {
        compute_capability: 80,
        multiprocessors: 108,
        shared_bytes_per_block: 163 << 10,
        shared_bytes_per_sm: 164 << 10,
    };

    const ALL: Wanted = Wanted { logprobs: true, ranks: true, entropies: true, best: 3 };

    /// What checking the addresses of a problem with these features comes to, on an A100.
    fn check(features: Features, operands: &RawOperands) -> Result<(), Error> {
        let problem = Problem::builder(3, 100_001, 64).draws(2).features(features).build()?;
        let plan = Plan::for_gpu(&problem, &LIMITS, None)?;
        check_operands(&plan, &problem, operands)
    }

    const EVERYTHING: Features = Features {
        rules: true,
        filters: true,
        raw: ALL,
        processed: ALL,
        transform: LogitTransform::NONE,
    };

    /// Two copies of the values.
    const KEPT_BYTES: u64 = 2 * 3 * 100_004 * 4;

    /// Addresses without fault for everything; nothing is behind them.
    fn operands() -> RawOperands {
        let report = |at| RawReport {
            log_sum_exps: at,
            logprobs: at + 0x100,
            ranks: at + 0x204,
            entropies: at + 0x300,
            best_tokens: at + 0x404,
            best_logprobs: at + 0x500,
        };
        RawOperands {
            features: 0xA_0008,
            kept: 0xB_0010,
            kept_bytes: KEPT_BYTES,
            raw: report(0xC_0004),
            processed: report(0xD_0004),
            ..RawOperands::default()
        }
    }

    fn refusal(change: impl FnOnce(&mut RawOperands)) -> String {
        let mut operands = operands();
        change(&mut operands);
        check(EVERYTHING, &operands).unwrap_err().to_string()
    }

    #[test]
    fn good_addresses_pass() {
        assert_eq!(check(EVERYTHING, &operands()), Ok(()));
    }

    #[test]
    fn every_null_is_refused() {
        let expected = |name: &str| format!("{name} address: expected not null, found 0");
        assert_eq!(refusal(|o| o.features = 0), expected("features"));
        assert_eq!(refusal(|o| o.kept = 0), expected("kept"));
        assert_eq!(refusal(|o| o.raw.log_sum_exps = 0), expected("raw.log_sum_exps"));
        assert_eq!(refusal(|o| o.raw.logprobs = 0), expected("raw.logprobs"));
        assert_eq!(refusal(|o| o.raw.ranks = 0), expected("raw.ranks"));
        assert_eq!(refusal(|o| o.raw.entropies = 0), expected("raw.entropies"));
        assert_eq!(refusal(|o| o.raw.best_tokens = 0), expected("raw.best_tokens"));
        let (name, best_logprobs) = ("processed.best_logprobs", 0);
        assert_eq!(refusal(|o| o.processed.best_logprobs = best_logprobs), expected(name));
    }

    #[test]
    fn alignment_is_natural() {
        let expected = |name: &str, alignment: u64, found: u64| {
            format!("{name} address: expected a multiple of {alignment}, found {found}")
        };
        assert_eq!(refusal(|o| o.features = 12), expected("features", 8, 12));
        assert_eq!(refusal(|o| o.kept = 8), expected("kept", 16, 8));
        assert_eq!(refusal(|o| o.processed.ranks = 6), expected("processed.ranks", 4, 6));
    }

    #[test]
    fn too_little_memory_for_values_is_refused_with_both_sizes() {
        let (expected, found) = (KEPT_BYTES, KEPT_BYTES - 1);
        let expected = format!("kept bytes: expected at least {expected}, found {found}");
        assert_eq!(refusal(|o| o.kept_bytes -= 1), expected);
    }

    #[test]
    fn rules_need_their_rows_and_no_memory_where_they_are_applied_at_once() {
        let rules = Features { rules: true, ..Features::NONE };
        let problem = Problem::builder(3, 1_000, 64).features(rules).build().unwrap();
        let check = |features| {
            let operands = RawOperands { features, ..RawOperands::default() };
            let plan = Plan::for_gpu(&problem, &LIMITS, None).unwrap();
            check_operands(&plan, &problem, &operands).map_err(|error| error.to_string())
        };
        assert_eq!(check(8), Ok(()));
        assert_eq!(check(0).unwrap_err(), "features address: expected not null, found 0");
    }

    #[test]
    fn what_the_problem_does_not_want_may_be_anything() {
        let ranks = Wanted { ranks: true, ..Wanted::NONE };
        let raw = RawReport { ranks: 1, ..RawReport::default() };
        let processed = RawReport { ranks: 8, logprobs: 3, ..RawReport::default() };
        let some = RawOperands { features: 3, raw, processed, ..operands() };
        assert_eq!(check(Features { processed: ranks, ..Features::NONE }, &some), Ok(()));
        // One copy of the values, without a report on the logits.
        let half = RawOperands { kept_bytes: KEPT_BYTES / 2, ..some };
        assert_eq!(check(Features { processed: ranks, ..Features::NONE }, &half), Ok(()));
    }
}
