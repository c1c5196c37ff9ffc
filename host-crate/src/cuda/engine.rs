//! The GPU back end: a device, its kernels, and the easy door's buffers.

use std::ffi::c_void;
use std::sync::Arc;

use flash_sampling_kernels::abi::VARIANTS;

pub(super) use super::memory::HeadMemory;

use super::device::Device;
use super::driver::{self, check};
use super::easy::EasyDoor;
use super::finish;
use super::launch;
use super::module::Module;
use super::probe;
use super::{HostRows, RawOperands, Start};
use crate::backend::Backend;
use crate::error::{Call, Error, Need};
use crate::matrix::MatrixRef;
use crate::output::Output;
use crate::plan::{DeviceLimits, Finish, Plan};
use crate::problem::Problem;

/// A CUDA device, as the back end of a [`Sampler`](crate::Sampler).
#[derive(Debug)]
pub struct Cuda {
    device: Arc<Device>,
    module: Module,
    forced: Option<String>,
    /// The easy door's last problem and its plan.
    planned: Option<(Problem, Plan)>,
    easy: Option<EasyDoor>,
}

impl Cuda {
    pub(super) fn open(ordinal: u32) -> Result<Self, Error> {
        let device = Device::open(ordinal)?;
        let found = device.limits.compute_capability;
        let limit = VARIANTS.iter().map(|variant| variant.compute_capability).min().unwrap_or(0);
        if found < limit {
            return Err(Error::Unsupported {
                need: Need::ComputeCapability,
                limit: limit.into(),
                found: found.into(),
            });
        }
        let device = Arc::new(device);
        let module = Module::load(&device)?;
        Ok(Self { device, module, forced: None, planned: None, easy: None })
    }

    pub(super) fn device_name(&self) -> &str {
        &self.device.name
    }

    pub(super) fn device_limits(&self) -> DeviceLimits {
        self.device.limits
    }

    pub(super) fn force_variant(&mut self, name: Option<&str>) {
        self.forced = name.map(String::from);
        self.planned = None;
    }

    /// # Safety
    /// As [`Sampler::enqueue`](crate::Sampler::enqueue), or
    /// [`Sampler::enqueue_programmatic`](crate::Sampler::enqueue_programmatic) if it may
    /// start early.
    pub(super) unsafe fn enqueue(
        &self,
        plan: &Plan,
        problem: &Problem,
        operands: &RawOperands,
        start: Start,
        stream: *mut c_void,
    ) -> Result<(), Error> {
        if problem.batch() == 0 {
            return Ok(());
        }
        let _current = self.device.enter()?;
        // SAFETY: the caller's promise, in the current context.
        unsafe { launch::sample(&self.module, plan, problem, operands, start, stream) }
    }

    /// # Safety
    /// As [`Sampler::clear_workspace`](crate::Sampler::clear_workspace).
    pub(super) unsafe fn clear_workspace(
        &self,
        workspace: u64,
        bytes: u64,
        stream: *mut c_void,
    ) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.device.enter()?;
        // SAFETY: the caller's promise.
        let code = unsafe { driver::cuMemsetD8Async(workspace, 0, bytes as usize, stream) };
        check(Call::Copy, code)
    }

    pub(super) fn upload(
        &self,
        weights: MatrixRef<'_>,
        row_stride_bytes: u64,
        bias: Option<&[f32]>,
    ) -> Result<HeadMemory, Error> {
        HeadMemory::upload(&self.device, weights, row_stride_bytes as usize, bias)
    }

    /// Fills `output`, which has the problem's size; B ≥ 1.
    pub(super) fn sample(
        &mut self,
        problem: &Problem,
        head: &HeadMemory,
        rows: HostRows<'_>,
        output: &mut Output,
    ) -> Result<(), Error> {
        let plan = match self.planned.take() {
            Some((planned, plan)) if planned == *problem => plan,
            _ => self.plan(problem)?,
        };
        let easy = match &mut self.easy {
            Some(easy) => easy,
            none => none.insert(EasyDoor::open(&self.device)?),
        };
        let launch = |operands: &RawOperands, stream| {
            // SAFETY: the door's operands have the problem's sizes, and it waits for the
            // stream in the context that it has entered.
            unsafe {
                launch::sample(&self.module, &plan, problem, operands, Start::InOrder, stream)
            }
        };
        let result = easy.sample((problem, &plan), head, rows, output, launch);
        self.planned = Some((*problem, plan));
        result
    }

    pub(super) fn finish_entry(&self, finish: &Finish) -> Result<*mut c_void, Error> {
        finish::entry(&self.module, finish)
    }

    pub(super) fn probe_noise(&self, first_word: u32, words: u32) -> Result<Vec<f32>, Error> {
        probe::noise(&self.device, &self.module, first_word, words)
    }

    pub(super) fn probe_noise_digest(&self, first_word: u64, words: u64) -> Result<u64, Error> {
        probe::noise_digest(&self.device, &self.module, first_word, words)
    }
}

impl Backend for Cuda {
    fn plan(&self, problem: &Problem) -> Result<Plan, Error> {
        Plan::for_gpu(problem, &self.device.limits, self.forced.as_deref())
    }
}
