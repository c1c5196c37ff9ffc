//! Is it the softmax? On the CPU; longer in `device.rs`.

use flash_sampling_tests::checks;
use flash_sampling_tests::panel::Panel;

flash_sampling_tests::distribution_checks!(Some(Panel::split_cpu()));

#[test]
fn rare_tokens() {
    checks::distribution::rare_tokens(&mut Panel::split_cpu());
}
