//! Rules, penalties and filters of the mutants, with their defects.

use flash_sampling::{EditOrder, FilterOrder, SamplingParams};

use super::Defect;
use crate::inputs::{Case, Rules};

/// The value of a token with logit `x`.
pub(super) fn edited(case: &Case, row: usize, id: u32, x: f32) -> f32 {
    let Some(rules) = case.rules.get(row) else { return x };
    let params = &case.rows[row];
    if !rules.admits(id) || x == f32::NEG_INFINITY {
        return f32::NEG_INFINITY;
    }
    match params.edit_order {
        EditOrder::BiasFirst => {
            let y = x + bias(rules, id);
            penalized(rules, id, y, |y, count| {
                params.penalties.count(params.penalties.repeat(y), count)
            })
        }
        EditOrder::BiasLast => {
            let y = penalized(rules, id, x, |y, count| {
                params.penalties.repeat(params.penalties.count(y, count))
            });
            y + bias(rules, id)
        }
    }
}

fn bias(rules: &Rules, id: u32) -> f32 {
    let at = rules.logit_bias.binary_search_by_key(&id, |&(id, _)| id);
    at.map_or(0.0, |at| rules.logit_bias[at].1)
}

fn penalized(rules: &Rules, id: u32, y: f32, penalize: impl Fn(f32, u32) -> f32) -> f32 {
    match rules.seen.binary_search_by_key(&id, |seen| seen.token) {
        Ok(at) if y > f32::NEG_INFINITY => penalize(y, rules.seen[at].count),
        _ => y,
    }
}

/// The tokens that the filters keep, the likeliest first. No value is NaN.
pub(super) fn survivors(
    values: &[f32],
    params: &SamplingParams,
    defect: Option<Defect>,
) -> Vec<usize> {
    let mut ids: Vec<usize> =
        (0..values.len()).filter(|&i| values[i] > f32::NEG_INFINITY).collect();
    ids.sort_by(|&a, &b| values[b].total_cmp(&values[a]).then(a.cmp(&b)));
    let Some(&first) = ids.first() else { return ids };
    if params.temperature == 0.0 || values[first] == f32::INFINITY {
        return ids;
    }
    let at_one = params.filters_at_one || defect == Some(Defect::MassBeforeTemperature);
    let temperature = if at_one { 1.0 } else { f64::from(params.temperature) };
    let log = |id: usize| (f64::from(values[id]) - f64::from(values[first])) / temperature;
    let weight = |id: usize| log(id).exp();
    let min_p = |ids: &mut Vec<usize>| {
        if params.min_p > 0.0 {
            ids.retain(|&id| log(id) >= f64::from(params.min_p).ln());
        }
    };
    let top_p = |ids: &mut Vec<usize>, total: f64| {
        let goal = f64::from(params.top_p) * total;
        let mut before = 0.0;
        let n = ids.iter().position(|&id| {
            let reached =
                if defect == Some(Defect::OneMore) { before > goal } else { before >= goal };
            before += weight(id);
            reached
        });
        ids.truncate(n.unwrap_or(ids.len()).max(1));
    };
    let sum = |ids: &[usize]| ids.iter().map(|&id| weight(id)).sum::<f64>();
    let mut order = params.filter_order;
    if defect == Some(Defect::MinPAfterTopP) && order == FilterOrder::Sequential {
        order = FilterOrder::MinPLast;
    }
    let all = ids.clone();
    if let Some(n) = params.top_n_sigma {
        let depth = |id: usize| f64::from(values[first]) - f64::from(values[id]);
        let mean = ids.iter().map(|&id| depth(id)).sum::<f64>() / ids.len() as f64;
        let squares = ids.iter().map(|&id| (depth(id) - mean).powi(2)).sum::<f64>();
        let degrees = ids.len() - usize::from(defect == Some(Defect::DeviationOfSample));
        let deviation = (squares / degrees as f64).sqrt();
        ids.retain(|&id| id == first || depth(id) <= f64::from(n) * deviation);
    }
    if order == FilterOrder::Sequential {
        min_p(&mut ids);
    }
    ids.truncate(params.top_k.unwrap_or(u32::MAX) as usize);
    if params.top_p < 1.0 {
        let total = sum(if order == FilterOrder::Joint { &all } else { &ids });
        top_p(&mut ids, total);
    }
    min_p(&mut ids);
    let mut cut = |least: &dyn Fn(&[usize]) -> f64| {
        let whole = if order == FilterOrder::Joint { &all } else { &ids };
        let least = least(whole) * sum(whole);
        ids.retain(|&id| id == first || weight(id) >= least.min(1.0));
    };
    if params.epsilon_cutoff > 0.0 {
        cut(&|_| params.epsilon_cutoff.into());
    }
    if params.eta_cutoff > 0.0 {
        let eta = f64::from(params.eta_cutoff);
        cut(&|ids| {
            let total = sum(ids);
            let p = ids.iter().map(|&id| weight(id) / total).filter(|&p| p > 0.0);
            let by_entropy = eta.sqrt() * p.map(|p| p * p.ln()).sum::<f64>().exp();
            if defect == Some(Defect::EtaGreater) {
                eta.max(by_entropy)
            } else {
                eta.min(by_entropy)
            }
        });
    }
    ids
}
