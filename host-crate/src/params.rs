//! What each row of a batch asks for.
#![forbid(unsafe_code)]

use flash_sampling_kernels::philox::NoiseKey;
use flash_sampling_kernels::score::RowParams;

use crate::error::{Error, Param};

/// Parameters of one batch row. Greedy and sampled rows mix freely in a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SamplingParams {
    /// Finite and ≥ 0; 0 is greedy.
    pub temperature: f32,
    /// Names the row's noise; the same key draws the same token from the same logits.
    pub key: NoiseKey,
}

impl SamplingParams {
    /// Sampling at `temperature`, with the noise of (seed, position).
    pub const fn new(temperature: f32, seed: u64, position: u64) -> Self {
        Self { temperature, key: NoiseKey { seed, position } }
    }

    /// The likeliest token; of equals, the lowest id.
    pub const fn greedy() -> Self {
        Self::new(0.0, 0, 0)
    }

    pub(crate) const fn row_params(&self) -> RowParams {
        RowParams { temperature: self.temperature, key: self.key }
    }
}

/// Checks every row.
///
/// # Errors
/// [`Error::Param`] naming the first row outside the domain, the parameter and its value.
pub fn validate(rows: &[SamplingParams]) -> Result<(), Error> {
    for (row, params) in rows.iter().enumerate() {
        let temperature = params.temperature;
        if !(temperature.is_finite() && temperature >= 0.0) {
            return Err(Error::Param {
                row: Some(u32::try_from(row).unwrap_or(u32::MAX)),
                param: Param::Temperature,
                found: f64::from(temperature),
            });
        }
    }
    Ok(())
}
