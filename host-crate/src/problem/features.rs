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

    /// Whether that is what rows may ask for, and nothing that the call asks for all of them.
    pub(crate) fn rows_alone(&self) -> bool {
        self.rows && !Self { rows: false, ..*self }.any()
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
            Features { rows: true, ..Features::NONE },
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
        assert_eq!(any, [false, true, true, true, true, true]);
        let alone = distinct.map(|features| features.rows_alone());
        assert_eq!(alone, [false, true, false, false, false, false]);
        assert!(!Features { rows: true, ..capped(30.0) }.rows_alone());
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
        let features = Features { rows: true, ..Features::NONE };
        let error = huge.features(features).build().unwrap_err();
        assert!(matches!(error, Error::Unsupported { need: Need::Values, .. }), "{error}");
        let large = Problem::builder(1 << 30, 1 << 29, 1).features(features);
        large.build().expect("bytes fit 63 bits, twice over");
    }

    #[test]
    fn a_row_asks_if_a_token_may_fare_otherwise() {
        use flash_sampling_kernels::transform::Penalties;

        let (plain, none) = (SamplingParams::new(1.0, 0, 0), TokenRules::default());
        let repeat = Penalties { repetition: 2.0, ..Penalties::NONE };
        let seen = [crate::SeenToken { token: 1, count: 1 }];
        let seen = TokenRules { seen: &seen, ..none };
        assert!(!row_asks(&plain, &none) && !row_asks(&plain, &seen));
        assert!(!row_asks(&plain.with_penalties(repeat), &none));
        assert!(row_asks(&plain.with_penalties(repeat), &seen));
        assert!(row_asks(&plain.with_top_k(5), &none));
        assert!(!row_asks(&SamplingParams::greedy().with_top_k(5), &none));
        for rules in [
            TokenRules { logit_bias: &[(1, 0.5)], ..none },
            TokenRules { bitmask: Some(&[1]), ..none },
            TokenRules { allow_list: Some(&[1]), ..none },
            TokenRules { ban_list: &[1], ..none },
        ] {
            assert!(row_asks(&SamplingParams::greedy(), &rules), "{rules:?}");
        }
    }
}
