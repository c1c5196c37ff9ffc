//! *Computes*, from the logits that a sampling kernel left in memory, the tokens of *kept*
//! rows: those with filters, those with rules or penalties that the sampling kernel has not
//! applied, and all rows of a call with reports or a transform. Of other rows the sampling kernel's answer stands.
//!
//! *Operands*: [`KeptParams`], naturally aligned. The outputs and, where slices are not in
//! shared memory, the logits of kept rows are written; outputs alias nothing.
//!
//! *Mapping*: first the rows that were listed, a block each. Then, where weights were summed up,
//! rows that ask for top_p alone, a block each of the cluster whose rows they are. What these
//! leave, the blocks of a cluster work on together, one row at a time, the cluster's index first,
//! then as many rows further as there are clusters. Each block has a slice of the row, of whole
//! vocabulary tiles; its threads take the slice's tokens in turn.
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
//! *Preconditions*: the sampling kernel's; it has ended, and has stored the logits of all
//! rows; lists are in ascending order of distinct ids (`host-crate/src/token_rules.rs`).
//!
//! *Measured*: `docs/findings/`.

mod crew;
mod draw;
mod edit;
mod gather;
mod goal;
mod halved;
mod histogram;
mod measure;
mod nucleus;
mod ranked;
mod report;
mod short;
mod shortlist;
mod view;

use crew::Crew;
pub use crew::Shared;
use measure::KeptRow;
use short::Known;
use view::View;

use crate::abi::kept::{KeptParams, RowFeatures, THREADS, slice_len};
use crate::abi::sieve::RULED_ROWS;
use crate::arch;
use crate::candidate::Key;
use crate::filters::Filters;
use crate::kernels::rules;
use crate::transform::LogitTransform;

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
    let mut row = block / CLUSTER;
    let words = if params.slice_in_shared != 0 {
        slice_len(params.sample.vocab, CLUSTER) as u32
    } else {
        0
    };
    // SAFETY: the caller's promise; `row < B`, and every access is masked by the slice.
    unsafe {
        let alone = Crew::<1>::new(shared, 0);
        if !params.sample.listed.is_null() {
            let mut row = block;
            while row < params.sample.batch {
                let known = Known::take(params, &alone, row);
                if known.is_listed() {
                    short::finish_row(params, &alone, (slice, words), row, known);
                }
                row += blocks;
            }
        }
        let clusters = blocks / CLUSTER;
        let has_sums = !params.sample.partials[1].is_null();
        if has_sums {
            finish_nuclei::<CLUSTER>(params, &alone, (slice, words), (row, rank, clusters));
        }
        let (mut crew, mut any) = (Crew::<CLUSTER>::new(shared, rank), has_sums);
        while row < params.sample.batch {
            // As many rows as there are threads, so that none is waited for alone.
            let (first, step) = (row, clusters);
            let kept = (&raw mut (*shared).rows).cast::<u32>();
            crew.leg(|thread| {
                let row = thread.saturating_mul(step).saturating_add(first);
                let mut is_kept = row < params.sample.batch && is_kept(params, row);
                if has_sums && is_kept {
                    // Calls with sums have so few rows that these are the cluster's first.
                    let own = (&raw mut (*shared).finished).cast::<u32>();
                    let theirs = arch::of_block(own, thread % CLUSTER);
                    is_kept = theirs.add((thread / CLUSTER) as usize).read() == 0;
                }
                kept.add(thread as usize).write(is_kept as u32);
            });
            let mut at = 0;
            while at < THREADS && row < params.sample.batch {
                if kept.add(at as usize).read() != 0 {
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

/// Finishes rows of a cluster whose nucleus few tokens prove, a block each: the cluster's first
/// row, and every `clusters` further. When all blocks have told which they are, all may ask.
///
/// # Safety
/// As [`sample_kept`], in all blocks; there are partial sums.
#[inline(always)]
unsafe fn finish_nuclei<const CLUSTER: u32>(
    params: &KeptParams,
    crew: &Crew<1>,
    room: (*mut f32, u32),
    (first, rank, clusters): (u32, u32, u32),
) {
    // SAFETY: the caller's promise; so few rows have sums that there is a place for each.
    unsafe {
        let finished = (&raw mut (*crew.shared).finished).cast::<u32>();
        let mut nth = rank;
        while nth < RULED_ROWS && first.saturating_add(nth * clusters) < params.sample.batch {
            let row = first + nth * clusters;
            let temperature = params.sample.temperatures.add(row as usize).read();
            let is_finished = params.sample.applies_rules != 0
                && crate::nucleus::serves(&features(params, row), temperature)
                && nucleus::finish_row(params, crew, short::for_keys(room), row);
            crew.leg(|thread| {
                if thread == 0 {
                    finished.add((nth / CLUSTER) as usize).write(is_finished as u32);
                }
            });
            nth += CLUSTER;
        }
        if CLUSTER != 1 {
            arch::cluster_meet();
        }
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

/// Whether a row is finished here. The same in all threads of a cluster.
#[inline(always)]
unsafe fn is_kept(params: &KeptParams, row: u32) -> bool {
    // SAFETY: `row < B`.
    let (features, temperature) =
        unsafe { (features(params, row), params.sample.temperatures.add(row as usize).read()) };
    if params.sample.applies_rules != 0 {
        let has_filters = Filters::new(&features, temperature).any();
        // SAFETY: `row < B`.
        return has_filters && unsafe { !short::is_listed(params, row) };
    }
    params.raw.any() | params.processed.any() | !is_drawn(params, &features, temperature)
}

/// Whether what the sampling kernel drew for a row stands: it has no more than reports to come.
#[inline(always)]
fn is_drawn(params: &KeptParams, features: &RowFeatures, temperature: f32) -> bool {
    transform(params) == LogitTransform::NONE && !asks(features, temperature)
}

/// Whether a row asks for anything that makes it a kept one.
#[inline(always)]
pub fn asks(features: &RowFeatures, temperature: f32) -> bool {
    rules::any(features) | Filters::new(features, temperature).any()
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
    let mut view = View::edited(params, shared_slice, row);
    // SAFETY: the caller's promise.
    unsafe {
        loop {
            let edited = edit::load(crew, view);
            let mut of_row = KeptRow::new(crew, view, edited);
            let mut temperature = view.temperature();
            if !view.is_raw() && !is_drawn(params, &features(params, view.row()), temperature) {
                let mut last = Key::NONE;
                // Where the highest is infinite, it wins whatever the filters keep.
                if Filters::new(&features(params, view.row()), temperature).any()
                    && edited.highest.is_finite()
                {
                    let features = &*params.sample.features.add(view.row() as usize);
                    last = Filters::new(features, temperature).last_of(&mut of_row);
                }
                draw::draw(of_row.crew, view, last, edited.status);
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
