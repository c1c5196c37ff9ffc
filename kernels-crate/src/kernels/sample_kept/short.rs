//! Rows that were listed: what the sampling kernel left of them is short, and one block
//! finishes it.

use super::crew::{Crew, key};
use super::draw::{from_words, merge, to_words, write};
use super::edit::Edited;
use super::ranked::Ranked;
use super::shortlist::Shortlist;
use crate::abi::kept::{KeptParams, RowFeatures, THREADS, values_stride};
use crate::arch;
use crate::candidate::{Key, Leaders};
use crate::dims::{offset, output_index};
use crate::filters::{Filters, keeps};
use crate::kernels::sample_simt::row_params;
use crate::philox::Subkey;
use crate::score::{RowParams, offer_token};
use crate::shortlist::{self, BINS, Tally};
use crate::status::Status;

/// Whether the sampling kernel listed a row.
#[inline(always)]
pub(super) unsafe fn is_listed(params: &KeptParams, row: u32) -> bool {
    let (sample, row) = (&params.sample, row as usize);
    if sample.listed.is_null() {
        return false;
    }
    // SAFETY: `row < B`.
    unsafe { shortlist::serves(&*sample.features.add(row), sample.temperatures.add(row).read()) }
}

/// What is read of a row before anything else: each of these is most of a microsecond away, and
/// so they are on their way together.
#[derive(Clone, Copy)]
pub(super) struct Known {
    params: RowParams,
    /// What the sampling kernel saw in the row.
    seen: Status,
    highest: u64,
    n_tokens: u32,
    n_tiles: u32,
}

impl Known {
    /// # Safety
    /// The module's preconditions; `row < B`, and there are tallies.
    #[inline(always)]
    pub(super) unsafe fn read(params: &KeptParams, row: u32) -> Self {
        let sample = &params.sample;
        // SAFETY: the caller's promise.
        unsafe {
            let tally = sample.tallies.add(row as usize);
            let highest = arch::load_shared_u64(&raw const (*tally).highest);
            let n_tokens = arch::load_shared_u32(&raw const (*tally).n_tokens);
            let n_tiles = arch::load_shared_u32(&raw const (*tally).n_tiles);
            let first_output = output_index(row, sample.draws, 0) as usize;
            let seen = arch::load_shared_u32(sample.status.add(first_output));
            let params = row_params(sample, row);
            // The sampling kernel has drawn none.
            let seen = Status::from_bits(seen & !Status::NO_CANDIDATE.bits());
            Self { params, seen, highest, n_tokens, n_tiles }
        }
    }
}

/// Finishes a listed row, and clears its tally.
///
/// # Safety
/// All threads of the block; the module's preconditions; `room` is the block's own, for as many
/// tokens; `known` was read of the row.
#[inline(always)]
pub(super) unsafe fn finish_row(
    params: &KeptParams,
    crew: &mut Crew<1>,
    room: (*mut f32, u32),
    row: u32,
    known: Known,
) {
    let sample = &params.sample;
    let RowParams { temperature, key } = known.params;
    // SAFETY: the caller's promise; `row < B`.
    unsafe {
        let features = sample.features.add(row as usize);
        let list = all_of(params, known, &*features, row);
        let list = gather(crew, list, room);
        let edited = measure(crew, list, known.seen);
        let mut last = Key::NONE;
        if edited.highest.is_finite() {
            let mut of_row = Ranked::new(crew, list, edited.highest);
            last = Filters::new(&*features, temperature).last_of(&mut of_row);
        }
        let mut draw = 0;
        while draw < sample.draws {
            let subkey = Subkey::new(key, draw);
            let give = |thread| {
                let mut leaders = Leaders::NONE;
                list.each::<1>(thread, |index, y| {
                    if y > f32::NEG_INFINITY && keeps(last)(index, y) {
                        let token = sample.first_token.wrapping_add(index);
                        offer_token(y, token, temperature, subkey.opaque(), &mut leaders);
                    }
                });
                to_words(leaders)
            };
            let leaders = from_words(crew.reduce_block(give, merge));
            crew.leg(|thread| {
                if thread == 0 {
                    let at = output_index(row, sample.draws, draw);
                    write(params, at, leaders, edited.status);
                }
            });
            draw += 1;
        }
        crew.leg(|thread| clear(sample.tallies.add(row as usize), thread));
    }
}

