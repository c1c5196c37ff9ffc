//! What happens at the rim? On the CPU; the same checks go through CUDA in `device.rs`.

use flash_sampling_tests::checks;
use flash_sampling_tests::panel::{Effort, Panel};

flash_sampling_tests::edges_checks!(Some(Panel::every_cpu_variant()));

#[test]
fn more_than_2_to_32_logits() {
    checks::edges::more_than_2_to_32_logits(&mut Panel::default_cpu());
}

#[test]
fn ids_stay_below_v_at_a_thousand_positions() {
    checks::edges::ids_stay_below_v(&mut Panel::default_cpu().with_effort(Effort::Device));
}
