//! *Computes*, from the logits that a sampling kernel left in memory, the tokens of *kept*
//! rows: those with rules, penalties or filters, and all rows of a call with reports or a
//! transform. Of other rows the sampling kernel's answer stands.
//!
//! *Operands*: [`KeptParams`], naturally aligned. The outputs and, where slices are not in
//! shared memory, the logits of kept rows are written; outputs alias nothing.
//!
//! *Mapping*: the blocks of a cluster work on one row at a time, the cluster's index first,
//! then as many rows further as there are clusters. Each block has a slice of the row, of
//! whole vocabulary tiles; its threads take the slice's tokens in turn.
//!
//! *Shared memory*: [`Shared`], then the slice, if it is to be there.
//!
//! *Roles and barriers*: legs, a barrier after each. What the blocks of a cluster find out
//! together goes through [`Exchange`]s in global memory, of which there are two in turn: who
//! writes one again has passed the barrier of the other, so everybody has read it.
//!
//! *Numerics*: as on the CPU, by the same functions: values in [`crate::transform`], masses
//! in [`crate::scale`], what is kept in [`crate::filters`], scores in [`crate::score`]. Sums
//! of many tokens are integers, and keys have an order: how they are found does not show.
//!
//! *Preconditions*: the sampling kernel's; it has ended, and has stored the logits of all
//! rows; lists are in ascending order of distinct ids (`host-crate/src/token_rules.rs`).
//!
//! *Measured*: `docs/findings/`.

mod crew;
mod draw;
mod edit;
mod measure;
mod report;

use crew::Crew;
pub use crew::{Exchange, Shared};
use measure::KeptRow;

use crate::abi::TILE_V;
use crate::abi::kept::{KeptParams, ReportParams, RowFeatures, THREADS, values_stride};
use crate::abi::n_tiles_v;
use crate::arch;
use crate::candidate::Key;
use crate::dims::{ceil_div, offset};
use crate::filters::Filters;
use crate::transform::{LogitTransform, Penalties};

const THREADS_LEN: usize = THREADS as usize;

/// A block's part of a row's tokens: whole tiles, as far as the call has them.
#[derive(Clone, Copy)]
struct Slice {
    /// Their values.
    values: *mut f32,
    /// Row of the weights of the first.
    first: u32,
    /// How many there are.
    len: u32,
    /// Global id of the first of its tiles' tokens, a multiple of `TILE_V`.
    tile_token: u32,
    tiles: u32,
}

/// Runs block `block` of `blocks`, which are whole clusters of `CLUSTER`.
///
/// # Safety
/// The module's preconditions; `shared` belongs to this block alone, and `slice` too, which
/// has `kept::slice_len` elements if `params.slice_in_shared`.
#[inline(always)]
pub unsafe fn sample_kept<const CLUSTER: u32>(
    params: &KeptParams,
    shared: *mut Shared,
    slice: *mut f32,
    block: u32,
    blocks: u32,
) {
    let rank = if CLUSTER == 1 { 0 } else { arch::cluster_rank() };
    let mut row = block / CLUSTER;
    // SAFETY: the caller's promise; `row < B`, and every access is masked by the slice.
    unsafe {
        let mut crew = Crew::<CLUSTER>::new(shared, params.scratch, block / CLUSTER, rank);
        while row < params.sample.batch {
            if is_kept(params, row) {
                finish_row(params, &mut crew, slice, row);
            }
            row += blocks / CLUSTER;
        }
    }
}

/// What a row asks for.
#[inline(always)]
unsafe fn features(params: &KeptParams, row: u32) -> RowFeatures {
    if params.features.is_null() {
        return RowFeatures::NONE;
    }
    // SAFETY: `row < B`.
    unsafe { params.features.add(row as usize).read() }
}

