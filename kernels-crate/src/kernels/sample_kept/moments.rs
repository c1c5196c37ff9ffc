//! What entropies need of all of a row's tokens: the sum of their weights, and of the `−log₂` of
//! these, each counted by its weight. Floating-point sums: each thread adds in an order of its own,
//! and the threads' sums are added in one that is always the same.

use core::f32::consts::LN_2;

use super::row::values_of;
use super::view::{Four, TOGETHER};
use crate::abi::kept::{KeptParams, THREADS};
use crate::mass::log_of_weights;
use crate::partial_sum::{report_temperature, weight_and_depth};

const FOUR: u32 = TOGETHER as u32;

/// Of the model's distribution, and the row's.
pub(super) type OfBoth = [Moments; 2];

/// The sums over some of a row's tokens, by one distribution. In double precision: by others'
/// weights, each would be off by what thousands of tokens add up to.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Moments {
    pub(super) weights: f64,
    depths: f64,
}

impl Moments {
    pub(super) const NONE: Self = Self { weights: 0.0, depths: 0.0 };

    /// `−Σ p·ln p`, of all tokens.
    #[inline(always)]
    pub(super) fn entropy(self) -> f32 {
        let mean = (self.depths / self.weights) as f32;
        log_of_weights(self.weights as f32) + LN_2 * mean
    }

    /// Adds a token with the value `y`; a token of the value `unit` has the weight 1.
    #[inline(always)]
    pub(super) fn add(&mut self, unit: f32, y: f32, inverse: f32) {
        let [weight, depth] = weight_and_depth(y, unit, inverse);
        self.weights += weight as f64;
        self.depths += (weight * depth) as f64;
    }
}

/// Both, each as two words.
#[inline(always)]
pub(super) fn to_words([of_model, of_row]: OfBoth) -> [u64; 4] {
    [of_model.weights, of_model.depths, of_row.weights, of_row.depths].map(f64::to_bits)
}

#[inline(always)]
pub(super) fn from_words(words: [u64; 4]) -> OfBoth {
    let [weights, depths, own_weights, own_depths] = words.map(f64::from_bits);
    [Moments { weights, depths }, Moments { weights: own_weights, depths: own_depths }]
}

/// Adds the sums of two parts.
#[inline(always)]
pub(super) fn merge(a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
    let mut sums = a;
    let mut word = 0;
    while word < sums.len() {
        sums[word] = (f64::from_bits(a[word]) + f64::from_bits(b[word])).to_bits();
        word += 1;
    }
    sums
}

/// The sums over the thread's tokens of a part of a row, whose highest value is this, by those
/// distributions that are wanted.
///
/// # Safety
/// The row's values are there.
#[inline(always)]
pub(super) unsafe fn of_part(
    params: &KeptParams,
    (row, highest, wanted): (u32, f32, [bool; 2]),
    (begin, end): (u32, u32),
    thread: u32,
) -> OfBoth {
    let mut sums = [Moments::NONE; 2];
    // SAFETY: the caller's promise; a row's memory ends with a whole four.
    unsafe {
        let own = params.sample.temperatures.add(row as usize).read();
        let inverses = [1.0, 1.0 / report_temperature(own)];
        let values = values_of(params, row);
        let read = |at: u32| {
            let none = Four([f32::NEG_INFINITY; TOGETHER]);
            if at < end { values.add(at as usize).cast::<Four>().read() } else { none }
        };
        let mut at = begin + FOUR * thread;
        let mut next = read(at);
        while at < end {
            let (Four(own), own_at) = (next, at);
            at += FOUR * THREADS;
            // On their way while these are looked at.
            next = read(at);
            let mut part = 0;
            while part < sums.len() {
                let mut i = 0;
                while wanted[part] && i < TOGETHER {
                    // Beyond the row may lie anything.
                    let is_there = own_at + (i as u32) < end;
                    let y = if is_there { own[i] } else { f32::NEG_INFINITY };
                    sums[part].add(highest, y, inverses[part]);
                    i += 1;
                }
                part += 1;
            }
        }
    }
    sums
}
