//! The kernels of flash-sampling: one Rust source for PTX and for the CPU.
//!
//! | module | holds |
//! | --- | --- |
//! | [`abi`] | what host and device agree on |
//! | [`dims`] | sizes and offsets, in 64 bits |
//! | [`philox`] → [`gumbel`] | random words → noise |
//! | [`transform`] | what happens to a logit on its way to a value: cap, scale, penalties |
//! | [`score`] → [`candidate`] | values and noise → the best two of a set |
//! | [`mass`] → [`scale`] | probabilities as integers: what filters measure |
//! | [`partial_sum`] | sums of probabilities in floating point: what the sampling kernels report |
//! | [`nucleus`] | how few of a row's values tell what top_p keeps |
//! | [`quotient`] | division by one divisor without a branch, as `/` rounds |
//! | [`deviation`] | how far a row's values spread |
//! | [`filters`] | what a row's filters keep |
//! | [`status`] | what is reported beside a token |
//! | [`kernels`] | the kernels; `arch` is what they ask of a machine |
//!
//! *Shared verbatim* by every kernel and the CPU: everything above [`kernels`], and
//! the portable kernels [`kernels::sample_simt`], with its hand-over [`kernels::finish`],
//! [`kernels::sample_kept`] and [`kernels::log_sum_exp`]. *Not shared*: the loads and products
//! of the tensor-core kernels, which exist in PTX only.
//! `tests/exact.rs` and `tests/device.rs` tie
//! them together: bit for bit on inputs whose sums are exact in any order.
//!
//! Invariants: no `std`, no allocation, no dependency but `half`; PTX text only in
//! `arch/ptx.rs`; target `cfg`s only here, in `arch`, `kernels` and `entry`.

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch, link_llvm_intrinsics))]
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]
#![cfg_attr(all(target_arch = "nvptx64", not(feature = "codegen-rust-cuda")), feature(abi_ptx))]

pub mod abi;
pub mod arch;
pub mod candidate;
pub mod deviation;
pub mod dims;
#[cfg(all(target_arch = "nvptx64", not(feature = "codegen-rust-cuda")))]
pub mod entry;
pub mod filters;
pub mod gumbel;
pub mod kernels;
pub mod mass;
pub mod nucleus;
pub mod partial_sum;
pub mod philox;
pub mod quotient;
pub mod scale;
pub mod score;
pub mod shortlist;
pub mod status;
pub mod transform;
