//! The kernels. Which variants each serves is in [`crate::abi::VARIANTS`].

pub mod finish;
pub mod noise_probe;
#[cfg(target_arch = "nvptx64")]
pub mod sample_mma;
pub mod sample_simt;
