//! Is it the softmax? On the CPU; longer in `device.rs`.

use flash_sampling_tests::panel::Panel;

flash_sampling_tests::distribution_checks!(Some(Panel::default_cpu()));
