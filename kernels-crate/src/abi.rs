//! All that host and device must agree on: entry names, parameter structs, tile
//! sizes, budgets and the layout of the workspace. The host holds no literal of them.

mod variants;

pub mod kept;
pub mod sm90;

pub use variants::{Kernel, VARIANTS, Variant};

use core::ptr::{null, null_mut};

use crate::dims::{align_up, ceil_div};
use crate::partial_sum::PartialSum;
use crate::shortlist::Tally;
use crate::transform::TransformParams;

/// The token of a row with no admissible token; never an id.
pub const NO_TOKEN: u32 = u32::MAX;

/// Element type of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Dtype {
    /// bfloat16.
    Bf16 = 0,
    /// IEEE half precision.
    F16 = 1,
    /// IEEE single precision.
    F32 = 2,
}

impl Dtype {
    /// Bytes of one element.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// The name used in entry names and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
        }
    }
}

/// Parameters of every sampling entry, after the two matrix pointers.
///
/// Sizes count elements. The pointers are device pointers for an entry and plain
/// pointers for the native kernel. `batch`, `vocab`, `hidden` and `draws` are ≥ 1.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SampleParams {
    /// `[V]` f32, or null.
    pub bias: *const f32,
    /// `[B]` f32, each finite and ≥ 0.
    pub temperatures: *const f32,
    /// `[B]` u64.
    pub seeds: *const u64,
    /// `[B]` u64.
    pub positions: *const u64,
    /// `[B, S]` u32, written.
    pub tokens: *mut u32,
    /// `[B, S]` u32 of [`crate::status::Status`] bits, written.
    pub status: *mut u32,
    /// `[B, S]` f32, written with the winning score, or null.
    pub scores: *mut f32,
    /// `[B, S]` f32, written with the winner's margin over the next, or null.
    pub margins: *mut f32,
    /// [`WorkspaceLayout`]; zero before the first call, zero again after each.
    pub workspace: *mut u8,
    /// `[B, kept::values_stride(V)]` f32, written with the logits after bias and
    /// transform, or null.
    pub values: *mut f32,
    /// `[B, kept::values_stride(V)]` u64, written with the shortlists: from the front keys of tokens,
    /// [`crate::candidate::Key`], from the back the words of [`crate::shortlist::kept_tile`]; or null.
    pub listed: *mut u64,
    /// `[B]`, all zero, if there are shortlists: part of the workspace.
    pub tallies: *mut Tally,
    /// `[B, kept::values_stride(V)]` f32, written where a token may be drawn, with its logit;
    /// or null.
    pub drawn_values: *mut f32,
    /// Of the model's distribution and of each row's: `[B, n_partials]`, written; or null.
    pub partials: [*mut PartialSum; 2],
    /// `[B]`: what rows ask for, or null if they ask for nothing.
    pub features: *const kept::RowFeatures,
    /// Elements from one row of the weights to the next.
    pub weights_stride: u64,
    /// Elements from one row of the hidden states to the next.
    pub hidden_stride: u64,
    /// B.
    pub batch: u32,
    /// V: rows of the weights that are tokens (`V_valid`).
    pub vocab: u32,
    /// D.
    pub hidden: u32,
    /// S.
    pub draws: u32,
    /// Global id of the first row of the weights; `first_token + vocab ≤ NO_TOKEN`.
    pub first_token: u32,
    /// [`Dtype`] of the weights. The tensor-core kernel is compiled for one.
    pub weights_dtype: u32,
    /// [`Dtype`] of the hidden states.
    pub hidden_dtype: u32,
    /// Partial sums of a row: one for each warp of a sieve ([`Variant::sieves`]) that has a
    /// vocabulary tile. One batch tile holds the call's rows.
    pub n_partials: u32,
    /// Whether nobody asks for the logits of tokens that no row admits, 0 or 1: tiles of such
    /// tokens need not be multiplied.
    pub skips_banned: u32,
    /// Whether the sums of each row's distribution are wanted of all rows, 0 or 1: else of those
    /// that [`crate::nucleus`] serves, and what is left of calls without any has no meaning.
    pub sums_all_rows: u32,
    /// Whether the sampling kernel draws of rows with filters, but without rules, as if they had
    /// none, unless it lists them, 0 or 1: what it has drawn is judged by the next.
    pub judges: u32,
    /// Whether the sampling kernel applies rules, 0 or 1: [`Variant::applies_rules`]. Rows
    /// without filters are then done, and others may be listed.
    pub applies_rules: u32,
    /// What the sampling kernel does to every logit after the bias:
    /// [`Variant::applies_transform`].
    pub transform: TransformParams,
}

