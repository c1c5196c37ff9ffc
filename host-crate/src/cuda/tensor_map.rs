//! Tensor maps: how Hopper's copy engine finds the boxes of a matrix.

use std::ffi::{CStr, c_int, c_void};
use std::{mem, ptr};

use flash_sampling_kernels::abi::{Dtype, sm90};

use super::driver::{self, Address, check};
use crate::error::{Call, Error};

/// `CUtensorMap`, opaque: a parameter of the kernel by value.
#[repr(C, align(64))]
pub(super) struct TensorMap([u64; 16]);

/// A row-major matrix in device memory; the stride counts elements.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) address: Address,
    pub(super) dtype: Dtype,
    pub(super) rows: u32,
    pub(super) columns: u32,
    pub(super) row_stride: u64,
}

// `CUtensorMapDataType`, `CUtensorMapSwizzle`, `CUtensorMapL2promotion` (CUDA driver API,
// types). Promotion to 256 bytes costs 6 % of the reading rate.
const FLOAT16: c_int = 6;
const FLOAT32: c_int = 7;
const BFLOAT16: c_int = 9;
const NO_INTERLEAVE: c_int = 0;
const SWIZZLE_128_BYTES: c_int = 3;
const PROMOTION_128_BYTES: c_int = 2;
/// Elements outside the matrix arrive as zeros.
const FILL_ZEROS: c_int = 0;

const AXES: usize = 2;

/// `cuTensorMapEncodeTiled` (CUDA driver API, "Tensor Map Object Management").
type EncodeTiled = unsafe extern "C" fn(
    map: *mut TensorMap,
    dtype: c_int,
    rank: u32,
    address: *mut c_void,
    sizes: *const u64,
    strides_bytes: *const u64,
    box_sizes: *const u32,
    element_strides: *const u32,
    interleave: c_int,
    swizzle: c_int,
    promotion: c_int,
    fill: c_int,
) -> u32;

const ENCODE_TILED: &CStr = c"cuTensorMapEncodeTiled";

/// The CUDA version that has it, as the driver counts.
const ENCODE_TILED_SINCE: c_int = 12_000;

/// Makes tensor maps. Looked up at run time: drivers before CUDA 12 lack the function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoder(EncodeTiled);

impl Encoder {
    pub(super) fn look_up() -> Result<Self, Error> {
        let function = driver::look_up(ENCODE_TILED, ENCODE_TILED_SINCE)?;
        // SAFETY: on success the driver gives the address of the function of that name.
        Ok(Self(unsafe { mem::transmute::<*mut c_void, EncodeTiled>(function) }))
    }

    /// The map of a matrix in boxes of `box_rows` rows and the columns of a slab. No
    /// device memory is touched.
    pub(super) fn encode(&self, matrix: Layout, box_rows: u32) -> Result<TensorMap, Error> {
        let Layout { address, dtype, rows, columns, row_stride } = matrix;
        let mut map = TensorMap([0; 16]);
        let sizes: [u64; AXES] = [columns.into(), rows.into()];
        let stride_bytes = row_stride * dtype.bytes();
        let box_sizes: [u32; AXES] = [sm90::TILE_D, box_rows];
        let element_strides: [u32; AXES] = [1; AXES];
        let dtype = match dtype {
            Dtype::Bf16 => BFLOAT16,
            Dtype::F16 => FLOAT16,
            Dtype::F32 => FLOAT32,
        };
        // SAFETY: `map` is valid for writing and aligned; the arrays have a value an axis,
        // the strides one less.
        let code = unsafe {
            (self.0)(
                &mut map,
                dtype,
                AXES as u32,
                ptr::without_provenance_mut(address as usize),
                sizes.as_ptr(),
                &stride_bytes,
                box_sizes.as_ptr(),
                element_strides.as_ptr(),
                NO_INTERLEAVE,
                SWIZZLE_128_BYTES,
                PROMOTION_128_BYTES,
                FILL_ZEROS,
            )
        };
        check(Call::Launch, code)?;
        Ok(map)
    }
}
