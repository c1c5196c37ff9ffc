//! A device, its primary context, and what the planner has to know of it.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::Arc;

use cust::CudaFlags;
use cust::context::Context;

use super::driver::{self, check, failed};
use crate::error::{Call, Error, Need};
use crate::plan::DeviceLimits;

/// A device with its primary context retained: the context of the CUDA runtime and of
/// cudarc, so that their addresses and streams are valid in ours.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) ordinal: u32,
    pub(super) name: String,
    pub(super) limits: DeviceLimits,
    context: Context,
}

impl Device {
    /// Retains the primary context of device `ordinal` and leaves it current on the
    /// calling thread, as the CUDA runtime does.
    pub(super) fn open(ordinal: u32) -> Result<Self, Error> {
        cust::init(CudaFlags::empty()).map_err(failed(Call::Initialize))?;
        let opening = failed(Call::OpenDevice);
        let devices = cust::device::Device::num_devices().map_err(&opening)?;
        if ordinal >= devices {
            return Err(Error::Unsupported {
                need: Need::CudaDevice,
                limit: devices.into(),
                found: ordinal.into(),
            });
        }
        let device = cust::device::Device::get_device(ordinal).map_err(&opening)?;
        Ok(Self {
            ordinal,
            name: device.name().map_err(&opening)?,
            limits: limits(device.as_raw())?,
            context: Context::new(device).map_err(&opening)?,
        })
    }

    /// Makes the context current until the value is dropped.
    pub(super) fn enter(&self) -> Result<Current, Error> {
        // SAFETY: the context is retained as long as `self`.
        let code = unsafe { driver::cuCtxPushCurrent_v2(self.context.as_raw().cast()) };
        check(Call::OpenDevice, code)?;
        Ok(Current(PhantomData))
    }
}

fn limits(device: c_int) -> Result<DeviceLimits, Error> {
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: `value` is valid for writing.
        let code = unsafe { driver::cuDeviceGetAttribute(&mut value, attribute, device) };
        check(Call::OpenDevice, code)?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let major = attribute(driver::COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(driver::COMPUTE_CAPABILITY_MINOR)?;
    Ok(DeviceLimits {
        compute_capability: major * 10 + minor,
        multiprocessors: attribute(driver::MULTIPROCESSOR_COUNT)?,
        shared_bytes_per_block: attribute(driver::MAX_SHARED_BYTES_PER_BLOCK_OPTIN)?,
        shared_bytes_per_sm: attribute(driver::MAX_SHARED_BYTES_PER_MULTIPROCESSOR)?,
    })
}

/// The context is current on this thread; dropping it restores what was before.
pub(super) struct Current(PhantomData<*const ()>);

impl Drop for Current {
    fn drop(&mut self) {
        let mut context = ptr::null_mut();
        // SAFETY: `Device::enter` pushed the context on this thread: `Current` is not `Send`.
        unsafe { driver::cuCtxPopCurrent_v2(&mut context) };
    }
}

/// A value whose destructor needs the context to be current.
#[derive(Debug)]
pub(super) struct InContext<T> {
    value: ManuallyDrop<T>,
    device: Arc<Device>,
}

impl<T> InContext<T> {
    pub(super) fn new(device: &Arc<Device>, value: T) -> Self {
        Self { value: ManuallyDrop::new(value), device: Arc::clone(device) }
    }
}

impl<T> Deref for InContext<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for InContext<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for InContext<T> {
    fn drop(&mut self) {
        // A context that cannot be entered is lost, and its resources with it.
        if let Ok(_current) = self.device.enter() {
            // SAFETY: dropped here and nowhere else.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
