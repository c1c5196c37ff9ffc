//! From logits to values: transform, rules and penalties, in the order of
//! `docs/design/top-k-top-p.md`. Lists are walked by their items, of which a block takes
//! those of its slice.

use super::crew::Crew;
use super::features;
use super::view::{Slice, TOGETHER, View};
use crate::abi::kept::{RowFeatures, THREADS};
use crate::arch;
use crate::candidate::Key;
use crate::dims::first_from;
use crate::kernels::rules;
use crate::score::token_value;
use crate::status::Status;
use crate::transform::add_bias;

/// What is known of a row's values once they are there.
#[derive(Clone, Copy)]
pub(super) struct Edited {
    /// The highest.
    pub(super) highest: f32,
    /// The lowest above `−inf`, at most that of `+inf`.
    pub(super) lowest: f32,
    pub(super) status: Status,
}

/// Makes the values of the view.
///
/// # Safety
/// All threads of the cluster.
#[inline(always)]
pub(super) unsafe fn load<const CLUSTER: u32>(crew: &mut Crew<CLUSTER>, view: View<'_>) -> Edited {
    let (params, is_raw, slice) = (view.params, view.is_raw(), view.slice(crew));
    let first_id = params.sample.first_token + slice.first;
    // SAFETY: the caller's promise; lists are walked within the slice's ids.
    unsafe {
        // Those of the model are there already if they are in memory of their own.
        if !is_raw || params.slice_in_shared != 0 {
            let features = if is_raw { RowFeatures::NONE } else { features(params, view.row()) };
            if params.slice_in_shared != 0 {
                crew.leg(|thread| copy_logits(view, slice, thread));
            }
            if params.transform.get().changes() {
                let cap = params.transform.cap();
                crew.leg(|thread| {
                    slice.change(thread, |_, x| {
                        params.transform.get().apply_all::<_, false>(x, cap)
                    });
                });
            }
            if !params.raw_values.is_null() {
                let raw = params.raw_values.add(view.values_at(&slice));
                crew.leg(|thread| keep_raw(slice, raw, thread));
            }
            if !features.bitmask.is_null() {
                crew.leg(|thread| mask(slice, first_id, features.bitmask, thread));
            }
            if !features.allow_list.is_null() {
                let allowed = |at: u32| features.allow_list.add(at as usize).read();
                crew.leg(|thread| admit(slice, first_id, features.n_allowed, allowed, thread));
            }
            ban(crew, slice, first_id, &features);
            let bias_last = features.options & RowFeatures::BIAS_LAST != 0;
            // Opaque: one text for each kind of edit.
            let (mut step, steps) = (0, arch::opaque(2));
            while step < steps {
                if (step == 0) != bias_last {
                    add_biases(crew, slice, first_id, &features);
                } else {
                    penalize(crew, slice, first_id, &features);
                }
                step += 1;
            }
        }
        let slice = view.slice(crew);
        let give = |thread| {
            let (mut highest, mut lowest) = (f32::NEG_INFINITY, f32::MAX);
            let mut status = Status::OK;
            slice.for_each_four(thread, |first, values| {
                let (mut is_nan, mut i) = (false, 0);
                while i < TOGETHER {
                    let y = values[i];
                    is_nan |= y.is_nan();
                    // False for NaN.
                    highest = if y > highest { y } else { highest };
                    let lower = (y > f32::NEG_INFINITY) & (y < lowest);
                    lowest = if lower { y } else { lowest };
                    i += 1;
                }
                if is_nan {
                    let admitted = values.map(|y| token_value(y, 0.0, &mut status));
                    slice.write_four(first - slice.first, admitted);
                }
            });
            token_value(highest, 0.0, &mut status);
            // Any token will do: only the order of values counts.
            [
                Key::of_value(highest, 0).bits(),
                !Key::of_value(lowest, 0).bits(),
                status.bits() as u64,
            ]
        };
        let [highest, lowest, status] = crew.reduce(give, greatest);
        Edited {
            highest: Key::from_bits(highest).score(),
            lowest: Key::from_bits(!lowest).score(),
            status: Status::from_bits(status as u32),
        }
    }
}

/// The greater of the first two words, all bits of the third.
#[inline(always)]
fn greatest(a: [u64; 3], b: [u64; 3]) -> [u64; 3] {
    [core::cmp::max(a[0], b[0]), core::cmp::max(a[1], b[1]), a[2] | b[2]]
}

/// Leg: brings the slice's logits to shared memory.
#[inline(always)]
unsafe fn copy_logits(view: View<'_>, slice: Slice, thread: u32) {
    // SAFETY: the row has these values, and its stride is a multiple of four; so is the room
    // for the slice.
    unsafe {
        let logits = view.params.sample.values.add(view.values_at(&slice));
        if logits.addr().is_multiple_of(16) {
            let mut at = 4 * thread;
            while at < slice.len {
                let at_once = at as usize;
                arch::copy_to_block::<16>(slice.values.add(at_once), logits.add(at_once));
                at += 4 * THREADS;
            }
        } else {
            let mut at = thread;
            while at < slice.len {
                let alone = at as usize;
                arch::copy_to_block::<4>(slice.values.add(alone), logits.add(alone));
                at += THREADS;
            }
        }
        arch::copies_wait();
    }
}

