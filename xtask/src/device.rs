//! `cargo xtask device-bundle`, `device-test` and `sanitize`: the GPU tests, here or elsewhere.
//!
//! A GPU machine need not have Rust. The bundle holds the programs, linked against the
//! stub of `libcuda` and without a path to it, so that they find the real driver, and
//! the script that runs them. The other two tasks make a bundle and call its script:
//! what is run is written once, there.

use std::fs;
use std::io::BufRead;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::{cuda_stub, workspace};

/// The programs of a bundle, by the names of their cargo targets.
const PROGRAMS: [(Kind, &str); 4] = [
    (Kind::Test, "device"),
    (Kind::Test, "device_doors"),
    (Kind::Bench, "decode"),
    (Kind::Example, "generate"),
];

const RUNNER: &str = "run-device-tests.sh";
const RUNNER_TEXT: &str = include_str!("device/run-device-tests.sh");

/// What the bundle holds and which commit it is, for people who carry it.
const MANIFEST: &str = "MANIFEST";

#[derive(clap::Args)]
pub(crate) struct BundleArgs {
    /// Where to put it
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct TestArgs {
    /// Passed to the test binaries
    #[arg(last = true)]
    arguments: Vec<String>,
}

#[derive(clap::Args)]
pub(crate) struct SanitizeArgs {
    /// Passed to the test binaries
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// A kind of cargo target, by the option that selects it.
#[derive(Clone, Copy)]
enum Kind {
    Test,
    Bench,
    Example,
}

impl Kind {
    const fn option(self) -> &'static str {
        match self {
            Self::Test => "--test",
            Self::Bench => "--bench",
            Self::Example => "--example",
        }
    }
}

pub(crate) fn run_bundle(args: BundleArgs) -> anyhow::Result<()> {
    let folder = args.out.unwrap_or_else(default_folder);
    let manifest = bundle(&folder)?;
    print!("{manifest}");
    println!("bundle in {}; run {RUNNER} there", workspace::shown(&folder));
    Ok(())
}

pub(crate) fn run_test(args: TestArgs) -> anyhow::Result<()> {
    run_script("test", &args.arguments)
}

pub(crate) fn run_sanitize(args: SanitizeArgs) -> anyhow::Result<()> {
    run_script("sanitize", &args.arguments)
}

fn default_folder() -> PathBuf {
    workspace::target("device-bundle")
}

fn run_script(task: &str, arguments: &[String]) -> anyhow::Result<()> {
    let folder = default_folder();
    bundle(&folder)?;
    workspace::run(Command::new(folder.join(RUNNER)).arg(task).args(arguments))
}

/// Makes a bundle in `folder` and returns the text of its manifest.
fn bundle(folder: &Path) -> anyhow::Result<String> {
    let programs = build(&cuda_stub::build()?)?;
    fs::create_dir_all(folder)?;
    let mut manifest = format!("commit {}\n", commit());
    for ((_, name), built) in PROGRAMS.iter().zip(&programs) {
        let path = folder.join(name);
        let bytes =
            fs::copy(built, &path).with_context(|| format!("cannot copy to {}", path.display()))?;
        manifest += &format!("{bytes:>10} bytes  {name}\n");
    }
    let runner = folder.join(RUNNER);
    fs::write(&runner, RUNNER_TEXT)?;
    fs::set_permissions(&runner, fs::Permissions::from_mode(0o755))?;
    manifest += &format!("{:>10} bytes  {RUNNER}\n", RUNNER_TEXT.len());
    fs::write(folder.join(MANIFEST), &manifest)?;
    Ok(manifest)
}

/// Compiles the programs and returns their paths, in the order of [`PROGRAMS`].
fn build(stub: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--release", "--workspace", "--features=cuda"])
        .arg("--message-format=json-render-diagnostics")
        .args(PROGRAMS.iter().flat_map(|(kind, name)| [kind.option(), *name]))
        .env("CUDA_LIBRARY_PATH", stub)
        // For the reports of the benchmark.
        .env("FLASH_SAMPLING_COMMIT", commit())
        .current_dir(workspace::root())
        .stdout(Stdio::piped());
    let mut child = cargo.spawn().context("cannot start cargo")?;
    let messages = std::io::BufReader::new(child.stdout.take().context("no output")?);
    let mut built = Vec::new();
    for line in messages.lines() {
        let message: Message = serde_json::from_str(&line?)?;
        built.extend(message.target.zip(message.executable));
    }
    let status = child.wait()?;
    ensure!(status.success(), "cargo build of the GPU programs: {status}");
    let path = |name: &str| {
        let found = built.iter().find(|(target, _)| target.name == name);
        found.map(|(_, path)| path.clone()).with_context(|| format!("cargo built no {name}"))
    };
    PROGRAMS.iter().map(|(_, name)| path(name)).collect()
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

/// The commit the bundle was built from, with a mark for what is not committed.
fn commit() -> String {
    let described = workspace::output(
        Command::new("git")
            .args(["describe", "--always", "--dirty", "--abbrev=40"])
            .current_dir(workspace::root()),
    );
    described.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_runs_the_bundled_programs() {
        for (_, name) in PROGRAMS {
            assert!(RUNNER_TEXT.contains(name), "{RUNNER} does not know {name}");
        }
    }
}
