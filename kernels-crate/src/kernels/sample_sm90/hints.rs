//! Hint warps: the rows, hints and levels that the consumers' sieves will ask for.

use super::Call;
use super::consumer::{self, Share};
use crate::abi::sm90;
use crate::arch;
use crate::kernels::sieve::Sieve;

/// Runs a thread of the hint warps, `thread` counted from 0.
///
/// # Safety
/// All threads of the hint warps.
#[inline(always)]
pub(super) unsafe fn run<const M_TILES: usize, const N_TILES: usize, const SUMS: bool>(
    call: &Call<'_>,
    thread: u32,
) {
    let tile_b = N_TILES as u32 * 8;
    let turns = consumer::turns(M_TILES);
    let mut item = call.first_item;
    let (mut items, mut turn) = (0, 0);
    // A bit a warpgroup. The first round of `hints_free` passes at once.
    let (mut free_parities, mut wanted_parities) = (0b11, 0);
    // SAFETY: the caller's promise.
    unsafe {
        while item < call.schedule.items() {
            let tile = call.schedule.tile(item);
            let first_row = tile.tile_b * tile_b;
            let turns_back = call.step * turns as u64;
            let new_rows = call.params.draws != 1
                || items < turns
                || call.schedule.tile(item - turns_back).tile_b != tile.tile_b;
            // Opaque: unrolled, there would be a copy of everything for each warpgroup.
            let end = arch::opaque(if turns == 1 { sm90::GROUPS } else { turn + 1 });
            let mut draw = 0;
            while draw < call.params.draws {
                let mut group = turn;
                while group < end {
                    arch::barrier_wait(call.ring.hints_free(group), free_parities >> group & 1);
                    free_parities ^= 1 << group;
                    let sieve = sieve::<M_TILES, N_TILES, SUMS>(call, group, thread);
                    if new_rows {
                        sieve.write_rows(first_row, draw, thread, sm90::HINT_THREADS);
                        arch::warps_barrier(sm90::HINT_BARRIER, sm90::HINT_THREADS);
                    }
                    if draw == 0 {
                        sieve.write_rules(tile, first_row, thread, sm90::HINT_THREADS);
                    }
                    if draw == 0 && group == turn {
                        sieve.tell_floors(first_row, thread, sm90::HINT_THREADS);
                    }
                    let all = Sieve::<M_TILES, N_TILES, SUMS>::PORTIONS;
                    sieve.write_hints(tile, (0, all), thread, sm90::HINT_THREADS);
                    if turns != 1 {
                        arch::barrier_arrive_each(call.ring.hints_ready(group));
                    }
                    group += 1;
                }
                let mut group = turn;
                while turns == 1 && group < end {
                    if draw == 0 {
                        let wanted = call.ring.levels_wanted(group);
                        arch::barrier_wait(wanted, wanted_parities >> group & 1);
                        wanted_parities ^= 1 << group;
                    }
                    let sieve = sieve::<M_TILES, N_TILES, SUMS>(call, group, thread);
                    let unset = sieve.write_levels(first_row, draw, thread, sm90::HINT_THREADS);
                    let unset = arch::warps_any(unset, sm90::HINT_BARRIER, sm90::HINT_THREADS);
                    if thread == 0 {
                        call.ring.unset(group).write(unset as u32);
                    }
                    arch::barrier_arrive_each(call.ring.hints_ready(group));
                    group += 1;
                }
                draw += 1;
            }
            turn = (turn + 1) % turns;
            item += call.step;
            items += 1;
        }
    }
}

/// The sieve of a warpgroup, as the thread's lane of its first warp sees it.
#[inline(always)]
unsafe fn sieve<'a, const M_TILES: usize, const N_TILES: usize, const SUMS: bool>(
    call: &Call<'a>,
    group: u32,
    thread: u32,
) -> Sieve<'a, M_TILES, N_TILES, SUMS> {
    let share = Share::new(M_TILES, group, thread % 32);
    // SAFETY: the caller's promise.
    unsafe { consumer::sieve_of(call, group, share, sm90::HINT_BARRIER) }
}
