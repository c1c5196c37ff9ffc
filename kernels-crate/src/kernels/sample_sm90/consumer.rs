//! Consumers: products from the ring, then the tile's epilogue.

use half::{bf16, f16};

use super::Call;
use super::ring::Cursor;
use crate::abi::sm90;
use crate::arch;
use crate::kernels::finish::{self, Workspace};
use crate::kernels::sieve::{Lines, Marks, Sieve, Sums};

/// Elements that warpgroups multiply.
pub trait WgmmaElement {
    /// `[64, 8·N_TILES] += [64, 16]·[16, 8·N_TILES]`.
    ///
    /// # Safety
    /// As `arch::wgmma_bf16`.
    unsafe fn wgmma<const N_TILES: usize>(sums: &mut [[f32; 4]; N_TILES], a: u32, b: u32);
}

macro_rules! wgmma_element {
    ($element:ty, $wgmma:ident) => {
        impl WgmmaElement for $element {
            #[inline(always)]
            unsafe fn wgmma<const N_TILES: usize>(sums: &mut [[f32; 4]; N_TILES], a: u32, b: u32) {
                // SAFETY: the caller's promise.
                unsafe { arch::$wgmma(sums, a, b) }
            }
        }
    };
}

wgmma_element!(bf16, wgmma_bf16);
wgmma_element!(f16, wgmma_f16);

/// Descriptors count 16-byte units of an 18-bit address.
const DESCRIPTOR_ADDRESS: u32 = 0x3_FFFF;

/// Descriptor units of 16 elements along d.
const STEP_UNITS: u32 = 2;

/// Descriptor units of half a slab along d.
const HALF_UNITS: u32 = sm90::TILE_D / 2 / K * STEP_UNITS;

/// Vocabulary rows of one product.
const M: u32 = 64;

/// Descriptor units of the vocabulary rows of one product.
const M_UNITS: u32 = M * sm90::ROW_BYTES / 16;

/// Elements of one product along d.
const K: u32 = 16;

#[inline(always)]
fn descriptor(address: u32) -> u32 {
    (address & DESCRIPTOR_ADDRESS) >> 4
}

/// Warpgroups that take whole tiles in turn; 1 where each has its rows of every tile.
pub(super) const fn turns(m_tiles: usize) -> u32 {
    m_tiles as u32
}

/// What of the tiles is a consumer thread's.
#[derive(Clone, Copy)]
pub(super) struct Share {
    /// Index of the thread in its warpgroup.
    pub(super) thread: u32,
    /// The warpgroup's turn.
    turn: u32,
    /// Which of a tile's products of 64 vocabulary rows is the warpgroup's first.
    first: u32,
}

impl Share {
    #[inline(always)]
    pub(super) fn new(m_tiles: usize, group: u32, thread: u32) -> Self {
        let (turn, first) = if turns(m_tiles) == 1 { (0, group) } else { (group, 0) };
        Self { thread, turn, first }
    }

    #[inline(always)]
    pub(super) fn lines(&self) -> Lines {
        Lines { first: self.first * M, per_warp: M / sm90::GROUP_WARPS, per_tile: M }
    }
}

/// Runs a consumer thread, `consumer` counted from 0.
///
/// # Safety
/// All threads of the consumer warpgroups.
#[inline(always)]
pub(super) unsafe fn run<
    E,
    const M_TILES: usize,
    const N_TILES: usize,
    const CLUSTER: u32,
    const SUMS: bool,
