//! What an engine without fusion would run: cuBLASLt's product to stored logits, then a
//! sampler over them.
//!
//! Rows that ask for nothing have bf16 logits and the benchmarks' own sampling kernel
//! ([`CublasSampled`]). All others have f32 logits and, in one launch, the kernel that finishes
//! rows of ours: transform, rules, penalties, filters, the draw with our noise, reports.

use std::ptr::{null_mut, without_provenance_mut};
use std::rc::Rc;

use cudarc::driver::sys::CUfunction;
use flash_sampling::cuda::{Cuda, RawReport};
use flash_sampling::{Features, Finish, Problem, Sampler, TokenRules, Wanted};
use flash_sampling_kernels::abi::SampleParams;
use flash_sampling_kernels::abi::kept::{KeptParams, ReportParams};
use flash_sampling_kernels::transform::TransformParams;

use crate::asked::Feature;
use crate::asked_rows::AskedRows;
use crate::baseline::{Logits, Product};
use crate::contender::{Call, Contender, Outcome};
use crate::gpu::{Buffer, Gpu};
use crate::kernels::{CublasSampled, launch};
use crate::session::Session;
use crate::shapes::Shape;

/// Products of one shape and batch, and the samplers behind them.
pub(crate) struct Separate<'a> {
    sampler: &'a Sampler<Cuda>,
    gpu: &'a Gpu,
    shape: Shape,
    batch: u32,
    hidden_states: u64,
    plain: CublasSampled,
    /// Every call's: calls of one stream take turns, and each writes it anew.
    product: Product<'a>,
}

impl<'a> Separate<'a> {
    /// `hidden_states` is the address of `[B, D]` bf16, valid as long as the calls.
    ///
    /// # Errors
    /// Why it cannot run; the report says so in place of a time.
    pub(crate) fn new(
        session: &'a Session,
        shape: &Shape,
        batch: u32,
        hidden_states: u64,
        temperature: f32,
    ) -> anyhow::Result<Self> {
        let Session { sampler, gpu, kernels, cublas, .. } = session;
        let cublas = cublas.as_ref().map_err(|reason| anyhow::anyhow!("{reason}"))?;
        Ok(Self {
            sampler,
            gpu,
            shape: *shape,
            batch,
            hidden_states,
            plain: CublasSampled {
                cublas: Rc::clone(cublas),
                kernels: Rc::clone(kernels),
                temperature,
            },
            product: Product::new(cublas, gpu, shape, batch, hidden_states, Logits::F32)?,
        })
    }

    /// The call whose rows all ask for `feature`.
    ///
    /// # Errors
    /// There is not enough memory, or a library refuses.
    pub(crate) fn call<'b>(&'b self, feature: &Feature<'_>) -> anyhow::Result<Box<dyn Call + 'b>> {
        if feature.draws_plainly() && !feature.reports() {
            let Self { gpu, shape, batch, hidden_states, .. } = self;
            return self.plain.prepare(gpu, shape, *batch, *hidden_states);
        }
        Ok(Box::new(FinishedCall::new(self, feature)?))
    }
}

/// The product, then one launch of the kernel that finishes rows.
///
/// Rows with nothing but reports it would leave to the sampling kernel of ours, which does not
/// run here. Such rows ban the id V, which is no token: this makes them rows with rules, whose
/// tokens it draws, and costs a look at a list of one id.
struct FinishedCall<'a> {
    product: &'a Product<'a>,
    gpu: &'a Gpu,
    entry: CUfunction,
    finish: Finish,
    asked: AskedRows,
    params: KeptParams,
    /// The logits as the model has them, where rules change the others in memory.
    _raw_values: Option<Buffer>,
}

impl<'a> FinishedCall<'a> {
    fn new(separate: &'a Separate<'_>, feature: &Feature<'_>) -> anyhow::Result<Self> {
        let Separate { sampler, gpu, shape, batch, product, .. } = separate;
        // Blocks and shared memory are the same whatever rows ask for, if there is this kernel.
        let problem = Problem::builder((*batch).into(), shape.vocab.into(), shape.hidden.into())
            .features(Features { filters: true, ..Features::NONE })
            .build()?;
        let plan = sampler.plan(&problem)?;
        let finish = plan.finish.ok_or_else(|| anyhow::anyhow!("no kernel finishes rows"))?;
        let no_token = [shape.vocab];
        let mut row = *feature;
        if row.draws_plainly() {
            row.rules = TokenRules { ban_list: &no_token, ..row.rules };
        }
        let asked = AskedRows::new(gpu, *batch, &row, 0)?;
        let two_copies = row.raw.any() && !finish.slice_in_shared;
        let raw_values = two_copies.then(|| gpu.allocate(product.logits_bytes())).transpose()?;
        let params = KeptParams {
            sample: SampleParams {
                values: without_provenance_mut(product.logits() as usize),
                features: asked.features.pointer(),
                ..asked.rows.sample_params(shape)
            },
            raw: report_params(row.raw, &asked.raw()),
            processed: report_params(row.processed, &asked.processed()),
            raw_values: raw_values.as_ref().map_or(null_mut(), Buffer::pointer),
            transform: TransformParams::new(row.transform),
            slice_in_shared: finish.slice_in_shared.into(),
        };
        let entry: CUfunction = sampler.finish_entry(&finish)?.cast();
        Ok(Self { product, gpu, entry, finish, asked, params, _raw_values: raw_values })
    }
}

impl Call for FinishedCall<'_> {
    fn detail(&self) -> String {
        format!("{}, then {}", self.product.detail(), self.finish.entry)
    }

    unsafe fn enqueue(&self, weights: u64) -> anyhow::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.product.enqueue(weights) }?;
        let mut params = self.params;
        let arguments = &mut [(&raw mut params).cast()];
        let Finish { grid, threads, shared_bytes, .. } = self.finish;
        // SAFETY: the entry takes `KeptParams`, and was allowed its shared memory when it was
        // loaded, by a sampler that outlives the call; grid and memory are a plan's. The logits
        // are written before, on the same stream, and all buffers live as long as the call.
        unsafe { launch(self.gpu, self.entry, grid, threads, shared_bytes, arguments) }
    }

    fn poison(&self) -> anyhow::Result<()> {
        self.product.poison()?;
        self.asked.rows.poison(self.gpu)
    }

    fn outcome(&self) -> anyhow::Result<Outcome> {
        self.asked.rows.outcome(self.gpu)
    }
}

/// A report's addresses, null for what is not wanted.
fn report_params(wanted: Wanted, report: &RawReport) -> ReportParams {
    fn at<T>(wanted: bool, address: u64) -> *mut T {
        without_provenance_mut(if wanted { address as usize } else { 0 })
    }
    let lists = wanted.best > 0;
    ReportParams {
        log_sum_exps: at(wanted.logprobs, report.log_sum_exps),
        logprobs: at(wanted.logprobs, report.logprobs),
        ranks: at(wanted.ranks, report.ranks),
        entropies: at(wanted.entropies, report.entropies),
        best_tokens: at(lists, report.best_tokens),
        best_logprobs: at(lists, report.best_logprobs),
        best: wanted.best,
    }
}
