//! What a row may ask for beside temperature and key: transforms, rules and penalties of
//! single tokens, and the filters, by sorting, normalizing and summing.

/// What the model does to every logit.
#[derive(Clone, Copy, Debug)]
pub struct Transform {
    /// The cap.
    pub softcap: Option<f64>,
    /// The scale.
    pub scale: f64,
    /// Whether the scale comes first.
    pub scale_first: bool,
}

impl Transform {
    /// The logit as the model means it.
    pub fn apply(self, x: f64) -> f64 {
        let cap = |x: f64| self.softcap.map_or(x, |cap| cap * (x / cap).tanh());
        if self.scale_first { cap(self.scale * x) } else { self.scale * cap(x) }
    }
}

/// What a row says of tokens, by id.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Whether a token may be drawn.
    pub banned: Vec<bool>,
    /// Bias of each token.
    pub bias: Vec<f64>,
    /// Whether a token has been seen, and how often it was generated.
    pub seen: Vec<Option<u32>>,
    /// Repetition, frequency and presence penalty.
    pub penalties: [f64; 3],
    /// Frequency and presence, repetition, bias: in this order, not the opposite.
    pub bias_last: bool,
}

impl Rules {
    /// The value of the token at `at` with logit `x`.
    pub fn apply(&self, at: usize, x: f64) -> f64 {
        if self.banned[at] || x == f64::NEG_INFINITY {
            return f64::NEG_INFINITY;
        }
        let [repetition, frequency, presence] = self.penalties;
        let repeat = |y: f64| match self.seen[at] {
            Some(_) if y > 0.0 => y / repetition,
            Some(_) => y * repetition,
            None => y,
        };
        let count = |y: f64| match self.seen[at] {
            None | Some(0) => y,
            Some(n) => y - frequency * f64::from(n) - presence,
        };
        if self.bias_last {
            repeat(count(x)) + self.bias[at]
        } else {
            count(repeat(x + self.bias[at]))
        }
    }
}

/// In what order the filters count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// top-nσ, min_p, top_k, top_p, ε, η; each on what is left.
    Sequential,
    /// top-nσ, top_k, top_p, min_p, ε, η; each on what is left.
    MinPLast,
    /// Each on all tokens.
    Joint,
}

/// A row's filters.
#[derive(Clone, Copy, Debug)]
pub struct Filters {
    /// Tokens to keep.
    pub top_k: Option<usize>,
    /// Probability to keep.
    pub top_p: f64,
    /// Share of the highest probability to keep.
    pub min_p: f64,
    /// Standard deviations below the highest value to keep (arXiv 2411.07641).
    pub top_n_sigma: Option<f64>,
    /// Least probability to keep (arXiv 2210.15191).
    pub epsilon: f64,
    /// The same, less where the entropy is high (from the same).
    pub eta: f64,
    /// Their order.
    pub order: Order,
    /// What probabilities are measured at, above 0.
    pub temperature: f64,
}

/// What filters keep.
#[derive(Clone, Debug)]
pub struct Survivors {
    /// For each token.
    pub kept: Vec<bool>,
    /// How near the nearest decision was: a share of probability, or a ratio's logarithm.
    pub clearance: f64,
    /// How near the nearest value was to a floor that the deviation gives.
    pub value_clearance: f64,
}