/// Leg: bans what of the thread's tokens a list of `n` ids does not admit.
#[inline(always)]
unsafe fn admit(slice: Slice, first_id: u32, n: u32, id: impl Fn(u32) -> u32 + Copy, thread: u32) {
    let mut at = thread;
    while at < slice.len {
        let place = first_from(n, first_id + at, id);
        if place >= n || id(place) != first_id + at {
            // SAFETY: it is one of the slice's.
            unsafe { slice.values.add(at as usize).write(f32::NEG_INFINITY) };
        }
        at += THREADS;
    }
}

/// Leg: bans what of the thread's tokens the mask does not admit. Eight words are on their way
/// together.
#[inline(always)]
unsafe fn mask(slice: Slice, first_id: u32, words: *const u32, thread: u32) {
    const TOGETHER: usize = 8;
    let mut from = thread;
    while from < slice.len {
        let at = |i: usize| from + i as u32 * THREADS;
        let mut bits = [0; TOGETHER];
        // SAFETY: there is a word for each of the slice's ids.
        unsafe {
            let mut i = 0;
            while i < TOGETHER {
                let id = first_id + core::cmp::min(at(i), slice.len - 1);
                bits[i] = words.add((id / u32::BITS) as usize).read() >> (id % u32::BITS) & 1;
                i += 1;
            }
            i = 0;
            while i < TOGETHER {
                if at(i) < slice.len && bits[i] == 0 {
                    slice.values.add(at(i) as usize).write(f32::NEG_INFINITY);
                }
                i += 1;
            }
        }
        from += TOGETHER as u32 * THREADS;
    }
}

/// Leg: keeps the thread's logits as the model means them.
#[inline(always)]
unsafe fn keep_raw(slice: Slice, raw: *mut f32, thread: u32) {
    // SAFETY: `raw` has a place for each of the slice's.
    unsafe {
        slice.for_each(thread, |index, x| {
            let at = index - slice.first;
            if at < slice.len {
                raw.add(at as usize).write(if x.is_nan() { f32::NEG_INFINITY } else { x });
            }
        });
    }
}

/// Bans the tokens of the ban-list.
#[inline(always)]
unsafe fn ban<const CLUSTER: u32>(
    crew: &Crew<CLUSTER>,
    slice: Slice,
    first_id: u32,
    features: &RowFeatures,
) {
    let list = features.ban_list;
    // SAFETY: the list has these items.
    let id = |at: u32| unsafe { list.add(at as usize).read() };
    // SAFETY: the caller's promise.
    unsafe { each_listed(crew, slice, first_id, features.n_banned, id, |_, _| f32::NEG_INFINITY) }
}

/// Adds biases.
#[inline(always)]
unsafe fn add_biases<const CLUSTER: u32>(
    crew: &Crew<CLUSTER>,
    slice: Slice,
    first_id: u32,
    features: &RowFeatures,
) {
    let list = features.logit_bias;
    // SAFETY: the list has these items.
    let item = |at: u32| unsafe { list.add(at as usize) };
    // SAFETY: the same; the caller's promise.
    unsafe {
        let id = |at| (*item(at)).token;
        let edit = |at, y| add_bias(y, (*item(at)).bias);
        each_listed(crew, slice, first_id, features.n_logit_bias, id, edit);
    }
}

/// Applies penalties.
#[inline(always)]
unsafe fn penalize<const CLUSTER: u32>(
    crew: &Crew<CLUSTER>,
    slice: Slice,
    first_id: u32,
    features: &RowFeatures,
) {
    let (list, penalties) = (features.seen, rules::penalties(features));
    let counts_first = features.options & RowFeatures::BIAS_LAST != 0;
    // SAFETY: the list has these items.
    let item = |at: u32| unsafe { list.add(at as usize) };
    // SAFETY: the same; the caller's promise.
    unsafe {
        let id = |at| (*item(at)).token;
        let edit = |at, y| penalties.apply(y, (*item(at)).count, counts_first);
        each_listed(crew, slice, first_id, features.n_seen, id, edit);
    }
}

/// Leg: changes the values of a list's tokens that the slice has. All are looked at: to search
/// for the first would take more reads, each of which waits for the one before.
#[inline(always)]
unsafe fn each_listed<const CLUSTER: u32>(
    crew: &Crew<CLUSTER>,
    slice: Slice,
    first_id: u32,
    n: u32,
    id: impl Fn(u32) -> u32,
    edit: impl Fn(u32, f32) -> f32,
) {
    if n == 0 {
        return;
    }
    crew.leg(|thread| {
        let mut at = thread;
        while at < n {
            let place = id(at).wrapping_sub(first_id);
            if place < slice.len {
                // SAFETY: it is one of the slice's; ids are distinct.
                unsafe {
                    let value = slice.values.add(place as usize);
                    value.write(edit(at, value.read()));
                }
            }
            // Saturates: lists may be as long as there are ids.
            at = at.saturating_add(THREADS);
        }
    });
}