impl SampleParams {
    /// A call without addresses and sizes, for which nothing is wanted.
    pub const NONE: Self = Self {
        bias: null(),
        temperatures: null(),
        seeds: null(),
        positions: null(),
        tokens: null_mut(),
        status: null_mut(),
        scores: null_mut(),
        margins: null_mut(),
        workspace: null_mut(),
        values: null_mut(),
        listed: null_mut(),
        drawn_values: null_mut(),
        partials: [null_mut(); 2],
        tallies: null_mut(),
        features: null(),
        weights_stride: 0,
        hidden_stride: 0,
        batch: 0,
        vocab: 0,
        hidden: 0,
        draws: 0,
        first_token: 0,
        weights_dtype: 0,
        hidden_dtype: 0,
        n_partials: 0,
        sums_all_rows: 0,
        skips_banned: 0,
        judges: 0,
        applies_rules: 0,
        transform: TransformParams::NONE,
    };
}

/// Rows of a vocabulary tile, in every kernel: tiles begin at global ids that are
/// multiples of it, so that the groups of [`crate::philox`] lie within a tile.
pub const TILE_V: u32 = 128;

/// Vocabulary tiles of a call.
pub const fn n_tiles_v(first_token: u32, vocab: u32) -> u32 {
    let lead = first_token % TILE_V;
    ceil_div(lead as u64 + vocab as u64, TILE_V as u64) as u32
}

/// The epilogue of the tensor-core kernels (`kernels/sieve.rs`).
pub mod sieve {
    use crate::partial_sum::PartialSum;

    /// Threads that share a sieve.
    pub const THREADS: u32 = 128;
    /// Warps that share a sieve.
    pub const WARPS: u32 = THREADS / 32;
    /// Bytes of the values of a queued pair.
    pub const PAIR_BYTES: u32 = 8;
    /// Bytes of the place of a queued pair.
    pub const PLACE_BYTES: u32 = 4;
    /// Bytes of a batch row.
    pub const ROW_BYTES: u32 = 16;
    /// Bytes of a hint.
    pub const HINT_BYTES: u32 = 4;

    /// Batch rows of the largest tile whose rows' rules a sieve applies: beyond, there are no
    /// registers for it.
    pub const RULED_ROWS: u32 = 64;
    /// Words of a bitmask for a vocabulary tile.
    pub const RULE_WORDS: u32 = super::TILE_V / u32::BITS;
    /// Bytes of a batch row's rules, an odd number of words: the rows of a warp's lanes are then
    /// in different banks.
    pub const RULES_BYTES: u32 = 68;

    /// Bytes of the partial sums of a sieve for `rows` batch rows: of two distributions, the
    /// rows' inverse temperatures, and a word; each warp has its own.
    pub const fn sums_bytes(rows: u32) -> u32 {
        let row_bytes = (2 * size_of::<PartialSum>() + size_of::<f32>()) as u32;
        let word_bytes = size_of::<u32>() as u32;
        if rows <= RULED_ROWS { WARPS * (rows * row_bytes + word_bytes) } else { 0 }
    }

    /// Bytes of the rules of a sieve for `rows` batch rows.
    pub const fn rules_bytes(rows: u32) -> u32 {
        if rows <= RULED_ROWS { rows * RULES_BYTES } else { 0 }
    }

    /// Pairs that a warp's queue holds: less than one a lane, and two a lane on top.
    pub const QUEUE: u32 = 96;

    /// Groups of tokens of a sieve of `m_tiles` · 64 tokens.
    pub const fn groups(m_tiles: u32) -> u32 {
        m_tiles * 64 / crate::philox::GROUP
    }

