//! The easy door: a call that copies in, runs, copies out, and waits.

use std::sync::Arc;

use cust::memory::{DeviceBuffer, LockedBuffer};
use cust::stream::{Stream, StreamFlags};
use flash_sampling_kernels::dims::align_up;
use flash_sampling_kernels::status::Status;

use super::RawOperands;
use super::device::{Device, InContext};
use super::driver::{self, Address, Handle, check, failed};
use super::memory::HeadMemory;
use crate::error::{Call, Error};
use crate::matrix::MatrixRef;
use crate::output::Output;
use crate::params::SamplingParams;
use crate::problem::Problem;
use crate::workspace::workspace_bytes;

/// Alignment of the parts of an [`Exchange`]: that of the widest of them.
const PART_ALIGNMENT_BYTES: u64 = 8;

/// A stream and buffers that grow to the largest call.
#[derive(Debug)]
pub(super) struct EasyDoor {
    device: Arc<Device>,
    stream: InContext<Stream>,
    /// [`Exchange`] on the host, page-locked.
    host: InContext<LockedBuffer<u8>>,
    /// [`Exchange`] on the device.
    exchange: InContext<DeviceBuffer<u8>>,
    /// Zero between calls.
    workspace: InContext<DeviceBuffer<u8>>,
}

/// Where the parts of a call begin in the buffers that carry it, in bytes: first all
/// that is copied in, then all that is copied out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exchange {
    /// `[B, D]`, with the problem's dtype and stride; at 0.
    hidden_states: u64,
    /// `[B]` u64.
    seeds: u64,
    /// `[B]` u64.
    positions: u64,
    /// `[B]` f32.
    temperatures: u64,
    /// `[B, S]` u32: the first of the outputs.
    tokens: u64,
    /// `[B, S]` u32.
    status: u64,
    /// `[B, S]` f32.
    scores: u64,
    /// `[B, S]` f32.
    margins: u64,
    /// All of it.
    bytes: u64,
}

impl Exchange {
    fn new(problem: &Problem) -> Self {
        let (batch, outputs) = (u64::from(problem.batch()), problem.outputs());
        let mut bytes = 0;
        let mut part = |part_bytes: u64| {
            let begin = bytes;
            bytes = align_up(begin + part_bytes, PART_ALIGNMENT_BYTES);
            begin
        };
        let row_bytes = problem.hidden_stride() * problem.hidden_dtype().bytes();
        Self {
            hidden_states: part(batch * row_bytes),
            seeds: part(batch * 8),
            positions: part(batch * 8),
            temperatures: part(batch * 4),
            tokens: part(outputs * 4),
            status: part(outputs * 4),
            scores: part(outputs * 4),
            margins: part(outputs * 4),
            bytes,
        }
    }

    /// Addresses of the parts, and of everything else that a call needs.
    fn operands(
        &self,
        exchange: Address,
        head: &HeadMemory,
        workspace: (Address, u64),
    ) -> RawOperands {
        RawOperands {
            weights: head.weights(),
            hidden_states: exchange + self.hidden_states,
            bias: head.bias(),
            temperatures: exchange + self.temperatures,
            seeds: exchange + self.seeds,
            positions: exchange + self.positions,
            tokens: exchange + self.tokens,
            status: exchange + self.status,
            scores: exchange + self.scores,
            margins: exchange + self.margins,
            workspace: workspace.0,
            workspace_bytes: workspace.1,
        }
    }

    /// Fills the part that is copied in.
    fn write_inputs(
        &self,
        bytes: &mut [u8],
        problem: &Problem,
        hidden_states: MatrixRef<'_>,
        rows: &[SamplingParams],
    ) {
        let stride_bytes = (problem.hidden_stride() * problem.hidden_dtype().bytes()) as usize;
        let states = bytes[self.hidden_states as usize..].chunks_exact_mut(stride_bytes);
        for (row, state) in states.take(hidden_states.rows()).enumerate() {
            let elements = row_bytes(hidden_states, row);
            state[..elements.len()].copy_from_slice(elements);
        }
        for (row, params) in rows.iter().enumerate() {
            let mut put = |part: u64, value: &[u8]| {
                let begin = part as usize + row * value.len();
                bytes[begin..begin + value.len()].copy_from_slice(value);
            };
            put(self.seeds, &params.key.seed.to_ne_bytes());
            put(self.positions, &params.key.position.to_ne_bytes());
            put(self.temperatures, &params.temperature.to_ne_bytes());
        }
    }

    /// Reads the part that is copied out.
    fn read_outputs(&self, bytes: &[u8], output: &mut Output) {
        let words = |part: u64| {
            let words = bytes[part as usize..].as_chunks::<4>().0;
            words.iter().map(|&word| u32::from_ne_bytes(word))
        };
        output.tokens.iter_mut().zip(words(self.tokens)).for_each(|(to, word)| *to = word);
        for (to, word) in output.status.iter_mut().zip(words(self.status)) {
            *to = Status::from_bits(word);
        }
        for (to, word) in output.scores.iter_mut().zip(words(self.scores)) {
            *to = f32::from_bits(word);
        }
        for (to, word) in output.margins.iter_mut().zip(words(self.margins)) {
            *to = f32::from_bits(word);
        }
    }
}

