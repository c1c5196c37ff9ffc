//! The easy door: a call that copies in, runs, copies out, and waits.

use std::sync::Arc;

use cust::memory::{DeviceBuffer, LockedBuffer};
use cust::stream::{Stream, StreamFlags};

use super::device::{Device, InContext};
use super::driver::{self, Handle, check, failed};
use super::exchange::Exchange;
use super::memory::HeadMemory;
use super::{HostRows, RawOperands};
use crate::error::{Call, Error};
use crate::output::Output;
use crate::plan::Plan;
use crate::problem::Problem;

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
    /// Of any content.
    kept: InContext<DeviceBuffer<u8>>,
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
            kept: device_bytes(device, 0)?,
        })
    }

    /// Fills `output`, which has the problem's size; B ≥ 1. `launch` enqueues the call
    /// with the operands on the stream that it is given, as planned.
    pub(super) fn sample(
        &mut self,
        (problem, plan): (&Problem, &Plan),
        head: &HeadMemory,
        rows: HostRows<'_>,
        output: &mut Output,
        launch: impl FnOnce(&RawOperands, Handle) -> Result<(), Error>,
    ) -> Result<(), Error> {
        head.check_device(&self.device)?;
        let _current = self.device.enter()?;
        let exchange = Exchange::new(problem, &rows);
        self.grow(exchange.bytes as usize, plan)?;
        let device = self.exchange.as_device_ptr().as_raw();
        exchange.write_inputs(self.host.as_mut_slice(), problem, &rows, device);
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
        let kept = (self.kept.as_device_ptr().as_raw(), self.kept.len() as u64);
        let operands = exchange.operands(device, (head.weights(), head.bias()), workspace, kept);
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
    fn grow(&mut self, exchange_bytes: usize, plan: &Plan) -> Result<(), Error> {
        let (workspace_bytes, kept_bytes) =
            (plan.workspace_bytes as usize, plan.kept_bytes as usize);
        // Lists of seen tokens grow with a text: not every token may want new buffers.
        let exchange_bytes = exchange_bytes.checked_next_power_of_two().unwrap_or(exchange_bytes);
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
        if self.kept.len() < kept_bytes {
            self.kept = device_bytes(&self.device, kept_bytes)?;
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
