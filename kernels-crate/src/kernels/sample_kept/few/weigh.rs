//! What rows need beside their likeliest tokens, of all of a block's part of them: sums of
//! weights, tokens by their values after rules, how far values spread.

use super::super::crew::add;
use super::super::moments::{self, Moments, to_words};
use super::super::parts::part_of;
use super::super::ruled::Part;
use super::Rows;
use crate::arch;
use crate::candidate::Key;
use crate::deviation::{Sums, Units};
use crate::partial_sum::report_temperature;

impl Rows<'_> {
    /// Marks what lists name, of the block's part of every row.
    #[inline(always)]
    pub(super) unsafe fn mark_all<const CLUSTER: u32>(self) {
        let mut step = 0;
        while step < 2 {
            self.crew.leg(|thread| {
                let mut nth = 0;
                while nth < self.n {
                    // SAFETY: the caller's promise.
                    unsafe {
                        if self.guess(nth).way.needs_marks() {
                            let part = self.part::<CLUSTER>(nth);
                            if step == 0 { part.clear(thread) } else { part.mark(thread) }
                        }
                    }
                    nth += 1;
                }
            });
            step += 1;
        }
    }

    /// Sums up the weights of the block's part of every row, as far as they are wanted; gathers
    /// tokens of rows with rules, by their values after them, and finds the ends of rows that ask
    /// how far they spread.
    #[inline(always)]
    pub(super) unsafe fn weigh_all<const CLUSTER: u32>(self) {
        let Self { params, crew, .. } = self;
        let told = self.told();
        let entropies = [params.raw.entropies, params.processed.entropies].map(|e| !e.is_null());
        let mut nth = 0;
        while nth < self.n {
            // SAFETY: the caller's promise.
            unsafe {
                let guess = self.guess(nth);
                let is_ruled = guess.way.is_ruled();
                let (mut sums, mut ends) = ([0; 4], [0; 2]);
                let wanted = [entropies[0], entropies[1] & !is_ruled];
                if guess.floor < f32::INFINITY && (wanted[0] | wanted[1]) {
                    let of_row = (self.row(nth), guess.whole.highest, wanted);
                    let part = part_of::<CLUSTER>(params, self.rank);
                    let give = |thread| to_words(moments::of_part(params, of_row, part, thread));
                    sums = crew.reduce_block(give, moments::merge);
                }
                if guess.way.needs_marks() {
                    let part = self.part::<CLUSTER>(nth);
                    let n = (&raw mut (*told).n_ruled).cast::<u32>().add(nth as usize);
                    let (to, most) = self.list_room::<CLUSTER>(nth, true, is_ruled);
                    let most = if is_ruled { most } else { 0 };
                    let inverse = self.inverse(nth);
                    let floor = if guess.floor > f32::MIN { guess.floor } else { f32::MIN };
                    let give = |thread| {
                        let mut sums = Moments::NONE;
                        part.each(thread, |index, y| {
                            sums.add(guess.unit, y, inverse);
                            if y.is_nan() {
                                // The row's status is to tell: the whole cluster finishes it.
                                sums.weights = f64::NAN;
                            }
                            if y > f32::NEG_INFINITY {
                                let bits = Key::of_value(y, 0).bits();
                                ends = greater(ends, [bits, !bits]);
                            }
                            if y >= floor {
                                let at = arch::block_add_u32(n, 1);
                                if at < most {
                                    to.add(at as usize).write(Key::of_value(y, index));
                                }
                            }
                        });
                        to_words([Moments::NONE, sums])
                    };
                    let own = crew.reduce_block(give, moments::merge);
                    sums = if is_ruled { moments::merge(sums, own) } else { sums };
                }
                if guess.way.is_spread() {
                    ends = crew.reduce_block(|_| ends, greater);
                }
                crew.leg(|thread| {
                    if thread == 0 {
                        (&raw mut (*told).moments).cast::<[u64; 4]>().add(nth as usize).write(sums);
                        (&raw mut (*told).ends).cast::<[u64; 2]>().add(nth as usize).write(ends);
                    }
                });
            }
            nth += 1;
        }
    }

    /// How far these spread: the sums over the block's part.
    #[inline(always)]
    pub(super) unsafe fn measure_all<const CLUSTER: u32>(self) {
        let mut nth = 0;
        while nth < self.n {
            // SAFETY: the caller's promise: all blocks have told the ends.
            unsafe {
                if self.guess(nth).way.is_spread() {
                    let (part, units) = (self.part::<CLUSTER>(nth), self.units::<CLUSTER>(nth));
                    let give = |thread| {
                        let mut sums = [0; 4];
                        part.each(thread, |_, y| {
                            let Sums { n, units, squares } = units.of(y);
                            sums = add(sums, [n, units, squares[0], squares[1]]);
                        });
                        sums
                    };
                    let sums = self.crew.reduce_block(give, add);
                    let to = (&raw mut (*self.told()).units).cast::<[u64; 4]>();
                    self.crew.leg(|thread| {
                        if thread == 0 {
                            to.add(nth as usize).write(sums);
                        }
                    });
                }
            }
            nth += 1;
        }
    }

    /// The units that a row's spread is measured in, by the ends that all blocks have told.
    #[inline(always)]
    pub(super) unsafe fn units<const CLUSTER: u32>(self, nth: u32) -> Units {
        // SAFETY: the caller's promise.
        let [highest, lowest] = unsafe {
            let ends = |of| (&raw const (*arch::of_block(self.told(), of)).ends).cast::<[u64; 2]>();
            arch::warp_combine(CLUSTER, |of| ends(of).add(nth as usize).read(), greater)
        };
        Units::new(Key::from_bits(highest).score(), Key::from_bits(!lowest).score())
    }

    /// One divided by the temperature that is reported at.
    #[inline(always)]
    unsafe fn inverse(&self, nth: u32) -> f32 {
        // SAFETY: the caller's promise.
        let own = unsafe { self.params.sample.temperatures.add(self.row(nth) as usize).read() };
        1.0 / report_temperature(own)
    }

    #[inline(always)]
    unsafe fn part<const CLUSTER: u32>(&self, nth: u32) -> Part<'_> {
        let part = part_of::<CLUSTER>(self.params, self.rank);
        // SAFETY: the caller's promise; listed rows are done with.
        unsafe {
            let short = &raw mut (*self.crew.shared).short;
            Part::new(self.params, self.row(nth), part, (short, nth))
        }
    }
}

/// The greater of each word.
#[inline(always)]
fn greater(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    [core::cmp::max(a[0], b[0]), core::cmp::max(a[1], b[1])]
}
