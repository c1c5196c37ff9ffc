//! The NVPTX linker: from the bitcode of all crates to PTX text.
//!
//! It runs after cargo has ended, every time: the architecture and the LLVM tools reach
//! nothing that cargo would cache. Unresolved functions are refused by the checks on
//! the text, which both codegens share.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::Arch;
use super::nvptx_ir::{self, Convergence};
use crate::workspace;

/// Register arrays stay in registers only when every loop over them is unrolled.
const UNROLL_THRESHOLD: u32 = 2000;

/// Links an archive of bitcode to PTX for one architecture. Only entries whose names
/// begin with `prefix` stay visible, so what they do not use goes. Intermediate files
/// stay in `work`.
pub(crate) fn link(
    llvm_bin: &Path,
    archive: &Path,
    arch: &Arch,
    convergence: Convergence,
    prefix: &str,
    work: &Path,
) -> anyhow::Result<String> {
    fs::create_dir_all(work)?;
    let [joined, disassembled, rewritten, optimized, ptx] =
        ["joined.bc", "joined.ll", "rewritten.ll", "optimized.ll", "out.ptx"]
            .map(|name| work.join(name));
    let tool = |name: &str| Command::new(llvm_bin.join(name));

    // The archive's index and metadata are no bitcode.
    workspace::run(
        tool("llvm-link").arg("-ignore-non-bitcode").arg(archive).arg("-o").arg(&joined),
    )?;
    workspace::run(tool("llvm-dis").arg(&joined).arg("-o").arg(&disassembled))?;
    let (ir, mut entries) = nvptx_ir::rewrite(&fs::read_to_string(&disassembled)?, convergence)?;
    entries.retain(|entry| entry.starts_with(prefix));
    fs::write(&rewritten, ir)?;
    let machine = [format!("-mcpu={}", arch.name), format!("-mattr=+ptx{}", arch.ptx_version)];
    workspace::run(
        tool("opt")
            .args(["-S", "-passes=internalize,globaldce,default<O3>"])
            .arg(format!("-internalize-public-api-list={}", entries.join(",")))
            .arg(format!("-unroll-threshold={UNROLL_THRESHOLD}"))
            .args(&machine)
            .arg(&rewritten)
            .arg("-o")
            .arg(&optimized),
    )?;
    workspace::run(
        tool("llc")
            .args(["-O3", "-fp-contract=off"])
            .args(&machine)
            .arg(&optimized)
            .arg("-o")
            .arg(&ptx),
    )?;
    Ok(fs::read_to_string(&ptx)?)
}
