//! The GPU back end of a build without the feature `cuda`: nothing of it can exist.

use std::ffi::c_void;

use super::{HostRows, RawOperands, Start};
use crate::backend::Backend;
use crate::error::{Error, Need};
use crate::matrix::MatrixRef;
use crate::output::Output;
use crate::plan::{DeviceLimits, Finish, Plan};
use crate::problem::Problem;

/// A CUDA device, as the back end of a [`Sampler`](crate::Sampler): in a build without the
/// feature `cuda`, there is none.
#[derive(Debug)]
pub enum Cuda {}

/// An LM head's memory on a device.
#[derive(Debug)]
pub(crate) enum HeadMemory {}

impl Cuda {
    pub(super) fn open(_ordinal: u32) -> Result<Self, Error> {
        Err(Error::Unsupported { need: Need::CudaFeature, limit: 1, found: 0 })
    }

    pub(super) fn device_name(&self) -> &str {
        match *self {}
    }

    pub(super) fn device_limits(&self) -> DeviceLimits {
        match *self {}
    }

    pub(super) fn force_variant(&mut self, _name: Option<&str>) {
        match *self {}
    }

    /// # Safety
    /// Cannot be called.
    pub(super) unsafe fn enqueue(
        &self,
        _plan: &Plan,
        _problem: &Problem,
        _operands: &RawOperands,
        _start: Start,
        _stream: *mut c_void,
    ) -> Result<(), Error> {
        match *self {}
    }

    /// # Safety
    /// Cannot be called.
    pub(super) unsafe fn clear_workspace(
        &self,
        _workspace: u64,
        _bytes: u64,
        _stream: *mut c_void,
    ) -> Result<(), Error> {
        match *self {}
    }

    pub(super) fn upload(
        &self,
        _weights: MatrixRef<'_>,
        _row_stride_bytes: u64,
        _bias: Option<&[f32]>,
    ) -> Result<HeadMemory, Error> {
        match *self {}
    }

    pub(super) fn sample(
        &mut self,
        _problem: &Problem,
        _head: &HeadMemory,
        _rows: HostRows<'_>,
        _output: &mut Output,
    ) -> Result<(), Error> {
        match *self {}
    }

    pub(super) fn finish_entry(&self, _finish: &Finish) -> Result<*mut c_void, Error> {
        match *self {}
    }

    pub(super) fn probe_noise(&self, _first_word: u32, _words: u32) -> Result<Vec<f32>, Error> {
        match *self {}
    }

    pub(super) fn probe_noise_digest(&self, _first_word: u64, _words: u64) -> Result<u64, Error> {
        match *self {}
    }
}

impl Backend for Cuda {
    fn plan(&self, _problem: &Problem) -> Result<Plan, Error> {
        match *self {}
    }
}
