//! Implementations side by side: each case goes to all of them, and where its sums are
//! exact they must agree in every bit.

use flash_sampling::{
    Cpu, CpuOptions, CpuVariant, Error, Operand, Output, Report, Sampler, Status, Wanted,
};
use rayon::prelude::*;

use crate::inputs::Case;

/// Something that samples.
pub trait Implementation {
    /// What a failure calls it.
    fn name(&self) -> &str;

    /// Fills `output`, which wants the case's reports, or answers `false` if it does not serve
    /// such cases.
    fn sample(&mut self, case: &Case, output: &mut Output) -> bool;

    /// Whether reports may come from sums in floating point.
    fn sums_weights(&self) -> bool {
        false
    }
}

/// How much work a check may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A launch or two of each kind, for tools that slow a GPU down a thousandfold.
    Sanitizer,
    /// Seconds of two CPU cores.
    Host,
    /// Seconds of a data-center GPU.
    Device,
}

impl Effort {
    /// The amount for this effort.
    pub fn choose<T>(self, sanitizer: T, host: T, device: T) -> T {
        match self {
            Self::Sanitizer => sanitizer,
            Self::Host => host,
            Self::Device => device,
        }
    }
}

struct Member {
    implementation: Box<dyn Implementation>,
    /// Reused from case to case, as a user would.
    output: Output,
    cases: usize,
}

/// The implementations that answer a check.
pub struct Panel {
    members: Vec<Member>,
    effort: Effort,
}

impl Panel {
    /// These, in this order: the first is what the others are compared with.
    pub fn new(implementations: Vec<Box<dyn Implementation>>, effort: Effort) -> Self {
        let member =
            |implementation| Member { implementation, output: Output::default(), cases: 0 };
        Self { members: implementations.into_iter().map(member).collect(), effort }
    }

    /// Every variant this machine's CPU has, the reference first, on one to four threads.
    pub fn every_cpu_variant() -> Self {
        let variants =
            [CpuVariant::Reference, CpuVariant::Portable, CpuVariant::Avx2, CpuVariant::Avx512];
        let samplers = (1..).zip(variants).filter_map(|(threads, variant)| {
            CpuSampler::with(CpuOptions { threads: Some(threads), variant: Some(variant) })
        });
        Self::new(samplers.map(|sampler| Box::new(sampler) as _).collect(), Effort::Host)
    }

    /// What a user gets.
    pub fn default_cpu() -> Self {
        let sampler = CpuSampler::with(CpuOptions { threads: None, variant: None });
        Self::new(vec![Box::new(sampler.expect("the default always runs"))], Effort::Host)
    }

    /// Number of members.
    #[expect(clippy::len_without_is_empty, reason = "a panel is never empty")]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// With another effort.
    #[must_use]
    pub fn with_effort(mut self, effort: Effort) -> Self {
        self.effort = effort;
        self
    }

    /// The same, each thread with rows of its own: for histograms, whose vocabularies are
    /// too small for threads to share.
    pub fn split_cpu() -> Self {
        Self::new(vec![Box::new(SplitCpu::new())], Effort::Host)
    }

    /// How much work a check may ask for.
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// The output that all eligible members agree on in every bit. The case is exact.
    pub fn sample(&mut self, case: &Case) -> Output {
        assert!(case.exact, "{}: inexact cases have no common output", case.name);
        let summing = self.members.iter().filter(|member| member.implementation.sums_weights());
        let summing: Vec<_> =
            summing.map(|member| member.implementation.name().to_owned()).collect();
        let sums = |name: &str| summing.iter().any(|summing| summing == name);
        let mut agreed: Option<(String, Output)> = None;
        self.sample_each(case, |name, output| match &agreed {
            None => agreed = Some((name.to_owned(), output.clone())),
            Some((first, expected)) => {
                let are_sums = sums(first) || sums(name);
                assert_same_bits(case, (first, expected), (name, output), are_sums);
            }
        });
        agreed.unwrap_or_else(|| panic!("{}: nobody serves it", case.name)).1
    }

