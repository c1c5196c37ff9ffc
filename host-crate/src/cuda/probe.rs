//! The noise alone, as a device computes it: for tests that compare it with the CPU's.

use std::sync::Arc;

use cust::memory::{CopyDestination, DeviceBuffer};
use flash_sampling_kernels::abi::TILE_V;

use super::device::{Device, InContext};
use super::driver::{Handle, failed};
use super::launch::{Geometry, launch};
use super::module::Module;
use crate::error::{Call, Error};

/// The legacy default stream: what is copied next waits for it.
const DEFAULT_STREAM: Handle = std::ptr::null_mut();

/// Blocks of a multiprocessor; any number gives the same result.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 8;

/// The noise of `words` consecutive words.
pub(super) fn noise(
    device: &Arc<Device>,
    module: &Module,
    mut first_word: u32,
    mut words: u32,
) -> Result<Vec<f32>, Error> {
    let _current = device.enter()?;
    let mut noise = vec![0.0f32; words as usize];
    if words == 0 {
        return Ok(noise);
    }
    let buffer =
        InContext::new(device, DeviceBuffer::from_slice(&noise).map_err(failed(Call::Allocate))?);
    let mut address = buffer.as_device_ptr().as_raw();
    let mut arguments =
        [(&raw mut address).cast(), (&raw mut first_word).cast(), (&raw mut words).cast()];
    // SAFETY: the entry takes these three (`abi::NOISE_ENTRY`); the buffer holds as many
    // values as there are words, and the copy below waits for the launch.
    unsafe { launch(module.noise, geometry(device), &mut arguments, DEFAULT_STREAM)? };
    buffer.copy_to(&mut noise).map_err(failed(Call::Synchronize))?;
    Ok(noise)
}

/// The digest of the noise of `words` consecutive words.
pub(super) fn noise_digest(
    device: &Arc<Device>,
    module: &Module,
    mut first_word: u64,
    mut words: u64,
) -> Result<u64, Error> {
    let _current = device.enter()?;
    let mut sum = [0u64];
    let buffer =
        InContext::new(device, DeviceBuffer::from_slice(&sum).map_err(failed(Call::Allocate))?);
    let mut address = buffer.as_device_ptr().as_raw();
    let mut arguments =
        [(&raw mut address).cast(), (&raw mut first_word).cast(), (&raw mut words).cast()];
    // SAFETY: the entry takes these three (`abi::NOISE_DIGEST_ENTRY`), and the copy below
    // waits for the launch.
    unsafe { launch(module.noise_digest, geometry(device), &mut arguments, DEFAULT_STREAM)? };
    buffer.copy_to(&mut sum).map_err(failed(Call::Synchronize))?;
    Ok(sum[0])
}

fn geometry(device: &Device) -> Geometry {
    Geometry {
        blocks: device.limits.multiprocessors.max(1) * BLOCKS_PER_MULTIPROCESSOR,
        threads: TILE_V,
        shared_bytes: 0,
    }
}
