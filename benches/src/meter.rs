//! The card's clock and power, read beside a time; all of it optional.

use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_POWER_INSTANT;
use nvml_wrapper::{Device, Nvml};

/// The driver's management library, where there is one.
#[derive(Debug)]
pub struct Meter {
    nvml: Option<Nvml>,
    ordinal: u32,
}

/// One reading.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Clock of the multiprocessors, in MHz.
    pub sm_mhz: Option<u32>,
    /// Power at this moment, in watts.
    pub power_w: Option<f64>,
}

impl Meter {
    /// A meter of device `ordinal` that reads nothing if the library is missing.
    pub fn open(ordinal: u32) -> Self {
        // The name that a driver installs; the one without a number is a developer's.
        let nvml = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init().ok();
        Self { nvml, ordinal }
    }

    /// Clock and power at this moment.
    pub fn read(&self) -> Reading {
        let Some(device) = self.device() else { return Reading::default() };
        Reading { sm_mhz: device.clock_info(Clock::SM).ok(), power_w: power_w(&device) }
    }

    /// Names and values of the driver and the card's limits, for a report.
    pub fn provenance(&self) -> Vec<(String, String)> {
        let mut facts = Vec::new();
        let mut fact = |name: &str, value: Option<String>| {
            facts.push((name.into(), value.unwrap_or_else(|| "unknown".into())));
        };
        let device = self.device();
        let device = device.as_ref();
        fact("driver", self.nvml.as_ref().and_then(|nvml| nvml.sys_driver_version().ok()));
        let limit = device.and_then(|device| device.enforced_power_limit().ok());
        fact("power limit", limit.map(|milliwatts| format!("{} W", milliwatts / 1000)));
        let clock = |clock| device.and_then(|device| device.max_clock_info(clock).ok());
        fact("greatest SM clock", clock(Clock::SM).map(|mhz| format!("{mhz} MHz")));
        fact("greatest memory clock", clock(Clock::Memory).map(|mhz| format!("{mhz} MHz")));
        let celsius = device.and_then(|device| device.temperature(TemperatureSensor::Gpu).ok());
        fact("temperature at the start", celsius.map(|celsius| format!("{celsius} °C")));
        facts
    }

    fn device(&self) -> Option<Device<'_>> {
        self.nvml.as_ref()?.device_by_index(self.ordinal).ok()
    }
}

/// Power now; the averaged reading where the card has no other.
fn power_w(device: &Device<'_>) -> Option<f64> {
    let samples = device.field_values_for(&[FieldId(NVML_FI_DEV_POWER_INSTANT)]);
    let now = samples.ok().and_then(|samples| match samples.first()?.as_ref().ok()?.value {
        Ok(SampleValue::U32(milliwatts)) => Some(milliwatts),
        _ => None,
    });
    Some(f64::from(now.or_else(|| device.power_usage().ok())?) / 1000.0)
}
