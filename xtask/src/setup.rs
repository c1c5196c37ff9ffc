//! `cargo xtask setup`: the device compiler, and ptxas to check what it makes.
//!
//! Uses the network, through apt and pip, and says what it runs.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::{build_ptx, ptxas, workspace};

/// The PyPI package that carries ptxas. Pinned, so that registers compare.
const PTXAS_PACKAGE: &str = "nvidia-cuda-nvcc==13.5.37";

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> anyhow::Result<()> {
    match build_ptx::device_compiler() {
        Ok(compiler) => println!("device compiler: {compiler}, nothing to do"),
        Err(_) => install_compiler()?,
    }
    match ptxas::find() {
        Ok(ptxas) => println!("ptxas: {}, nothing to do", ptxas.version),
        Err(_) => unpack_ptxas()?,
    }
    Ok(())
}

/// Debian's compiler where apt and root are at hand, else the words to say to rustup.
fn install_compiler() -> anyhow::Result<()> {
    if !can_install() {
        bail!(
            "no device compiler, and no apt-get with root's rights to install one; run\n  \
             rustup toolchain install nightly --component rust-src,llvm-tools"
        );
    }
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
        if !can_install() {
            bail!("ptxas comes from PyPI, and python3 has no pip; install pip and come back");
        }
        announce(Command::new("apt-get").arg("update"))?;
        apt_install(&["python3-pip"])?;
    }
    announce(
        pip()
            .args(["download", "--no-deps", "--only-binary=:all:", PTXAS_PACKAGE, "--dest"])
            .arg(&wheels),
    )?;
    for wheel in fs::read_dir(&wheels)? {
        announce(
            Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel?.path()).arg(&folder),
        )?;
    }
    // The wheel's archive has no modes that zipfile would restore.
    announce(Command::new("chmod").arg("+x").arg(ptxas::unpacked_program()))?;
    println!("ptxas: {}", ptxas::find().context("the wheel has changed its layout")?.version);
    Ok(())
}

/// Whether this is root on a machine with apt.
fn can_install() -> bool {
    let user = workspace::output(Command::new("id").arg("-u"));
    let apt = workspace::output(Command::new("apt-get").arg("--version"));
    user.is_ok_and(|user| user.trim() == "0") && apt.is_ok()
}

fn apt_install(packages: &[&str]) -> anyhow::Result<()> {
    announce(
        Command::new("apt-get")
            .args(["install", "-y", "--no-install-recommends"])
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
}

/// Prints a command, then runs it.
fn announce(command: &mut Command) -> anyhow::Result<()> {
    println!("+ {command:?}");
    workspace::run(command)
}
