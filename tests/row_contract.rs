//! Is misuse of filters, rules, penalties, transforms and reports told apart and told well?
//! And do calls with all of them allocate nothing in the steady state?

use flash_sampling::{
    CpuOptions, CpuVariant, Inputs, LogitTransform, MatrixRef, NO_TOKEN, Operand, Output,
    Penalties, Sampler, SamplingParams, SeenToken, TokenRules, Wanted, bf16,
};
use flash_sampling_tests::allocations::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const VOCAB: usize = 70;
const HIDDEN: usize = 4;
const BATCH: usize = 3;

static WEIGHTS: [bf16; VOCAB * HIDDEN] = [bf16::ONE; VOCAB * HIDDEN];
static STATES: [bf16; BATCH * HIDDEN] = [bf16::ONE; BATCH * HIDDEN];

fn inputs() -> Inputs<'static> {
    Inputs::new(
        MatrixRef::new(Operand::HiddenStates, &STATES, BATCH, HIDDEN).unwrap(),
        MatrixRef::new(Operand::Weights, &WEIGHTS, VOCAB, HIDDEN).unwrap(),
    )
}

fn plain() -> SamplingParams {
    SamplingParams::new(1.0, 1, 2)
}

/// The text of the error of a call, having checked that its output is untouched.
fn error(inputs: &Inputs<'_>, rows: &[SamplingParams]) -> String {
    let mut output = Output::default();
    let error = Sampler::cpu().sample(inputs, rows, 1, &mut output).unwrap_err();
    assert_eq!(output, Output::default());
    error.to_string()
}

#[test]
fn a_parameter_outside_its_domain_names_row_parameter_and_value() {
    let penalties = Penalties::NONE;
    let with = |penalties| plain().with_penalties(penalties);
    for (params, text) in [
        (plain().with_top_k(0), "top_k: expected at least 1, found 0"),
        (plain().with_top_p(0.0), "top_p: expected above 0 and at most 1, found 0"),
        (plain().with_top_p(1.5), "top_p: expected above 0 and at most 1, found 1.5"),
        (plain().with_top_p(f32::NAN), "top_p: expected above 0 and at most 1, found NaN"),
        (plain().with_min_p(-0.5), "min_p: expected at least 0 and at most 1, found -0.5"),
        (plain().with_min_p(1.25), "min_p: expected at least 0 and at most 1, found 1.25"),
        (plain().with_min_p(f32::NAN), "min_p: expected at least 0 and at most 1, found NaN"),
        (plain().with_top_n_sigma(0.0), "top_n_sigma: expected finite and above 0, found 0"),
        (
            plain().with_top_n_sigma(f32::INFINITY),
            "top_n_sigma: expected finite and above 0, found inf",
        ),
        (
            plain().with_epsilon_cutoff(-0.5),
            "epsilon_cutoff: expected at least 0 and at most 1, found -0.5",
        ),
        (
            plain().with_eta_cutoff(f32::NAN),
            "eta_cutoff: expected at least 0 and at most 1, found NaN",
        ),
        (
            with(Penalties { repetition: 0.0, ..penalties }),
            "repetition: expected finite and above 0, found 0",
        ),
        (
            with(Penalties { repetition: f32::NAN, ..penalties }),
            "repetition: expected finite and above 0, found NaN",
        ),
        (
            with(Penalties { frequency: f32::INFINITY, ..penalties }),
            "frequency: expected finite, found inf",
        ),
        (
            with(Penalties { presence: f32::NAN, ..penalties }),
            "presence: expected finite, found NaN",
        ),
    ] {
        assert_eq!(error(&inputs(), &[plain(), plain(), params]), format!("row 2 {text}"));
    }
}

#[test]
fn domains_include_their_ends() {
    let edge = Penalties { repetition: f32::MIN_POSITIVE, frequency: f32::MIN, presence: f32::MAX };
    let rows = [
        plain().with_top_k(1).with_top_p(f32::from_bits(1)).with_min_p(1.0).with_eta_cutoff(1.0),
        plain().with_top_k(u32::MAX).with_top_p(1.0).with_min_p(0.0).with_epsilon_cutoff(1.0),
        plain().with_penalties(edge).with_min_p(f32::from_bits(1)).with_top_n_sigma(f32::MAX),
    ];
    let mut output = Output::default();
    Sampler::cpu().sample(&inputs(), &rows, 1, &mut output).unwrap();
    assert!(output.tokens.iter().all(|&token| (token as usize) < VOCAB));
}

