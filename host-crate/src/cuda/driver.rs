//! The driver calls that `cust` lacks or whose result codes it loses, and codes as
//! errors.
//!
//! The bindings under `cust` return a Rust enum of CUDA 11.4's codes, and `cust` folds
//! those it does not know into one. A newer driver knows more codes, and "this PTX is
//! too new for this driver" is one that a user can act on: so these calls are declared
//! here, with a plain integer as their result.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use cust::error::CudaError;
use cust::sys::CUDA_MEMCPY2D;

use crate::error::{Call, CudaFailure, Error};

/// A `CUcontext`, `CUmodule`, `CUfunction` or `CUstream`.
pub(super) type Handle = *mut c_void;

/// A `CUdeviceptr`.
pub(super) type Address = u64;

// `CUdevice_attribute` and `CUfunction_attribute` (CUDA driver API, types).
pub(super) const MULTIPROCESSOR_COUNT: c_int = 16;
pub(super) const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
pub(super) const COMPUTE_CAPABILITY_MINOR: c_int = 76;
pub(super) const MAX_SHARED_BYTES_PER_MULTIPROCESSOR: c_int = 81;
pub(super) const MAX_SHARED_BYTES_PER_BLOCK_OPTIN: c_int = 97;
pub(super) const FUNCTION_REGISTERS: c_int = 4;
pub(super) const FUNCTION_MAX_DYNAMIC_SHARED_BYTES: c_int = 8;

unsafe extern "C" {
    fn cuGetErrorName(code: u32, name: *mut *const c_char) -> u32;
    pub(super) fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> u32;
    pub(super) fn cuCtxPushCurrent_v2(context: Handle) -> u32;
    pub(super) fn cuCtxPopCurrent_v2(context: *mut Handle) -> u32;
    pub(super) fn cuModuleLoadData(module: *mut Handle, image: *const c_void) -> u32;
    pub(super) fn cuModuleUnload(module: Handle) -> u32;
    pub(super) fn cuModuleGetFunction(
        function: *mut Handle,
        module: Handle,
        name: *const c_char,
    ) -> u32;
    pub(super) fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: Handle) -> u32;
    pub(super) fn cuFuncSetAttribute(function: Handle, attribute: c_int, value: c_int) -> u32;
    pub(super) fn cuLaunchKernel(
        function: Handle,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: Handle,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> u32;
    fn cuGetProcAddress(
        symbol: *const c_char,
        function: *mut *mut c_void,
        cuda_version: c_int,
        flags: u64,
    ) -> u32;
    pub(super) fn cuMemsetD8Async(address: Address, value: u8, bytes: usize, stream: Handle)
    -> u32;
    pub(super) fn cuMemcpyHtoDAsync_v2(
        to: Address,
        from: *const c_void,
        bytes: usize,
        stream: Handle,
    ) -> u32;
    pub(super) fn cuMemcpyDtoHAsync_v2(
        to: *mut c_void,
        from: Address,
        bytes: usize,
        stream: Handle,
    ) -> u32;
    pub(super) fn cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D) -> u32;
    pub(super) fn cuStreamSynchronize(stream: Handle) -> u32;
}

/// The address of a function that the driver has since `cuda_version`, as it counts:
/// a program linked against the name would not start with an older one.
pub(super) fn look_up(name: &CStr, cuda_version: c_int) -> Result<*mut c_void, Error> {
    let mut function = ptr::null_mut();
    // SAFETY: the name ends with a zero byte, and `function` is valid for writing.
    let code = unsafe { cuGetProcAddress(name.as_ptr(), &mut function, cuda_version, 0) };
    check(Call::LookUp, code)?;
    Ok(function)
}

/// The result of a call as a value.
pub(super) fn check(during: Call, code: u32) -> Result<(), Error> {
    match code {
        0 => Ok(()),
        _ => Err(failure(during, code)),
    }
}

/// Turns an error of `cust` into ours.
pub(super) fn failed(during: Call) -> impl Fn(CudaError) -> Error {
    move |error| failure(during, error as u32)
}

fn failure(during: Call, code: u32) -> Error {
    Error::Cuda(CudaFailure { during, code, name: name(code) })
}

/// The driver's own name for a code.
fn name(code: u32) -> &'static str {
    let mut name = ptr::null();
    // SAFETY: `name` is valid for writing. On success it points to a string that lives
    // as long as the driver's library, which is never unloaded.
    unsafe {
        if cuGetErrorName(code, &mut name) != 0 || name.is_null() {
            return "a code without a name";
        }
        CStr::from_ptr(name).to_str().unwrap_or("a code without a name")
    }
}