/// Whether a row is finished here. The same in all threads of a cluster.
#[inline(always)]
unsafe fn is_kept(params: &KeptParams, row: u32) -> bool {
    // SAFETY: `row < B`.
    let (features, temperature) =
        unsafe { (features(params, row), params.sample.temperatures.add(row as usize).read()) };
    let penalized = features.n_seen > 0 && penalties(&features) != Penalties::NONE;
    params.raw.any()
        | params.processed.any()
        | (transform(params) != LogitTransform::NONE)
        | penalized
        | (features.n_logit_bias > 0)
        | (features.n_banned > 0)
        | !features.bitmask.is_null()
        | !features.allow_list.is_null()
        | Filters::new(&features, temperature).any()
}

#[inline(always)]
fn penalties(features: &RowFeatures) -> Penalties {
    let RowFeatures { repetition, frequency, presence, .. } = *features;
    Penalties { repetition, frequency, presence }
}

#[inline(always)]
fn transform(params: &KeptParams) -> LogitTransform {
    LogitTransform {
        softcap: if params.softcap > 0.0 { Some(params.softcap) } else { None },
        scale: params.scale,
        scale_first: params.scale_first != 0,
    }
}

/// Finishes a row: first its own distribution, and its tokens; then the model's.
#[inline(always)]
unsafe fn finish_row<const CLUSTER: u32>(
    params: &KeptParams,
    crew: &mut Crew<CLUSTER>,
    shared_slice: *mut f32,
    row: u32,
) {
    // Opaque: one text for both.
    let (mut is_raw, raw_too) = (arch::opaque(0) != 0, params.raw.any());
    // SAFETY: the caller's promise.
    unsafe {
        loop {
            let slice = slice(params, crew, shared_slice, row, is_raw);
            let edited = edit::load(params, crew, slice, row, is_raw);
            let mut of_row = KeptRow::new(crew, slice, edited, params.sample.vocab);
            let mut temperature = params.sample.temperatures.add(row as usize).read();
            if !is_raw {
                let filters = Filters::new(&features(params, row), temperature);
                let mut last = Key::NONE;
                // Where the highest is infinite, it wins whatever the filters keep.
                if filters.any() && edited.highest.is_finite() {
                    last = filters.last_of(&mut of_row);
                }
                draw::draw(params, of_row.crew, slice, row, last, edited.status);
            }
            if is_raw || temperature == 0.0 {
                temperature = 1.0;
            }
            let report = report_params(params, is_raw);
            if report.any() {
                report::report(params, &mut of_row, row, temperature, report);
            }
            if is_raw || !raw_too {
                break;
            }
            is_raw = true;
        }
    }
}

/// By value: a choice of references would be one of addresses of the kernel's parameters.
#[inline(always)]
fn report_params(params: &KeptParams, is_raw: bool) -> ReportParams {
    let (raw, processed) = (params.raw, params.processed);
    if is_raw { raw } else { processed }
}

/// The block's slice of a row, without its values.
#[inline(always)]
unsafe fn slice<const CLUSTER: u32>(
    params: &KeptParams,
    crew: &Crew<CLUSTER>,
    shared_slice: *mut f32,
    row: u32,
    is_raw: bool,
) -> Slice {
    let (first_token, vocab) = (params.sample.first_token, params.sample.vocab);
    let n_tiles = n_tiles_v(first_token, vocab);
    let share = ceil_div(n_tiles as u64, CLUSTER as u64) as u32;
    let from = core::cmp::min(crew.rank() * share, n_tiles);
    let to = core::cmp::min(from + share, n_tiles);
    let lead = (first_token % TILE_V) as u64;
    let place = |tile: u32| {
        let tokens = (tile as u64 * TILE_V as u64).saturating_sub(lead);
        core::cmp::min(tokens, vocab as u64) as u32
    };
    let (first, end) = (place(from), place(to));
    let in_place = if is_raw { params.raw_values } else { params.sample.values };
    let at = offset(row, values_stride(vocab), first) as usize;
    Slice {
        values: if params.slice_in_shared != 0 { shared_slice } else { in_place.wrapping_add(at) },
        first,
        len: end - first,
        tile_token: (first_token / TILE_V).wrapping_add(from).wrapping_mul(TILE_V),
        tiles: to - from,
    }
}
