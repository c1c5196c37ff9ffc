//! Is the CPU back end at least as fast as candle, and how near to the memory's speed?
//!
//! `cargo bench -p flash-sampling-benches --bench cpu`
//!
//! Every round times three things in alternation, on the same weights and with the same
//! number of threads: ours; candle's matrix product and its `LogitsProcessor`, in the
//! dtype that is fastest there; and a plain read of all weights. Criterion reports the
//! first two; the table at the end has the medians of all rounds.
//!
//! `FLASH_SAMPLING_GGUF=PATH` takes the head of that model (`token_embd.weight`) in place
//! of random weights for the shape it fits.
#![allow(clippy::print_stdout, missing_docs)]

use std::cell::RefCell;
use std::fs::File;
use std::hint::black_box;
use std::time::{Duration, Instant};

use candle_core::quantized::gguf_file;
use candle_core::{DType, Device, IndexOp, Tensor};
use candle_transformers::generation::{LogitsProcessor, Sampling};
use criterion::{Criterion, SamplingMode, criterion_group, criterion_main};
use flash_sampling::{
    CpuVariant, Inputs, MatrixRef, Operand, Output, Sampler, SamplingParams, Status, bf16,
};
use flash_sampling_benches::shapes::{CPU_SHAPES, Shape};
use flash_sampling_benches::timing::Summary;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

const BATCHES: [usize; 2] = [1, 8];
const TEMPERATURE: f32 = 0.8;
const SEED: u64 = 7;

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(5));
    targets = all
}
criterion_main!(benches);

type Failure = Box<dyn std::error::Error>;

fn all(criterion: &mut Criterion) {
    let mut table = Vec::new();
    for &shape in CPU_SHAPES {
        let head = Head::new(shape).expect("the head");
        for batch in BATCHES {
            table.push(compare(criterion, &head, batch).expect("the comparison"));
        }
    }
    print(&table);
}

/// An LM head for both sides.
struct Head {
    shape: Shape,
    source: &'static str,
    /// `[V, D]`.
    weights: Vec<bf16>,
    /// The same in every dtype that candle multiplies on a CPU.
    candle: Vec<(DType, Tensor)>,
}

impl Head {
    fn new(shape: Shape) -> Result<Self, Failure> {
        let (vocab, hidden) = (shape.vocab as usize, shape.hidden as usize);
        let real = gguf_head(shape)?;
        let source = if real.is_some() { "GGUF" } else { "random" };
        let mut rng = SmallRng::seed_from_u64(SEED);
        let mut random = || bf16::from_f32(rng.random_range(-0.25..0.25));
        let weights = real.unwrap_or_else(|| (0..vocab * hidden).map(|_| random()).collect());
        let tensor = Tensor::from_slice(&weights, (vocab, hidden), &Device::Cpu)?;
        let mut candle = Vec::new();
        for dtype in [DType::BF16, DType::F16, DType::F32] {
            let tensor = tensor.to_dtype(dtype)?;
            let probe = Tensor::ones((1, hidden), dtype, &Device::Cpu)?;
            if probe.matmul(&tensor.t()?).is_ok() {
                candle.push((dtype, tensor));
            }
        }
        Ok(Self { shape, source, weights, candle })
    }
}

/// The head of the model that the environment names, if it has that shape.
fn gguf_head(shape: Shape) -> Result<Option<Vec<bf16>>, Failure> {
    let Some(path) = std::env::var_os("FLASH_SAMPLING_GGUF") else { return Ok(None) };
    let mut file = File::open(path)?;
    let content = gguf_file::Content::read(&mut file)?;
    let tensor = content.tensor(&mut file, "token_embd.weight", &Device::Cpu)?;
    if tensor.shape().dims() != [shape.vocab as usize, shape.hidden as usize] {
        return Ok(None);
    }
    let weights = tensor.dequantize(&Device::Cpu)?.to_dtype(DType::BF16)?;
    Ok(Some(weights.flatten_all()?.to_vec1()?))
}

/// The times of every round, in seconds.
#[derive(Default)]
struct Rounds {
    ours: Vec<f64>,
    candle: Vec<f64>,
    read: Vec<f64>,
}

struct Comparison {
    shape: Shape,
    source: &'static str,
    batch: usize,
    dtype: DType,
    rounds: Rounds,
}

