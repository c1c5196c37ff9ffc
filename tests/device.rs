//! Does it hold on a GPU? The checks of the CPU through every variant that this device
//! runs, by name, and what only a GPU can do in time.
//!
//! The engine door's outputs lie in device memory full of poison between guards: every
//! slot must be written and nothing else. Without a GPU each test prints a line and
//! passes, or fails if `FLASH_SAMPLING_REQUIRE_GPU` is 1. Tests whose names begin with
//! `long_` are too long to run under a sanitizer; the others do less of the same there,
//! if `FLASH_SAMPLING_SANITIZER` is 1.

use flash_sampling::{CpuOptions, CpuVariant, Dtype, NO_TOKEN};
use flash_sampling_kernels::gumbel::{exponential, noise};
use flash_sampling_kernels::kernels::noise_probe::digest;
use flash_sampling_tests::checks;
use flash_sampling_tests::gpu::{self, EasyDoor, EngineDoor, Gpu};
use flash_sampling_tests::inputs::{Case, Head, Matrix, rows_of};
use flash_sampling_tests::panel::{CpuSampler, Effort, Panel};
use rayon::prelude::*;
use std::sync::Arc;

/// Every variant behind the CPU, for cases that a CPU answers too.
fn every_variant() -> Option<Panel> {
    Some(gpu::every_variant()?.with_effort(effort()))
}

/// What the planner chooses, for histograms.
fn planners_choice() -> Option<Panel> {
    Some(gpu::planners_choice()?.with_effort(effort()))
}

fn effort() -> Effort {
    if gpu::is_set("FLASH_SAMPLING_SANITIZER") { Effort::Sanitizer } else { Effort::Host }
}

mod exact {
    flash_sampling_tests::exact_checks!(super::every_variant());
}

mod properties {
    flash_sampling_tests::properties_checks!(super::every_variant());
}

mod edges {
    flash_sampling_tests::edges_checks!(super::every_variant());
}

mod features {
    use flash_sampling_tests::{checks, gpu};

    flash_sampling_tests::features_checks!(super::every_variant());

    #[test]
    fn filtered_softmax() {
        let Some(mut panel) = gpu::planners_choice() else { return };
        checks::features::filtered_softmax(&mut panel);
    }
}

mod reports {
    flash_sampling_tests::reports_checks!(super::every_variant());
}

mod distribution {
    flash_sampling_tests::distribution_checks!(super::planners_choice());
}

/// Random inputs, whose sums round: the portable kernel adds in the same order on both
/// machines, so that even these agree in every bit.
#[test]
fn portable_kernel_is_the_cpu_reference() {
    let Some(simt) = EngineDoor::open(Some("simt")) else { return };
    let reference = CpuOptions { threads: None, variant: Some(CpuVariant::Reference) };
    let reference = CpuSampler::with(reference).expect("any CPU runs the reference");
    let mut panel = Panel::new(vec![Box::new(reference), Box::new(simt)], Effort::Host);
    for (seed, dtype) in [(71, Dtype::Bf16), (72, Dtype::F16), (73, Dtype::F32)] {
        for (batch, vocab, hidden) in [(1, 1_000, 576), (13, 333, 1_001)] {
            let weights = Matrix::random(10 * seed, dtype, vocab, hidden, 0.1);
            let hidden_states = Matrix::random(10 * seed + 1, dtype, batch, hidden, 2.0);
            let rows = rows_of(batch, &[1.0, 0.0, 0.7]);
            let head = Arc::new(Head::new(weights));
            let name = format!("random {dtype:?}, B {batch}");
            panel.sample(&Case::new(name, &head, hidden_states, rows).with_draws(3));
        }
    }
    panel.assert_everyone_answered();
}

