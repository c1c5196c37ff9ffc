//! Placeholder until its branch lands.

use super::{Build, Request};

/// Compiles with Rust-CUDA's `rustc_codegen_nvvm`.
pub(crate) fn build(_: &Request) -> anyhow::Result<Build> {
    anyhow::bail!("not written yet")
}

/// Why this codegen cannot run here, or nothing when it can.
pub(crate) fn unavailable(_: &Request) -> Option<String> {
    Some("not written yet".into())
}
