//! The greatest values of a row's tiles: what most tiles need not be looked at for.

use super::tile::{TILE_V_LEN, highest};
use crate::error::Error;
use crate::output::reserve;

/// The greatest value of each piece of a row that has a tile's length; none is NaN.
#[derive(Debug, Default)]
pub(super) struct Tops(Vec<f32>);

impl Tops {
    /// Makes room for `tokens` values.
    pub(super) fn reserve(&mut self, tokens: u64) -> Result<(), Error> {
        self.0.clear();
        reserve(&mut self.0, tokens.div_ceil(TILE_V_LEN as u64))?;
        Ok(())
    }

    /// Finds those of these values, and tells the greatest of all.
    #[inline(always)]
    pub(super) fn find(&mut self, values: &[f32]) -> f32 {
        let (tiles, rest) = values.as_chunks::<TILE_V_LEN>();
        self.0.clear();
        self.0.extend(tiles.iter().map(highest));
        if !rest.is_empty() {
            self.0.push(rest.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
        self.0.iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }

    /// Those that were found.
    pub(super) fn of_tiles(&self) -> &[f32] {
        &self.0
    }

    /// Whether any of `n` values from `first` on, at least one, may reach `least`.
    #[inline(always)]
    pub(super) fn may_reach(&self, first: usize, n: usize, least: f32) -> bool {
        let tops = &self.0[first / TILE_V_LEN..=(first + n - 1) / TILE_V_LEN];
        tops.iter().any(|&top| top >= least)
    }
}
