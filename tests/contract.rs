//! Is misuse told apart and told well? One case for each error, with its text; no
//! input panics; a call in the steady state allocates nothing in its thread.

use flash_sampling::{
    Call, CpuOptions, CpuVariant, CudaFailure, DeviceLimits, Dtype, Error, Inputs, MatrixRef, Need,
    Operand, Output, Plan, Problem, ProblemBuilder, Sampler, SamplingParams, bf16, check_workspace,
    f16, workspace_bytes,
};
use flash_sampling_tests::allocations::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const VOCAB: usize = 300;
const HIDDEN: usize = 20;
const BATCH: usize = 3;

/// Operands of a valid call.
struct Fixture {
    weights: Vec<bf16>,
    hidden_states: Vec<bf16>,
    rows: Vec<SamplingParams>,
}

impl Fixture {
    fn new() -> Self {
        let small = |i: usize| bf16::from_f32((i * 7 % 17) as f32 - 8.0);
        Self {
            weights: (0..VOCAB * HIDDEN).map(small).collect(),
            hidden_states: (0..BATCH * HIDDEN).map(small).collect(),
            rows: (0..BATCH as u64).map(|row| SamplingParams::new(1.0, row, 0)).collect(),
        }
    }

    fn inputs(&self) -> Inputs<'_> {
        Inputs::new(
            MatrixRef::new(Operand::HiddenStates, &self.hidden_states, BATCH, HIDDEN).unwrap(),
            MatrixRef::new(Operand::Weights, &self.weights, VOCAB, HIDDEN).unwrap(),
        )
    }
}

/// The error of a call, having checked that its output is untouched.
fn sample_error(inputs: &Inputs<'_>, rows: &[SamplingParams], draws: u32) -> Error {
    let before = Output::default();
    let mut output = before.clone();
    let error = Sampler::cpu().sample(inputs, rows, draws, &mut output).unwrap_err();
    assert_eq!(output, before);
    error
}

fn problem() -> ProblemBuilder {
    Problem::builder(8, 1000, 64)
}

#[track_caller]
fn assert_text(error: &Error, text: &str) {
    assert_eq!(error.to_string(), text);
}

#[test]
fn shape_names_operand_axis_and_both_sizes() {
    let fixture = Fixture::new();
    let inputs = fixture.inputs();
    let rows = &fixture.rows;

    let narrow = MatrixRef::new(Operand::HiddenStates, &fixture.hidden_states, BATCH, HIDDEN - 1);
    let narrow = Inputs::new(narrow.unwrap(), inputs.weights);
    let error = sample_error(&narrow, rows, 1);
    assert!(matches!(error, Error::Shape { .. }));
    assert_text(&error, "hidden_states axis D: expected 20, found 19");

    let error = sample_error(&inputs, &rows[1..], 1);
    assert_text(&error, "params axis B: expected 3, found 2");

    let error = sample_error(&inputs.with_bias(&[0.0; VOCAB - 1]), rows, 1);
    assert_text(&error, "bias axis V: expected at least 300, found 299");

    let error = sample_error(&inputs.with_vocab_valid(301), rows, 1);
    assert_text(&error, "weights axis V_valid: expected at most 300, found 301");

    let error = sample_error(&inputs.with_vocab_valid(0), rows, 1);
    assert_text(&error, "weights axis V_valid: expected at least 1, found 0");

    let error = Problem::builder(1, 0, 1).build().unwrap_err();
    assert_text(&error, "weights axis V: expected at least 1, found 0");

    let error = Problem::builder(1, 1, 0).build().unwrap_err();
    assert_text(&error, "weights axis D: expected at least 1, found 0");
}

