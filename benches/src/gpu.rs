//! The card as an engine on cudarc would hold it: memory, one stream, graphs, events.

use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::Arc;

use anyhow::{Context, ensure};
use cudarc::driver::sys::{CUdevice_attribute, CUevent_flags, CUgraphInstantiate_flags};
use cudarc::driver::sys::{CUstream, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaEvent, CudaGraph, CudaSlice, CudaStream, DevicePtr, result};
use half::bf16;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Normal};

/// Elements of the random chunk that fills a matrix by repetition: 8 MB of bf16, and a
/// prime, so that the rows of no matrix repeat each other.
const CHUNK: usize = 4_194_301;

/// A device and the stream that everything runs on.
#[derive(Debug)]
pub struct Gpu {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

/// Memory on the device.
#[derive(Debug)]
pub struct Buffer {
    memory: CudaSlice<u8>,
    address: u64,
}

impl Buffer {
    /// Address on the device, aligned to 256 bytes at least.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// The address as a kernel's parameter.
    pub const fn pointer<T>(&self) -> *mut T {
        without_provenance_mut(self.address as usize)
    }

    /// Size.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }
}

impl Gpu {
    /// Retains the primary context of device `ordinal`.
    ///
    /// # Errors
    /// There is no driver or no such device.
    pub fn open(ordinal: usize) -> anyhow::Result<Self> {
        // SAFETY: loading the driver's library runs nothing of ours.
        let driver = unsafe { cudarc::driver::sys::is_culib_present() };
        ensure!(driver, "no NVIDIA driver: libcuda was not found");
        let context = CudaContext::new(ordinal).context("cannot open the device")?;
        // SAFETY: every buffer is used on one stream only.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        Ok(Self { context, stream })
    }

    /// The device's name.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn name(&self) -> anyhow::Result<String> {
        Ok(self.context.name()?)
    }

    /// Bytes of the second-level cache.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn cache_bytes(&self) -> anyhow::Result<u64> {
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;
        Ok(u64::try_from(self.context.attribute(attribute)?)?)
    }

    /// The stream, as cudarc's functions take it.
    pub fn stream(&self) -> CUstream {
        self.stream.cu_stream()
    }

    /// The stream, as our engine door takes it.
    pub fn raw_stream(&self) -> *mut c_void {
        self.stream().cast()
    }

    /// Waits for all that is enqueued.
    ///
    /// # Errors
    /// Something enqueued has failed.
    pub fn wait(&self) -> anyhow::Result<()> {
        Ok(self.stream.synchronize()?)
    }

    /// Memory of unspecified content.
    ///
    /// # Errors
    /// There is not as much.
    pub fn allocate(&self, bytes: u64) -> anyhow::Result<Buffer> {
        let bytes = usize::try_from(bytes)?;
        // SAFETY: a `Buffer` gives out nothing but its address and whole downloads,
        // which are bytes whatever they hold.
        let memory = unsafe { self.stream.alloc::<u8>(bytes.max(1)) }
            .with_context(|| format!("cannot allocate {bytes} bytes on the device"))?;
        let address = memory.device_ptr(&self.stream).0;
        Ok(Buffer { memory, address })
    }

    /// Memory with the bytes of `values`, which are plain numbers.
    ///
    /// # Errors
    /// There is not as much.
    pub fn upload<T: Number>(&self, values: &[T]) -> anyhow::Result<Buffer> {
        let buffer = self.allocate(size_of_val(values) as u64)?;
        // SAFETY: the buffer has exactly the size of `values`, and the stream is waited
        // for before they can go.
        unsafe { result::memcpy_htod_async(buffer.address, values, self.stream()) }?;
        self.wait()?;
        Ok(buffer)
    }

    /// The first `count` values of a buffer, when all that is enqueued has run.
    ///
    /// # Errors
    /// The buffer is smaller, or something enqueued has failed.
    pub fn download<T: Number>(&self, buffer: &Buffer, count: usize) -> anyhow::Result<Vec<T>> {
        ensure!(count * size_of::<T>() <= buffer.bytes(), "the buffer is smaller");
        let mut values = vec![T::default(); count];
        // SAFETY: the buffer is at least as large, any bits are a number, and the stream
        // is waited for before the values are used.
        unsafe { result::memcpy_dtoh_async(&mut values, buffer.address, self.stream()) }?;
        self.wait()?;
        Ok(values)
    }

    /// Fills a buffer with one byte.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn fill(&self, buffer: &Buffer, byte: u8) -> anyhow::Result<()> {
        // SAFETY: the size is the buffer's.
        unsafe { result::memset_d8_async(buffer.address, byte, buffer.bytes(), self.stream()) }?;
        Ok(())
    }

    /// Enqueues a copy of one buffer over another of the same size.
    ///
    /// # Errors
    /// The sizes differ, or the driver refuses.
    pub fn copy(&self, from: &Buffer, to: &Buffer) -> anyhow::Result<()> {
        ensure!(from.bytes() == to.bytes(), "the buffers differ in size");
        // SAFETY: both have that size.
        unsafe {
            result::memcpy_dtod_async(to.address, from.address, from.bytes(), self.stream())
        }?;
        Ok(())
    }

    /// `count` matrices of `elements` bf16 normals each, no two alike.
    ///
    /// A matrix repeats a random chunk of prime length, which makes it in the time of a
    /// copy and leaves no row like another.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn random(
        &self,
        count: usize,
        elements: u64,
        deviation: f32,
        seed: u64,
    ) -> anyhow::Result<Vec<Buffer>> {
        let normal = Normal::new(0.0, deviation)?;
        let random = SmallRng::seed_from_u64(seed);
        let chunk: Vec<_> = normal.sample_iter(random).take(CHUNK).map(bf16::from_f32).collect();
        let chunk = self.upload(&chunk)?;
        let matrices: Vec<_> =
            (0..count).map(|_| self.allocate(elements * 2)).collect::<Result<_, _>>()?;
        for (i, matrix) in matrices.iter().enumerate() {
            // Each matrix begins elsewhere in the chunk.
            let mut begin = i * CHUNK / count;
            let mut done = 0;
            while done < matrix.bytes() {
                let bytes = ((CHUNK - begin) * 2).min(matrix.bytes() - done);
                let (to, from) = (matrix.address + done as u64, chunk.address + begin as u64 * 2);
                // SAFETY: `done + bytes` is within the matrix and `2·begin + bytes` within
                // the chunk.
                unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream()) }?;
                done += bytes;
                begin = 0;
            }
        }
        self.wait()?;
        Ok(matrices)
    }

    /// Marks the time at which the stream gets here.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn mark(&self) -> anyhow::Result<CudaEvent> {
        Ok(self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?)
    }

    /// What `enqueue` puts on the stream, as a graph ready to launch.
    ///
    /// # Errors
    /// `enqueue` fails, or enqueues nothing or what cannot be captured.
    pub fn capture(
        &self,
        enqueue: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<CudaGraph> {
        self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
        let enqueued = enqueue();
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0));
        enqueued?;
        let graph = graph?.context("an empty capture")?;
        graph.upload()?;
        Ok(graph)
    }
}

/// A number whose every bit pattern is a value.
pub trait Number: Copy + Default + private::Sealed {}

mod private {
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Number for $number {}
        impl private::Sealed for $number {})*
    };
}

numbers!(bf16, f32, u32, u64);
