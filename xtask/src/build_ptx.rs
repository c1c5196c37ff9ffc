//! `cargo xtask build-ptx`: the kernels as PTX text, committed under `host-crate/ptx/`.
//!
//! Two code generators compile the same source: `llvm` is rustc's own NVPTX back end
//! with a linker of ours, `rust-cuda` is Rust-CUDA's libNVVM back end.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use flash_sampling_kernels::abi;
use serde::{Deserialize, Serialize};

use crate::{hash, ptxas, workspace};
use manifest::{FileRecord, Manifest};

pub(crate) mod benches;
#[cfg(test)]
mod convergence;
mod llvm;
pub(crate) mod manifest;
mod nvptx_ir;
mod nvptx_link;
mod ptx_text;
mod rust_cuda;

pub(crate) use llvm::{DEBIAN_RUSTC, llvm_major};

/// Set where a machine must have the device compiler, as in CI: checks that would do
/// without it fail.
const REQUIRE_COMPILER: &str = "FLASH_SAMPLING_REQUIRE_DEVICE_COMPILER";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The code generator; the default is rust-cuda where its toolchain is found, else llvm
    #[arg(long)]
    codegen: Option<Codegen>,
    /// Architectures to compile for
    #[arg(long, value_delimiter = ',', default_value = "sm_80,sm_90a")]
    arch: Vec<Arch>,
    /// Write nothing; verify what is committed, by another build where a compiler is found
    #[arg(long)]
    check: bool,
    /// llvm: the device compiler
    #[arg(long)]
    rustc: Option<PathBuf>,
    /// llvm: folder of llvm-link, opt and llc
    #[arg(long)]
    llvm_bin: Option<PathBuf>,
    /// rust-cuda: a local checkout of Rust-CUDA instead of the pinned revision
    #[arg(long)]
    rust_cuda_dir: Option<PathBuf>,
    /// The rustup toolchain to compile with
    #[arg(long)]
    toolchain: Option<String>,
}

/// A code generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Codegen {
    Llvm,
    RustCuda,
}

impl Codegen {
    fn name(self) -> &'static str {
        match self {
            Self::Llvm => "llvm",
            Self::RustCuda => "rust-cuda",
        }
    }

    /// Why it cannot run here, or nothing when it can.
    fn unavailable(self, request: &Request) -> Option<String> {
        match self {
            Self::Llvm => llvm::unavailable(request),
            Self::RustCuda => rust_cuda::unavailable(request),
        }
    }

    fn build(self, request: &Request) -> anyhow::Result<Build> {
        match self {
            Self::Llvm => llvm::build(request),
            Self::RustCuda => rust_cuda::build(request),
        }
    }
}

/// An architecture that PTX is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arch {
    /// As in `.target`.
    pub(crate) name: &'static str,
    /// Compute capability, as major · 10 + minor.
    pub(crate) compute_capability: u32,
    /// The lowest PTX ISA that has what the kernels use, as major · 10 + minor: the
    /// driver must know it.
    pub(crate) ptx_version: u32,
    /// Cargo features of the kernels crate, separated by commas.
    pub(crate) features: &'static str,
}

const ARCHES: [Arch; 2] = [
    Arch { name: "sm_80", compute_capability: 80, ptx_version: 74, features: "" },
    Arch { name: "sm_90a", compute_capability: 90, ptx_version: 80, features: "sm_90a" },
];

impl Arch {
    /// The entries that its file must have.
    fn entries(&self) -> BTreeSet<&'static str> {
        let launched = ptx_text::launches(self.compute_capability).map(|launch| launch.entry);
        launched.chain([abi::NOISE_ENTRY, abi::NOISE_DIGEST_ENTRY]).collect()
    }
}

impl FromStr for Arch {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        ARCHES.into_iter().find(|arch| arch.name == name).ok_or_else(|| {
            format!("known architectures are {}", ARCHES.map(|arch| arch.name).join(", "))
        })
    }
}

