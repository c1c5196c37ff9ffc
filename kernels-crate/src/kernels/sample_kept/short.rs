//! Rows that were listed: what the sampling kernel left of them is short, and one block
//! finishes it.

use super::crew::{Crew, key};
use super::draw::{from_words, merge, to_words, write};
use super::edit::Edited;
use super::measure::KeptRow;
use super::view::{Part, Values};
use crate::abi::TILE_V;
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

#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Four([f32; 4]);

/// Tokens of a thread that are on their way together.
const TOGETHER: usize = 4;

/// A row's listed tokens, and those of tiles whose values were kept.
#[derive(Clone, Copy)]
struct Shortlist {
    /// `[n]`: rows of the weights.
    indices: *const u32,
    n: u32,
    /// Their values in the same order, or those of all tokens by their index.
    values: *const f32,
    in_order: bool,
    /// Behind the first of `n_tiles`: the index of each tile's first token, which may lie
    /// before the call's first.
    tiles: *const u32,
    n_tiles: u32,
    /// Tokens with lower values do not count.
    floor: f32,
    vocab: u32,
}

impl Values for Shortlist {
    type Part = Self;

    #[inline(always)]
    fn vocab(&self) -> u32 {
        self.vocab
    }

    #[inline(always)]
    fn part<const CLUSTER: u32>(&self, _: &Crew<CLUSTER>) -> Self {
        const { assert!(CLUSTER == 1) }
        *self
    }
}

impl Part for Shortlist {
    #[inline(always)]
    unsafe fn for_each(&self, thread: u32, run: impl FnMut(u32, f32)) {
        // SAFETY: the caller's promise.
        unsafe { self.each::<TOGETHER>(thread, run) }
    }
}

impl Shortlist {
    /// `for_each`, with `N` tokens on their way together, and a text of `run` for each.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn each<const N: usize>(&self, thread: u32, mut run: impl FnMut(u32, f32)) {
        let mut from = thread;
        while from < self.n + self.n_tiles * TILE_V {
            let (mut indices, mut values) = ([0; N], [f32::NEG_INFINITY; N]);
            let mut i = 0;
            while i < N {
                // SAFETY: the caller's promise.
                (indices[i], values[i]) = unsafe { self.token(from + i as u32 * THREADS) };
                i += 1;
            }
            i = 0;
            while i < N {
                run(indices[i], values[i]);
                i += 1;
            }
            from += N as u32 * THREADS;
        }
    }

    /// `for_each` while nothing is in shared memory yet. Of what is in memory as much as a thread
    /// has of a tile a multiprocessor, and of a list of a thousand, is on its way together.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn each_at_once(&self, thread: u32, mut run: impl FnMut(u32, f32)) {
        const FOURS: u32 = TILE_V / 4;
        const FOURS_TOGETHER: usize = 9;
        const TOKENS_TOGETHER: usize = 2;
        let mut run = |index, y| {
            // False for NaN.
            if y >= self.floor {
                run(index, y);
            }
        };
        // Tiles begin a multiple of `TILE_V` from each other, and rows of values are aligned.
        // SAFETY: there is an entry for each tile.
        let aligned = self.n_tiles == 0 || unsafe { self.tiles.read() }.is_multiple_of(4);
        let fours = if aligned { self.n_tiles * FOURS } else { 0 };
        let (mut four_at, mut token_at) = (thread, thread);
        // SAFETY: the caller's promise; indices are checked, and rows of values end with a whole
        // four.
        unsafe {
            while four_at < fours || token_at < self.n {
                let mut firsts = [u32::MAX; FOURS_TOGETHER];
                let mut tokens = [u32::MAX; TOKENS_TOGETHER];
                let mut i = 0;
                while i < FOURS_TOGETHER {
                    let at = four_at + i as u32 * THREADS;
                    if at < fours {
                        let first = self.tiles.sub((at / FOURS) as usize).read();
                        firsts[i] = first.wrapping_add(at % FOURS * 4);
                    }
                    i += 1;
                }
                i = 0;
                while i < TOKENS_TOGETHER {
                    let at = token_at + i as u32 * THREADS;
                    if at < self.n {
                        tokens[i] = self.indices.add(at as usize).read();
                    }
                    i += 1;
                }
                let mut values = [Four([f32::NEG_INFINITY; 4]); FOURS_TOGETHER];
                i = 0;
                while i < FOURS_TOGETHER {
                    if firsts[i] < self.vocab {
                        values[i] = self.values.add(firsts[i] as usize).cast::<Four>().read();
                    }
                    i += 1;
                }
                let mut of_tokens = [f32::NEG_INFINITY; TOKENS_TOGETHER];
                i = 0;
                while i < TOKENS_TOGETHER {
                    if tokens[i] < self.vocab {
                        of_tokens[i] = self.values.add(tokens[i] as usize).read();
                    }
                    i += 1;
                }
                i = 0;
                while i < FOURS_TOGETHER {
                    let Four(four) = values[i];
                    let mut member = 0;
                    while member < 4 {
                        let index = firsts[i].wrapping_add(member as u32);
                        run(index, if index < self.vocab { four[member] } else { f32::NAN });
                        member += 1;
                    }
                    i += 1;
                }
                i = 0;
                while i < TOKENS_TOGETHER {
                    run(tokens[i], of_tokens[i]);
                    i += 1;
                }
                four_at += FOURS_TOGETHER as u32 * THREADS;
                token_at += TOKENS_TOGETHER as u32 * THREADS;
            }
            if !aligned {
                Self { n: 0, ..*self }.each::<1>(thread, run);
            }
        }
    }

    /// The index and value of a token: first come those of the list, then those of the tiles;
    /// `−inf` for one that there is not, or that does not count.
    #[inline(always)]
    unsafe fn token(&self, at: u32) -> (u32, f32) {
        let (mut index, mut y) = (0, f32::NEG_INFINITY);
        // SAFETY: the caller's promise; the index is checked.
        unsafe {
            if at < self.n {
                index = self.indices.add(at as usize).read();
                let place = if self.in_order { at } else { index };
                y = self.values.add(place as usize).read();
            } else if at < self.n + self.n_tiles * TILE_V {
                let at = at - self.n;
                let first = self.tiles.sub((at / TILE_V) as usize).read();
                index = first.wrapping_add(at % TILE_V);
                if index < self.vocab {
                    y = self.values.add(index as usize).read();
                }
            }
        }
        // False for NaN.
        let counts = y >= self.floor;
        (index, if counts { y } else { f32::NEG_INFINITY })
    }
}

/// Whether the sampling kernel listed a row.
#[inline(always)]
pub(super) unsafe fn is_listed(params: &KeptParams, row: u32) -> bool {
    let sample = &params.sample;
    // SAFETY: `row < B`.
    !sample.listed.is_null()
        && unsafe {
            let temperature = sample.temperatures.add(row as usize).read();
            let features = &*sample.features.add(row as usize);
            Filters::new(features, temperature).any() && shortlist::serves(features, temperature)
        }
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
            let mut of_row = KeptRow::new(crew, list, edited);
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
