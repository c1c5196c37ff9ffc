//! What the benchmarks share.
//!
//! `decode.rs` measures whole calls on a GPU: ours, the product alone through
//! cuBLASLt, and the product followed by a sampling kernel, in alternation.
//! [`report`], [`plot`] and [`costs`] turn its rows into files, and need no GPU.

pub mod asked;
pub mod ceilings;
pub mod costs;
pub mod plot;
pub mod report;
pub mod shapes;
pub mod timing;

#[cfg(feature = "cuda")]
pub mod asked_rows;
#[cfg(feature = "cuda")]
pub mod baseline;
#[cfg(feature = "cuda")]
pub mod bursts;
#[cfg(feature = "cuda")]
pub mod check;
#[cfg(feature = "cuda")]
pub mod contender;
#[cfg(feature = "cuda")]
pub mod feature_call;
#[cfg(feature = "cuda")]
pub mod features;
#[cfg(feature = "cuda")]
pub mod gpu;
#[cfg(feature = "cuda")]
pub mod kernels;
#[cfg(feature = "cuda")]
pub mod meter;
#[cfg(feature = "cuda")]
pub mod ours;
#[cfg(feature = "cuda")]
pub mod rates;
#[cfg(feature = "cuda")]
pub mod rows;
#[cfg(feature = "cuda")]
pub mod separate;
#[cfg(feature = "cuda")]
pub mod session;
