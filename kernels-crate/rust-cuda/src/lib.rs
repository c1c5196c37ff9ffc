//! PTX entries of the `rust-cuda` code generator: the twins of those in the kernels
//! crate's `entry.rs`, marked by `cuda_std`'s `#[kernel]`.
//!
//! `cuda_builder` compiles this with `no_std`, and `cuda_std` has the panic handler.

#![cfg_attr(feature = "sm_90a", feature(asm_experimental_arch))]

use cuda_std::kernel;
use half::{bf16, f16};

use flash_sampling_kernels::abi::SampleParams;
#[cfg(feature = "sm_90a")]
use flash_sampling_kernels::abi::kept;
use flash_sampling_kernels::abi::kept::KeptParams;
use flash_sampling_kernels::arch;
#[cfg(feature = "sm_90a")]
use flash_sampling_kernels::kernels::sample_sm90::{cluster, m_tiles, sample_sm90};
use flash_sampling_kernels::kernels::{
    log_sum_exp, noise_probe, sample_kept, sample_mma::sample_mma, sample_simt::sample_simt,
};

/// # Safety
/// The preconditions of `kernels/sample_simt.rs`.
#[kernel]
pub unsafe fn flash_sampling_sample_simt(
    weights: *const u8,
    hidden_states: *const u8,
    params: SampleParams,
) {
    let shared = arch::dynamic_shared().cast();
    // SAFETY: the caller's promise; the launch gives `Shared` its bytes.
    unsafe {
        sample_simt(weights, hidden_states, &params, shared, arch::block_idx(), arch::grid_dim());
    }
}

macro_rules! sample_mma_entry {
    ($name:ident, $element:ty, $n_tiles:literal, $sums:literal) => {
        /// # Safety
        /// The preconditions of `kernels/sample_mma.rs`.
        #[kernel]
        pub unsafe fn $name(weights: *const u8, hidden_states: *const u8, params: SampleParams) {
            // SAFETY: the caller's promise.
            unsafe { sample_mma::<$element, $n_tiles, $sums>(weights, hidden_states, &params) }
        }
    };
}

sample_mma_entry!(flash_sampling_sample_mma_b8_bf16, bf16, 1, true);
sample_mma_entry!(flash_sampling_sample_mma_b16_bf16, bf16, 2, true);
sample_mma_entry!(flash_sampling_sample_mma_b32_bf16, bf16, 4, true);
sample_mma_entry!(flash_sampling_sample_mma_b64_bf16, bf16, 8, false);
sample_mma_entry!(flash_sampling_sample_mma_b64_sums_bf16, bf16, 8, true);
sample_mma_entry!(flash_sampling_sample_mma_b8_f16, f16, 1, true);
sample_mma_entry!(flash_sampling_sample_mma_b16_f16, f16, 2, true);
sample_mma_entry!(flash_sampling_sample_mma_b32_f16, f16, 4, true);
sample_mma_entry!(flash_sampling_sample_mma_b64_f16, f16, 8, false);
sample_mma_entry!(flash_sampling_sample_mma_b64_sums_f16, f16, 8, true);

#[cfg(feature = "sm_90a")]
macro_rules! sample_sm90_entry {
    ($name:ident, $element:ty, $n_tiles:literal, $sums:literal) => {
        /// # Safety
        /// The preconditions of `kernels/sample_sm90.rs`.
        #[kernel]
        pub unsafe fn $name(
            _weights: arch::TensorMap,
            _hidden_states: arch::TensorMap,
            params: SampleParams,
        ) {
            let weights = arch::parameter_address!($name, 0);
            let hidden_states = arch::parameter_address!($name, 1);
            // SAFETY: the caller's promise.
            unsafe { sample_sm90::<$element, { m_tiles($n_tiles) }, $n_tiles, { cluster($n_tiles) }, $sums>(
                    weights,
                    hidden_states,
                    &params,
                ) }
        }
    };
}

#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b8_bf16, bf16, 1, true);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b16_bf16, bf16, 2, true);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b32_bf16, bf16, 4, true);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b64_bf16, bf16, 8, false);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b64_sums_bf16, bf16, 8, true);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b96_bf16, bf16, 12, false);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b128_bf16, bf16, 16, false);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b160_bf16, bf16, 20, false);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b192_bf16, bf16, 24, false);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b224_bf16, bf16, 28, false);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b256_bf16, bf16, 32, false);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b8_f16, f16, 1, true);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b16_f16, f16, 2, true);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b32_f16, f16, 4, true);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b64_f16, f16, 8, false);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b64_sums_f16, f16, 8, true);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b96_f16, f16, 12, false);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b128_f16, f16, 16, false);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b160_f16, f16, 20, false);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b192_f16, f16, 24, false);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b224_f16, f16, 28, false);
#[cfg(feature = "sm_90a")]
sample_sm90_entry!(flash_sampling_sample_sm90_b256_f16, f16, 32, false);

/// # Safety
/// The preconditions of `kernels/sample_kept.rs`.
#[cfg(not(feature = "sm_90a"))]
#[kernel]
pub unsafe fn flash_sampling_sample_kept(params: KeptParams) {
    // SAFETY: the caller's promise; the launch gives `Shared` its bytes, and the slice.
    unsafe { run_kept::<1>(&params) }
}

/// # Safety
/// The preconditions of `kernels/sample_kept.rs`.
#[cfg(feature = "sm_90a")]
#[kernel]
pub unsafe fn flash_sampling_sample_kept_cluster(params: KeptParams) {
    // SAFETY: the caller's promise; the launch gives `Shared` its bytes, and the slice.
    unsafe { run_kept::<{ kept::CLUSTER }>(&params) }
}

/// # Safety
/// The preconditions of `kernels/sample_kept.rs`.
#[inline(always)]
unsafe fn run_kept<const CLUSTER: u32>(params: &KeptParams) {
    let shared = arch::dynamic_shared().cast::<sample_kept::Shared>();
    // SAFETY: the caller's promise; the slice lies behind what is shared.
    unsafe {
        let slice = shared.add(1).cast();
        let (block, blocks) = (arch::block_idx(), arch::grid_dim());
        sample_kept::sample_kept::<CLUSTER>(params, shared, slice, block, blocks);
    }
}

/// # Safety
/// The preconditions of `kernels/log_sum_exp.rs`.
#[kernel]
pub unsafe fn flash_sampling_log_sum_exp(params: KeptParams) {
    arch::dependencies_wait();
    let shared = arch::dynamic_shared().cast();
    // SAFETY: the caller's promise; the launch gives `Shared` its bytes.
    unsafe {
        log_sum_exp::log_sum_exp(&params, shared, arch::block_idx(), arch::grid_dim());
    }
}

/// # Safety
/// `out` is valid for `n` values.
#[kernel]
pub unsafe fn flash_sampling_noise(out: *mut f32, first_word: u32, n: u32) {
    let (thread, threads) = grid_thread();
    // SAFETY: the caller's promise.
    unsafe { noise_probe::write_noise(out, first_word, n, thread, threads) }
}

/// # Safety
/// `sum` is a valid global address.
#[kernel]
pub unsafe fn flash_sampling_noise_digest(sum: *mut u64, first_word: u64, n: u64) {
    let (thread, threads) = grid_thread();
    // SAFETY: the caller's promise.
    unsafe { noise_probe::add_digest(sum, first_word, n, thread as u64, threads as u64) }
}

/// Index of the thread in the grid, and threads of the grid.
fn grid_thread() -> (u32, u32) {
    let block = arch::block_dim();
    (arch::block_idx() * block + arch::thread_idx(), arch::grid_dim() * block)
}
