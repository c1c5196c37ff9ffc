//! What the rows of a call may ask for beyond temperature and key.
#![forbid(unsafe_code)]

use std::hash::{Hash, Hasher};

use flash_sampling_kernels::transform::LogitTransform;

use crate::error::{Error, Param};
use crate::report::Wanted;

/// What a call may ask for beyond temperature and key. On a GPU, a call with any of it keeps
/// values in memory and launches a second kernel, which finishes the rows; with rules or a
/// transform alone it may do without ([`Plan::applies_rules`](crate::Plan::applies_rules),
/// [`Plan::applies_transform`](crate::Plan::applies_transform)), and with log-probabilities alone
/// the second kernel needs no values ([`Plan::log_sum_exp`](crate::Plan::log_sum_exp)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Features {
    /// Whether rows may have penalties and rules for single tokens.
    pub rules: bool,
    /// Whether rows may have filters. On a GPU those of a call that says no may be passed over.
    pub filters: bool,
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
        rules: false,
        filters: false,
        raw: Wanted::NONE,
        processed: Wanted::NONE,
        transform: LogitTransform::NONE,
    };

    /// Whether that is anything.
    pub fn any(&self) -> bool {
        self.of_rows() || self.of_all_rows()
    }

    /// Whether rows may ask for anything.
    pub(crate) fn of_rows(&self) -> bool {
        self.rules || self.filters
    }

    /// Whether the call asks for anything for all rows.
    pub(crate) fn of_all_rows(&self) -> bool {
        self.raw.any() || self.processed.any() || self.transform.changes()
    }

    /// Whether the call wants log-probabilities, and nothing else of all rows.
    pub(crate) fn wants_logprobs_alone(&self) -> bool {
        let alone = |wanted: Wanted| !wanted.any() || wanted == Wanted::LOGPROBS;
        self.wants_reports_alone() && alone(self.raw) && alone(self.processed)
    }

    /// Whether the call wants reports, and nothing else of all rows.
    pub(crate) fn wants_reports_alone(&self) -> bool {
        let reports = self.raw.any() || self.processed.any();
        let none = Self { raw: Wanted::NONE, processed: Wanted::NONE, ..*self };
        reports && !none.of_all_rows()
    }

    /// Checks the values that it has.
    pub(super) fn check(self) -> Result<Checked, Error> {
        check_transform(self.transform)?;
        self.raw.check()?;
        self.processed.check()?;
        Ok(Checked(self))
    }
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
        let Features { rules, filters, raw, processed, transform } = self.0;
        (rules, filters, raw, processed).hash(state);
        let LogitTransform { softcap, scale, scale_first } = transform;
        (softcap.map(f32::to_bits), scale.to_bits(), scale_first).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Need;
    use crate::problem::{Problem, ProblemBuilder};
    use std::collections::HashSet;

    fn builder() -> ProblemBuilder {
        Problem::builder(8, 1_000, 64)
    }

    fn capped(cap: f32) -> Features {
        let transform = LogitTransform { softcap: Some(cap), ..LogitTransform::NONE };
        Features { transform, ..Features::NONE }
    }

    #[test]
    fn problems_with_equal_features_are_equal() {
        let ranks = Wanted { ranks: true, ..Wanted::NONE };
        let distinct = [
            Features::NONE,
            Features { rules: true, ..Features::NONE },
            Features { filters: true, ..Features::NONE },
            Features { raw: ranks, ..Features::NONE },
            Features { processed: ranks, ..Features::NONE },
            capped(30.0),
            capped(50.0),
        ];
        let problems = || distinct.map(|features| builder().features(features).build().unwrap());
        let set: HashSet<Problem> = problems().into_iter().chain(problems()).collect();
        assert_eq!(set.len(), distinct.len());
        assert_eq!(problems()[0], builder().build().unwrap());
        let any = distinct.map(|features| features.any());
        assert_eq!(any, [false, true, true, true, true, true, true]);
        let of_all_rows = distinct.map(|features| features.of_all_rows());
        assert_eq!(of_all_rows, [false, false, false, true, true, true, true]);
    }

    #[test]
    fn an_order_without_a_cap_and_a_scale_is_nothing() {
        let transform = LogitTransform { scale_first: true, ..LogitTransform::NONE };
        assert!(!Features { transform, ..Features::NONE }.any());
    }

    #[test]
    fn what_is_out_of_its_domain_is_refused() {
        let error = |features| builder().features(features).build().unwrap_err().to_string();
        assert_eq!(error(capped(f32::NAN)), "softcap: expected finite and above 0, found NaN");
        let processed = Wanted { best: 21, ..Wanted::NONE };
        let best = Features { processed, ..Features::NONE };
        assert_eq!(error(best), "best: expected at most 20, found 21");
    }

    #[test]
    fn values_that_no_address_reaches_are_refused() {
        let huge = Problem::builder((1 << 32) - 1, (1 << 32) - 1, 1);
        huge.build().expect("without features nothing is kept");
        let features = Features { filters: true, ..Features::NONE };
        let error = huge.features(features).build().unwrap_err();
        assert!(matches!(error, Error::Unsupported { need: Need::Values, .. }), "{error}");
        let large = Problem::builder(1 << 30, 1 << 29, 1).features(features);
        large.build().expect("bytes fit 63 bits, twice over");
    }
}
