//! Rehearsal: while the sampling kernel still runs, a block that may get a listed row goes
//! through the whole way of one, so that the instructions are near when it gets its own: fetched
//! one after the other, they would take longer than what they do.
//!
//! A rehearsal is a call too: of one row that lists one token, with everything in the block's own
//! memory. Before it nothing has been read that an earlier kernel may write, and it writes
//! nothing that is not its own.

use super::crew::Crew;
use super::short::BINS_OF_A_THREAD;
use super::{Shared, THREADS_LEN};
use crate::abi::SampleParams;
use crate::abi::kept::{KeptParams, RowFeatures};
use crate::shortlist::{bin, height};

/// The value of the one token.
const VALUE: f32 = 0.0;

/// Asks for what most rows ask for.
const FEATURES: RowFeatures = RowFeatures { top_k: 1, top_p: 0.5, min_p: 0.5, ..RowFeatures::NONE };

/// What a rehearsal's parameters point to, but for the tally, which is where the block has that
/// of each row.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Stage {
    /// The parameters of the rehearsal, and of the call.
    passes: [KeptParams; 2],
    features: RowFeatures,
    seed: u64,
    position: u64,
    temperature: f32,
    value: f32,
    index: u32,
    token: u32,
    status: u32,
    score: f32,
    margin: f32,
}

// SAFETY: addresses, set before each call that reads through them.
unsafe impl Send for Stage {}
// SAFETY: the same.
unsafe impl Sync for Stage {}

/// Leg: sets the stage. Returns the parameters of the two passes.
///
/// # Safety
/// All threads of the block.
#[inline(always)]
pub(super) unsafe fn set(
    params: &KeptParams,
    shared: *mut Shared,
    crew: &Crew<1>,
) -> *const KeptParams {
    // SAFETY: the block's own memory, of which each place is one thread's.
    unsafe {
        let stage = &raw mut (*shared).stage;
        let tally = &raw mut (*shared).short.tally;
        crew.leg(|thread| {
            let bins = (&raw mut (*tally).bins).cast::<u32>();
            let mut i = 0;
            while i < BINS_OF_A_THREAD {
                let at = thread as usize + i * THREADS_LEN;
                bins.add(at).write((at == bin(VALUE) as usize) as u32);
                i += 1;
            }
            if thread != 0 {
                return;
            }
            (&raw mut (*tally).highest).write(height(VALUE));
            (&raw mut (*tally).floor).write(0);
            (&raw mut (*tally).n_tokens).write(1);
            (&raw mut (*tally).n_tiles).write(0);
            let sample = SampleParams {
                temperatures: &raw const (*stage).temperature,
                seeds: &raw const (*stage).seed,
                positions: &raw const (*stage).position,
                tokens: &raw mut (*stage).token,
                status: &raw mut (*stage).status,
                scores: &raw mut (*stage).score,
                margins: &raw mut (*stage).margin,
                values: &raw mut (*stage).value,
                listed: &raw mut (*stage).index,
                tallies: tally,
                features: &raw const (*stage).features,
                batch: 1,
                draws: 1,
                ..params.sample
            };
            stage.write(Stage {
                passes: [KeptParams { sample, ..*params }, *params],
                features: FEATURES,
                seed: 0,
                position: 0,
                temperature: 1.0,
                value: VALUE,
                index: 0,
                token: 0,
                status: 0,
                score: 0.0,
                margin: 0.0,
            });
        });
        (&raw const (*stage).passes).cast()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::super::short::{self, Known};
    use super::*;
    use crate::status::Status;
    use core::mem::zeroed;
    use std::boxed::Box;

    #[test]
    fn the_one_token_is_drawn_and_the_tally_cleared() {
        let mut shared = Box::<Shared>::new_uninit();
        let shared = shared.as_mut_ptr();
        // SAFETY: parameters are numbers and addresses; all that are used are the stage's.
        unsafe {
            let mut params: KeptParams = zeroed();
            (params.sample.vocab, params.sample.first_token) = (1_000, 77);
            params.sample.applies_rules = 1;
            let crew = Crew::<1>::new(shared, 0);
            let passes = set(&params, shared, &crew);
            let (rehearsal, call) = (&*passes, &*passes.add(1));
            assert_eq!((call.sample.batch, call.sample.vocab), (0, 1_000));
            let known = Known::take(rehearsal, &crew, 0);
            assert!(known.is_listed());
            short::finish_row(rehearsal, &crew, (core::ptr::null_mut(), 0), 0, known);
            let stage = &raw const (*shared).stage;
            assert_eq!(((*stage).token, (*stage).status), (77, Status::OK.bits()));
            let tally = &raw const (*shared).short.tally;
            assert_eq!(((*tally).highest, (*tally).n_tokens), (0, 0));
        }
    }
}