/// What to compile, and with what.
#[derive(Default)]
pub(crate) struct Request {
    pub(crate) arches: Vec<Arch>,
    pub(crate) rustc: Option<PathBuf>,
    pub(crate) llvm_bin: Option<PathBuf>,
    pub(crate) rust_cuda_dir: Option<PathBuf>,
    pub(crate) toolchain: Option<String>,
}

/// What a code generator made.
pub(crate) struct Build {
    pub(crate) tool: Tool,
    pub(crate) ptx: Vec<Built>,
}

/// Names and versions, as recorded in the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tool {
    /// The compiler's own line: `rustc 1.96.0 (…)`.
    pub(crate) compiler: String,
    /// What turned its output into PTX: `LLVM 22.1.8`, `libNVVM 12.9`.
    pub(crate) backend: String,
}

/// PTX text for one architecture, as the code generator left it.
pub(crate) struct Built {
    pub(crate) arch: Arch,
    pub(crate) text: String,
}

/// The entries of all architectures.
pub(crate) fn entries() -> BTreeSet<&'static str> {
    ARCHES.iter().flat_map(Arch::entries).collect()
}

/// The device compiler that the `llvm` codegen would take, in words.
pub(crate) fn device_compiler() -> anyhow::Result<String> {
    Ok(llvm::Compiler::find(&Request::default())?.to_string())
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let request = Request {
        arches: args.arch,
        rustc: args.rustc,
        llvm_bin: args.llvm_bin,
        rust_cuda_dir: args.rust_cuda_dir,
        toolchain: args.toolchain,
    };
    if args.check {
        return check(args.codegen, request);
    }
    let codegen = args.codegen.unwrap_or_else(|| choose(&request));
    let build = finished(codegen.build(&request)?)?;
    write(codegen, build)
}

/// The code generator when none is asked for; says which and why.
fn choose(request: &Request) -> Codegen {
    match Codegen::RustCuda.unavailable(request) {
        None => {
            println!("codegen rust-cuda: its toolchain is installed");
            Codegen::RustCuda
        }
        Some(reason) => {
            println!("codegen llvm, since rust-cuda is not available: {reason}");
            Codegen::Llvm
        }
    }
}

/// Adds directives and checks the structure: the same for both code generators.
fn finished(mut build: Build) -> anyhow::Result<Build> {
    for built in &mut build.ptx {
        let entries = built.arch.entries();
        let launches = ptx_text::launches(built.arch.compute_capability);
        built.text = ptx_text::with_directives(&built.text, launches)
            .and_then(|text| ptx_text::check(&text, &built.arch, &entries).map(|()| text))
            .with_context(|| format!("PTX for {}", built.arch.name))?;
    }
    Ok(build)
}

fn write(codegen: Codegen, build: Build) -> anyhow::Result<()> {
    let folder = manifest::folder();
    fs::create_dir_all(&folder)?;
    let ptxas = ptxas::find();
    if let Err(reason) = &ptxas {
        println!("no resources in the manifest: {reason:#}");
    }
    let mut files = Vec::new();
    for built in &build.ptx {
        let path = folder.join(manifest::file_name(built.arch.name));
        fs::write(&path, &built.text)?;
        let entries = match &ptxas {
            Ok(ptxas) => ptxas.assemble(&path, built.arch.name)?.entries,
            Err(_) => Default::default(),
        };
        println!("wrote {} ({} bytes)", workspace::shown(&path), built.text.len());
        files.push(FileRecord {
            arch: built.arch.name.to_owned(),
            sha256: hash::text(&built.text),
            entries,
        });
    }
    let manifest = Manifest {
        sources: manifest::source_hash()?,
        codegen,
        tool: build.tool,
        ptxas: ptxas.ok().map(|ptxas| ptxas.version),
        files,
    };
    manifest.write()?;
    println!("wrote {}", workspace::shown(&manifest::path()));
    Ok(())
}

