//! Is the committed PTX what we think? Text only: no GPU, no toolchain.
//!
//! The counts guard against a silent miscompilation: a barrier, shuffle or matrix
//! instruction that a compiler has copied into both sides of a branch. Each is derived
//! from the kernel's source and the constants of `abi`.

use flash_sampling_kernels::abi::kept::{self, KeptParams, kept_variant};
use flash_sampling_kernels::abi::{
    Kernel, NOISE_DIGEST_ENTRY, NOISE_ENTRY, SampleParams, TILE_V, VARIANTS, Variant, mma, sm90,
};
use flash_sampling_tests::ptx::together::{of_few, of_plain_few, of_short_rows};
use flash_sampling_tests::ptx::{
    Entry, FILES, entries, for_each_kept, for_each_variant, instruction, text,
};

/// `d` that one `mma` instruction takes.
const MMA_D: u32 = 16;

/// Bytes that one `cp.async` brings.
const COPY_BYTES: u32 = 16;

/// Bytes of a matrix among the parameters.
const ADDRESS_BYTES: usize = 8;
const TENSOR_MAP_BYTES: usize = 128;

#[test]
fn entries_are_those_of_abi() {
    for (arch, compute_capability, _) in FILES {
        let found: Vec<_> = entries(&text(arch)).into_keys().collect();
        let variants = VARIANTS.iter().filter(|v| v.runs_on(compute_capability));
        let mut expected: Vec<_> = variants.map(|v| v.entry).collect();
        let kept = kept_variant(compute_capability);
        expected.extend(kept.map(|v| v.entry));
        expected.extend([kept::LOG_SUM_EXP_ENTRY, NOISE_ENTRY, NOISE_DIGEST_ENTRY]);
        expected.sort_unstable();
        assert_eq!(found, expected, "{arch}");
    }
}

#[test]
fn target_and_version_are_as_promised() {
    for (arch, _, version) in FILES {
        let text = text(arch);
        let directive = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        assert_eq!(directive(".target "), Some(arch));
        assert_eq!(directive(".version "), Some(version), "{arch}");
        assert_eq!(directive(".address_size "), Some("64"), "{arch}");
    }
}

#[test]
fn parameters_and_launch_bounds_are_those_of_abi() {
    let check = |matrix_bytes: usize| {
        move |variant: &Variant, entry: &Entry, at: &str| {
            let expected = [matrix_bytes, matrix_bytes, size_of::<SampleParams>()];
            assert_eq!(entry.parameters, expected, "{at}");
            let Variant { threads, blocks_per_sm, cluster, .. } = *variant;
            assert_bounds(entry, (threads, blocks_per_sm, cluster), at);
        }
    };
    for_each_kept(|variant, entry, at| {
        assert_eq!(entry.parameters, [size_of::<KeptParams>()], "{at}");
        assert_bounds(entry, (kept::THREADS, variant.blocks_per_sm, variant.cluster), at);
    });
    for_each_variant(Kernel::SampleSimt, check(ADDRESS_BYTES));
    for_each_variant(Kernel::SampleMma, check(ADDRESS_BYTES));
    for_each_variant(Kernel::SampleSm90, check(TENSOR_MAP_BYTES));
    for (arch, ..) in FILES {
        let entries = entries(&text(arch));
        let log_sum_exp = &entries[kept::LOG_SUM_EXP_ENTRY];
        assert_eq!(log_sum_exp.parameters, [size_of::<KeptParams>()], "{arch}");
        assert_bounds(log_sum_exp, (kept::LOG_SUM_EXP_THREADS, 1, 1), arch);
        assert_eq!(entries[NOISE_ENTRY].parameters, [8, 4, 4], "{arch}");
        assert_eq!(entries[NOISE_DIGEST_ENTRY].parameters, [8, 8, 8], "{arch}");
    }
}

fn assert_bounds(entry: &Entry, (threads, per_sm, cluster): (u32, u32, u32), at: &str) {
    let mut bounds = format!(".maxntid {threads}, 1, 1\n.minnctapersm {per_sm}");
    if cluster > 1 {
        bounds += &format!("\n.explicitcluster\n.reqnctapercluster {cluster}, 1, 1");
    }
    assert!(entry.bounds.ends_with(&bounds), "{at}: {}", entry.bounds);
}

#[test]
fn nothing_is_local_or_unresolved() {
    for (arch, ..) in FILES {
        for line in text(arch).lines().map(str::trim_start) {
            assert!(!line.starts_with(".local"), "{arch}: {line}");
            assert!(!line.starts_with(".extern .func"), "{arch}: {line}");
        }
    }
}

