//! Do the doors' memory and parameters say what the call says? The portable kernels run
//! natively on what the easy door would copy to a device.

use std::ptr::with_exposed_provenance;

use flash_sampling_kernels::abi::Dtype;
use flash_sampling_kernels::abi::kept::slice_len;
use flash_sampling_kernels::kernels::{sample_kept, sample_simt};
use flash_sampling_kernels::transform::{LogitTransform, Penalties};

use super::super::HostRows;
use super::super::exchange::Exchange;
use super::*;
use crate::error::Operand;
use crate::inputs::Inputs;
use crate::matrix::MatrixRef;
use crate::output::Output;
use crate::params::{FilterOrder, SamplingParams};
use crate::plan::{DeviceLimits, Plan};
use crate::sampler::Sampler;
use crate::token_rules::{SeenToken, TokenRules};

const A100: DeviceLimits = DeviceLimits {
    compute_capability: 80,
    multiprocessors: 108,
    shared_bytes_per_block: 163 << 10,
    shared_bytes_per_sm: 164 << 10,
};

const HIDDEN: usize = 6;
const BATCH: usize = 4;
const DRAWS: u32 = 3;

const ALL: Wanted = Wanted { logprobs: true, ranks: true, entropies: true, best: 5 };

/// Memory as a device would align it.
fn memory(bytes: u64) -> Vec<u128> {
    vec![u128::MAX; bytes.div_ceil(16) as usize]
}

fn address(memory: &mut [u128]) -> Address {
    memory.as_mut_ptr().expose_provenance() as Address
}

