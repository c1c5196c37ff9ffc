//! What the test files share. Each file under `tests/` has one question; the answers
//! are checked against [`oracle`], which shares no code with the kernels.
//!
//! | module | holds |
//! | --- | --- |
//! | [`oracle`] | the contract in `f64`, written from the papers |
//! | [`inputs`] | matrices, heads and cases |
//! | [`panel`] | implementations side by side, compared bit for bit |
//! | [`judge`] | an output against the oracle |
//! | [`stats`] | chi-squared and tails of counts |
//! | [`checks`] | the questions, asked alike on the CPU and on a GPU |
//! | [`few`] | rows with sums of weights, finished natively |
//! | [`mutants`] | wrong samplers that the checks must reject |
//! | [`golden`] | pinned values, as data |
//! | [`ptx`] | the committed PTX as text |
//! | [`allocations`] | an allocator that counts |
//! | `gpu` | the device, guarded outputs, and every GPU variant as a panel; feature `cuda` |

pub mod allocations;
pub mod checks;
pub mod few;
pub mod golden;
#[cfg(feature = "cuda")]
pub mod gpu;
pub mod inputs;
pub mod judge;
pub mod mutants;
pub mod oracle;
pub mod panel;
pub mod ptx;
pub mod stats;
