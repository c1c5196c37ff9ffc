//! From a shortlist in memory to the keys of those of its tokens that count, in shared memory.

use super::THREADS_LEN;
use super::crew::Crew;
use super::shortlist::{Shortlist, Tokens};
use crate::abi::TILE_V;
use crate::abi::kept::THREADS;
use crate::arch::{self, PerThread};
use crate::candidate::Key;

/// Of a thread's tokens those that are on their way together: listed ones, and of kept tiles.
const LISTED: usize = 2;
const KEPT: usize = 4;

/// The tokens that count: the keys of as many as there are threads, or of `room.1`, which have
/// their place at `room.0`; if there are more, the list as it is.
///
/// # Safety
/// All threads of the block; the list is there. In `Shared::short` nothing is found yet.
#[inline(always)]
pub(super) unsafe fn gather(crew: &Crew<1>, list: Shortlist, room: (*mut Key, u32)) -> Tokens {
    // SAFETY: there is room for as many; legs part what is written from what is read.
    unsafe {
        let short = &raw mut (*crew.shared).short;
        let found = (&raw mut (*short).found).cast::<Key>();
        let tiles = (&raw mut (*short).tiles).cast::<u32>();
        let (n_found, n_tiles) = (&raw mut (*short).n_found, &raw mut (*short).n_tiles);
        let (more, most) = room;
        let push = |keys: [Key; LISTED + KEPT]| {
            let n = keys.iter().fold(0, |n, &key| n + (key != Key::NONE) as u32);
            if n == 0 {
                return;
            }
            let mut at = arch::block_add_u32(n_found, n);
            let mut i = 0;
            while i < keys.len() {
                if keys[i] != Key::NONE {
                    if at < THREADS {
                        found.add(at as usize).write(keys[i]);
                    }
                    if at < most {
                        more.add(at as usize).write(keys[i]);
                    }
                    at += 1;
                }
                i += 1;
            }
        };
        let listed = |at: u32| if at < list.n_tokens { list.listed(at) } else { Key::NONE };
        // While the first keys are on their way: which tiles have a token that counts.
        let mut first = PerThread::<_, THREADS_LEN>::new([Key::NONE; LISTED]);
        arch::leg(&mut first, |thread, first| {
            let thread = arch::opaque(thread);
            *first = [listed(thread), listed(thread + THREADS)];
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
        let n_tiles = n_tiles.read();
        if n_tiles > THREADS {
            return list.in_memory();
        }
        arch::leg(&mut first, |thread, next| {
            let (mut listed_at, mut kept_at) = (arch::opaque(thread), arch::opaque(thread));
            let kept_end = n_tiles * TILE_V;
            while listed_at < list.n_tokens || kept_at < kept_end {
                let mut indices = [u32::MAX; KEPT];
                let mut i = 0;
                while i < KEPT {
                    let at = kept_at + i as u32 * THREADS;
                    if at < kept_end {
                        let tile = tiles.add((at / TILE_V) as usize).read();
                        indices[i] = list.index(tile, at % TILE_V);
                    }
                    i += 1;
                }
                let values = indices.map(|index| list.value(index));
                let mut keys = [Key::NONE; LISTED + KEPT];
                keys[..LISTED].copy_from_slice(&*next);
                i = 0;
                while i < KEPT {
                    keys[LISTED + i] = list.key(indices[i], values[i]);
                    i += 1;
                }
                push(keys);
                listed_at += LISTED as u32 * THREADS;
                kept_at += KEPT as u32 * THREADS;
                *next = [listed(listed_at), listed(listed_at + THREADS)];
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
