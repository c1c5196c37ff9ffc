//! *Computes*, from the partial sums that the warps of a sampling kernel left of each row, the
//! log-sum-exp of its distributions and the log-probability of each token that was drawn.
//!
//! *Operands*: [`KeptParams`], naturally aligned; of its reports the log-sum-exps and
//! log-probabilities are written, and alias nothing.
//!
//! *Mapping*: a block a row, and as many rows further as there are blocks; its threads take the
//! partial sums in turn.
//!
//! *Shared memory*: a word for each warp.
//!
//! *Numerics*: floating-point sums, in an order that the numbers of tiles and blocks give.
//!
//! *Preconditions*: the sampling kernel, and the one that finishes rows if there is one, have
//! ended; the partial sums and the values of the drawn tokens are there.

use crate::abi::kept::{KeptParams, LOG_SUM_EXP_THREADS as THREADS, ReportParams, values_stride};
use crate::abi::{NO_TOKEN, SampleParams};
use crate::arch::{self, PerThread};
use crate::dims::{offset, output_index};
use crate::partial_sum::{PartialSum, merge_each, merge_words, report_temperature};

const THREADS_LEN: usize = THREADS as usize;

/// What the threads of a block share: a word for each warp.
pub type Shared = [[u64; 1]; THREADS_LEN / 32];

/// Runs block `block` of `blocks`.
///
/// # Safety
/// The module's preconditions; `shared` is the block's alone.
#[inline(always)]
pub unsafe fn log_sum_exp(params: &KeptParams, shared: *mut Shared, block: u32, blocks: u32) {
    let mut row = block;
    while row < params.sample.batch {
        // Opaque: one text for both distributions.
        let (mut part, parts) = (0, arch::opaque(2));
        while part < parts {
            // SAFETY: the caller's promise; `row < B`.
            unsafe { of_distribution(params, shared, row, part) };
            part += 1;
        }
        row += blocks;
    }
}

/// Reports on a row's distribution, as far as it is wanted: 0 for the model's, 1 for its own.
#[inline(always)]
unsafe fn of_distribution(params: &KeptParams, shared: *mut Shared, row: u32, part: u32) {
    let sample = &params.sample;
    // By value: a choice of references would be one of addresses of the kernel's parameters.
    let (of_model, of_row) = (sample.partials[0], sample.partials[1]);
    let partials = if part == 0 { of_model } else { of_row };
    let (raw, processed) = (params.raw, params.processed);
    let report: ReportParams = if part == 0 { raw } else { processed };
    // There may be sums that only filters asked for.
    if partials.is_null() || report.log_sum_exps.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let own_temperature = report_temperature(sample.temperatures.add(row as usize).read());
        let temperature = if part == 0 { 1.0 } else { own_temperature };
        let inverse = 1.0 / temperature;
        let n = sample.n_partials;
        let of_this_row = partials.add(offset(row, n as u64, 0) as usize);
        // A thread's first draw: its value is on its way while the sums are.
        let mut firsts = PerThread::<Option<f32>, THREADS_LEN>::new(None);
        arch::leg(&mut firsts, |thread, first| {
            if thread < sample.draws {
                *first = drawn_value(sample, row, thread);
            }
        });
        let give = |thread| [merge_each(of_this_row, (thread, THREADS, n), inverse).bits()];
        let slots = shared.cast();
        let [whole] = arch::block_reduce::<1, THREADS_LEN>(slots, give, merge_words(inverse));
        let whole = PartialSum::from_bits(whole);
        arch::leg(&mut firsts, |thread, first| {
            if thread == 0 {
                let log_sum_exp = whole.log_sum_exp(temperature);
                report.log_sum_exps.add(row as usize).write(log_sum_exp);
            }
            let (mut draw, mut value) = (thread, *first);
            while draw < sample.draws {
                let logprob = value.map_or(f32::NEG_INFINITY, |y| whole.logprob(y, temperature));
                let at = output_index(row, sample.draws, draw) as usize;
                report.logprobs.add(at).write(logprob);
                draw += THREADS;
                if draw < sample.draws {
                    value = drawn_value(sample, row, draw);
                }
            }
        });
    }
}

/// The value of a token that was drawn; none where none was.
#[inline(always)]
unsafe fn drawn_value(sample: &SampleParams, row: u32, draw: u32) -> Option<f32> {
    // SAFETY: the caller's promise; `row < B`, `draw < S`.
    unsafe {
        let token = sample.tokens.add(output_index(row, sample.draws, draw) as usize).read();
        let index = token.wrapping_sub(sample.first_token);
        let at = offset(row, values_stride(sample.vocab), index) as usize;
        (token != NO_TOKEN).then(|| sample.drawn_values.add(at).read())
    }
}
