//! Do the laws hold? Those of calls, on the CPU; the same go through CUDA in `device.rs`.
//! And those of merging, and of threads.

use flash_sampling::{CpuOptions, CpuVariant, NO_TOKEN};
use flash_sampling_kernels::candidate::{Key, Leaders};
use flash_sampling_tests::checks;
use flash_sampling_tests::panel::{CpuSampler, Effort, Implementation, Panel};

flash_sampling_tests::properties_checks!(Some(Panel::every_cpu_variant()));

/// Members that differ in their threads alone must agree as others must.
#[test]
fn thread_count_changes_nothing() {
    for variant in CpuVariant::ALL.into_iter().filter(|variant| variant.available()) {
        let with = |threads| CpuSampler::with(CpuOptions { threads, variant: Some(variant) });
        let samplers = [Some(1), Some(2), Some(3), Some(8), None].into_iter().filter_map(with);
        let members: Vec<Box<dyn Implementation>> =
            samplers.map(|sampler| Box::new(sampler) as _).collect();
        let mut panel = Panel::new(members, Effort::Host);
        checks::exact::batches(&mut panel);
        checks::exact::bias_and_draws(&mut panel);
    }
}

/// Sets of distinct tokens with scores that tie, touch and lie apart.
fn leaders() -> Vec<Leaders> {
    let scores = [f32::MIN, -1.0, 0.0, 1.0, f32::MAX, f32::INFINITY];
    let tokens = [0, 1, 77, NO_TOKEN - 1];
    let keys: Vec<Key> = scores
        .into_iter()
        .flat_map(|score| tokens.map(|token| Key::new(score, token)))
        .chain([Key::NONE])
        .collect();
    let pairs = keys.iter().flat_map(|&first| keys.iter().map(move |&second| (first, second)));
    let ordered = pairs.filter(|(first, second)| first > second);
    ordered.map(|(first, second)| Leaders { first, second }).chain([Leaders::NONE]).collect()
}

#[test]
fn merge_is_commutative_and_idempotent() {
    for a in leaders() {
        assert_eq!(a.merge(a), a);
        assert_eq!(a.merge(Leaders::NONE), a);
        assert_eq!(Leaders::NONE.merge(a), a);
        for b in leaders() {
            assert_eq!(a.merge(b), b.merge(a), "{a:?}, {b:?}");
        }
    }
}

#[test]
fn merge_is_associative() {
    let all = leaders();
    let some: Vec<Leaders> = all.iter().copied().step_by(5).collect();
    for &a in &all {
        for &b in &some {
            for &c in &some {
                assert_eq!(a.merge(b).merge(c), a.merge(b.merge(c)), "{a:?}, {b:?}, {c:?}");
            }
        }
    }
}

/// Whatever the order of offers: the greatest, and the greatest of the others.
#[test]
fn leaders_are_the_best_two_of_a_set() {
    let keys: Vec<Key> =
        [3.0, 1.0, 3.0, -2.0, 2.0].into_iter().zip(0..).map(|(s, t)| Key::new(s, t)).collect();
    for rotation in 0..keys.len() {
        let mut found = Leaders::NONE;
        for i in 0..2 * keys.len() {
            found.offer(keys[(i + rotation) % keys.len()]);
        }
        assert_eq!((found.first.token(), found.second.token()), (0, 2), "rotation {rotation}");
    }
}