fn compare(criterion: &mut Criterion, head: &Head, batch: usize) -> Result<Comparison, Failure> {
    let Shape { name, vocab, hidden } = head.shape;
    let (vocab, hidden) = (vocab as usize, hidden as usize);
    let mut rng = SmallRng::seed_from_u64(SEED + batch as u64);
    let states: Vec<bf16> =
        (0..batch * hidden).map(|_| bf16::from_f32(rng.random_range(-1.0..1.0))).collect();
    let inputs = Inputs::new(
        MatrixRef::new(Operand::HiddenStates, &states, batch, hidden)?,
        MatrixRef::new(Operand::Weights, &head.weights, vocab, hidden)?,
    );
    let states = Tensor::from_slice(&states, (batch, hidden), &Device::Cpu)?;

    let mut sampler = Sampler::cpu();
    let mut output = Output::default();
    check(&mut sampler, &inputs, head, &states)?;
    let rows: Vec<_> =
        (0..batch as u64).map(|row| SamplingParams::new(TEMPERATURE, SEED, row)).collect();
    let mut ours = || {
        sampler.sample(&inputs, &rows, 1, &mut output).expect("a valid call");
        black_box(output.tokens[0]);
    };

    let sampling = Sampling::All { temperature: f64::from(TEMPERATURE) };
    let mut processor = LogitsProcessor::from_sampling(SEED, sampling);
    let mut theirs = |(dtype, weights): &(DType, Tensor)| -> Result<(), Failure> {
        let logits = states.to_dtype(*dtype)?.matmul(&weights.t()?)?;
        for row in 0..batch {
            black_box(processor.sample(&logits.i(row)?)?);
        }
        Ok(())
    };
    let mut trial = |head: &(DType, Tensor)| -> Result<f64, Failure> {
        theirs(head)?;
        let times = (0..5).map(|_| seconds(|| theirs(head).expect("as before")));
        Ok(times.fold(f64::INFINITY, f64::min))
    };
    let mut best = (f64::INFINITY, &head.candle[0]);
    for head in &head.candle {
        let time = trial(head)?;
        if time < best.0 {
            best = (time, head);
        }
    }
    let candle = best.1;

    let rounds = RefCell::new(Rounds::default());
    let mut round = || {
        let mut rounds = rounds.borrow_mut();
        // Each goes first in turn: on a busy machine the first of a round is favored.
        let first = rounds.ours.len();
        for turn in first..first + 3 {
            match turn % 3 {
                0 => rounds.ours.push(seconds(&mut ours)),
                1 => rounds.candle.push(seconds(|| theirs(candle).expect("as before"))),
                _ => rounds.read.push(seconds(|| {
                    black_box(read_all(&head.weights));
                })),
            }
        }
        (rounds.ours[first], rounds.candle[first])
    };
    let mut group = criterion.benchmark_group(format!("{name}/B={batch}"));
    group.sampling_mode(SamplingMode::Flat);
    group.bench_function("flash-sampling", |bencher| {
        bencher.iter_custom(|n| Duration::from_secs_f64((0..n).map(|_| round().0).sum()));
    });
    group.bench_function("candle", |bencher| {
        bencher.iter_custom(|n| Duration::from_secs_f64((0..n).map(|_| round().1).sum()));
    });
    group.finish();
    let (shape, source, dtype) = (head.shape, head.source, candle.0);
    Ok(Comparison { shape, source, batch, dtype, rounds: rounds.into_inner() })
}

/// Checks that greedy tokens have the greatest of candle's f32 logits, up to rounding,
/// and that sampled rows are sound.
fn check(
    sampler: &mut Sampler,
    inputs: &Inputs<'_>,
    head: &Head,
    states: &Tensor,
) -> Result<(), Failure> {
    let (_, weights) = head.candle.last().ok_or("candle multiplies nothing here")?;
    let logits: Vec<Vec<f32>> =
        states.to_dtype(DType::F32)?.matmul(&weights.to_dtype(DType::F32)?.t()?)?.to_vec2()?;
    let greedy = vec![SamplingParams::greedy(); logits.len()];
    let mut output = Output::default();
    sampler.sample(inputs, &greedy, 1, &mut output)?;
    for (row, logits) in logits.iter().enumerate() {
        let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let found = logits[output.tokens[row] as usize];
        assert!(found >= greatest - 1e-3 * greatest.abs(), "row {row}: {found} < {greatest}");
        assert_eq!(output.status[row], Status::OK);
    }
    Ok(())
}

/// Seconds that `work` takes.
fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// Reads all weights once, as fast as the memory lets the same threads: one share each.
fn read_all(weights: &[bf16]) -> u64 {
    let share = weights.len().div_ceil(rayon::current_num_threads());
    weights.par_chunks(share).map(sum).reduce(|| 0, u64::wrapping_add)
}

/// A sum in lanes, which the compiler makes vector instructions of.
fn sum(weights: &[bf16]) -> u64 {
    let mut lanes = [0u16; 64];
    for chunk in weights.as_chunks::<64>().0 {
        for (lane, weight) in lanes.iter_mut().zip(chunk) {
            *lane = lane.wrapping_add(weight.to_bits());
        }
    }
    lanes.into_iter().map(u64::from).sum()
}

fn print(table: &[Comparison]) {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name\t: ")).unwrap_or("?");
    let variant = CpuVariant::fastest().name();
    let threads = rayon::current_num_threads();
    println!("\n{cpu}, {threads} threads, {variant}; load {}", load.trim());
    println!("T = {TEMPERATURE}, bf16 weights for ours; median (minimum) of all rounds\n");
    println!(
        "| head | B | ours ms | candle ms | candle dtype | candle / ours | ours GB/s | read GB/s | share | rounds |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    // A filter on the command line leaves comparisons without rounds.
    for Comparison { shape, source, batch, dtype, rounds } in
        table.iter().filter(|comparison| !comparison.rounds.ours.is_empty())
    {
        let [ours, candle, read] = [&rounds.ours, &rounds.candle, &rounds.read].map(|times| {
            let median = Summary::of(times.clone()).map_or(f64::NAN, |summary| summary.median);
            (median, times.iter().copied().fold(f64::INFINITY, f64::min))
        });
        let speed = |seconds: f64| shape.weights_bytes() as f64 / seconds / 1e9;
        println!(
            "| {} ({source}) | {batch} | {:.2} ({:.2}) | {:.2} ({:.2}) | {dtype:?} | \
             {:.1} ({:.1}) | {:.1} ({:.1}) | {:.1} ({:.1}) | {:.0} % ({:.0} %) | {} |",
            shape.name,
            ours.0 * 1e3,
            ours.1 * 1e3,
            candle.0 * 1e3,
            candle.1 * 1e3,
            candle.0 / ours.0,
            candle.1 / ours.1,
            speed(ours.0),
            speed(ours.1),
            speed(read.0),
            speed(read.1),
            100.0 * read.0 / ours.0,
            100.0 * read.1 / ours.1,
            rounds.ours.len(),
        );
    }
}
