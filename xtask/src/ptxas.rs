//! NVIDIA's assembler, as a measuring device: no GPU is needed.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::workspace;

/// Where `cargo xtask setup` unpacks ptxas.
pub(crate) fn unpacked() -> PathBuf {
    workspace::target("ptxas")
}

/// The program in there.
pub(crate) fn unpacked_program() -> PathBuf {
    unpacked().join("nvidia/cu13/bin/ptxas")
}

/// What one entry needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resources {
    pub(crate) registers: u32,
    /// Bytes stored to and loaded from spilled registers.
    pub(crate) spill_bytes: u32,
    pub(crate) stack_bytes: u32,
    /// Static shared memory; the dynamic part is the launch's.
    pub(crate) shared_bytes: u32,
    /// Local memory.
    pub(crate) local_bytes: u32,
}

/// An installed ptxas.
pub(crate) struct Ptxas {
    path: PathBuf,
    /// `V13.5.37`.
    pub(crate) version: String,
}

/// What ptxas says about a file.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) entries: BTreeMap<String, Resources>,
    /// What no entry may bring: advice on performance (`C75xx`), called functions with
    /// a stack.
    pub(crate) faults: Vec<String>,
}

/// Finds ptxas on PATH, in CUDA_HOME or where setup unpacks it.
pub(crate) fn find() -> anyhow::Result<Ptxas> {
    let on_path = env::var_os("PATH").unwrap_or_default();
    let homes = ["CUDA_HOME", "CUDA_PATH"].map(|name| env::var_os(name).map(PathBuf::from));
    let path = env::split_paths(&on_path)
        .chain(homes.into_iter().flatten().map(|home| home.join("bin")))
        .map(|folder| folder.join("ptxas"))
        .chain([unpacked_program()])
        .find(|path| path.is_file())
        .context(
            "no ptxas on PATH, in CUDA_HOME or under target/ptxas; `cargo xtask setup` unpacks \
             one from the PyPI package nvidia-cuda-nvcc",
        )?;
    let text = workspace::output(Command::new(&path).arg("--version"))?;
    let version = text
        .lines()
        .find_map(|line| line.rsplit_once(", ").map(|(_, version)| version.to_owned()))
        .with_context(|| format!("{} names no version", path.display()))?;
    Ok(Ptxas { path, version })
}

impl Ptxas {
    /// The program.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Assembles a file and throws the result away.
    pub(crate) fn assemble(&self, ptx: &Path, arch: &str) -> anyhow::Result<Report> {
        self.assemble_to(ptx, arch, Path::new("/dev/null"))
    }

    /// Assembles a file.
    pub(crate) fn assemble_to(
        &self,
        ptx: &Path,
        arch: &str,
        cubin: &Path,
    ) -> anyhow::Result<Report> {
        let output = Command::new(&self.path)
            .arg(format!("-arch={arch}"))
            .args(["-v", "-o"])
            .arg(cubin)
            .arg(ptx)
            .output()
            .with_context(|| format!("cannot start {}", self.path.display()))?;
        let text =
            String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("ptxas refuses {}:\n{}", workspace::shown(ptx), text.trim());
        }
        parse(&text).with_context(|| format!("cannot read what ptxas says:\n{text}"))
    }
}

/// Reads the output of `ptxas -v`.
fn parse(text: &str) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let mut entry = None;
    let mut in_entry = false;
    for line in text.lines() {
        if line.contains("(C75") {
            report.faults.push(line.trim().to_owned());
        } else if let Some((_, after)) = line.split_once("Compiling entry function '") {
            let name = after.split('\'').next().unwrap_or(after).to_owned();
            entry = Some((name, Resources::default()));
        } else if let Some((_, function)) = line.split_once("Function properties for ") {
            in_entry = entry.as_ref().is_some_and(|(name, _)| name == function.trim());
        } else if line.contains("bytes stack frame") {
            let stack_bytes = amount(line, "bytes stack frame");
            match entry.as_mut().filter(|_| in_entry) {
                Some((_, resources)) => {
                    resources.stack_bytes = stack_bytes;
                    resources.spill_bytes =
                        amount(line, "bytes spill stores") + amount(line, "bytes spill loads");
                }
                None if stack_bytes > 0 => {
                    report.faults.push(format!("a called function has {}", line.trim()));
                }
                None => {}
            }
        } else if line.contains(" registers") {
            let (name, mut resources) = entry.take().context("registers of no entry")?;
            resources.registers = amount(line, "registers");
            resources.shared_bytes = amount(line, "bytes smem");
            resources.local_bytes = amount(line, "bytes lmem");
            report.entries.insert(name, resources);
        }
    }
    ensure!(entry.is_none() && !report.entries.is_empty(), "no entry, or one without registers");
    Ok(report)
}

/// The number before `unit`, 0 where the line has none.
fn amount(line: &str, unit: &str) -> u32 {
    line.split_once(unit)
        .and_then(|(before, _)| before.trim_end().rsplit(' ').next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas info    : Compiling entry function 'a' for 'sm_80'
ptxas info    : Function properties for a
    160 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 28 registers, used 0 barriers, 160 bytes cumulative stack size, 528 bytes cmem[0]
ptxas info    : Compile time = 14.892 ms
ptxas info    : Function properties for panic_fmt
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'b' for 'sm_80'
ptxas info    : Function properties for b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 1 barriers, 256 bytes smem, 64 bytes lmem, 364 bytes cmem[0]
";

    #[test]
    fn output_is_read() {
        let report = parse(OUTPUT).unwrap();
        let a =
            Resources { registers: 28, spill_bytes: 20, stack_bytes: 160, ..Resources::default() };
        let b =
            Resources { registers: 8, shared_bytes: 256, local_bytes: 64, ..Resources::default() };
        assert_eq!(report.entries, BTreeMap::from([("a".into(), a), ("b".into(), b)]));
        assert_eq!(report.faults.len(), 1);
    }

    #[test]
    fn silence_is_no_report() {
        assert!(parse("ptxas info    : 0 bytes gmem\n").is_err());
    }
}
