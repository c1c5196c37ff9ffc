//! How blocks hand over: one launch, no second kernel.
//!
//! Computes: from the candidates of all vocabulary tiles, the token of each row and draw.
//!
//! Mapping: every block raises the keys of its rows with atomic maxima as it goes.
//! A batch tile is finished by the block that completes its count of vocabulary
//! tiles: that block reads the keys, writes the outputs, and sets everything it
//! read back to zero, so that the next call (or graph replay) needs no memset.
//!
//! Numerics: a maximum of maxima is the maximum, and keys are integers, so the
//! result depends on no order. The best two survive any order too: whatever an
//! atomic maximum displaces or refuses is offered to the second key.
//!
//! Preconditions: the workspace is zero (`host-crate/src/workspace.rs`); one call at a
//! time uses it.

use crate::abi::{NO_TOKEN, SampleParams, WorkspaceLayout};
use crate::arch;
use crate::candidate::{Key, Leaders};
use crate::dims::output_index;
use crate::status::Status;

/// The parts of the workspace, as pointers.
#[derive(Clone, Copy)]
pub struct Workspace {
    first_keys: *mut u64,
    second_keys: *mut u64,
    row_status: *mut u32,
    tiles_done: *mut u32,
}

impl Workspace {
    /// The parts of `params.workspace`, for `batch`, which is the call's.
    ///
    /// # Safety
    /// `params` describes a workspace of at least `WorkspaceLayout::bytes`, aligned.
    #[inline(always)]
    pub unsafe fn new(params: &SampleParams, batch: u32) -> Self {
        let layout = WorkspaceLayout::new(batch, params.draws);
        let base = params.workspace;
        // SAFETY: every offset is at most `layout.bytes`, which the caller has.
        unsafe {
            Self {
                first_keys: base.add(layout.first_keys as usize).cast(),
                second_keys: base.add(layout.second_keys as usize).cast(),
                row_status: base.add(layout.row_status as usize).cast(),
                tiles_done: base.add(layout.tiles_done as usize).cast(),
            }
        }
    }

    /// The counter of a batch tile.
    ///
    /// # Safety
    /// `tile_b` is a batch tile of the call.
    #[inline(always)]
    pub unsafe fn tiles_done(&self, tile_b: u32) -> *mut u32 {
        // SAFETY: the layout has a counter for each of the smallest batch tiles.
        unsafe { self.tiles_done.add(tile_b as usize) }
    }
}

/// The score an offer of this row and draw has to reach to change an output.
///
/// # Safety
/// `row < batch`, `draw < draws`, and `workspace` is that of `params`.
#[inline(always)]
pub unsafe fn threshold(params: &SampleParams, workspace: &Workspace, row: u32, draw: u32) -> f32 {
    let keys = if params.margins.is_null() { workspace.first_keys } else { workspace.second_keys };
    let at = output_index(row, params.draws, draw) as usize;
    // SAFETY: `at` is inside `[B, S]`.
    Key::from_bits(unsafe { arch::load_shared_u64(keys.add(at)) }).score()
}

/// Merges a block's candidates into those of the call. Tells, if values of drawn tokens are to be
/// left, whether the first is the best so far.
///
/// # Safety
/// As [`threshold`].
#[inline(always)]
pub unsafe fn publish(
    params: &SampleParams,
    workspace: &Workspace,
    row: u32,
    draw: u32,
    leaders: Leaders,
) -> bool {
    if leaders.first == Key::NONE {
        return false;
    }
    let at = output_index(row, params.draws, draw) as usize;
    // SAFETY: `at` is inside `[B, S]`.
    unsafe {
        let first = workspace.first_keys.add(at);
        if params.margins.is_null() && params.drawn_values.is_null() {
            arch::raise(first, leaders.first.bits());
            return false;
        }
        let before = Key::from_bits(arch::atomic_max(first, leaders.first.bits()));
        if !params.margins.is_null() {
            // Exactly one of the two is not the first; the block's own second may be better.
            let other = core::cmp::min(before, leaders.first);
            let second = core::cmp::max(other, leaders.second);
            arch::raise(workspace.second_keys.add(at), second.bits());
        }
        before < leaders.first
    }
}

/// Adds to a row's status.
///
/// # Safety
/// `row < batch`, and `workspace` is that of the call.
#[inline(always)]
pub unsafe fn publish_status(workspace: &Workspace, row: u32, status: Status) {
    if status != Status::OK {
        // SAFETY: `row` is inside `[B]`.
        unsafe { arch::atomic_or(workspace.row_status.add(row as usize), status.bits()) }
    }
}

/// Leg: writes the outputs of rows `rows.0 .. rows.1` and clears their keys.
///
/// # Safety
/// The rows' batch tile is complete, and only this block finishes it; `thread` runs
/// over `0..threads`.
#[inline(always)]
pub unsafe fn write_outputs(
    params: &SampleParams,
    workspace: &Workspace,
    rows: (u32, u32),
    thread: u32,
    threads: u32,
) {
    let end = output_index(rows.1, params.draws, 0);
    let mut index = output_index(rows.0, params.draws, 0) + thread as u64;
    while index < end {
        let at = index as usize;
        let row = (index / params.draws as u64) as usize;
        // SAFETY: `at` is inside `[B, S]` and `row` inside `[B]`.
        unsafe {
            let first = Key::from_bits(arch::load_shared_u64(workspace.first_keys.add(at)));
            let mut status =
                Status::from_bits(arch::load_shared_u32(workspace.row_status.add(row)));
            if first.token() == NO_TOKEN {
                status.insert(Status::NO_CANDIDATE);
            }
            params.tokens.add(at).write(first.token());
            params.status.add(at).write(status.bits());
            if !params.scores.is_null() {
                params.scores.add(at).write(first.score());
            }
            workspace.first_keys.add(at).write(0);
            if !params.margins.is_null() {
                let second = Key::from_bits(arch::load_shared_u64(workspace.second_keys.add(at)));
                params.margins.add(at).write(Leaders { first, second }.margin());
                workspace.second_keys.add(at).write(0);
            }
        }
        index += threads as u64;
    }
}

/// Leg after [`write_outputs`]: clears the rows' status and their tile's counter.
///
/// # Safety
/// As [`write_outputs`], which every thread has left.
#[inline(always)]
pub unsafe fn clear(
    workspace: &Workspace,
    rows: (u32, u32),
    tile_b: u32,
    thread: u32,
    threads: u32,
) {
    let mut row = rows.0 as u64 + thread as u64;
    while row < rows.1 as u64 {
        // SAFETY: `row` is inside `[B]`.
        unsafe { workspace.row_status.add(row as usize).write(0) };
        row += threads as u64;
    }
    if thread == 0 {
        // SAFETY: a batch tile of the call.
        unsafe { workspace.tiles_done(tile_b).write(0) };
    }
}