    /// Hands each eligible member's output to `look`.
    pub fn sample_each(&mut self, case: &Case, mut look: impl FnMut(&str, &Output)) {
        for Member { implementation, output, cases } in &mut self.members {
            let n_outputs = case.batch() * case.draws as usize;
            poison(output, n_outputs);
            (output.raw.wanted, output.processed.wanted) = (case.raw, case.processed);
            if implementation.sample(case, output) {
                *cases += 1;
                assert_written(case, implementation.name(), output, n_outputs);
                look(implementation.name(), output);
            }
        }
    }

    /// Demands that no member was passed over by every case so far.
    pub fn assert_everyone_answered(&self) {
        for Member { implementation, cases, .. } in &self.members {
            assert!(*cases > 0, "{} served no case", implementation.name());
        }
    }
}

/// What no sampler writes: the tests use no such id.
pub const POISON: u32 = 0xDEAD_BEEF;

/// Makes outputs too long and full of poison.
fn poison(output: &mut Output, n_outputs: usize) {
    fn refill<T: Clone>(values: &mut Vec<T>, len: usize, value: T) {
        values.clear();
        values.resize(len, value);
    }
    let len = n_outputs + 3;
    refill(&mut output.tokens, len, POISON);
    refill(&mut output.status, len, Status::from_bits(POISON));
    refill(&mut output.scores, len, f32::from_bits(POISON));
    refill(&mut output.margins, len, f32::from_bits(POISON));
}

fn assert_written(case: &Case, name: &str, output: &Output, n_outputs: usize) {
    let Output { tokens, status, scores, margins, .. } = output;
    let lengths = [tokens.len(), status.len(), scores.len(), margins.len()];
    assert_eq!(lengths, [n_outputs; 4], "{}: lengths of {name}", case.name);
    let unwritten =
        (0..n_outputs).into_par_iter().find_first(|&i| bits(output, i).contains(&POISON));
    assert_eq!(unwritten, None, "{}: {name} left an output unwritten", case.name);
    for (report, wanted) in [(&output.raw, case.raw), (&output.processed, case.processed)] {
        assert_report_written(case, name, report, wanted);
    }
}

fn assert_report_written(case: &Case, name: &str, report: &Report, wanted: Wanted) {
    let (rows, draws) = (case.batch(), case.draws as usize);
    let len = |wanted: bool, len: usize| if wanted { len } else { 0 };
    let best = rows * wanted.best as usize;
    let expected = [
        len(wanted.logprobs, rows),
        len(wanted.logprobs, rows * draws),
        len(wanted.ranks, rows * draws),
        len(wanted.entropies, rows),
        best,
        best,
    ];
    let parts = report_words(report);
    let lengths = parts.each_ref().map(Vec::len);
    assert_eq!(lengths, expected, "{}: lengths of a report of {name}", case.name);
    let unwritten = parts.iter().flatten().any(|&word| word == POISON);
    assert!(!unwritten, "{}: {name} left a part of a report unwritten", case.name);
}

/// The parts of a report, in the order of its fields, as bits.
pub fn report_words(report: &Report) -> [Vec<u32>; 6] {
    let floats = |values: &[f32]| values.iter().map(|y| y.to_bits()).collect();
    [
        floats(&report.log_sum_exps),
        floats(&report.logprobs),
        report.ranks.clone(),
        floats(&report.entropies),
        report.best_tokens.clone(),
        floats(&report.best_logprobs),
    ]
}

/// Whether a log-sum-exp or log-probability is as near to what is expected as promised.
pub fn is_near(found: f32, expected: f64) -> bool {
    let error = (f64::from(found) - expected).abs();
    f64::from(found) == expected || error <= 1e-5 + 1e-6 * expected.abs()
}

/// Demands the same bits, or that both are no number. Log-probabilities and entropies may be sums
/// in floating point, if `may_be_sums`, which need only be near.
pub fn assert_same_report(name: &str, found: &Report, expected: &Report, may_be_sums: bool) {
    /// Ranks and ids.
    const INTEGERS: [usize; 2] = [2, 4];
    let (found, expected) = (report_words(found), report_words(expected));
    for (part, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{name}: length of part {part}");
        for (at, (&found, &expected)) in found.iter().zip(expected).enumerate() {
            let is_float = !INTEGERS.contains(&part);
            let is_nan = |word| is_float && f32::from_bits(word).is_nan();
            let same = found == expected || is_nan(found) && is_nan(expected);
            let as_f32 = (f32::from_bits(found), f64::from(f32::from_bits(expected)));
            let same = same || may_be_sums && is_float && is_near(as_f32.0, as_f32.1);
            assert!(same, "{name}: part {part} at {at} is {found:08x}, expected {expected:08x}");
        }
    }
}