/// Verifies what is committed: hashes and structure always, and by another build
/// where the manifest's code generator is installed.
fn check(codegen: Option<Codegen>, mut request: Request) -> anyhow::Result<()> {
    let manifest = Manifest::read()?;
    let repair =
        format!("`cargo xtask build-ptx --codegen {}` repairs it", manifest.codegen.name());
    ensure!(
        manifest.sources == manifest::source_hash()?,
        "kernels-crate changed after its PTX was built; {repair}"
    );
    let recorded: Vec<&str> = manifest.files.iter().map(|file| file.arch.as_str()).collect();
    ensure!(recorded == ARCHES.map(|arch| arch.name), "the manifest lists {recorded:?}; {repair}");
    let mut committed = Vec::new();
    for (arch, record) in ARCHES.iter().zip(&manifest.files) {
        let path = manifest::folder().join(manifest::file_name(arch.name));
        let shown = workspace::shown(&path);
        let text = fs::read_to_string(&path).with_context(|| format!("no {shown}; {repair}"))?;
        ensure!(
            hash::text(&text) == record.sha256,
            "{shown} is not what build-ptx wrote; {repair}"
        );
        ptx_text::check(&text, arch, &arch.entries())
            .with_context(|| format!("{shown}; {repair}"))?;
        committed.push(text);
    }
    println!("{} files agree with sources, manifest and structure", committed.len());

    let named = codegen.is_some() || request.rustc.is_some() || request.toolchain.is_some();
    let codegen = codegen.unwrap_or(manifest.codegen);
    if let Some(reason) = codegen.unavailable(&request) {
        let required = named || env::var_os(REQUIRE_COMPILER).is_some();
        ensure!(!required, "cannot rebuild with {}: {reason}", codegen.name());
        println!("NOT REBUILT with {}: {reason}", codegen.name());
        return Ok(());
    }
    request.arches = ARCHES.to_vec();
    let build = finished(codegen.build(&request)?)?;
    if (codegen, &build.tool) != (manifest.codegen, &manifest.tool) {
        println!(
            "rebuilt with sound structure; text not compared, for {} is not the manifest's {}",
            build.tool.compiler, manifest.tool.compiler
        );
        return Ok(());
    }
    for (built, committed) in build.ptx.iter().zip(&committed) {
        if let Some((line, new, old)) = first_difference(&built.text, committed) {
            bail!(
                "{} differs from a new build at line {line}:\n  committed: {old}\n  built:     \
                 {new}\n{repair}",
                manifest::file_name(built.arch.name)
            );
        }
    }
    println!("rebuilt with {}: the same text", build.tool.compiler);
    Ok(())
}

/// The first line that differs, counted from 1, in both texts.
fn first_difference<'a>(a: &'a str, b: &'a str) -> Option<(usize, &'a str, &'a str)> {
    let (mut a, mut b) = (a.split('\n'), b.split('\n'));
    (1..)
        .map_while(|line| match (a.next(), b.next()) {
            (None, None) => None,
            (x, y) => Some((line, x.unwrap_or("(end)"), y.unwrap_or("(end)"))),
        })
        .find(|(_, x, y)| x != y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_has_the_probes_and_the_portable_kernels() {
        for arch in ARCHES {
            let entries = arch.entries();
            let kept = abi::kept::KEPT_VARIANTS.iter().filter(|kept| entries.contains(&kept.entry));
            assert_eq!(kept.count(), 1);
            let portable = [abi::NOISE_ENTRY, abi::VARIANTS[0].entry];
            assert!(portable.iter().all(|entry| entries.contains(entry)));
        }
    }

    #[test]
    fn differences_are_located() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some((2, "b", "c")));
        assert_eq!(first_difference("a\nb", "a"), Some((2, "b", "(end)")));
    }
}
