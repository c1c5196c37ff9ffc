//! What a row asks for, as the device reads it.
#![forbid(unsafe_code)]

use flash_sampling_kernels::abi::kept::RowFeatures;
use flash_sampling_kernels::transform::Penalties;

use crate::params::{EditOrder, FilterOrder, SamplingParams};

impl From<&SamplingParams> for RowFeatures {
    /// A row's parameters, which [`validate`](crate::validate) checks and this does not; the
    /// lists are empty.
    fn from(params: &SamplingParams) -> Self {
        row_features(params)
    }
}

/// A row's parameters; the lists are empty.
#[inline]
pub(crate) fn row_features(params: &SamplingParams) -> RowFeatures {
    let Penalties { repetition, frequency, presence } = params.penalties;
    let options = [
        (params.filter_order == FilterOrder::MinPLast, RowFeatures::MIN_P_LAST),
        (params.filter_order == FilterOrder::Joint, RowFeatures::JOINT),
        (params.filters_at_one, RowFeatures::FILTERS_AT_ONE),
        (params.edit_order == EditOrder::BiasLast, RowFeatures::BIAS_LAST),
    ];
    RowFeatures {
        top_k: params.top_k.unwrap_or(0),
        top_p: params.top_p,
        min_p: params.min_p,
        top_n_sigma: params.top_n_sigma.unwrap_or(0.0),
        epsilon_cutoff: params.epsilon_cutoff,
        eta_cutoff: params.eta_cutoff,
        repetition,
        frequency,
        presence,
        options: options.iter().map(|&(holds, bit)| if holds { bit } else { 0 }).sum(),
        ..RowFeatures::NONE
    }
}
