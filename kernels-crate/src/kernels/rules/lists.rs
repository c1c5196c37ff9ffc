//! A row's lists of tokens, and what they and its mask do to single ones.

use core::ptr::null;

use super::{LISTS, SEEN, WORD, penalties};
use crate::abi::kept::{RowFeatures, SeenToken, TokenBias};
use crate::arch;
use crate::dims::first_from;
use crate::transform::{Penalties, add_bias};

/// A list of ids in ascending order, alone or each before another word.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Ids {
    pub(super) first: *const u32,
    pub(in crate::kernels) n: u32,
    /// Words from one to the next.
    pub(super) stride: u32,
}

const _: () = assert!(size_of::<SeenToken>() == 8 && size_of::<TokenBias>() == 8);

impl Ids {
    const NONE: Self = Self { first: null(), n: 0, stride: 1 };

    /// Item `at`.
    ///
    /// # Safety
    /// The list has it.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn get(&self, at: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.first.add(at as usize * self.stride as usize).read() }
    }

    /// Where an id is in the list, if it is there.
    #[inline(always)]
    unsafe fn find(&self, id: u32) -> Option<u32> {
        // SAFETY: the list has so many items.
        unsafe {
            let at = first_from(self.n, id, |at| self.get(at));
            (at < self.n && self.get(at) == id).then_some(at)
        }
    }
}

/// The list of tokens with penalties, if there are any.
#[inline(always)]
pub(super) fn seen(features: &RowFeatures) -> Ids {
    let asks = penalties(features) != Penalties::NONE;
    let seen = Ids { first: features.seen.cast(), n: features.n_seen, stride: 2 };
    if asks { seen } else { Ids::NONE }
}

/// The list of tokens with penalties, of index [`SEEN`], or with biases.
#[inline(always)]
pub(in crate::kernels) fn edits(features: &RowFeatures, list: u32) -> Ids {
    if list == SEEN {
        return seen(features);
    }
    Ids { first: features.logit_bias.cast(), n: features.n_logit_bias, stride: 2 }
}

/// The tokens that are banned by a list.
#[inline(always)]
pub(in crate::kernels) fn bans(features: &RowFeatures) -> Ids {
    Ids { first: features.ban_list, n: features.n_banned, stride: 1 }
}

/// Which of the tokens from id `first` on the mask admits, a bit each: of 32 tokens at least, none
/// of which lies beyond `last`. All, if there is no mask.
///
/// # Safety
/// These two are tokens of the call.
#[inline(always)]
pub(in crate::kernels) unsafe fn mask_admits(features: &RowFeatures, first: u32, last: u32) -> u32 {
    if features.bitmask.is_null() {
        return !0;
    }
    let word = first / WORD;
    let next = core::cmp::min(word + 1, last / WORD);
    // SAFETY: the caller's promise.
    let [word, next] =
        [word, next].map(|word| unsafe { features.bitmask.add(word as usize).read() } as u64);
    ((next << WORD | word) >> (first % WORD)) as u32
}

/// Whether a token that a list of [`edits`] names is to be taken from it: it is admitted, and no
/// list before names it.
///
/// # Safety
/// It is a token of the call, and the row has no allow-list.
#[inline(always)]
pub(in crate::kernels) unsafe fn comes_from(features: &RowFeatures, list: u32, id: u32) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        mask_admits(features, id, id) & 1 != 0
            && bans(features).find(id).is_none()
            && (list == SEEN || seen(features).find(id).is_none())
    }
}

/// The value of a token after its bias and penalty, in the row's order.
///
/// # Safety
/// The row's lists are there.
#[inline(always)]
pub(in crate::kernels) unsafe fn edit(features: &RowFeatures, id: u32, y: f32) -> f32 {
    // SAFETY: the caller's promise.
    unsafe { edit_found(features, y, |list| edits(features, list).find(id)) }
}

/// The same of a token that is at these places of the lists, if it is there.
#[inline(always)]
pub(super) unsafe fn edit_found(
    features: &RowFeatures,
    y: f32,
    find: impl Fn(u32) -> Option<u32>,
) -> f32 {
    let bias_last = features.options & RowFeatures::BIAS_LAST != 0;
    let mut y = y;
    // Opaque: one text for each kind of edit.
    let (mut step, steps) = (0, arch::opaque(LISTS as u32));
    while step < steps {
        let list = if bias_last { step } else { 1 - step };
        // SAFETY: who is listed is at this place of the list.
        unsafe {
            if let Some(at) = find(list) {
                if list == SEEN {
                    let count = (*features.seen.add(at as usize)).count;
                    y = penalties(features).apply(y, count, bias_last);
                } else {
                    y = add_bias(y, (*features.logit_bias.add(at as usize)).bias);
                }
            }
        }
        step += 1;
    }
    y
}
