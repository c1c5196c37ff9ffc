//! A row that is finished from few of its tokens: what its filters keep, and what is to be reported,
//! is found among those down to a floor. What is not proven there is left to the whole cluster
//! ([`crate::nucleus`]).

use super::brief::{self, Lists};
use super::chosen::Chosen;
use super::crew::Crew;
use super::gathered::Gathered;
use super::guess::{Asked, Guess};
use super::moments::OfBoth;
use super::ranked::Ranked;
use crate::abi::NO_TOKEN;
use crate::abi::kept::{KeptParams, THREADS, values_stride};
use crate::arch;
use crate::candidate::Key;
use crate::dims::{offset, output_index};
use crate::filters::Filters;
use crate::kernels::rules;
use crate::nucleus;
use crate::partial_sum::{PartialSum, merge_each, merge_words, weight};
use crate::scale::Scale;

/// What the blocks have found of a row.
#[derive(Clone, Copy)]
pub(super) struct Found {
    /// The keys of all tokens from the guess's floor on, by their values before rules, as far as
    /// these are to be reported, and after them.
    pub(super) of_model: (*mut Key, u32),
    pub(super) of_row: (*mut Key, u32),
    /// Those of both distributions, as far as they are wanted.
    pub(super) moments: OfBoth,
    /// Of the values, if filters ask for it.
    pub(super) deviation: f32,
}

/// What a block does of a row.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// Draws its tokens, and reports on these.
    pub(super) draws: bool,
    /// Reports the likeliest.
    pub(super) lists: bool,
}

/// A sum of weights below this, or above its inverse, is not accurate: their unit lies too far.
const LEAST_SUM: f32 = 1.0 / (1u64 << 40) as f32;

/// Does a part of a row of which this was found, and tells whether its outputs are right: if not,
/// they have no meaning.
///
/// # Safety
/// As [`super::guess::guess`].
#[inline(always)]
pub(super) unsafe fn finish<const FULL: bool>(
    params: &KeptParams,
    crew: &Crew<1>,
    (row, part): (u32, Part),
    guess: Guess,
    found: Found,
) -> bool {
    // Opaque: what follows from it would be computed before all rows, and cost registers.
    let vocab = arch::opaque(params.sample.vocab);
    let (floor, way, (keys, n)) = (guess.floor, guess.way, found.of_row);
    let is_ruled = FULL && way.is_ruled();
    // SAFETY: the caller's promise; `row < B`.
    unsafe {
        let Asked { shares, temperature, best, .. } = Asked::of(params, (row, way));
        // Fewer may be all that there are.
        let is_short = |n, best| n < best && floor > f32::NEG_INFINITY;
        if is_short(n, best) || is_short(found.of_model.1, params.raw.best) {
            return false;
        }
        let scale = Scale::new(guess.whole.highest, floor, temperature, vocab);
        let mut tokens = Gathered { keys, n, scale };
        let mut whole = guess.whole;
        if is_ruled {
            let sum = found.moments[1].weights as f32;
            let highest = tokens.highest(crew);
            let is_accurate = (LEAST_SUM..=1.0 / LEAST_SUM).contains(&sum);
            // False for NaN and `+inf`, and where there are no tokens.
            if !(is_accurate & (highest > f32::NEG_INFINITY)) {
                return false;
            }
            let unit = weight(highest, guess.unit, 1.0 / temperature);
            whole = PartialSum { highest, sum: sum / unit };
            tokens.scale = Scale::new(highest, floor, temperature, vocab);
        }
        let (mut climbed, mut in_order) = (false, 0);
        if way.is_nucleus() & part.draws {
            let limits = nucleus::Limits::new(&shares, tokens.scale, whole);
            let how = (row, way.is_judged(), is_ruled);
            if !tokens.draw_nucleus(crew, params, how, floor, limits) {
                return false;
            }
        } else if FULL && way.is_filtered() & part.draws {
            let features = &*params.sample.features.add(row as usize);
            if !nucleus::suffices(features, temperature, (n, floor), whole.highest) {
                return false;
            }
            let filters = Filters::new(features, temperature);
            let last;
            if let Some(n_found) = tokens.find_likeliest(crew, features.top_k) {
                let ends = (whole.highest, found.deviation);
                let mut ranked = Ranked::new(crew, n_found, ends, vocab);
                last = filters.last_of(&mut ranked);
                in_order = ranked.n_in_order();
            } else {
                let ends = (whole.highest, floor);
                let mut chosen = Chosen::new(crew, tokens, ends, (vocab, found.deviation));
                last = filters.last_of(&mut chosen);
                if chosen.failed {
                    return false;
                }
                (tokens, climbed) = (chosen.tokens, chosen.climbed);
            }
            tokens.draw_all(crew, params, row, last);
        }
        // What was put in order are the likeliest.
        if in_order < best && in_order < n {
            in_order = 0;
        }
        if part.lists && best > 0 && !climbed && in_order == 0 {
            tokens.climb(crew);
        }
        let (keys, n) = found.of_model;
        let scale = Scale::new(guess.whole.highest, floor, 1.0, vocab);
        let of_model = if is_ruled { Gathered { keys, n, scale } } else { tokens };
        let are_drawn = way.is_filtered();
        let lists = Lists { of_model, of_row: tokens, in_order, is_ruled, floor, are_drawn };
        brief::report(params, crew, (row, part, whole), &lists, found.moments)
    }
}