/// Bits equal the CPU's only where every operation is rounded once, to nearest, with
/// subnormals kept. ptxas fuses a `mul` and an `add` that name no rounding. What quotients are
/// made of is written by hand (`arch/ptx/divisor.rs`), and the powers of 2 in sums that need only
/// be near (`partial_sum.rs`).
#[test]
fn arithmetic_is_the_cpus() {
    for (arch, ..) in FILES {
        for (name, entry) in entries(&text(arch)) {
            let mut rounded = 0;
            let mut is_by_hand = false;
            for line in &entry.body {
                is_by_hand = (is_by_hand || line.contains("// begin inline asm"))
                    && !line.contains("// end inline asm");
                let operation = instruction(line).split_whitespace().next().unwrap_or("");
                let by_hand = ["fma.rn.f32", "rcp.approx.ftz.f32", "ex2.approx.ftz.f32"];
                let is_meant = is_by_hand && by_hand.contains(&operation);
                for inexact in ["fma.", ".approx", ".ftz", ".full"] {
                    let is_inexact = operation.contains(inexact) && !is_meant;
                    assert!(!is_inexact, "{arch} {name}: {line}");
                }
                let rounds =
                    ["add.", "sub.", "mul.", "div."].iter().any(|o| operation.starts_with(o));
                if rounds && operation.ends_with(".f32") {
                    assert!(operation.ends_with(".rn.f32"), "{arch} {name}: {line}");
                    rounded += 1;
                }
            }
            assert!(rounded > 0, "{arch} {name} has no arithmetic to judge");
        }
    }
}

/// Legs of `sample_simt.rs` end in a barrier each: two a slab, two a draw, two to
/// finish. Handing over takes one more and a reduction.
#[test]
fn simt_barriers_are_where_the_source_has_them() {
    for_each_variant(Kernel::SampleSimt, |_, entry, at| {
        assert_eq!(entry.count("bar.sync"), 7, "{at}");
        assert_eq!(entry.count("bar.red"), 1, "{at}");
        assert_eq!(entry.count("bar.warp.sync"), 7, "{at}: one anchor for each");
    });
}

/// Of the block: one barrier a slab, one between writing and clearing, one to hand over
/// and its reduction. Of the sieve: two where rows begin, at two places; and one after
/// the first levels, one after they are shared, one a draw, one at the end, with a
/// reduction a draw.
#[test]
fn mma_synchronization_is_where_the_source_has_it() {
    for_each_variant(Kernel::SampleMma, |variant, entry, at| {
        let fragments = (variant.tile_b / 8) as usize;
        let steps = (mma::TILE_D / MMA_D) as usize;
        // Two tiles of 16 tokens a warp for each fragment of eight batch rows.
        assert_eq!(entry.count("mma.sync"), steps * 2 * fragments, "{at}: mma.sync");
        // One load a tile; one serves two fragments of the hidden states.
        let loads = steps * (2 + fragments.div_ceil(2));
        assert_eq!(entry.count("ldmatrix.sync"), loads, "{at}: ldmatrix");
        // Before the first tile's loads, and after each tile's, at the two places of a load.
        assert_votes(variant, entry, 1 + 2, at);
        assert_eq!(entry.count("bar.sync"), 3 + 2 + 4, "{at}: bar.sync");
        assert_eq!(entry.count("bar.red"), 1 + 1, "{at}: bar.red");
        let synchronizing = [
            "mma.sync",
            "ldmatrix.sync",
            "redux.sync",
            "vote.sync",
            "shfl.sync",
            "bar.sync",
            "bar.red",
        ];
        let anchored: usize = synchronizing.iter().map(|name| entry.count(name)).sum();
        // Handing over is one statement of a barrier and a reduction; the queue is
        // ordered by an anchor of its own, and so are partial sums as they begin and as they are
        // left.
        let sums = if variant.sums_weights { 2 } else { 0 };
        let anchors = anchored - 1 + 1 + sums;
        assert_eq!(entry.count("bar.warp.sync"), anchors, "{at}: one anchor for each");
    });
}

/// Which slots have pairs to queue, whether any of a warp's values are to be stored, which lanes
/// of each of two columns, and at so many places whether the rows admit a tile's tokens. Where weights are summed up, whether any row wants it,
/// and of the two columns of each of two fragments the greatest value and the sum.
fn assert_votes(variant: &Variant, entry: &Entry, admits: usize, at: &str) {
    assert_eq!(entry.count("redux.sync"), 2 + usize::from(variant.sums_weights), "{at}: redux");
    assert_eq!(entry.count("vote.sync"), 2 + admits, "{at}: vote");
    let fragments = (variant.tile_b as usize / 8).min(2);
    let shuffles = if variant.sums_weights { fragments * 2 * 2 } else { 0 };
    assert_eq!(entry.count("shfl.sync"), shuffles, "{at}: shfl");
}

