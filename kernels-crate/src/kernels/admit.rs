//! Whether the rows of a batch tile admit any of some tokens. If none does, nobody asks for
//! what their logits are.

use crate::abi::SampleParams;
use crate::abi::kept::RowFeatures;
use crate::arch;
use crate::dims::first_from;

/// Tokens of a bitmask's word.
const WORD: u32 = u32::BITS;

/// Global ids `begin .. end`, the first a multiple of a bitmask's word.
#[derive(Clone, Copy)]
pub(super) struct Ids {
    pub(super) begin: u32,
    pub(super) end: u32,
}

/// Whether rows `rows.0 .. rows.1` all ban all of these tokens, and the call lets that count.
/// Of tokens that are not the call's one may count as admitted.
///
/// # Safety
/// All lanes of a warp, `lane` counted from 0; the rows are the call's, and what they ask for
/// is there.
#[inline(always)]
pub(super) unsafe fn banned(params: &SampleParams, ids: Ids, rows: (u32, u32), lane: u32) -> bool {
    if params.features.is_null() || params.skips_banned == 0 {
        return false;
    }
    let id_end = params.first_token + params.vocab;
    let ids = Ids { end: core::cmp::min(ids.end, id_end), ..ids };
    let mut admitted = false;
    let mut row = rows.0 + lane;
    while row < rows.1 {
        // SAFETY: the caller's promise.
        admitted |= unsafe { admits_any(&*params.features.add(row as usize), ids) };
        row += WORD;
    }
    arch::warp_ballot(admitted) == 0
}

/// Whether a row's bitmask and allow-list each admit one of the tokens.
#[inline(always)]
unsafe fn admits_any(row: &RowFeatures, ids: Ids) -> bool {
    // SAFETY: the caller's promise: a bitmask has a word for each of the call's ids.
    unsafe {
        let mut masked = row.bitmask.is_null();
        let (mut id, end) = (ids.begin, if masked { ids.begin } else { ids.end });
        while id < end {
            masked |= row.bitmask.add((id / WORD) as usize).read() != 0;
            id = id.saturating_add(WORD);
        }
        let mut listed = row.allow_list.is_null();
        if !listed {
            let allowed = |at: u32| row.allow_list.add(at as usize).read();
            let at = first_from(row.n_allowed, ids.begin, allowed);
            listed = at < row.n_allowed && allowed(at) < ids.end;
        }
        masked && listed
    }
}