#[test]
fn layout_names_operand_rule_and_what_was_found() {
    let data = vec![bf16::ONE; 100];
    let matrix = |rows, columns, stride| {
        MatrixRef::with_stride(Operand::Weights, &data, rows, columns, stride)
    };
    let error = matrix(5, 20, 19).unwrap_err();
    assert!(matches!(error, Error::Layout { .. }));
    assert_text(&error, "weights row stride: expected at least 20, found 19");

    let error = matrix(5, 20, 21).unwrap_err();
    assert_text(&error, "weights length: expected at least 104, found 100");
    // The last row needs its columns, not its stride.
    assert!(matrix(5, 16, 21).is_ok());

    let error = MatrixRef::new(Operand::HiddenStates, &[0.0_f32; 7], 2, 4).unwrap_err();
    assert_text(&error, "hidden_states length: expected at least 8, found 7");

    let error = matrix(usize::MAX, usize::MAX, usize::MAX).unwrap_err();
    assert_text(&error, &format!("weights length: expected at least {}, found 100", u64::MAX));

    let error = problem().hidden_stride(63).build().unwrap_err();
    assert_text(&error, "hidden_states row stride: expected at least 64, found 63");

    let error = problem().weights_stride(1 << 60).build().unwrap_err();
    let (limit, found) = (i64::MAX, u64::MAX);
    let text = format!("weights bytes spanned: expected at most {limit}, found {found}");
    assert_text(&error, &text);
}

#[test]
fn param_names_row_parameter_and_value() {
    let fixture = Fixture::new();
    for (temperature, text) in [
        (f32::NAN, "NaN"),
        (f32::INFINITY, "inf"),
        (f32::NEG_INFINITY, "-inf"),
        (-0.5, "-0.5"),
        (-f32::MIN_POSITIVE, "-0.000000000000000000000000000000000000011754943508222875"),
    ] {
        let mut rows = fixture.rows.clone();
        rows[1].temperature = temperature;
        let error = sample_error(&fixture.inputs(), &rows, 1);
        assert!(matches!(error, Error::Param { row: Some(1), .. }));
        let text = format!("row 1 temperature: expected finite and at least 0, found {text}");
        assert_text(&error, &text);
    }

    let error = sample_error(&fixture.inputs(), &fixture.rows, 0);
    assert!(matches!(error, Error::Param { row: None, .. }));
    assert_text(&error, "draws: expected at least 1, found 0");

    let options = CpuOptions { threads: Some(0), variant: None };
    let error = Sampler::cpu_with(options).unwrap_err();
    assert_text(&error, "threads: expected at least 1, found 0");
}

#[test]
fn temperatures_at_the_edge_of_their_domain_are_accepted() {
    let fixture = Fixture::new();
    for temperature in [0.0, -0.0, f32::from_bits(1), f32::MAX] {
        let mut rows = fixture.rows.clone();
        rows[1].temperature = temperature;
        let mut output = Output::default();
        Sampler::cpu().sample(&fixture.inputs(), &rows, 1, &mut output).unwrap();
        assert!(output.tokens.iter().all(|&token| (token as usize) < VOCAB), "{temperature}");
        assert!(output.scores.iter().all(|score| score.is_finite()), "{temperature}");
    }
}

#[test]
fn unsupported_is_told_apart_from_invalid() {
    let fixture = Fixture::new();
    let last = u64::from(u32::MAX) - VOCAB as u64;
    let mut output = Output::default();
    let inputs = fixture.inputs().with_first_token(last);
    Sampler::cpu().sample(&inputs, &fixture.rows, 1, &mut output).unwrap();
    assert!(output.tokens.iter().all(|&token| token != u32::MAX && u64::from(token) >= last));

    let error = sample_error(&inputs.with_first_token(last + 1), &fixture.rows, 1);
    assert!(matches!(error, Error::Unsupported { need: Need::TokenIds, .. }));
    let text = "first_token + V_valid: expected at most 4294967295, found 4294967296";
    assert_text(&error, &format!("unsupported: {text}"));

    let error = sample_error(&inputs.with_first_token(u64::MAX), &fixture.rows, 1);
    assert!(matches!(error, Error::Unsupported { need: Need::TokenIds, .. }));

    for (need, builder) in [
        (Need::Batch, Problem::builder(1 << 32, 1, 1)),
        (Need::Hidden, Problem::builder(1, 1, 1 << 32)),
        (Need::Draws, problem().draws(1 << 32)),
        (Need::TokenIds, Problem::builder(1, 1 << 32, 1)),
        (Need::Outputs, Problem::builder(u32::MAX.into(), 1, 1).draws(u32::MAX.into())),
    ] {
        let error = builder.build().unwrap_err();
        assert!(matches!(error, Error::Unsupported { need: found, .. } if found == need));
    }
    let error = problem().draws(1 << 32).build().unwrap_err();
    assert_text(&error, "unsupported: axis S: expected at most 4294967295, found 4294967296");
}

