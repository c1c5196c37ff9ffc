//! *Computes*, from the logits that a sampling kernel left in memory, the tokens of *kept*
//! rows: those with filters, those with rules or penalties that the sampling kernel has not
//! applied, and all rows of a call with reports, or with a transform that it has not applied. Of
//! other rows the sampling kernel's answer stands.
//!
//! *Operands*: [`KeptParams`], naturally aligned. The outputs and, where slices are not in
//! shared memory, the logits of kept rows are written; outputs alias nothing.
//!
//! *Mapping*: what rows ask for is found while the sampling kernel ends. Then come the rows that
//! were listed, a block each. The others the blocks of a cluster work on together, the cluster's index first, then as many rows further as there are clusters:
//! where weights were summed up, those that few of their values may serve (`few.rs`) as many at a
//! time as there are blocks; and what these leave, one row at a time. Each block has a slice of the row, of
//! whole vocabulary tiles; its threads take the slice's tokens in turn.
//!
//! *Shared memory*: [`Shared`], then the slice, if it is to be there.
//!
//! *Roles and barriers*: legs, a barrier after each. What the blocks of a cluster find out
//! together goes through exchanges in their shared memory, of which there are two in turn: who
//! writes one again has passed the barrier of the other, so everybody has read it.
//!
//! *Numerics*: as on the CPU, by the same functions: values in [`crate::transform`], masses
//! in [`crate::scale`], what is kept in [`crate::filters`], scores in [`crate::score`]. Sums
//! of many tokens are integers, and keys have an order: how they are found does not show.
//!
//! *Preconditions*: the sampling kernel's; it has stored the logits of all rows, and has ended, or
//! with clusters is waited for: it lets this kernel start when all before it have ended. Lists are
//! in ascending order of distinct ids (`host-crate/src/token_rules.rs`).
//!
//! *Measured*: `docs/findings/`.

mod brief;
mod chosen;
mod crew;
mod draw;
mod edit;
mod few;
mod gather;
mod gathered;
mod goal;
mod guess;
mod halved;
mod histogram;
mod judged;
mod measure;
mod moments;
mod parts;
mod ranked;
mod report;
mod row;
mod ruled;
mod short;
mod shortlist;
mod view;
mod way;

pub use crew::Shared;
use crew::{Crew, add};
use measure::KeptRow;
use short::Known;
use view::View;
use way::Way;

use crate::abi::kept::{KeptParams, RowFeatures, THREADS, slice_len};
use crate::arch;
use crate::candidate::Key;
use crate::filters::Filters;
use crate::kernels::rules;

const THREADS_LEN: usize = THREADS as usize;

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
    let (mut row, step) = (block / CLUSTER, blocks / CLUSTER);
    let words = if params.slice_in_shared != 0 {
        slice_len(params.sample.vocab, CLUSTER) as u32
    } else {
        0
    };
    // SAFETY: the caller's promise; `row < B`, and every access is masked by the slice.
    unsafe {
        let asked = (&raw mut (*shared).rows).cast::<Way>();
        let alone = Crew::<1>::new(shared, 0);
        let (mut crew, mut any, mut is_first) = (Crew::<CLUSTER>::new(shared, rank), false, true);
        while row < params.sample.batch {
            // As many rows as there are threads, so that none is waited for alone.
            let first = row;
            let give = |thread: u32| {
                let row = thread.saturating_mul(step).saturating_add(first);
                let is_there = row < params.sample.batch;
                let way = if is_there { Way::of(params, row) } else { Way::STANDS };
                asked.add(thread as usize).write(way);
                [(way != Way::STANDS) as u64]
            };
            let [n_asked] = alone.reduce_block(give, add);
            if is_first {
                // What rows ask for was there before the sampling kernel.
                arch::dependencies_wait();
                finish_listed(params, &alone, (slice, words), (block, blocks));
                is_first = false;
            }
            if n_asked == 0 {
                row = row.saturating_add(step.saturating_mul(THREADS));
                continue;
            }
            if has_sums(params) {
                let room = (slice, words);
                few::finish::<CLUSTER>(params, (&alone, rank), room, asked, (first, step));
            }
            let mut at = 0;
            while at < THREADS && row < params.sample.batch {
                if asked.add(at as usize).read() != Way::STANDS {
                    finish_row(params, &mut crew, slice, row);
                    any = true;
                }
                row = row.saturating_add(step);
                at += 1;
            }
            // Who is behind may still ask whether the last of these rows is kept.
            crew.leg(|_| ());
        }
        // A block must not leave while another may still read its shared memory.
        if CLUSTER != 1 && any {
            arch::cluster_meet();
        }
    }
}

