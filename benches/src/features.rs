//! What each feature costs on a GPU, as a ratio to the plain call.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::ptr::without_provenance;

use anyhow::{Context, ensure};
use flash_sampling::cuda::{Cuda, RawOperands, RawReport, RowFeatures};
use flash_sampling::{Features, Plan, Problem, Sampler, Status, TokenRules};
use serde::Serialize;

use crate::asked::{Feature, Lists, features};
use crate::bursts::{Burst, cooled};
use crate::ceilings::H200;
use crate::contender::{Call, Outcome};
use crate::gpu::{Buffer, Gpu};
use crate::report::{CsvFile, provenance_table};
use crate::rows::Rows;
use crate::session::{Data, Session};
use crate::shapes::Shape;
use crate::timing::Summary;

/// Logits have unit variance: at this temperature some 600 of 151,936 tokens have nine
/// tenths of the probability, as they may have in a model.
const TEMPERATURE: f32 = 0.25;

/// Parts of two reports, and the most values that a row has in one.
const REPORT_PARTS: u64 = 12;
const ROW_VALUES: u64 = 20;

/// One feature in one cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The model's name.
    pub shape: String,
    /// V.
    pub vocab: u32,
    /// D.
    pub hidden: u32,
    /// B.
    pub batch: u32,
    /// What every row asks for.
    pub feature: String,
    /// The variant, and the kernel behind it.
    pub detail: String,
    /// Microseconds of a call: 10th percentile over the bursts.
    pub p10_us: f64,
    /// Median.
    pub median_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// Median of the ratios to the plain call of the same round.
    pub ratio: f64,
}

/// Times the plain call and all features in alternation.
///
/// # Errors
/// A call fails, or a row has a token that its rules do not admit.
pub fn costs(
    session: &Session,
    shape: &Shape,
    batch: u32,
    data: &Data,
) -> anyhow::Result<Vec<Cost>> {
    let gpu = &session.gpu;
    let lists = Lists::new(shape.vocab);
    let features = features(&lists, TEMPERATURE);
    let (mut calls, mut bursts) = (Vec::new(), Vec::new());
    for feature in &features {
        let states = data.hidden_states.address();
        let call = FeatureCall::new(&session.sampler, gpu, shape, batch, states, feature)
            .context(feature.name)?;
        call.poison()?;
        // SAFETY: the weights have the shape, and `outcome` waits for the call.
        unsafe { call.enqueue(data.weights[0].address()) }?;
        let Outcome::Tokens(tokens) = call.outcome().context(feature.name)? else {
            anyhow::bail!("a call of ours draws tokens");
        };
        for token in tokens {
            ensure!(token < shape.vocab, "{}: token {token}", feature.name);
            feature.check(token, Status::OK);
        }
        let call_us = H200.floor_us(shape, batch);
        bursts.push(Burst::of_call(gpu, &call, &data.weights, call_us)?);
        calls.push(call);
    }
    let times = cooled(gpu, &session.meter, &bursts, session.repeats as usize)?;
    let plain = times.first().context("the plain call is the first")?.samples.clone();
    let mut costs = Vec::new();
    for ((feature, call), times) in features.iter().zip(&calls).zip(times) {
        let ratios = times.samples.iter().zip(&plain).map(|(own, plain)| own / plain).collect();
        let ratio = Summary::of(ratios).context("no rounds")?.median;
        let Summary { p10, median, p90 } = Summary::of(times.samples).context("no rounds")?;
        costs.push(Cost {
            shape: shape.name.into(),
            vocab: shape.vocab,
            hidden: shape.hidden,
            batch,
            feature: feature.name.into(),
            detail: call.detail(),
            p10_us: p10,
            median_us: median,
            p90_us: p90,
            ratio,
        });
    }
    Ok(costs)
}

/// Writes `<stem>.csv` and `<stem>.md`.
///
/// # Errors
/// A file cannot be written.
pub fn write(stem: &Path, provenance: &[(String, String)], costs: &[Cost]) -> anyhow::Result<()> {
    let mut csv = CsvFile::create(&stem.with_extension("csv"), provenance)?;
    costs.iter().try_for_each(|cost| csv.push(cost))?;
    let mut text = String::from("# Features on a GPU\n\n");
    text += "Written by `cargo bench -p flash-sampling-benches --bench decode -- --features`, never by hand.\n";
    text += "Every row of a call asks for the feature; microseconds of a whole call by graph replay, and the median of the ratios to the plain call of the same round.\n";
    let _ = write!(
        text,
        "Logits have unit variance, and the temperature is {TEMPERATURE} unless the name says otherwise.\n\n"
    );
    provenance_table(&mut text, provenance);
    for cells in costs.chunk_by(|a, b| a.shape == b.shape) {
        let Cost { shape, vocab, hidden, .. } = &cells[0];
        let _ = writeln!(text, "\n## {shape}: V = {vocab}, D = {hidden}\n");
        text += "| B | feature | µs | 10th to 90th percentile | ratio to plain |\n";
        text += "| --- | --- | --- | --- | --- |\n";
        for Cost { batch, feature, p10_us, median_us, p90_us, ratio, .. } in cells {
            let _ = writeln!(
                text,
                "| {batch} | {feature} | {median_us:.1} | {p10_us:.1} to {p90_us:.1} | {ratio:.3} |"
            );
        }
    }
    let path = stem.with_extension("md");
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Our call, whose rows all ask for one feature.
struct FeatureCall<'a> {
    sampler: &'a Sampler<Cuda>,
    gpu: &'a Gpu,
    problem: Problem,
    plan: Plan,
    hidden_states: u64,
    rows: Rows,
    features: Buffer,
    kept: Buffer,
    reports: Buffer,
    _lists: Vec<Buffer>,
}

