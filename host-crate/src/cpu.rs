//! The CPU back end.

mod reference;

use crate::backend::{Backend, sealed::Sealed};
use crate::error::{Error, Need, Param, Unmet};
use crate::inputs::Inputs;
use crate::output::Output;
use crate::params::SamplingParams;
use crate::plan::Plan;
use crate::problem::Problem;

/// How a CPU sampler is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOptions {
    /// Threads of the sampler's own pool; rayon's global pool without it. With 1, all
    /// work is done in the calling thread.
    pub threads: Option<usize>,
    /// The variant; this CPU's fastest without it.
    pub variant: Option<CpuVariant>,
}

/// A way to compute on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CpuVariant {
    /// The portable GPU kernel, run natively: slow, and the reference.
    Reference,
    /// Any CPU.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl CpuVariant {
    /// All of them, least preferred first.
    pub const ALL: [Self; 4] = [Self::Reference, Self::Portable, Self::Avx2, Self::Avx512];

    /// Stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reference => "cpu_reference",
            Self::Portable => "cpu_portable",
            Self::Avx2 => "cpu_avx2",
            Self::Avx512 => "cpu_avx512",
        }
    }

    /// Whether this CPU can run it.
    pub fn available(self) -> bool {
        self.unmet().is_none()
    }

    /// What this CPU lacks for it.
    pub(crate) fn unmet(self) -> Option<Unmet> {
        let (need, has) = match self {
            Self::Reference => return None,
            Self::Portable => (Need::Avx2, false),
            Self::Avx2 => (Need::Avx2, false),
            Self::Avx512 => (Need::Avx512, false),
        };
        (!has).then_some(Unmet { need, limit: 1, found: 0 })
    }

    fn fastest() -> Self {
        let available = Self::ALL.into_iter().rev().find(|variant| variant.available());
        available.unwrap_or(Self::Reference)
    }
}

/// This CPU: threads, a variant, and scratch that grows to the largest problem.
#[derive(Debug)]
pub struct Cpu {
    pool: Pool,
    variant: CpuVariant,
    forced: bool,
    reference: reference::Scratch,
}

/// Where work is done.
#[derive(Debug)]
enum Pool {
    Caller,
    Global,
    Own(rayon::ThreadPool),
}

impl Cpu {
    /// The fastest variant on rayon's threads.
    pub(crate) fn detect() -> Self {
        Self {
            pool: Pool::Global,
            variant: CpuVariant::fastest(),
            forced: false,
            reference: reference::Scratch::default(),
        }
    }

    pub(crate) fn new(options: CpuOptions) -> Result<Self, Error> {
        let mut cpu = Self::detect();
        if let Some(variant) = options.variant {
            if let Some(Unmet { need, limit, found }) = variant.unmet() {
                return Err(Error::Unsupported { need, limit, found });
            }
            (cpu.variant, cpu.forced) = (variant, true);
        }
        cpu.pool = match options.threads {
            None => Pool::Global,
            Some(0) => {
                return Err(Error::Param { row: None, param: Param::Threads, found: 0.0 });
            }
            Some(1) => Pool::Caller,
            Some(threads) => {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
                Pool::Own(pool.map_err(|_| Error::Unsupported {
                    need: Need::Threads,
                    limit: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
                    found: threads as u64,
                })?)
            }
        };
        Ok(cpu)
    }

    /// Fills `output`, which has the problem's size; B ≥ 1.
    pub(crate) fn run(
        &mut self,
        problem: &Problem,
        inputs: &Inputs<'_>,
        rows: &[SamplingParams],
        output: &mut Output,
    ) -> Result<(), Error> {
        self.reference.run(&self.pool, problem, inputs, rows, output)
    }
}

impl Pool {
    fn threads(&self) -> usize {
        match self {
            Self::Caller => 1,
            Self::Global => rayon::current_num_threads(),
            Self::Own(pool) => pool.current_num_threads(),
        }
    }

    /// Runs `work(0) … work(n − 1)`, at most one a thread.
    fn for_each(&self, n: usize, work: impl Fn(usize) + Send + Sync) {
        use rayon::prelude::*;
        let parallel = || (0..n).into_par_iter().with_max_len(1).for_each(&work);
        match self {
            Self::Caller => (0..n).for_each(&work),
            Self::Global => parallel(),
            Self::Own(pool) => pool.install(parallel),
        }
    }
}

impl Sealed for Cpu {}

impl Backend for Cpu {
    fn plan(&self, problem: &Problem) -> Result<Plan, Error> {
        Ok(Plan::for_cpu(problem, self.variant, self.forced))
    }
}
