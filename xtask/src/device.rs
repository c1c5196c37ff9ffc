//! `cargo xtask device-bundle`, `device-test` and `sanitize`: the GPU tests, here or elsewhere.
//!
//! A GPU machine need not have Rust. The bundle holds the programs, linked against the
//! stub of `libcuda` and without a path to it, so that they find the real driver, and
//! the script that runs them. The other two tasks make a bundle and call its script:
//! what is run is written once, there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::programs::{self, Kind, Profile};
use crate::{cuda_stub, workspace};

/// The programs of a bundle, by the names of their cargo targets.
const PROGRAMS: [(Kind, &str); 6] = [
    (Kind::Test, "device"),
    (Kind::Test, "device_doors"),
    (Kind::Test, "device_features"),
    (Kind::Test, "device_programmatic"),
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
    #[command(flatten)]
    profile: Profile,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    profile: Profile,
    /// Passed to the test binaries
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run_bundle(args: BundleArgs) -> anyhow::Result<()> {
    let folder = args.out.unwrap_or_else(default_folder);
    let manifest = bundle(&folder, &args.profile)?;
    print!("{manifest}");
    println!("bundle in {}; run {RUNNER} there", workspace::shown(&folder));
    Ok(())
}

pub(crate) fn run_test(args: Args) -> anyhow::Result<()> {
    run_script("test", &args)
}

pub(crate) fn run_sanitize(args: Args) -> anyhow::Result<()> {
    run_script("sanitize", &args)
}

fn default_folder() -> PathBuf {
    workspace::target("device-bundle")
}

fn run_script(task: &str, args: &Args) -> anyhow::Result<()> {
    let folder = default_folder();
    bundle(&folder, &args.profile)?;
    workspace::run(Command::new(folder.join(RUNNER)).arg(task).args(&args.arguments))
}

/// Makes a bundle in `folder` and returns the text of its manifest.
fn bundle(folder: &Path, profile: &Profile) -> anyhow::Result<String> {
    let programs = programs::build(&PROGRAMS, profile, Some(&cuda_stub::build()?))?;
    fs::create_dir_all(folder)?;
    let mut manifest = format!("commit {}\n", workspace::commit());
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
