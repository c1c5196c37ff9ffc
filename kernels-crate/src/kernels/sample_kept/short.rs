//! Rows that were listed: what the sampling kernel left of them is short, and one block
//! finishes it.

use super::THREADS_LEN;
use super::crew::Crew;
use super::draw::{from_words, merge, seen, to_words, write};
use super::gather::gather;
use super::halved::Halved;
use super::ranked::Ranked;
use super::shortlist::Shortlist;
use crate::abi::TILE_V;
use crate::abi::kept::{KeptParams, RowFeatures, THREADS, values_stride};
use crate::arch;
use crate::candidate::{Key, Leaders};
use crate::dims::{offset, output_index};
use crate::filters::Filters;
use crate::kernels::sample_simt::row_params;
use crate::philox::Subkey;
use crate::score::{RowParams, offer_token};
use crate::shortlist::{self, BINS, Tally};
use crate::status::Status;

const BINS_OF_A_THREAD: usize = BINS as usize / THREADS_LEN;

const _: () = assert!(BINS.is_multiple_of(THREADS));

/// What is read of a row before anything else, and the counts of its tally: each of these is most
/// of a microsecond away, and so they are on their way together.
#[derive(Clone, Copy)]
pub(super) struct Known {
    features: RowFeatures,
    params: RowParams,
    /// What the sampling kernel saw in the row.
    seen: Status,
    highest: u64,
    n_tokens: u32,
    n_tiles: u32,
}

impl Known {
    /// Takes what is known of a row. If it was not listed, its tally is all zero.
    ///
    /// # Safety
    /// All threads of the block; the module's preconditions; `row < B`, and there are tallies.
    #[inline(always)]
    pub(super) unsafe fn take(params: &KeptParams, crew: &Crew<1>, row: u32) -> Self {
        let sample = &params.sample;
        // SAFETY: the caller's promise.
        unsafe {
            let tally = sample.tallies.add(row as usize);
            let highest = arch::load_shared_u64(&raw const (*tally).highest);
            let n_tokens = arch::load_shared_u32(&raw const (*tally).n_tokens);
            let n_tiles = arch::load_shared_u32(&raw const (*tally).n_tiles);
            let seen = seen(params, row);
            let features = sample.features.add(row as usize).read();
            let params = row_params(sample, row);
            let short = &raw mut (*crew.shared).short;
            crew.leg(|thread| take_counts(tally, short, thread));
            Self { features, params, seen, highest, n_tokens, n_tiles }
        }
    }

    /// Whether the sampling kernel listed the row.
    #[inline(always)]
    pub(super) fn is_listed(&self) -> bool {
        shortlist::serves(&self.features, self.params.temperature)
    }
}

/// Counts that are read together.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Four([u32; 4]);

/// What a block has of a listed row.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct ShortRow {
    /// The tally's.
    bins: [u32; BINS as usize],
    /// Keys of tokens that count, in any order, as far as there are places; none behind them.
    pub(super) found: [Key; THREADS_LEN],
    /// The same, the likeliest first.
    pub(super) ranked: [Key; THREADS_LEN],
    /// The mass down to each.
    pub(super) masses: [u64; THREADS_LEN],
    /// Tiles that have a token that counts.
    pub(super) tiles: [u32; THREADS_LEN],
    pub(super) n_found: u32,
    pub(super) n_tiles: u32,
}

