//! Programmatic dependent launch: a kernel that starts before the one before it has ended
//! (CUDA programming guide, "Programmatic Dependent Launch and Synchronization").

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::{mem, ptr};

use super::driver::{self, Handle, check};
use super::launch::Geometry;
use crate::error::{Call, Error};

/// `CUlaunchConfig` (CUDA driver API, types).
#[repr(C)]
struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: Handle,
    attributes: *const Attribute,
    n_attributes: c_uint,
}

/// `CUlaunchAttribute`, whose value is a union of 64 bytes that holds a flag here.
#[repr(C, align(8))]
struct Attribute {
    id: c_int,
    padding: [u8; 4],
    value: c_int,
    rest_of_value: [u8; 60],
}

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION` (CUDA driver API, types).
const PROGRAMMATIC_STREAM_SERIALIZATION: c_int = 6;

static PROGRAMMATIC: Attribute = Attribute {
    id: PROGRAMMATIC_STREAM_SERIALIZATION,
    padding: [0; 4],
    value: 1,
    rest_of_value: [0; 60],
};

/// `cuLaunchKernelEx` (CUDA driver API, "Execution Control").
type LaunchKernelEx = unsafe extern "C" fn(
    config: *const Config,
    function: Handle,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> u32;

const LAUNCH_KERNEL_EX: &CStr = c"cuLaunchKernelEx";

/// The CUDA version that has it, as the driver counts.
const LAUNCH_KERNEL_EX_SINCE: c_int = 11_080;

/// Launches entries that wait for the kernels before them by themselves. Looked up at run
/// time: drivers before CUDA 11.8 lack the function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launcher(LaunchKernelEx);

impl Launcher {
    pub(super) fn look_up() -> Result<Self, Error> {
        let function = driver::look_up(LAUNCH_KERNEL_EX, LAUNCH_KERNEL_EX_SINCE)?;
        // SAFETY: on success the driver gives the address of the function of that name.
        Ok(Self(unsafe { mem::transmute::<*mut c_void, LaunchKernelEx>(function) }))
    }

    /// Enqueues an entry, which may start before the kernel before it has ended.
    ///
    /// # Safety
    /// As [`launch`](super::launch::launch). Before it waits, the entry writes nothing,
    /// and reads only what no work that may still run writes.
    pub(super) unsafe fn launch(
        &self,
        function: Handle,
        geometry: Geometry,
        arguments: &mut [*mut c_void],
        stream: Handle,
    ) -> Result<(), Error> {
        let Geometry { blocks, threads, shared_bytes } = geometry;
        let config = Config {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared_bytes,
            stream,
            attributes: &raw const PROGRAMMATIC,
            n_attributes: 1,
        };
        // SAFETY: the caller's promise; the driver copies configuration and arguments before
        // it returns.
        let code = unsafe { (self.0)(&config, function, arguments.as_mut_ptr(), ptr::null_mut()) };
        check(Call::Launch, code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_the_drivers() {
        assert_eq!((size_of::<Attribute>(), mem::offset_of!(Attribute, value)), (72, 8));
        assert_eq!((size_of::<Config>(), mem::offset_of!(Config, stream)), (56, 32));
    }
}
