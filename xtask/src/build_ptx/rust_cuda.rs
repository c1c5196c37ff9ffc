//! The `rust-cuda` codegen: Rust-CUDA's `rustc_codegen_nvvm` and NVIDIA's libNVVM.
//!
//! The package `kernels-crate/rust-cuda` has the entries and a builder that calls
//! `cuda_builder`. This only starts the builder, and finishes its text.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::nvptx_ir::DYNAMIC_SHARED_ALIGN;
use super::{Arch, Build, Built, Request, Tool, manifest};
use crate::workspace;

/// The repository that `kernels-crate/rust-cuda/Cargo.toml` names.
const REPOSITORY: &str = "https://github.com/Rust-GPU/rust-cuda";

/// The packages of it that are named there.
const PACKAGES: [&str; 2] = ["cuda_builder", "cuda_std"];

const BUILDER: &str = "flash-sampling-rust-cuda-builder";

/// Where the build scripts of Rust-CUDA look for a CUDA toolkit, in this order.
const CUDA_VARIABLES: [&str; 3] = ["CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"];
const CUDA_DEFAULT: &str = "/usr/local/cuda";

/// The package that Rust-CUDA compiles.
fn package() -> PathBuf {
    workspace::root().join("kernels-crate/rust-cuda")
}

/// The rustup toolchain: as asked for, else what the package pins.
fn toolchain(request: &Request) -> anyhow::Result<String> {
    if let Some(name) = &request.toolchain {
        return Ok(name.clone());
    }
    let path = package().join("rust-toolchain.toml");
    let pin: toml::Table = toml::from_str(&fs::read_to_string(&path)?)?;
    let channel = pin.get("toolchain").and_then(|table| table.get("channel")?.as_str());
    channel.map(str::to_owned).with_context(|| format!("{}: no channel", path.display()))
}

/// A program of a rustup toolchain, which is not downloaded if it is missing.
fn rustup_run(toolchain: &str, program: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", toolchain, program]).env("RUSTUP_AUTO_INSTALL", "0");
    command
}

/// The root of the CUDA toolkit.
fn cuda_root() -> anyhow::Result<PathBuf> {
    let named = CUDA_VARIABLES.iter().filter_map(env::var_os).map(PathBuf::from);
    named
        .chain([PathBuf::from(CUDA_DEFAULT)])
        .find(|root| root.join("nvvm/libdevice/libdevice.10.bc").is_file())
        .with_context(|| format!("no CUDA toolkit with libNVVM ({})", CUDA_VARIABLES.join(", ")))
}

/// Why this codegen cannot run here, or nothing when it can.
pub(crate) fn unavailable(request: &Request) -> Option<String> {
    complete(request).err().map(|error| format!("{error:#}"))
}

/// Whether all is installed that a build of `rustc_codegen_nvvm` needs.
fn complete(request: &Request) -> anyhow::Result<()> {
    let toolchain = toolchain(request)?;
    let mut rustc = rustup_run(&toolchain, "rustc");
    let sysroot = workspace::output(rustc.args(["--print", "sysroot"]))
        .with_context(|| format!("no toolchain {toolchain}"))?;
    ensure!(
        Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core").is_dir(),
        "toolchain {toolchain} has no rust-src"
    );
    let llvm_config = env::var_os("LLVM_CONFIG").unwrap_or_else(|| "llvm-config".into());
    let llvm = workspace::output(Command::new(llvm_config).arg("--version"))
        .context("no LLVM 7 (LLVM_CONFIG)")?;
    ensure!(llvm.starts_with("7."), "LLVM {}, expected 7 (LLVM_CONFIG)", llvm.trim());
    cuda_root().map(|_| ())
}