/// A slab is copied at two places of the source, the first of which a compiler may
/// unroll: `stages − 1` slabs run ahead.
#[test]
fn mma_copies_whole_slabs() {
    for_each_variant(Kernel::SampleMma, |variant, entry, at| {
        let lines = mma::THREADS / (mma::ROW_BYTES / COPY_BYTES);
        let slab = (TILE_V / lines + variant.tile_b.div_ceil(lines)) as usize;
        let copies = entry.count("cp.async.cg.shared.global");
        let stages = mma::stages(variant.tile_b) as usize;
        assert_eq!(copies % slab, 0, "{at}: {copies} copies, {slab} a slab");
        assert!((2..=stages).contains(&(copies / slab)), "{at}: {copies} copies, {slab} a slab");
        assert_eq!(entry.count("cp.async.wait_group"), 1, "{at}");
    });
}

/// The copy engine faults on a tensor map that is not aligned to 64 bytes.
#[test]
fn tensor_maps_are_aligned() {
    for (arch, compute_capability, _) in FILES {
        let text = text(arch);
        let mapped = |v: &&Variant| v.kernel == Kernel::SampleSm90 && v.runs_on(compute_capability);
        let expected = 2 * VARIANTS.iter().filter(mapped).count();
        let maps = text.lines().filter(|line| line.contains(&format!("[{TENSOR_MAP_BYTES}]")));
        // The parameters of a call are as long, and less aligned.
        let is_map = |line: &&str| line.contains(".param") && !line.contains(".align 8 ");
        let maps: Vec<_> = maps.filter(is_map).collect();
        assert_eq!(maps.len(), expected, "{arch}");
        assert!(maps.iter().all(|line| line.contains(".align 64 ")), "{arch}: {maps:?}");
    }
}

/// Products of a slab, of one warpgroup.
fn products(variant: &Variant) -> usize {
    (sm90::m_tiles(variant.tile_b) * sm90::TILE_D / MMA_D) as usize
}

/// The loop over slabs stands in the text once or more (its first round may be apart): each
/// time with two halves of a slab's products, each of which is fenced and committed.
#[test]
fn sm90_products_are_whole_slabs() {
    for_each_variant(Kernel::SampleSm90, |variant, entry, at| {
        let products = products(variant);
        let found = entry.count("wgmma.mma_async");
        let loops = found / products;
        assert!(loops >= 1 && found == loops * products, "{at}: {found} of {products}");
        assert_eq!(entry.count("wgmma.fence"), 2 * loops, "{at}: fences");
        assert_eq!(entry.count("wgmma.commit_group"), 2 * loops, "{at}: commits");
        assert_eq!(entry.count("wgmma.wait_group"), loops + 1, "{at}: waits");
        // Of both matrices, in the ring's first round and after it.
        assert_eq!(entry.count("cp.async.bulk.tensor"), 2 * 2, "{at}: copies of a slab");
    });
}

/// Of the block or cluster: one barrier before the roles, and a cluster's one after. Of
/// the hint warps: one after the rows, and where tiles are shared a reduction over the
/// levels. Of a consumer warpgroup: one after the first levels, one after they are shared,
/// one to hand over and its reduction, one between writing and clearing, where tiles
/// alternate a reduction over the levels, and in tiles of many rows one over the rows for
/// which no other tile is better.
#[test]
fn sm90_synchronization_is_where_the_source_has_it() {
    for_each_variant(Kernel::SampleSm90, |variant, entry, at| {
        let clustered = usize::from(variant.cluster > 1);
        assert_eq!(entry.count("bar.sync"), 6 - clustered, "{at}: bar.sync");
        let many_rows = usize::from(variant.tile_b >= 96);
        assert_eq!(entry.count("bar.red"), 2 + many_rows, "{at}: bar.red");
        // An arrival and a wait each.
        assert_eq!(entry.count("barrier.cluster"), 2 * 2 * clustered, "{at}: barrier.cluster");
        assert_votes(variant, entry, 1, at);
        assert_eq!(entry.count("setmaxnreg"), 2, "{at}: setmaxnreg");
        // The block lets the next kernel start; each role waits for the kernel before.
        assert_eq!(entry.count("griddepcontrol.launch_dependents"), 1, "{at}: dependents");
        assert_eq!(entry.count("griddepcontrol.wait"), 3, "{at}: dependencies");
        let barriers = sm90::stages(variant.tile_b) * sm90::STAGE_BARRIERS
            + sm90::GROUPS * sm90::GROUP_BARRIERS_COUNT;
        assert_eq!(entry.count("mbarrier.init"), barriers as usize, "{at}: mbarrier.init");
        // Stages empty and full, the turn or the levels wanted, hints ready and free.
        let waits = entry.count("mbarrier.try_wait");
        assert_eq!(waits, entry.count("wgmma.mma_async") / products(variant) + 4, "{at}: waits");
        let once = [
            "bar.sync",
            "bar.red",
            "redux.sync",
            "vote.sync",
            "shfl.sync",
            "setmaxnreg",
            "wgmma.",
            "elect.sync",
        ];
        let anchored: usize = once.iter().map(|name| entry.count(name)).sum();
        // Handing over is one statement of a barrier and a reduction, a cluster's barrier
        // one of two instructions; a wait has an anchor before and one after. The queue is
        // ordered by an anchor of its own, and so are partial sums as they begin and as they are
        // left.
        let sums = if variant.sums_weights { 2 } else { 0 };
        let anchors = anchored - 1 + 2 * clustered + 2 * waits + 1 + sums;
        assert_eq!(entry.count("bar.warp.sync"), anchors, "{at}: one anchor for each");
    });
}

