//! `cargo xtask ptx-report`: what the committed PTX needs of a GPU, by ptxas.
//!
//! Fails on spills, stack frames, local memory and ptxas's `C75xx`: each of them costs
//! more than the kernel that has it may lose.

use std::collections::BTreeMap;

use anyhow::ensure;

use crate::build_ptx::manifest::{self, Manifest};
use crate::ptxas::{self, Resources};

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> anyhow::Result<()> {
    let ptxas = ptxas::find()?;
    let manifest = Manifest::read()?;
    println!(
        "ptxas {}; the manifest's: {}",
        ptxas.version,
        manifest.ptxas.as_deref().unwrap_or("none")
    );
    let mut faults = Vec::new();
    for file in &manifest.files {
        let report = ptxas.assemble(&manifest::folder().join(file.file_name()), &file.arch)?;
        print!("\n{}\n{}", file.arch, table(&report.entries, &file.entries));
        let of_entries =
            report.entries.iter().flat_map(|(entry, resources)| faults_of(entry, resources));
        let found: Vec<String> = of_entries.chain(report.faults).collect();
        faults.extend(found.iter().map(|fault| format!("{}: {fault}", file.arch)));
    }
    ensure!(faults.is_empty(), "ptxas found faults\n  {}", faults.join("\n  "));
    Ok(())
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
