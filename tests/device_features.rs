//! Do calls whose rows have features keep the promises of both doors on a GPU? What rows
//! draw is asked in `device.rs`.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use flash_sampling::cuda::RawOperands;
use flash_sampling::{
    Dtype, Error, Inputs, LayoutRule, LogitTransform, Operand, Output, Plan, ReportPart, Sampler,
    SamplingParams, TokenRules, Wanted,
};
use flash_sampling_tests::allocations::{Counting, allocations};
use flash_sampling_tests::checks::reports::ALL;
use flash_sampling_tests::gpu::{self, DeviceCase, DeviceWeights, Gpu, Turn, assert_same, on_cpu};
use flash_sampling_tests::inputs::mixes::random_case;
use flash_sampling_tests::inputs::{
    Case, HIDDEN_STATES, Head, Matrix, Rules, WEIGHTS, params, rows_of,
};
use flash_sampling_tests::panel::bits;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Alignment that every variant takes.
const ALIGNMENT_BYTES: usize = 16;

const VOCAB: usize = 700;

/// The first rows of random mixes, exact; those of a seed that 3 divides have no rules.
fn mixed(seed: u64, batch: usize) -> Case {
    let case = random_case(seed, VOCAB, 0).select(&(0..batch).collect::<Vec<_>>());
    case.with_reports(ALL, ALL)
}

/// The same rows without anything beyond temperature and key.
fn plain(case: &Case) -> Case {
    let plain = |row: &SamplingParams| params(row.temperature, row.key.seed, row.key.position);
    Case {
        rows: case.rows.iter().map(plain).collect(),
        rules: Vec::new(),
        transform: LogitTransform::NONE,
        ..case.clone().with_reports(Wanted::NONE, Wanted::NONE)
    }
}

fn on_device(gpu: &Gpu, case: &Case) -> DeviceCase {
    let head = DeviceWeights::upload(gpu, &case.head, ALIGNMENT_BYTES);
    let device_case = DeviceCase::upload(gpu, case, &head, ALIGNMENT_BYTES);
    gpu.stream.synchronize().expect("the stream runs");
    device_case
}

fn plan(gpu: &Gpu, case: &DeviceCase) -> Plan {
    gpu.sampler.plan(&case.problem).expect("a plan")
}

#[test]
fn plans_launch_a_second_kernel_for_features_alone() {
    let Some(gpu) = Turn::take() else { return };
    let case = mixed(1, 5);
    let with = plan(&gpu, &on_device(&gpu, &case));
    let without = plan(&gpu, &on_device(&gpu, &plain(&case)));
    assert!(with.finish.is_some() && with.kept_bytes > 0);
    assert_eq!((without.finish, without.kept_bytes), (None, 0));
    assert_eq!((with.variant, with.grid), (without.variant, without.grid));
    assert!(with.workspace_bytes > without.workspace_bytes, "tallies");
}

#[test]
fn graph_replays_draw_with_new_features() {
    let Some(gpu) = Turn::take() else { return };
    let mut case = mixed(1, 9);
    let mut device_case = on_device(&gpu, &case);
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    gpu.stream.begin_capture(mode).expect("capture begins");
    gpu.enqueue(&device_case, None).expect("enqueues into the capture");
    let graph = gpu.stream.end_capture(CUgraphInstantiate_flags(0)).expect("capture ends");
    let graph = graph.expect("the capture holds the call");
    let mut distinct = std::collections::HashSet::new();
    for seed in [2, 4, 5, 7, 8, 10, 11, 12] {
        let other = mixed(seed, 9);
        (case.rows, case.rules) = (other.rows, other.rules);
        device_case.set_features(&gpu, &case.rows, &case.rules);
        device_case.poison(&gpu);
        graph.launch().expect("replays");
        let output = device_case.output(&gpu);
        assert_same(&format!("replay of mix {seed}"), &output, &on_cpu(&case));
        distinct.insert(output.tokens);
    }
    assert_eq!(distinct.len(), 8, "new features draw new tokens");
    // Rows that ask for nothing are plain rows.
    let bare = plain(&case);
    (case.rows, case.rules) = (bare.rows, bare.rules);
    device_case.set_features(&gpu, &case.rows, &case.rules);
    device_case.poison(&gpu);
    graph.launch().expect("replays");
    assert_same("replay of plain rows", &device_case.output(&gpu), &on_cpu(&case));
}

/// Batches of different sizes, so that what one leaves lies where another begins.
#[test]
fn plain_calls_and_others_take_turns_on_one_workspace() {
    let Some(gpu) = Turn::take() else { return };
    let cases = [mixed(1, 2), plain(&mixed(2, 150)), mixed(3, 150), plain(&mixed(1, 2))];
    let expected = cases.each_ref().map(on_cpu);
    let mut on_device = cases.each_ref().map(|case| on_device(&gpu, case));
    // The third has the most of both.
    let most = on_device[2].operands();
    for round in 0..3 {
        on_device.iter_mut().for_each(|case| case.poison(&gpu));
        for case in &on_device {
            let RawOperands { workspace, workspace_bytes, kept, kept_bytes, .. } = most;
            let operands =
                RawOperands { workspace, workspace_bytes, kept, kept_bytes, ..case.operands() };
            let (plan, stream) = (plan(&gpu, case), gpu.stream.cu_stream().cast());
            // SAFETY: as in `Gpu::enqueue`; one stream orders the calls on the workspace.
            let enqueued = unsafe { gpu.sampler.enqueue(&plan, &case.problem, &operands, stream) };
            enqueued.expect("enqueues");
        }
        for ((case, device_case), expected) in cases.iter().zip(&on_device).zip(&expected) {
            let name = format!("{}, B {}, round {round}", case.name, case.batch());
            assert_same(&name, &device_case.output(&gpu), expected);
        }
    }
}

