//! The `llvm` codegen: rustc's own NVPTX back end and our linker.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::nvptx_ir::Convergence;
use super::nvptx_link;
use super::{Arch, Build, Built, Request, Tool};
use crate::workspace;

/// Names the device compiler, like `--rustc`.
const RUSTC_VARIABLE: &str = "FLASH_SAMPLING_DEVICE_RUSTC";

/// Where Debian's `rustc-web` installs the compiler, beside any of rustup's.
pub(crate) const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

const TARGET: &str = "nvptx64-nvidia-cuda";

/// The MIR pass JumpThreading copies `asm!` into both sides of a branch; rustc's own
/// LLVM passes would run before `asm!` is marked convergent. What is unused in a kernel no
/// native build tells.
const RUSTFLAGS: [&str; 4] = [
    "-Cno-prepopulate-passes",
    "-Zmir-enable-passes=-JumpThreading",
    "-Zlocation-detail=none",
    "-Dunused",
];

/// A compiler that can build `core` for the GPU, and LLVM tools of its own major version.
pub(crate) struct Compiler {
    rustc: PathBuf,
    cargo: PathBuf,
    llvm_bin: PathBuf,
    origin: &'static str,
    tool: Tool,
}

impl Compiler {
    /// As asked for, else the first that is complete: the system's (Debian's
    /// `rustc-web`), rustup's nightly.
    pub(crate) fn find(request: &Request) -> anyhow::Result<Self> {
        if let Some(rustc) =
            request.rustc.clone().or_else(|| env::var_os(RUSTC_VARIABLE).map(PathBuf::from))
        {
            return Self::new("asked for", rustc, outer_cargo(), request.llvm_bin.as_deref());
        }
        let debian = Self::new(
            "the system's",
            DEBIAN_RUSTC.into(),
            outer_cargo(),
            request.llvm_bin.as_deref(),
        );
        let rustup = |toolchain: &str| {
            let which = |program: &str| {
                workspace::output(Command::new("rustup").args([
                    "which",
                    program,
                    "--toolchain",
                    toolchain,
                ]))
                .map(|path| PathBuf::from(path.trim()))
            };
            Self::new("rustup's", which("rustc")?, which("cargo")?, request.llvm_bin.as_deref())
        };
        match &request.toolchain {
            Some(toolchain) => rustup(toolchain),
            None => debian.or_else(|debian| {
                rustup("nightly").map_err(|nightly| {
                    anyhow::anyhow!(
                        "no device compiler; `cargo xtask setup` installs one\n  \
                         {DEBIAN_RUSTC}: {debian:#}\n  rustup's nightly: {nightly:#}"
                    )
                })
            }),
        }
    }

    fn new(
        origin: &'static str,
        rustc: PathBuf,
        cargo: PathBuf,
        llvm_bin: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let version = Version::of(&rustc)?;
        let major = version.llvm_major();
        let sysroot = workspace::output(Command::new(&rustc).args(["--print", "sysroot"]))?;
        let rustlib = Path::new(sysroot.trim()).join("lib/rustlib");
        ensure!(
            rustlib.join("src/rust/library/core/src/lib.rs").is_file(),
            "the sources of core are missing (Debian: rust-web-src; rustup: rust-src)"
        );
        let llvm_bin = match llvm_bin {
            Some(folder) => folder.to_owned(),
            None => [
                rustlib.join(&version.host).join("bin"),
                PathBuf::from(format!("/usr/lib/llvm-{major}/bin")),
            ]
            .into_iter()
            .find(|folder| folder.join("llc").is_file())
            .with_context(|| {
                format!("the tools of LLVM {major} are missing (Debian: llvm-{major}; rustup: llvm-tools)")
            })?,
        };
        let llc = workspace::output(Command::new(llvm_bin.join("llc")).arg("--version"))?;
        let found = llc.lines().find_map(|line| Some(line.split_once("LLVM version ")?.1));
        let found = found.with_context(|| format!("{} names no version", llvm_bin.display()))?;
        ensure!(
            found.split('.').next() == Some(major),
            "rustc is built on LLVM {}, but {} has {found}",
            version.llvm,
            llvm_bin.display()
        );
        let tool = Tool { compiler: version.line, backend: format!("LLVM {found}") };
        Ok(Self { rustc, cargo, llvm_bin, origin, tool })
    }

