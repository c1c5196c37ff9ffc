//! What a call reports of a row's distribution beside its tokens.

use super::measure::KeptRow;
use crate::abi::NO_TOKEN;
use crate::abi::kept::ReportParams;
use crate::arch;
use crate::candidate::Key;
use crate::dims::output_index;
use crate::filters::Row;

/// Reports what is wanted of the row's values, at `temperature`.
///
/// # Safety
/// All threads of the cluster; the row's values are there, and its tokens were drawn.
#[inline(always)]
pub(super) unsafe fn report<const CLUSTER: u32>(
    of_row: &mut KeptRow<'_, CLUSTER>,
    temperature: f32,
) {
    let (highest, view) = (of_row.edited.highest, of_row.view);
    // SAFETY: the caller's promise.
    unsafe {
        if highest > f32::NEG_INFINITY {
            of_row.weigh(temperature);
        }
        of_draws(of_row);
        let (mut log_sum_exp, mut entropy) = (highest, 0.0);
        if !view.report().entropies.is_null() && highest > f32::NEG_INFINITY {
            entropy = of_row.scale.entropy(of_row.moment_down_to(Key::NONE), of_row.total);
        }
        if highest.is_finite() {
            log_sum_exp = of_row.scale.log_sum_exp(of_row.total);
        } else if highest == f32::INFINITY {
            entropy = f32::NAN;
        }
        let is_writer = of_row.crew.rank() == 0;
        of_row.crew.leg(|thread| {
            if is_writer && thread == 0 {
                if !view.report().log_sum_exps.is_null() {
                    view.report().log_sum_exps.add(view.row() as usize).write(log_sum_exp);
                }
                if !view.report().entropies.is_null() {
                    view.report().entropies.add(view.row() as usize).write(entropy);
                }
            }
        });
        if view.report().best > 0 {
            best(of_row);
        }
    }
}

/// `ln` of the probability of a token of a row that has one; NaN where a value is infinite.
#[inline(always)]
fn logprob<const CLUSTER: u32>(of_row: &KeptRow<'_, CLUSTER>, y: f32) -> f32 {
    if of_row.edited.highest == f32::INFINITY {
        f32::NAN
    } else {
        of_row.scale.logprob(y, of_row.total)
    }
}

/// Reports the log-probability and rank of each token drawn.
#[inline(always)]
unsafe fn of_draws<const CLUSTER: u32>(of_row: &mut KeptRow<'_, CLUSTER>) {
    let view = of_row.view;
    if view.report().logprobs.is_null() && view.report().ranks.is_null() {
        return;
    }
    if CLUSTER != 1 {
        // The tokens are one block's writes.
        arch::cluster_meet();
    }
    let sample = &view.params.sample;
    let mut draw = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while draw < sample.draws {
            let at = output_index(view.row(), sample.draws, draw) as usize;
            let token = arch::load_shared_u32(sample.tokens.add(at));
            let (mut p, mut rank) = (f32::NEG_INFINITY, 0);
            if token != NO_TOKEN {
                let slice = view.slice(of_row.crew);
                let place = (token - sample.first_token).wrapping_sub(slice.first);
                let bits_of = |thread: u32| {
                    let is_here = thread == 0 && place < slice.len;
                    [if is_here {
                        slice.values.add(place as usize).read().to_bits() as u64
                    } else {
                        0
                    }]
                };
                let [bits] = of_row.crew.reduce(bits_of, |[a], [b]| [a | b]);
                let y = f32::from_bits(bits as u32);
                p = logprob(of_row, y);
                if !view.report().ranks.is_null() {
                    [rank] = of_row.crew.sum(view, |_, other| [(other >= y) as u64]);
                }
            }
            let is_writer = of_row.crew.rank() == 0;
            of_row.crew.leg(|thread| {
                if is_writer && thread == 0 {
                    if !view.report().logprobs.is_null() {
                        view.report().logprobs.add(at).write(p);
                    }
                    if !view.report().ranks.is_null() {
                        view.report().ranks.add(at).write(rank as u32);
                    }
                }
            });
            draw += 1;
        }
    }
}

/// Reports the likeliest tokens.
#[inline(always)]
unsafe fn best<const CLUSTER: u32>(of_row: &mut KeptRow<'_, CLUSTER>) {
    // SAFETY: the caller's promise; no more keys are gathered than are wanted.
    unsafe {
        let (mut n, view) = (0, of_row.view);
        if of_row.edited.highest > f32::NEG_INFINITY {
            of_row.measure(of_row.scale.temperature(), true);
            let last = of_row.likeliest(view.report().best).last;
            let wanted = |index, y| y > f32::NEG_INFINITY && Key::of_value(y, index) >= last;
            n = of_row.crew.gather(view, wanted);
        }
        let keys = (&raw const (*of_row.crew.shared).gathered.keys).cast::<Key>();
        let is_writer = of_row.crew.rank() == 0;
        let of_row = &*of_row;
        of_row.crew.leg(|thread| {
            if is_writer {
                let row = (view.row(), view.params.sample.first_token);
                let logprob = |y| logprob(of_row, y);
                write_best(&view.report(), row, (keys, n), thread, logprob);
            }
        });
    }
}

/// Leg: writes the thread's of the likeliest tokens, of which `n` are listed in any order, and no
/// token in the places beyond.
///
/// # Safety
/// There are so many keys; the report has places for a row of this index.
#[inline(always)]
pub(super) unsafe fn write_best(
    report: &ReportParams,
    (row, first_token): (u32, u32),
    (keys, n): (*const Key, u32),
    thread: u32,
    logprob: impl Fn(f32) -> f32,
) {
    let (mut token, mut p, mut place) = (NO_TOKEN, f32::NEG_INFINITY, thread);
    // SAFETY: the caller's promise.
    unsafe {
        if thread < n {
            let key = keys.add(thread as usize).read();
            token = first_token + key.token();
            p = logprob(key.score());
            place = 0;
            let mut i = 0;
            while i < n {
                place += (keys.add(i as usize).read() > key) as u32;
                i += 1;
            }
        }
        if place < report.best {
            let at = output_index(row, report.best, place) as usize;
            report.best_tokens.add(at).write(token);
            report.best_logprobs.add(at).write(p);
        }
    }
}