/// Compiles the entries for every architecture asked for.
pub(crate) fn build(request: &Request) -> anyhow::Result<Build> {
    let toolchain = toolchain(request)?;
    let version = workspace::output(rustup_run(&toolchain, "rustc").arg("-V"))
        .with_context(|| format!("no toolchain {toolchain}"))?;
    let compiler = version.trim().to_owned();
    let (origin, overrides) = match &request.rust_cuda_dir {
        Some(folder) => ("local", patches(&folder.canonicalize().context("--rust-cuda-dir")?)?),
        None => ("pinned", vec!["--locked".into()]),
    };
    println!("rust-cuda: {origin} revision, toolchain {toolchain} ({compiler})");
    // `cuda_builder` takes whatever code generator it finds in the target folder, so
    // each has its own.
    let folder = format!("{origin}-{}", toolchain.replace(['/', '\\'], "_"));
    let target_dir = workspace::target("rust-cuda").join(folder);
    let lock = LockFile::read()?;
    let ptx: anyhow::Result<Vec<Built>> = request
        .arches
        .iter()
        .map(|arch| compile(&toolchain, &overrides, &target_dir, *arch))
        .collect();
    lock.restore()?;
    // Names, beside a failure, the first thing that seems to be missing.
    let ptx = ptx.with_context(|| match unavailable(request) {
        Some(reason) => format!("{reason}; see docs/toolchain.md"),
        None => "Rust-CUDA failed; see docs/toolchain.md".into(),
    })?;
    let backend = ptx.first().map(|built| libnvvm(&built.text)).transpose()?.unwrap_or_default();
    Ok(Build { tool: Tool { compiler, backend }, ptx })
}

/// Cargo arguments that take Rust-CUDA from a folder.
fn patches(folder: &Path) -> anyhow::Result<Vec<OsString>> {
    let mut arguments = Vec::new();
    for name in PACKAGES {
        let path = folder.join("crates").join(name);
        ensure!(path.join("Cargo.toml").is_file(), "no {} in --rust-cuda-dir", path.display());
        let path = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
        let path = toml::Value::from(path);
        arguments.push("--config".into());
        arguments.push(format!("patch.{REPOSITORY:?}.{name}.path = {path}").into());
    }
    Ok(arguments)
}

/// The package's lock file, which a build with [`patches`] rewrites.
struct LockFile {
    path: PathBuf,
    text: String,
}

impl LockFile {
    fn read() -> anyhow::Result<Self> {
        let path = package().join("Cargo.lock");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Self { path, text })
    }

    fn restore(&self) -> anyhow::Result<()> {
        fs::write(&self.path, &self.text).with_context(|| self.path.display().to_string())
    }
}

/// Starts the builder for one architecture. `overrides` go to both cargos: the one
/// that builds the builder, and the one that it starts.
fn compile(
    toolchain: &str,
    overrides: &[OsString],
    target_dir: &Path,
    arch: Arch,
) -> anyhow::Result<Built> {
    fs::create_dir_all(target_dir)?;
    let out = target_dir.join(manifest::file_name(arch.name));
    let mut command = rustup_run(toolchain, "cargo");
    command
        .args(["run", "--package", BUILDER])
        .args(overrides)
        .arg("--")
        .arg(arch.name.replace("sm_", "compute_"))
        .arg(&out)
        .args(["--features", arch.features])
        .args(overrides)
        .current_dir(package())
        .env("CARGO_TARGET_DIR", target_dir);
    // The loader has to find libNVVM for the builder and for the code generator.
    if let Ok(cuda) = cuda_root() {
        let path = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let folders = [cuda.join("nvvm/lib64")].into_iter().chain(env::split_paths(&path));
        command.env("LD_LIBRARY_PATH", env::join_paths(folders)?);
    }
    // What the user's shell means for the host's compiler.
    for name in ["RUSTC", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"] {
        command.env_remove(name);
    }
    workspace::run(&mut command)?;
    let text = fs::read_to_string(&out).with_context(|| out.display().to_string())?;
    Ok(Built { arch, text: finished(&text, &arch) })
}

