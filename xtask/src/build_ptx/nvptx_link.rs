//! The NVPTX linker: from the bitcode of a fat-LTO module to PTX text.
//!
//! It works in two steps, so that cargo never holds a stale result: what rustc calls
//! as its linker ([`join`]) only joins bitcode, which no architecture enters;
//! everything else ([`assemble`]) happens after cargo has ended, every time.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::Arch;
use super::nvptx_ir::{self, Convergence};
use crate::workspace;

/// Names the LLVM tools' folder to the xtask that rustc starts as its linker.
pub(crate) const LLVM_BIN_VARIABLE: &str = "FLASH_SAMPLING_NVPTX_LINK";

/// Register arrays stay in registers only when every loop over them is unrolled.
const UNROLL_THRESHOLD: u32 = 2000;

/// The linker that rustc calls: joins its objects, and what they need of its
/// libraries, to one module of bitcode.
pub(crate) fn join(llvm_bin: &OsStr, arguments: &[OsString]) -> anyhow::Result<()> {
    let inputs = Inputs::parse(arguments)?;
    workspace::run(
        Command::new(Path::new(llvm_bin).join("llvm-link"))
            .args(&inputs.objects)
            .args(["--only-needed", "--ignore-non-bitcode"])
            .args(&inputs.libraries)
            .arg("-o")
            .arg(&inputs.output),
    )
}

/// What rustc hands its linker.
#[derive(Debug, PartialEq, Eq)]
struct Inputs {
    objects: Vec<PathBuf>,
    libraries: Vec<PathBuf>,
    output: PathBuf,
}

impl Inputs {
    /// Options other than `-o` concern what [`assemble`] decides by itself.
    fn parse(arguments: &[OsString]) -> anyhow::Result<Self> {
        let (mut objects, mut libraries, mut output) = (Vec::new(), Vec::new(), None);
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let path = PathBuf::from(argument);
            match path.extension().and_then(OsStr::to_str) {
                _ if argument == "-o" => output = arguments.next().map(PathBuf::from),
                Some("o") => objects.push(path),
                Some("rlib") => libraries.push(path),
                _ => {}
            }
        }
        ensure!(!objects.is_empty(), "rustc gave its linker no object");
        Ok(Self { objects, libraries, output: output.context("rustc gave its linker no -o")? })
    }
}

/// Compiles joined bitcode to PTX for one architecture; intermediate files stay in `work`.
pub(crate) fn assemble(
    llvm_bin: &Path,
    bitcode: &Path,
    arch: &Arch,
    convergence: Convergence,
    work: &Path,
) -> anyhow::Result<String> {
    fs::create_dir_all(work)?;
    let [disassembled, rewritten, optimized, ptx] =
        ["joined.ll", "rewritten.ll", "optimized.ll", "out.ptx"].map(|name| work.join(name));
    let tool = |name: &str| Command::new(llvm_bin.join(name));

    workspace::run(tool("llvm-dis").arg(bitcode).arg("-o").arg(&disassembled))?;
    let (ir, entries) = nvptx_ir::rewrite(&fs::read_to_string(&disassembled)?, convergence)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> anyhow::Result<Inputs> {
        Inputs::parse(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn inputs_are_told_from_options() {
        let inputs = parse(&[
            "--export-symbol",
            "entry",
            "a.rcgu.o",
            "libcore.rlib",
            "-L",
            "lib",
            "--target-cpu",
            "sm_30",
            "-o",
            "out.ptx",
            "-O3",
        ]);
        let expected = Inputs {
            objects: vec!["a.rcgu.o".into()],
            libraries: vec!["libcore.rlib".into()],
            output: "out.ptx".into(),
        };
        assert_eq!(inputs.unwrap(), expected);
    }

    #[test]
    fn a_call_without_object_or_output_is_refused() {
        assert!(parse(&["-o", "out.ptx"]).is_err());
        assert!(parse(&["a.o"]).is_err());
    }
}
