//! `cargo xtask ptx-report`: what the committed PTX needs of a GPU, by ptxas.
//!
//! Fails on spills, stack frames, local memory, ptxas's `C75xx`, and reads that the scan of a
//! Hopper kernel would wait for: each of them costs more than the kernel that has it may lose.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, ensure};
use flash_sampling_kernels::abi::{Kernel, VARIANTS, Variant, sm90};

use crate::build_ptx::manifest::{self, Manifest};
use crate::ptxas::{self, Resources};
use crate::{sass, workspace};

/// Least distance of reads from their uses in a scan that nothing hides: the latency of shared
/// memory (`docs/findings/2026-11-loads-of-the-scan.md`).
const LEAST_AHEAD: usize = 25;

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> anyhow::Result<()> {
    let ptxas = ptxas::find()?;
    let nvdisasm = sass::find(&ptxas)?;
    let manifest = Manifest::read()?;
    let cubins = workspace::target("ptx-report");
    fs::create_dir_all(&cubins)?;
    println!(
        "ptxas {}; the manifest's: {}",
        ptxas.version,
        manifest.ptxas.as_deref().unwrap_or("none")
    );
    let mut faults = Vec::new();
    for file in &manifest.files {
        let cubin = cubins.join(&file.arch).with_extension("cubin");
        let ptx = manifest::folder().join(file.file_name());
        let report = ptxas.assemble_to(&ptx, &file.arch, &cubin)?;
        print!("\n{}\n{}", file.arch, table(&report.entries, &file.entries));
        let of_entries =
            report.entries.iter().flat_map(|(entry, resources)| faults_of(entry, resources));
        let mut found: Vec<String> = of_entries.chain(report.faults).collect();
        let scans = VARIANTS.iter().filter(|variant| report.entries.contains_key(variant.entry));
        let scans: Vec<_> = scans.filter(|variant| shows_its_scan(variant)).collect();
        if !scans.is_empty() {
            found.extend(of_scans(&scans, &nvdisasm.entries(&cubin)?)?);
        }
        faults.extend(found.iter().map(|fault| format!("{}: {fault}", file.arch)));
    }
    ensure!(faults.is_empty(), "ptxas found faults\n  {}", faults.join("\n  "));
    Ok(())
}

/// Whether a kernel's warpgroups share tiles, so that no other's products hide the scan.
fn shows_its_scan(variant: &Variant) -> bool {
    variant.kernel == Kernel::SampleSm90 && sm90::m_tiles(variant.tile_b) == 1
}

/// Prints how far the reads of each scan stand before their uses, and tells which are too near.
fn of_scans(
    variants: &[&Variant],
    instructions: &BTreeMap<String, Vec<String>>,
) -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    println!("\nreads of the scan before their use, in instructions");
    for Variant { entry, tile_b, .. } in variants {
        let all = instructions.get(*entry).with_context(|| format!("nvdisasm has no {entry}"))?;
        // A thread has two columns of each eight.
        let ahead = sass::read_ahead(all, (*tile_b / 4) as usize)
            .with_context(|| format!("no scan in {entry}"))?;
        println!("{entry:40} {ahead:>3}");
        if ahead < LEAST_AHEAD {
            faults.push(format!(
                "{entry} reads {ahead} instructions before the use in its scan, expected at least \
                 {LEAST_AHEAD}"
            ));
        }
    }
    Ok(faults)
}

/// One line an entry; registers beside the manifest's where they differ.
fn table(found: &BTreeMap<String, Resources>, recorded: &BTreeMap<String, Resources>) -> String {
    let mut text = format!(
        "{:40} {:>9} {:>10} {:>7} {:>7} {:>7} {:>7}\n",
        "entry", "registers", "(manifest)", "spills", "stack", "local", "shared"
    );
    for (entry, now) in found {
        let before = match recorded.get(entry) {
            Some(before) if before.registers == now.registers => "same".to_owned(),
            Some(before) => before.registers.to_string(),
            None => "none".to_owned(),
        };
        text += &format!(
            "{entry:40} {:>9} {before:>10} {:>7} {:>7} {:>7} {:>7}\n",
            now.registers, now.spill_bytes, now.stack_bytes, now.local_bytes, now.shared_bytes
        );
    }
    text
}

fn faults_of(entry: &str, resources: &Resources) -> impl Iterator<Item = String> {
    [
        (resources.spill_bytes, "bytes of spills"),
        (resources.stack_bytes, "bytes of stack"),
        (resources.local_bytes, "bytes of local memory"),
    ]
    .into_iter()
    .filter(|(bytes, _)| *bytes > 0)
    .map(move |(bytes, what)| format!("{entry} has {bytes} {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_named() {
        let sound = Resources { registers: 255, shared_bytes: 1 << 16, ..Resources::default() };
        assert_eq!(faults_of("e", &sound).count(), 0);
        let faulty = Resources { spill_bytes: 4, stack_bytes: 8, local_bytes: 16, ..sound };
        let found: Vec<_> = faults_of("e", &faulty).collect();
        assert_eq!(
            found,
            ["e has 4 bytes of spills", "e has 8 bytes of stack", "e has 16 bytes of local memory"]
        );
    }

    #[test]
    fn registers_stand_beside_the_manifests() {
        let with = |registers| {
            BTreeMap::from([("e".to_owned(), Resources { registers, ..Resources::default() })])
        };
        let line = |text: String| {
            text.lines().nth(1).unwrap().split_whitespace().nth(2).unwrap().to_owned()
        };
        assert_eq!(line(table(&with(40), &with(40))), "same");
        assert_eq!(line(table(&with(40), &with(42))), "42");
        assert_eq!(line(table(&with(40), &BTreeMap::new())), "none");
    }
}