#[test]
fn outputs_beyond_memory_are_refused() {
    let columns = 1;
    let hidden_states = vec![bf16::ONE; 1 << 20];
    let weights = [bf16::ONE; 4];
    let inputs = Inputs::new(
        MatrixRef::new(Operand::HiddenStates, &hidden_states, 1 << 20, columns).unwrap(),
        MatrixRef::new(Operand::Weights, &weights, 4, columns).unwrap(),
    );
    let rows = vec![SamplingParams::greedy(); 1 << 20];
    // 2⁵² outputs of four bytes: more than the 47 bits of a process.
    let error = sample_error(&inputs, &rows, u32::MAX);
    assert!(matches!(error, Error::Unsupported { need: Need::HostMemory, .. }));
    let bytes = (u64::from(u32::MAX) << 20) * 4;
    assert_text(&error, &format!("unsupported: cannot allocate {bytes} bytes of host memory"));
}

#[test]
fn workspace_names_both_sizes() {
    let problem = problem().build().unwrap();
    let required = workspace_bytes(&problem);
    assert_eq!(check_workspace(&problem, required), Ok(()));
    let error = check_workspace(&problem, required - 1).unwrap_err();
    assert!(matches!(error, Error::Workspace { .. }));
    let provided = required - 1;
    let text = format!("workspace: expected at least {required} bytes, found {provided}");
    assert_text(&error, &text);
}

