//! The kernels that only benchmarks run: `benches/kernels`, as PTX.

use std::ffi::{CStr, c_void};
use std::rc::Rc;

use anyhow::{Context, ensure};
use cudarc::driver::result::{self, module};
use cudarc::driver::sys::{CUfunction, CUmodule};
use flash_sampling_kernels::abi::WorkspaceLayout;

use crate::baseline::{Cublas, Logits, Product};
use crate::contender::{Call, Contender, Outcome};
use crate::gpu::{Buffer, Gpu};
use crate::report::CUBLAS_SAMPLED;
use crate::rows::Rows;
use crate::shapes::Shape;

const PTX: &str = concat!(include_str!("../ptx/bench.sm_80.ptx"), "\0");

/// Threads of a reading block, and blocks: two for each multiprocessor of an H200.
const READ_THREADS: u32 = 512;
const READ_BLOCKS: u32 = 264;
/// Bytes that each step of a reading block covers: 8 loads of 16 bytes a thread.
const READ_STEP: u64 = 8 * 16 * READ_THREADS as u64;
/// Threads of a sampling block. Small, so that one row makes use of the whole card.
const SAMPLE_THREADS: u32 = 64;
/// Tokens that each of them samples.
const SAMPLE_TOKENS: u32 = 32;

/// The kernels, loaded.
#[derive(Debug)]
pub struct Kernels {
    module: CUmodule,
    read: CUfunction,
    sample_logits: CUfunction,
}

impl Kernels {
    /// Loads the PTX in the device's context.
    ///
    /// # Errors
    /// The driver refuses it.
    pub fn load(_: &Gpu) -> anyhow::Result<Self> {
        // SAFETY: the text ends with a zero byte, and opening the `Gpu` has made its
        // context current.
        let module = unsafe { module::load_data(PTX.as_ptr().cast()) }
            .context("cannot load the benchmarks' kernels")?;
        // SAFETY: the module is loaded.
        let function = |name: &CStr| unsafe { module::get_function(module, name.to_owned()) };
        let (read, sample_logits) = (function(c"bench_read")?, function(c"bench_sample_logits")?);
        Ok(Self { module, read, sample_logits })
    }

    /// Enqueues a read of all of `data`.
    ///
    /// # Errors
    /// The size is no multiple of 64 KiB, or the driver refuses.
    pub fn read(&self, gpu: &Gpu, data: &Buffer, sink: &Buffer) -> anyhow::Result<()> {
        let bytes = data.bytes() as u64;
        ensure!(bytes.is_multiple_of(READ_STEP), "{bytes} bytes are no whole steps");
        let (mut address, mut quads, mut sink) = (data.address(), bytes / 16, sink.address());
        let mut arguments =
            [(&raw mut address).cast(), (&raw mut quads).cast(), (&raw mut sink).cast()];
        // SAFETY: the arguments are those of the entry; `data` has so many quads in whole
        // steps, and `sink` more than a word.
        unsafe { launch(gpu, self.read, READ_BLOCKS, READ_THREADS, 0, &mut arguments) }
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        // SAFETY: loaded once, unloaded once. There is nobody left to tell of an error.
        let _ = unsafe { module::unload(self.module) };
    }
}

/// Launches so many blocks, each with dynamic shared memory of so many bytes.
///
/// # Safety
/// The arguments are those of `function`, with what it asks of them.
pub(crate) unsafe fn launch(
    gpu: &Gpu,
    function: CUfunction,
    blocks: u32,
    threads: u32,
    shared_bytes: u32,
    arguments: &mut [*mut c_void],
) -> anyhow::Result<()> {
    let (grid, block) = ((blocks, 1, 1), (threads, 1, 1));
    // SAFETY: the caller's promise.
    unsafe { result::launch_kernel(function, grid, block, shared_bytes, gpu.stream(), arguments) }?;
    Ok(())
}

/// The product through cuBLASLt, then sampling from the stored bf16 logits with the
/// noise, the early outs and the single launch of ours.
#[derive(Debug)]
pub struct CublasSampled {
    /// The product.
    pub cublas: Rc<Cublas>,
    /// The sampling.
    pub kernels: Rc<Kernels>,
    /// Of every row.
    pub temperature: f32,
}

impl Contender for CublasSampled {
    fn name(&self) -> &str {
        CUBLAS_SAMPLED
    }

    fn temperature(&self) -> f32 {
        self.temperature
    }

    fn prepare<'a>(
        &'a self,
        gpu: &'a Gpu,
        shape: &Shape,
        batch: u32,
        hidden_states: u64,
    ) -> anyhow::Result<Box<dyn Call + 'a>> {
        ensure!(shape.vocab.is_multiple_of(8), "V is no multiple of 8");
        let workspace_bytes = WorkspaceLayout::new(batch, 1).bytes;
        let product = Product::new(&self.cublas, gpu, shape, batch, hidden_states, Logits::Bf16)?;
        let blocks = shape.vocab.div_ceil(SAMPLE_THREADS * SAMPLE_TOKENS);
        Ok(Box::new(SampledCall {
            product,
            kernels: &self.kernels,
            gpu,
            rows: Rows::new(gpu, batch, self.temperature, workspace_bytes)?,
            blocks: blocks.checked_mul(batch).context("too many blocks")?,
            shape: *shape,
        }))
    }
}

struct SampledCall<'a> {
    product: Product<'a>,
    kernels: &'a Kernels,
    gpu: &'a Gpu,
    rows: Rows,
    blocks: u32,
    shape: Shape,
}

impl Call for SampledCall<'_> {
    fn detail(&self) -> String {
        format!("{}, {} sampling blocks", self.product.detail(), self.blocks)
    }

    unsafe fn enqueue(&self, weights: u64) -> anyhow::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.product.enqueue(weights) }?;
        let mut logits = self.product.logits();
        let mut params = self.rows.sample_params(&self.shape);
        let mut arguments = [(&raw mut logits).cast(), (&raw mut params).cast()];
        let function = self.kernels.sample_logits;
        // SAFETY: the arguments are those of the entry, V is a multiple of 8, and the
        // grid is B times the blocks of a row; the buffers live as long as the call, the
        // workspace was cleared on this stream, and the logits are written before, on it.
        unsafe { launch(self.gpu, function, self.blocks, SAMPLE_THREADS, 0, &mut arguments) }
    }

    fn poison(&self) -> anyhow::Result<()> {
        self.product.poison()?;
        self.rows.poison(self.gpu)
    }

    fn outcome(&self) -> anyhow::Result<Outcome> {
        self.rows.outcome(self.gpu)
    }
}