/// A row's values.
#[inline(always)]
pub(super) fn values_of(params: &KeptParams, row: u32) -> *const f32 {
    let first = offset(row, values_stride(params.sample.vocab), 0);
    params.sample.values.wrapping_add(first as usize)
}

/// The value of a token of a row, after its rules if it has any.
///
/// # Safety
/// There is such a token, which rules admit; the row's values and lists are there.
#[inline(always)]
pub(super) unsafe fn value_after_rules(
    params: &KeptParams,
    (row, is_ruled): (u32, bool),
    index: u32,
) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let y = values_of(params, row).add(index as usize).read();
        if !is_ruled {
            return y;
        }
        let features = &*params.sample.features.add(row as usize);
        rules::edit(features, params.sample.first_token + index, y)
    }
}

/// The sum of a row's weights, by its own distribution or the model's.
///
/// # Safety
/// As [`super::guess::guess`]; that distribution was summed up.
#[inline(always)]
pub(super) unsafe fn sum_of(
    params: &KeptParams,
    crew: &Crew<1>,
    row: u32,
    of_row: bool,
    temperature: f32,
) -> PartialSum {
    // SAFETY: the caller's promise.
    let [whole] = unsafe {
        let give = |thread| [part_of_sum(params, row, of_row, temperature, thread).bits()];
        crew.reduce_block(give, merge_words(1.0 / temperature))
    };
    PartialSum::from_bits(whole)
}

/// A thread's part of it.
///
/// # Safety
/// The same.
#[inline(always)]
pub(super) unsafe fn part_of_sum(
    params: &KeptParams,
    row: u32,
    of_row: bool,
    temperature: f32,
    thread: u32,
) -> PartialSum {
    // By value: a choice of references would be one of addresses of the kernel's parameters.
    let (of_model, own) = (params.sample.partials[0], params.sample.partials[1]);
    let (partials, n) = (if of_row { own } else { of_model }, params.sample.n_partials);
    let of_this_row = partials.wrapping_add(offset(row, n as u64, 0) as usize);
    // SAFETY: the caller's promise.
    unsafe { merge_each(of_this_row, (thread, THREADS, n), 1.0 / temperature) }
}

/// The key of a token that was drawn, by its value before rules; none where none was.
///
/// # Safety
/// `row < B`, `draw < S`; the row's values are there.
#[inline(always)]
pub(super) unsafe fn drawn_key(params: &KeptParams, row: u32, draw: u32) -> Key {
    // SAFETY: the caller's promise.
    unsafe {
        let y = |index: u32| values_of(params, row).add(index as usize).read();
        let of = |index| Key::of_value(y(index), index);
        drawn(params, row, draw).map_or(Key::NONE, of)
    }
}

/// The least of these keys: that of the least likely token that was drawn.
///
/// # Safety
/// `row < B`; the row's values are there.
#[inline(always)]
pub(super) unsafe fn least_drawn(params: &KeptParams, row: u32) -> Key {
    let (mut least, mut draw) = (Key::from_bits(u64::MAX), 0);
    while draw < params.sample.draws {
        // SAFETY: the caller's promise.
        least = core::cmp::min(least, unsafe { drawn_key(params, row, draw) });
        draw += 1;
    }
    least
}

/// A token that was drawn, by the row of its weights; none where none was.
///
/// # Safety
/// `row < B`, `draw < S`.
#[inline(always)]
pub(super) unsafe fn drawn(params: &KeptParams, row: u32, draw: u32) -> Option<u32> {
    let sample = &params.sample;
    // SAFETY: the caller's promise; it is a token of the row.
    unsafe {
        let at = output_index(row, sample.draws, draw) as usize;
        let token = arch::load_shared_u32(sample.tokens.add(at));
        let index = token.wrapping_sub(sample.first_token);
        (token != NO_TOKEN).then_some(index)
    }
}
