//! Are reports true, and the same bits on every variant and number of threads? On the CPU.

use flash_sampling::{CpuOptions, CpuVariant, Output, Sampler};
use flash_sampling_tests::checks::reports::case;
use flash_sampling_tests::panel::Panel;

flash_sampling_tests::reports_checks!(Some(Panel::every_cpu_variant()));

#[test]
fn variants_and_threads_agree_in_every_bit() {
    for (seed, vocab, first_token) in [(1, 300, 0), (2, 1_000, 77), (3, 3_000, 0), (4, 12, 5)] {
        let case = case(seed, vocab, first_token);
        let rules = case.token_rules();
        let inputs = case.inputs().with_token_rules(&rules);
        let mut agreed: Option<String> = None;
        let reference = CpuVariant::Reference;
        for variant in [reference, CpuVariant::Portable, CpuVariant::Avx2, CpuVariant::Avx512] {
            for threads in [1, 2, 5].into_iter().filter(|_| variant.available()) {
                let options = CpuOptions { threads: Some(threads), variant: Some(variant) };
                let mut sampler = Sampler::cpu_with(options).unwrap();
                let mut output = Output::default();
                (output.raw.wanted, output.processed.wanted) = (case.raw, case.processed);
                // The second call finds the buffers of the first.
                for _ in 0..2 {
                    sampler.sample(&inputs, &case.rows, case.draws, &mut output).unwrap();
                }
                // Not `==`: NaN is not equal to itself.
                let found = format!("{output:?}");
                assert_eq!(agreed.get_or_insert_with(|| found.clone()), &found);
            }
        }
    }
}
