//! Memory that threads fill in disjoint pieces.

use std::cell::UnsafeCell;

use crate::error::Error;
use crate::output::reserve;

/// Values of a row, written tile by tile.
#[derive(Debug, Default)]
pub(super) struct Spill(Vec<UnsafeCell<f32>>);

// SAFETY: `write` is the only access through a shared reference, and its callers keep
// their pieces apart.
unsafe impl Sync for Spill {}

impl Spill {
    /// Gives it the length `len`; what it holds is arbitrary.
    pub(super) fn resize(&mut self, len: u64) -> Result<(), Error> {
        let len = reserve(&mut self.0, len)?;
        self.0.resize_with(len, || UnsafeCell::new(0.0));
        Ok(())
    }

    /// Writes `values` from `at` on; nothing if it is empty.
    ///
    /// # Safety
    /// No other thread writes these places until the threads have joined.
    #[inline(always)]
    pub(super) unsafe fn write(&self, at: usize, values: impl ExactSizeIterator<Item = f32>) {
        if self.0.is_empty() {
            return;
        }
        for (to, value) in self.0[at..at + values.len()].iter().zip(values) {
            // SAFETY: the caller's promise.
            unsafe { *to.get() = value }
        }
    }

    /// All of it.
    pub(super) fn values(&mut self) -> &[f32] {
        // SAFETY: `UnsafeCell<f32>` has the layout of `f32`, and no thread writes while
        // this borrow is exclusive.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len()) }
    }
}
