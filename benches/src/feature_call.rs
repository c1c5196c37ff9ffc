//! Our call, whose rows all ask for one feature, at one decode step after the other.

use std::cell::Cell;

use flash_sampling::cuda::{Cuda, RawOperands};
use flash_sampling::{Features, Plan, Problem, Sampler};

use crate::asked::Feature;
use crate::asked_rows::AskedRows;
use crate::contender::{Call, Outcome};
use crate::gpu::{Buffer, Gpu};
use crate::shapes::Shape;

/// The call, planned, with its operands but the weights.
pub(crate) struct FeatureCall<'a> {
    sampler: &'a Sampler<Cuda>,
    gpu: &'a Gpu,
    problem: Problem,
    plan: Plan,
    hidden_states: u64,
    asked: AskedRows,
    kept: Buffer,
    step: Cell<u32>,
}

impl<'a> FeatureCall<'a> {
    pub(crate) fn new(
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
        Ok(Self {
            sampler,
            gpu,
            asked: AskedRows::new(gpu, batch, feature, plan.workspace_bytes)?,
            kept: gpu.allocate(plan.kept_bytes)?,
            step: Cell::new(0),
            hidden_states,
            problem,
            plan,
        })
    }
}

impl Call for FeatureCall<'_> {
    fn detail(&self) -> String {
        let finish = self.plan.finish.map(|finish| format!(", then {}", finish.entry));
        format!("{}{}", self.plan.variant.name(), finish.unwrap_or_default())
    }

    unsafe fn enqueue(&self, weights: u64) -> anyhow::Result<()> {
        let rows = &self.asked.rows;
        let operands = RawOperands {
            positions: rows.positions_at(self.step.replace(self.step.get() + 1)),
            features: self.asked.features.address(),
            kept: self.kept.address(),
            kept_bytes: self.plan.kept_bytes,
            raw: self.asked.raw(),
            processed: self.asked.processed(),
            ..rows.operands(weights, self.hidden_states)
        };
        // SAFETY: as for the plain call in `ours.rs`; the features point to lists that live as
        // long as the call.
        unsafe {
            self.sampler.enqueue(&self.plan, &self.problem, &operands, self.gpu.raw_stream())?;
        }
        Ok(())
    }

    fn poison(&self) -> anyhow::Result<()> {
        self.asked.rows.poison(self.gpu)
    }

    fn outcome(&self) -> anyhow::Result<Outcome> {
        self.asked.rows.outcome(self.gpu)
    }
}
