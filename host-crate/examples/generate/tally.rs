//! What a run took, and how close its choices were.

use std::{
    fmt,
    time::{Duration, Instant},
};

/// Counts tokens and time from the prompt on.
pub(crate) struct Tally {
    prompt_tokens: usize,
    start: Instant,
    prompt: Duration,
    sampler: Duration,
    tokens: u32,
    /// The smallest margin, and the token where it was.
    closest: (f32, u32),
}

impl Tally {
    /// Starts the clock.
    pub(crate) fn start(prompt_tokens: usize) -> Self {
        Self {
            prompt_tokens,
            start: Instant::now(),
            prompt: Duration::ZERO,
            sampler: Duration::ZERO,
            tokens: 0,
            closest: (f32::INFINITY, 0),
        }
    }

    /// The prompt has been read.
    pub(crate) fn prompt_done(&mut self) {
        self.prompt = self.start.elapsed();
    }

    /// A token was drawn in `sampler` time, its score ahead of the next by `margin`.
    pub(crate) fn token_drawn(&mut self, sampler: Duration, margin: f32) {
        self.sampler += sampler;
        if margin < self.closest.0 {
            self.closest = (margin, self.tokens);
        }
        self.tokens += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = (self.start.elapsed() - self.prompt).as_secs_f64();
        let sampler = self.sampler.as_secs_f64();
        let tokens = f64::from(self.tokens);
        let (margin, token) = self.closest;
        writeln!(f, "prompt: {} tokens in {:.2} s", self.prompt_tokens, self.prompt.as_secs_f64())?;
        writeln!(f, "text: {tokens} tokens in {total:.2} s, {:.1} tokens/s", tokens / total)?;
        writeln!(
            f,
            "sampler: {:.1} ms, {:.3} ms a token, {:.1} % of the time",
            sampler * 1e3,
            sampler * 1e3 / tokens,
            sampler / total * 100.0
        )?;
        writeln!(f, "smallest margin: {margin:.4} at token {token}")
    }
}
