//! What the rows of a call may ask for beyond temperature and key.
#![forbid(unsafe_code)]

use std::hash::{Hash, Hasher};

use flash_sampling_kernels::transform::LogitTransform;

use crate::error::{Error, Param};
use crate::params::SamplingParams;
use crate::report::Wanted;
use crate::token_rules::TokenRules;

/// What a call may ask for beyond temperature and key. On a GPU, a call with any of it keeps
/// the rows' values in memory and launches a second kernel, which finishes the rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Features {
    /// Whether rows may have filters, penalties and rules for single tokens.
    pub rows: bool,
    /// What to report of the model's distribution.
    pub raw: Wanted,
    /// What to report of each row's.
    pub processed: Wanted,
    /// What the model does to every logit after the bias.
    pub transform: LogitTransform,
}

impl Features {
    /// Nothing.
    pub const NONE: Self = Self {
        rows: false,
        raw: Wanted::NONE,
        processed: Wanted::NONE,
        transform: LogitTransform::NONE,
    };

    /// Whether that is anything.
    pub fn any(&self) -> bool {
        let LogitTransform { softcap, scale, .. } = self.transform;
        self.rows
            || self.raw.any()
            || self.processed.any()
            || softcap.is_some()
            || scale != LogitTransform::NONE.scale
    }

    /// Checks the values that it has.
    pub(super) fn check(self) -> Result<Checked, Error> {
        check_transform(self.transform)?;
        self.raw.check()?;
        self.processed.check()?;
        Ok(Checked(self))
    }
}

/// Whether a row asks for anything beyond temperature and key.
pub(crate) fn row_asks(params: &SamplingParams, rules: &TokenRules<'_>) -> bool {
    params.filters() || rules.edits(params)
}

/// Checks a cap and a scale.
pub(crate) fn check_transform(transform: LogitTransform) -> Result<(), Error> {
    let LogitTransform { softcap, scale, .. } = transform;
    for (param, found) in [(Param::Softcap, softcap.unwrap_or(1.0)), (Param::LogitScale, scale)] {
        if !(found.is_finite() && found > 0.0) {
            return Err(Error::Param { row: None, param, found: f64::from(found) });
        }
    }
    Ok(())
}

/// Features whose numbers are finite and above 0: they are equal if their bits are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Checked(Features);

impl Checked {
    pub(super) const fn get(self) -> Features {
        self.0
    }
}

impl Eq for Checked {}

impl Hash for Checked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Features { rows, raw, processed, transform } = self.0;
        (rows, raw, processed).hash(state);
        let LogitTransform { softcap, scale, scale_first } = transform;
        (softcap.map(f32::to_bits), scale.to_bits(), scale_first).hash(state);
    }
}
