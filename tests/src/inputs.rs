//! Matrices, heads and cases: what a sampler is asked.
//!
//! *Exact* inputs are small integers: with `|x| ≤ 8` every partial sum of a dot
//! product is an integer below 2²⁴ for any D below 262,144, so it is exact in f32 in
//! any order, and all implementations must agree in every bit. Each element is a hash
//! of its matrix, row and column, so that no swapped index can cancel.

use std::sync::Arc;

use flash_sampling::{Dtype, Inputs, LogitTransform, MatrixRef, Operand, SamplingParams};
use flash_sampling::{TokenRules, Wanted, bf16, f16};
use rand::{RngExt, SeedableRng, rngs::StdRng};

mod lists;
pub mod mixes;
mod rules;

pub use lists::Lists;
pub use rules::Rules;

/// Largest size of an exact input.
pub const LARGEST_INTEGER: i64 = 8;

/// What the vocabulary's matrix is filled from.
pub const WEIGHTS: u64 = 1;
/// What the rows' matrix is filled from.
pub const HIDDEN_STATES: u64 = 2;
/// What the bias is filled from.
pub const BIAS: u64 = 3;

/// The integer at `[row, column]` of the matrix `matrix`, in −8 … 8.
pub fn small_integer(matrix: u64, row: usize, column: usize) -> f32 {
    let mixed =
        [matrix, row as u64, column as u64].into_iter().fold(0, |state, part| mix(state ^ part));
    let spread = 2 * LARGEST_INTEGER + 1;
    ((((mixed >> 32) as i64 * spread) >> 32) - LARGEST_INTEGER) as f32
}