/// What the sampling kernel left of a row.
#[inline(always)]
unsafe fn all_of(params: &KeptParams, known: Known, features: &RowFeatures, row: u32) -> Shortlist {
    let sample = &params.sample;
    let stride = values_stride(sample.vocab);
    // SAFETY: the caller's promise.
    unsafe {
        let tally = sample.tallies.add(row as usize);
        let highest = shortlist::of_height(known.highest);
        let temperature = known.params.temperature;
        let floor = shortlist::floor(features, temperature, tally, highest, |at| at.read());
        Shortlist {
            indices: sample.listed.add(offset(row, stride, 0) as usize),
            n: known.n_tokens,
            values: sample.values.add(offset(row, stride, 0) as usize),
            in_order: false,
            tiles: sample.listed.add((offset(row, stride, 0) + stride - 1) as usize),
            n_tiles: known.n_tiles,
            floor,
            vocab: sample.vocab,
        }
    }
}

/// The tokens that count, in shared memory if there is room for them.
#[inline(always)]
unsafe fn gather(crew: &Crew<1>, list: Shortlist, room: (*mut f32, u32)) -> Shortlist {
    let (room, most) = room;
    if most == 0 {
        return list;
    }
    // SAFETY: there is room for as many indices and values; legs part what is written from what
    // is read.
    unsafe {
        let indices: *mut u32 = room.cast();
        let values = room.add(most as usize);
        let n = &raw mut (*crew.shared).n_keys;
        crew.leg(|thread| {
            if thread == 0 {
                n.write(0);
            }
        });
        crew.leg(|thread| {
            list.each_at_once(thread, |index: u32, y: f32| {
                if y > f32::NEG_INFINITY {
                    let at = arch::block_add_u32(n, 1);
                    if at < most {
                        indices.add(at as usize).write(index);
                        values.add(at as usize).write(y);
                    }
                }
            });
        });
        let found = n.read();
        if found > most {
            return list;
        }
        Shortlist { indices, n: found, values, in_order: true, n_tiles: 0, ..list }
    }
}

/// The ends of the list.
#[inline(always)]
unsafe fn measure(crew: &mut Crew<1>, list: Shortlist, status: Status) -> Edited {
    let greater =
        |a: [u64; 2], b: [u64; 2]| [core::cmp::max(a[0], b[0]), core::cmp::max(a[1], b[1])];
    // SAFETY: the caller's promise.
    unsafe {
        let give = |thread| {
            let (mut highest, mut lowest) = (f32::NEG_INFINITY, f32::MAX);
            list.for_each(thread, |_, y| {
                highest = if y > highest { y } else { highest };
                let lower = (y > f32::NEG_INFINITY) & (y < lowest);
                lowest = if lower { y } else { lowest };
            });
            [key(0, highest).bits(), !key(0, lowest).bits()]
        };
        let [highest, lowest] = crew.reduce_block(give, greater);
        let (highest, lowest) = (Key::from_bits(highest), Key::from_bits(!lowest));
        Edited { highest: highest.score(), lowest: lowest.score(), status }
    }
}

/// Leg: makes a tally all zero again.
#[inline(always)]
unsafe fn clear(tally: *mut Tally, thread: u32) {
    // SAFETY: nobody reads it any more; bins are below their number.
    unsafe {
        if thread == 0 {
            (&raw mut (*tally).highest).write(0);
            (&raw mut (*tally).n_tokens).write(0);
            (&raw mut (*tally).n_tiles).write(0);
        }
        let bins = (&raw mut (*tally).bins).cast::<u32>();
        let mut bin = thread;
        while bin < BINS {
            bins.add(bin as usize).write(0);
            bin += THREADS;
        }
    }
}
