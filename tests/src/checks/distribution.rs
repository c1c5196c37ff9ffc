//! Is it the softmax?

use std::sync::Arc;

use flash_sampling::{Dtype, NoiseKey, SamplingParams};
use rayon::prelude::*;

use crate::inputs::{Case, Head, Matrix, params};
use crate::judge::{filtered, values};
use crate::oracle::probabilities;
use crate::panel::Panel;
use crate::stats::{assert_fits, poisson_p_value};

/// Tests of this group.
#[macro_export]
macro_rules! distribution_checks {
    ($panel:expr) => {
        $crate::check_tests! {
            $panel, distribution:
            small_vocabularies, temperature_divides_the_logit, excluded_tokens_never_come,
        }
    };
}

/// Draws of one row, in calls of `batch` times `draws`.
#[derive(Clone, Copy)]
struct Draws {
    calls: u64,
    batch: usize,
    draws: u32,
}

impl Draws {
    fn of_a_small_vocabulary(panel: &Panel, calls: u64) -> Self {
        let (calls, draws) = panel.effort().choose((1, 16), (calls, 64), (calls, 64));
        Self { calls, batch: 64, draws }
    }

    fn total(self) -> u64 {
        self.calls * self.batch as u64 * u64::from(self.draws)
    }
}

/// A head with random logits, and a hidden state for it. The logits' deviation is
/// `spread`.
fn random_row(seed: u64, vocab: usize, spread: f32) -> (Arc<Head>, Matrix) {
    const HIDDEN: usize = 16;
    // A product of two uniforms in ±a, ±1 has a deviation of a/3.
    let scale = spread * 3.0 / (HIDDEN as f32).sqrt();
    let weights = Matrix::random(seed, Dtype::Bf16, vocab, HIDDEN, scale);
    let hidden_state = Matrix::random(seed + 1, Dtype::Bf16, 1, HIDDEN, 1.0);
    (Arc::new(Head::new(weights)), hidden_state)
}

/// How often each token came, and what was to be expected. One member: histograms of
/// several that agree would count the same draws again.
fn histogram(
    panel: &mut Panel,
    (head, hidden_state): (&Arc<Head>, &Matrix),
    params: SamplingParams,
    draws: Draws,
) -> (Vec<u64>, Vec<f64>) {
    assert_eq!(panel.len(), 1);
    let rows = |position: u64| -> Vec<SamplingParams> {
        let with_key = |seed| {
            let mut params = params;
            params.key = NoiseKey { seed, position };
            params
        };
        (0..draws.batch as u64).map(with_key).collect()
    };
    let hidden_states = hidden_state.gather(&vec![0; draws.batch]);
    let mut case = Case::new("histogram", head, hidden_states, rows(0)).with_draws(draws.draws);
    let filtered = filtered(&case, 0, &values(&case, 0)).expect("no filter decides by rounding");
    let expected = probabilities(&filtered, f64::from(params.temperature));
    let mut counts = vec![0; head.vocab_valid];
    for position in 0..draws.calls {
        case.rows = rows(position);
        panel.sample_each(&case, |_, output| {
            for (sum, count) in counts.iter_mut().zip(count(&output.tokens, head.vocab_valid)) {
                *sum += count;
            }
        });
    }
    (counts, expected)
}

/// How often each id below `vocab` comes; a panic for any other.
fn count(tokens: &[u32], vocab: usize) -> Vec<u64> {
    let pieces = tokens.par_chunks(tokens.len().div_ceil(16));
    let partial = pieces.map(|piece| {
        let mut counts = vec![0u64; vocab];
        for &token in piece {
            counts[token as usize] += 1;
        }
        counts
    });
    partial.reduce(|| vec![0; vocab], |a, b| a.into_iter().zip(b).map(|(a, b)| a + b).collect())
}

fn assert_softmax(panel: &mut Panel, seed: u64, vocab: usize, temperature: f32, draws: Draws) {
    assert_fits_with(panel, (seed, vocab), params(temperature, 0, 0), draws);
}

/// Demands that draws of a random row fit what its filters leave of the softmax.
pub fn assert_row_fits(panel: &mut Panel, seed: u64, vocab: usize, params: SamplingParams) {
    let draws = Draws::of_a_small_vocabulary(panel, 60);
    assert_fits_with(panel, (seed, vocab), params, draws);
}