/// A row's elements as bytes.
fn row_bytes(matrix: MatrixRef<'_>, row: usize) -> &[u8] {
    let element_bytes = matrix.dtype().bytes() as usize;
    assert!(row < matrix.rows());
    // SAFETY: `MatrixRef` guarantees that row's elements, and their types have no padding.
    unsafe {
        let begin = matrix.base_ptr().add(row * matrix.row_stride() * element_bytes);
        std::slice::from_raw_parts(begin, matrix.columns() * element_bytes)
    }
}

impl EasyDoor {
    pub(super) fn open(device: &Arc<Device>) -> Result<Self, Error> {
        let _current = device.enter()?;
        let stream = Stream::new(StreamFlags::DEFAULT, None).map_err(failed(Call::OpenDevice))?;
        Ok(Self {
            device: Arc::clone(device),
            stream: InContext::new(device, stream),
            host: locked_bytes(device, 0)?,
            exchange: device_bytes(device, 0)?,
            workspace: device_bytes(device, 0)?,
        })
    }

    /// Fills `output`, which has the problem's size; B ≥ 1. `launch` enqueues the call
    /// with the operands on the stream that it is given.
    pub(super) fn sample(
        &mut self,
        problem: &Problem,
        head: &HeadMemory,
        hidden_states: MatrixRef<'_>,
        rows: &[SamplingParams],
        output: &mut Output,
        launch: impl FnOnce(&RawOperands, Handle) -> Result<(), Error>,
    ) -> Result<(), Error> {
        head.check_device(&self.device)?;
        let _current = self.device.enter()?;
        let exchange = Exchange::new(problem);
        self.grow(exchange.bytes as usize, workspace_bytes(problem) as usize)?;
        exchange.write_inputs(self.host.as_mut_slice(), problem, hidden_states, rows);
        let enqueued = self.enqueue(head, &exchange, launch);
        // Waits after a failure too: copies out of the host's buffer may be under way.
        // SAFETY: the stream is ours.
        let done = unsafe { driver::cuStreamSynchronize(self.stream()) };
        enqueued.and(check(Call::Synchronize, done))?;
        exchange.read_outputs(&self.host, output);
        Ok(())
    }

    /// Enqueues the copy in, the call and the copy out.
    fn enqueue(
        &mut self,
        head: &HeadMemory,
        exchange: &Exchange,
        launch: impl FnOnce(&RawOperands, Handle) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let stream = self.stream();
        let device = self.exchange.as_device_ptr().as_raw();
        let workspace = (self.workspace.as_device_ptr().as_raw(), self.workspace.len() as u64);
        let operands = exchange.operands(device, head, workspace);
        let (inputs, outputs) = self.host.as_mut_slice().split_at_mut(exchange.tokens as usize);
        let output_bytes = (exchange.bytes - exchange.tokens) as usize;
        // SAFETY: both buffers have at least `exchange.bytes`, and the caller waits for the
        // stream before it touches them.
        unsafe {
            let (from, bytes) = (inputs.as_ptr().cast(), inputs.len());
            check(Call::Copy, driver::cuMemcpyHtoDAsync_v2(device, from, bytes, stream))?;
            launch(&operands, stream)?;
            let (to, from) = (outputs.as_mut_ptr().cast(), operands.tokens);
            check(Call::Copy, driver::cuMemcpyDtoHAsync_v2(to, from, output_bytes, stream))
        }
    }

    /// Replaces the buffers that are too small. Nothing is in flight.
    fn grow(&mut self, exchange_bytes: usize, workspace_bytes: usize) -> Result<(), Error> {
        if self.host.len() < exchange_bytes {
            self.host = locked_bytes(&self.device, exchange_bytes)?;
        }
        if self.exchange.len() < exchange_bytes {
            self.exchange = device_bytes(&self.device, exchange_bytes)?;
        }
        if self.workspace.len() < workspace_bytes {
            self.workspace = device_bytes(&self.device, workspace_bytes)?;
            let address = self.workspace.as_device_ptr().as_raw();
            // SAFETY: the buffer has these bytes, and the stream is ours.
            check(Call::Copy, unsafe {
                driver::cuMemsetD8Async(address, 0, workspace_bytes, self.stream())
            })?;
        }
        Ok(())
    }

    fn stream(&self) -> Handle {
        self.stream.as_inner().cast()
    }
}

/// Device memory of zeros, since copies take the gaps along; the context is current.
fn device_bytes(device: &Arc<Device>, bytes: usize) -> Result<InContext<DeviceBuffer<u8>>, Error> {
    let buffer = DeviceBuffer::zeroed(bytes).map_err(failed(Call::Allocate))?;
    Ok(InContext::new(device, buffer))
}

/// Page-locked host memory, filled with zeros; the context is current.
fn locked_bytes(device: &Arc<Device>, bytes: usize) -> Result<InContext<LockedBuffer<u8>>, Error> {
    let buffer = LockedBuffer::new(&0, bytes).map_err(failed(Call::Allocate))?;
    Ok(InContext::new(device, buffer))
}
