//! From a problem and a machine to one variant, with reasons. Pure.
#![forbid(unsafe_code)]

use std::fmt;

use flash_sampling_kernels::abi::kept::values_stride;
use flash_sampling_kernels::abi::{VARIANTS, Variant, n_tiles_v};
use flash_sampling_kernels::transform::LogitTransform;

use crate::cpu::CpuVariant;
use crate::error::{Error, Need, Unmet};
use crate::problem::{Features, Problem};
use crate::workspace::workspace_bytes;
use gpu::{grid, rank, unmet_by_gpu};

mod finish;
mod gpu;
mod log_sum_exp;
mod partials;

pub use finish::Finish;
pub use log_sum_exp::LogSumExp;
pub use partials::Partials;

/// What the planner has to know of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceLimits {
    /// Major · 10 + minor.
    pub compute_capability: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory that one block may ask for, by opting in.
    pub shared_bytes_per_block: u32,
    /// Shared memory of a multiprocessor.
    pub shared_bytes_per_sm: u32,
}

/// How a problem runs. Prints as a table that explains it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The variant that runs.
    pub variant: VariantId,
    /// Blocks on a GPU; vocabulary tiles on the CPU. 0 for B = 0.
    pub grid: u32,
    /// Dynamic shared memory of a block; 0 on the CPU.
    pub shared_bytes: u32,
    /// Scratch of the call; see [`workspace_bytes`].
    pub workspace_bytes: u64,
    /// Memory for the rows' values on a GPU: `B · V` f32 and little more, or twice that, if the
    /// problem has features. 0 on the CPU, which has its own.
    pub kept_bytes: u64,
    /// Whether the variant's kernel applies rules and penalties, and so is done with rows
    /// that have no filters: on a GPU, where no report needs all values, and it is not left to the
    /// next to apply a transform.
    pub applies_rules: bool,
    /// Whether the variant's kernel applies the problem's transform: on a GPU, in tiles of up to
    /// 64 rows, where there is one.
    pub applies_transform: bool,
    /// The kernel behind the variant's: on a GPU, where the problem has features, and not only
    /// rules that the variant's applies, or reports that the next is enough for.
    pub finish: Option<Finish>,
    /// The kernel behind these that finishes reports of log-sum-exps: on a GPU, where those and
    /// log-probabilities are all that is to be reported, and the variant's kernel sums up.
    pub log_sum_exp: Option<LogSumExp>,
    /// Sums of weights that the variant's kernel leaves for the other two: for reports, and for
    /// rows with filters that few of their values may serve.
    pub partials: Option<Partials>,
    /// Every other variant of the machine's kind, with why it does not run.
    pub refused: Vec<Refusal>,
}

/// Identifies a variant on either kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariantId {
    /// A variant on the CPU.
    Cpu(CpuVariant),
    /// A kernel in PTX.
    Gpu(&'static Variant),
}

impl VariantId {
    /// Stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu(variant) => variant.name(),
            Self::Gpu(variant) => variant.name,
        }
    }
}

/// A variant that does not run, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The variant.
    pub variant: VariantId,
    /// Why.
    pub reason: Reason,
}

/// Why a variant does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It could not.
    Unmet {
        /// What is missing.
        need: Need,
        /// The bound: a maximum or a minimum, as [`Need`] says.
        limit: u64,
        /// The problem's or the machine's value.
        found: u64,
    },
    /// It could, but the chosen one suits the problem better.
    NotPreferred,
    /// It could, but the caller asked for the chosen one.
    NotForced,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unmet { need, limit, found } => Unmet { need, limit, found }.fmt(f),
            Self::NotPreferred => f.write_str("eligible, but not preferred"),
            Self::NotForced => f.write_str("eligible, but another was asked for"),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "variant          {}", self.variant.name())?;
        if let VariantId::Gpu(variant) = self.variant {
            writeln!(f, "entry            {}", variant.entry)?;
            writeln!(f, "threads          {}", variant.threads)?;
        }
        writeln!(f, "grid             {}", self.grid)?;
        writeln!(f, "shared bytes     {}", self.shared_bytes)?;
        writeln!(f, "workspace bytes  {}", self.workspace_bytes)?;
        if self.applies_rules {
            writeln!(f, "rules            at once")?;
        }
        if self.applies_transform {
            writeln!(f, "transform        at once")?;
        }
        if let Some(finish) = &self.finish {
            finish.fmt(f)?;
        }
        if let Some(log_sum_exp) = &self.log_sum_exp {
            log_sum_exp.fmt(f)?;
        }
        if self.kept_bytes > 0 {
            writeln!(f, "kept bytes       {}", self.kept_bytes)?;
        }
        let names = self.refused.iter().map(|refusal| refusal.variant.name().len());
        let width = names.max().unwrap_or(0);
        for Refusal { variant, reason } in &self.refused {
            writeln!(f, "refused          {:width$}  {reason}", variant.name())?;
        }
        Ok(())
    }
}

