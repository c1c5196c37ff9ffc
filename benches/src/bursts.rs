//! How a time on the GPU is taken: bursts of calls from a graph, one contender after
//! the other, and single calls.

use std::collections::VecDeque;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaEvent, CudaGraph};

use crate::contender::Call;
use crate::gpu::{Buffer, Gpu};
use crate::meter::{Meter, Reading};

/// A burst is as many calls as take about this long: the gap between two graphs, some
/// microseconds, is lost in it.
const BURST_US: f64 = 2_000.0;
/// Idle time before a burst of a cool card.
const PAUSE: Duration = Duration::from_millis(60);
/// Back-to-back time after which clock and power have settled.
const SETTLING: Duration = Duration::from_millis(400);
/// Replays in flight when a card is kept busy.
const IN_FLIGHT: usize = 4;
/// Replays during which clock and power of a cool card are read.
const READING_REPLAYS: usize = 6;
/// Calls whose enqueuing is timed, or as many as fit the time.
const HOST_CALLS: usize = 1_000;
const HOST_TIME: Duration = Duration::from_millis(300);
/// Calls between two waits, well below what a stream's queue holds.
const QUEUED_CALLS: usize = 50;
/// Single calls timed on an idle stream.
const EAGER_CALLS: usize = 50;

/// Several calls of a contender as a graph.
pub struct Burst {
    graph: CudaGraph,
    calls: usize,
}

/// The times of a burst's calls, and the card while they ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// Microseconds of a call, for each burst.
    pub samples: Vec<f64>,
    /// Clock and power.
    pub reading: Reading,
}

impl Burst {
    /// Captures calls that take turns over `inputs`, so that the cache holds none of
    /// what the next call reads; `call_us` is about what a call takes.
    ///
    /// # Errors
    /// `enqueue` fails, or enqueues what cannot be captured.
    pub fn new(
        gpu: &Gpu,
        inputs: &[Buffer],
        call_us: f64,
        enqueue: impl Fn(&Buffer) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let turns = (BURST_US / call_us / inputs.len() as f64).ceil().max(1.0) as usize;
        // What a library prepares at its first call must not fall into the capture.
        inputs.iter().try_for_each(&enqueue)?;
        gpu.wait()?;
        let graph = gpu.capture(|| (0..turns).flat_map(|_| inputs).try_for_each(&enqueue))?;
        Ok(Self { graph, calls: turns * inputs.len() })
    }

    /// The same of a contender's calls over `weights`.
    ///
    /// # Errors
    /// The call is refused or cannot be captured.
    pub fn of_call(
        gpu: &Gpu,
        call: &dyn Call,
        weights: &[Buffer],
        call_us: f64,
    ) -> anyhow::Result<Self> {
        // SAFETY: the weights have the shape that the call was prepared for, and live as
        // long as the call and its graph.
        Self::new(gpu, weights, call_us, |weights| unsafe { call.enqueue(weights.address()) })
    }

    /// Calls in it.
    pub const fn calls(&self) -> usize {
        self.calls
    }

    /// Microseconds of a call if the burst ran between two marks.
    fn call_us(&self, begin: &CudaEvent, end: &CudaEvent) -> anyhow::Result<f64> {
        Ok(elapsed_us(begin, end)? / self.calls as f64)
    }
}

/// Times bursts of a cool card in alternation. Each follows a pause and one untimed
/// replay, which wakes the card and hides the launch of the timed one.
///
/// # Errors
/// A call fails.
pub fn cooled(
    gpu: &Gpu,
    meter: &Meter,
    bursts: &[Burst],
    repeats: usize,
) -> anyhow::Result<Vec<Times>> {
    let mut times = vec![Times::default(); bursts.len()];
    for _ in 0..repeats {
        for (burst, times) in bursts.iter().zip(&mut times) {
            sleep(PAUSE);
            burst.graph.launch()?;
            let begin = gpu.mark()?;
            burst.graph.launch()?;
            let end = gpu.mark()?;
            times.samples.push(burst.call_us(&begin, &end)?);
        }
    }
    for (burst, times) in bursts.iter().zip(&mut times) {
        sleep(PAUSE);
        for _ in 0..READING_REPLAYS {
            burst.graph.launch()?;
        }
        times.reading = meter.read();
        gpu.wait()?;
    }
    Ok(times)
}

/// Times bursts back to back, each contender for itself once the card has settled,
/// twice in alternation.
///
/// # Errors
/// A call fails.
pub fn sustained(
    gpu: &Gpu,
    meter: &Meter,
    bursts: &[Burst],
    repeats: usize,
) -> anyhow::Result<Vec<Times>> {
    let mut times = vec![Times::default(); bursts.len()];
    for round in 1..=2 {
        for (burst, times) in bursts.iter().zip(&mut times) {
            let start = Instant::now();
            let mut marks = VecDeque::from([gpu.mark()?]);
            while times.samples.len() < (repeats * round).div_ceil(2) {
                burst.graph.launch()?;
                marks.push_back(gpu.mark()?);
                if marks.len() > IN_FLIGHT
                    && let Some(begin) = marks.pop_front()
                {
                    let sample = burst.call_us(&begin, &marks[0])?;
                    if start.elapsed() >= SETTLING {
                        times.samples.push(sample);
                    }
                }
            }
            // The last replays still run.
            times.reading = meter.read();
            gpu.wait()?;
        }
    }
    Ok(times)
}

/// Microseconds that the host takes to enqueue a call, one sample a call.
///
/// # Errors
/// A call is refused.
pub fn host_us(gpu: &Gpu, call: &dyn Call, weights: &[Buffer]) -> anyhow::Result<Vec<f64>> {
    let mut samples = Vec::with_capacity(HOST_CALLS);
    let begin = Instant::now();
    while samples.len() < HOST_CALLS && begin.elapsed() < HOST_TIME {
        for _ in 0..QUEUED_CALLS {
            let weights = &weights[samples.len() % weights.len()];
            let start = Instant::now();
            // SAFETY: as in `Burst::of_call`.
            unsafe { call.enqueue(weights.address()) }?;
            samples.push(start.elapsed().as_secs_f64() * 1e6);
        }
        gpu.wait()?;
    }
    Ok(samples)
}

/// Microseconds between events around single calls on an idle stream, launch included.
///
/// # Errors
/// A call fails.
pub fn eager_us(gpu: &Gpu, call: &dyn Call, weights: &[Buffer]) -> anyhow::Result<Vec<f64>> {
    let sample = |weights: &Buffer| {
        gpu.wait()?;
        let begin = gpu.mark()?;
        // SAFETY: as in `Burst::of_call`.
        unsafe { call.enqueue(weights.address()) }?;
        let end = gpu.mark()?;
        elapsed_us(&begin, &end)
    };
    weights.iter().cycle().take(EAGER_CALLS).map(sample).collect()
}

/// Microseconds between two marks.
fn elapsed_us(begin: &CudaEvent, end: &CudaEvent) -> anyhow::Result<f64> {
    Ok(f64::from(begin.elapsed_ms(end)?) * 1e3)
}
