//! PTX text: what no compiler of ours can say is added, and what must not be is refused.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use flash_sampling_kernels::abi::Variant;

use super::Arch;

/// Adds `.maxntid` and `.minnctapersm` to the entries of `variants`: rustc has no
/// attribute for launch bounds, and without them ptxas may use more registers than
/// a block of that size can have.
pub(crate) fn with_launch_bounds<'a>(
    ptx: &str,
    variants: impl Iterator<Item = &'a Variant>,
) -> anyhow::Result<String> {
    let mut lines: Vec<String> = ptx.lines().map(str::to_owned).collect();
    for variant in variants {
        let start = lines
            .iter()
            .position(|line| entry_name(line) == Some(variant.entry))
            .with_context(|| format!("no entry {}", variant.entry))?;
        let end = lines[start..]
            .iter()
            .position(|line| line.contains(')'))
            .with_context(|| format!("the parameters of {} do not end", variant.entry))?;
        let bounds =
            format!(".maxntid {}, 1, 1\n.minnctapersm {}", variant.threads, variant.blocks_per_sm);
        lines.insert(start + end + 1, bounds);
    }
    Ok(lines.join("\n") + "\n")
}

/// Checks target, entries and the absence of local memory and unresolved functions.
pub(crate) fn check(ptx: &str, arch: &Arch, entries: &BTreeSet<&str>) -> anyhow::Result<()> {
    let directive = |name: &str| ptx.lines().find_map(|line| line.strip_prefix(name));
    let target = directive(".target ").context("no .target")?;
    ensure!(
        target.split([',', ' ']).next() == Some(arch.name),
        ".target is {target}, expected {}",
        arch.name
    );
    let version = directive(".version ").context("no .version")?.trim();
    let expected = format!("{}.{}", arch.ptx_version / 10, arch.ptx_version % 10);
    ensure!(version == expected, ".version is {version}, expected {expected}");
    let found: BTreeSet<&str> = ptx.lines().filter_map(entry_name).collect();
    ensure!(found == *entries, "entries are {found:?}, expected {entries:?}");
    for line in ptx.lines() {
        let line = line.trim_start();
        ensure!(!line.starts_with(".extern .func"), "unresolved function: {line}");
        ensure!(!line.starts_with(".local"), "an entry uses local memory: {line}");
    }
    Ok(())
}

/// The entry whose definition a line begins.
fn entry_name(line: &str) -> Option<&str> {
    let (_, after) = line.split_once(".entry ")?;
    Some(after.split('(').next().unwrap_or(after).trim())
}

#[cfg(test)]
mod tests {
    use flash_sampling_kernels::abi::VARIANTS;

    use super::*;
    use crate::build_ptx::ARCHES;

    fn module(body: &str) -> String {
        format!(
            "//\n.version 7.4\n.target sm_80\n.address_size 64\n\n.visible .entry {}(\n\t.param \
             .u64 p0,\n\t.param .align 8 .b8 p1[16]\n)                // @name\n{{\n{body}\n}}\n\
             .visible .entry other()\n{{\n\tret;\n}}\n",
            VARIANTS[0].entry
        )
    }

    #[test]
    fn bounds_stand_between_parameters_and_body() {
        let text = with_launch_bounds(&module("\tret;"), VARIANTS[..1].iter()).unwrap();
        let bounds = format!(
            "// @name\n.maxntid {}, 1, 1\n.minnctapersm {}\n{{\n",
            VARIANTS[0].threads, VARIANTS[0].blocks_per_sm
        );
        assert!(text.contains(&bounds), "{text}");
        assert_eq!(text.matches(".maxntid").count(), 1);
        assert!(with_launch_bounds(".version 7.4", VARIANTS[..1].iter()).is_err());
    }

    #[test]
    fn a_sound_module_passes() {
        let entries = BTreeSet::from([VARIANTS[0].entry, "other"]);
        check(&module("\tret;"), &ARCHES[0], &entries).unwrap();
    }

    #[test]
    fn each_fault_is_found() {
        let entries = [VARIANTS[0].entry, "other"];
        let error = |text: &str, entries: &[&'static str]| {
            let entries = entries.iter().copied().collect();
            format!("{:#}", check(text, &ARCHES[0], &entries).unwrap_err())
        };
        let sound = module("\tret;");
        assert!(error(&sound.replace("sm_80", "sm_90"), &entries).contains(".target"));
        assert!(error(&sound.replace("7.4", "8.0"), &entries).contains(".version"));
        assert!(error(&sound, &entries[1..]).contains("entries"));
        let local = module("\t.local .align 4 .b8 \t__local_depot2[160];");
        assert!(error(&local, &entries).contains("local memory"));
        let unresolved = format!("{sound}.extern .func memcpy\n");
        assert!(error(&unresolved, &entries).contains("unresolved"));
    }
}
