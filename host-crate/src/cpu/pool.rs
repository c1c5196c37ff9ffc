//! Where work is done.

use rayon::prelude::*;

use super::CpuOptions;
use crate::error::{Error, Need, Param};

/// Threads.
#[derive(Debug)]
pub(super) enum Pool {
    /// The calling thread alone.
    Caller,
    /// Rayon's global pool.
    Global,
    /// The sampler's own.
    Own(rayon::ThreadPool),
}

impl Pool {
    pub(super) fn new(options: &CpuOptions) -> Result<Self, Error> {
        match options.threads {
            None => Ok(Self::Global),
            Some(0) => Err(Error::Param { row: None, param: Param::Threads, found: 0.0 }),
            Some(1) => Ok(Self::Caller),
            Some(threads) => {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
                pool.map(Self::Own).map_err(|_| Error::Unsupported {
                    need: Need::Threads,
                    limit: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
                    found: threads as u64,
                })
            }
        }
    }

    pub(super) fn threads(&self) -> usize {
        match self {
            Self::Caller => 1,
            Self::Global => rayon::current_num_threads(),
            Self::Own(pool) => pool.current_num_threads(),
        }
    }

    /// Runs `work` once for each worker, in parallel as far as threads are free.
    pub(super) fn for_each<T: Send>(&self, workers: &mut [T], work: impl Fn(&mut T) + Send + Sync) {
        match self {
            Self::Caller => workers.iter_mut().for_each(work),
            Self::Global => workers.par_iter_mut().with_max_len(1).for_each(work),
            Self::Own(pool) => {
                pool.install(|| workers.par_iter_mut().with_max_len(1).for_each(work));
            }
        }
    }
}