/// SplitMix64's step: an increment by the golden ratio, then a bijection.
fn mix(state: u64) -> u64 {
    let mut x = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// Elements of one of the three types.
#[derive(Clone, Debug)]
enum Elements {
    Bf16(Vec<bf16>),
    F16(Vec<f16>),
    F32(Vec<f32>),
}

/// A row-major matrix. What lies between the rows is NaN: who reads it shows it.
#[derive(Clone, Debug)]
pub struct Matrix {
    elements: Elements,
    rows: usize,
    columns: usize,
    row_stride: usize,
}

impl Matrix {
    /// `[rows, columns]`, each element rounded to `dtype`.
    pub fn from_fn(
        dtype: Dtype,
        rows: usize,
        columns: usize,
        value: impl Fn(usize, usize) -> f32,
    ) -> Self {
        Self::strided(dtype, rows, columns, columns, value)
    }

    /// As [`Self::from_fn`], a row each `row_stride` elements.
    pub fn strided(
        dtype: Dtype,
        rows: usize,
        columns: usize,
        row_stride: usize,
        value: impl Fn(usize, usize) -> f32,
    ) -> Self {
        assert!(row_stride >= columns);
        let at = |i: usize| {
            let (row, column) = (i / row_stride, i % row_stride);
            if column < columns { value(row, column) } else { f32::NAN }
        };
        let all = 0..rows * row_stride;
        let elements = match dtype {
            Dtype::Bf16 => Elements::Bf16(all.map(|i| bf16::from_f32(at(i))).collect()),
            Dtype::F16 => Elements::F16(all.map(|i| f16::from_f32(at(i))).collect()),
            Dtype::F32 => Elements::F32(all.map(at).collect()),
        };
        Self { elements, rows, columns, row_stride }
    }

    /// Small integers of the matrix `matrix`.
    pub fn integers(matrix: u64, dtype: Dtype, rows: usize, columns: usize) -> Self {
        Self::from_fn(dtype, rows, columns, |row, column| small_integer(matrix, row, column))
    }

    /// Uniform in `[−scale, scale)`.
    pub fn random(seed: u64, dtype: Dtype, rows: usize, columns: usize, scale: f32) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let values: Vec<f32> =
            (0..rows * columns).map(|_| rng.random_range(-scale..scale)).collect();
        Self::from_fn(dtype, rows, columns, |row, column| values[row * columns + column])
    }

    /// These rows, in this order.
    pub fn gather(&self, rows: &[usize]) -> Self {
        Self::strided(self.dtype(), rows.len(), self.columns, self.row_stride, |row, column| {
            self.get(rows[row], column)
        })
    }

    /// The element at `[row, column]`.
    pub fn get(&self, row: usize, column: usize) -> f32 {
        let at = row * self.row_stride + column;
        match &self.elements {
            Elements::Bf16(data) => data[at].to_f32(),
            Elements::F16(data) => data[at].to_f32(),
            Elements::F32(data) => data[at],
        }
    }

    /// The bytes of all rows, `row_stride` elements apart: what lies between is NaN.
    pub fn to_bytes(&self, row_stride: usize) -> Vec<u8> {
        fn bytes<E: Copy, const N: usize>(
            rows: std::slice::Chunks<'_, E>,
            (columns, gap, gaps): (usize, E, usize),
            bytes_of: impl Fn(E) -> [u8; N],
        ) -> Vec<u8> {
            let gaps = vec![gap; gaps];
            rows.flat_map(|row| row[..columns].iter().chain(&gaps))
                .flat_map(|&x| bytes_of(x))
                .collect()
        }
        let (columns, gaps) = (self.columns, row_stride - self.columns);
        match &self.elements {
            Elements::Bf16(data) => {
                bytes(data.chunks(self.row_stride), (columns, bf16::NAN, gaps), bf16::to_ne_bytes)
            }
            Elements::F16(data) => {
                bytes(data.chunks(self.row_stride), (columns, f16::NAN, gaps), f16::to_ne_bytes)
            }
            Elements::F32(data) => {
                bytes(data.chunks(self.row_stride), (columns, f32::NAN, gaps), f32::to_ne_bytes)
            }
        }
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        match self.elements {
            Elements::Bf16(_) => Dtype::Bf16,
            Elements::F16(_) => Dtype::F16,
            Elements::F32(_) => Dtype::F32,
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Elements from one row to the next.
    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// The library's view of rows `from..to`.
    pub fn view(&self, operand: Operand, from: usize, to: usize) -> MatrixRef<'_> {
        let span = from * self.row_stride..to * self.row_stride;
        let (rows, columns, stride) = (to - from, self.columns, self.row_stride);
        match &self.elements {
            Elements::Bf16(data) => {
                MatrixRef::with_stride(operand, &data[span], rows, columns, stride)
            }
            Elements::F16(data) => {
                MatrixRef::with_stride(operand, &data[span], rows, columns, stride)
            }
            Elements::F32(data) => {
                MatrixRef::with_stride(operand, &data[span], rows, columns, stride)
            }
        }
        .expect("a matrix of the tests is well formed")
    }
}

/// The vocabulary's side of a problem, or a shard of it.
#[derive(Clone, Debug)]
pub struct Head {
    /// `[V_rows, D]`.
    pub weights: Matrix,
    /// `[V_valid]`.
    pub bias: Option<Vec<f32>>,
    /// Rows of the weights that are tokens.
    pub vocab_valid: usize,
    /// Global id of the first.
    pub first_token: u32,
}

impl Head {
    /// Every row of `weights` a token, without bias, from id 0.
    pub fn new(weights: Matrix) -> Self {
        let vocab_valid = weights.rows();
        Self { weights, bias: None, vocab_valid, first_token: 0 }
    }

    /// Tokens whose logits are these, for a hidden state of any finite values.
    pub fn of_logits(logits: Vec<f32>) -> Self {
        let weights = Matrix::from_fn(Dtype::Bf16, logits.len(), 1, |_, _| 0.0);
        Self::new(weights).with_bias(logits)
    }

    /// With a bias for each token.
    pub fn with_bias(mut self, bias: Vec<f32>) -> Self {
        assert_eq!(bias.len(), self.vocab_valid);
        self.bias = Some(bias);
        self
    }

    /// The shard of tokens `from..to`.
    pub fn shard(&self, from: usize, to: usize) -> Self {
        let rows: Vec<usize> = (from..to).collect();
        Self {
            weights: self.weights.gather(&rows),
            bias: self.bias.as_ref().map(|bias| bias[from..to].to_vec()),
            vocab_valid: to - from,
            first_token: self.first_token + from as u32,
        }
    }
}

/// One call.
#[derive(Clone, Debug)]
pub struct Case {
    /// What a failure calls it.
    pub name: String,
    /// Shared by the cases that differ in their rows alone.
    pub head: Arc<Head>,
    /// `[B, D]`.
    pub hidden_states: Matrix,
    /// `[B]`.
    pub rows: Vec<SamplingParams>,
    /// `[B]`, or empty.
    pub rules: Vec<Rules>,
    /// What the model does to every logit.
    pub transform: LogitTransform,
    /// What to report of the model's distribution.
    pub raw: Wanted,
    /// What to report of each row's.
    pub processed: Wanted,
    /// S.
    pub draws: u32,
    /// Whether every dot product is exact in f32 in any order, so that all
    /// implementations must agree in every bit.
    pub exact: bool,
}

impl Case {
    /// One draw a row, exact.
    pub fn new(
        name: impl Into<String>,
        head: &Arc<Head>,
        hidden_states: Matrix,
        rows: Vec<SamplingParams>,
    ) -> Self {
        assert_eq!(hidden_states.rows(), rows.len());
        Self {
            name: name.into(),
            head: Arc::clone(head),
            hidden_states,
            rows,
            rules: Vec::new(),
            transform: LogitTransform::NONE,
            raw: Wanted::NONE,
            processed: Wanted::NONE,
            draws: 1,
            exact: true,
        }
    }

    /// With `draws` a row.
    pub fn with_draws(mut self, draws: u32) -> Self {
        self.draws = draws;
        self
    }

    /// With rules for each row.
    pub fn with_rules(mut self, rules: Vec<Rules>) -> Self {
        assert_eq!(rules.len(), self.batch());
        self.rules = rules;
        self
    }

    /// With a transform of every logit.
    pub fn with_transform(mut self, transform: LogitTransform) -> Self {
        self.transform = transform;
        self
    }

    /// With these reports.
    pub fn with_reports(mut self, raw: Wanted, processed: Wanted) -> Self {
        (self.raw, self.processed) = (raw, processed);
        self
    }

    /// With sums that depend on their order.
    pub fn inexact(mut self) -> Self {
        self.exact = false;
        self
    }

    /// The same case with only these rows, in this order.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self {
            hidden_states: self.hidden_states.gather(rows),
            rows: rows.iter().map(|&row| self.rows[row]).collect(),
            rules: match self.rules[..] {
                [] => Vec::new(),
                _ => rows.iter().map(|&row| self.rules[row].clone()).collect(),
            },
            ..self.clone()
        }
    }

    /// B.
    pub fn batch(&self) -> usize {
        self.rows.len()
    }

    /// The library's view of the rules.
    pub fn token_rules(&self) -> Vec<TokenRules<'_>> {
        self.rules.iter().map(Rules::view).collect()
    }

    /// The library's view of all but the rules.
    pub fn inputs(&self) -> Inputs<'_> {
        let head = &*self.head;
        let weights = head.weights.view(Operand::Weights, 0, head.weights.rows());
        let hidden_states = self.hidden_states.view(Operand::HiddenStates, 0, self.batch());
        let mut inputs = Inputs::new(hidden_states, weights)
            .with_vocab_valid(head.vocab_valid as u64)
            .with_first_token(u64::from(head.first_token))
            .with_transform(self.transform);
        if let Some(bias) = &head.bias {
            inputs = inputs.with_bias(bias);
        }
        inputs
    }
}

