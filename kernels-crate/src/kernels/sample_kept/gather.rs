//! From a shortlist in memory to the keys of those of its tokens that count, in shared memory.

use super::THREADS_LEN;
use super::crew::Crew;
use super::shortlist::{OF_A_LANE, Shortlist, Tokens};
use crate::abi::kept::THREADS;
use crate::arch::{self, PerThread};
use crate::candidate::Key;

/// Lanes of a warp, which look at a tile together.
const LANES: u32 = 32;
const WARPS: u32 = THREADS / LANES;

/// Listed tokens of a thread, and tiles of a warp, that are on their way together.
const TOKENS: usize = 2;
const TILES: usize = 2;

/// The tokens that count: the keys of as many as there are threads, or of `room.1`, which has
/// the aligned place `room.0` for them; if there are more, the list as it is.
///
/// # Safety
/// All threads of the block; the list is there. `n_found` and `n_tiles` of `Shared::short` are
/// 0, and what is found [`Key::NONE`].
#[inline(always)]
pub(super) unsafe fn gather(crew: &Crew<1>, list: Shortlist, room: (*mut Key, u32)) -> Tokens {
    // SAFETY: there is room for as many; legs part what is written from what is read.
    unsafe {
        let short = &raw mut (*crew.shared).short;
        let found = (&raw mut (*short).found).cast::<Key>();
        let tiles = (&raw mut (*short).tiles).cast::<u32>();
        let (n_found, n_tiles) = (&raw mut (*short).n_found, &raw mut (*short).n_tiles);
        let (more, most) = room;
        let push = |key: Key| {
            if key != Key::NONE {
                let at = arch::block_add_u32(n_found, 1);
                if at < THREADS {
                    found.add(at as usize).write(key);
                }
                if at < most {
                    more.add(at as usize).write(key);
                }
            }
        };
        let index = |at: u32| {
            if at < list.n_tokens { list.indices.add(at as usize).read() } else { u32::MAX }
        };
        // While the first indices are on their way: which tiles have a token that counts.
        let mut indices = PerThread::<_, THREADS_LEN>::new([u32::MAX; TOKENS]);
        arch::leg(&mut indices, |thread, indices| {
            let thread = arch::opaque(thread);
            *indices = [index(thread), index(thread + THREADS)];
            let mut at = thread;
            while at < list.n_tiles {
                let (tile, bound) = list.kept_tile(at);
                if bound >= list.floor {
                    let at = arch::block_add_u32(n_tiles, 1);
                    if at < THREADS {
                        tiles.add(at as usize).write(tile);
                    }
                }
                at += THREADS;
            }
        });
        let n_looked_at = n_tiles.read();
        if n_looked_at > THREADS {
            return list.in_memory();
        }
        arch::leg(&mut indices, |thread, indices| {
            let thread = arch::opaque(thread);
            let mut listed = indices.map(|index| (index, list.value(index)));
            let (mut at, lane) = (thread / LANES, thread % LANES);
            while at < n_looked_at {
                let mut fours = [(0, [f32::NEG_INFINITY; OF_A_LANE]); TILES];
                let mut i = 0;
                while i < TILES {
                    let at = at + i as u32 * WARPS;
                    if at < n_looked_at {
                        let tile = tiles.add(at as usize).read();
                        fours[i] = (tile, list.four(tile, lane));
                    }
                    i += 1;
                }
                i = 0;
                while i < TILES {
                    let (tile, [a, b, c, d]) = fours[i];
                    let first = list.index(tile, lane * OF_A_LANE as u32);
                    // Opaque: one text for all four.
                    let (mut member, members) = (0, arch::opaque(OF_A_LANE as u32));
                    while member < members {
                        let [low, high] = if member < 2 { [a, b] } else { [c, d] };
                        let y = if member % 2 == 0 { low } else { high };
                        let index = first.wrapping_add(member);
                        if index < list.vocab {
                            push(list.key(index, y));
                        }
                        member += 1;
                    }
                    i += 1;
                }
                at += TILES as u32 * WARPS;
            }
            let mut at = thread;
            while at < list.n_tokens {
                let mut i = 0;
                while i < TOKENS {
                    let (index, y) = listed[i];
                    push(list.key(index, y));
                    i += 1;
                }
                at += TOKENS as u32 * THREADS;
                let indices = [index(at), index(at + THREADS)];
                listed = indices.map(|index| (index, list.value(index)));
            }
        });
        let n = n_found.read();
        if n <= THREADS {
            Tokens { list, keys: found, n }
        } else if n <= most {
            Tokens { list, keys: more, n }
        } else {
            list.in_memory()
        }
    }
}
