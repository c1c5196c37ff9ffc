//! The GPU back end: feature `cuda`. Without the feature the same types are here and
//! answer [`Error::Unsupported`].
//!
//! There are two doors. The *engine door*, [`Sampler::enqueue`], takes device addresses
//! and a stream from the caller, allocates nothing and waits for nothing, and can be
//! captured in a CUDA graph: seeds, positions, temperatures and [`RowFeatures`] are read
//! from device memory, so that a replay draws with new ones. The *easy door*, [`Sampler::upload`] and
//! [`Sampler::sample`], owns buffers, copies, and waits.
//!
//! To link, the feature needs a `libcuda`: a driver's, a toolkit's stub, or that of
//! `cargo xtask cuda-stub`, its folder named by `CUDA_LIBRARY_PATH`. To run, the driver.
//!
//! A sampler works in the device's primary context, as the CUDA runtime and the crate
//! `cudarc` do: their addresses and streams are valid here.

#[cfg(feature = "cuda")]
mod device;
#[cfg(feature = "cuda")]
mod driver;
#[cfg(feature = "cuda")]
mod easy;
#[cfg(feature = "cuda")]
mod engine;
#[cfg(feature = "cuda")]
mod exchange;
#[cfg(feature = "cuda")]
mod finish;
mod head;
#[cfg(feature = "cuda")]
mod launch;
#[cfg(feature = "cuda")]
mod memory;
#[cfg(feature = "cuda")]
mod module;
mod operands;
#[cfg(feature = "cuda")]
mod params;
#[cfg(feature = "cuda")]
mod probe;
#[cfg(feature = "cuda")]
mod programmatic;
#[cfg(feature = "cuda")]
mod tensor_map;

#[cfg(not(feature = "cuda"))]
#[path = "cuda/absent.rs"]
mod engine;

use std::ffi::c_void;

pub use engine::Cuda;
pub use flash_sampling_kernels::abi::kept::{RowFeatures, TokenBias};
pub use head::DeviceHead;
pub use operands::{RawOperands, RawReport};

use crate::backend::sealed::Sealed;
use crate::error::Error;
use crate::matrix::MatrixRef;
use crate::output::Output;
use crate::params::SamplingParams;
use crate::plan::{DeviceLimits, Finish, Plan};
use crate::problem::{Features, Problem};
use crate::sampler::{Sampler, check_rows};
use crate::token_rules::{TokenRules, check_token_rules};

/// When a call may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// When all work before it in the stream has ended.
    InOrder,
    /// As soon as the kernel before it allows, if the variant waits for that by itself.
    Early,
}

/// What the rows of a call through the easy door bring from the host; it has been checked.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "nobody takes them"))]
struct HostRows<'a> {
    /// `[B, D]`.
    hidden_states: MatrixRef<'a>,
    /// `[B]`.
    params: &'a [SamplingParams],
    /// `[B]`, or none.
    rules: &'a [TokenRules<'a>],
}

impl Sealed for Cuda {}

impl Sampler<Cuda> {
    /// A sampler on CUDA device `ordinal`. Retains its primary context, which it leaves
    /// current on the calling thread, and loads the kernels: the driver compiles them at
    /// the first time and keeps them in its cache.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without the feature `cuda`, for an ordinal beyond the devices
    /// and for a device older than compute capability 8.0; [`Error::Cuda`] without a
    /// driver or device, or for a driver that is too old.
    pub fn cuda(ordinal: u32) -> Result<Self, Error> {
        Ok(Self { backend: Cuda::open(ordinal)? })
    }

    /// Name of the device.
    pub fn device_name(&self) -> &str {
        self.backend.device_name()
    }

    /// What the planner knows of the device.
    pub fn device_limits(&self) -> DeviceLimits {
        self.backend.device_limits()
    }

    /// Plans with the variant of that name only; `None` leaves the choice to the planner.
    /// A name that does not exist is an error of the next plan.
    pub fn force_variant(&mut self, name: Option<&str>) {
        self.backend.force_variant(name);
    }

