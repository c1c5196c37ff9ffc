//! What a kernel reports beside a token.

/// A set of status bits, one set per row and draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Status(u32);

impl Status {
    /// Nothing to report.
    pub const OK: Self = Self(0);
    /// The row has no admissible token; its token is [`crate::abi::NO_TOKEN`].
    pub const NO_CANDIDATE: Self = Self(1);
    /// A logit was NaN and counted as `−inf`.
    pub const NAN_SEEN: Self = Self(1 << 1);
    /// A logit was `+inf`; the lowest such id wins.
    pub const INF_SEEN: Self = Self(1 << 2);

    /// Adds the bits of `other`.
    #[inline(always)]
    pub const fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Whether all bits of `other` are set.
    #[inline(always)]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits, as kernels store them.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The set with these bits.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}