/// Finishes a listed row, and leaves its tally all zero.
///
/// # Safety
/// All threads of the block; the module's preconditions; `room` is the block's own, for as many
/// values; `known` was taken of the row, which is listed.
#[inline(always)]
pub(super) unsafe fn finish_row(
    params: &KeptParams,
    crew: &Crew<1>,
    room: (*mut f32, u32),
    row: u32,
    known: Known,
) {
    let sample = &params.sample;
    let RowParams { temperature, key } = known.params;
    // SAFETY: the caller's promise; `row < B`.
    unsafe {
        let short = &raw const (*crew.shared).short;
        let list = lists_of(params, &known, row, short);
        let tokens = gather(crew, list, for_keys(room));
        let highest = shortlist::of_height(known.highest);
        let mut last = Key::NONE;
        if highest.is_finite() {
            let filters = Filters::new(&known.features, temperature);
            last = if tokens.n <= THREADS && !tokens.keys.is_null() {
                // Rows that ask how far they spread are not listed.
                let ends = (highest, 0.0);
                filters.last_of(&mut Ranked::new(crew, tokens.n, ends, sample.vocab))
            } else {
                filters.last_of(&mut Halved::new(crew, tokens, highest))
            };
        }
        let mut draw = 0;
        while draw < sample.draws {
            let subkey = Subkey::new(key, draw);
            let give = |thread| {
                let mut leaders = Leaders::NONE;
                tokens.each(thread, |key| {
                    if key != Key::NONE && key >= last {
                        let token = sample.first_token.wrapping_add(key.token());
                        let subkey = subkey.opaque();
                        offer_token(key.score(), token, temperature, subkey, &mut leaders);
                    }
                });
                to_words(leaders)
            };
            let leaders = from_words(crew.reduce_block(give, merge));
            crew.leg(|thread| {
                if thread == 0 {
                    let at = output_index(row, sample.draws, draw);
                    write(params, at, leaders, known.seen);
                }
            });
            draw += 1;
        }
        let tally = sample.tallies.add(row as usize);
        crew.leg(|thread| {
            if thread == 0 {
                (&raw mut (*tally).highest).write(0);
                (&raw mut (*tally).floor).write(0);
                (&raw mut (*tally).n_tokens).write(0);
                (&raw mut (*tally).n_tiles).write(0);
            }
        });
    }
}

/// Leg: takes the counts out of a tally, and makes the rest of a row's memory ready.
#[inline(always)]
unsafe fn take_counts(tally: *mut Tally, short: *mut ShortRow, thread: u32) {
    // SAFETY: bins are below their number; each is one thread's.
    unsafe {
        let from = (&raw mut (*tally).bins).cast::<u32>();
        let to = (&raw mut (*short).bins).cast::<u32>();
        let mut counts = [0; BINS_OF_A_THREAD];
        let mut i = 0;
        while i < BINS_OF_A_THREAD {
            counts[i] = from.add(thread as usize + i * THREADS_LEN).read();
            i += 1;
        }
        i = 0;
        while i < BINS_OF_A_THREAD {
            from.add(thread as usize + i * THREADS_LEN).write(0);
            to.add(thread as usize + i * THREADS_LEN).write(counts[i]);
            i += 1;
        }
        (&raw mut (*short).found).cast::<Key>().add(thread as usize).write(Key::NONE);
        if thread == 0 {
            (&raw mut (*short).n_found).write(0);
            (&raw mut (*short).n_tiles).write(0);
        }
    }
}

/// What the sampling kernel left of a row.
#[inline(always)]
unsafe fn lists_of(
    params: &KeptParams,
    known: &Known,
    row: u32,
    short: *const ShortRow,
) -> Shortlist {
    let sample = &params.sample;
    let stride = values_stride(sample.vocab);
    let (temperature, highest) = (known.params.temperature, shortlist::of_height(known.highest));
    // SAFETY: the caller's promise.
    unsafe {
        let bins = (&raw const (*short).bins).cast();
        let load = |at: *const u32| {
            let Four(counts) = at.cast::<Four>().read();
            counts
        };
        let counted = shortlist::counted_floor(&known.features, highest, bins, load);
        let first = offset(row, stride, 0);
        Shortlist {
            keys: sample.listed.add(first as usize).cast(),
            n_tokens: known.n_tokens,
            tiles: sample.listed.add((first + stride - 1) as usize),
            n_tiles: known.n_tiles,
            lead: sample.first_token % TILE_V,
            values: sample.values.add(first as usize),
            vocab: sample.vocab,
            floor: shortlist::floor(&known.features, temperature, highest, counted),
        }
    }
}

/// Room for values as room for keys, aligned for two.
#[inline(always)]
pub(super) fn for_keys((room, values): (*mut f32, u32)) -> (*mut Key, u32) {
    const ALIGNMENT: usize = 2 * size_of::<Key>();
    const VALUES: usize = size_of::<Key>() / size_of::<f32>();
    let skipped = room.addr().wrapping_neg() % ALIGNMENT / size_of::<f32>();
    let keys = (values as usize).saturating_sub(skipped) / VALUES;
    (room.wrapping_add(skipped).cast(), keys as u32)
}
