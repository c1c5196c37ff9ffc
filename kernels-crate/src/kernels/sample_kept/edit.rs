//! From logits to values: transform, rules and penalties, in the order of
//! `docs/design/top-k-top-p.md`. Lists are walked by their items, of which a block takes
//! those of its slice.

use super::crew::{Crew, key};
use super::view::{Slice, View};
use super::{features, penalties, transform};
use crate::abi::kept::{RowFeatures, THREADS};
use crate::arch;
use crate::candidate::Key;
use crate::score::token_value;
use crate::status::Status;
use crate::transform::{LogitTransform, add_bias};

/// What is known of a row's values once they are there.
#[derive(Clone, Copy)]
pub(super) struct Edited {
    /// The highest.
    pub(super) highest: f32,
    /// The lowest above `−inf`, at most that of `+inf`.
    pub(super) lowest: f32,
    pub(super) status: Status,
}

/// Global ids `begin .. end`.
#[derive(Clone, Copy)]
struct Ids {
    begin: u32,
    end: u32,
}

/// Makes the values of the view.
///
/// # Safety
/// All threads of the cluster.
#[inline(always)]
pub(super) unsafe fn load<const CLUSTER: u32>(crew: &mut Crew<CLUSTER>, view: View<'_>) -> Edited {
    let (params, is_raw, slice) = (view.params, view.is_raw(), view.slice(crew));
    let first_id = params.sample.first_token + slice.first;
    let ids = Ids { begin: first_id, end: first_id + slice.len };
    // SAFETY: the caller's promise; lists are walked within the slice's ids.
    unsafe {
        // Those of the model are there already if they are in memory of their own.
        if !is_raw || params.slice_in_shared != 0 {
            let features = if is_raw { RowFeatures::NONE } else { features(params, view.row()) };
            if params.slice_in_shared != 0 {
                crew.leg(|thread| copy_logits(view, slice, thread));
            }
            let bans = !features.bitmask.is_null() || !features.allow_list.is_null();
            let changes = bans || transform(params) != LogitTransform::NONE;
            if changes || !params.raw_values.is_null() {
                crew.leg(|thread| change_logits(view, &features, slice, ids, thread));
            }
            ban(crew, slice, ids, &features);
            let bias_last = features.options & RowFeatures::BIAS_LAST != 0;
            // Opaque: one text for each kind of edit.
            let (mut step, steps) = (0, arch::opaque(2));
            while step < steps {
                if (step == 0) != bias_last {
                    add_biases(crew, slice, ids, &features);
                } else {
                    penalize(crew, slice, ids, &features);
                }
                step += 1;
            }
        }
        let slice = view.slice(crew);
        let give = |thread| {
            let (mut highest, mut lowest) = (f32::NEG_INFINITY, f32::MAX);
            let mut status = Status::OK;
            slice.for_each(thread, |index, y| {
                if y.is_nan() {
                    let value = token_value(y, 0.0, &mut status);
                    slice.values.add((index - slice.first) as usize).write(value);
                }
                // False for NaN.
                highest = if y > highest { y } else { highest };
                let lower = (y > f32::NEG_INFINITY) & (y < lowest);
                lowest = if lower { y } else { lowest };
            });
            token_value(highest, 0.0, &mut status);
            // Any token will do: only the order of values counts.
            [key(0, highest).bits(), !key(0, lowest).bits(), status.bits() as u64]
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

/// Leg: transforms the thread's logits, and bans what bitmask and allow-list do not admit.
#[inline(always)]
unsafe fn change_logits(
    view: View<'_>,
    features: &RowFeatures,
    slice: Slice,
    ids: Ids,
    thread: u32,
) {
    let (params, transform) = (view.params, transform(view.params));
    let raw = params.raw_values.wrapping_add(view.values_at(&slice));
    // SAFETY: the row has these values; bitmasks have a word for each id.
    unsafe {
        slice.for_each(thread, |index, x| {
            let at = index - slice.first;
            if at >= slice.len {
                return;
            }
            let x = transform.apply(x);
            if !params.raw_values.is_null() {
                raw.add(at as usize).write(if x.is_nan() { f32::NEG_INFINITY } else { x });
            }
            let id = ids.begin + at;
            let mut admitted = true;
            if !features.bitmask.is_null() {
                let word = features.bitmask.add((id / u32::BITS) as usize).read();
                admitted = word >> (id % u32::BITS) & 1 != 0;
            }
            if !features.allow_list.is_null() {
                let allowed = |at: u32| features.allow_list.add(at as usize).read();
                let at = first_from(features.n_allowed, id, allowed);
                admitted &= at < features.n_allowed && allowed(at) == id;
            }
            slice.values.add(at as usize).write(if admitted { x } else { f32::NEG_INFINITY });
        });
    }
}

/// Bans the tokens of the ban-list.
#[inline(always)]
unsafe fn ban<const CLUSTER: u32>(
    crew: &Crew<CLUSTER>,
    slice: Slice,
    ids: Ids,
    features: &RowFeatures,
) {
    let list = features.ban_list;
    // SAFETY: the list has these items.
    let id = |at: u32| unsafe { list.add(at as usize).read() };
    // SAFETY: the caller's promise.
    unsafe { each_listed(crew, slice, ids, features.n_banned, id, |_, _| f32::NEG_INFINITY) }
}

/// Adds biases.
#[inline(always)]
unsafe fn add_biases<const CLUSTER: u32>(
    crew: &Crew<CLUSTER>,
    slice: Slice,
    ids: Ids,
    features: &RowFeatures,
) {
    let list = features.logit_bias;
    // SAFETY: the list has these items.
    let item = |at: u32| unsafe { list.add(at as usize) };
    // SAFETY: the same; the caller's promise.
    unsafe {
        let id = |at| (*item(at)).token;
        let edit = |at, y| add_bias(y, (*item(at)).bias);
        each_listed(crew, slice, ids, features.n_logit_bias, id, edit);
    }
}

/// Applies penalties.
#[inline(always)]
unsafe fn penalize<const CLUSTER: u32>(
    crew: &Crew<CLUSTER>,
    slice: Slice,
    ids: Ids,
    features: &RowFeatures,
) {
    let (list, penalties) = (features.seen, penalties(features));
    let counts_first = features.options & RowFeatures::BIAS_LAST != 0;
    // SAFETY: the list has these items.
    let item = |at: u32| unsafe { list.add(at as usize) };
    // SAFETY: the same; the caller's promise.
    unsafe {
        let id = |at| (*item(at)).token;
        let edit = |at, y| penalties.apply(y, (*item(at)).count, counts_first);
        each_listed(crew, slice, ids, features.n_seen, id, edit);
    }
}

/// Leg: changes the values of a list's tokens that the slice has.
#[inline(always)]
unsafe fn each_listed<const CLUSTER: u32>(
    crew: &Crew<CLUSTER>,
    slice: Slice,
    ids: Ids,
    n: u32,
    id: impl Fn(u32) -> u32,
    edit: impl Fn(u32, f32) -> f32,
) {
    if n == 0 {
        return;
    }
    let (from, to) = (first_from(n, ids.begin, &id), first_from(n, ids.end, &id));
    crew.leg(|thread| {
        let mut at = from + thread;
        while at < to {
            // SAFETY: the id is one of the slice's; ids are distinct.
            unsafe {
                let value = slice.values.add((id(at) - ids.begin) as usize);
                value.write(edit(at, value.read()));
            }
            at += THREADS;
        }
    });
}

/// The first of `n` items, in ascending order of their ids, with an id from `least` on.
#[inline(always)]
fn first_from(n: u32, least: u32, id: impl Fn(u32) -> u32) -> u32 {
    let (mut from, mut to) = (0, n);
    while from < to {
        let middle = from + (to - from) / 2;
        if id(middle) < least {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    from
}
