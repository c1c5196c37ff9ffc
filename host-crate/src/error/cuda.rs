//! Failures of the CUDA driver.

use std::fmt;

/// A call of the CUDA driver that failed.
///
/// Work on a GPU is asynchronous: a fault inside a kernel surfaces at a later call
/// than the one that caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaFailure {
    /// What the driver was asked for.
    pub during: Call,
    /// The driver's code (`CUresult`).
    pub code: u32,
    /// The code's name.
    pub name: &'static str,
}

impl CudaFailure {
    /// What helps with this code, if that is known.
    pub const fn advice(&self) -> Option<&'static str> {
        match self.code {
            100 => Some("no GPU is visible: check the driver and CUDA_VISIBLE_DEVICES"),
            218 | 222 => Some("the driver is too old for this PTX: update it"),
            700 | 716 | 719 => Some("a kernel launched earlier faulted: check the addresses"),
            _ => None,
        }
    }
}

impl fmt::Display for CudaFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda failed to {}: {} (code {})", self.during, self.name, self.code)?;
        self.advice().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

/// A kind of driver call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Call {
    /// Start the driver.
    Initialize,
    /// Retain or query a device.
    OpenDevice,
    /// Load a module.
    Load,
    /// Look up an entry or set its limits.
    LookUp,
    /// Allocate memory.
    Allocate,
    /// Copy or set memory.
    Copy,
    /// Launch a kernel.
    Launch,
    /// Wait for a stream.
    Synchronize,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Initialize => "initialize",
            Self::OpenDevice => "open the device",
            Self::Load => "load the module",
            Self::LookUp => "look up the entry",
            Self::Allocate => "allocate",
            Self::Copy => "copy",
            Self::Launch => "launch",
            Self::Synchronize => "synchronize",
        })
    }
}