>(
    call: &Call<'_>,
    consumer: u32,
) where
    E: WgmmaElement,
{
    let tile_b = N_TILES as u32 * 8;
    // All lanes of a warp agree on the group; division keeps that visible.
    let group = consumer / sm90::GROUP_THREADS;
    let share = Share::new(M_TILES, group, consumer % sm90::GROUP_THREADS);
    let turns = turns(M_TILES);
    let barrier = sm90::GROUP_BARRIERS + group;
    let mut cursor = Cursor::START;
    cursor.skip(share.turn * call.slabs, tile_b);
    let mut item = call.first_item + share.turn as u64 * call.step;
    let mut tiles_done = 0;
    // Nothing precedes the first turn of all.
    let mut turn_parity = share.turn ^ 1;
    let mut ready_parity = 0;
    let levels_at = call.slabs - core::cmp::min(call.slabs, sm90::LEVELS_LEAD);
    // SAFETY: the caller's promise.
    unsafe {
        let sieve = sieve_of::<M_TILES, N_TILES, SUMS>(call, group, share, barrier);
        sieve.begin_sums();
        while item < call.schedule.items() {
            let tile = call.schedule.tile(item);
            let first_row = tile.tile_b * tile_b;
            let mut sums: Sums<M_TILES, N_TILES> = [[[0.0; 4]; N_TILES]; M_TILES];
            if turns != 1 {
                arch::barrier_wait(call.ring.turn(group), turn_parity);
                turn_parity ^= 1;
            }
            let (mut slab, mut before) = (0, 0);
            // A loop with its test at the end: no path may reach the scan without
            // products, or ptxas serialises them.
            loop {
                arch::barrier_wait(call.ring.full(cursor.stage), cursor.phase_bit);
                let a = descriptor(call.ring.weights(cursor.stage)) + share.first * M_UNITS;
                let b = descriptor(call.ring.hidden_states(cursor.stage));
                multiply_half::<E, M_TILES, N_TILES>(&mut sums, a, b);
                // Half a slab always waits behind the one that runs: the tensor cores never
                // idle while a warpgroup turns to its next slab.
                arch::products_wait::<1>();
                if slab != 0 {
                    release::<CLUSTER>(call, before);
                }
                before = cursor.stage;
                multiply_half::<E, M_TILES, N_TILES>(&mut sums, a + HALF_UNITS, b + HALF_UNITS);
                if turns == 1 && slab == levels_at {
                    arch::barrier_arrive(call.ring.levels_wanted(group));
                }
                cursor.advance(tile_b);
                slab += 1;
                if slab == call.slabs {
                    break;
                }
            }
            if turns != 1 {
                arch::barrier_arrive(call.ring.turn(group ^ 1));
            }
            arch::products_wait::<0>();
            release::<CLUSTER>(call, before);
            cursor.skip((turns - 1) * call.slabs, tile_b);
            let mut marks = Marks::NONE;
            let mut draw = 0;
            while draw < call.params.draws {
                arch::barrier_wait(call.ring.hints_ready(group), ready_parity);
                ready_parity ^= 1;
                if call.holds_tokens(&tile) {
                    let unset = if turns == 1 {
                        call.ring.unset(group).read() != 0
                    } else {
                        let unset = sieve.raise_levels(first_row, draw);
                        arch::warps_any(unset, barrier, sm90::GROUP_THREADS)
                    };
                    if draw == 0 {
                        marks = sieve.begin_tile(&mut sums, tile, first_row);
                    }
                    sieve.offer_draw(&mut sums, marks, tile, first_row, draw, unset);
                }
                arch::barrier_arrive_each(call.ring.hints_free(group));
                draw += 1;
            }
            tiles_done += call.holds_tokens(&tile) as u32;
            item += call.step * turns as u64;
            // Report once for each run of tiles of one batch tile.
            if item >= call.schedule.items() || call.schedule.tile(item).tile_b != tile.tile_b {
                let workspace = Workspace::new(call.params, arch::opaque(call.params.batch));
                let done = workspace.tiles_done(tile.tile_b);
                let meeting = (barrier, sm90::GROUP_THREADS);
                let total = call.schedule.tiles_v * (sm90::GROUPS / turns);
                let thread = share.thread;
                let last = arch::warps_arrive(meeting, thread, done, tiles_done, total);
                // A warpgroup that had nothing to report did not complete the count.
                if last && tiles_done != 0 {
                    let rows = (first_row, (first_row + tile_b).min(call.params.batch));
                    let threads = sm90::GROUP_THREADS;
                    finish::write_outputs(call.params, &workspace, rows, thread, threads);
                    arch::warps_barrier(barrier, threads);
                    finish::clear(&workspace, rows, tile.tile_b, thread, threads);
                }
                tiles_done = 0;
                sieve.leave_sums(group);
            }
        }
    }
}

/// The sieve of a consumer warpgroup, as a thread with this share of the tiles sees it; `barrier`
/// is for those who see it alike.
///
/// # Safety
/// There is such a warpgroup.
#[inline(always)]
pub(super) unsafe fn sieve_of<'a, const M_TILES: usize, const N_TILES: usize, const SUMS: bool>(
    call: &Call<'a>,
    group: u32,
    share: Share,
    barrier: u32,
) -> Sieve<'a, M_TILES, N_TILES, SUMS> {
    let shared = call.ring.sieve(group);
    // SAFETY: the ring has room for a sieve a warpgroup.
    unsafe { Sieve::new(call.params, shared, share.thread, share.lines(), barrier) }
}

/// Adds the products of half a slab.
#[inline(always)]
unsafe fn multiply_half<E: WgmmaElement, const M_TILES: usize, const N_TILES: usize>(
    sums: &mut Sums<M_TILES, N_TILES>,
    a: u32,
    b: u32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        arch::products_fence();
        let mut d = 0;
        while d < sm90::TILE_D / 2 / K {
            let (a, b) = (a + d * STEP_UNITS, b + d * STEP_UNITS);
            let mut m = 0;
            while m < M_TILES {
                E::wgmma(&mut sums[m], a + m as u32 * M_UNITS, b);
                m += 1;
            }
            d += 1;
        }
        arch::products_commit();
    }
}

/// The calling warp releases a stage to the producers of the whole cluster.
#[inline(always)]
unsafe fn release<const CLUSTER: u32>(call: &Call<'_>, stage: u32) {
    let empty = call.ring.empty(stage);
    // SAFETY: initialised barriers; no block of the cluster has left.
    unsafe {
        if CLUSTER == 1 {
            arch::barrier_arrive(empty);
        } else {
            let mut rank = 0;
            while rank < CLUSTER {
                arch::barrier_arrive_at(empty, rank);
                rank += 1;
            }
        }
    }
}
