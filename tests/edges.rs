//! What happens at the rim? On the CPU; the same checks go through CUDA in `device.rs`.

use flash_sampling_tests::checks;
use flash_sampling_tests::panel::Panel;

flash_sampling_tests::edges_checks!(Some(Panel::every_cpu_variant()));

#[test]
fn more_than_2_to_32_logits() {
    checks::edges::more_than_2_to_32_logits(&mut Panel::default_cpu());
}

/// A GPU does a thousand of them.
#[test]
fn ids_stay_below_v_at_a_hundred_positions() {
    checks::edges::ids_stay_below_v_at(&mut Panel::default_cpu(), 32_000, 100);
}
