//! The Hopper kernel's tile.

use super::{TILE_V, sieve};

/// Warps of a warpgroup.
pub const GROUP_WARPS: u32 = 4;
/// Threads of a warpgroup.
pub const GROUP_THREADS: u32 = 128;
/// Consumer warpgroups.
pub const GROUPS: u32 = 2;
/// Threads of a block: a warpgroup of the producer's warp and the hint warps, and the
/// consumers'.
pub const THREADS: u32 = (1 + GROUPS) * GROUP_THREADS;
/// Hidden elements of a slab: 128 bytes a row, the span of the swizzle.
pub const TILE_D: u32 = 64;
/// Bytes of one row of a slab.
pub const ROW_BYTES: u32 = TILE_D * 2;
/// Blocks of the largest cluster.
pub const LARGEST_CLUSTER: u32 = 2;

/// Blocks of a cluster, which share the hidden states they copy: where those weigh as much
/// as the weights.
pub const fn cluster(tile_b: u32) -> u32 {
    if tile_b >= TILE_V { LARGEST_CLUSTER } else { 1 }
}

/// Slabs from where the sums of one such cluster's tiles begin to where the next's do.
pub const SLAB_ROTATION: u32 = 16;
/// Slabs that the producer requests together: two where the ring is long. In a short one
/// the second would wait for its stage, and the first with it.
pub const fn slabs_per_request(tile_b: u32) -> u32 {
    if stages(tile_b) > 6 { 2 } else { 1 }
}

/// Warps that draw hints, beside the producer's in its warpgroup.
pub const HINT_WARPS: u32 = GROUP_WARPS - 1;
/// Threads of these.
pub const HINT_THREADS: u32 = HINT_WARPS * 32;
/// Named barrier of the hint warps; 0 is the block's.
pub const HINT_BARRIER: u32 = 1;
/// Named barriers of the consumer warpgroups, from this on.
pub const GROUP_BARRIERS: u32 = 2;
/// Registers that a launch gives each thread: an even share of a multiprocessor's, in the
/// eights that they come in.
const LAUNCH_REGISTERS: u32 = 65_536 / THREADS / 8 * 8;
/// Registers that a thread of the first warpgroup keeps.
pub const SUPPORT_REGISTERS: u32 = 72;
/// Registers that a consumer thread takes.
pub const CONSUMER_REGISTERS: u32 = 216;
// What the consumers wait for must have been given back, or they wait forever.
const _: () =
    assert!(SUPPORT_REGISTERS + GROUPS * CONSUMER_REGISTERS <= (1 + GROUPS) * LAUNCH_REGISTERS);
/// Alignment of the ring, which the 128-byte swizzle asks for.
pub const ALIGNMENT_BYTES: u32 = 1024;
/// Bytes of a barrier.
pub const BARRIER_BYTES: u32 = 8;
/// Barriers of a stage: full and empty.
pub const STAGE_BARRIERS: u32 = 2;
/// Barriers of a consumer warpgroup: its turn, its levels wanted, its hints and levels
/// ready, and free.
pub const GROUP_BARRIERS_COUNT: u32 = 4;
/// Slabs before a tile's end when its levels are read: late, so that they are high, but
/// before the read's latency shows.
pub const LEVELS_LEAD: u32 = 6;

/// Bytes of what a consumer warpgroup shares with the hint warps: barriers, and a flag.
pub const GROUP_BYTES: u32 = GROUP_BARRIERS_COUNT * BARRIER_BYTES + 8;
/// Of all of them, and a sieve's alignment.
const GROUPS_BYTES: u32 = (GROUPS * GROUP_BYTES).next_multiple_of(16);

/// Shared memory that a block can have.
const BLOCK_BYTES: u32 = 232_448;

/// Greatest batch tile whose sums one warpgroup can hold for a whole vocabulary tile.
const LARGEST_ALTERNATING: u32 = 128;

/// Tiles of 64 vocabulary rows that a consumer warpgroup multiplies: both of a tile's,
/// when the warpgroups take whole tiles in turn, or one, when they share each tile.
pub const fn m_tiles(tile_b: u32) -> u32 {
    if tile_b <= LARGEST_ALTERNATING { GROUPS } else { 1 }
}

/// Bytes of the sieves of all consumer warpgroups.
pub const fn sieves_bytes(tile_b: u32) -> u32 {
    GROUPS * sieve::bytes(m_tiles(tile_b), tile_b)
}

/// Slots of the ring: as many as fit.
pub const fn stages(tile_b: u32) -> u32 {
    (BLOCK_BYTES - ALIGNMENT_BYTES - GROUPS_BYTES - sieves_bytes(tile_b))
        / (stage_bytes(tile_b) + STAGE_BARRIERS * BARRIER_BYTES)
}

/// Bytes of one stage: a slab of weights and one of hidden states.
pub const fn stage_bytes(tile_b: u32) -> u32 {
    (TILE_V + tile_b) * ROW_BYTES
}

/// Dynamic shared memory of a block: alignment, ring, barriers, sieves.
pub const fn shared_bytes(tile_b: u32) -> u32 {
    ALIGNMENT_BYTES
        + stages(tile_b) * (stage_bytes(tile_b) + STAGE_BARRIERS * BARRIER_BYTES)
        + GROUPS_BYTES
        + sieves_bytes(tile_b)
}
