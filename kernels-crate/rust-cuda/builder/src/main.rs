//! Compiles the entries of the package around it to PTX with Rust-CUDA:
//! `flash-sampling-rust-cuda-builder ARCH OUT [CARGO-ARGUMENT…]`.
//!
//! `cargo xtask build-ptx --codegen rust-cuda` starts it; `docs/toolchain.md` says
//! what it needs.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

use cuda_builder::{CudaBuilder, NvvmArch};

/// `cuda_builder` takes arguments for cargo but none for rustc, so the flag goes
/// through the profile. Without it a MIR pass may copy a barrier into both sides of a
/// branch.
const PROFILE: &str = r#"profile.release.rustflags = ["-Zmir-enable-passes=-JumpThreading"]"#;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(arch), Some(out)) = (arguments.next(), arguments.next()) else {
        return Err("usage: flash-sampling-rust-cuda-builder ARCH OUT [CARGO-ARGUMENT…]".into());
    };
    let arch: NvvmArch = arch.parse().map_err(|error| format!("{arch}: {error}"))?;
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    CudaBuilder::new(package)
        .arch(arch)
        .release(true)
        .generate_line_info(false)
        // Bit for bit as on the CPU: no multiplication is fused unless the source says so.
        .fma_contraction(false)
        .override_libm(false)
        .build_args(&["-Zprofile-rustflags", "--config", PROFILE])
        .build_args(&arguments.collect::<Vec<_>>())
        .copy_to(PathBuf::from(out))
        .build()
        .map_err(|error| error.to_string())?;
    Ok(())
}
