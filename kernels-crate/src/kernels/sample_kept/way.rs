//! What is to be done for a row, and what it asks for: found once, for all who come to it.

use super::{features, is_drawn};
use crate::abi::kept::{KeptParams, RowFeatures};
use crate::abi::{n_tiles_v, sieve};
use crate::filters::Filters;
use crate::kernels::rules;
use crate::nucleus::{self, MOST_TILES};
use crate::shortlist;

/// Nothing, or a set of the bits below.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Way(u32);

impl Way {
    /// Nothing is to be done here.
    pub(super) const STANDS: Self = Self(0);
    /// It is finished from all of its values.
    pub(super) const ALL: Self = Self(1);
    /// It may be finished from few of them.
    const FEW: u32 = 1 << 1;
    /// It has filters: its tokens are drawn here.
    const FILTERED: u32 = 1 << 2;
    /// They are [`nucleus::Shares`] alone.
    const NUCLEUS: u32 = 1 << 3;
    /// They are others.
    const CUT: u32 = 1 << 6;
    /// Its tokens were drawn as if it had none, and its filters are these.
    const JUDGED: u32 = 1 << 7;
    /// Values in memory are not what its rules make of them.
    const RULED: u32 = 1 << 4;
    /// Filters compare values to how far they spread.
    const SPREAD: u32 = 1 << 5;

    /// That of a row. The same in all threads of a cluster.
    ///
    /// # Safety
    /// `row < B`; the module's preconditions.
    #[inline(always)]
    pub(super) unsafe fn of(params: &KeptParams, row: u32) -> Self {
        // SAFETY: the caller's promise.
        let (features, temperature) =
            unsafe { (features(params, row), params.sample.temperatures.add(row as usize).read()) };
        let reports = params.raw.any() | params.processed.any();
        let filters = Filters::new(&features, temperature).any();
        if params.sample.applies_rules == 0 {
            if !reports & is_drawn(params, &features, temperature) {
                return Self::STANDS;
            }
        } else {
            let has_lists = !params.sample.listed.is_null();
            let is_listed = has_lists && shortlist::serves(&features, temperature);
            if is_listed | !filters {
                return Self::STANDS;
            }
        }
        if !(nucleus::may_serve(&features, temperature) & sums_suffice(params, filters)) {
            return Self::ALL;
        }
        let bit = |is: bool, bit| if is { bit } else { 0 };
        let is_nucleus = nucleus::serves(&features, temperature);
        Self(
            Self::FEW
                | bit(filters, Self::FILTERED)
                | bit(is_nucleus, Self::NUCLEUS)
                | bit(is_nucleus & is_judged(params, &features), Self::JUDGED)
                | bit(filters & !is_nucleus, Self::CUT)
                | bit(rules::any(&features), Self::RULED)
                | bit(filters & (features.top_n_sigma > 0.0), Self::SPREAD),
        )
    }

    /// Whether it has any of these bits.
    #[inline(always)]
    fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }

    #[inline(always)]
    pub(super) fn is_few(self) -> bool {
        self.has(Self::FEW)
    }

    #[inline(always)]
    pub(super) fn is_filtered(self) -> bool {
        self.has(Self::FILTERED)
    }

    #[inline(always)]
    pub(super) fn is_nucleus(self) -> bool {
        self.has(Self::NUCLEUS)
    }

    #[inline(always)]
    pub(super) fn is_judged(self) -> bool {
        self.has(Self::JUDGED)
    }

    #[inline(always)]
    pub(super) fn is_ruled(self) -> bool {
        self.has(Self::RULED)
    }

    #[inline(always)]
    pub(super) fn is_spread(self) -> bool {
        self.has(Self::SPREAD)
    }

    /// Whether the row's values are looked at after its rules.
    #[inline(always)]
    pub(super) fn needs_marks(self) -> bool {
        self.has(Self::RULED | Self::SPREAD)
    }

    /// Whether it is finished from few values that no rule changes, with no filters but top_p.
    #[inline(always)]
    pub(super) fn is_plain(self) -> bool {
        !self.has(Self::CUT | Self::RULED | Self::SPREAD)
    }

    /// All bits of both.
    #[inline(always)]
    pub(super) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Whether the sampling kernel has drawn from all tokens of a row that is not listed.
#[inline(always)]
pub(super) fn is_judged(params: &KeptParams, features: &RowFeatures) -> bool {
    (params.sample.judges != 0) & !rules::any(features)
}

/// Whether the sums that there are do for a row, with filters or without, and for what is to be
/// reported of it.
#[inline(always)]
fn sums_suffice(params: &KeptParams, filters: bool) -> bool {
    let KeptParams { sample, raw, processed, .. } = params;
    let [has_model, has_row] = sample.partials.map(|partials| !partials.is_null());
    let needs_row = filters | processed.any();
    let sieves = sample.n_partials / sieve::WARPS;
    let are_accurate = n_tiles_v(sample.first_token, sample.vocab) <= sieves * MOST_TILES;
    (has_row | !needs_row) & (has_model | !raw.any()) & are_accurate
}
