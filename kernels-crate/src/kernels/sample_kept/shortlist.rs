//! What a sampling kernel left of a listed row, as the threads of a block take turns over it.

use super::crew::key;
use crate::abi::TILE_V;
use crate::abi::kept::THREADS;
use crate::arch;
use crate::candidate::Key;

#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Four([f32; 4]);

/// Tokens of a thread that are on their way together.
const TOGETHER: usize = 4;

/// A row's listed tokens, and those of tiles whose values were kept.
#[derive(Clone, Copy)]
pub(super) struct Shortlist {
    /// `[n]`: rows of the weights.
    pub(super) indices: *const u32,
    pub(super) n: u32,
    /// Their values in the same order, or those of all tokens by their index.
    pub(super) values: *const f32,
    pub(super) in_order: bool,
    /// Behind the first of `n_tiles`: the index of each tile's first token, which may lie
    /// before the call's first.
    pub(super) tiles: *const u32,
    pub(super) n_tiles: u32,
    /// Tokens with lower values do not count.
    pub(super) floor: f32,
    pub(super) vocab: u32,
}

impl Shortlist {
    /// Hands over the thread's tokens, by the row of their weights, and their values, and with
    /// them some that there are not, or that do not count, of value `−inf`.
    ///
    /// # Safety
    /// The values are there, and nobody writes them meanwhile.
    #[inline(always)]
    pub(super) unsafe fn for_each(&self, thread: u32, run: impl FnMut(u32, f32)) {
        // SAFETY: the caller's promise.
        unsafe { self.each::<TOGETHER>(thread, run) }
    }

    /// The key and value of a token of a list that is all in order; none past its end.
    ///
    /// # Safety
    /// As [`Self::for_each`].
    #[inline(always)]
    pub(super) unsafe fn own(&self, thread: u32) -> Option<(Key, f32)> {
        // SAFETY: the caller's promise.
        let (index, y) = unsafe { self.token(thread) };
        (y > f32::NEG_INFINITY).then(|| (key(index, y), y))
    }

    /// `for_each`, with `N` tokens on their way together, and a text of `run` for each.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn each<const N: usize>(&self, thread: u32, mut run: impl FnMut(u32, f32)) {
        let mut from = thread;
        while from < self.n + self.n_tiles * TILE_V {
            let (mut indices, mut values) = ([0; N], [f32::NEG_INFINITY; N]);
            let mut i = 0;
            while i < N {
                // SAFETY: the caller's promise.
                (indices[i], values[i]) = unsafe { self.token(from + i as u32 * THREADS) };
                i += 1;
            }
            i = 0;
            while i < N {
                run(indices[i], values[i]);
                i += 1;
            }
            from += N as u32 * THREADS;
        }
    }

    /// `for_each` while nothing is in shared memory yet. Of what is in memory as much as a thread
    /// has of a tile a multiprocessor, and of a list of a thousand, is on its way together.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn each_at_once(&self, thread: u32, mut run: impl FnMut(u32, f32)) {
        const FOURS: u32 = TILE_V / 4;
        const FOURS_TOGETHER: usize = 9;
        const TOKENS_TOGETHER: usize = 2;
        let mut run = |index, y| {
            // False for NaN.
            if y >= self.floor {
                run(index, y);
            }
        };
        // Tiles begin a multiple of `TILE_V` from each other, and rows of values are aligned.
        // SAFETY: there is an entry for each tile.
        let aligned = self.n_tiles == 0 || unsafe { self.tiles.read() }.is_multiple_of(4);
        let fours = if aligned { self.n_tiles * FOURS } else { 0 };
        let (mut four_at, mut token_at) = (thread, thread);
        // SAFETY: the caller's promise; indices are checked, and rows of values end with a whole
        // four.
        unsafe {
            while four_at < fours || token_at < self.n {
                let mut firsts = [u32::MAX; FOURS_TOGETHER];
                let mut tokens = [u32::MAX; TOKENS_TOGETHER];
                let mut i = 0;
                while i < FOURS_TOGETHER {
                    let at = four_at + i as u32 * THREADS;
                    if at < fours {
                        let first = self.tiles.sub((at / FOURS) as usize).read();
                        firsts[i] = first.wrapping_add(at % FOURS * 4);
                    }
                    i += 1;
                }
                i = 0;
                while i < TOKENS_TOGETHER {
                    let at = token_at + i as u32 * THREADS;
                    if at < self.n {
                        tokens[i] = self.indices.add(at as usize).read();
                    }
                    i += 1;
                }
                let mut values = [Four([f32::NEG_INFINITY; 4]); FOURS_TOGETHER];
                i = 0;
                while i < FOURS_TOGETHER {
                    if firsts[i] < self.vocab {
                        values[i] = self.values.add(firsts[i] as usize).cast::<Four>().read();
                    }
                    i += 1;
                }
                let mut of_tokens = [f32::NEG_INFINITY; TOKENS_TOGETHER];
                i = 0;
                while i < TOKENS_TOGETHER {
                    if tokens[i] < self.vocab {
                        of_tokens[i] = self.values.add(tokens[i] as usize).read();
                    }
                    i += 1;
                }
                i = 0;
                while i < FOURS_TOGETHER {
                    let Four([a, b, c, d]) = values[i];
                    // Of most fours none. False for NaN.
                    if (a >= self.floor) | (b >= self.floor) | (c >= self.floor) | (d >= self.floor)
                    {
                        // Opaque: one text for all four.
                        let (mut member, members) = (0, arch::opaque(4));
                        while member < members {
                            let [low, high] = if member < 2 { [a, b] } else { [c, d] };
                            let y = if member % 2 == 0 { low } else { high };
                            let index = firsts[i].wrapping_add(member);
                            run(index, if index < self.vocab { y } else { f32::NAN });
                            member += 1;
                        }
                    }
                    i += 1;
                }
                i = 0;
                while i < TOKENS_TOGETHER {
                    run(tokens[i], of_tokens[i]);
                    i += 1;
                }
                four_at += FOURS_TOGETHER as u32 * THREADS;
                token_at += TOKENS_TOGETHER as u32 * THREADS;
            }
            if !aligned {
                Self { n: 0, ..*self }.each::<1>(thread, run);
            }
        }
    }

    /// The index and value of a token: first come those of the list, then those of the tiles;
    /// `−inf` for one that there is not, or that does not count.
    #[inline(always)]
    unsafe fn token(&self, at: u32) -> (u32, f32) {
        let (mut index, mut y) = (0, f32::NEG_INFINITY);
        // SAFETY: the caller's promise; the index is checked.
        unsafe {
            if at < self.n {
                index = self.indices.add(at as usize).read();
                let place = if self.in_order { at } else { index };
                y = self.values.add(place as usize).read();
            } else if at < self.n + self.n_tiles * TILE_V {
                let at = at - self.n;
                let first = self.tiles.sub((at / TILE_V) as usize).read();
                index = first.wrapping_add(at % TILE_V);
                if index < self.vocab {
                    y = self.values.add(index as usize).read();
                }
            }
        }
        // False for NaN.
        let counts = y >= self.floor;
        (index, if counts { y } else { f32::NEG_INFINITY })
    }
}
