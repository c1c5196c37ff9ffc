//! Do all implementations agree bit for bit, and with the oracle? On the CPU; the same
//! checks go through CUDA in `device.rs`.

use flash_sampling_tests::panel::Panel;

flash_sampling_tests::exact_checks!(Some(Panel::every_cpu_variant()));
