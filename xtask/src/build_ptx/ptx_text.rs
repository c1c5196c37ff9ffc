//! PTX text: what no compiler of ours can say is added, and what must not be is refused.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use flash_sampling_kernels::abi::kept::{self, kept_variant};
use flash_sampling_kernels::abi::{Kernel, VARIANTS};

use super::Arch;

/// How a tensor map is declared among the parameters, and as the copy engine asks for it.
const TENSOR_MAP: [&str; 2] = [".param .align 16 .b8 ", ".param .align 64 .b8 "];

/// How an entry is launched.
pub(super) struct Launch {
    pub(super) entry: &'static str,
    threads: u32,
    blocks_per_sm: u32,
    cluster: u32,
    /// Whether its matrices come as tensor maps.
    has_tensor_maps: bool,
}

/// Those of all kernels that a device of this compute capability runs.
pub(super) fn launches(compute_capability: u32) -> impl Iterator<Item = Launch> {
    let sampling = VARIANTS.iter().filter_map(move |variant| {
        let launch = Launch {
            entry: variant.entry,
            threads: variant.threads,
            blocks_per_sm: variant.blocks_per_sm,
            cluster: variant.cluster,
            has_tensor_maps: variant.kernel == Kernel::SampleSm90,
        };
        variant.runs_on(compute_capability).then_some(launch)
    });
    let kept = kept_variant(compute_capability).map(|variant| Launch {
        entry: variant.entry,
        threads: kept::THREADS,
        blocks_per_sm: variant.blocks_per_sm,
        cluster: variant.cluster,
        has_tensor_maps: false,
    });
    let log_sum_exp = Launch {
        entry: kept::LOG_SUM_EXP_ENTRY,
        threads: kept::LOG_SUM_EXP_THREADS,
        blocks_per_sm: 1,
        cluster: 1,
        has_tensor_maps: false,
    };
    sampling.chain(kept).chain([log_sum_exp])
}

/// Adds to the entries of `launches` what rustc has no attribute for: `.maxntid` and
/// `.minnctapersm`, without which ptxas may use more registers than a block of that size
/// can have; the size of a cluster; the alignment of tensor maps among the parameters.
pub(super) fn with_directives(
    ptx: &str,
    launches: impl Iterator<Item = Launch>,
) -> anyhow::Result<String> {
    let mut lines: Vec<String> = ptx.lines().map(str::to_owned).collect();
    for launch in launches {
        let start = lines
            .iter()
            .position(|line| entry_name(line) == Some(launch.entry))
            .with_context(|| format!("no entry {}", launch.entry))?;
        let end = lines[start..]
            .iter()
            .position(|line| line.contains(')'))
            .with_context(|| format!("the parameters of {} do not end", launch.entry))?;
        if launch.has_tensor_maps {
            for line in &mut lines[start..=start + end] {
                *line = with_aligned_tensor_map(line);
            }
        }
        let Launch { threads, blocks_per_sm, cluster, .. } = launch;
        let mut directives = format!(".maxntid {threads}, 1, 1\n.minnctapersm {blocks_per_sm}");
        if cluster != 1 {
            directives += &format!("\n.explicitcluster\n.reqnctapercluster {cluster}, 1, 1");
        }
        lines.insert(start + end + 1, directives);
    }
    Ok(lines.join("\n") + "\n")
}

/// The line of a parameter list, aligned if it declares a tensor map.
fn with_aligned_tensor_map(line: &str) -> String {
    line.replace(TENSOR_MAP[0], TENSOR_MAP[1])
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
        let first = || launches(80).take(1);
        let text = with_directives(&module("\tret;"), first()).unwrap();
        let bounds = format!(
            "// @name\n.maxntid {}, 1, 1\n.minnctapersm {}\n{{\n",
            VARIANTS[0].threads, VARIANTS[0].blocks_per_sm
        );
        assert!(text.contains(&bounds), "{text}");
        assert_eq!(text.matches(".maxntid").count(), 1);
        assert!(with_directives(".version 7.4", first()).is_err());
    }

    #[test]
    fn tensor_maps_are_aligned_and_clusters_sized() {
        let clustered = launches(90).find(|launch| launch.has_tensor_maps && launch.cluster == 2);
        let clustered = clustered.unwrap();
        let text = format!(
            ".visible .entry {}(\n\t.param .align 16 .b8 p0[128],\n\t.param .align 8 .b8 p1[136]\n)\n{{\n",
            clustered.entry
        );
        let found = with_directives(&text, std::iter::once(clustered)).unwrap();
        assert!(found.contains("\t.param .align 64 .b8 p0[128],\n"), "{found}");
        assert!(found.contains("\t.param .align 8 .b8 p1[136]\n"), "{found}");
        assert!(found.contains("\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n{"), "{found}");
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