/// What the kernel for kept rows does together, as often as the text has it: sums of words
/// over a block, over a cluster, histograms, gatherings; and the legs between.
#[test]
fn kept_synchronization_is_where_the_source_has_it() {
    // To reach a goal: a scan for where, the ends of a rung's keys, a histogram of its pieces,
    // one gathering. For top_k, for top_p, for the best of a report. Two of them count tokens,
    // and need the mass above, too.
    const REACHES: usize = 3;
    const BY_COUNT: usize = 2;
    // Values, the likelier than a drawn token, deviation, three cuts, mean gap, leaders; mass,
    // value, rank and entropy of a report.
    let sums = [3, 3, 4, 1, 1, 1, 1, 2, 1, 1, 1, 1];
    let reduces = sums.len() + REACHES;
    let words = sums.iter().sum::<usize>() + 2 * REACHES;
    // Which rows; floors of a draw, the total of each of two ladders; above a rung, and the scan
    // for it.
    let block_reduces = 1 + 3 + BY_COUNT + REACHES;
    let block_words = 1 + 2 + 2 + BY_COUNT + REACHES;
    let fills = 2 + REACHES;
    let gathers = 1 + REACHES;
    // What is left of the rows that few values may serve, before the next are asked for,
    // copies, transform, raw, mask, allow-list, three lists; a draw's groups and outputs; of a
    // report the draws, the row and the best; and around a scan one before, and two for the key.
    let legs = 10 + 2 + 3 + 3 * REACHES;
    for_each_kept(|variant, entry, at| {
        let clustered = usize::from(variant.cluster > 1);
        // In two halves; over lanes, warps (but for the scans) and blocks.
        let shuffled = (2 + clustered) * words + 2 * block_words - REACHES;
        let alone = [of_short_rows(), of_plain_few(clustered), of_few(clustered)];
        let shuffled = shuffled + alone.iter().map(|(shuffled, _)| shuffled).sum::<usize>();
        assert_eq!(entry.count("shfl.sync"), 2 * shuffled, "{at}: shfl");
        let alone = alone.iter().map(|(_, bars)| bars).sum::<usize>();
        let alone = legs + 2 * (reduces + block_reduces + fills + gathers) + alone;
        let together = reduces + fills + gathers;
        assert_eq!(entry.count("bar.sync"), alone + clustered * together, "{at}: bar.sync");
        // And one before a report reads the tokens, one before a block leaves; and in both texts
        // for few values one when floors are guessed, one when keys are gathered, and one when
        // rows are finished; in that for any of them one when ends are told.
        let meetings = clustered * (reduces + fills + gathers + 2 + 2 * 3 + 1);
        assert_eq!(entry.count("barrier.cluster.arrive"), meetings, "{at}: arrivals");
        assert_eq!(entry.count("barrier.cluster.wait"), meetings, "{at}: waits");
        assert_eq!(entry.count("griddepcontrol.wait"), clustered, "{at}: dependencies");
        let anchored = entry.count("shfl.sync") + entry.count("bar.sync") + meetings;
        assert_eq!(entry.count("bar.warp.sync"), anchored, "{at}: one anchor for each");
    });
}

/// One word, in two halves, goes over lanes and over warps; a leg reads what was drawn, one writes
/// the outputs.
#[test]
fn log_sum_exp_synchronization_is_where_the_source_has_it() {
    for (arch, ..) in FILES {
        let entry = &entries(&text(arch))[kept::LOG_SUM_EXP_ENTRY];
        assert_eq!(entry.count("shfl.sync"), 2 * 2, "{arch}: shfl");
        assert_eq!(entry.count("bar.sync"), 2 + 2, "{arch}: bar.sync");
        assert_eq!(entry.count("bar.warp.sync"), 4 + 4, "{arch}: one anchor for each");
        let waits = usize::from(arch == "sm_90a");
        assert_eq!(entry.count("griddepcontrol.wait"), waits, "{arch}: dependencies");
    }
}
