//! Where on a ladder a running sum reaches a goal, as all threads of a block find it.

use super::crew::Crew;
use super::histogram::Histogram;
use crate::candidate::Key;
use crate::scale::{RUNGS, Scale};

/// The rung or piece on which the running sum reaches `goal`, and what is left of it there;
/// [`RUNGS`] if none is.
///
/// # Safety
/// All threads of the block; the histogram is filled.
#[inline(always)]
pub(super) unsafe fn find_place<const CLUSTER: u32>(
    crew: &Crew<CLUSTER>,
    histogram: *const Histogram,
    by_mass: bool,
    goal: u64,
) -> (u32, u64) {
    // SAFETY: a thread has a rung; legs part what is written from what is read.
    unsafe {
        let found = &raw mut (*crew.shared).place;
        crew.leg(|thread| {
            if thread == 0 {
                found.write((RUNGS, 0));
            }
        });
        let give = |thread: u32| {
            let (mass, count) = Histogram::read(histogram, thread);
            if by_mass { mass } else { count as u64 }
        };
        crew.scan(give, |thread, before, own| {
            if before < goal && goal <= before + own {
                found.write((thread, goal - before));
            }
        });
        found.read()
    }
}

/// Of the `n` gathered keys the one with which the running sum reaches `goal`, and the
/// mass down to it.
///
/// # Safety
/// All threads of the block; so many keys were gathered, at most as many as there are threads, and
/// one of them reaches it.
#[inline(always)]
pub(super) unsafe fn find_key<const CLUSTER: u32>(
    crew: &Crew<CLUSTER>,
    scale: Scale,
    n: u32,
    by_mass: bool,
    goal: u64,
) -> (Key, u64) {
    // SAFETY: the caller's promise; legs part what is written from what is read.
    unsafe {
        let shared = crew.shared;
        let keys = (&raw const (*shared).gathered.keys).cast::<Key>();
        let masses = (&raw mut (*shared).masses).cast::<u64>();
        crew.leg(|thread| {
            if thread < n {
                let y = keys.add(thread as usize).read().score();
                masses.add(thread as usize).write(scale.mass(scale.capped_gap(y)));
            }
        });
        crew.leg(|thread| {
            if thread >= n {
                return;
            }
            let key = keys.add(thread as usize).read();
            let own = if by_mass { masses.add(thread as usize).read() } else { 1 };
            let (mut count, mut mass, mut i) = (0, 0, 0);
            while i < n {
                let is_kept = keys.add(i as usize).read() >= key;
                count += is_kept as u64;
                mass += if is_kept { masses.add(i as usize).read() } else { 0 };
                i += 1;
            }
            let reached = if by_mass { mass } else { count };
            if reached >= goal && reached - own < goal {
                (&raw mut (*shared).cut).write((key, mass));
            }
        });
        (&raw const (*shared).cut).read()
    }
}
