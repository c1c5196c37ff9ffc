//! `cargo xtask ci`: exactly what CI runs, as a list of commands that anybody can repeat.
//!
//! The order is cheap before dear. All steps name the same packages and compile in the tests'
//! profile, so that the large dependencies are checked once and compiled once.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::workspace;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave the device compiler and ptxas as they are; needs neither network nor root
    #[arg(long)]
    skip_setup: bool,
    /// Print the commands and run none
    #[arg(long)]
    list: bool,
}

/// One line of shell, run in the root of the repository.
struct Step {
    name: &'static str,
    command: &'static str,
}

const SETUP: &str = "device compiler";

const STEPS: [Step; 15] = [
    Step { name: SETUP, command: "cargo xtask setup" },
    Step { name: "format", command: "cargo fmt --all --check" },
    Step { name: "tidy", command: "cargo xtask tidy" },
    Step { name: "PTX", command: "cargo xtask build-ptx --check" },
    Step { name: "PTX of the benchmarks", command: "cargo xtask bench-ptx --check" },
    Step { name: "PTX report", command: "cargo xtask ptx-report" },
    Step { name: "stub of libcuda", command: "cargo xtask cuda-stub" },
    Step { name: "lint", command: "cargo clippy --workspace --all-targets -- --deny warnings" },
    Step {
        name: "lint, feature cuda",
        command: "CUDA_LIBRARY_PATH=$PWD/target/cuda-stub \
                  cargo clippy --workspace --all-targets --features cuda -- --deny warnings",
    },
    Step {
        name: "documentation",
        command: "RUSTDOCFLAGS='--deny warnings' cargo doc --workspace --no-deps",
    },
    Step {
        name: "documentation, feature cuda",
        command: "CUDA_LIBRARY_PATH=$PWD/target/cuda-stub RUSTDOCFLAGS='--deny warnings' \
                  cargo doc --workspace --no-deps --features cuda",
    },
    // The README's own line.
    Step { name: "tests", command: "cargo test --workspace" },
    Step { name: "GPU programs", command: "cargo xtask device-bundle --profile test" },
    Step {
        name: "GPU tests without a driver",
        command: "export LD_LIBRARY_PATH=$PWD/target/cuda-stub/lib64; \
                  target/device-bundle/device && target/device-bundle/device_doors && \
                  target/device-bundle/device_features && \
                  target/device-bundle/device_programmatic",
    },
    Step { name: "demo", command: "cargo xtask demo --check --profile test" },
];

/// Tests run, and steps that are not tests, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let steps = STEPS.iter().filter(|step| !(args.skip_setup && step.name == SETUP));
    if args.list {
        steps.for_each(|step| println!("{}", step.command));
        return Ok(());
    }
    let start = Instant::now();
    let mut report = String::new();
    let mut total = Counts::default();
    for step in steps {
        println!("\n==> {}: {}", step.name, step.command);
        let begin = Instant::now();
        let (status, counts) = execute(step.command, &mut std::io::stdout())?;
        let outcome = if status.success() { "ok" } else { "failed" };
        report += &format!("{outcome:6} {:>8}  {}\n", clock(begin.elapsed()), step.name);
        total = total.with(status.success(), counts);
        if !status.success() {
            println!("\n{report}\n{}: {status}; repeat it with\n  {}", step.name, step.command);
            break;
        }
    }
    if total.failed == 0 {
        println!("\n{report}");
    }
    println!("total  {:>8}", clock(start.elapsed()));
    println!("{} passed, {} failed", total.passed, total.failed);
    if total.failed > 0 {
        // The counts are the last line: no error message after them.
        std::process::exit(1);
    }
    Ok(())
}

impl Counts {
    /// Adds a step: its tests, or one where it has none or failed beside them.
    fn with(self, success: bool, step: Self) -> Self {
        let Self { mut passed, mut failed } = step;
        if success && passed == 0 {
            passed = 1;
        }
        if !success && failed == 0 {
            failed = 1;
        }
        Self { passed: self.passed + passed, failed: self.failed + failed }
    }
}

/// Runs a line of shell, passing its output on and counting the tests in it.
fn execute(command: &str, shown: &mut impl Write) -> anyhow::Result<(ExitStatus, Counts)> {
    let mut child = Command::new("bash")
        .args(["-c", command])
        .current_dir(workspace::root())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start bash")?;
    let mut counts = Counts::default();
    let output = BufReader::new(child.stdout.take().context("no output")?);
    for line in output.split(b'\n') {
        let line = line?;
        shown.write_all(&line)?;
        shown.write_all(b"\n")?;
        if let Some(run) = test_counts(&String::from_utf8_lossy(&line)) {
            counts.passed += run.passed;
            counts.failed += run.failed;
        }
    }
    Ok((child.wait()?, counts))
}

/// The counts in the closing line of one test binary.
fn test_counts(line: &str) -> Option<Counts> {
    let outcome = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut parts = outcome.split("; ");
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some(Counts { passed, failed })
}

/// Minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_counted_and_others_are_not() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 1 filtered \
                    out; finished in 0.00s";
        assert_eq!(test_counts(line), Some(Counts { passed: 12, failed: 3 }));
        assert_eq!(test_counts("test result_is_kept ... ok"), None);
    }

    #[test]
    fn a_step_counts_for_something() {
        let none = Counts::default();
        let some = Counts { passed: 5, failed: 0 };
        assert_eq!(none.with(true, none), Counts { passed: 1, failed: 0 });
        assert_eq!(none.with(true, some), some);
        assert_eq!(none.with(false, none), Counts { passed: 0, failed: 1 });
        assert_eq!(some.with(false, some), Counts { passed: 10, failed: 1 });
    }

    #[test]
    fn a_failing_command_is_told_from_a_passing_one() {
        let command = "echo 'test result: ok. 2 passed; 0 failed'; exit 3";
        let mut shown = Vec::new();
        let (status, counts) = execute(command, &mut shown).expect("bash is there");
        assert_eq!((status.code(), counts), (Some(3), Counts { passed: 2, failed: 0 }));
        assert_eq!(shown, b"test result: ok. 2 passed; 0 failed\n");
    }
}
