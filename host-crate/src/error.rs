//! What can go wrong, as values: an engine fixes what is invalid and falls back on
//! another path for what is unsupported.

use std::fmt;

use flash_sampling_kernels::abi::Dtype;
use thiserror::Error;

use crate::params::engines::Engine;

mod cuda;
mod operand;
mod param;
pub use cuda::{Call, CudaFailure};
pub use operand::{Operand, ReportPart};
pub use param::{Param, TokenRule};

/// Everything this crate refuses or fails with.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// An operand does not have the size the problem says.
    #[error("{operand} axis {axis}: expected {expected}, found {found}")]
    Shape {
        /// The operand.
        operand: Operand,
        /// Which of its axes.
        axis: Axis,
        /// The size it must have.
        expected: Size,
        /// The size it has.
        found: u64,
    },
    /// A pointer or stride breaks a layout rule.
    #[error("{operand} {rule}, found {found}")]
    Layout {
        /// The operand.
        operand: Operand,
        /// The rule, with its bound.
        rule: LayoutRule,
        /// What was found in its place.
        found: u64,
    },
    /// A sampling parameter is outside its domain.
    #[error("{}{param}: expected {}, found {found}", RowPrefix(*.row), .param.domain())]
    Param {
        /// The batch row, or `None` for a parameter of the whole call.
        row: Option<u32>,
        /// The parameter.
        param: Param,
        /// Its value.
        found: f64,
    },
    /// A parameter is valid here, but not where the request comes from.
    #[error("{engine} {param}: expected {expected}, found {found}")]
    EngineParam {
        /// Whose request it is.
        engine: Engine,
        /// The parameter.
        param: Param,
        /// The values that it takes, in words.
        expected: &'static str,
        /// The value.
        found: f64,
    },
    /// A list of a row is too short.
    #[error("row {row} {param} length: expected at least {expected}, found {found}")]
    ParamLength {
        /// The batch row.
        row: u32,
        /// The list.
        param: Param,
        /// The length it must have.
        expected: u64,
        /// The length it has.
        found: u64,
    },
    /// A row names a token that it may not name there.
    #[error("row {row} {param}: expected an id {rule}, found {found}")]
    Token {
        /// The batch row.
        row: u32,
        /// The list.
        param: Param,
        /// What the id breaks.
        rule: TokenRule,
        /// The id.
        found: u32,
    },
    /// The problem is valid, but nothing here can run it.
    #[error("unsupported: {}", Unmet { need: *.need, limit: *.limit, found: *.found })]
    Unsupported {
        /// What is missing.
        need: Need,
        /// The bound: a maximum or a minimum, as [`Need`] says.
        limit: u64,
        /// The problem's or the machine's value.
        found: u64,
    },
    /// The caller's scratch is too small.
    #[error("workspace: expected at least {required} bytes, found {provided}")]
    Workspace {
        /// Bytes that the plan needs.
        required: usize,
        /// Bytes that the caller gave.
        provided: usize,
    },
    /// The driver refused.
    #[error("{0}")]
    Cuda(CudaFailure),
}

/// An axis of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Axis {
    /// Batch rows.
    B,
    /// Rows of the weights.
    V,
    /// Rows of the weights that are tokens.
    VValid,
    /// The reduction axis.
    D,
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::B => "B",
            Self::V => "V",
            Self::VValid => "V_valid",
            Self::D => "D",
        })
    }
}

/// The size that an axis must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Size {
    /// This and no other.
    Exactly(u64),
    /// This or more.
    AtLeast(u64),
    /// This or less.
    AtMost(u64),
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(size) => write!(f, "{size}"),
            Self::AtLeast(size) => write!(f, "at least {size}"),
            Self::AtMost(size) => write!(f, "at most {size}"),
        }
    }
}

/// A rule of the layout of an operand in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LayoutRule {
    /// Elements from one row to the next: no fewer than the columns.
    RowStride(u64),
    /// Elements that the shape and its stride reach over.
    Length(u64),
    /// Bytes that the shape and its stride reach over: no more than can be addressed.
    Span(u64),
    /// The base address is a multiple of this many bytes; `found` is the address.
    Alignment(u64),
    /// The base address is not null.
    NotNull,
    /// Bytes at the address: no fewer than the problem needs.
    Bytes(u64),
}

impl fmt::Display for LayoutRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RowStride(n) => write!(f, "row stride: expected at least {n}"),
            Self::Length(n) => write!(f, "length: expected at least {n}"),
            Self::Span(n) => write!(f, "bytes spanned: expected at most {n}"),
            Self::Alignment(n) => write!(f, "address: expected a multiple of {n}"),
            Self::NotNull => f.write_str("address: expected not null"),
            Self::Bytes(n) => write!(f, "bytes: expected at least {n}"),
        }
    }
}