impl Plan {
    /// The plan on a GPU: the eligible variant that suits the batch best, or the one
    /// named `forced`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if no variant is eligible, or the forced one is not.
    pub fn for_gpu(
        problem: &Problem,
        limits: &DeviceLimits,
        forced: Option<&str>,
    ) -> Result<Self, Error> {
        let refusal = |variant: &'static Variant| unmet_by_gpu(variant, problem, limits);
        let chosen = match forced {
            Some(name) => {
                VARIANTS.iter().find(|variant| variant.name == name).ok_or(Error::Unsupported {
                    need: Need::VariantName,
                    limit: VARIANTS.len() as u64,
                    found: 0,
                })?
            }
            None => VARIANTS
                .iter()
                .filter(|variant| refusal(variant).is_none())
                .min_by_key(|variant| rank(variant, problem))
                .unwrap_or(&VARIANTS[0]),
        };
        if let Some(Unmet { need, limit, found }) = refusal(chosen) {
            return Err(Error::Unsupported { need, limit, found });
        }
        let features = asked_of_rest(problem, chosen);
        let grid = grid(chosen, problem, limits);
        let sums_up = LogSumExp::serves(problem, chosen);
        let values_stay = sums_up || !features.of_all_rows();
        let applies_rules = chosen.applies_rules() && features.of_rows() && values_stay;
        let is_done = values_stay && !features.filters && (applies_rules || !features.of_rows());
        let keeps_values = features.any() && !is_done;
        let finish = keeps_values.then(|| Finish::new(problem, limits, applies_rules));
        let finish_bytes = finish.map_or(0, |finish| finish.kept_bytes);
        let partials = Partials::new(problem, chosen, grid, finish.as_ref());
        Ok(Self {
            variant: VariantId::Gpu(chosen),
            grid,
            shared_bytes: chosen.shared_bytes,
            workspace_bytes: workspace_bytes(problem),
            kept_bytes: partials.map_or(finish_bytes, |partials| partials.kept_bytes),
            applies_rules,
            applies_transform: chosen.applies_transform() && problem.features().transform.changes(),
            finish,
            log_sum_exp: sums_up.then(|| LogSumExp::new(problem)),
            partials,
            refused: refused(
                VARIANTS.iter().filter(|variant| variant.name != chosen.name),
                VariantId::Gpu,
                refusal,
                forced.is_some(),
            ),
        })
    }

    /// The plan on this CPU with the variant `chosen`, which is available.
    pub(crate) fn for_cpu(problem: &Problem, chosen: CpuVariant, forced: bool) -> Self {
        let grid = match problem.batch() {
            0 => 0,
            _ => n_tiles_v(problem.first_token(), problem.vocab()),
        };
        Self {
            variant: VariantId::Cpu(chosen),
            grid,
            shared_bytes: 0,
            workspace_bytes: workspace_bytes(problem),
            kept_bytes: 0,
            applies_rules: false,
            applies_transform: false,
            finish: None,
            log_sum_exp: None,
            partials: None,
            refused: refused(
                CpuVariant::ALL.into_iter().filter(|&variant| variant != chosen),
                VariantId::Cpu,
                CpuVariant::unmet,
                forced,
            ),
        }
    }
}

/// What is left of the problem's features for the kernels behind `variant`'s to see: not the
/// transform, if it applies that.
fn asked_of_rest(problem: &Problem, variant: &Variant) -> Features {
    let features = problem.features();
    let transform =
        if variant.applies_transform() { LogitTransform::NONE } else { features.transform };
    Features { transform, ..features }
}

/// The lines of a kernel behind the variant's.
fn fmt_behind(
    f: &mut fmt::Formatter<'_>,
    entry: &str,
    [threads, grid, shared_bytes]: [u32; 3],
) -> fmt::Result {
    writeln!(f, "then             {entry}")?;
    writeln!(f, "  threads        {threads}")?;
    writeln!(f, "  grid           {grid}")?;
    writeln!(f, "  shared bytes   {shared_bytes}")
}

/// Bytes of one copy of the values of all rows, a multiple of 16 like those of a row. `Problem`
/// has checked the product.
fn values_bytes(problem: &Problem) -> u64 {
    let values = u64::from(problem.batch()) * values_stride(problem.vocab());
    values * size_of::<f32>() as u64
}

/// The reasons against `others`, all but the chosen one.
fn refused<V: Copy>(
    others: impl Iterator<Item = V>,
    id: impl Fn(V) -> VariantId,
    unmet: impl Fn(V) -> Option<Unmet>,
    forced: bool,
) -> Vec<Refusal> {
    let reason = |variant| match unmet(variant) {
        Some(Unmet { need, limit, found }) => Reason::Unmet { need, limit, found },
        None if forced => Reason::NotForced,
        None => Reason::NotPreferred,
    };
    others.map(|variant| Refusal { variant: id(variant), reason: reason(variant) }).collect()
}

#[cfg(test)]
mod tests;