impl<'a> FeatureCall<'a> {
    fn new(
        sampler: &'a Sampler<Cuda>,
        gpu: &'a Gpu,
        shape: &Shape,
        batch: u32,
        hidden_states: u64,
        feature: &Feature<'_>,
    ) -> anyhow::Result<Self> {
        let Feature { params, rules, transform, raw, processed, .. } = *feature;
        let (edits, filters) = (rules.edits(&params), params.filters());
        let problem = Problem::builder(batch.into(), shape.vocab.into(), shape.hidden.into())
            .features(Features { rules: edits, filters, raw, processed, transform })
            .build()?;
        let plan = sampler.plan(&problem)?;
        let (row, lists) = upload(gpu, feature)?;
        let report_bytes = REPORT_PARTS * u64::from(batch) * ROW_VALUES * 4;
        Ok(Self {
            sampler,
            gpu,
            rows: Rows::new(gpu, batch, params.temperature, plan.workspace_bytes)?,
            features: gpu.upload(&row.repeat(batch as usize))?,
            kept: gpu.allocate(plan.kept_bytes)?,
            reports: gpu.allocate(report_bytes)?,
            hidden_states,
            problem,
            plan,
            _lists: lists,
        })
    }

    /// Six of the reports' parts.
    fn report(&self, first: u64) -> RawReport {
        let part_bytes = self.reports.bytes() as u64 / REPORT_PARTS;
        let part = |part: u64| self.reports.address() + (first + part) * part_bytes;
        RawReport {
            log_sum_exps: part(0),
            logprobs: part(1),
            ranks: part(2),
            entropies: part(3),
            best_tokens: part(4),
            best_logprobs: part(5),
        }
    }
}

/// A row's features as words, and the lists that they point to.
fn upload(gpu: &Gpu, feature: &Feature<'_>) -> anyhow::Result<(Vec<u64>, Vec<Buffer>)> {
    const WORDS: usize = size_of::<RowFeatures>() / size_of::<u64>();
    let TokenRules { seen, logit_bias, bitmask, allow_list, ban_list } = feature.rules;
    let pairs = |pairs: Vec<[u32; 2]>| gpu.upload(pairs.as_flattened());
    let lists = vec![
        pairs(seen.iter().map(|seen| [seen.token, seen.count]).collect())?,
        pairs(logit_bias.iter().map(|&(id, y)| [id, y.to_bits()]).collect())?,
        gpu.upload(bitmask.unwrap_or(&[]))?,
        gpu.upload(allow_list.unwrap_or(&[]))?,
        gpu.upload(ban_list)?,
    ];
    let address =
        |list: usize, wanted: bool| if wanted { lists[list].address() as usize } else { 0 };
    let features = RowFeatures {
        seen: without_provenance(address(0, true)),
        logit_bias: without_provenance(address(1, true)),
        bitmask: without_provenance(address(2, bitmask.is_some())),
        allow_list: without_provenance(address(3, allow_list.is_some())),
        ban_list: without_provenance(address(4, true)),
        n_seen: u32::try_from(seen.len())?,
        n_logit_bias: u32::try_from(logit_bias.len())?,
        n_allowed: u32::try_from(allow_list.map_or(0, <[u32]>::len))?,
        n_banned: u32::try_from(ban_list.len())?,
        ..RowFeatures::from(&feature.params)
    };
    // SAFETY: the sizes are equal, there is no padding, and any bits are a word.
    let words: [u64; WORDS] = unsafe { std::mem::transmute(features) };
    Ok((words.to_vec(), lists))
}

impl Call for FeatureCall<'_> {
    fn detail(&self) -> String {
        let finish = self.plan.finish.map(|finish| format!(", then {}", finish.entry));
        format!("{}{}", self.plan.variant.name(), finish.unwrap_or_default())
    }

    unsafe fn enqueue(&self, weights: u64) -> anyhow::Result<()> {
        let operands = RawOperands {
            features: self.features.address(),
            kept: self.kept.address(),
            kept_bytes: self.plan.kept_bytes,
            raw: self.report(0),
            processed: self.report(REPORT_PARTS / 2),
            ..self.rows.operands(weights, self.hidden_states)
        };
        // SAFETY: as for the plain call in `ours.rs`; the features point to lists that live as
        // long as the call.
        unsafe {
            self.sampler.enqueue(&self.plan, &self.problem, &operands, self.gpu.raw_stream())?;
        }
        Ok(())
    }

    fn poison(&self) -> anyhow::Result<()> {
        self.rows.poison(self.gpu)
    }

    fn outcome(&self) -> anyhow::Result<Outcome> {
        self.rows.outcome(self.gpu)
    }
}
