//! `cargo xtask setup`: the device compiler, and ptxas and nvdisasm to check what it makes.
//!
//! Uses the network, through apt and pip, and says what it runs.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::{build_ptx, ptxas, sass, workspace};

/// The PyPI packages that carry ptxas and nvdisasm. Pinned, so that registers compare.
const PACKAGES: [&str; 2] = ["nvidia-cuda-nvcc==13.5.37", "nvidia-cuda-nvdisasm==13.5.37"];

/// Where there is no `rustc-web`.
const RUSTUP: &str = "everywhere but on Debian 12 it comes from rustup:\n  \
                      rustup toolchain install nightly --component rust-src,llvm-tools";

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> anyhow::Result<()> {
    match ptxas::find().and_then(|ptxas| sass::find(&ptxas).map(|_| ptxas)) {
        Ok(ptxas) => println!("ptxas and nvdisasm: {}, nothing to do", ptxas.version),
        Err(_) => unpack_ptxas()?,
    }
    match build_ptx::device_compiler() {
        Ok(compiler) => println!("device compiler: {compiler}, nothing to do"),
        Err(_) => install_compiler().with_context(|| format!("no device compiler; {RUSTUP}"))?,
    }
    Ok(())
}

/// Debian's compiler, with the LLVM tools of its own version.
fn install_compiler() -> anyhow::Result<()> {
    ensure!(can_install(), "this is not root on a machine with apt-get");
    announce(Command::new("apt-get").arg("update"))?;
    apt_install(&["rustc-web", "rust-web-src"])?;
    let llvm = build_ptx::llvm_major(Path::new(build_ptx::DEBIAN_RUSTC))?;
    apt_install(&[&format!("llvm-{llvm}")])?;
    println!("device compiler: {}", build_ptx::device_compiler()?);
    Ok(())
}

fn unpack_ptxas() -> anyhow::Result<()> {
    let folder = ptxas::unpacked();
    let wheels = folder.join("wheels");
    fs::create_dir_all(&wheels)?;
    let pip = || {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip"]);
        pip
    };
    if workspace::output(pip().arg("--version")).is_err() {
        ensure!(can_install(), "ptxas comes from PyPI, which needs python3 with pip");
        announce(Command::new("apt-get").arg("update"))?;
        apt_install(&["python3-pip"])?;
    }
    announce(
        pip()
            .args(["download", "--no-deps", "--only-binary=:all:"])
            .args(PACKAGES)
            .arg("--dest")
            .arg(&wheels),
    )?;
    for wheel in fs::read_dir(&wheels)? {
        announce(
            Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel?.path()).arg(&folder),
        )?;
    }
    // The wheels' archives have no modes that zipfile would restore.
    let program = ptxas::unpacked_program();
    announce(
        Command::new("chmod").arg("+x").args([&program, &program.with_file_name("nvdisasm")]),
    )?;
    let ptxas = ptxas::find().context("the wheel has changed its layout")?;
    sass::find(&ptxas)?;
    println!("ptxas and nvdisasm: {}", ptxas.version);
    Ok(())
}

/// Whether this is root on a machine with apt.
fn can_install() -> bool {
    let user = workspace::output(Command::new("id").arg("-u"));
    let apt = workspace::output(Command::new("apt-get").arg("--version"));
    user.is_ok_and(|user| user.trim() == "0") && apt.is_ok()
}

/// Installs packages, unless others would have to go.
fn apt_install(packages: &[&str]) -> anyhow::Result<()> {
    announce(
        Command::new("apt-get")
            .args(["install", "-y", "--no-install-recommends", "--no-remove"])
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
}

/// Prints a command, then runs it.
fn announce(command: &mut Command) -> anyhow::Result<()> {
    println!("+ {command:?}");
    workspace::run(command)
}
