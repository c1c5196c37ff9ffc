//! `cargo xtask bench-ptx`: the kernels that only benchmarks run, as PTX committed under
//! `benches/ptx/`. Not part of the product: one architecture, one code generator.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, ensure};

use super::llvm::{Compiler, Package};
use super::nvptx_ir::Convergence;
use super::{ARCHES, Request, manifest, ptx_text};
use crate::{hash, ptxas, workspace};

/// What the entries' names begin with.
const PREFIX: &str = "bench_";
const ENTRIES: [&str; 2] = ["bench_read", "bench_sample_logits"];
/// The first line, before the hash of what the text was built from.
const SOURCES: &str = "// sources: ";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing; verify what is committed
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let sources = source_hash()?;
    let arch = &ARCHES[0];
    let path = path();
    let shown = workspace::shown(&path);
    if args.check {
        let text = fs::read_to_string(&path).with_context(|| format!("no {shown}"))?;
        let recorded = text.lines().next().and_then(|line| line.strip_prefix(SOURCES));
        ensure!(
            recorded == Some(sources.as_str()),
            "the kernels changed after {shown} was built; `cargo xtask bench-ptx` repairs it"
        );
        ptx_text::check(&text, arch, &BTreeSet::from(ENTRIES)).context(shown.to_string())?;
        println!("{shown} agrees with sources and structure");
        return Ok(());
    }
    let compiler = Compiler::find(&Request::default())?;
    println!("device compiler: {compiler}");
    let package = Package {
        manifest: &workspace::root().join("benches/kernels/Cargo.toml"),
        library: "flash_sampling_bench_kernels",
        features: "",
    };
    let archive = compiler.archive(&package)?;
    let text = compiler.link(&archive, arch, Convergence::Marked, PREFIX)?;
    ptx_text::check(&text, arch, &BTreeSet::from(ENTRIES))?;
    fs::create_dir_all(path.with_file_name(""))?;
    fs::write(&path, format!("{SOURCES}{sources}\n{text}"))?;
    println!("wrote {shown} ({} bytes)", text.len());
    match ptxas::find() {
        Ok(ptxas) => {
            for (entry, resources) in ptxas.assemble(&path, arch.name)?.entries {
                println!("{entry}: {resources:?}");
            }
        }
        Err(reason) => println!("no resources: {reason:#}"),
    }
    Ok(())
}

fn path() -> PathBuf {
    workspace::root().join("benches/ptx/bench.sm_80.ptx")
}

/// Hash of the benchmarks' kernels and of the crate that they are built on.
fn source_hash() -> anyhow::Result<String> {
    let own = workspace::root().join("benches/kernels");
    let own = hash::tree(&own, &["Cargo.toml", "src"])?;
    Ok(hash::text(&(own + &manifest::source_hash()?)))
}
