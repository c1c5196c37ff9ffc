//! Are the tests strong enough? Each wrong sampler must be rejected by its check.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flash_sampling_tests::mutants::{Defect, panel_of};

macro_rules! mutants {
    ($($test:ident: $defect:ident),+ $(,)?) => {
        $(
            #[test]
            fn $test() {
                assert_rejected(Defect::$defect);
            }
        )+

        #[test]
        fn none_is_forgotten() {
            let tested = [$(Defect::$defect),+];
            assert!(Defect::ALL.iter().all(|(defect, _)| tested.contains(defect)));
        }
    };
}

mutants! {
    noise_cut: NoiseCut,
    twenty_four_bits: TwentyFourBits,
    decimal_sum: DecimalSum,
    short_position: ShortPosition,
    bf16_candidates: Bf16Candidates,
    masked_to_zero: MaskedToZero,
    padding_counts: PaddingCounts,
    keyed_by_slot: KeyedBySlot,
    all_divided_by_temperature: AllDividedByTemperature,
    tail_dropped: TailDropped,
    ties_to_highest: TiesToHighest,
    local_ids: LocalIds,
    nan_wins: NanWins,
    zero_by_default: ZeroByDefault,
    noise_by_rank: NoiseByRank,
    min_p_after_top_p: MinPAfterTopP,
    one_more: OneMore,
    mass_before_temperature: MassBeforeTemperature,
    deviation_of_sample: DeviationOfSample,
    eta_greater: EtaGreater,
    trailing_bits: TrailingBits,
}

fn assert_rejected(defect: Defect) {
    let (_, (name, check)) =
        Defect::ALL.into_iter().find(|(listed, _)| *listed == defect).expect("it is listed");
    let survived = catch_unwind(AssertUnwindSafe(|| check(&mut panel_of(Some(defect)))));
    assert!(survived.is_err(), "{name} accepts {defect:?}");
}

/// Without its defect the same sampler passes: what the checks reject is the defect.
#[test]
fn without_a_defect_it_passes() {
    let mut checks: Vec<_> = Defect::ALL.into_iter().map(|(_, check)| check).collect();
    checks.sort_by_key(|(name, _)| *name);
    checks.dedup_by_key(|(name, _)| *name);
    for (name, check) in checks {
        eprintln!("{name}");
        check(&mut panel_of(None));
    }
}
