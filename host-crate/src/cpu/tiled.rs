//! The fast variants: threads over vocabulary tiles, one set of leaders a thread,
//! merged at the end. No logit outlives its tile, but in rows that need all of theirs.

use std::sync::atomic::AtomicU32;

use flash_sampling_kernels::abi::NO_TOKEN;
use flash_sampling_kernels::candidate::Leaders;
use flash_sampling_kernels::dims::output_index;
use flash_sampling_kernels::status::Status;
use half::{bf16, f16};

use super::kept::Kept;
use super::lanes::{Chunk, LANES, Widen};
use super::tile::{Call, Worker};
use super::variant::{CpuVariant, finish_row, sample_tiles};
use super::{Pool, Run};
use crate::error::Error;
use crate::matrix::{Elements, MatrixRef};
use crate::output::{Output, reserve, resize};
use crate::problem::Problem;

/// Scratch of a call, kept for the next.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// `[B, ⌈D / 16⌉]`.
    hidden_states: Vec<Chunk>,
    /// One a thread.
    workers: Vec<Worker>,
    /// `[B]`: where in `kept` a row is.
    slots: Vec<Option<u32>>,
    /// Rows whose values outlive their tiles; more than there are, after a larger call.
    kept: Vec<Kept>,
}

impl Scratch {
    /// # Safety
    /// `variant` is available.
    pub(super) unsafe fn run(
        &mut self,
        pool: &Pool,
        variant: CpuVariant,
        run: &Run<'_>,
        output: &mut Output,
    ) -> Result<(), Error> {
        self.clear_workers(pool.threads(), run.problem)?;
        self.widen(run.problem, &run.inputs.hidden_states)?;
        let n_kept = self.keep(run)?;
        // SAFETY: the caller's promise.
        unsafe {
            match run.inputs.weights.elements() {
                Elements::Bf16(weights) => self.sample(pool, variant, run, weights, n_kept),
                Elements::F16(weights) => self.sample(pool, variant, run, weights, n_kept),
                Elements::F32(weights) => self.sample(pool, variant, run, weights, n_kept),
            }
        }
        if n_kept > 0 {
            pool.for_each(&mut self.kept[..n_kept], |kept| {
                // SAFETY: the caller's promise.
                unsafe { finish_row(variant, run.problem, run.rows, kept) }
            });
        }
        self.write(run.problem, output);
        Ok(())
    }

    /// Makes room for the rows whose values outlive their tiles, and counts them.
    fn keep(&mut self, run: &Run<'_>) -> Result<usize, Error> {
        let all = run.raw.any() || run.processed.any();
        let is_kept = |row: u32| all || run.rows[row as usize].filters();
        let n_rows = (0..run.problem.batch()).filter(|&row| is_kept(row)).count();
        if self.kept.len() < n_rows {
            reserve(&mut self.kept, n_rows as u64)?;
            self.kept.resize_with(n_rows, Kept::default);
        }
        self.slots.clear();
        resize(&mut self.slots, run.problem.batch().into(), None)?;
        let mut n_kept = 0;
        for (row, slot) in (0..).zip(&mut self.slots).filter(|(row, _)| is_kept(*row)) {
            self.kept[n_kept].begin(row, run)?;
            *slot = Some(n_kept as u32);
            n_kept += 1;
        }
        Ok(n_kept)
    }

    fn clear_workers(&mut self, threads: usize, problem: &Problem) -> Result<(), Error> {
        self.workers.resize_with(threads, Worker::default);
        for worker in &mut self.workers {
            worker.leaders.clear();
            worker.status.clear();
            resize(&mut worker.leaders, problem.outputs(), Leaders::NONE)?;
            resize(&mut worker.status, problem.batch().into(), Status::OK)?;
        }
        Ok(())
    }

    /// Hidden states as f32, once for all threads.
    fn widen(&mut self, problem: &Problem, hidden_states: &MatrixRef<'_>) -> Result<(), Error> {
        let n_chunks = (problem.hidden() as usize).div_ceil(LANES);
        let len = u64::from(problem.batch()) * n_chunks as u64;
        resize(&mut self.hidden_states, len, Chunk::default())?;
        let rows = self.hidden_states.chunks_exact_mut(n_chunks).enumerate();
        let (stride, hidden) = (hidden_states.row_stride(), hidden_states.columns());
        match hidden_states.elements() {
            Elements::Bf16(data) => {
                rows.for_each(|(row, to)| widen(&data[row * stride..][..hidden], to, bf16::to_f32));
            }
            Elements::F16(data) => {
                rows.for_each(|(row, to)| widen(&data[row * stride..][..hidden], to, f16::to_f32));
            }
            Elements::F32(data) => {
                rows.for_each(|(row, to)| widen(&data[row * stride..][..hidden], to, |x| x));
            }
        }
        Ok(())
    }

    /// # Safety
    /// `variant` is available.
    unsafe fn sample<E: Widen>(
        &mut self,
        pool: &Pool,
        variant: CpuVariant,
        run: &Run<'_>,
        weights: &[E],
        n_kept: usize,
    ) {
        let call = Call {
            problem: run.problem,
            weights,
            hidden_states: &self.hidden_states,
            inputs: run.inputs,
            rows: run.rows,
            slots: &self.slots,
            kept: &self.kept[..n_kept],
            wants_raw: run.raw.any(),
        };
        let next_tile = AtomicU32::new(0);
        pool.for_each(&mut self.workers, |worker| {
            // SAFETY: the caller's promise; `Inputs::problem` and `MatrixRef` checked the
            // slices, and the scratch was resized to the problem.
            unsafe { sample_tiles(variant, &call, &next_tile, worker) }
        });
    }

    /// Merges the threads' results; the order does not matter.
    fn write(&self, problem: &Problem, output: &mut Output) {
        for row in 0..problem.batch() {
            let mut row_status = Status::OK;
            for worker in &self.workers {
                row_status.insert(worker.status[row as usize]);
            }
            let kept = self.slots[row as usize].map(|slot| &self.kept[slot as usize]);
            if let Some(kept) = kept {
                kept.write_reports(output);
            }
            for draw in 0..problem.draws() {
                let at = output_index(row, problem.draws(), draw) as usize;
                let leaders = kept.map_or_else(
                    || {
                        self.workers
                            .iter()
                            .map(|worker| worker.leaders[at])
                            .fold(Leaders::NONE, Leaders::merge)
                    },
                    |kept| kept.leaders[draw as usize],
                );
                let mut status = row_status;
                if leaders.first.token() == NO_TOKEN {
                    status.insert(Status::NO_CANDIDATE);
                }
                output.tokens[at] = leaders.first.token();
                output.status[at] = status;
                output.scores[at] = leaders.first.score();
                output.margins[at] = leaders.margin();
            }
        }
    }
}

/// Writes a row as chunks, zero beyond its end.
fn widen<E: Copy>(from: &[E], to: &mut [Chunk], widen: impl Fn(E) -> f32) {
    for (from, to) in from.chunks(LANES).zip(to) {
        *to = Chunk::default();
        for (from, to) in from.iter().zip(&mut to.0) {
            *to = widen(*from);
        }
    }
}