#[test]
fn a_rule_names_row_list_and_id() {
    let none = TokenRules::default();
    let seen = [(5, 1), (5, 0)].map(|(token, count)| SeenToken { token, count });
    for (rules, text) in [
        (
            TokenRules { logit_bias: &[(70, 0.0)], ..none },
            "logit_bias: expected an id in 0..70, found 70",
        ),
        (
            TokenRules { logit_bias: &[(7, 0.0), (7, 1.0)], ..none },
            "logit_bias: expected an id above 7, found 7",
        ),
        (
            TokenRules { logit_bias: &[(7, f32::NAN)], ..none },
            "logit_bias: expected finite or -inf, found NaN",
        ),
        (
            TokenRules { logit_bias: &[(7, f32::INFINITY)], ..none },
            "logit_bias: expected finite or -inf, found inf",
        ),
        (TokenRules { seen: &seen, ..none }, "seen: expected an id above 5, found 5"),
        (
            TokenRules { bitmask: Some(&[0, 0]), ..none },
            "bitmask length: expected at least 3, found 2",
        ),
        (
            TokenRules { allow_list: Some(&[]), ..none },
            "allow_list length: expected at least 1, found 0",
        ),
        (
            TokenRules { allow_list: Some(&[1, 99]), ..none },
            "allow_list: expected an id in 0..70, found 99",
        ),
        (TokenRules { ban_list: &[9, 8], ..none }, "ban_list: expected an id above 9, found 8"),
        (
            TokenRules { ban_list: &[u32::MAX], ..none },
            "ban_list: expected an id in 0..70, found 4294967295",
        ),
    ] {
        let all = [none, rules, none];
        let inputs = inputs().with_token_rules(&all);
        assert_eq!(error(&inputs, &[plain(); 3]), format!("row 1 {text}"));
    }
    let two = [none; 2];
    let inputs = inputs().with_token_rules(&two);
    assert_eq!(error(&inputs, &[plain(); 3]), "token_rules axis B: expected 3, found 2");
}

#[test]
fn ids_of_a_shard_are_global() {
    let rules = [TokenRules { ban_list: &[69], ..TokenRules::default() }; 3];
    let shard = inputs().with_first_token(70).with_token_rules(&rules);
    let text = "row 0 ban_list: expected an id in 70..140, found 69";
    assert_eq!(error(&shard, &[plain(); 3]), text);
    let words = [TokenRules { bitmask: Some(&[0; 4]), ..TokenRules::default() }; 3];
    let shard = inputs().with_first_token(70).with_token_rules(&words);
    let text = "row 0 bitmask length: expected at least 5, found 4";
    assert_eq!(error(&shard, &[plain(); 3]), text);
}

#[test]
fn a_row_that_bans_everything_has_no_token() {
    let rules = [TokenRules { bitmask: Some(&[0; 3]), ..TokenRules::default() }; 3];
    let mut output = Output::default();
    let rows = [plain(), plain().with_top_p(0.5), SamplingParams::greedy()];
    Sampler::cpu().sample(&inputs().with_token_rules(&rules), &rows, 1, &mut output).unwrap();
    assert_eq!(output.tokens, [NO_TOKEN; 3]);
}

#[test]
fn transforms_and_reports_name_their_value() {
    let none = LogitTransform::NONE;
    for (transform, text) in [
        (
            LogitTransform { softcap: Some(0.0), ..none },
            "softcap: expected finite and above 0, found 0",
        ),
        (
            LogitTransform { softcap: Some(f32::NAN), ..none },
            "softcap: expected finite and above 0, found NaN",
        ),
        (
            LogitTransform { scale: f32::INFINITY, ..none },
            "logit_scale: expected finite and above 0, found inf",
        ),
        (
            LogitTransform { scale: -1.0, ..none },
            "logit_scale: expected finite and above 0, found -1",
        ),
    ] {
        assert_eq!(error(&inputs().with_transform(transform), &[plain(); 3]), text);
    }
    let mut output = Output::default();
    output.raw.wanted.best = 21;
    let error = Sampler::cpu().sample(&inputs(), &[plain(); 3], 1, &mut output).unwrap_err();
    assert_eq!(error.to_string(), "best: expected at most 20, found 21");
    assert!(output.tokens.is_empty());
}

#[test]
fn a_call_with_everything_allocates_nothing_in_the_steady_state() {
    let all = Wanted { logprobs: true, ranks: true, entropies: true, best: 20 };
    let seen = [SeenToken { token: 3, count: 2 }];
    let rules =
        [TokenRules { seen: &seen, bitmask: Some(&[u32::MAX; 3]), ..TokenRules::default() }; 3];
    let inputs = inputs().with_token_rules(&rules);
    let reference = CpuVariant::Reference;
    for variant in [reference, CpuVariant::Portable, CpuVariant::Avx2, CpuVariant::Avx512] {
        let options = CpuOptions { threads: Some(1), variant: Some(variant) };
        let Ok(mut sampler) = Sampler::cpu_with(options) else { continue };
        let mut output = Output::default();
        (output.raw.wanted, output.processed.wanted) = (all, all);
        let mut call = |draws, top_k| {
            let rows =
                [plain().with_top_k(top_k).with_top_p(0.9), plain(), plain().with_min_p(0.2)];
            sampler.sample(&inputs, &rows, draws, &mut output).unwrap();
        };
        call(4, 3);
        let before = allocations();
        (0..20).for_each(|n| call(1 + n % 4, 1 + 5 * n));
        assert_eq!(allocations() - before, 0, "{}", variant.name());
    }
}