/// Random inputs through the planner's choice: a row has the bits that it has alone,
/// whatever variant its batch takes, and wherever its vocabulary is cut between tiles.
#[test]
fn bits_depend_neither_on_the_batch_nor_on_the_shard() {
    const VOCAB: usize = 1_000;
    const HIDDEN: usize = 1_096;
    let Some(mut panel) = gpu::planners_choice() else { return };
    let mut ask = |case: &Case| {
        let mut found = Vec::new();
        panel.sample_each(case, |_, output| {
            found = output.tokens.iter().copied().zip(output.scores.iter().copied()).collect();
        });
        found
    };
    let head = Head::new(Matrix::random(81, Dtype::Bf16, VOCAB, HIDDEN, 0.1));
    let hidden_states = Matrix::random(82, Dtype::Bf16, 512, HIDDEN, 2.0);
    let rows = rows_of(512, &[1.0, 0.0, 0.7]);
    let all = Case::new("random", &Arc::new(head.clone()), hidden_states, rows).inexact();
    let bits = |(token, score): (u32, f32)| (token, score.to_bits());
    for batch in
        [2, 8, 9, 16, 17, 32, 33, 64, 65, 96, 97, 128, 129, 161, 192, 193, 224, 256, 257, 512]
    {
        let found = ask(&all.select(&(0..batch).collect::<Vec<_>>()));
        for row in [0, batch / 2, batch - 1] {
            let alone = ask(&all.select(&[row]))[0];
            assert_eq!(bits(found[row]), bits(alone), "row {row} of {batch}");
        }
    }
    let whole = all.select(&[0, 1, 2, 3, 4]);
    let expected = ask(&whole);
    for cut in [128, 384, 896] {
        let mut best = vec![(NO_TOKEN, f32::NEG_INFINITY); whole.batch()];
        for (from, to) in [(0, cut), (cut, VOCAB)] {
            let shard = Case { head: Arc::new(head.shard(from, to)), ..whole.clone() };
            for (best, found) in best.iter_mut().zip(ask(&shard)) {
                if found.1 > best.1 {
                    *best = found;
                }
            }
        }
        for (row, (best, expected)) in best.into_iter().zip(&expected).enumerate() {
            assert_eq!(bits(best), bits(*expected), "row {row}, cut at {cut}");
        }
    }
}

#[test]
fn probes_answer_as_the_cpu_does() {
    let Some(gpu) = Gpu::open() else { return };
    let (first, words) = (u32::MAX - 70_000, 100_000);
    let found = gpu.sampler.probe_noise(first, words).expect("runs");
    for (i, found) in (0..words).zip(found) {
        let word = first.wrapping_add(i);
        assert_eq!(found.to_bits(), noise(exponential(word)).to_bits(), "word {word:#010x}");
    }
    let (first, words) = (1 << 31, 1 << 20);
    let found = gpu.sampler.probe_noise_digest(first, words).expect("runs");
    assert_eq!(found, digest(first, words, 0, 1));
}

/// All 2³² words: the noise of the device is that of the CPU, bit for bit.
#[test]
fn long_noise_of_every_word() {
    const WORDS: u64 = 1 << 32;
    const PIECES: u64 = 4_096;
    let Some(gpu) = Gpu::open() else { return };
    let found = gpu.sampler.probe_noise_digest(0, WORDS).expect("the device digests");
    let pieces = (0..PIECES).into_par_iter().map(|piece| digest(0, WORDS, piece, PIECES));
    let expected = pieces.reduce(|| 0, u64::wrapping_add);
    assert_eq!(found, expected, "{found:016x} on the device, {expected:016x} on the CPU");
}

#[test]
fn long_rare_tokens() {
    let Some(door) = EasyDoor::open() else { return };
    checks::distribution::rare_tokens(&mut Panel::new(vec![Box::new(door)], Effort::Device));
}

#[test]
fn long_whole_vocabularies() {
    let Some(mut panel) = gpu::planners_choice() else { return };
    checks::distribution::whole_vocabularies(&mut panel);
}

#[test]
fn long_ids_stay_below_v_at_a_thousand_positions() {
    let Some(mut panel) = gpu::planners_choice() else { return };
    checks::edges::ids_stay_below_v(&mut panel);
}

#[test]
fn long_more_than_2_to_32_logits() {
    let Some(mut panel) = every_variant() else { return };
    checks::edges::more_than_2_to_32_logits(&mut panel);
}
