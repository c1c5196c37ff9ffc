//! Tests that must not run beside each other.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Gpu;

/// A test's turn on the device: one at a time, since some of them block a stream, which
/// others would wait for, and some capture in the strictest mode.
pub struct Turn {
    gpu: Gpu,
    _alone: MutexGuard<'static, ()>,
}

impl Turn {
    /// The first device, as [`Gpu::open`], once nobody else has a turn.
    pub fn take() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Self { gpu: Gpu::open()?, _alone: alone })
    }
}

impl Deref for Turn {
    type Target = Gpu;

    fn deref(&self) -> &Gpu {
        &self.gpu
    }
}
