//! One vocabulary tile on one thread: dot products, then candidates, by the same
//! [`score`](flash_sampling_kernels::score) and
//! [`candidate`](flash_sampling_kernels::candidate) as every kernel.

use flash_sampling_kernels::abi::TILE_V;
use flash_sampling_kernels::candidate::Leaders;
use flash_sampling_kernels::gumbel::{Hint, NOISE_MAX};
use flash_sampling_kernels::philox::{GROUP, PAIR_BIT, Subkey};
use flash_sampling_kernels::score::{RowParams, offer_pair, stays_below, token_value};
use flash_sampling_kernels::status::Status;

use super::dot::dots;
use super::edits::edit;
use super::kept::Kept;
use super::lanes::{Chunk, LANES, Lanes, Widen};
use crate::inputs::Inputs;
use crate::params::SamplingParams;
use crate::problem::Problem;

pub(super) const TILE_V_LEN: usize = TILE_V as usize;

/// What the threads of a call share.
pub(super) struct Call<'a, E> {
    pub(super) problem: &'a Problem,
    /// `[V_rows, D]`, with the problem's stride.
    pub(super) weights: &'a [E],
    /// `[B, ⌈D / 16⌉]`, zero beyond D.
    pub(super) hidden_states: &'a [Chunk],
    /// Bias, transform and rules.
    pub(super) inputs: &'a Inputs<'a>,
    /// `[B]`.
    pub(super) rows: &'a [SamplingParams],
    /// `[B]`: where in `kept` a row's values go, if they outlive their tiles.
    pub(super) slots: &'a [Option<u32>],
    /// Memory for such rows.
    pub(super) kept: &'a [Kept],
    /// Whether banned tokens have to be multiplied, too.
    pub(super) wants_raw: bool,
}

impl<E> Call<'_, E> {
    /// Memory for the values of a row that outlive their tiles.
    #[inline(always)]
    fn kept(&self, row: usize) -> Option<&Kept> {
        self.slots[row].map(|slot| &self.kept[slot as usize])
    }
}

/// What one thread has found so far.
#[derive(Debug, Default)]
pub(super) struct Worker {
    /// `[B, S]`.
    pub(super) leaders: Vec<Leaders>,
    /// `[B]`.
    pub(super) status: Vec<Status>,
}

/// Samples a tile: `MANY` batch rows at a time against `R` weight rows at a time, and
/// what is left of the batch by `FEW` or alone, against single ones.
///
/// # Safety
/// The caller enables the instructions of `L`; the call's slices have the problem's sizes.
#[inline(always)]
pub(super) unsafe fn sample_tile<L, E, const R: usize, const FEW: usize, const MANY: usize>(
    call: &Call<'_, E>,
    tile: u32,
    worker: &mut Worker,
) where
    L: Lanes,
    E: Widen,
{
    let batch = call.rows.len();
    let mut row = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while row < batch {
            let left = batch - row;
            if left == 1 {
                sample_rows::<L, E, 1, 1>(call, tile, row, worker);
                row += 1;
            } else if left <= FEW {
                sample_rows::<L, E, 1, FEW>(call, tile, row, worker);
                row += FEW;
            } else {
                sample_rows::<L, E, R, MANY>(call, tile, row, worker);
                row += MANY;
            }
        }
    }
}

/// Samples batch rows `row .. row + C`, as far as there are so many.
#[inline(always)]
unsafe fn sample_rows<L: Lanes, E: Widen, const R: usize, const C: usize>(
    call: &Call<'_, E>,
    tile: u32,
    row: usize,
    worker: &mut Worker,
) {
    let span = Span::new(call.problem, tile);
    let mut values = [[f32::NEG_INFINITY; TILE_V_LEN]; C];
    let rows = row..call.rows.len().min(row + C);
    if call.wants_raw || rows.clone().any(|row| admits(call, &span, row)) {
        // SAFETY: the caller's promise.
        unsafe { multiply_tile::<L, E, R, C>(call, &span, row, &mut values) };
    }
    let draws = call.problem.draws() as usize;
    for (row, values) in rows.zip(&mut values) {
        if let Some(bias) = call.inputs.bias {
            let bias = &bias[span.weights_row..];
            for (value, bias) in values[span.from..span.to].iter_mut().zip(bias) {
                *value += bias;
            }
        }
        edit_row(call, &span, row, values);
        if any_special(values) {
            let status = &mut worker.status[row];
            for value in &mut values[span.from..span.to] {
                *value = token_value(*value, 0.0, status);
            }
        }
        if let Some(kept) = call.kept(row) {
            let values = values[span.from..span.to].iter().copied();
            // SAFETY: this thread alone has this tile.
            unsafe { kept.values.write(span.weights_row, values) };
        } else {
            let leaders = &mut worker.leaders[row * draws..][..draws];
            offer_row(values, &span, call.rows[row].row_params(), leaders);
        }
    }
}