fn assert_fits_with(
    panel: &mut Panel,
    (seed, vocab): (u64, usize),
    params: SamplingParams,
    draws: Draws,
) {
    let (head, hidden_state) = random_row(seed, vocab, 1.5);
    let (observed, expected) = histogram(panel, (&head, &hidden_state), params, draws);
    assert_fits(&observed, &expected, &format!("V {vocab}, {params:?}, {} draws", draws.total()));
}

/// Vocabularies of less and more than a tile, and one of many, at T = 1.
pub fn small_vocabularies(panel: &mut Panel) {
    for (vocab, calls) in [(100, 60), (257, 60), (4_096, 30)] {
        let draws = Draws::of_a_small_vocabulary(panel, calls);
        assert_softmax(panel, 11 + vocab as u64, vocab, 1.0, draws);
    }
}

/// The vocabularies of models: a draw costs V values of noise.
pub fn whole_vocabularies(panel: &mut Panel) {
    for vocab in [32_000, 151_936] {
        let draws = Draws { calls: panel.effort().choose(1, 1, 40), batch: 1_024, draws: 64 };
        assert_softmax(panel, 3, vocab, 1.0, draws);
    }
}

/// Temperatures on both sides of 1, by which the logit alone is divided.
pub fn temperature_divides_the_logit(panel: &mut Panel) {
    for temperature in [0.5, 1.7] {
        let draws = Draws::of_a_small_vocabulary(panel, 60);
        assert_softmax(panel, 29, 100, temperature, draws);
    }
}

/// Tokens with a logit of `−inf` never come, and the rest share what is left.
pub fn excluded_tokens_never_come(panel: &mut Panel) {
    let (head, hidden_state) = random_row(51, 300, 1.0);
    let bias =
        (0..300).map(|token| if token % 2 == 0 { 0.25 } else { f32::NEG_INFINITY }).collect();
    let head = Arc::new(Head::new(head.weights.clone()).with_bias(bias));
    let draws = Draws::of_a_small_vocabulary(panel, 60);
    let (observed, expected) = histogram(panel, (&head, &hidden_state), params(1.0, 0, 0), draws);
    assert_fits(&observed, &expected, "odd tokens excluded");
}

/// The chance beyond 4 sigmas of a normal law, on both sides: a right sampler misses one
/// of the three comparisons for one choice of seeds in 5,000.
const BEYOND_FOUR_SIGMAS: f64 = 6.3e-5;

/// a) A row of 16 tokens, rare ones among them: each probability's tokens together come
/// as often as they should. A token of 2e-8 is what 24-bit uniforms lose most
/// significantly: 84 % of it.
pub fn rare_tokens(panel: &mut Panel) {
    let rare = [(1e-6, 1), (1e-7, 1), (2e-8, 13)];
    let mut logits: Vec<f32> = vec![0.0];
    for (probability, tokens) in rare {
        logits.extend(vec![f64::ln(probability) as f32; tokens]);
    }
    // The likely token in the middle.
    logits.swap(0, 9);
    let head = Arc::new(Head::of_logits(logits.clone()));
    let hidden_state = Matrix::from_fn(Dtype::Bf16, 1, 1, |_, _| 1.0);
    let (calls, batch) = panel.effort().choose((1, 4_096), (382, 4_096), (955, 65_536));
    let draws = Draws { calls, batch, draws: 64 };
    let (observed, expected) = histogram(panel, (&head, &hidden_state), params(1.0, 0, 0), draws);
    for (probability, _) in rare {
        let logit = f64::ln(probability) as f32;
        let members = || (0..logits.len()).filter(|&token| logits[token] == logit);
        let count = members().map(|token| observed[token]).sum();
        let share: f64 = members().map(|token| expected[token]).sum();
        let p_value = poisson_p_value(count, share * draws.total() as f64);
        assert!(
            p_value >= BEYOND_FOUR_SIGMAS,
            "tokens of {probability:e}: {count} of {} draws, p-value {p_value:e}",
            draws.total()
        );
    }
    assert_fits(&observed, &expected, "all tokens");
}