impl Filters {
    /// Filters finite values, and `−inf` for tokens that may not be drawn.
    pub fn survivors(&self, values: &[f64]) -> Survivors {
        let mut ids: Vec<usize> = (0..values.len()).collect();
        ids.retain(|&id| values[id] > f64::NEG_INFINITY);
        // Stable, so of equals the lower id comes first.
        ids.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
        let p = super::probabilities(values, self.temperature);
        let mut clearance = f64::INFINITY;
        let mut min_p = |ids: &[usize]| -> Vec<usize> {
            let Some(&first) = ids.first() else { return Vec::new() };
            let log_ratio = |id: usize| (values[id] - values[first]) / self.temperature;
            if self.min_p > 0.0 {
                // Tokens that equal the likeliest stay without a measurement.
                for &id in ids.iter().filter(|&&id| values[id] < values[first]) {
                    clearance = clearance.min((log_ratio(id) - self.min_p.ln()).abs());
                }
            }
            ids.iter().copied().filter(|&id| log_ratio(id) >= self.min_p.ln()).collect()
        };
        let top_k = |ids: &[usize]| ids[..self.top_k.unwrap_or(usize::MAX).min(ids.len())].to_vec();
        let mut nearest = f64::INFINITY;
        let mut top_p = |ids: &[usize]| -> Vec<usize> {
            let whole: f64 = ids.iter().map(|&id| p[id]).sum();
            let mut before = 0.0;
            let mut kept = Vec::new();
            for &id in ids {
                let is_first = kept.is_empty();
                if self.top_p < 1.0 && !is_first {
                    nearest = nearest.min((before / whole - self.top_p).abs());
                }
                if self.top_p == 1.0 || is_first || before < self.top_p * whole {
                    kept.push(id);
                } else {
                    break;
                }
                before += p[id];
            }
            kept
        };
        // What is likeliest stays without a measurement, with equals.
        let cut = |ids: &[usize], nearest: &mut f64, above: &dyn Fn(usize) -> f64| -> Vec<usize> {
            let kept = |&id: &usize| {
                let is_likeliest = values[id] == values[ids[0]];
                if !is_likeliest {
                    *nearest = nearest.min(above(id).abs());
                }
                is_likeliest || above(id) >= 0.0
            };
            ids.iter().copied().filter(kept).collect()
        };
        let mut value_clearance = f64::INFINITY;
        let by_sigma = match (self.top_n_sigma, ids.first()) {
            (Some(n), Some(&first)) => {
                let floor = values[first] - n * deviation(values);
                cut(&ids, &mut value_clearance, &|id| values[id] - floor)
            }
            _ => ids.clone(),
        };
        let mut narrowest = f64::INFINITY;
        let mut cutoffs = |ids: &[usize], all: Option<&[usize]>| {
            let mut kept = ids.to_vec();
            if self.epsilon > 0.0 {
                let whole = conditional(&p, all.unwrap_or(&kept));
                kept = cut(&kept, &mut narrowest, &|id| (whole[id] / self.epsilon).ln());
            }
            if self.eta > 0.0 {
                let whole = conditional(&p, all.unwrap_or(&kept));
                let least = self.eta.min(self.eta.sqrt() * (-entropy(&whole)).exp());
                kept = cut(&kept, &mut narrowest, &|id| (whole[id] / least).ln());
            }
            kept
        };
        let kept = match self.order {
            Order::Sequential => cutoffs(&top_p(&top_k(&min_p(&by_sigma))), None),
            Order::MinPLast => cutoffs(&min_p(&top_p(&top_k(&by_sigma))), None),
            Order::Joint => {
                let sets = [min_p(&ids), top_k(&ids), top_p(&ids), cutoffs(&ids, Some(&ids))];
                by_sigma.into_iter().filter(|id| sets.iter().all(|set| set.contains(id))).collect()
            }
        };
        let mut flags = vec![false; values.len()];
        kept.into_iter().for_each(|id| flags[id] = true);
        let clearance = clearance.min(nearest).min(narrowest);
        Survivors { kept: flags, clearance, value_clearance }
    }
}

/// The standard deviation of the values above `−inf`.
fn deviation(values: &[f64]) -> f64 {
    let values: Vec<f64> = values.iter().copied().filter(|&y| y > f64::NEG_INFINITY).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let middle = mean(&values);
    mean(&values.iter().map(|y| (y - middle).powi(2)).collect::<Vec<_>>()).sqrt()
}

/// Probabilities given that the token is one of `ids`.
fn conditional(p: &[f64], ids: &[usize]) -> Vec<f64> {
    let whole: f64 = ids.iter().map(|&id| p[id]).sum();
    (0..p.len()).map(|id| if ids.contains(&id) { p[id] / whole } else { 0.0 }).collect()
}

/// In nats.
fn entropy(p: &[f64]) -> f64 {
    p.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln()).sum()
}

/// What a report says of a distribution: log-sum-exp and entropy.
pub fn summary(values: &[f64], temperature: f64) -> (f64, f64) {
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = values.iter().map(|y| ((y - highest) / temperature).exp()).sum();
    let p = super::probabilities(values, temperature);
    (highest / temperature + sum.ln(), entropy(&p))
}
