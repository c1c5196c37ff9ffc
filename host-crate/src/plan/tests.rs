//! Which variant runs, with what, and why not the others.

use super::*;
use crate::report::Wanted;
use flash_sampling_kernels::abi::Dtype;

const H200: DeviceLimits = DeviceLimits {
    compute_capability: 90,
    multiprocessors: 132,
    shared_bytes_per_block: 227 * 1024,
    shared_bytes_per_sm: 228 * 1024,
};

const A100: DeviceLimits = DeviceLimits {
    compute_capability: 80,
    multiprocessors: 108,
    shared_bytes_per_block: 163 * 1024,
    shared_bytes_per_sm: 164 * 1024,
};

fn plan(problem: &Problem) -> Plan {
    Plan::for_gpu(problem, &H200, None).unwrap()
}

fn problem(batch: u64) -> Problem {
    Problem::builder(batch, 151_936, 4_096).build().unwrap()
}

#[test]
fn the_least_tile_that_holds_the_batch_is_preferred() {
    for (batch, name) in [
        (1, "mma_b8_bf16"),
        (8, "mma_b8_bf16"),
        (9, "mma_b16_bf16"),
        (17, "mma_b32_bf16"),
        (64, "mma_b64_bf16"),
        (65, "mma_b64_bf16"),
        (5_000, "mma_b64_bf16"),
    ] {
        let plan = Plan::for_gpu(&problem(batch), &A100, None).unwrap();
        assert_eq!(plan.variant.name(), name, "batch {batch}");
    }
}

#[test]
fn hopper_has_a_kernel_of_its_own() {
    for (batch, name) in [
        (1, "sm90_b8_bf16"),
        (16, "sm90_b16_bf16"),
        (65, "sm90_b96_bf16"),
        (97, "sm90_b128_bf16"),
        (129, "sm90_b160_bf16"),
        (161, "sm90_b192_bf16"),
        (224, "sm90_b224_bf16"),
        (225, "sm90_b256_bf16"),
        (300, "sm90_b160_bf16"),
        (384, "sm90_b192_bf16"),
        (512, "sm90_b256_bf16"),
    ] {
        assert_eq!(plan(&problem(batch)).variant.name(), name, "batch {batch}");
    }
    let blackwell = DeviceLimits { compute_capability: 100, ..H200 };
    let plan = Plan::for_gpu(&problem(1), &blackwell, None).unwrap();
    assert_eq!(plan.variant.name(), "mma_b8_bf16");
    assert!(plan.to_string().contains("compute capability: expected exactly 90, found 100"));
}

#[test]
fn what_the_copy_engine_cannot_address_goes_to_the_older_kernel() {
    let wide = Problem::builder(1, 100, 64).weights_stride(1 << 39).build().unwrap();
    let plan = plan(&wide);
    assert_eq!(plan.variant.name(), "mma_b8_bf16");
    assert!(plan.to_string().contains("bytes of a row stride: expected at most"), "{plan}");
}

#[test]
fn a_grid_holds_whole_clusters() {
    assert_eq!(plan(&problem(128)).grid, 132);
    assert_eq!(plan(&Problem::builder(128, 100, 64).build().unwrap()).grid, 2);
    let odd = DeviceLimits { multiprocessors: 113, ..H200 };
    assert_eq!(Plan::for_gpu(&problem(128), &odd, None).unwrap().grid, 112);
}

#[test]
fn the_portable_kernel_takes_what_the_others_refuse() {
    let builder = Problem::builder(4, 1_000, 64);
    for builder in [
        builder.weights_dtype(Dtype::F32),
        builder.hidden_dtype(Dtype::F16),
        builder.weights_stride(65),
        builder.hidden_stride(65),
        builder.alignment_bytes(8),
    ] {
        let plan = plan(&builder.build().unwrap());
        assert_eq!(plan.variant.name(), "simt");
        let unmet = |refusal: &Refusal| matches!(refusal.reason, Reason::Unmet { .. });
        assert!(plan.refused.iter().all(unmet), "{plan}");
    }
    let f16 = builder.weights_dtype(Dtype::F16).hidden_dtype(Dtype::F16).build().unwrap();
    assert_eq!(plan(&f16).variant.name(), "sm90_b8_f16");
}