    /// Compiles a package's library, with `core` and all else, to an archive of bitcode:
    /// for a `staticlib` rustc optimizes across crates and calls no linker.
    pub(crate) fn archive(&self, package: &Package<'_>) -> anyhow::Result<PathBuf> {
        let target_dir = workspace::target("ptx");
        let mut command = Command::new(&self.cargo);
        command
            .args(["rustc", "--lib", "--crate-type=staticlib", "--profile=ptx", "--locked"])
            .args(["-Zbuild-std=core", "--target", TARGET, "--features", package.features])
            .arg("--manifest-path")
            .arg(package.manifest)
            .arg("--target-dir")
            .arg(&target_dir)
            .env("RUSTC", &self.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_ENCODED_RUSTFLAGS", RUSTFLAGS.join("\x1f"));
        // What an outer cargo, or the user's shell, means for the host.
        for name in ["RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTUP_TOOLCHAIN"] {
            command.env_remove(name);
        }
        workspace::run(&mut command)?;
        let name = format!("lib{}.a", package.library);
        Ok(target_dir.join(TARGET).join("ptx").join(name))
    }

    /// PTX text of an archive's entries that begin with `prefix`; see [`nvptx_link::link`].
    pub(crate) fn link(
        &self,
        archive: &Path,
        arch: &Arch,
        convergence: Convergence,
        prefix: &str,
    ) -> anyhow::Result<String> {
        let stem = archive.file_stem().unwrap_or_default().display();
        let work = workspace::target("ptx/link").join(format!("{stem}.{}", arch.name));
        nvptx_link::link(&self.llvm_bin, archive, arch, convergence, prefix, &work)
    }
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, rustc, llvm_bin, tool, .. } = self;
        let (rustc, llvm_bin) = (rustc.display(), llvm_bin.display());
        write!(f, "{origin} {rustc} ({}), {} in {llvm_bin}", tool.compiler, tool.backend)
    }
}

/// What `rustc -vV` says.
struct Version {
    line: String,
    host: String,
    llvm: String,
}

impl Version {
    fn of(rustc: &Path) -> anyhow::Result<Self> {
        let text = workspace::output(Command::new(rustc).arg("-vV"))?;
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                .map(str::to_owned)
                .with_context(|| format!("{} -vV has no line {name:?}", rustc.display()))
        };
        let line = text.lines().next().unwrap_or_default().to_owned();
        Ok(Self { line, host: field("host")?, llvm: field("LLVM version")? })
    }

    fn llvm_major(&self) -> &str {
        self.llvm.split('.').next().unwrap_or(&self.llvm)
    }
}

/// The major version of LLVM that a compiler is built on.
pub(crate) fn llvm_major(rustc: &Path) -> anyhow::Result<String> {
    Ok(Version::of(rustc)?.llvm_major().to_owned())
}

/// A library to compile for the GPU.
pub(crate) struct Package<'a> {
    pub(crate) manifest: &'a Path,
    /// Name of the library, as in `lib<name>.a`.
    pub(crate) library: &'a str,
    /// Comma-separated cargo features.
    pub(crate) features: &'a str,
}

/// Why this codegen cannot run here, or nothing when it can.
pub(crate) fn unavailable(request: &Request) -> Option<String> {
    Compiler::find(request).err().map(|error| format!("{error:#}"))
}

/// Compiles the kernels for every architecture asked for.
pub(crate) fn build(request: &Request) -> anyhow::Result<Build> {
    let compiler = Compiler::find(request)?;
    println!("device compiler: {compiler}");
    let manifest = workspace::root().join("kernels-crate/Cargo.toml");
    let mut ptx = Vec::new();
    for arch in &request.arches {
        let package = Package {
            manifest: &manifest,
            library: "flash_sampling_kernels",
            features: arch.features,
        };
        let archive = compiler.archive(&package)?;
        let text = compiler.link(&archive, arch, Convergence::Marked, "")?;
        ptx.push(Built { arch: *arch, text });
    }
    Ok(Build { tool: compiler.tool, ptx })
}

/// The cargo that runs this task.
fn outer_cargo() -> PathBuf {
    env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")).into()
}
