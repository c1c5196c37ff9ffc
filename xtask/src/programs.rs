//! Programs of the workspace, compiled in the release profile or another.
//!
//! Every package is selected each time: cargo unifies features over what is selected,
//! so that all tasks share the dependencies that they compile.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::workspace;

/// A kind of cargo target.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Test,
    Bench,
    Example,
}

impl Kind {
    /// The option that selects one.
    const fn option(self) -> &'static str {
        match self {
            Self::Test => "--test",
            Self::Bench => "--bench",
            Self::Example => "--example",
        }
    }
}

/// How programs are compiled.
#[derive(clap::Args)]
pub(crate) struct Profile {
    /// Profile of cargo: `test` is the one that the tests' dependencies are compiled in already
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
}

/// Compiles programs, by the names of their targets, and returns their paths in the same
/// order. With a stub of `libcuda`, they have the feature `cuda`.
pub(crate) fn build(
    programs: &[(Kind, &str)],
    Profile { profile }: &Profile,
    cuda_stub: Option<&Path>,
) -> anyhow::Result<Vec<PathBuf>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--profile", profile.as_str(), "--workspace"])
        .arg("--message-format=json-render-diagnostics")
        .args(programs.iter().flat_map(|(kind, name)| [kind.option(), *name]))
        .current_dir(workspace::root())
        // For the reports of the benchmark.
        .env("FLASH_SAMPLING_COMMIT", workspace::commit())
        .stdout(Stdio::piped());
    if let Some(stub) = cuda_stub {
        cargo.arg("--features=cuda").env("CUDA_LIBRARY_PATH", stub);
    }
    let mut child = cargo.spawn().context("cannot start cargo")?;
    let messages = BufReader::new(child.stdout.take().context("no output")?);
    let mut built = Vec::new();
    for line in messages.lines() {
        let message: Message = serde_json::from_str(&line?)?;
        built.extend(message.target.zip(message.executable));
    }
    let status = child.wait()?;
    ensure!(status.success(), "cargo build: {status}");
    let path = |name: &str| {
        let found = built.iter().find(|(target, _)| target.name == name);
        found.map(|(_, path)| path.clone()).with_context(|| format!("cargo built no {name}"))
    };
    programs.iter().map(|(_, name)| path(name)).collect()
}

/// What cargo says of an artifact; its other messages have neither field.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}
