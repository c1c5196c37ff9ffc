//! The part of a row that is a block's, as its rules leave it: values in memory are those before,
//! and each is edited on its way.
//!
//! Tokens that a list names are marked, a bit each, and come from their lists; the others come in
//! turn, as far as the mask admits them.

use super::row::values_of;
use super::short::ShortRow;
use super::view::{Four, TOGETHER};
use crate::abi::kept::{KeptParams, RowFeatures, THREADS};
use crate::arch;
use crate::dims::ceil_div;
use crate::kernels::rules::{self, Ids};

/// Tokens of a word of marks.
const WORD: u32 = u32::BITS;

/// Words of marks that a block has room for: where it has a listed row, which is done with.
const MARKS: u32 = (size_of::<ShortRow>() / size_of::<u32>()) as u32;

const FOUR: u32 = TOGETHER as u32;

/// Whether there is room for the marks of parts of `n` rows, of so many tokens each.
#[inline(always)]
pub(super) fn has_room(n: u32, tokens: u32) -> bool {
    n as u64 * words_for(tokens) as u64 <= MARKS as u64
}

#[inline(always)]
fn words_for(tokens: u32) -> u32 {
    ceil_div(tokens as u64, WORD as u64) as u32
}

/// A part of a row.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    params: &'a KeptParams,
    features: &'a RowFeatures,
    row: u32,
    /// The part's first token, by the row of its weights, and the next part's.
    begin: u32,
    end: u32,
    /// A bit for each of its tokens: those that a list names.
    marks: *mut u32,
}

/// Of all methods: the row's values and lists are there.
impl<'a> Part<'a> {
    /// Tokens `begin..end` of a row, whose marks are the `nth` in a listed row's memory.
    ///
    /// # Safety
    /// `row < B`; there [`has_room`] for so many.
    #[inline(always)]
    pub(super) unsafe fn new(
        params: &'a KeptParams,
        row: u32,
        (begin, end): (u32, u32),
        (short, nth): (*mut ShortRow, u32),
    ) -> Self {
        // SAFETY: the caller's promise.
        let features = unsafe { &*params.sample.features.add(row as usize) };
        let before = nth as usize * words_for(end - begin) as usize;
        Self { params, features, row, begin, end, marks: short.cast::<u32>().wrapping_add(before) }
    }

    /// Leg: clears the thread's marks.
    #[inline(always)]
    pub(super) unsafe fn clear(&self, thread: u32) {
        let mut word = thread;
        while word < words_for(self.end - self.begin) {
            // SAFETY: there are so many.
            unsafe { self.marks.add(word as usize).write(0) };
            word += THREADS;
        }
    }

    /// Leg: marks the tokens of the thread's items of all lists.
    #[inline(always)]
    pub(super) unsafe fn mark(&self, thread: u32) {
        // SAFETY: the caller's promise; marks are below their number.
        unsafe {
            // Opaque: one text for all lists.
            let (mut list, lists) = (0, arch::opaque(3));
            while list < lists {
                let ids = if list < 2 {
                    rules::edits(self.features, list)
                } else {
                    rules::bans(self.features)
                };
                self.each_of(ids, thread, |place| {
                    let bit = 1 << (place % WORD);
                    arch::block_or_u32(self.marks.add((place / WORD) as usize), bit);
                });
                list += 1;
            }
        }
    }

    /// Hands over those of the thread's items of a list that are tokens of the part, counted from
    /// its first.
    #[inline(always)]
    unsafe fn each_of(&self, ids: Ids, thread: u32, mut run: impl FnMut(u32)) {
        let first_id = self.params.sample.first_token + self.begin;
        let mut at = thread;
        while at < ids.n {
            // SAFETY: the list has this item.
            let place = unsafe { ids.get(at) }.wrapping_sub(first_id);
            if place < self.end - self.begin {
                run(place);
            }
            // Saturates: lists may be as long as there are ids.
            at = at.saturating_add(THREADS);
        }
    }

    /// Hands over the thread's tokens, by the row of their weights, and their values; and with them
    /// some that are not admitted, of value `−inf`. All are marked that are listed.
    #[inline(always)]
    pub(super) unsafe fn each(&self, thread: u32, mut run: impl FnMut(u32, f32)) {
        let first_token = self.params.sample.first_token;
        // SAFETY: the caller's promise; a row's memory ends with a whole four.
        unsafe {
            let values = values_of(self.params, self.row);
            let read = |at: u32| {
                if at < self.end {
                    let admitted = rules::mask_admits(self.features, first_token + at, self.last());
                    (values.add(at as usize).cast::<Four>().read(), admitted)
                } else {
                    (Four([f32::NEG_INFINITY; TOGETHER]), 0)
                }
            };
            let mut at = self.begin + FOUR * thread;
            let mut next = read(at);
            while at < self.end {
                let ((Four(own), admitted), own_at) = (next, at);
                at += FOUR * THREADS;
                // On their way while these are looked at.
                next = read(at);
                let there = (1 << core::cmp::min(self.end - own_at, FOUR)) - 1;
                let wanted = admitted & there & !self.marks_of(own_at - self.begin);
                let mut i = 0;
                while i < TOGETHER {
                    let is_wanted = wanted >> i & 1 != 0;
                    run(own_at + i as u32, if is_wanted { own[i] } else { f32::NEG_INFINITY });
                    i += 1;
                }
            }
            // Opaque: one text for both lists.
            let (mut list, lists) = (0, arch::opaque(2));
            while list < lists {
                self.each_of(rules::edits(self.features, list), thread, |place| {
                    let (index, id) = (self.begin + place, first_token + self.begin + place);
                    if rules::comes_from(self.features, list, id) {
                        let y = values.add(index as usize).read();
                        run(index, rules::edit(self.features, id, y));
                    }
                });
                list += 1;
            }
        }
    }

    /// The id of the call's last token.
    #[inline(always)]
    fn last(&self) -> u32 {
        self.params.sample.first_token + self.params.sample.vocab - 1
    }

    /// The marks of four tokens, from one on whose place is a multiple of four.
    #[inline(always)]
    unsafe fn marks_of(&self, place: u32) -> u32 {
        // SAFETY: they are in one word, of the part's.
        unsafe { self.marks.add((place / WORD) as usize).read() >> (place % WORD) }
    }
}
