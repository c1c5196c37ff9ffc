//! Where things are, and how a task starts another program.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root")
}

/// The folder under `target/` that a task calls its own.
pub(crate) fn target(name: &str) -> PathBuf {
    root().join("target").join(name)
}

/// A path as people read it: relative to the root where it lies below it.
pub(crate) fn shown(path: &Path) -> std::path::Display<'_> {
    path.strip_prefix(root()).unwrap_or(path).display()
}

/// The commit that is checked out, with a mark if files differ from it.
pub(crate) fn commit() -> String {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=40"]).current_dir(root());
    output(&mut git).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Runs a program to its end; an error names it and its exit status.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().display().to_string();
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    if !status.success() {
        bail!("{program}: {status}");
    }
    Ok(())
}

/// Runs a program to its end and returns what it printed; an error carries what it
/// said on its error stream.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{program}: output is not UTF-8"))
}
