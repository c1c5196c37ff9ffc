//! Do the doors of the GPU back end keep their promises? Without a GPU, against the stub
//! of `cargo xtask cuda-stub`: is the lack of a device told well?

use std::ptr;
use std::sync::Arc;
use std::thread;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, DevicePtr, DevicePtrMut, result};
use flash_sampling::cuda::{Cuda, DeviceHead, RawOperands};
use flash_sampling::{
    Call, CudaFailure, Dtype, Error, LayoutRule, MatrixRef, Need, Operand, Output, Problem,
    Sampler, SamplingParams, VariantId, bf16,
};
use flash_sampling_tests::allocations::Counting;
use flash_sampling_tests::gpu::{
    self, DeviceCase, DeviceWeights, Gpu, NO_DEVICE, Turn, assert_same, on_cpu,
};
use flash_sampling_tests::inputs::{
    BIAS, Case, HIDDEN_STATES, Head, Matrix, WEIGHTS, params, rows_of, small_integer,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Small integers, a bias, padding and an odd first token.
fn exact_case(batch: usize, vocab: usize, hidden: usize, draws: u32) -> Case {
    let bias = (0..vocab - 1).map(|token| small_integer(BIAS, token, 0)).collect();
    let weights = Matrix::integers(WEIGHTS, Dtype::Bf16, vocab, hidden);
    let head = Head { weights, bias: Some(bias), vocab_valid: vocab - 1, first_token: 77 };
    let hidden_states = Matrix::integers(HIDDEN_STATES, Dtype::Bf16, batch, hidden);
    let rows = rows_of(batch, &temperatures(hidden));
    Case::new(format!("B {batch}, V {vocab}, D {hidden}"), &Arc::new(head), hidden_states, rows)
        .with_draws(draws)
}

/// Greedy, and noise that matters: dot products deviate by about 24·√D.
fn temperatures(hidden: usize) -> [f32; 3] {
    let deviation = 24.0 * (hidden as f32).sqrt();
    [deviation, 0.0, deviation / 4.0]
}

fn on_device(gpu: &Gpu, case: &Case) -> DeviceCase {
    let head = DeviceWeights::upload(gpu, &case.head, 16);
    DeviceCase::upload(gpu, case, &head, 16)
}

#[test]
fn without_a_device_the_error_says_so() {
    // With a device there is nothing to see, and every other test runs.
    if let Err(error) = Sampler::<Cuda>::cuda(0) {
        let Error::Cuda(CudaFailure { during, code, .. }) = error else {
            panic!("expected an error of the driver, found {error:?}");
        };
        assert_eq!((during, code), (Call::Initialize, NO_DEVICE));
        let text = error.to_string();
        assert!(text.starts_with("cuda failed to initialize: "), "{text}");
        assert!(text.contains("no GPU is visible"), "{text}");
    }
}

#[test]
fn an_ordinal_beyond_the_devices_is_unsupported() {
    let Some(_turn) = Turn::take() else { return };
    let error = Sampler::<Cuda>::cuda(1_000).expect_err("nobody has that many");
    let expected = (Need::CudaDevice, 1_000);
    assert!(
        matches!(error, Error::Unsupported { need, found, .. } if (need, found) == expected),
        "{error:?}"
    );
}

#[test]
fn samplers_and_heads_move_between_threads() {
    fn assert_send_sync<T: Send + Sync>() {}
    assert_send_sync::<Sampler<Cuda>>();
    assert_send_sync::<DeviceHead>();
    let Some(gpu) = Turn::take() else { return };
    let mut sampler = gpu.own_sampler();
    let case = exact_case(3, 1_000, 64, 1);
    let head = gpu::upload(&sampler, &case.head);
    // A thread without a context samples, and frees everything.
    let output = thread::scope(|scope| {
        let case = &case;
        let work = scope.spawn(move || {
            let mut output = Output::default();
            let states = case.hidden_states.view(Operand::HiddenStates, 0, case.batch());
            sampler.sample(&head, states, &case.rows, 1, &mut output).expect("samples");
            output
        });
        work.join().expect("the thread ends well")
    });
    assert_same(&case.name, &output, &on_cpu(&case));
}

#[test]
fn the_engine_door_serves_any_thread_and_the_default_stream() {
    let Some(gpu) = Turn::take() else { return };
    let case = exact_case(17, 3_000, 192, 3);
    let device_case = on_device(&gpu, &case);
    gpu.stream.synchronize().expect("the stream runs");
    let plan = gpu.sampler.plan(&device_case.problem).expect("a plan");
    let (sampler, problem, operands) = (gpu.sampler, device_case.problem, device_case.operands());
    thread::scope(|scope| {
        scope.spawn(|| {
            let current = || result::ctx::get_current().expect("the driver answers");
            assert_eq!(current(), None, "a new thread has no context");
            // SAFETY: as in `Gpu::enqueue`, on the legacy default stream; what it reads
            // was written before.
            let enqueued = unsafe { sampler.enqueue(&plan, &problem, &operands, ptr::null_mut()) };
            enqueued.expect("enqueues");
            assert_eq!(current(), None, "the call leaves the thread as it was");
        });
    });
    gpu.stream.context().synchronize().expect("the device runs");
    assert_same(&case.name, &device_case.output(&gpu), &on_cpu(&case));
}

#[test]
fn graph_replays_draw_with_new_parameters() {
    const REPLAYS: u64 = 20;
    let Some(gpu) = Turn::take() else { return };
    // One shape for the tensor cores and one that only the portable kernel takes.
    for (mut case, alignment) in
        [(exact_case(9, 5_000, 256, 2), 16), (exact_case(3, 1_000, 63, 1), 2)]
    {
        let head = DeviceWeights::upload(&gpu, &case.head, alignment);
        let mut device_case = DeviceCase::upload(&gpu, &case, &head, alignment);
        gpu.stream.synchronize().expect("the stream runs");
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        gpu.stream.begin_capture(mode).expect("capture begins");
        gpu.enqueue(&device_case, None).expect("enqueues into the capture");
        let graph = gpu.stream.end_capture(CUgraphInstantiate_flags(0)).expect("capture ends");
        let graph = graph.expect("the capture holds the call");

        let mut distinct = std::collections::HashSet::new();
        for replay in 0..REPLAYS {
            let hidden = device_case.problem.hidden() as usize;
            for (row, to) in case.rows.iter_mut().enumerate() {
                let temperature = temperatures(hidden)[(row + replay as usize) % 3];
                *to = params(temperature, replay << 40 | row as u64, u64::MAX - replay);
            }
            device_case.set_rows(&gpu, &case.rows);
            device_case.poison(&gpu);
            graph.launch().expect("replays");
            let output = device_case.output(&gpu);
            let name = format!("{}, replay {replay}", case.name);
            assert_same(&name, &output, &on_cpu(&case));
            distinct.insert(output.tokens);
        }
        // Few rows may draw the same tokens twice by chance.
        let distinct = distinct.len() as u64;
        assert!(distinct > REPLAYS / 2, "{distinct} of {REPLAYS}: new parameters draw new tokens");
    }
}

/// What an engine on cudarc writes, without this package's helpers.
#[test]
fn cudarc_allocates_and_provides_the_stream() {
    let Some(_turn) = Turn::take() else { return };
    let case = exact_case(4, 2_000, 128, 1);
    let (vocab, hidden) = (case.head.weights.rows(), case.hidden_states.columns());
    let bytes = |matrix: &Matrix| matrix.to_bytes(matrix.row_stride());

    let context = CudaContext::new(0).expect("cudarc opens the device");
    let stream = context.new_stream().expect("cudarc makes a stream");
    let weights = stream.clone_htod(&bytes(&case.head.weights)).expect("copy");
    let bias = stream.clone_htod(case.head.bias.as_ref().expect("has one")).expect("copy");
    let hidden_states = stream.clone_htod(&bytes(&case.hidden_states)).expect("copy");
    let column = |value: fn(&SamplingParams) -> u64| case.rows.iter().map(value).collect();
    let seeds: Vec<u64> = column(|row| row.key.seed);
    let positions: Vec<u64> = column(|row| row.key.position);
    let temperatures: Vec<f32> = case.rows.iter().map(|row| row.temperature).collect();
    let seeds = stream.clone_htod(&seeds).expect("copy");
    let positions = stream.clone_htod(&positions).expect("copy");
    let temperatures = stream.clone_htod(&temperatures).expect("copy");
    let mut tokens = stream.alloc_zeros::<u32>(case.batch()).expect("allocate");
    let mut status = stream.alloc_zeros::<u32>(case.batch()).expect("allocate");

    let sampler = Sampler::<Cuda>::cuda(0).expect("the sampler opens the same device");
    let problem = Problem::builder(case.batch() as u64, vocab as u64, hidden as u64)
        .vocab_valid(case.head.vocab_valid as u64)
        .first_token(case.head.first_token.into())
        .bias(true)
        .build()
        .expect("valid");
    let plan = sampler.plan(&problem).expect("a plan");
    let workspace_bytes = plan.workspace_bytes;
    let mut workspace = stream.alloc_zeros::<u8>(workspace_bytes as usize).expect("allocate");
    {
        let operands = RawOperands {
            weights: weights.device_ptr(&stream).0,
            hidden_states: hidden_states.device_ptr(&stream).0,
            bias: bias.device_ptr(&stream).0,
            temperatures: temperatures.device_ptr(&stream).0,
            seeds: seeds.device_ptr(&stream).0,
            positions: positions.device_ptr(&stream).0,
            tokens: tokens.device_ptr_mut(&stream).0,
            status: status.device_ptr_mut(&stream).0,
            scores: 0,
            margins: 0,
            workspace: workspace.device_ptr_mut(&stream).0,
            workspace_bytes,
            ..RawOperands::default()
        };
        // SAFETY: the slices have the problem's sizes and outlive the stream's work, which
        // the copy below waits for; the workspace is zero; the stream is of the primary
        // context.
        let enqueued =
            unsafe { sampler.enqueue(&plan, &problem, &operands, stream.cu_stream().cast()) };
        enqueued.expect("enqueues");
    }
    let tokens = gpu::copy_back(&stream, &tokens);
    let status = gpu::copy_back(&stream, &status);
    let expected = on_cpu(&case);
    assert_eq!(tokens, expected.tokens);
    assert_eq!(status, expected.status.iter().map(|status| status.bits()).collect::<Vec<_>>());
}

#[test]
fn a_call_allocates_nothing_and_does_not_wait() {
    let Some(gpu) = Turn::take() else { return };
    let case = exact_case(5, 4_000, 128, 2);
    let device_case = on_device(&gpu, &case);
    let plan = gpu.sampler.plan(&device_case.problem).expect("a plan");
    let (problem, operands) = (device_case.problem, device_case.operands());
    let stream = gpu.stream.cu_stream();
    gpu.stream.synchronize().expect("the stream runs");

    // SAFETY: as in `Gpu::enqueue`. The workspace is zero already.
    gpu.assert_only_enqueues(|| unsafe {
        gpu.sampler
            .clear_workspace(operands.workspace, operands.workspace_bytes, stream.cast())
            .and_then(|()| gpu.sampler.enqueue(&plan, &problem, &operands, stream.cast()))
    });
    assert_same(&case.name, &device_case.output(&gpu), &on_cpu(&case));
}

#[test]
fn the_easy_door_agrees_with_the_cpu_as_its_buffers_grow() {
    let Some(gpu) = Turn::take() else { return };
    let mut sampler = gpu.own_sampler();
    let mut output = Output::default();
    let sizes = [(1, 100, 7, 1), (64, 3_000, 130, 5), (2, 500, 64, 1), (200, 129, 65, 9)];
    for (batch, vocab, hidden, draws) in sizes {
        let case = exact_case(batch, vocab, hidden, draws);
        let head = gpu::upload(&sampler, &case.head);
        let states = case.hidden_states.view(Operand::HiddenStates, 0, batch);
        sampler.sample(&head, states, &case.rows, draws, &mut output).expect("samples");
        assert_same(&case.name, &output, &on_cpu(&case));
    }
}

#[test]
fn misuse_of_the_easy_door_is_told() {
    let Some(gpu) = Turn::take() else { return };
    let mut sampler = gpu.own_sampler();
    let case = exact_case(2, 100, 8, 1);
    let head = gpu::upload(&sampler, &case.head);
    let mut output = Output::default();
    let mut message = |states: &[bf16], rows: &[SamplingParams]| {
        let columns = states.len() / 2;
        let states = MatrixRef::new(Operand::HiddenStates, states, 2, columns).expect("valid");
        sampler.sample(&head, states, rows, 1, &mut output).expect_err("misuse").to_string()
    };
    let states = [bf16::ONE; 16];
    assert_eq!(message(&states[..14], &case.rows), "hidden_states axis D: expected 8, found 7");
    assert_eq!(message(&states, &case.rows[..1]), "params axis B: expected 2, found 1");
    let rows = [SamplingParams::greedy(), SamplingParams::new(f32::NAN, 0, 0)];
    let expected = "row 1 temperature: expected finite and at least 0, found NaN";
    assert_eq!(message(&states, &rows), expected);
    let short = Head { bias: Some(vec![0.0; 98]), ..(*case.head).clone() };
    let head = gpu::upload(&sampler, &short);
    let states = case.hidden_states.view(Operand::HiddenStates, 0, 2);
    let error = sampler.sample(&head, states, &case.rows, 1, &mut output).expect_err("misuse");
    assert_eq!(error.to_string(), "bias axis V: expected at least 99, found 98");
}

#[test]
fn misuse_of_the_engine_door_is_told() {
    let Some(gpu) = Turn::take() else { return };
    let case = exact_case(2, 1_000, 64, 1);
    let device_case = on_device(&gpu, &case);
    let (problem, good) = (device_case.problem, device_case.operands());
    let plan = gpu.sampler.plan(&problem).expect("a plan");
    let VariantId::Gpu(variant) = plan.variant else { panic!("a plan of a GPU") };
    assert_eq!(variant.alignment_bytes, 16, "the tensor cores take this case");
    let refusal = |operands: RawOperands| {
        let stream = gpu.stream.cu_stream().cast();
        // SAFETY: as in `Gpu::enqueue`; what is wrong is refused before anything runs.
        unsafe { gpu.sampler.enqueue(&plan, &problem, &operands, stream) }.expect_err("misuse")
    };
    let found = good.weights + 2;
    assert_eq!(
        refusal(RawOperands { weights: found, ..good }),
        Error::Layout { operand: Operand::Weights, rule: LayoutRule::Alignment(16), found }
    );
    assert_eq!(
        refusal(RawOperands { bias: 0, ..good }),
        Error::Layout { operand: Operand::Bias, rule: LayoutRule::NotNull, found: 0 }
    );
    let required = plan.workspace_bytes as usize;
    assert_eq!(
        refusal(RawOperands { workspace_bytes: 1, ..good }),
        Error::Workspace { required, provided: 1 }
    );
    let mut sampler = gpu.own_sampler();
    sampler.force_variant(Some("no such variant"));
    let error = sampler.plan(&problem).expect_err("misuse");
    assert!(matches!(error, Error::Unsupported { need: Need::VariantName, .. }), "{error:?}");
    sampler.force_variant(Some("simt"));
    assert_eq!(sampler.plan(&problem).expect("a plan").variant.name(), "simt");
}

#[test]
fn matrices_at_odd_addresses_fall_back_to_the_portable_kernel() {
    let Some(gpu) = Turn::take() else { return };
    let case = exact_case(9, 700, 64, 2);
    let device_case = on_device(&gpu, &case);
    // The hidden states again, two bytes further.
    let mut shifted = vec![0xA5; 2];
    shifted.extend(case.hidden_states.to_bytes(case.hidden_states.row_stride()));
    let shifted = gpu::to_device(&gpu.stream, &shifted);
    let hidden_states = gpu::address(&shifted) + 2;
    let problem = Problem::builder(9, 700, 64)
        .vocab_valid(699)
        .first_token(77)
        .draws(2)
        .bias(true)
        .alignment_bytes(2)
        .build()
        .expect("valid");
    let plan = gpu.sampler.plan(&problem).expect("a plan");
    assert_eq!(plan.variant.name(), "simt");
    let operands = RawOperands { hidden_states, ..device_case.operands() };
    // SAFETY: as in `Gpu::enqueue`; the shifted rows are as long.
    let enqueued =
        unsafe { gpu.sampler.enqueue(&plan, &problem, &operands, gpu.stream.cu_stream().cast()) };
    enqueued.expect("enqueues");
    assert_same(&case.name, &device_case.output(&gpu), &on_cpu(&case));
}

#[test]
fn no_rows_enqueue_nothing() {
    let Some(gpu) = Turn::take() else { return };
    let case = exact_case(0, 100, 8, 1);
    let device_case = on_device(&gpu, &case);
    gpu.enqueue(&device_case, None).expect("nothing to do");
    assert_same(&case.name, &device_case.output(&gpu), &Output::default());
}
