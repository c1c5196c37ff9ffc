//! Consumers: products from the ring, then the tile's epilogue.

use half::{bf16, f16};

use super::Call;
use super::ring::Cursor;
use crate::abi::{TILE_V, sm90};
use crate::arch;
use crate::kernels::finish::{self, Workspace};
use crate::kernels::schedule::Quota;
use crate::kernels::sieve::{Sieve, Sums};

/// Elements that warpgroups multiply.
pub trait WgmmaElement {
    /// `[64, 8·N_TILES] (+)= [64, 16]·[16, 8·N_TILES]`.
    ///
    /// # Safety
    /// As `arch::wgmma_bf16`.
    unsafe fn wgmma<const N_TILES: usize>(
        sums: &mut [[f32; 4]; N_TILES],
        a: u64,
        b: u64,
        accumulate: bool,
    );
}

macro_rules! wgmma_element {
    ($element:ty, $wgmma:ident) => {
        impl WgmmaElement for $element {
            #[inline(always)]
            unsafe fn wgmma<const N_TILES: usize>(
                sums: &mut [[f32; 4]; N_TILES],
                a: u64,
                b: u64,
                accumulate: bool,
            ) {
                // SAFETY: the caller's promise.
                unsafe { arch::$wgmma(sums, a, b, accumulate) }
            }
        }
    };
}

wgmma_element!(bf16, wgmma_bf16);
wgmma_element!(f16, wgmma_f16);

/// Upper half of a matrix descriptor: 128-byte swizzle, 1024 bytes from one group of
/// eight rows to the next ("Matrix Descriptor Format").
const DESCRIPTOR_HIGH: u64 = 0x4000_0040 << 32;

/// Descriptors count 16-byte units of an 18-bit address.
const DESCRIPTOR_ADDRESS: u32 = 0x3_FFFF;

/// Descriptor units of 16 elements along d.
const STEP_UNITS: u64 = 2;

/// Descriptor units of a warpgroup's rows of a slab.
const GROUP_UNITS: u64 = (TILE_V / sm90::GROUPS * sm90::ROW_BYTES / 16) as u64;

/// Elements of one product along d.
const K: u32 = 16;

#[inline(always)]
fn descriptor(address: u32) -> u64 {
    DESCRIPTOR_HIGH | ((address & DESCRIPTOR_ADDRESS) >> 4) as u64
}

/// Runs a consumer thread.
///
/// # Safety
/// All threads of the consumer warpgroups.
#[inline(always)]
pub(super) unsafe fn run<E: WgmmaElement, const N_TILES: usize, const CLUSTER: u32>(
    call: &Call<'_>,
) {
    let tile_b = N_TILES as u32 * 8;
    let consumer = arch::thread_idx() - sm90::GROUP_THREADS;
    // All lanes of a warp agree on the group; division keeps that visible.
    let group = consumer / sm90::GROUP_THREADS;
    let group_units = group as u64 * GROUP_UNITS;
    let consumers = sm90::GROUPS * sm90::GROUP_THREADS;
    let mut cursor = Cursor::START;
    let mut tiles_done = 0;
    let mut item = call.first_item;
    // SAFETY: the caller's promise.
    unsafe {
        let workspace = Workspace::new(call.params);
        let sieve = Sieve::<1, N_TILES>::new(
            call.params,
            workspace,
            call.ring.sieve(group),
            consumer % sm90::GROUP_THREADS,
            consumer / 32 * 16,
            sm90::SIEVE_BARRIERS + group,
        );
        while item < call.schedule.items() {
            let tile = call.schedule.tile(item);
            let first_row = tile.tile_b * tile_b;
            if item == call.first_item || call.schedule.tile(item - call.step).tile_b != tile.tile_b
            {
                sieve.begin_rows(first_row, 0);
            }
            let mut hints = Quota::new(N_TILES as u32, call.slabs, group);
            let mut unset = false;
            let mut sums: Sums<1, N_TILES> = [[[0.0; 4]; N_TILES]; 1];
            let mut slab = 0;
            // A loop with its test at the end: no path may reach the scan without
            // products, or ptxas serialises them.
            loop {
                arch::barrier_wait(call.ring.full(cursor.stage), cursor.phase_bit);
                arch::products_fence();
                let a = descriptor(call.ring.weights(cursor.stage)) + group_units;
                let b = descriptor(call.ring.hidden_states(cursor.stage));
                let mut step = 0;
                while step < sm90::TILE_D / K {
                    let (a, b) = (a + step as u64 * STEP_UNITS, b + step as u64 * STEP_UNITS);
                    E::wgmma(&mut sums[0], a, b, slab + step != 0);
                    step += 1;
                }
                arch::products_commit();
                // While the products run. The levels come early enough for their
                // latency, which is long while memory is busy, to stay hidden.
                let (from, to) = hints.next();
                sieve.hint(tile, from, to);
                if slab == call.slabs / 2 {
                    unset = sieve.raise_levels(first_row, 0);
                }
                arch::products_wait::<0>();
                release::<CLUSTER>(call, cursor.stage);
                cursor.advance(tile_b);
                slab += 1;
                if slab == call.slabs {
                    break;
                }
            }
            if call.schedule.exists(item) {
                sieve.offer_tile(&mut sums, tile, first_row, unset);
                tiles_done += 1;
            }
            item += call.step;
            // Report once for each run of tiles of one batch tile.
            if item >= call.schedule.items() || call.schedule.tile(item).tile_b != tile.tile_b {
                let done = workspace.tiles_done(tile.tile_b);
                let last = arch::warps_arrive(
                    sm90::CONSUMERS_BARRIER,
                    done,
                    tiles_done,
                    call.schedule.tiles_v,
                    consumer,
                    consumers,
                );
                // A block that had nothing to report did not complete the count.
                if last && tiles_done != 0 {
                    let rows = (first_row, (first_row + tile_b).min(call.params.batch));
                    finish::write_outputs(call.params, &workspace, rows, consumer, consumers);
                    arch::warps_barrier(sm90::CONSUMERS_BARRIER, consumers);
                    finish::clear(&workspace, rows, tile.tile_b, consumer, consumers);
                }
                tiles_done = 0;
            }
        }
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
