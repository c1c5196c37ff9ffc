//! What a sampling kernel left of a listed row, as the threads of a block take turns over it.

use crate::abi::TILE_V;
use crate::abi::kept::THREADS;
use crate::candidate::Key;
use crate::shortlist::of_kept_tile;

/// A row's listed tokens, and tiles whose values were kept.
#[derive(Clone, Copy)]
pub(super) struct Shortlist {
    /// `[n_tokens]`: by their rows of the weights.
    pub(super) keys: *const Key,
    pub(super) n_tokens: u32,
    /// Behind the first of `n_tiles`: the words of [`of_kept_tile`].
    pub(super) tiles: *const u64,
    pub(super) n_tiles: u32,
    /// Tokens of the call's first tile that lie before its first.
    pub(super) lead: u32,
    /// `[V]`, as far as they are kept.
    pub(super) values: *const f32,
    pub(super) vocab: u32,
    /// Tokens with lower values do not count.
    pub(super) floor: f32,
}

/// The tokens of a shortlist.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    pub(super) list: Shortlist,
    /// The keys of those that count; null where there was no room for them.
    pub(super) keys: *const Key,
    /// How many keys, or how many tokens the list has.
    pub(super) n: u32,
}

/// Of all methods: the values are there, and nobody writes them meanwhile.
impl Shortlist {
    /// The list as it is in memory.
    #[inline(always)]
    pub(super) fn in_memory(self) -> Tokens {
        let n = self.n_tokens + self.n_tiles * TILE_V;
        Tokens { list: self, keys: core::ptr::null(), n }
    }

    /// The key of a token of a kept tile; none if it does not count.
    #[inline(always)]
    pub(super) fn key(&self, index: u32, y: f32) -> Key {
        // False for NaN.
        let counts = (y >= self.floor) & (y > f32::NEG_INFINITY);
        if counts { Key::of_value(y, index) } else { Key::NONE }
    }

    /// That of a listed one.
    #[inline(always)]
    pub(super) unsafe fn listed(&self, at: u32) -> Key {
        // SAFETY: the caller's promise: there are so many.
        let key = unsafe { self.keys.add(at as usize).read() };
        if key.score() >= self.floor { key } else { Key::NONE }
    }

    /// A token's value, `−inf` for one that is not the row's.
    #[inline(always)]
    pub(super) unsafe fn value(&self, index: u32) -> f32 {
        if index >= self.vocab {
            return f32::NEG_INFINITY;
        }
        // SAFETY: it is one of the row's.
        unsafe { self.values.add(index as usize).read() }
    }

    /// The word of the `at`th kept tile.
    #[inline(always)]
    pub(super) unsafe fn kept_tile(&self, at: u32) -> (u32, f32) {
        // SAFETY: there is a word for each.
        of_kept_tile(unsafe { self.tiles.sub(at as usize).read() } as u32)
    }

    /// The index of a tile's token, beyond all where it lies before the first.
    #[inline(always)]
    pub(super) fn index(&self, tile: u32, line: u32) -> u32 {
        (tile * TILE_V + line).wrapping_sub(self.lead)
    }
}

/// Of all methods: the values are there, and nobody writes them meanwhile.
impl Tokens {
    /// Hands over the keys of the thread's tokens, and with them [`Key::NONE`] for some that
    /// do not count.
    #[inline(always)]
    pub(super) unsafe fn each(&self, thread: u32, mut run: impl FnMut(Key)) {
        let mut at = thread;
        while at < self.n {
            // SAFETY: there are so many.
            run(unsafe { self.key(at) });
            at += THREADS;
        }
    }

    /// Of a list in memory, first come its tokens, then those of its tiles.
    #[inline(always)]
    unsafe fn key(&self, at: u32) -> Key {
        let list = &self.list;
        // SAFETY: the caller's promise: `at` is below their number.
        unsafe {
            if !self.keys.is_null() {
                return self.keys.add(at as usize).read();
            }
            if at < list.n_tokens {
                return list.listed(at);
            }
            let at = at - list.n_tokens;
            let index = list.index(list.kept_tile(at / TILE_V).0, at % TILE_V);
            list.key(index, list.value(index))
        }
    }
}
