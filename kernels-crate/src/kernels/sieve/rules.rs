//! Rules: which of a tile's tokens its rows admit, and which are to be edited.
//!
//! Tokens that are not admitted become `−inf` before anything is compared. Of a pair with a
//! listed token the sums stay as they are: it sets no level, always passes, and is edited and
//! compared as it is drained, by the lanes of a warp together.

use super::{Sieve, Sums};
use crate::abi::kept::RowFeatures;
use crate::abi::sieve;
use crate::arch;
use crate::filters::Filters;
use crate::kernels::rules::{self, TileRules};
use crate::kernels::schedule::Tile;
use crate::philox::{PAIR, PAIR_BIT};
use crate::shortlist;

/// Tokens of a word.
const WORD: u32 = u32::BITS;

/// Of a batch row and a tile, in shared memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RowRules {
    of_tile: TileRules,
    kind: Kind,
    /// Whether of this tile all values are kept: 0 or 1.
    keeps_tile: u32,
    /// Whether the rules say anything of the tile: 0 or 1.
    is_ruled: u32,
}

/// Some of a thread's columns.
#[derive(Clone, Copy)]
pub(super) struct Columns([u32; 2]);

impl Columns {
    /// Whether there are none, of any lane of the warp.
    #[inline(always)]
    pub(super) fn are_none(self) -> bool {
        arch::warp_or(self.0[0] | self.0[1]) == 0
    }

    #[inline(always)]
    pub(super) fn has(self, slot: usize) -> bool {
        self.0[slot / WORD as usize] >> (slot % WORD as usize) & 1 != 0
    }
}

/// What becomes of a batch row.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    /// It has no filters.
    Drawn,
    /// It is drawn as if it had none, and all its values are kept: what was drawn is judged by
    /// them later.
    Judged,
    /// All its values are kept, and its rules are applied later.
    Kept,
    /// Values from a floor on are listed; no token is drawn.
    Listed,
}

impl Kind {
    /// Whether tokens are drawn here.
    #[inline(always)]
    pub(super) fn is_drawn(self) -> bool {
        self == Self::Drawn || self == Self::Judged
    }
}

const _: () = assert!(size_of::<RowRules>() == sieve::RULES_BYTES as usize);

/// Bit `slot`, for each of the two columns of a fragment: of the thread's pairs those with a
/// token that is admitted, and of these with one that is listed.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Marks {
    pub(super) admitted: [u32; 2],
    pub(super) listed: [u32; 2],
}

impl Marks {
    /// Those of tiles without rules.
    pub(in crate::kernels) const NONE: Self = Self { admitted: [!0; 2], listed: [0; 2] };
}