/// From logits to values, but for what is special.
#[inline(always)]
fn edit_row<E>(call: &Call<'_, E>, span: &Span, row: usize, values: &mut [f32; TILE_V_LEN]) {
    let tokens = &mut values[span.from..span.to];
    let transform = call.inputs.transform;
    if transform.changes() {
        // Not that it were rare: but what the loop keeps in registers shall cost plain rows
        // nothing.
        std::hint::cold_path();
        for value in tokens.iter_mut() {
            *value = transform.apply(*value);
        }
    }
    if let Some(kept) = call.kept(row) {
        let raw = tokens.iter().map(|&x| if x.is_nan() { f32::NEG_INFINITY } else { x });
        // SAFETY: this thread alone has this tile.
        unsafe { kept.raw.write(span.weights_row, raw) };
    }
    if let Some(rules) = call.inputs.token_rules.get(row) {
        edit(tokens, span.first_token + span.from as u32, rules, &call.rows[row]);
    }
}

/// Whether a row admits any token of a tile.
#[inline(always)]
fn admits<E>(call: &Call<'_, E>, span: &Span, row: usize) -> bool {
    let begin = span.first_token + span.from as u32;
    let end = begin + (span.to - span.from) as u32;
    call.inputs.token_rules.get(row).is_none_or(|rules| rules.admit_any(begin, end))
}

/// The tokens of a tile that the call has.
pub(super) struct Span {
    /// Global id of the tile's first token, a multiple of `TILE_V`.
    first_token: u32,
    /// Offsets in the tile of the first token and of the end.
    pub(super) from: usize,
    pub(super) to: usize,
    /// Row of the weights that holds the token at `from`.
    pub(super) weights_row: usize,
}

impl Span {
    #[inline(always)]
    pub(super) fn new(problem: &Problem, tile: u32) -> Self {
        let first_token = (problem.first_token() / TILE_V + tile) * TILE_V;
        let from = problem.first_token().saturating_sub(first_token);
        let weights_row = first_token + from - problem.first_token();
        let to = from + (problem.vocab() - weights_row).min(TILE_V - from);
        Self {
            first_token,
            from: from as usize,
            to: to as usize,
            weights_row: weights_row as usize,
        }
    }
}

/// Writes the dot products of the span with batch rows `row .. row + C`; rows beyond
/// the batch repeat its last.
#[inline(always)]
unsafe fn multiply_tile<L: Lanes, E: Widen, const R: usize, const C: usize>(
    call: &Call<'_, E>,
    span: &Span,
    row: usize,
    out: &mut [[f32; TILE_V_LEN]; C],
) {
    let hidden = call.problem.hidden() as usize;
    let stride = call.problem.weights_stride() as usize;
    let n_chunks = call.hidden_states.len() / call.rows.len();
    let hidden_states: [&[Chunk]; C] = std::array::from_fn(|c| {
        let row = (row + c).min(call.rows.len() - 1);
        &call.hidden_states[row * n_chunks..][..n_chunks]
    });
    let mut v = span.from;
    while v < span.to {
        let weights: [&[E]; R] = std::array::from_fn(|r| {
            // Beyond the span, its last token is multiplied again and dropped below.
            let v = (v + r).min(span.to - 1);
            &call.weights[(span.weights_row + v - span.from) * stride..][..hidden]
        });
        let next_block = R * stride;
        // SAFETY: the caller's promise.
        let block = unsafe { dots::<L, E, R, C>(weights, hidden_states, next_block) };
        let n = R.min(span.to - v);
        for (out, dots) in out.iter_mut().zip(&block) {
            out[v..v + n].copy_from_slice(&dots[..n]);
        }
        v += R;
    }
}

