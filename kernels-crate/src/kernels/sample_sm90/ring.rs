//! The ring of stages in shared memory and its barriers.

use crate::abi::{TILE_V, sieve, sm90};
use crate::arch;
use crate::dims::align_up;

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
        // SAFETY: one thread, before anyone waits.
        unsafe {
            let mut stage = 0;
            while stage < sm90::stages(self.tile_b) {
                arch::barrier_init(self.full(stage), 1);
                arch::barrier_init(self.empty(stage), sharers * sm90::GROUP_WARPS);
                stage += 1;
            }
            let mut group = 0;
            while group < sm90::GROUPS {
                arch::barrier_init(self.turn(group), sm90::GROUP_WARPS);
                arch::barrier_init(self.levels_wanted(group), sm90::GROUP_WARPS);
                arch::barrier_init(self.hints_ready(group), sm90::HINT_THREADS);
                arch::barrier_init(self.hints_free(group), sm90::GROUP_THREADS);
                group += 1;
            }
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
        let end = align_up(self.turn(sm90::GROUPS) as u64, 16) as u32;
        let bytes = sieve::bytes(sm90::m_tiles(self.tile_b), self.tile_b);
        self.pointer(end + group * bytes)
    }

    #[inline(always)]
    fn pointer(&self, address: u32) -> *mut u8 {
        let from_base = address - arch::shared_address(arch::dynamic_shared());
        arch::dynamic_shared().wrapping_add(from_base as usize)
    }

    /// Completes when the stage's slabs have arrived.
    #[inline(always)]
    pub(super) fn full(&self, stage: u32) -> u32 {
        self.weights(sm90::stages(self.tile_b)) + stage * sm90::BARRIER_BYTES
    }

    /// Completes when nobody reads the stage any more.
    #[inline(always)]
    pub(super) fn empty(&self, stage: u32) -> u32 {
        self.full(sm90::stages(self.tile_b)) + stage * sm90::BARRIER_BYTES
    }
}

/// What a consumer warpgroup waits for, beside stages.
impl Ring {
    /// Completes when it is the warpgroup's turn to multiply.
    #[inline(always)]
    pub(super) fn turn(&self, group: u32) -> u32 {
        self.empty(sm90::stages(self.tile_b)) + group * sm90::GROUP_BYTES
    }

    /// Completes when the warpgroup is about to have its sums.
    #[inline(always)]
    pub(super) fn levels_wanted(&self, group: u32) -> u32 {
        self.turn(group) + 3 * sm90::BARRIER_BYTES
    }

    /// Not 0 where one of the warpgroup's rows has no level.
    #[inline(always)]
    pub(super) fn unset(&self, group: u32) -> *mut u32 {
        let barriers = sm90::GROUP_BARRIERS_COUNT * sm90::BARRIER_BYTES;
        self.pointer(self.turn(group) + barriers).cast()
    }

    /// Completes when the warpgroup's rows, hints and levels are written.
    #[inline(always)]
    pub(super) fn hints_ready(&self, group: u32) -> u32 {
        self.turn(group) + sm90::BARRIER_BYTES
    }

    /// Completes when the warpgroup has read them.
    #[inline(always)]
    pub(super) fn hints_free(&self, group: u32) -> u32 {
        self.turn(group) + 2 * sm90::BARRIER_BYTES
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
    pub(super) fn skip(&mut self, slabs: u32, tile_b: u32) {
        let stage = self.stage + slabs;
        self.stage = stage % sm90::stages(tile_b);
        self.phase_bit ^= stage / sm90::stages(tile_b) & 1;
    }

    #[inline(always)]
    pub(super) fn advance(&mut self, tile_b: u32) {
        self.stage += 1;
        if self.stage == sm90::stages(tile_b) {
            self.stage = 0;
            self.phase_bit ^= 1;
        }
    }
}
