//! The operations a kernel may ask of a machine, under the same names on both.
//!
//! A *leg* is the code between two block barriers, a function of the thread's index.
//! On a GPU every thread runs it once and then waits at a barrier; natively a loop
//! runs it for one thread index after the other.

/// Lanes of a warp.
pub const LANES: u32 = 32;

#[cfg(not(target_arch = "nvptx64"))]
mod native;
#[cfg(target_arch = "nvptx64")]
mod ptx;

#[cfg(not(target_arch = "nvptx64"))]
pub use native::*;
#[cfg(target_arch = "nvptx64")]
pub use ptx::*;