/// All that was written for one row and draw: token, status, and the bits of score and
/// margin.
pub fn bits(output: &Output, at: usize) -> [u32; 4] {
    [
        output.tokens[at],
        output.status[at].bits(),
        output.scores[at].to_bits(),
        output.margins[at].to_bits(),
    ]
}

fn assert_same_bits(
    case: &Case,
    expected: (&str, &Output),
    found: (&str, &Output),
    are_sums: bool,
) {
    for i in 0..expected.1.tokens.len() {
        let (ours, theirs) = (bits(expected.1, i), bits(found.1, i));
        assert!(
            ours == theirs,
            "{}: row {}, draw {}: [token, status, score, margin] of {} are {ours:08x?}, of {} {theirs:08x?}",
            case.name,
            i / case.draws as usize,
            i % case.draws as usize,
            expected.0,
            found.0,
        );
    }
    let name = format!("{}: {} beside {}", case.name, found.0, expected.0);
    assert_same_report(&name, &found.1.raw, &expected.1.raw, are_sums);
    assert_same_report(&name, &found.1.processed, &expected.1.processed, are_sums);
}

/// The library's CPU back end.
pub struct CpuSampler {
    name: String,
    sampler: Sampler<Cpu>,
}

impl CpuSampler {
    /// The sampler, unless this machine cannot run the variant.
    pub fn with(options: CpuOptions) -> Option<Self> {
        let threads = options.threads;
        match Sampler::cpu_with(options) {
            Ok(sampler) => Some(Self { name: format!("{options:?}"), sampler }),
            Err(Error::Unsupported { .. }) => {
                eprintln!("skipped on this machine: {options:?}");
                None
            }
            Err(error) => panic!("{options:?}, {threads:?} threads: {error}"),
        }
    }
}

impl Implementation for CpuSampler {
    fn name(&self) -> &str {
        &self.name
    }

    fn sample(&mut self, case: &Case, output: &mut Output) -> bool {
        let rules = case.token_rules();
        let inputs = case.inputs().with_token_rules(&rules);
        match self.sampler.sample(&inputs, &case.rows, case.draws, output) {
            Ok(()) => true,
            Err(error) => panic!("{}: {}: {error}", case.name, self.name),
        }
    }
}

/// The library's default on the CPU, one sampler for each thread and its rows.
struct SplitCpu(Vec<(Sampler<Cpu>, Output)>);

impl SplitCpu {
    fn new() -> Self {
        let options = CpuOptions { threads: Some(1), variant: None };
        let sampler = || Sampler::cpu_with(options).expect("one thread is always there");
        Self((0..rayon::current_num_threads()).map(|_| (sampler(), Output::default())).collect())
    }
}

impl Implementation for SplitCpu {
    fn name(&self) -> &str {
        "the CPU, rows split"
    }

    fn sample(&mut self, case: &Case, output: &mut Output) -> bool {
        let piece = case.batch().div_ceil(self.0.len());
        self.0.par_iter_mut().enumerate().for_each(|(i, (sampler, output))| {
            let rows = (i * piece).min(case.batch())..((i + 1) * piece).min(case.batch());
            let mut inputs = case.inputs();
            inputs.hidden_states =
                case.hidden_states.view(Operand::HiddenStates, rows.start, rows.end);
            let rules = case.token_rules();
            let inputs = inputs.with_token_rules(rules.get(rows.clone()).unwrap_or(&[]));
            let sampled = sampler.sample(&inputs, &case.rows[rows], case.draws, output);
            sampled.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        });
        *output = Output::default();
        for (_, part) in &self.0 {
            output.tokens.extend_from_slice(&part.tokens);
            output.status.extend_from_slice(&part.status);
            output.scores.extend_from_slice(&part.scores);
            output.margins.extend_from_slice(&part.margins);
        }
        true
    }
}