/// Real numbers, so that a plain row among others has the bits of one variant.
#[test]
fn a_plain_row_does_not_see_its_neighbours_features() {
    let Some(gpu) = Turn::take() else { return };
    for batch in [2, 24, 150] {
        let mut case = mixed(1, batch);
        let weights = Matrix::random(31, Dtype::Bf16, VOCAB, 200, 0.5);
        case.hidden_states = Matrix::random(32, Dtype::Bf16, batch, 200, 1.0);
        case.head = Arc::new(Head::new(weights));
        let bare = plain(&case);
        for row in (0..batch).step_by(2) {
            case.rows[row] = bare.rows[row];
            case.rules[row] = Rules::default();
        }
        let [with, without] = [&case, &bare].map(|case| {
            let device_case = on_device(&gpu, case);
            gpu.enqueue(&device_case, None).expect("enqueues");
            device_case.output(&gpu)
        });
        let draws = case.draws as usize;
        for at in (0..batch * draws).filter(|at| (at / draws).is_multiple_of(2)) {
            assert_eq!(bits(&with, at), bits(&without, at), "output {at} of B {batch}");
        }
    }
}

#[test]
fn calls_that_may_start_early_wait_for_each_other() {
    let Some(gpu) = Turn::take() else { return };
    let case = mixed(1, 5);
    let expected = on_cpu(&case);
    let mut device_case = on_device(&gpu, &case);
    let plan = plan(&gpu, &device_case);
    for round in 0..20 {
        device_case.poison(&gpu);
        for _ in 0..3 {
            let (operands, stream) = (device_case.operands(), gpu.stream.cu_stream().cast());
            // SAFETY: as in `Gpu::enqueue`; the host has waited since the weights were written.
            let enqueued = unsafe {
                let problem = &device_case.problem;
                gpu.sampler.enqueue_programmatic(&plan, problem, &operands, stream)
            };
            enqueued.expect("enqueues");
        }
        assert_same(&format!("round {round}"), &device_case.output(&gpu), &expected);
    }
}

/// A row in shared memory, and one that is too long for it.
#[test]
fn long_whole_vocabularies() {
    let Some(gpu) = Turn::take() else { return };
    for vocab in [151_936, 600_001] {
        let head = Head::new(Matrix::integers(WEIGHTS, Dtype::Bf16, vocab, 16));
        let hidden_states = Matrix::integers(HIDDEN_STATES, Dtype::Bf16, 4, 16);
        let rows = rows_of(4, &[20.0, 100.0, 0.0, 1.0]);
        let mut rows: Vec<_> = rows.into_iter().map(|row| row.with_top_p(0.9)).collect();
        rows[1] = rows[1].with_top_k(5_000).with_min_p(0.01);
        let ids = |step| (0..vocab as u32).step_by(step);
        let rules = Rules {
            logit_bias: ids(1_000).map(|id| (id, 3.0)).collect(),
            ban_list: ids(7).collect(),
            ..Rules::default()
        };
        let case = Case::new(format!("V {vocab}"), &Arc::new(head), hidden_states, rows)
            .with_rules(vec![rules; 4])
            .with_draws(2)
            .with_reports(ALL, ALL);
        let device_case = on_device(&gpu, &case);
        gpu.enqueue(&device_case, None).expect("enqueues");
        assert_same(&case.name, &device_case.output(&gpu), &on_cpu(&case));
    }
}

#[test]
fn a_call_allocates_nothing_and_does_not_wait() {
    let Some(gpu) = Turn::take() else { return };
    let case = mixed(1, 7);
    let device_case = on_device(&gpu, &case);
    let (plan, operands) = (plan(&gpu, &device_case), device_case.operands());
    let stream = gpu.stream.cu_stream();
    // SAFETY: as in `Gpu::enqueue`.
    gpu.assert_only_enqueues(|| unsafe {
        gpu.sampler.enqueue(&plan, &device_case.problem, &operands, stream.cast())
    });
    assert_same(&case.name, &device_case.output(&gpu), &on_cpu(&case));
}

