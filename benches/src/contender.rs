//! Anything that takes part: ours and what ours is compared with.

use half::bf16;

use crate::gpu::Gpu;
use crate::shapes::Shape;

/// One way to go from hidden states and weights to tokens, or part of the way.
pub trait Contender {
    /// The name in reports.
    fn name(&self) -> &str;

    /// Temperature of the tokens it draws; of no meaning for logits.
    fn temperature(&self) -> f32 {
        1.0
    }

    /// Allocates what a call for `batch` rows needs, and chooses how it runs.
    ///
    /// `hidden_states` is the address of `[B, D]` bf16, valid as long as the call.
    ///
    /// # Errors
    /// Why it cannot run; the report says so in place of a time.
    fn prepare<'a>(
        &'a self,
        gpu: &'a Gpu,
        shape: &Shape,
        batch: u32,
        hidden_states: u64,
    ) -> anyhow::Result<Box<dyn Call + 'a>>;
}

/// A call that only lacks its weights.
pub trait Call {
    /// The variant or algorithm, for a report.
    fn detail(&self) -> String;

    /// Enqueues the whole call on the device's stream; nothing waits.
    ///
    /// # Errors
    /// The call was refused.
    ///
    /// # Safety
    /// `weights` is the address of `[V, D]` bf16, and the hidden states that the call was
    /// prepared with are still there, until the stream has run it and every replay.
    unsafe fn enqueue(&self, weights: u64) -> anyhow::Result<()>;

    /// Overwrites the outputs, so that a call that writes nothing is seen.
    ///
    /// # Errors
    /// The driver refuses.
    fn poison(&self) -> anyhow::Result<()>;

    /// What the last call has written, when it has run.
    ///
    /// # Errors
    /// The call has failed.
    fn outcome(&self) -> anyhow::Result<Outcome>;
}

/// What a call writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// `[B]`.
    Tokens(Vec<u32>),
    /// `[B, V]`.
    Logits(Vec<bf16>),
}

/// A contender that cannot take part on this machine, and why.
#[derive(Debug)]
pub struct Absent {
    /// The name in reports.
    pub name: &'static str,
    /// Why.
    pub reason: String,
}

impl Contender for Absent {
    fn name(&self) -> &str {
        self.name
    }

    fn prepare<'a>(
        &'a self,
        _: &'a Gpu,
        _: &Shape,
        _: u32,
        _: u64,
    ) -> anyhow::Result<Box<dyn Call + 'a>> {
        Err(anyhow::anyhow!("{}", self.reason))
    }
}
