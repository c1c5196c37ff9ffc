//! What ptxas makes of an entry, instruction by instruction, as nvdisasm prints it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::ptxas::{self, Ptxas};
use crate::workspace;

/// The instruction that the scan has once a pair, and no other loop in a row.
const OF_A_PAIR: &str = "FMNMX.NAN";

/// Most instructions from one pair's to the next.
const APART: usize = 40;

/// An installed nvdisasm.
pub(crate) struct Nvdisasm {
    path: PathBuf,
}

/// Finds nvdisasm beside ptxas, or where setup unpacks it.
pub(crate) fn find(ptxas: &Ptxas) -> anyhow::Result<Nvdisasm> {
    let unpacked = ptxas::unpacked_program();
    let path = [ptxas.path(), &unpacked]
        .map(|program| program.with_file_name("nvdisasm"))
        .into_iter()
        .find(|path| path.is_file())
        .context(
            "no nvdisasm beside ptxas or under target/ptxas; `cargo xtask setup` unpacks one from \
             the PyPI package nvidia-cuda-nvdisasm",
        )?;
    Ok(Nvdisasm { path })
}

impl Nvdisasm {
    /// The instructions of each entry of a cubin.
    pub(crate) fn entries(&self, cubin: &Path) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        Ok(parse(&workspace::output(Command::new(&self.path).arg("-c").arg(cubin))?))
    }
}

/// Reads the output of `nvdisasm -c`: a section for each entry, and in it lines with an address
/// in a comment.
fn parse(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut entries = BTreeMap::<_, Vec<_>>::new();
    let mut entry = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix(".text.").and_then(|name| name.strip_suffix(':')) {
            entry = Some(name.to_owned());
        } else if let (Some(entry), Some((_, instruction))) =
            (&entry, line.strip_prefix("/*").and_then(|line| line.split_once("*/")))
        {
            entries.entry(entry.clone()).or_default().push(instruction.trim().to_owned());
        }
    }
    entries
}

/// How many instructions a read of shared memory stands before its first use in the scan
/// (`kernels/sieve/scan.rs`): the median, if there is a scan of as many pairs.
pub(crate) fn read_ahead(instructions: &[String], pairs: usize) -> Option<usize> {
    let places: Vec<_> =
        (0..instructions.len()).filter(|&at| instructions[at].contains(OF_A_PAIR)).collect();
    let scan = places.chunk_by(|a, b| b - a < APART).find(|run| run.len() >= pairs)?;
    let mut read = BTreeMap::new();
    let mut distances = Vec::new();
    let (begin, last) = (scan[0].saturating_sub(10), scan[scan.len() - 1]);
    for (at, instruction) in instructions.iter().enumerate().take(last + 1).skip(begin) {
        let used = registers(instruction.split_once(',').map_or("", |(_, operands)| operands));
        distances.extend(used.filter_map(|register| Some(at - read.remove(&register)?)));
        if instruction.starts_with("LDS")
            && let Some(first) = registers(instruction).next()
        {
            let words = if instruction.starts_with("LDS.64") { 2 } else { 1 };
            read.extend((first..first + words).map(|register| (register, at)));
        }
    }
    distances.sort_unstable();
    distances.get(distances.len() / 2).copied()
}

/// The numbers of the registers that a text names: `R12`, not `UR12`.
fn registers(text: &str) -> impl Iterator<Item = u32> + '_ {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter_map(|word| word.strip_prefix('R')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scan of two pairs, whose reads stand `ahead` of their uses.
    fn scan(ahead: usize) -> Vec<String> {
        let reads = ["LDS.64 R10, [R1+0x10] ;", "LDS R12, [UR4] ;"].map(str::to_owned);
        let between = vec!["IADD3 R3, R3, R4, RZ ;".to_owned(); ahead];
        let uses = [
            "FMNMX.NAN R5, R30, R31, !PT ;",
            "FMUL R5, R12, R10 ;",
            "FSETP.GEU.AND P0, PT, R5, R11, PT ;",
            "FMNMX.NAN R5, R32, R33, !PT ;",
        ];
        reads.into_iter().chain(between).chain(uses.map(str::to_owned)).collect()
    }

    #[test]
    fn distances_are_counted_from_the_read_to_the_first_use() {
        assert_eq!(read_ahead(&scan(0), 2), Some(3));
        assert_eq!(read_ahead(&scan(7), 2), Some(10));
        assert_eq!(read_ahead(&scan(7), 3), None);
    }

    #[test]
    fn output_is_read() {
        let text = "\
.text.a:\n        /*0000*/                   LDC R1, c[0x0][0x28] ;\n.L_x_1:\n        \
/*0010*/               @P0 EXIT ;\n.text.b:\n        /*0000*/ NOP ;\n";
        let entries = parse(text);
        assert_eq!(entries["a"], ["LDC R1, c[0x0][0x28] ;", "@P0 EXIT ;"]);
        assert_eq!(entries["b"], ["NOP ;"]);
    }
}