#[test]
fn a_variant_that_does_not_fit_in_shared_memory_is_refused() {
    let small = DeviceLimits { shared_bytes_per_block: 48 * 1024, ..H200 };
    let plan = Plan::for_gpu(&problem(8), &small, None).unwrap();
    assert_eq!(plan.variant.name(), "simt");
    assert!(plan.to_string().contains("shared bytes of a block: expected at least"));
    let error = Plan::for_gpu(&problem(8), &small, Some("mma_b8_bf16")).unwrap_err();
    assert!(matches!(error, Error::Unsupported { need: Need::SharedBytes, .. }));
}

#[test]
fn the_grid_is_one_wave_or_all_tiles() {
    let chosen = plan(&problem(1));
    let VariantId::Gpu(variant) = chosen.variant else { panic!("a GPU's plan") };
    assert_eq!(chosen.grid, 132 * variant.blocks_per_sm);
    assert_eq!(plan(&Problem::builder(1, 1_000, 64).build().unwrap()).grid, 8);
    assert_eq!(plan(&Problem::builder(257, 1_000, 64).build().unwrap()).grid, 16);
    assert_eq!(plan(&problem(0)).grid, 0);
    let two_blocks = Plan::for_gpu(&problem(1), &H200, Some("mma_b8_bf16")).unwrap();
    assert_eq!(two_blocks.grid, 264);
    let one_block = DeviceLimits { shared_bytes_per_sm: 100 * 1024, ..H200 };
    let narrow = Plan::for_gpu(&problem(1), &one_block, Some("mma_b8_bf16")).unwrap();
    assert_eq!(narrow.grid, 132);
}

#[test]
fn features_add_one_kernel_and_memory_for_values() {
    let builder = Problem::builder(3, 151_937, 4_096);
    let none = plan(&builder.build().unwrap());
    assert_eq!((none.kept_bytes, none.finish), (0, None));
    let raw = Wanted::LOGPROBS;
    let features = Features { rules: true, raw, ..Features::NONE };
    let problem = builder.features(features).build().unwrap();
    let values_bytes = 3 * 151_940 * 4;
    let with = plan(&problem);
    let finish = with.finish.unwrap();
    assert_eq!((with.grid, with.workspace_bytes), (none.grid, none.workspace_bytes));
    assert!(finish.slice_in_shared && finish.raw_values.is_none());
    assert_eq!(finish.grid, 3 * 8, "a cluster a row");
    // For three rows, the sums of a block's warps each.
    let partials = with.partials.unwrap();
    assert_eq!(partials.begin, [Some(values_bytes), None]);
    assert_eq!(with.kept_bytes, values_bytes + 3 * u64::from(partials.n) * 8);
    assert!(with.to_string().contains("\nthen             flash_sampling_sample_kept_cluster\n"));
    // There a block has a whole row, which its shared memory does not hold.
    let old = Plan::for_gpu(&problem, &A100, None).unwrap();
    let finish = old.finish.unwrap();
    assert_eq!((finish.slice_in_shared, finish.grid), (false, 3));
    assert_eq!((finish.raw_values, old.kept_bytes), (Some(values_bytes), 2 * values_bytes));
    let many = Problem::builder(5_000, 1_000, 64).features(features).build().unwrap();
    let grid = plan(&many).finish.unwrap().grid;
    assert_eq!(
        grid,
        (H200.multiprocessors / 8 - 1) * 8,
        "a wave of clusters, one of which may not fit"
    );
}

/// Of a problem with 1,000 tokens, on an H200.
fn plan_with(batch: u64, features: Features, forced: Option<&str>) -> Plan {
    let problem = Problem::builder(batch, 1_000, 64).features(features).build().unwrap();
    Plan::for_gpu(&problem, &H200, forced).unwrap()
}

