//! The tokens of a row that were gathered, and what a block finds among them.

use super::crew::{Crew, LIST, add, key};
use super::draw::{from_words, merge, to_words, write};
use super::goal::{find_key, find_place};
use super::histogram::Histogram;
use super::nucleus::values_of;
use crate::abi::NO_TOKEN;
use crate::abi::kept::{KeptParams, THREADS};
use crate::arch;
use crate::candidate::{Key, Leaders};
use crate::dims::output_index;
use crate::kernels::sample_simt::row_params;
use crate::nucleus;
use crate::partial_sum::PartialSum;
use crate::philox::Subkey;
use crate::scale::{RUNGS, Scale};
use crate::score::{RowParams, offer_token};
use crate::status::Status;

/// A row and the tokens of it that were gathered.
#[derive(Clone, Copy)]
pub(super) struct Gathered {
    /// `[n]`.
    pub(super) keys: *mut Key,
    pub(super) n: u32,
    pub(super) scale: Scale,
}

/// Of all methods: all threads of the block, but for the first three; the keys are there.
impl Gathered {
    /// Hands over the thread's keys.
    #[inline(always)]
    unsafe fn each(&self, thread: u32, mut run: impl FnMut(Key)) {
        let mut at = thread;
        while at < self.n {
            // SAFETY: there are so many.
            run(unsafe { self.keys.add(at as usize).read() });
            at += THREADS;
        }
    }

    #[inline(always)]
    fn gap(&self, key: Key) -> f32 {
        self.scale.capped_gap(key.score())
    }

    #[inline(always)]
    fn mass(&self, key: Key) -> u64 {
        self.scale.mass(self.gap(key))
    }

    /// Puts the tokens on their rungs.
    #[inline(always)]
    pub(super) unsafe fn climb(&self, crew: &Crew<1>) {
        // SAFETY: the caller's promise; legs part what is written from what is read.
        unsafe {
            let ladder = &raw mut (*crew.shared).ladder;
            crew.leg(|thread| Histogram::write(ladder, thread, 0, 0));
            crew.leg(|thread| {
                self.each(thread, |key| {
                    let gap = self.gap(key);
                    let (rung, mass) = (self.scale.rung(gap), self.scale.mass(gap));
                    Histogram::add(ladder, thread, [rung], [mass]);
                });
            });
        }
    }

    /// The least key of the likeliest tokens whose mass reaches a goal; none if all do not, or too
    /// many lie near it. The tokens are on their rungs.
    #[inline(always)]
    unsafe fn reaching(&self, crew: &Crew<1>, goal: u64) -> Option<Key> {
        // SAFETY: the caller's promise.
        unsafe {
            let (place, left) = find_place(crew, &raw mut (*crew.shared).ladder, true, goal);
            if place == RUNGS {
                return None;
            }
            let n = self.list(crew, |rung| rung == place);
            (n <= LIST as u32).then(|| find_key(crew, self.scale, n, true, left).0)
        }
    }

    /// Lists the likeliest `n`, all if there are no more, and what is on the rung of the last of
    /// them, and tells how many these are. The tokens are on their rungs.
    #[inline(always)]
    pub(super) unsafe fn list_best(&self, crew: &Crew<1>, n: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            let (place, _) = find_place(crew, &raw mut (*crew.shared).ladder, false, n as u64);
            self.list(crew, |rung| rung <= place)
        }
    }

    /// Lists those on the rungs that are `wanted`, as far as there is room, and tells how many
    /// there are.
    #[inline(always)]
    unsafe fn list(&self, crew: &Crew<1>, wanted: impl Fn(u32) -> bool) -> u32 {
        // SAFETY: the caller's promise; legs part what is written from what is read.
        unsafe {
            let n = &raw mut (*crew.shared).n_keys;
            let list = (&raw mut (*crew.shared).gathered.keys).cast::<Key>();
            crew.leg(|thread| {
                if thread == 0 {
                    n.write(0);
                }
            });
            crew.leg(|thread| {
                self.each(thread, |key| {
                    if wanted(self.scale.rung(self.gap(key))) {
                        let at = arch::block_add_u32(n, 1);
                        if at < LIST as u32 {
                            list.add(at as usize).write(key);
                        }
                    }
                });
            });
            n.read()
        }
    }

    /// How many have a value from `y` on.
    #[inline(always)]
    pub(super) unsafe fn rank(&self, crew: &Crew<1>, y: f32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            let give = |thread| {
                let mut n = 0;
                self.each(thread, |key| n += (key.score() >= y) as u64);
                [n]
            };
            let [n] = crew.reduce_block(give, add);
            n as u32
        }
    }

    /// Draws the row's tokens from its nucleus, and tells whether they are right.
    #[inline(always)]
    pub(super) unsafe fn draw_all(
        &self,
        crew: &Crew<1>,
        params: &KeptParams,
        row: u32,
        whole: PartialSum,
        top_p: f32,
    ) -> bool {
        let [certain, possible] = nucleus::goals(self.scale, whole, top_p);
        let mut draw = 0;
        // SAFETY: the caller's promise; `row < B`.
        unsafe {
            let Some(last) = self.reaching(crew, possible) else { return false };
            while draw < params.sample.draws {
                let leaders = self.draw(crew, params, row, draw, last);
                let least = self.least_of(params, values_of(params, row), leaders);
                if self.mass_above(crew, least) >= certain {
                    return false;
                }
                crew.leg(|thread| {
                    if thread == 0 {
                        // Of what is not finite, no guess is made.
                        let at = output_index(row, params.sample.draws, draw);
                        write(params, at, leaders, Status::OK);
                    }
                });
                draw += 1;
            }
        }
        true
    }

    /// The best of the tokens with keys from `last` on.
    #[inline(always)]
    unsafe fn draw(
        &self,
        crew: &Crew<1>,
        params: &KeptParams,
        row: u32,
        draw: u32,
        last: Key,
    ) -> Leaders {
        // SAFETY: the caller's promise; `row < B`.
        unsafe {
            let RowParams { temperature, key } = row_params(&params.sample, row);
            let subkey = Subkey::new(key, draw);
            let give = |thread| {
                let mut leaders = Leaders::NONE;
                self.each(thread, |key| {
                    if key >= last {
                        let token = params.sample.first_token.wrapping_add(key.token());
                        offer_token(key.score(), token, temperature, subkey.opaque(), &mut leaders);
                    }
                });
                to_words(leaders)
            };
            from_words(crew.reduce_block(give, merge))
        }
    }

    /// The less likely of the two that show: of the second nobody asks without margins.
    #[inline(always)]
    unsafe fn least_of(&self, params: &KeptParams, values: *const f32, leaders: Leaders) -> Key {
        let of = |leader: Key| {
            let index = leader.token().wrapping_sub(params.sample.first_token);
            // SAFETY: it is a token of the row.
            key(index, unsafe { values.add(index as usize).read() })
        };
        let first = of(leaders.first);
        if params.sample.margins.is_null() || leaders.second.token() == NO_TOKEN {
            return first;
        }
        core::cmp::min(first, of(leaders.second))
    }

    /// The mass of the tokens that are likelier than that of a key.
    #[inline(always)]
    unsafe fn mass_above(&self, crew: &Crew<1>, least: Key) -> u64 {
        let give = |thread| {
            let mut mass = 0;
            // SAFETY: the caller's promise.
            unsafe {
                self.each(thread, |key| mass += if key > least { self.mass(key) } else { 0 });
            }
            [mass]
        };
        // SAFETY: the caller's promise.
        let [mass] = unsafe { crew.reduce_block(give, add) };
        mass
    }
}