struct RowPrefix(Option<u32>);

impl fmt::Display for RowPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |row| write!(f, "row {row} "))
    }
}

/// What a valid problem needs and this build or machine may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Need {
    /// Batch rows, at most.
    Batch,
    /// Hidden elements, at most.
    Hidden,
    /// Draws, at most.
    Draws,
    /// `first_token + V_valid`, at most.
    TokenIds,
    /// `B · S`, at most.
    Outputs,
    /// `B · V` where values are kept, at most.
    Values,
    /// Bytes of host memory; `found` were asked for in one allocation.
    HostMemory,
    /// Threads that the system would start.
    Threads,
    /// Compute capability, major · 10 + minor, at least.
    ComputeCapability,
    /// Compute capability, major · 10 + minor, no other.
    ExactComputeCapability,
    /// Shared memory of a block in bytes, at least.
    SharedBytes,
    /// Rows of a matrix, for the copy engine, at most.
    Rows,
    /// Bytes of a row stride, for the copy engine, at most.
    RowStrideBytes,
    /// Alignment of base addresses in bytes, at least.
    BaseAlignment,
    /// Alignment of the weights' row stride in bytes, at least.
    WeightsStrideAlignment,
    /// Alignment of the hidden states' row stride in bytes, at least.
    HiddenStrideAlignment,
    /// The weights' [`Dtype`].
    WeightsDtype,
    /// The hidden states' [`Dtype`].
    HiddenDtype,
    /// Instructions of the CPU: AVX2, FMA and F16C.
    Avx2,
    /// Instructions of the CPU: AVX-512 F, BW, CD, DQ and VL.
    Avx512,
    /// A variant of the given name; `limit` is how many there are.
    VariantName,
    /// A build with the feature `cuda`.
    CudaFeature,
    /// A CUDA device of that ordinal.
    CudaDevice,
    /// A function of the CUDA driver, as the version that has it, at least.
    DriverVersion,
}

/// A [`Need`] that is not met, for printing.
pub(crate) struct Unmet {
    pub(crate) need: Need,
    pub(crate) limit: u64,
    pub(crate) found: u64,
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { need, limit, found } = *self;
        let (name, bound) = match need {
            Need::Batch => ("axis B", "at most"),
            Need::Hidden => ("axis D", "at most"),
            Need::Draws => ("axis S", "at most"),
            Need::TokenIds => ("first_token + V_valid", "at most"),
            Need::Outputs => ("B · S", "at most"),
            Need::Values => ("B · V with features", "at most"),
            Need::HostMemory => {
                return write!(f, "cannot allocate {found} bytes of host memory");
            }
            Need::Threads => ("threads", "at most"),
            Need::ComputeCapability => ("compute capability", "at least"),
            Need::ExactComputeCapability => ("compute capability", "exactly"),
            Need::Rows => ("rows of a matrix", "at most"),
            Need::RowStrideBytes => ("bytes of a row stride", "at most"),
            Need::SharedBytes => ("shared bytes of a block", "at least"),
            Need::BaseAlignment => ("alignment of base addresses", "at least"),
            Need::WeightsStrideAlignment => ("alignment of the weights row stride", "at least"),
            Need::HiddenStrideAlignment => {
                ("alignment of the hidden_states row stride", "at least")
            }
            Need::DriverVersion => ("driver version", "at least"),
            Need::WeightsDtype | Need::HiddenDtype => {
                let operand = if need == Need::WeightsDtype { "weights" } else { "hidden_states" };
                let (limit, found) = (dtype_name(limit), dtype_name(found));
                return write!(f, "{operand} dtype: expected {limit}, found {found}");
            }
            Need::Avx2 => return f.write_str("this CPU lacks AVX2, FMA or F16C"),
            Need::Avx512 => return f.write_str("this CPU lacks AVX-512 F, BW, CD, DQ or VL"),
            Need::VariantName => return write!(f, "none of the {limit} variants has that name"),
            Need::CudaFeature => return f.write_str("built without the feature cuda"),
            Need::CudaDevice => {
                return write!(f, "CUDA device {found}: this machine has {limit} devices");
            }
        };
        write!(f, "{name}: expected {bound} {limit}, found {found}")
    }
}

fn dtype_name(code: u64) -> &'static str {
    [Dtype::Bf16, Dtype::F16, Dtype::F32]
        .into_iter()
        .find(|&dtype| dtype as u64 == code)
        .map_or("unknown", Dtype::name)
}