/// A call of the easy door, without a device.
fn natively(
    (inputs, params): (&Inputs<'_>, &[SamplingParams]),
    features: Features,
    output: &mut Output,
) -> Plan {
    let problem = Problem::builder(BATCH as u64, inputs.weights.rows() as u64, HIDDEN as u64)
        .weights_dtype(Dtype::F32)
        .hidden_dtype(Dtype::F32)
        .draws(DRAWS.into())
        .bias(true)
        .first_token(inputs.first_token)
        .features(features)
        .build()
        .unwrap();
    let plan = Plan::for_gpu(&problem, &A100, Some("simt")).unwrap();
    let rows = HostRows { hidden_states: inputs.hidden_states, params, rules: inputs.token_rules };
    let exchange = Exchange::new(&problem, &rows);
    let mut device = memory(exchange.bytes);
    let mut workspace = vec![0; plan.workspace_bytes.div_ceil(16) as usize];
    let mut kept = memory(plan.kept_bytes);
    let base = address(&mut device);
    // SAFETY: as many bytes as the memory has, of any content.
    let bytes = unsafe {
        let bytes = device.as_mut_ptr().cast::<u8>();
        std::slice::from_raw_parts_mut(bytes, exchange.bytes as usize)
    };
    exchange.write_inputs(bytes, &problem, &rows, base);
    let bias = inputs.bias.unwrap().as_ptr().expose_provenance() as Address;
    let head = (inputs.weights.base_ptr().expose_provenance() as Address, bias);
    let operands = exchange.operands(
        address(&mut device),
        head,
        (address(&mut workspace), plan.workspace_bytes),
        (address(&mut kept), plan.kept_bytes),
    );
    output.resize(&problem).unwrap();
    let sample = sample_params(&problem, &plan, &operands);
    let mut simt = Box::<sample_simt::Shared>::new_uninit();
    let mut shared = Box::<sample_kept::Shared>::new_uninit();
    let mut slice = vec![f32::NAN; slice_len(problem.vocab(), 1) as usize];
    // SAFETY: the memory has the problem's sizes, and the shared memory is one block's.
    unsafe {
        let weights = with_exposed_provenance(operands.weights as usize);
        let states = with_exposed_provenance(operands.hidden_states as usize);
        sample_simt::sample_simt(weights, states, &sample, simt.as_mut_ptr(), 0, 1);
        if plan.finish.is_some() {
            let params = kept_params(&problem, &plan, &operands, sample);
            let (shared, slice) = (shared.as_mut_ptr(), slice.as_mut_ptr());
            sample_kept::sample_kept::<1>(&params, shared, slice, 0, 1);
        }
    }
    assert!(workspace.iter().all(|&line| line == 0), "the workspace is zero again");
    // SAFETY: as above.
    let bytes = unsafe {
        std::slice::from_raw_parts(device.as_ptr().cast::<u8>(), exchange.bytes as usize)
    };
    exchange.read_outputs(bytes, output);
    plan
}

/// The same output from the CPU and from what a device would have, for everything at once.
fn assert_native_is_the_cpus(vocab: u32, first_token: u32) -> Plan {
    let small = |i: usize| (i * 7_919 % 17) as f32 - 8.0;
    let weights: Vec<f32> = (0..vocab as usize * HIDDEN).map(small).collect();
    let states: Vec<f32> = (0..BATCH * HIDDEN).map(|i| small(i * i + 3)).collect();
    let bias: Vec<f32> = (0..vocab as usize).map(|i| small(i + 5)).collect();
    let at = |row: u64| SamplingParams::new(40.0, row, 9);
    let repeat = Penalties { repetition: 1.5, frequency: 2.0, presence: -1.0 };
    let params = [
        at(0).with_top_k(40).with_top_p(0.8).with_penalties(repeat),
        at(1),
        at(2).with_min_p(0.2).with_epsilon_cutoff(1e-3).with_filter_order(FilterOrder::Joint),
        at(3).with_top_n_sigma(1.5),
    ];
    let ids = |step| (first_token..first_token + vocab).step_by(step);
    let seen: Vec<_> = ids(5).map(|token| SeenToken { token, count: token % 3 }).collect();
    let biases: Vec<_> = ids(7).map(|id| (id, 12.0)).collect();
    let banned: Vec<_> = ids(11).collect();
    let allowed: Vec<_> = ids(2).collect();
    let mask: Vec<u32> =
        (0..(first_token + vocab).div_ceil(32) + 9).map(|word| !(word * 77)).collect();
    let none = TokenRules::default();
    let rules = [
        TokenRules { seen: &seen, logit_bias: &biases, ..none },
        none,
        TokenRules { bitmask: Some(&mask), ban_list: &banned, ..none },
        TokenRules { allow_list: Some(&allowed), seen: &seen, ..none },
    ];
    let transform = LogitTransform { softcap: Some(300.0), scale: 0.75, scale_first: false };
    let plain = params.map(|row| SamplingParams::new(row.temperature, row.key.seed, 9));
    let inputs = Inputs::new(
        MatrixRef::new(Operand::HiddenStates, &states, BATCH, HIDDEN).unwrap(),
        MatrixRef::new(Operand::Weights, &weights, vocab as usize, HIDDEN).unwrap(),
    );
    let bare = inputs.with_bias(&bias).with_first_token(first_token.into());
    let ruled = bare.with_token_rules(&rules);
    let all = Features { rules: true, filters: true, raw: ALL, processed: ALL, transform };
    let rows = Features { rules: true, filters: true, ..Features::NONE };
    let one = Wanted { ranks: true, ..Wanted::NONE };
    let mut last = None;
    for (inputs, params, features) in [
        (bare, &plain, Features::NONE),
        (ruled, &params, rows),
        (bare, &plain, Features { processed: one, ..Features::NONE }),
        (bare, &plain, Features { raw: one, transform, ..Features::NONE }),
        (ruled, &params, all),
    ] {
        let inputs = inputs.with_transform(features.transform);
        let outputs = || {
            let mut output = Output::default();
            (output.raw.wanted, output.processed.wanted) = (features.raw, features.processed);
            output
        };
        let (mut found, mut expected) = (outputs(), outputs());
        last = Some(natively((&inputs, params), features, &mut found));
        Sampler::cpu().sample(&inputs, params, DRAWS, &mut expected).unwrap();
        assert_eq!(found, expected, "{features:?}");
    }
    last.unwrap()
}

/// Rows are drawn as if they had no filters where the values that are judged by are those that were
/// drawn from, and no margin is wanted.
#[test]
fn what_is_drawn_is_judged_where_it_may_be() {
    let transform = LogitTransform { softcap: Some(300.0), scale: 1.0, scale_first: false };
    let filters = Features { filters: true, ..Features::NONE };
    for (features, forced, margins, judges) in [
        (filters, None, 0, 1),
        (filters, None, 256, 0),
        (filters, Some("simt"), 0, 1),
        (Features { transform, ..filters }, None, 0, 1),
        (Features { transform, ..filters }, Some("simt"), 0, 0),
    ] {
        let problem = Problem::builder(2, 1_000, 64).features(features).build().unwrap();
        let plan = Plan::for_gpu(&problem, &A100, forced).unwrap();
        let operands = RawOperands { margins, ..RawOperands::default() };
        let found = sample_params(&problem, &plan, &operands).judges;
        assert_eq!(found, judges, "{features:?} {forced:?} {margins}");
    }
}

#[test]
fn rows_that_shared_memory_holds() {
    let plan = assert_native_is_the_cpus(700, 0);
    assert!(plan.finish.unwrap().slice_in_shared);
    assert_native_is_the_cpus(333, 77);
}

#[test]
fn rows_that_it_does_not_hold() {
    let plan = assert_native_is_the_cpus(50_000, 0);
    assert!(plan.finish.unwrap().raw_values.is_some());
}
