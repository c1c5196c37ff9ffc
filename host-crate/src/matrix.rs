//! Borrowed matrices on the host.
#![forbid(unsafe_code)]

use flash_sampling_kernels::abi::Dtype;
use half::{bf16, f16};

pub(crate) use self::sealed::Elements;
use crate::error::{Error, LayoutRule, Operand};

/// A borrowed row-major matrix, its length checked against its shape.
#[derive(Clone, Copy, Debug)]
pub struct MatrixRef<'a> {
    elements: Elements<'a>,
    rows: usize,
    columns: usize,
    row_stride: usize,
}

impl<'a> MatrixRef<'a> {
    /// A matrix `[rows, columns]` without gaps.
    ///
    /// # Errors
    /// [`Error::Layout`] when `data` is shorter than the shape; `operand` is named in it.
    pub fn new<E: Element>(
        operand: Operand,
        data: &'a [E],
        rows: usize,
        columns: usize,
    ) -> Result<Self, Error> {
        Self::with_stride(operand, data, rows, columns, columns)
    }

    /// A matrix `[rows, columns]` whose rows begin `row_stride` elements apart.
    ///
    /// # Errors
    /// [`Error::Layout`] when `row_stride < columns`, or when `data` ends before the
    /// last row does; `operand` is named in it.
    pub fn with_stride<E: Element>(
        operand: Operand,
        data: &'a [E],
        rows: usize,
        columns: usize,
        row_stride: usize,
    ) -> Result<Self, Error> {
        if row_stride < columns {
            let rule = LayoutRule::RowStride(columns as u64);
            return Err(Error::Layout { operand, rule, found: row_stride as u64 });
        }
        let length = span(rows as u64, columns as u64, row_stride as u64);
        if length > data.len() as u128 {
            let rule = LayoutRule::Length(u64::try_from(length).unwrap_or(u64::MAX));
            return Err(Error::Layout { operand, rule, found: data.len() as u64 });
        }
        Ok(Self { elements: E::elements(data), rows, columns, row_stride })
    }

    /// Type of the elements.
    pub const fn dtype(&self) -> Dtype {
        match self.elements {
            Elements::Bf16(_) => Dtype::Bf16,
            Elements::F16(_) => Dtype::F16,
            Elements::F32(_) => Dtype::F32,
        }
    }

    /// Rows.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Elements from one row to the next.
    pub const fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// The elements, from `[0, 0]` on.
    pub(crate) const fn elements(&self) -> Elements<'a> {
        self.elements
    }

    /// Address of `[0, 0]`.
    pub(crate) const fn base_ptr(&self) -> *const u8 {
        match self.elements {
            Elements::Bf16(data) => data.as_ptr().cast(),
            Elements::F16(data) => data.as_ptr().cast(),
            Elements::F32(data) => data.as_ptr().cast(),
        }
    }
}

/// Elements from the first of the first row to the last of the last.
pub(crate) fn span(rows: u64, columns: u64, row_stride: u64) -> u128 {
    match rows {
        0 => 0,
        _ => u128::from(rows - 1) * u128::from(row_stride) + u128::from(columns),
    }
}

/// A type that a matrix can have: [`bf16`], [`f16`](struct@f16) or `f32`.
pub trait Element: sealed::Sealed {}

impl Element for bf16 {}
impl Element for f16 {}
impl Element for f32 {}

pub(crate) mod sealed {
    use super::{bf16, f16};

    /// A slice of one of the supported types.
    #[derive(Clone, Copy, Debug)]
    pub enum Elements<'a> {
        Bf16(&'a [bf16]),
        F16(&'a [f16]),
        F32(&'a [f32]),
    }

    /// Keeps [`Element`](super::Element) closed.
    pub trait Sealed: Sized {
        fn elements(data: &[Self]) -> Elements<'_>;
    }

    impl Sealed for bf16 {
        fn elements(data: &[Self]) -> Elements<'_> {
            Elements::Bf16(data)
        }
    }

    impl Sealed for f16 {
        fn elements(data: &[Self]) -> Elements<'_> {
            Elements::F16(data)
        }
    }

    impl Sealed for f32 {
        fn elements(data: &[Self]) -> Elements<'_> {
            Elements::F32(data)
        }
    }
}