/// A row's parameters from `(temperature, seed, position)`.
pub fn params(temperature: f32, seed: u64, position: u64) -> SamplingParams {
    SamplingParams::new(temperature, seed, position)
}

/// Rows with seeds and positions of their own and temperatures taken in turn.
pub fn rows_of(batch: usize, temperatures: &[f32]) -> Vec<SamplingParams> {
    (0..batch)
        .map(|row| {
            let temperature = temperatures[row % temperatures.len()];
            params(temperature, mix(row as u64), 1_000 + 3 * row as u64)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_take_every_value_and_no_row_repeats() {
        let rows: Vec<Vec<i64>> = (0..1000)
            .map(|row| (0..64).map(|column| small_integer(WEIGHTS, row, column) as i64).collect())
            .collect();
        for value in -LARGEST_INTEGER..=LARGEST_INTEGER {
            assert!(rows.iter().flatten().any(|&x| x == value));
        }
        assert!(rows.iter().flatten().all(|x| x.abs() <= LARGEST_INTEGER));
        let distinct: std::collections::HashSet<_> = rows.iter().collect();
        assert_eq!(distinct.len(), rows.len());
    }

    #[test]
    fn what_lies_between_rows_is_nan() {
        let matrix = Matrix::strided(Dtype::Bf16, 2, 3, 5, |row, column| (row * 3 + column) as f32);
        let Elements::Bf16(data) = &matrix.elements else { unreachable!() };
        assert_eq!(data.iter().filter(|x| x.is_nan()).count(), 4);
        assert_eq!(matrix.gather(&[1]).get(0, 2), 5.0);
    }
}
