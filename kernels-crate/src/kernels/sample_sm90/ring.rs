//! The ring of stages in shared memory and its barriers.

use crate::abi::{TILE_V, sieve, sm90};
use crate::arch;
use crate::dims::align_up;

/// Bytes of a barrier.
const BARRIER_BYTES: u32 = sm90::BARRIERS_BYTES / 2;

/// Addresses of the ring.
#[derive(Clone, Copy)]
pub(super) struct Ring {
    base: u32,
    tile_b: u32,
}

impl Ring {
    #[inline(always)]
    pub(super) fn new(tile_b: u32) -> Self {
        let shared = arch::shared_address(arch::dynamic_shared());
        Self { base: align_up(shared as u64, sm90::ALIGNMENT_BYTES as u64) as u32, tile_b }
    }

    /// Prepares the barriers; `sharers` warpgroups release each stage.
    #[inline(always)]
    pub(super) unsafe fn init(&self, sharers: u32) {
        let mut stage = 0;
        while stage < sm90::stages(self.tile_b) {
            // SAFETY: one thread, before anyone waits.
            unsafe {
                arch::barrier_init(self.full(stage), 1);
                arch::barrier_init(self.empty(stage), sharers * sm90::GROUP_WARPS);
            }
            stage += 1;
        }
        arch::barrier_init_fence();
    }

    /// The stage's slab of weights.
    #[inline(always)]
    pub(super) fn weights(&self, stage: u32) -> u32 {
        self.base + stage * sm90::stage_bytes(self.tile_b)
    }

    /// The stage's slab of hidden states.
    #[inline(always)]
    pub(super) fn hidden_states(&self, stage: u32) -> u32 {
        self.weights(stage) + TILE_V * sm90::ROW_BYTES
    }

    /// The sieve of a consumer warpgroup, behind the barriers.
    #[inline(always)]
    pub(super) fn sieve(&self, group: u32) -> *mut u8 {
        let barriers = sm90::stages(self.tile_b) * sm90::BARRIERS_BYTES;
        let from_ring = sm90::stages(self.tile_b) * sm90::stage_bytes(self.tile_b)
            + barriers
            + group * sieve::bytes(1, self.tile_b);
        let ring = self.base - arch::shared_address(arch::dynamic_shared());
        arch::dynamic_shared().wrapping_add((ring + from_ring) as usize)
    }

    /// Completes when the stage's slabs have arrived.
    #[inline(always)]
    pub(super) fn full(&self, stage: u32) -> u32 {
        self.weights(sm90::stages(self.tile_b)) + stage * BARRIER_BYTES
    }

    /// Completes when nobody reads the stage any more.
    #[inline(always)]
    pub(super) fn empty(&self, stage: u32) -> u32 {
        self.full(sm90::stages(self.tile_b)) + stage * BARRIER_BYTES
    }
}

/// A place in the ring: the stage, and the parity of its current round.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    pub(super) stage: u32,
    pub(super) phase_bit: u32,
}

impl Cursor {
    /// Where both sides begin.
    pub(super) const START: Self = Self { stage: 0, phase_bit: 0 };

    #[inline(always)]
    pub(super) fn advance(&mut self, tile_b: u32) {
        self.stage += 1;
        if self.stage == sm90::stages(tile_b) {
            self.stage = 0;
            self.phase_bit ^= 1;
        }
    }
}