#[test]
fn rules_alone_are_applied_at_once_where_tiles_are_small() {
    let rules = Features { rules: true, ..Features::NONE };
    for (batch, forced, at_once) in [
        (1, None, true),
        (64, None, true),
        (65, None, false),
        (65, Some("mma_b64_bf16"), true),
        (1, Some("simt"), false),
    ] {
        let plan_finish = plan_with(batch, rules, forced).finish;
        assert_eq!(plan_finish.is_none(), at_once, "{batch} {forced:?}");
        assert_eq!(plan_with(batch, rules, forced).applies_rules, at_once, "{batch} {forced:?}");
    }
    let raw = Wanted { ranks: true, ..Wanted::NONE };
    assert!(!plan_with(1, Features { raw, ..rules }, None).applies_rules);
    assert!(!plan_with(1, Features::NONE, None).applies_rules);
    let both = plan_with(1, Features { filters: true, ..rules }, None);
    assert!(both.applies_rules && both.finish.is_some());
}

#[test]
fn a_transform_is_applied_at_once_where_tiles_are_small() {
    let transform = LogitTransform { softcap: Some(30.0), ..LogitTransform::NONE };
    let capped = Features { transform, ..Features::NONE };
    for (batch, forced, at_once) in [
        (1, None, true),
        (64, None, true),
        (65, None, false),
        (64, Some("mma_b64_sums_bf16"), true),
        (64, Some("mma_b64_bf16"), false),
        (1, Some("simt"), false),
    ] {
        let plan = |features| plan_with(batch, features, forced);
        let alone = plan(capped);
        assert_eq!(alone.applies_transform, at_once, "{batch} {forced:?}");
        assert_eq!(alone.finish.is_none(), at_once, "{batch} {forced:?}");
        assert_eq!(alone.to_string().contains("\ntransform        at once\n"), at_once);
        // What else is asked for goes as without it then.
        let raw = Wanted::LOGPROBS;
        for features in [
            Features { rules: true, ..capped },
            Features { filters: true, ..capped },
            Features { raw, ..capped },
        ] {
            let with = plan(features);
            let without = plan(Features { transform: LogitTransform::NONE, ..features });
            assert!(!without.applies_transform);
            if at_once {
                let behind = |plan: &Plan| {
                    let Plan { finish, log_sum_exp, applies_rules, .. } = *plan;
                    (finish, log_sum_exp, applies_rules)
                };
                assert_eq!(behind(&with), behind(&without), "{batch} {forced:?} {features:?}");
            } else {
                assert!(with.finish.is_some() && !with.applies_rules && with.partials.is_none());
            }
        }
    }
}

#[test]
fn log_probabilities_alone_keep_no_values_where_tiles_are_small() {
    let raw = Wanted::LOGPROBS;
    let alone = Features { raw, ..Features::NONE };
    for (batch, features, forced, sums_up) in [
        (1, alone, None, true),
        (64, Features { processed: raw, ..alone }, None, true),
        (3, Features { filters: true, ..alone }, None, true),
        (65, alone, None, false),
        (65, alone, Some("mma_b64_bf16"), false),
        (64, alone, Some("mma_b64_sums_bf16"), true),
        (64, alone, Some("mma_b64_bf16"), false),
        (1, alone, Some("simt"), false),
        (1, Features { rules: true, ..alone }, None, false),
        (1, Features { processed: Wanted { best: 1, ..raw }, ..alone }, None, false),
    ] {
        let plan = plan_with(batch, features, forced);
        assert_eq!(plan.log_sum_exp.is_some(), sums_up, "{batch} {features:?} {forced:?}");
        assert_eq!(plan.finish.is_none(), sums_up && !features.filters, "{batch} {features:?}");
    }
    let name = |features| plan_with(64, features, None).variant.name();
    assert_eq!(name(alone), "sm90_b64_sums_bf16");
    assert_eq!(name(Features { rules: true, ..Features::NONE }), "sm90_b64_bf16");
    let one = plan_with(1, alone, None);
    let Partials { n, begin, of_all_rows, .. } = one.partials.unwrap();
    // Eight tiles, one of four warps for each block; the sums lie behind the values.
    assert_eq!((one.grid, one.log_sum_exp.unwrap().grid, n), (8, 1, 32));
    assert_eq!((begin, one.kept_bytes), ([Some(4_000), None], 4_000 + 32 * 8));
    assert!(!of_all_rows);
    assert!(one.to_string().contains("\nthen             flash_sampling_log_sum_exp\n"));
    let both = plan_with(2, Features { processed: raw, filters: true, ..alone }, None);
    // Of each token a value and a key.
    let behind_lists = 2 * (4_000 + 8_000);
    let second = behind_lists + 2 * 32 * 8;
    let partials = both.partials.unwrap();
    assert_eq!(partials.begin, [Some(behind_lists), Some(second)]);
    assert!(partials.of_all_rows);
    assert!(both.applies_rules && both.finish.unwrap().kept_bytes == behind_lists);
}