    /// Enqueues a call on the caller's stream: results are ready in stream order.
    /// Allocates nothing, waits for nothing, and may be captured in a CUDA graph.
    /// One kernel, and one more behind it if the problem has features. Any thread may call; the calls that share a workspace must be ordered.
    ///
    /// `stream` is a `CUstream`, null for the legacy default stream. B = 0 enqueues nothing.
    ///
    /// A kernel that the caller launches programmatically behind the call may start while
    /// the call runs. It has to wait (`cudaGridDependencySynchronize`) before it touches
    /// the call's operands.
    ///
    /// # Errors
    /// [`Error::Layout`] for a null or misaligned address and too little memory for values,
    /// [`Error::Workspace`] for too little scratch, [`Error::Unsupported`] for a plan that is
    /// not this GPU's, [`Error::Cuda`] if the driver refuses.
    ///
    /// # Safety
    /// - `plan` is this sampler's plan for `problem`, unchanged.
    /// - Addresses lie in memory that the device can reach, valid for the shapes of
    ///   [`RawOperands`], until the stream has run the call and every replay.
    /// - `stream` is a stream of the device's primary context.
    /// - The workspace is zero when the call begins to run, and no other call uses it, nor
    ///   `kept`, until this one has ended.
    /// - Features of rows are what [`RowFeatures`] says, and so are the lists they point to.
    pub unsafe fn enqueue(
        &self,
        plan: &Plan,
        problem: &Problem,
        operands: &RawOperands,
        stream: *mut c_void,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.backend.enqueue(plan, problem, operands, Start::InOrder, stream) }
    }

    /// [`enqueue`](Self::enqueue), with leave to read the weights, and only them, before
    /// the kernel before it in the stream has ended. The results are the same.
    ///
    /// On compute capability 9.0, blocks of the call then start as that kernel ends, or
    /// once all of its blocks have called `cudaTriggerProgrammaticLaunchCompletion`, which
    /// ours do when those before them have ended, but for the kernel that finishes rows with
    /// features. They set themselves up and copy their first weights; for all else they wait
    /// until that kernel has ended (CUDA programming guide, "Programmatic Dependent Launch and
    /// Synchronization"). A block takes a multiprocessor of its own.
    /// So this helps behind a kernel that is short against the time of a launch, that
    /// leaves multiprocessors idle, or whose blocks do not end together, and by no more
    /// than what its launch and first copies take.
    ///
    /// Behind anything but a kernel, a copy for one, and with variants that are not for
    /// compute capability 9.0, this is `enqueue`. In a graph it becomes an edge that the
    /// driver has from CUDA 12.3 on.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    ///
    /// # Safety
    /// As [`enqueue`](Self::enqueue), and:
    /// - No work that may still run when the call starts writes the weights: not the kernel
    ///   before it in the stream, nor what that one itself was allowed to start before.
    ///   Weights that were written before the host last waited are always safe.
    /// - The kernel before it, if it was itself launched programmatically, waits for its
    ///   own dependencies before it ends, as this call does.
    pub unsafe fn enqueue_programmatic(
        &self,
        plan: &Plan,
        problem: &Problem,
        operands: &RawOperands,
        stream: *mut c_void,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.backend.enqueue(plan, problem, operands, Start::Early, stream) }
    }

    /// Enqueues zeros over a workspace: once before its first use, and again after a call
    /// that ended in an error.
    ///
    /// # Errors
    /// [`Error::Cuda`] if the driver refuses.
    ///
    /// # Safety
    /// `workspace` is the address of `bytes` bytes that the device can write until the
    /// stream has run this; `stream` is a stream of the device's primary context.
    pub unsafe fn clear_workspace(
        &self,
        workspace: u64,
        bytes: u64,
        stream: *mut c_void,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.backend.clear_workspace(workspace, bytes, stream) }
    }

    /// Copies LM-head weights `[V_rows, D]` and a bias `[V]` to the device, and waits.
    ///
    /// # Errors
    /// [`Error::Shape`] for an empty axis, [`Error::Unsupported`] for a D that 32 bits do
    /// not hold, [`Error::Cuda`] if the driver refuses.
    pub fn upload(
        &self,
        weights: MatrixRef<'_>,
        bias: Option<&[f32]>,
    ) -> Result<DeviceHead, Error> {
        DeviceHead::new(weights, bias, |row_stride_bytes| {
            self.backend.upload(weights, row_stride_bytes, bias)
        })
    }

    /// Draws `draws` tokens for each row of `hidden_states` `[B, D]` into `output`: copies
    /// in, runs, copies out, and waits. Buffers grow to the largest call and stay.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Param`], [`Error::Unsupported`], and [`Error::Cuda`] if the
    /// driver refuses, also for a head on another device.
    pub fn sample(
        &mut self,
        head: &DeviceHead,
        hidden_states: MatrixRef<'_>,
        rows: &[SamplingParams],
        draws: u32,
        output: &mut Output,
    ) -> Result<(), Error> {
        self.sample_with_rules(head, hidden_states, rows, &[], draws, output)
    }

    /// [`sample`](Self::sample), with rules for single tokens, one set for each batch row, or
    /// none.
    ///
    /// # Errors
    /// As [`sample`](Self::sample), and [`Error::Param`], [`Error::ParamLength`] and
    /// [`Error::Token`] for rules.
    pub fn sample_with_rules(
        &mut self,
        head: &DeviceHead,
        hidden_states: MatrixRef<'_>,
        rows: &[SamplingParams],
        token_rules: &[TokenRules<'_>],
        draws: u32,
        output: &mut Output,
    ) -> Result<(), Error> {
        let features = Features {
            rules: any_edits(rows, token_rules),
            filters: rows.iter().any(SamplingParams::filters),
            raw: output.raw.wanted,
            processed: output.processed.wanted,
            transform: head.transform(),
        };
        let problem = head.problem(hidden_states, u64::from(draws), features)?;
        check_token_rules(token_rules, &problem)?;
        check_rows(&problem, rows)?;
        output.resize(&problem)?;
        if problem.batch() == 0 {
            return Ok(());
        }
        let rows = HostRows { hidden_states, params: rows, rules: token_rules };
        self.backend.sample(&problem, head.memory(), rows, output)
    }

    /// The kernel that finishes rows of a plan of this sampler, as a `CUfunction` of the device's
    /// primary context, valid as long as the sampler: for who launches it behind a product of
    /// their own.
    #[doc(hidden)]
    pub fn finish_entry(&self, finish: &Finish) -> Result<*mut c_void, Error> {
        self.backend.finish_entry(finish)
    }

    /// The noise of `words` consecutive words, as the device computes it.
    #[doc(hidden)]
    pub fn probe_noise(&self, first_word: u32, words: u32) -> Result<Vec<f32>, Error> {
        self.backend.probe_noise(first_word, words)
    }

    /// The sum of `noise_probe::digest` over `words` consecutive words, as the device
    /// computes it.
    #[doc(hidden)]
    pub fn probe_noise_digest(&self, first_word: u64, words: u64) -> Result<u64, Error> {
        self.backend.probe_noise_digest(first_word, words)
    }
}

/// Whether any row has rules or penalties that concern a token.
fn any_edits(rows: &[SamplingParams], token_rules: &[TokenRules<'_>]) -> bool {
    rows.iter().zip(token_rules).any(|(params, rules)| rules.edits(params))
}
