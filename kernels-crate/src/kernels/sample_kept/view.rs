//! One row, as it is looked at: edited or raw, and which part of it is a block's.

use super::crew::Crew;
use crate::abi::kept::{KeptParams, ReportParams, THREADS, values_stride};
use crate::abi::{TILE_V, n_tiles_v};
use crate::arch;
use crate::dims::{ceil_div, offset};
use crate::partial_sum::greater;
use crate::philox::GROUP;

/// Opaque at each use: what follows would be computed ahead, and cost registers until then.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) params: &'a KeptParams,
    /// The block's, if slices are in shared memory.
    pub(super) shared_slice: *mut f32,
    row: u32,
    /// 1 for the model's distribution, 0 for the row's own.
    is_raw: u32,
}

/// Values of a thread that are on their way together.
pub(super) const TOGETHER: usize = 4;

/// As one read brings them.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct Four(pub(super) [f32; TOGETHER]);

/// A block's part of a row's tokens: whole tiles, as far as the call has them.
#[derive(Clone, Copy)]
pub(super) struct Slice {
    /// Their values.
    pub(super) values: *mut f32,
    /// Row of the weights of the first.
    pub(super) first: u32,
    /// How many there are.
    pub(super) len: u32,
    /// Global id of the first of its tiles' tokens, a multiple of `TILE_V`.
    pub(super) tile_token: u32,
    pub(super) tiles: u32,
}

impl<'a> View<'a> {
    /// That of a row as it is edited.
    #[inline(always)]
    pub(super) fn edited(params: &'a KeptParams, shared_slice: *mut f32, row: u32) -> Self {
        Self { params, shared_slice, row, is_raw: 0 }
    }

    /// The row as it was before.
    #[inline(always)]
    pub(super) fn raw(self) -> Self {
        Self { is_raw: 1, ..self }
    }

    #[inline(always)]
    pub(super) fn is_raw(&self) -> bool {
        arch::opaque(self.is_raw) != 0
    }

    #[inline(always)]
    pub(super) fn row(&self) -> u32 {
        arch::opaque(self.row)
    }

    /// Tokens of the row.
    #[inline(always)]
    pub(super) fn vocab(&self) -> u32 {
        arch::opaque(self.params.sample.vocab)
    }

    /// The row's temperature.
    #[inline(always)]
    pub(super) fn temperature(&self) -> f32 {
        // SAFETY: `row < B`.
        unsafe { self.params.sample.temperatures.add(self.row() as usize).read() }
    }

    /// What is wanted of this distribution. By value: a choice of references would be one of
    /// addresses of the kernel's parameters.
    #[inline(always)]
    pub(super) fn report(&self) -> ReportParams {
        let (raw, processed) = (self.params.raw, self.params.processed);
        if self.is_raw() { raw } else { processed }
    }

    /// Index of the first of the row's values, in a buffer of all rows.
    #[inline(always)]
    pub(super) fn values_at(&self, slice: &Slice) -> usize {
        offset(self.row(), values_stride(self.vocab()), slice.first) as usize
    }

    /// The block's slice.
    #[inline(always)]
    pub(super) fn slice<const CLUSTER: u32>(&self, crew: &Crew<CLUSTER>) -> Slice {
        let params = self.params;
        let (first_token, vocab) = (arch::opaque(params.sample.first_token), self.vocab());
        let n_tiles = n_tiles_v(first_token, vocab);
        let share = ceil_div(n_tiles as u64, CLUSTER as u64) as u32;
        let from = core::cmp::min(arch::opaque(crew.rank()) * share, n_tiles);
        let to = core::cmp::min(from + share, n_tiles);
        let lead = (first_token % TILE_V) as u64;
        let place = |tile: u32| {
            let tokens = (tile as u64 * TILE_V as u64).saturating_sub(lead);
            core::cmp::min(tokens, vocab as u64) as u32
        };
        let (first, end) = (place(from), place(to));
        let tile_token = (first_token / TILE_V).wrapping_add(from).wrapping_mul(TILE_V);
        let (values, len, tiles) = (self.shared_slice, end - first, to - from);
        let mut slice = Slice { values, first, len, tile_token, tiles };
        if params.slice_in_shared == 0 {
            let all = if self.is_raw() { params.raw_values } else { params.sample.values };
            slice.values = all.wrapping_add(self.values_at(&slice));
        }
        slice
    }
}

