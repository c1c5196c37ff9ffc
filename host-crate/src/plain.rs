//! What the library lets a GPU compute: temperature and key, bias and shards. The rest is
//! refused there, never passed over.
#![forbid(unsafe_code)]

use crate::error::{Error, Param};
use crate::output::Output;
use crate::params::SamplingParams;

/// Refuses the parameters and reports of kept rows.
pub(crate) fn check_plain(rows: &[SamplingParams], output: &Output) -> Result<(), Error> {
    for (row, params) in (0..).zip(rows) {
        if let Some(param) = params.first_filter().or_else(|| params.first_penalty()) {
            return Err(Error::UnsupportedParam { row: Some(row), param });
        }
    }
    if output.raw.wanted.any() || output.processed.wanted.any() {
        return Err(Error::UnsupportedParam { row: None, param: Param::Report });
    }
    Ok(())
}