/// Whether a value is NaN or `+inf`. Without a branch, so that it becomes vector
/// instructions.
#[inline(always)]
fn any_special(values: &[f32; TILE_V_LEN]) -> bool {
    let mut any = false;
    for &value in values {
        any |= value.is_nan() | (value == f32::INFINITY);
    }
    any
}

/// The greatest value; none is NaN. In lanes, which the compiler would not dare: it sees
/// an order in a maximum.
#[inline(always)]
pub(super) fn highest(values: &[f32; TILE_V_LEN]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for values in values.as_chunks::<LANES>().0 {
        for (lane, &value) in lanes.iter_mut().zip(values) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    let mut highest = f32::NEG_INFINITY;
    for lane in lanes {
        highest = if lane > highest { lane } else { highest };
    }
    highest
}

/// Offers a row's tile of values to the leaders of each draw.
#[inline(always)]
pub(super) fn offer_row(
    values: &[f32; TILE_V_LEN],
    span: &Span,
    row: RowParams,
    leaders: &mut [Leaders],
) {
    let highest = highest(values);
    for (draw, leaders) in (0..).zip(leaders) {
        // Whether no token of the tile can win with noise up to `bound`.
        let passed_over = |bound, leaders: &Leaders| {
            stays_below(highest, row.temperature, bound, leaders.second.score())
        };
        if passed_over(NOISE_MAX, leaders) {
            continue;
        }
        let subkey = Subkey::new(row.key, draw);
        let bounds = noise_bounds(subkey, span.first_token);
        for (group, &bound) in (0..).zip(&bounds).take(span.to.div_ceil(GROUP as usize)) {
            if passed_over(bound, leaders) {
                continue;
            }
            let first = group * GROUP;
            for base in first..first + PAIR_BIT {
                let y = [values[base as usize], values[(base + PAIR_BIT) as usize]];
                let threshold = leaders.second.score();
                offer_pair(y, span.first_token + base, row.temperature, subkey, threshold, leaders);
            }
        }
    }
}

/// Bounds of the noise of each group of a tile's tokens.
#[inline(always)]
fn noise_bounds(subkey: Subkey, first_token: u32) -> [f32; TILE_V_LEN / GROUP as usize] {
    let first_group = first_token / GROUP;
    std::array::from_fn(|group| Hint::new(subkey.least(first_group + group as u32)).bound())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_special_is_what_a_token_value_would_not_pass_on() {
        for value in [0.0, 1.5, f32::MIN, f32::MAX, f32::NEG_INFINITY, f32::INFINITY, f32::NAN] {
            let mut values = [0.0; TILE_V_LEN];
            values[TILE_V_LEN - 1] = value;
            let mut status = Status::OK;
            let passed_on = token_value(value, 0.0, &mut status) == value;
            assert_eq!(any_special(&values), !passed_on || status != Status::OK, "{value}");
        }
    }

    #[test]
    fn spans_are_aligned_and_cover_the_vocabulary() {
        for (first_token, vocab) in [(0, 1), (0, 129), (100, 28), (100, 29), (255, 1000)] {
            let problem = Problem::builder(1, vocab, 1).first_token(first_token).build().unwrap();
            let n_tiles =
                flash_sampling_kernels::abi::n_tiles_v(problem.first_token(), problem.vocab());
            let mut next = 0;
            for tile in 0..n_tiles {
                let span = Span::new(&problem, tile);
                assert_eq!(span.first_token % TILE_V, 0);
                assert_eq!(span.weights_row, next);
                let token = u64::from(span.first_token) + span.from as u64;
                assert_eq!(token, first_token + next as u64);
                assert!(span.from < span.to && span.to <= TILE_V_LEN);
                next += span.to - span.from;
            }
            assert_eq!(next as u64, vocab);
        }
    }
}