#[test]
fn misuse_of_the_engine_door_is_told() {
    let Some(gpu) = Turn::take() else { return };
    let device_case = on_device(&gpu, &mixed(1, 2));
    let (plan, good) = (plan(&gpu, &device_case), device_case.operands());
    let refusal = |change: fn(&mut RawOperands)| {
        let mut operands = good;
        change(&mut operands);
        let stream = gpu.stream.cu_stream().cast();
        // SAFETY: as in `Gpu::enqueue`; what is wrong is refused before anything runs.
        unsafe { gpu.sampler.enqueue(&plan, &device_case.problem, &operands, stream) }
            .expect_err("misuse")
    };
    let not_null = |operand| Error::Layout { operand, rule: LayoutRule::NotNull, found: 0 };
    assert_eq!(refusal(|o| o.features = 0), not_null(Operand::Features));
    assert_eq!(refusal(|o| o.kept = 0), not_null(Operand::Kept));
    let best = Operand::Processed(ReportPart::BestTokens);
    assert_eq!(refusal(|o| o.processed.best_tokens = 0), not_null(best));
    let (operand, rule) = (Operand::Raw(ReportPart::Ranks), LayoutRule::Alignment(4));
    let found = good.raw.ranks + 2;
    assert_eq!(refusal(|o| o.raw.ranks += 2), Error::Layout { operand, rule, found });
    let rule = LayoutRule::Bytes(plan.kept_bytes);
    let expected = Error::Layout { operand: Operand::Kept, rule, found: 1 };
    assert_eq!(refusal(|o| o.kept_bytes = 1), expected);
}

/// Whatever a row or a call may not ask for: both machines say the same.
#[test]
fn the_easy_door_refuses_what_the_cpu_refuses() {
    let Some(gpu) = Turn::take() else { return };
    let mut sampler = gpu.own_sampler();
    let case = plain(&mixed(1, 3));
    let none = TokenRules::default();
    let row = case.rows[1];
    let capped = LogitTransform { softcap: Some(-1.0), ..LogitTransform::NONE };
    let some = Wanted { best: 21, ..Wanted::NONE };
    let asked = [
        (row.with_top_k(0), none, LogitTransform::NONE, Wanted::NONE),
        (row.with_top_p(1.5), none, LogitTransform::NONE, Wanted::NONE),
        (row.with_min_p(f32::NAN), none, LogitTransform::NONE, Wanted::NONE),
        (row, TokenRules { bitmask: Some(&[1]), ..none }, LogitTransform::NONE, Wanted::NONE),
        (row, TokenRules { ban_list: &[5, 4], ..none }, LogitTransform::NONE, Wanted::NONE),
        (row, TokenRules { allow_list: Some(&[]), ..none }, LogitTransform::NONE, Wanted::NONE),
        (
            row,
            TokenRules { logit_bias: &[(1, f32::NAN)], ..none },
            LogitTransform::NONE,
            Wanted::NONE,
        ),
        (row, none, capped, Wanted::NONE),
        (row, none, LogitTransform::NONE, some),
    ];
    for (params, rules, transform, wanted) in asked {
        let (mut rows, rules) = (case.rows.clone(), [none, rules, none]);
        rows[1] = params;
        let mut output = Output::default();
        output.processed.wanted = wanted;
        let before = output.clone();
        let head = gpu::upload(&sampler, &case.head).with_transform(transform);
        let states = case.hidden_states.view(Operand::HiddenStates, 0, 3);
        let found = sampler.sample_with_rules(&head, states, &rows, &rules, 1, &mut output);
        assert_eq!(output, before, "a refused call writes nothing");
        let inputs: Inputs<'_> = case.inputs().with_transform(transform);
        let expected =
            Sampler::cpu().sample(&inputs.with_token_rules(&rules), &rows, 1, &mut output);
        let found = found.expect_err("misuse").to_string();
        assert_eq!(found, expected.expect_err("misuse").to_string());
    }
    let mut output = Output::default();
    let head = gpu::upload(&sampler, &case.head);
    let states = case.hidden_states.view(Operand::HiddenStates, 0, 3);
    let error =
        sampler.sample_with_rules(&head, states, &case.rows, &[none], 1, &mut output).unwrap_err();
    assert_eq!(error.to_string(), "token_rules axis B: expected 3, found 1");
}

#[test]
fn the_easy_door_allocates_nothing_after_its_first_call_of_a_size() {
    let Some(gpu) = Turn::take() else { return };
    let mut sampler = gpu.own_sampler();
    let case = mixed(1, 9);
    let head = gpu::upload(&sampler, &case.head).with_transform(case.transform);
    let states = case.hidden_states.view(Operand::HiddenStates, 0, 9);
    let rules = case.token_rules();
    let mut output = Output::default();
    (output.raw.wanted, output.processed.wanted) = (case.raw, case.processed);
    let mut allocated = [0; 4];
    for allocated in &mut allocated {
        let before = allocations();
        let sampled =
            sampler.sample_with_rules(&head, states, &case.rows, &rules, case.draws, &mut output);
        sampled.expect("samples");
        *allocated = allocations() - before;
    }
    assert_eq!(allocated[1..], [0; 3], "allocations of later calls");
    assert_same(&case.name, &output, &on_cpu(&case));
    // What a call asked for does not stick to the next.
    let bare = plain(&case);
    let mut output = Output::default();
    sampler.sample(&head, states, &bare.rows, case.draws, &mut output).expect("samples");
    assert_same(&bare.name, &output, &on_cpu(&bare));
}
