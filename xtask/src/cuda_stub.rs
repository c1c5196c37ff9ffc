//! A `libcuda` in which every function answers `CUDA_ERROR_NO_DEVICE`.
//!
//! With `CUDA_LIBRARY_PATH=target/cuda-stub` the `cuda` feature checks, links and
//! runs on a machine without a driver, and a binary linked so finds the real driver
//! on a machine that has one: only the link path enters the build, no rpath.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::workspace;

/// `CUDA_ERROR_NO_DEVICE` of the driver's `cuda.h`.
const NO_DEVICE: u32 = 100;

/// The packages whose sources declare the driver's functions.
const DECLARING: [&str; 2] = ["cust_raw", "cust"];

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> anyhow::Result<()> {
    let folder = build()?;
    println!("built {}", workspace::shown(&folder.join("lib64/libcuda.so")));
    println!("use it with CUDA_LIBRARY_PATH={}", folder.display());
    Ok(())
}

/// Builds the stub and returns the folder to name in `CUDA_LIBRARY_PATH`.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    let mut functions = BTreeSet::new();
    for source in driver_sources()? {
        let text = fs::read_to_string(&source)
            .with_context(|| format!("cannot read {}", source.display()))?;
        functions.extend(driver_functions(&text));
    }
    ensure!(
        functions.contains("cuInit"),
        "the sources of {DECLARING:?} declare no cuInit: has their layout changed?"
    );

    let folder = workspace::target("cuda-stub");
    let library_dir = folder.join("lib64");
    fs::create_dir_all(&library_dir)?;
    let source = folder.join("cuda_stub.c");
    fs::write(&source, stub_source(&functions))?;
    let library = library_dir.join("libcuda.so");
    workspace::run(
        Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", "-o"])
            .args([&library, &source]),
    )
    .context("the stub needs a C compiler named cc (Debian: apt-get install gcc)")?;
    // What the loader asks for, for those who put the folder in LD_LIBRARY_PATH.
    fs::copy(&library, library_dir.join("libcuda.so.1"))?;
    Ok(folder)
}

/// Every Rust file of the packages that declare the driver's functions.
fn driver_sources() -> anyhow::Result<Vec<PathBuf>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    #[derive(Deserialize)]
    struct Package {
        name: String,
        manifest_path: PathBuf,
    }
    let json = workspace::output(
        Command::new(env!("CARGO"))
            .args(["metadata", "--format-version=1", "--features=flash-sampling/cuda"])
            .current_dir(workspace::root()),
    )?;
    let metadata: Metadata = serde_json::from_str(&json)?;
    let mut sources = Vec::new();
    for name in DECLARING {
        let package = metadata.packages.iter().find(|package| package.name == name);
        let package = package.with_context(|| format!("cargo metadata names no {name}"))?;
        rust_files(&package.manifest_path.with_file_name("src"), &mut sources)?;
    }
    Ok(sources)
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Names after `fn ` that begin with `cu` and a capital letter, as only the driver's do.
fn driver_functions(source: &str) -> impl Iterator<Item = String> {
    source.lines().filter_map(|line| {
        let line = line.trim_start();
        let name = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("fn cu")?;
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        name.starts_with(|c: char| c.is_ascii_uppercase()).then(|| format!("cu{}", &name[..end]))
    })
}

fn stub_source(functions: &BTreeSet<String>) -> String {
    functions.iter().map(|name| format!("int {name}(void) {{ return {NO_DEVICE}; }}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_declarations_of_the_driver_are_taken() {
        let source = "extern \"C\" {\n    pub fn cuInit(Flags: u32) -> CUresult;\n}\n\
                      pub fn current() {}\n        fn cuGraphDebugDotPrint(\n\
                      unsafe extern \"C\" fn(a: u32)\n";
        let found: Vec<_> = driver_functions(source).collect();
        assert_eq!(found, ["cuInit", "cuGraphDebugDotPrint"]);
    }

    #[test]
    fn the_stub_answers_no_device() {
        let source = stub_source(&BTreeSet::from(["cuInit".to_owned()]));
        assert_eq!(source, "int cuInit(void) { return 100; }\n");
    }
}
