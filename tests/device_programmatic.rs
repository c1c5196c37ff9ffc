//! Does a call that may start before the kernel before it has ended draw the same tokens?

use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaSlice};
use flash_sampling::cuda::RawOperands;
use flash_sampling::{Dtype, Output, Plan, bf16};
use flash_sampling_tests::allocations::{Counting, allocations};
use flash_sampling_tests::gpu::{self, DeviceCase, DeviceWeights, Gpu, assert_same, on_cpu};
use flash_sampling_tests::inputs::{
    Case, HIDDEN_STATES, Head, Matrix, WEIGHTS, params, small_integer,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Replays of a graph, and rounds of the same calls without one.
const ROUNDS: usize = 20;

/// Alignment that every variant takes.
const ALIGNMENT_BYTES: usize = 16;

/// What a call is told of its start.
#[derive(Clone, Copy, Debug)]
enum Start {
    InOrder,
    Early,
}

use Start::{Early, InOrder};

/// Enqueues the case with these operands, planned as told or by the planner.
fn enqueue(
    gpu: &Gpu,
    case: &DeviceCase,
    operands: &RawOperands,
    variant: Option<&str>,
    start: Start,
) {
    let (sampler, problem) = (gpu.sampler, &case.problem);
    let plan = Plan::for_gpu(problem, &sampler.device_limits(), variant).expect("a plan");
    let stream = gpu.stream.cu_stream().cast();
    let before = allocations();
    // SAFETY: as in `Gpu::enqueue`. Weights were copied before the host last waited, and
    // the calls before are ours.
    let enqueued = unsafe {
        match start {
            InOrder => sampler.enqueue(&plan, problem, operands, stream),
            Early => sampler.enqueue_programmatic(&plan, problem, operands, stream),
        }
    };
    let allocated = allocations() - before;
    enqueued.expect("enqueues");
    assert_eq!(allocated, 0, "allocations on the host");
}

/// What `enqueue` puts on the stream, as a graph.
fn capture(gpu: &Gpu, enqueue: impl FnOnce()) -> CudaGraph {
    // Other tests run beside this one.
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    gpu.stream.begin_capture(mode).expect("capture begins");
    enqueue();
    let graph = gpu.stream.end_capture(CUgraphInstantiate_flags(0)).expect("capture ends");
    graph.expect("the capture holds the calls")
}

/// Calls on one workspace, each of which reads the tokens of the call before it as its
/// hidden states.
struct Chain {
    calls: Vec<DeviceCase>,
    expected: Vec<Output>,
    name: String,
}

impl Chain {
    const CALLS: usize = 4;
    const VOCAB: usize = 500;
    /// The bits of 1.0 above those of 0.5, both in bf16, and an odd beginning. Tokens from
    /// here on are two numbers each, multiples of 1/256 below 8.
    const FIRST_TOKEN: u32 = 0x3F80_3F05;

    /// D is at most 1,000: sums are exact.
    fn new(gpu: &Gpu, batch: usize, hidden: usize) -> Self {
        let weights = Matrix::integers(WEIGHTS, Dtype::Bf16, Self::VOCAB, hidden);
        let head = Head { first_token: Self::FIRST_TOKEN, ..Head::new(weights) };
        let head = Arc::new(head);
        let device_head = DeviceWeights::upload(gpu, &head, ALIGNMENT_BYTES);
        let mut states = Matrix::integers(HIDDEN_STATES, Dtype::Bf16, batch, hidden);
        let (mut calls, mut expected) = (Vec::new(), Vec::new());
        for call in 0..Self::CALLS {
            let temperature = 10.0 * (hidden as f32).sqrt();
            let row = |row| params(temperature, row, call as u64);
            let rows = (0..batch as u64).map(row).collect();
            let name = format!("B {batch}, D {hidden}, call {call}");
            let case = Case::new(name, &head, states, rows).with_draws(hidden as u32 / 2);
            let output = on_cpu(&case);
            states = as_hidden_states(&output.tokens, batch, hidden);
            calls.push(DeviceCase::upload(gpu, &case, &device_head, ALIGNMENT_BYTES));
            expected.push(output);
        }
        gpu.stream.synchronize().expect("the stream runs");
        Self { calls, expected, name: format!("B {batch}, D {hidden}") }
    }

    /// Enqueues all calls, with the variants in turn.
    fn enqueue(&self, gpu: &Gpu, variants: &[Option<&str>], start: Start) {
        let first = self.calls[0].operands();
        let mut hidden_states = first.hidden_states;
        for (call, variant) in self.calls.iter().zip(variants.iter().cycle()) {
            let workspace = first.workspace;
            let operands = RawOperands { hidden_states, workspace, ..call.operands() };
            enqueue(gpu, call, &operands, *variant, start);
            hidden_states = operands.tokens;
        }
    }

    /// Poisons every call's outputs: a call that does not wait reads poison.
    fn poison(&mut self, gpu: &Gpu) {
        self.calls.iter_mut().for_each(|call| call.poison(gpu));
    }

    fn check(&self, gpu: &Gpu, how: &str) {
        for (number, (call, expected)) in self.calls.iter().zip(&self.expected).enumerate() {
            let name = format!("{}, call {number}, {how}", self.name);
            assert_same(&name, &call.output(gpu), expected);
        }
    }
}

/// Tokens `[B, D / 2]` as a row of bf16 `[B, D]` has them in memory.
fn as_hidden_states(tokens: &[u32], batch: usize, hidden: usize) -> Matrix {
    Matrix::from_fn(Dtype::Bf16, batch, hidden, |row, column| {
        let token = tokens[row * hidden / 2 + column / 2];
        bf16::from_bits((token >> (column % 2 * 16)) as u16).to_f32()
    })
}

#[test]
fn a_call_waits_for_the_call_before_it() {
    let Some(gpu) = Gpu::open() else { return };
    // Tiles of fewer slabs than the ring has stages, as many, and more; then clusters.
    for (batch, hidden) in [(3, 128), (3, 768), (5, 832), (33, 576), (128, 448), (200, 320)] {
        let mut chain = Chain::new(&gpu, batch, hidden);
        for start in [InOrder, Early] {
            for round in 0..ROUNDS {
                chain.poison(&gpu);
                chain.enqueue(&gpu, &[None], start);
                chain.check(&gpu, &format!("{start:?}, round {round}"));
            }
        }
    }
}

/// Rounds that nothing separates: what a call reads or clears, the round after writes.
#[test]
fn a_call_waits_for_all_calls_before_it() {
    let Some(gpu) = Gpu::open() else { return };
    for (batch, hidden) in [(3, 832), (128, 448)] {
        let mut chain = Chain::new(&gpu, batch, hidden);
        chain.poison(&gpu);
        (0..ROUNDS).for_each(|_| chain.enqueue(&gpu, &[None], Early));
        chain.check(&gpu, "rounds");
    }
}

#[test]
fn a_replay_waits_as_the_call_does() {
    let Some(gpu) = Gpu::open() else { return };
    for (batch, hidden) in [(3, 128), (5, 832), (128, 448)] {
        let mut chain = Chain::new(&gpu, batch, hidden);
        let graph = capture(&gpu, || chain.enqueue(&gpu, &[None], Early));
        for round in 0..ROUNDS {
            chain.poison(&gpu);
            graph.launch().expect("replays");
            chain.check(&gpu, &format!("replay {round}"));
        }
        chain.poison(&gpu);
        (0..ROUNDS).for_each(|_| graph.launch().expect("replays"));
        chain.check(&gpu, "replays");
    }
}

/// Variants that wait for nothing by themselves, before, behind and between the planner's.
#[test]
fn every_kernel_takes_the_option() {
    let Some(gpu) = Gpu::open() else { return };
    let mut chain = Chain::new(&gpu, 5, 320);
    let (mma, simt) = (Some("mma_b8_bf16"), Some("simt"));
    for variants in [&[mma, simt] as &[_], &[mma, None], &[None, simt]] {
        for round in 0..ROUNDS {
            chain.poison(&gpu);
            chain.enqueue(&gpu, variants, Early);
            chain.check(&gpu, &format!("{variants:?}, round {round}"));
        }
    }
}

/// Two calls behind a copy of their hidden states, on the whole device.
struct AfterCopy {
    calls: [DeviceCase; 2],
    hidden_states: CudaSlice<u8>,
}

impl AfterCopy {
    fn enqueue(&mut self, gpu: &Gpu, states: &CudaSlice<u8>, start: Start) {
        gpu.stream.memcpy_dtod(states, &mut self.hidden_states).expect("copy on the device");
        let workspace = self.calls[0].operands().workspace;
        let hidden_states = gpu::address(&self.hidden_states);
        for call in &self.calls {
            let operands = RawOperands { hidden_states, workspace, ..call.operands() };
            enqueue(gpu, call, &operands, None, start);
        }
    }

    fn poison(&mut self, gpu: &Gpu) {
        self.calls.iter_mut().for_each(|call| call.poison(gpu));
    }

    fn check(&self, gpu: &Gpu, name: &str, expected: &Output) {
        self.calls.iter().for_each(|call| assert_same(name, &call.output(gpu), expected));
    }
}

#[test]
fn calls_wait_for_a_copy_of_their_hidden_states() {
    const HIDDEN: usize = 832;
    const VOCAB: usize = 20_000;
    let Some(gpu) = Gpu::open() else { return };
    let weights = Matrix::integers(WEIGHTS, Dtype::Bf16, VOCAB, HIDDEN);
    let head = Arc::new(Head::new(weights));
    let device_head = DeviceWeights::upload(&gpu, &head, ALIGNMENT_BYTES);
    for batch in [1, 128] {
        let case = |step: usize| {
            let states = Matrix::from_fn(Dtype::Bf16, batch, HIDDEN, |row, column| {
                small_integer(HIDDEN_STATES, step * batch + row, column)
            });
            let temperature = 24.0 * (HIDDEN as f32).sqrt();
            let rows = (0..batch as u64).map(|row| params(temperature, row, 7)).collect();
            Case::new(format!("B {batch}, step {step}"), &head, states, rows)
        };
        let steps = [case(0), case(1)];
        let expected = steps.each_ref().map(on_cpu);
        let states = steps
            .each_ref()
            .map(|case| gpu::to_device(&gpu.stream, &case.hidden_states.to_bytes(HIDDEN)));
        let on_device = || DeviceCase::upload(&gpu, &steps[0], &device_head, ALIGNMENT_BYTES);
        let mut pair = AfterCopy {
            calls: [on_device(), on_device()],
            hidden_states: gpu::to_device(&gpu.stream, &vec![0xFF; batch * HIDDEN * 2]),
        };
        gpu.stream.synchronize().expect("the stream runs");
        for round in 0..ROUNDS {
            for start in [InOrder, Early] {
                for (step, expected) in expected.iter().enumerate() {
                    pair.poison(&gpu);
                    pair.enqueue(&gpu, &states[step], start);
                    let name = format!("B {batch}, step {step}, {start:?}, round {round}");
                    pair.check(&gpu, &name, expected);
                }
            }
        }
        let graph = capture(&gpu, || {
            states.iter().for_each(|states| pair.enqueue(&gpu, states, Early));
        });
        for round in 0..ROUNDS {
            pair.poison(&gpu);
            graph.launch().expect("replays");
            pair.check(&gpu, &format!("B {batch}, replay {round}"), &expected[1]);
        }
    }
}