/// Restores what libNVVM takes from the source or adds to it: the alignment of dynamic
/// shared memory is lost, and the version is its own newest, which a driver may not
/// know, in place of the oldest that has all the kernels use.
fn finished(ptx: &str, arch: &Arch) -> String {
    let mut text = String::with_capacity(ptx.len());
    for line in ptx.lines() {
        let shared = line.strip_prefix(".extern .shared .align ").and_then(|l| l.split_once(' '));
        match shared {
            Some((_, declared)) => {
                text += &format!(".extern .shared .align {DYNAMIC_SHARED_ALIGN} {declared}");
            }
            None if line.starts_with(".version ") => {
                text += &format!(".version {}.{}", arch.ptx_version / 10, arch.ptx_version % 10);
            }
            None => text += line,
        }
        text.push('\n');
    }
    text
}

/// The name and version that libNVVM writes above its PTX.
fn libnvvm(ptx: &str) -> anyhow::Result<String> {
    let line = ptx.lines().find(|line| line.contains("Cuda compilation tools"));
    let version = line.and_then(|line| line.rsplit_once(", V"));
    let (_, version) = version.context("the PTX does not name libNVVM's version")?;
    Ok(format!("libNVVM {}", version.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_ptx::ARCHES;

    /// The head that libNVVM 13.5 writes for an entry with dynamic shared memory.
    const HEAD: &str = "//\n// Generated by NVIDIA NVVM Compiler\n//\n// Cuda compilation tools, \
                        release 13.5, V13.5.37\n//\n\n.version 9.5\n.target sm_80\n.address_size \
                        64\n\n.extern .shared .align 1 .b8 DYNAMIC_SHARED[];\n";

    #[test]
    fn alignment_and_version_are_restored() {
        let text = finished(HEAD, &ARCHES[0]);
        assert!(text.contains("\n.extern .shared .align 16 .b8 DYNAMIC_SHARED[];\n"), "{text}");
        assert!(text.contains("\n.version 7.4\n.target sm_80\n"), "{text}");
        assert_eq!(text.lines().count(), HEAD.lines().count());
    }

    #[test]
    fn libnvvm_names_itself() {
        assert_eq!(libnvvm(HEAD).unwrap(), "libNVVM 13.5.37");
        assert!(libnvvm(".version 9.5").is_err());
    }

    #[test]
    fn the_package_names_what_is_patched() {
        let manifest = fs::read_to_string(package().join("Cargo.toml")).unwrap();
        for name in PACKAGES {
            let dependency = format!("{name} = {{ git = {REPOSITORY:?}");
            assert!(manifest.contains(&dependency), "no {dependency}");
        }
    }

    /// Cargo refuses a stale lock file, as the pinned build passes `--locked`.
    #[test]
    fn the_lock_file_has_every_dependency() {
        let read = |path: PathBuf| -> toml::Table {
            toml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
        };
        let lock = read(package().join("Cargo.lock"));
        let locked = lock["package"].as_array().unwrap();
        for folder in ["", "builder"] {
            let manifest = read(package().join(folder).join("Cargo.toml"));
            let name = &manifest["package"]["name"];
            let entry = locked.iter().find(|entry| &entry["name"] == name).unwrap();
            let dependencies = entry["dependencies"].as_array().unwrap();
            for dependency in manifest["dependencies"].as_table().unwrap().keys() {
                let found = dependencies.iter().any(|it| it.as_str() == Some(dependency));
                assert!(found, "{name}: {dependency} is not locked");
            }
        }
    }

    #[test]
    fn a_folder_without_rust_cuda_is_refused() {
        let error = patches(workspace::root()).unwrap_err().to_string();
        assert!(error.contains("cuda_builder") && error.contains("--rust-cuda-dir"), "{error}");
    }

    #[test]
    fn the_toolchain_is_the_pinned_one_unless_another_is_asked_for() {
        let mut request = Request::default();
        assert!(toolchain(&request).unwrap().starts_with("nightly-"));
        request.toolchain = Some("mine".into());
        assert_eq!(toolchain(&request).unwrap(), "mine");
    }
}