    /// Shared memory of a sieve for `rows` batch rows, of `m_tiles` · 64 tokens: rows,
    /// queues, a hint a group and row, partial sums, and rules.
    pub const fn bytes(m_tiles: u32, rows: u32) -> u32 {
        rows * ROW_BYTES
            + WARPS * QUEUE * (PAIR_BYTES + PLACE_BYTES)
            + groups(m_tiles) * rows * HINT_BYTES
            + sums_bytes(rows)
            + rules_bytes(rows)
    }
}

/// The portable kernel's tile.
pub mod simt {
    /// Threads of a block: one for each token of a tile.
    pub const THREADS: u32 = super::TILE_V;
    /// Batch rows of a tile.
    pub const TILE_B: u32 = 8;
    /// Hidden elements of a slab.
    pub const TILE_D: u32 = 32;
}

/// The `mma.sync` kernel's tile.
pub mod mma {
    /// Threads of a block: four warps, each owning 32 rows of a tile.
    pub const THREADS: u32 = 128;
    /// Tiles of 16 rows of a warp.
    pub const M_TILES: u32 = 2;
    /// Hidden elements of a slab: 128 bytes a row.
    pub const TILE_D: u32 = 64;
    /// Bytes of one row of a slab.
    pub const ROW_BYTES: u32 = TILE_D * 2;
    /// Named barrier of the epilogue; 0 is the block's.
    pub const SIEVE_BARRIER: u32 = 1;

    /// Slots of the ring: as many as let two blocks share a multiprocessor of sm_90.
    /// (On sm_80 there is room for one, on sm_86 and sm_89 for one of up to 32 batch rows.)
    pub const fn stages(tile_b: u32) -> u32 {
        if tile_b <= 16 { 5 } else { 4 }
    }

    /// Bytes of one stage: a slab of weights and one of hidden states.
    pub const fn stage_bytes(tile_b: u32) -> u32 {
        (super::TILE_V + tile_b) * ROW_BYTES
    }

    /// Dynamic shared memory of a block: the ring, then the sieve.
    pub const fn shared_bytes(tile_b: u32) -> u32 {
        stages(tile_b) * stage_bytes(tile_b) + super::sieve::bytes(M_TILES, tile_b)
    }
}

/// Entry that writes the noise of consecutive words, for tests and for the cost of
/// the logarithm: `(noise: *mut f32, first_word: u32, n: u32)`.
pub const NOISE_ENTRY: &str = "flash_sampling_noise";

/// Entry that digests the noise of `n` consecutive words into one sum of hashes,
/// for the comparison of all 2³² words: `(sum: *mut u64, first_word: u64, n: u64)`.
pub const NOISE_DIGEST_ENTRY: &str = "flash_sampling_noise_digest";

/// Where each part of the workspace begins, in bytes. The same for every variant,
/// so that one workspace serves calls of different variants in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceLayout {
    /// `[B, S]` u64: the best key so far.
    pub first_keys: u64,
    /// `[B, S]` u64: the best of the other keys, kept when margins are asked for.
    pub second_keys: u64,
    /// `[B]` u32: status bits seen in the row.
    pub row_status: u64,
    /// `[⌈B / TILE_B⌉]` u32 for the smallest `TILE_B`: vocabulary tiles done.
    pub tiles_done: u64,
    /// `[B]` of [`Tally`], kept when rows may be listed.
    pub tallies: u64,
    /// All but these.
    pub bytes: u64,
}

impl WorkspaceLayout {
    /// Alignment of the workspace's base.
    pub const ALIGNMENT_BYTES: u64 = 16;

    /// All of it, with tallies.
    pub const fn bytes_with_tallies(&self, batch: u32) -> u64 {
        self.tallies + batch as u64 * core::mem::size_of::<Tally>() as u64
    }

    /// The layout for `[B, S]`.
    #[inline(always)]
    pub const fn new(batch: u32, draws: u32) -> Self {
        let keys_bytes = batch as u64 * draws as u64 * 8;
        let second_keys = keys_bytes;
        let row_status = second_keys + keys_bytes;
        let tiles_done = row_status + batch as u64 * 4;
        let n_tiles_b = ceil_div(batch as u64, simt::TILE_B as u64);
        let bytes = align_up(tiles_done + n_tiles_b * 4, Self::ALIGNMENT_BYTES);
        Self { first_keys: 0, second_keys, row_status, tiles_done, tallies: bytes, bytes }
    }
}
