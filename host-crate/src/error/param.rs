//! Parameters of rows and calls, and the values they may have.

use std::fmt;

/// What an id in a row's list must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenRule {
    /// From the first to before the second.
    Within(u32, u32),
    /// Above the id before it in the list.
    Above(u32),
}

impl fmt::Display for TokenRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Within(begin, end) => write!(f, "in {begin}..{end}"),
            Self::Above(last) => write!(f, "above {last}"),
        }
    }
}

/// A parameter of a row or of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Param {
    /// Temperature of a row.
    Temperature,
    /// Tokens that a row keeps.
    TopK,
    /// Probability that a row keeps.
    TopP,
    /// Share of the highest probability that a row keeps.
    MinP,
    /// Deviations below the highest value that a row keeps.
    TopNSigma,
    /// Probability of a token that a row keeps.
    EpsilonCutoff,
    /// The same where the row's entropy does not lower it.
    EtaCutoff,
    /// Repetition penalty of a row.
    Repetition,
    /// Frequency penalty of a row.
    Frequency,
    /// Presence penalty of a row.
    Presence,
    /// Tokens that a row has seen.
    Seen,
    /// Biases of a row's tokens.
    LogitBias,
    /// Words of the mask of a row.
    Bitmask,
    /// Tokens that a row admits.
    AllowList,
    /// Tokens that a row does not admit.
    BanList,
    /// Draws of every row.
    Draws,
    /// Cap of every logit.
    Softcap,
    /// Scale of every logit.
    LogitScale,
    /// Tokens that a report lists.
    Best,
    /// Threads of a CPU sampler.
    Threads,
}

impl Param {
    /// The accepted values, in words.
    pub const fn domain(self) -> &'static str {
        match self {
            Self::Temperature => "finite and at least 0",
            Self::TopK | Self::Draws | Self::Threads => "at least 1",
            Self::TopP => "above 0 and at most 1",
            Self::MinP | Self::EpsilonCutoff | Self::EtaCutoff => "at least 0 and at most 1",
            Self::TopNSigma | Self::Repetition | Self::Softcap | Self::LogitScale => {
                "finite and above 0"
            }
            Self::Frequency | Self::Presence => "finite",
            Self::LogitBias => "finite or -inf",
            Self::Seen | Self::AllowList | Self::BanList => "distinct ids in ascending order",
            Self::Bitmask => "a bit for each token",
            Self::Best => "at most 20",
        }
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Temperature => "temperature",
            Self::TopK => "top_k",
            Self::TopP => "top_p",
            Self::MinP => "min_p",
            Self::TopNSigma => "top_n_sigma",
            Self::EpsilonCutoff => "epsilon_cutoff",
            Self::EtaCutoff => "eta_cutoff",
            Self::Repetition => "repetition",
            Self::Frequency => "frequency",
            Self::Presence => "presence",
            Self::Seen => "seen",
            Self::LogitBias => "logit_bias",
            Self::Bitmask => "bitmask",
            Self::AllowList => "allow_list",
            Self::BanList => "ban_list",
            Self::Draws => "draws",
            Self::Softcap => "softcap",
            Self::LogitScale => "logit_scale",
            Self::Best => "best",
            Self::Threads => "threads",
        })
    }
}
