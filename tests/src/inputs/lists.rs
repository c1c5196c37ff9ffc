//! Rules of single rows, for kernels that are called without the library.

use flash_sampling_kernels::abi::kept::{RowFeatures, SeenToken, TokenBias};
use rand::RngExt;
use rand::rngs::SmallRng;

/// Lists of a row's rules, as a device reads them.
#[derive(Debug)]
pub struct Lists {
    mask: Vec<u32>,
    seen: Vec<SeenToken>,
    biases: Vec<TokenBias>,
    banned: Vec<u32>,
}

impl Lists {
    /// Of likely tokens and others, with ids that are not the row's.
    pub fn new(rng: &mut SmallRng, first_token: u32, logits: &[f32]) -> Self {
        let vocab = logits.len() as u32;
        let mut order: Vec<u32> = (0..vocab).collect();
        order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
        let mut ids = |n: usize| {
            let mut ids = vec![first_token.wrapping_sub(1), first_token + vocab];
            for _ in 0..n {
                let likely = order[rng.random_range(0..vocab.min(40)) as usize];
                let any = rng.random_range(0..vocab);
                ids.push(first_token + if rng.random() { likely } else { any });
            }
            ids.retain(|&id| id != u32::MAX);
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        let (seen, biased, banned) = (ids(300), ids(60), ids(20));
        let end = (first_token + vocab).div_ceil(32);
        Self {
            mask: (0..end).map(|_| rng.random::<u32>() | rng.random::<u32>()).collect(),
            seen: seen.iter().map(|&token| SeenToken { token, count: token % 3 }).collect(),
            biases: biased
                .iter()
                .map(|&token| {
                    let bias = [0.5, -0.25, 1.0, f32::NEG_INFINITY][token as usize % 4];
                    TokenBias { token, bias }
                })
                .collect(),
            banned,
        }
    }

    /// Adds to features those of these rules that have a bit in `which`.
    pub fn add_to(&self, features: &mut RowFeatures, which: u32) {
        if which & 1 != 0 {
            features.bitmask = self.mask.as_ptr();
        }
        if which & 2 != 0 {
            (features.seen, features.n_seen) = (self.seen.as_ptr(), self.seen.len() as u32);
            (features.repetition, features.frequency, features.presence) = (1.2, 0.1, 0.2);
        }
        if which & 4 != 0 {
            (features.logit_bias, features.n_logit_bias) =
                (self.biases.as_ptr(), self.biases.len() as u32);
        }
        if which & 8 != 0 {
            (features.ban_list, features.n_banned) =
                (self.banned.as_ptr(), self.banned.len() as u32);
        }
        if which & 16 != 0 {
            features.options |= RowFeatures::BIAS_LAST;
        }
    }
}
