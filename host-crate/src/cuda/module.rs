//! The committed PTX, loaded once, and its entries, looked up once.

use std::ffi::CString;
use std::ptr;
use std::sync::Arc;

use flash_sampling_kernels::abi::kept::{LOG_SUM_EXP_ENTRY, kept_variant};
use flash_sampling_kernels::abi::{Kernel, NOISE_DIGEST_ENTRY, NOISE_ENTRY, VARIANTS, Variant};

use super::device::{Device, InContext};
use super::driver::{self, Handle, check};
use super::programmatic::Launcher;
use super::tensor_map::Encoder;
use crate::error::{Call, Error};
use crate::plan::{DeviceLimits, VariantId};

/// Runs on compute capability 8.0 and everything later.
const PTX_SM_80: &str = concat!(include_str!("../../ptx/flash_sampling.sm_80.ptx"), "\0");

/// Runs on compute capability 9.0 and nothing else.
const PTX_SM_90A: &str = concat!(include_str!("../../ptx/flash_sampling.sm_90a.ptx"), "\0");

/// Shared memory of a block that needs no opting in (CUDA C++ Programming Guide,
/// compute capabilities).
const SHARED_BYTES_WITHOUT_OPTIN: u32 = 48 << 10;

/// What the kernels for Hopper need of the driver.
#[derive(Debug)]
pub(super) struct Hopper {
    pub(super) tensor_maps: Encoder,
    pub(super) programmatic: Launcher,
}

/// The kernels, ready to launch.
#[derive(Debug)]
pub(super) struct Module {
    /// Those that run on the device.
    variants: Vec<(&'static Variant, Handle)>,
    /// Where one of them is a kernel for Hopper.
    pub(super) hopper: Option<Hopper>,
    /// The one that finishes rows with features, by name.
    finish: Option<(&'static str, Handle)>,
    /// The one that finishes reports of log-sum-exps.
    pub(super) log_sum_exp: Handle,
    pub(super) noise: Handle,
    pub(super) noise_digest: Handle,
    /// Keeps the entries loaded.
    _loaded: InContext<Loaded>,
}

// SAFETY: the handles are names that the driver accepts from any thread.
unsafe impl Send for Module {}
// SAFETY: as above, and nothing changes them.
unsafe impl Sync for Module {}

impl Hopper {
    fn look_up() -> Result<Self, Error> {
        Ok(Self { tensor_maps: Encoder::look_up()?, programmatic: Launcher::look_up()? })
    }
}

impl Module {
    /// Loads the PTX for the device; the driver compiles it, or has it in its cache.
    pub(super) fn load(device: &Arc<Device>) -> Result<Self, Error> {
        let _current = device.enter()?;
        let ptx = if device.limits.compute_capability == 90 { PTX_SM_90A } else { PTX_SM_80 };
        let mut module = ptr::null_mut();
        // SAFETY: `ptx` ends with a zero byte, and `module` is valid for writing.
        let code = unsafe { driver::cuModuleLoadData(&mut module, ptx.as_ptr().cast()) };
        check(Call::Load, code)?;
        let loaded = InContext::new(device, Loaded(module));
        let capability = device.limits.compute_capability;
        let runs = |variant: &&'static Variant| variant.runs_on(capability);
        let entry = |variant: &'static Variant| {
            let function = loaded.entry(variant.entry)?;
            opt_in(function, variant.shared_bytes, &device.limits)?;
            Ok((variant, function))
        };
        let variants: Vec<_> =
            VARIANTS.iter().filter(runs).map(entry).collect::<Result<_, Error>>()?;
        let finish = match kept_variant(capability) {
            Some(variant) => {
                let function = loaded.entry(variant.entry)?;
                // A problem's vocabulary decides how much of this a launch asks for.
                opt_in(function, device.limits.shared_bytes_per_block, &device.limits)?;
                Some((variant.entry, function))
            }
            None => None,
        };
        let for_hopper = variants.iter().any(|(variant, _)| variant.kernel == Kernel::SampleSm90);
        Ok(Self {
            variants,
            hopper: for_hopper.then(Hopper::look_up).transpose()?,
            finish,
            log_sum_exp: loaded.entry(LOG_SUM_EXP_ENTRY)?,
            noise: loaded.entry(NOISE_ENTRY)?,
            noise_digest: loaded.entry(NOISE_DIGEST_ENTRY)?,
            _loaded: loaded,
        })
    }

    /// A variant on a GPU, and its entry.
    pub(super) fn entry(&self, id: VariantId) -> Option<(&'static Variant, Handle)> {
        self.variants.iter().copied().find(|(variant, _)| VariantId::Gpu(variant) == id)
    }

    /// The entry of that name that finishes rows.
    pub(super) fn finish(&self, name: &str) -> Option<Handle> {
        self.finish.filter(|(entry, _)| *entry == name).map(|(_, function)| function)
    }
}

/// Allows the entry its dynamic shared memory. A device too small for it keeps the
/// default: the planner refuses the variant there.
fn opt_in(function: Handle, shared_bytes: u32, limits: &DeviceLimits) -> Result<(), Error> {
    if shared_bytes <= SHARED_BYTES_WITHOUT_OPTIN || shared_bytes > limits.shared_bytes_per_block {
        return Ok(());
    }
    let attribute = driver::FUNCTION_MAX_DYNAMIC_SHARED_BYTES;
    // SAFETY: the function is loaded. The cast keeps the value: it is below the limit,
    // which the driver gave as a `c_int`.
    let code = unsafe { driver::cuFuncSetAttribute(function, attribute, shared_bytes as i32) };
    check(Call::LookUp, code)
}

/// A loaded module.
#[derive(Debug)]
struct Loaded(Handle);

impl Loaded {
    /// Looks an entry up and has the driver load it: a lazy driver would do so at the
    /// first launch, and may then wait for the device or disturb a capture.
    fn entry(&self, name: &str) -> Result<Handle, Error> {
        let name = CString::new(name).unwrap_or_default();
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded, `name` ends with a zero byte, and `function` is
        // valid for writing.
        let code = unsafe { driver::cuModuleGetFunction(&mut function, self.0, name.as_ptr()) };
        check(Call::LookUp, code)?;
        let (mut registers, attribute) = (0, driver::FUNCTION_REGISTERS);
        // SAFETY: `registers` is valid for writing, and the function is of the module.
        let code = unsafe { driver::cuFuncGetAttribute(&mut registers, attribute, function) };
        check(Call::LookUp, code)?;
        Ok(function)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: loaded once, unloaded once; `InContext` makes the context current.
        unsafe { driver::cuModuleUnload(self.0) };
    }
}
