//! Tests that must not run beside each other.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{CUresult, cuStreamQuery};
use flash_sampling::Error;

use super::{Gate, Gpu};
use crate::allocations::allocations;

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

    /// Asserts that `enqueue` enqueues on the stream without waiting for it and without
    /// allocating. The program counts allocations.
    pub fn assert_only_enqueues(&self, enqueue: impl FnOnce() -> Result<(), Error>) {
        let gate = Gate::close(&self.gpu.stream);
        let before = allocations();
        let done = enqueue();
        let allocated = allocations() - before;
        // SAFETY: the stream is alive.
        let state = unsafe { cuStreamQuery(self.gpu.stream.cu_stream()) };
        gate.open();
        done.expect("enqueues");
        assert_eq!(state, CUresult::CUDA_ERROR_NOT_READY, "the gate was closed all the time");
        assert_eq!(allocated, 0, "allocations on the host");
    }
}

impl Deref for Turn {
    type Target = Gpu;

    fn deref(&self) -> &Gpu {
        &self.gpu
    }
}
