//! Device memory of the easy door.

use std::ptr;
use std::sync::Arc;

use cust::memory::DeviceBuffer;
use cust::sys::{CUDA_MEMCPY2D, CUmemorytype_enum};

use super::device::{Device, InContext};
use super::driver::{self, Address, check, failed};
use crate::error::{Call, CudaFailure, Error};
use crate::matrix::MatrixRef;

/// An LM head's memory on a device.
#[derive(Debug)]
pub(crate) struct HeadMemory {
    ordinal: u32,
    /// `[V_rows, D]`, rows as far apart as [`HeadMemory::upload`] was told.
    weights: InContext<DeviceBuffer<u8>>,
    bias: Option<InContext<DeviceBuffer<f32>>>,
}

impl HeadMemory {
    /// Copies the weights, their rows `row_stride_bytes` apart, and the bias.
    pub(super) fn upload(
        device: &Arc<Device>,
        weights: MatrixRef<'_>,
        row_stride_bytes: usize,
        bias: Option<&[f32]>,
    ) -> Result<Self, Error> {
        let _current = device.enter()?;
        let element_bytes = weights.dtype().bytes() as usize;
        // Zeros, since kernels copy 16 bytes where a row's last are fewer.
        let buffer = DeviceBuffer::zeroed(weights.rows() * row_stride_bytes);
        let buffer = InContext::new(device, buffer.map_err(failed(Call::Allocate))?);
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CUmemorytype_enum::CU_MEMORYTYPE_HOST,
            srcHost: weights.base_ptr().cast(),
            srcDevice: 0,
            srcArray: ptr::null_mut(),
            srcPitch: weights.row_stride() * element_bytes,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CUmemorytype_enum::CU_MEMORYTYPE_DEVICE,
            dstHost: ptr::null_mut(),
            dstDevice: buffer.as_device_ptr().as_raw(),
            dstArray: ptr::null_mut(),
            dstPitch: row_stride_bytes,
            WidthInBytes: weights.columns() * element_bytes,
            Height: weights.rows(),
        };
        // SAFETY: `MatrixRef` guarantees the source's extent; the buffer holds `rows`
        // rows of the stride, which is at least the columns' bytes.
        check(Call::Copy, unsafe { driver::cuMemcpy2DUnaligned_v2(&copy) })?;
        let bias = bias.map(DeviceBuffer::from_slice).transpose();
        let bias = bias.map_err(failed(Call::Allocate))?.map(|bias| InContext::new(device, bias));
        Ok(Self { ordinal: device.ordinal, weights: buffer, bias })
    }

    /// Address of the weights.
    pub(super) fn weights(&self) -> Address {
        self.weights.as_device_ptr().as_raw()
    }

    /// Address of the bias, or 0.
    pub(super) fn bias(&self) -> Address {
        self.bias.as_ref().map_or(0, |bias| bias.as_device_ptr().as_raw())
    }

    /// Checks that the head lies in the device's primary context.
    pub(super) fn check_device(&self, device: &Device) -> Result<(), Error> {
        if self.ordinal == device.ordinal {
            return Ok(());
        }
        Err(Error::Cuda(CudaFailure {
            during: Call::Launch,
            code: 201,
            name: "CUDA_ERROR_INVALID_CONTEXT",
        }))
    }
}