/// Finishes those of a block's rows that were listed.
#[inline(always)]
unsafe fn finish_listed(
    params: &KeptParams,
    crew: &Crew<1>,
    room: (*mut f32, u32),
    (block, blocks): (u32, u32),
) {
    if params.sample.listed.is_null() {
        return;
    }
    let mut row = block;
    while row < params.sample.batch {
        // SAFETY: the caller's promise; `row < B`.
        unsafe {
            let known = Known::take(params, crew, row);
            if known.is_listed() {
                short::finish_row(params, crew, room, row, known);
            }
        }
        row += blocks;
    }
}

/// What a row asks for.
#[inline(always)]
unsafe fn features(params: &KeptParams, row: u32) -> RowFeatures {
    let features = params.sample.features;
    if features.is_null() {
        return RowFeatures::NONE;
    }
    // SAFETY: `row < B`.
    unsafe { features.add(row as usize).read() }
}

/// Whether the sampling kernel has summed up weights: of values that no transform changes any more.
#[inline(always)]
fn has_sums(params: &KeptParams) -> bool {
    let [of_model, of_row] = params.sample.partials;
    !of_model.is_null() | !of_row.is_null()
}

/// Whether what the sampling kernel drew for a row stands: it has no more than reports to come.
#[inline(always)]
fn is_drawn(params: &KeptParams, features: &RowFeatures, temperature: f32) -> bool {
    !params.transform.get().changes() && !asks(features, temperature)
}

/// Whether a row asks for anything that makes it a kept one.
#[inline(always)]
pub fn asks(features: &RowFeatures, temperature: f32) -> bool {
    rules::any(features) | Filters::new(features, temperature).any()
}

/// Finishes a row: first its own distribution, and its tokens; then the model's.
#[inline(always)]
unsafe fn finish_row<const CLUSTER: u32>(
    params: &KeptParams,
    crew: &mut Crew<CLUSTER>,
    shared_slice: *mut f32,
    row: u32,
) {
    let mut view = View::edited(params, shared_slice, row);
    // SAFETY: the caller's promise.
    unsafe {
        loop {
            let edited = edit::load(crew, view);
            let mut of_row = KeptRow::new(crew, view, edited);
            let mut temperature = view.temperature();
            if !view.is_raw() && !is_drawn(params, &features(params, view.row()), temperature) {
                // Where the highest is infinite, it wins whatever the filters keep.
                let filters = edited.highest.is_finite()
                    && Filters::new(&features(params, view.row()), temperature).any();
                let mut drawn = Key::NONE;
                if filters && way::is_judged(params, &features(params, view.row())) {
                    drawn = row::least_drawn(params, view.row());
                }
                let is_judged = drawn != Key::NONE;
                if !is_judged || !judged::is_right(of_row.crew, view, edited.highest, drawn) {
                    let mut last = Key::NONE;
                    if filters {
                        let features = &*params.sample.features.add(view.row() as usize);
                        last = Filters::new(features, temperature).last_of(&mut of_row);
                    }
                    // Filters keep what is likelier than a token that they keep.
                    if !is_judged || drawn < last {
                        draw::draw(of_row.crew, view, last, edited.status);
                    }
                }
            }
            if view.is_raw() || temperature == 0.0 {
                temperature = 1.0;
            }
            if view.report().any() {
                report::report(&mut of_row, temperature);
            }
            if view.is_raw() || !params.raw.any() {
                break;
            }
            view = view.raw();
        }
    }
}