#[test]
fn cuda_names_the_call_the_code_and_what_helps() {
    let failure = |code, name| CudaFailure { during: Call::Load, code, name };
    let error = Error::Cuda(failure(1, "CUDA_ERROR_INVALID_VALUE"));
    assert_text(&error, "cuda failed to load the module: CUDA_ERROR_INVALID_VALUE (code 1)");
    let error = Error::Cuda(failure(222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"));
    assert_text(
        &error,
        "cuda failed to load the module: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (code 222); \
         the driver is too old for this PTX: update it",
    );
}

#[test]
fn the_planner_refuses_with_reasons() {
    let h200 = DeviceLimits {
        compute_capability: 90,
        multiprocessors: 132,
        shared_bytes_per_block: 227 << 10,
        shared_bytes_per_sm: 228 << 10,
    };
    let aligned = problem().build().unwrap();

    let old = DeviceLimits { compute_capability: 75, ..h200 };
    let error = Plan::for_gpu(&aligned, &old, None).unwrap_err();
    assert!(matches!(error, Error::Unsupported { need: Need::ComputeCapability, .. }));
    assert_text(&error, "unsupported: compute capability: expected at least 80, found 75");

    let error = Plan::for_gpu(&aligned, &h200, Some("none such")).unwrap_err();
    assert!(matches!(error, Error::Unsupported { need: Need::VariantName, .. }));

    let error = Plan::for_gpu(&aligned, &h200, Some("mma_b8_f16")).unwrap_err();
    assert_text(&error, "unsupported: weights dtype: expected f16, found bf16");

    let odd = problem().weights_stride(65).build().unwrap();
    let plan = Plan::for_gpu(&odd, &h200, None).unwrap();
    assert_eq!(plan.variant.name(), "simt");
    let text = plan.to_string();
    let reason = "alignment of the weights row stride: expected at least 16, found 2";
    // The names are padded to one width.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&format!("mma_b8_bf16 {reason}")), "{text}");
    assert!(words.contains("mma_b64_f16 weights dtype: expected f16, found bf16"), "{text}");

    let float = problem().weights_dtype(Dtype::F32).build().unwrap();
    assert_eq!(Plan::for_gpu(&float, &h200, None).unwrap().variant.name(), "simt");
}

#[test]
fn an_empty_batch_launches_nothing() {
    let fixture = Fixture::new();
    let empty: [bf16; 0] = [];
    let hidden_states = MatrixRef::new(Operand::HiddenStates, &empty, 0, HIDDEN).unwrap();
    let inputs = Inputs::new(hidden_states, fixture.inputs().weights);
    let mut output = Output::default();
    Sampler::cpu().sample(&fixture.inputs(), &fixture.rows, 2, &mut output).unwrap();
    assert_eq!(output.tokens.len(), 6);
    Sampler::cpu().sample(&inputs, &[], 2, &mut output).unwrap();
    assert_eq!(output, Output::default());
    assert_eq!(Sampler::cpu().plan(&inputs.problem(2).unwrap()).unwrap().grid, 0);
}

#[test]
fn bad_shapes_never_panic() {
    let data = vec![f16::ONE; 64];
    let sizes = [0, 1, 3, 8, 64, 65, usize::MAX / 2, usize::MAX];
    let mut refused = 0;
    for rows in sizes {
        for columns in sizes {
            for stride in sizes {
                let matrix = MatrixRef::with_stride(Operand::Weights, &data, rows, columns, stride);
                let Ok(matrix) = matrix else {
                    refused += 1;
                    continue;
                };
                let inputs = Inputs::new(matrix, matrix);
                let params = vec![SamplingParams::greedy(); rows.min(64)];
                for valid in [0, 1, 9, u64::MAX] {
                    let inputs = inputs.with_vocab_valid(valid);
                    let mut output = Output::default();
                    let result = Sampler::cpu().sample(&inputs, &params, 1, &mut output);
                    if result.is_ok() {
                        assert!(output.tokens.iter().all(|&token| u64::from(token) < valid));
                    } else {
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 100);
}

/// Allocations in this thread by `calls` calls after a first.
fn allocations_of(options: CpuOptions, calls: u64) -> u64 {
    let fixture = Fixture::new();
    let bias = [0.5; VOCAB];
    let inputs = fixture.inputs().with_bias(&bias);
    let mut sampler = Sampler::cpu_with(options).unwrap();
    let mut output = Output::default();
    sampler.sample(&inputs, &fixture.rows, 4, &mut output).unwrap();
    let before = allocations();
    for call in 0..calls {
        // Smaller problems fit in what the larger one left.
        let draws = if call % 2 == 0 { 4 } else { 1 };
        sampler.sample(&inputs, &fixture.rows, draws, &mut output).unwrap();
    }
    allocations() - before
}

#[test]
fn a_call_in_the_steady_state_allocates_nothing() {
    for variant in CpuVariant::ALL.into_iter().filter(|variant| variant.available()) {
        let options = CpuOptions { threads: Some(1), variant: Some(variant) };
        assert_eq!(allocations_of(options, 50), 0, "{}", variant.name());
    }
}

/// Rayon queues the work of a foreign thread in blocks of 63 jobs, which it allocates
/// (crossbeam-deque's `Injector`); a call is one job.
#[test]
fn a_call_on_a_pool_allocates_a_queue_block_now_and_then() {
    let options = CpuOptions { threads: Some(2), variant: None };
    let found = allocations_of(options, 1260);
    assert!((1..=1260 / 63 + 1).contains(&found), "{found} allocations in 1260 calls");
}