impl Slice {
    /// Hands over the thread's tokens, by the row of their weights, and their values, and with
    /// them some that there are not, of value `−inf`.
    ///
    /// # Safety
    /// The values are there, and no other thread writes the thread's own meanwhile.
    #[inline(always)]
    pub(super) unsafe fn for_each(&self, thread: u32, mut run: impl FnMut(u32, f32)) {
        let each = |first: u32, values: [f32; TOGETHER]| {
            let mut i = 0;
            while i < TOGETHER {
                run(first + i as u32, values[i]);
                i += 1;
            }
        };
        // SAFETY: the caller's promise.
        unsafe { self.for_each_four(thread, each) }
    }

    /// The same, four tokens in a row at a time, by the first.
    ///
    /// # Safety
    /// As [`Self::for_each`].
    #[inline(always)]
    pub(super) unsafe fn for_each_four(
        &self,
        thread: u32,
        mut run: impl FnMut(u32, [f32; TOGETHER]),
    ) {
        let mut at = TOGETHER as u32 * thread;
        while at < self.len {
            // SAFETY: the caller's promise.
            run(self.first + at, unsafe { self.four(at) });
            at += TOGETHER as u32 * THREADS;
        }
    }

    /// The values from `at` on, `−inf` where the slice has ended.
    #[inline(always)]
    unsafe fn four(&self, at: u32) -> [f32; TOGETHER] {
        let from = self.values.wrapping_add(at as usize);
        let mut values = [f32::NEG_INFINITY; TOGETHER];
        // SAFETY: they are the slice's.
        unsafe {
            if self.len - at >= TOGETHER as u32 && from.addr().is_multiple_of(size_of::<Four>()) {
                return from.cast::<Four>().read().0;
            }
            let mut i = 0;
            while i < TOGETHER {
                if at + (i as u32) < self.len {
                    values[i] = from.add(i).read();
                }
                i += 1;
            }
        }
        values
    }

    /// Changes the thread's values, four in a row at a time, by the place of the first in the
    /// slice.
    ///
    /// # Safety
    /// As [`Self::for_each`].
    #[inline(always)]
    pub(super) unsafe fn change(
        &self,
        thread: u32,
        mut to: impl FnMut(u32, [f32; TOGETHER]) -> [f32; TOGETHER],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            self.for_each_four(thread, |first, values| {
                let at = first - self.first;
                self.write_four(at, to(at, values));
            });
        }
    }

    /// Writes the values from `at` on, as far as the slice goes.
    ///
    /// # Safety
    /// They are the thread's own.
    #[inline(always)]
    pub(super) unsafe fn write_four(&self, at: u32, values: [f32; TOGETHER]) {
        let from = self.values.wrapping_add(at as usize);
        // SAFETY: they are the slice's.
        unsafe {
            if self.len - at >= TOGETHER as u32 && from.addr().is_multiple_of(size_of::<Four>()) {
                from.cast::<Four>().write(Four(values));
                return;
            }
            let mut i = 0;
            while i < TOGETHER {
                if at + (i as u32) < self.len {
                    from.add(i).write(values[i]);
                }
                i += 1;
            }
        }
    }

    /// Index in the slice of the first token of group `group`, if all of them lie in it, and
    /// at an address that allows to read four at once.
    #[inline(always)]
    pub(super) fn whole_group(&self, first_token: u32, group: u32) -> Option<u32> {
        let lead = (first_token + self.first).wrapping_sub(self.tile_token);
        let at = group * GROUP;
        let aligned = lead == 0 && self.values.addr().is_multiple_of(16);
        (aligned && at + GROUP <= self.len).then_some(at)
    }

    /// The greatest of the values of such a group. Threads begin at different fours, so that
    /// a warp's reads are spread over the banks.
    ///
    /// # Safety
    /// `at` is what [`Self::whole_group`] told.
    #[inline(always)]
    pub(super) unsafe fn highest_of_group(&self, at: u32, thread: u32) -> f32 {
        const FOURS: u32 = GROUP / 4;
        let mut highest = f32::NEG_INFINITY;
        let mut i = 0;
        while i < FOURS {
            let four = at + (thread / 2 + i) % FOURS * 4;
            // SAFETY: the caller's promise.
            let Four([a, b, c, d]) =
                unsafe { self.values.add(four as usize).cast::<Four>().read() };
            highest = greater(highest, greater(greater(a, b), greater(c, d)));
            i += 1;
        }
        highest
    }
}