impl<const M_TILES: usize, const N_TILES: usize, const SUMS: bool>
    Sieve<'_, M_TILES, N_TILES, SUMS>
{
    /// Whether the call has this sieve apply rules.
    #[inline(always)]
    pub(super) fn applies_rules(&self) -> bool {
        sieve::rules_bytes(Self::ROWS) > 0 && self.params.applies_rules != 0
    }

    /// `[ROWS]`.
    #[inline(always)]
    pub(super) fn rules(&self) -> *mut RowRules {
        self.shared.wrapping_add(Self::RULES_AT as usize).cast()
    }

    /// The part of worker `worker` of `workers` in writing what the rows' rules say of a tile.
    ///
    /// # Safety
    /// `tile` and `first_row` are the call's; nobody reads the rules before the next barrier.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn write_rules(
        &self,
        tile: Tile,
        first_row: u32,
        worker: u32,
        workers: u32,
    ) {
        if !self.applies_rules() {
            return;
        }
        let id_end = self.params.first_token + self.params.vocab;
        let mut at = arch::opaque(worker);
        while at < Self::ROWS && first_row + at < self.params.batch {
            // SAFETY: the row is the call's, and its slot the worker's own.
            unsafe {
                let row = (first_row + at) as usize;
                let features = &*self.params.features.add(row);
                let temperature = self.params.temperatures.add(row).read();
                let kind = self.kind_of(features, temperature);
                // Opaque: what the kind follows from is not needed any more.
                let slot = self.rules().add(arch::opaque(at) as usize);
                (&raw mut (*slot).kind).write(kind);
                let of_tile = &raw mut (*slot).of_tile;
                if kind == Kind::Kept {
                    TileRules::write_none(of_tile);
                } else {
                    let features = self.params.features.add(arch::opaque(row as u32) as usize);
                    TileRules::write(of_tile, &*features, tile.token, id_end);
                }
                (&raw mut (*slot).is_ruled).write(TileRules::say_anything(of_tile) as u32);
            }
            at += workers;
        }
    }

    /// What becomes of a row of a call whose rules are applied.
    #[inline(always)]
    pub(super) fn kind_of(&self, features: &RowFeatures, temperature: f32) -> Kind {
        // Without memory for values, the call has said that there are no filters.
        if self.params.values.is_null() || !Filters::new(features, temperature).any() {
            Kind::Drawn
        } else if !self.params.listed.is_null() && shortlist::serves(features, temperature) {
            Kind::Listed
        } else if self.params.judges != 0 && !rules::any(features) {
            Kind::Judged
        } else {
            Kind::Kept
        }
    }

    /// What becomes of the row in slot `at`, which is one of the batch.
    ///
    /// # Safety
    /// The rules are written.
    #[inline(always)]
    pub(super) unsafe fn kind(&self, at: u32) -> Kind {
        // SAFETY: there is a slot for each row.
        if self.applies_rules() {
            unsafe { (*self.rules().add(at as usize)).kind }
        } else {
            Kind::Drawn
        }
    }

    /// Where the row in slot `at` has whether all values of the tile are kept.
    #[inline(always)]
    pub(super) fn keeps_tile(&self, at: u32) -> *mut u32 {
        // SAFETY: there is a slot for each row.
        unsafe { &raw mut (*self.rules().add(at as usize)).keeps_tile }
    }

    /// Whether the rules of the row in slot `at` say anything of the tile.
    ///
    /// # Safety
    /// The rules are written.
    #[inline(always)]
    pub(super) unsafe fn is_ruled(&self, at: u32) -> bool {
        // SAFETY: there is a slot for each row.
        unsafe { (*self.rules().add(at as usize)).is_ruled != 0 }
    }

    /// Whether the rules of any of the thread's rows say anything of the tile.
    ///
    /// # Safety
    /// The rules are written.
    #[inline(always)]
    unsafe fn any_is_ruled(&self, first_row: u32) -> bool {
        let mut any = 0;
        let mut fragment = 0;
        while fragment < N_TILES {
            let mut column = 0;
            while column < 2 {
                let at = self.column(fragment, column);
                if first_row + at < self.params.batch {
                    // SAFETY: the slots of rows of the batch are written.
                    any |= unsafe { (*self.rules().add(at as usize)).is_ruled };
                }
                column += 1;
            }
            fragment += 1;
        }
        any != 0
    }

    /// Of which of the thread's columns the values are to be stored: bits in the order of
    /// fragments, and of the two columns of each.
    ///
    /// # Safety
    /// The rules and levels are written.
    #[inline(always)]
    pub(super) unsafe fn stored_columns(&self, first_row: u32) -> Columns {
        let mut columns = [0; 2];
        let mut slot = 2 * N_TILES;
        while slot != 0 {
            slot -= 1;
            let at = self.column(slot / 2, slot % 2);
            let mut is_stored = first_row + at < self.params.batch;
            if is_stored && self.applies_rules() {
                // SAFETY: the slots of rows of the batch are written.
                is_stored = unsafe { self.keeps_tile(at).read() } != 0;
            }
            let word = slot / WORD as usize;
            columns[word] = 2 * columns[word] + is_stored as u32;
        }
        Columns(columns.map(arch::opaque))
    }

    /// Takes out tokens that are not admitted, and tells which pairs are to be edited.
    ///
    /// # Safety
    /// As [`Self::offer_tile`]; the rules are written.
    #[inline(always)]
    pub(super) unsafe fn apply_rules(
        &self,
        sums: &mut Sums<M_TILES, N_TILES>,
        first_row: u32,
    ) -> Marks {
        if !self.applies_rules() {
            return Marks::NONE;
        }
        let sieve = self.afresh();
        // SAFETY: the caller's promise.
        if unsafe { !sieve.any_is_ruled(first_row) } {
            return Marks::NONE;
        }
        let (mut admitted, mut listed) = ([0; 2], [0; 2]);
        let mut slot = M_TILES * N_TILES;
        while slot != 0 {
            slot -= 1;
            let (fragment, m) = (slot / M_TILES, slot % M_TILES);
            let line = sieve.line(m);
            let mut column = 0;
            while column < 2 {
                let at = sieve.column(fragment, column);
                let (mut admits, mut lists) = (!0, 0);
                if first_row + at < self.params.batch {
                    // SAFETY: there are rules for each row of the batch, and lines are a tile's.
                    unsafe {
                        let rules = &raw const (*self.rules().add(at as usize)).of_tile;
                        (admits, lists) = TileRules::bits(rules, line);
                    }
                }
                // A pair's tokens are in one word.
                let [one, other] = pair_bits(admits, line);
                let [first, second] = pair_bits(lists, line);
                admitted[column] = 2 * admitted[column] + (one | other);
                listed[column] = 2 * listed[column] + (first | second);
                let sums = &mut sums[m][fragment];
                sums[column] = if one != 0 { sums[column] } else { f32::NEG_INFINITY };
                sums[2 + column] = if other != 0 { sums[2 + column] } else { f32::NEG_INFINITY };
                column += 1;
            }
            // Opaque, step by step: the bits are kept, not the conditions behind them.
            admitted = admitted.map(arch::opaque);
            listed = listed.map(arch::opaque);
        }
        Marks { admitted, listed }
    }

    /// Edits what is listed of a pair: column `column`'s tokens at `line` and `line + PAIR_BIT`.
    ///
    /// # Safety
    /// The rules are written; `row < B` is that of the column.
    #[inline(always)]
    pub(super) unsafe fn edit(
        &self,
        values: [f32; PAIR],
        (line, column): (u32, u32),
        row: u32,
    ) -> [f32; PAIR] {
        let mut values = values;
        // SAFETY: the caller's promise.
        unsafe {
            let rules = &raw const (*self.rules().add(column as usize)).of_tile;
            let listed = pair_bits(TileRules::bits(rules, line).1, line);
            let features = &*self.params.features.add(row as usize);
            // Opaque: one text for both.
            let (mut member, members) = (0, arch::opaque(PAIR as u32));
            while member < members {
                let is_first = member == 0;
                let (y, is_listed) =
                    if is_first { (values[0], listed[0]) } else { (values[1], listed[1]) };
                if is_listed != 0 {
                    let y = TileRules::edit(rules, features, line + member * PAIR_BIT, y);
                    values = if is_first { [y, values[1]] } else { [values[0], y] };
                }
                member += 1;
            }
        }
        values
    }
}

/// The bits of the tokens of a pair, of a word of the tile.
#[inline(always)]
fn pair_bits(word: u32, line: u32) -> [u32; PAIR] {
    let from_line = word >> (line % WORD);
    [from_line & 1, from_line >> PAIR_BIT & 1]
}