#[test]
fn weights_are_summed_up_for_filters_where_values_stay_as_they_are() {
    let begin = |batch, features, forced: Option<&str>| {
        plan_with(batch, features, forced)
            .partials
            .map(|partials| partials.begin.map(|begin| begin.is_some()))
    };
    let filters = Features { filters: true, ..Features::NONE };
    let ranks = Wanted { ranks: true, ..Wanted::NONE };
    let entropies = Wanted { entropies: true, ..ranks };
    for (batch, features, forced, expected) in [
        (1, filters, None, Some([false, true])),
        (64, filters, None, Some([false, true])),
        (64, Features { rules: true, ..filters }, None, Some([false, true])),
        (33, Features { raw: Wanted::LOGPROBS, ..filters }, None, Some([true, true])),
        (3, Features { raw: Wanted::LOGPROBS, ..filters }, None, Some([true, true])),
        (64, Features { rules: true, raw: Wanted::LOGPROBS, ..filters }, None, Some([true, true])),
        (64, Features { processed: ranks, ..filters }, None, Some([false, true])),
        (64, Features { raw: ranks, ..Features::NONE }, None, Some([true, false])),
        (8, Features { rules: true, processed: ranks, ..filters }, None, Some([false, true])),
        (8, Features { processed: entropies, ..filters }, None, Some([false, true])),
        (65, Features { processed: ranks, ..filters }, None, None),
        (65, filters, None, None),
        (64, filters, Some("mma_b64_bf16"), None),
        (1, Features { rules: true, ..Features::NONE }, None, None),
    ] {
        assert_eq!(begin(batch, features, forced), expected, "{batch} {features:?} {forced:?}");
    }
    // Where a block has no room for keys, sums would serve nobody but log-probabilities.
    let plan = |features| {
        let problem = Problem::builder(8, 151_936, 64).features(features).build().unwrap();
        Plan::for_gpu(&problem, &A100, Some("mma_b8_bf16")).unwrap().partials
    };
    assert!(plan(filters).is_none());
    assert!(plan(Features { processed: ranks, ..filters }).is_none());
    let with_logprobs = plan(Features { raw: Wanted::LOGPROBS, ..filters }).unwrap();
    assert_eq!(with_logprobs.begin.map(|begin| begin.is_some()), [true, false]);
}

#[test]
fn every_variant_is_chosen_or_refused() {
    let plan = plan(&problem(8));
    assert_eq!(plan.refused.len() + 1, VARIANTS.len());
    let forced = Plan::for_gpu(&problem(8), &H200, Some("simt")).unwrap();
    assert_eq!(forced.variant.name(), "simt");
    let reasons: Vec<_> = forced.refused.iter().map(|refusal| refusal.reason).collect();
    assert!(reasons.contains(&Reason::NotForced) && !reasons.contains(&Reason::NotPreferred));
}
