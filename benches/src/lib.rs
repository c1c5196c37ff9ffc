//! What the benchmarks share.
//!
//! `decode.rs` measures whole calls on a GPU: ours, the product alone through
//! cuBLASLt, and the product followed by a sampling kernel, in alternation.
//! [`report`] and [`plot`] turn its rows into files, and need no GPU.

pub mod ceilings;
pub mod plot;
pub mod report;
pub mod shapes;
pub mod timing;
