//! Do filters, rules, penalties and transforms do what they say? On the CPU.

use flash_sampling_tests::checks;
use flash_sampling_tests::panel::Panel;

flash_sampling_tests::features_checks!(Some(Panel::every_cpu_variant()));

#[test]
fn filtered_softmax() {
    checks::features::filtered_softmax(&mut Panel::split_cpu());
}
