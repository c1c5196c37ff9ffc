//! What rows with features and reports have on the device.

use std::ptr::without_provenance;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use flash_sampling::cuda::{RawReport, RowFeatures};
use flash_sampling::{Report, SamplingParams, Wanted};

use super::memory::{Guarded, address, to_device};
use crate::inputs::Rules;
use crate::panel::POISON;

/// Words of a row's features: no padding, so that they can be copied as words.
const FEATURES_WORDS: usize = size_of::<RowFeatures>() / size_of::<u64>();

/// `[B]` features and the lists that they point to.
pub(super) struct DeviceFeatures {
    rows: CudaSlice<u64>,
    lists: CudaSlice<u32>,
}

impl DeviceFeatures {
    /// Of rows with these rules, or none.
    pub(super) fn upload(
        stream: &Arc<CudaStream>,
        rows: &[SamplingParams],
        rules: &[Rules],
    ) -> Self {
        let lists = to_device(stream, &list_words(rules));
        let words = row_words(rows, rules, address(&lists));
        Self { rows: to_device(stream, &words), lists }
    }

    /// Replaces them in place and in stream order.
    pub(super) fn set(
        &mut self,
        stream: &Arc<CudaStream>,
        rows: &[SamplingParams],
        rules: &[Rules],
    ) {
        // The stream may still read the lists that go.
        stream.synchronize().expect("the stream runs");
        self.lists = to_device(stream, &list_words(rules));
        let words = row_words(rows, rules, address(&self.lists));
        stream.memcpy_htod(&words, &mut self.rows).expect("copy to the device");
    }

    /// Where they are.
    pub(super) fn address(&self) -> u64 {
        address(&self.rows)
    }
}

/// A row's lists as words: seen tokens, biases, bitmask, allow-list, ban-list.
fn lists_of(rules: &Rules) -> [Option<Vec<u32>>; 5] {
    [
        Some(rules.seen.iter().flat_map(|seen| [seen.token, seen.count]).collect()),
        Some(rules.logit_bias.iter().flat_map(|&(id, y)| [id, y.to_bits()]).collect()),
        rules.bitmask.clone(),
        rules.allow_list.clone(),
        Some(rules.ban_list.clone()),
    ]
}

/// The lists of all rows, with poison behind each: no token has that id.
fn list_words(rules: &[Rules]) -> Vec<u32> {
    let lists = rules.iter().flat_map(lists_of).flatten();
    lists.flat_map(|list| list.into_iter().chain([POISON])).collect()
}

/// The rows' features as words, whose lists begin at `lists`.
fn row_words(rows: &[SamplingParams], rules: &[Rules], mut lists: u64) -> Vec<u64> {
    let mut words = Vec::with_capacity(rows.len() * FEATURES_WORDS);
    for (row, params) in rows.iter().enumerate() {
        let none = Rules::default();
        let of_row = rules.get(row);
        let place = |list: Option<Vec<u32>>| match list {
            Some(list) if of_row.is_some() => {
                let begin = lists;
                lists += 4 * (list.len() as u64 + 1);
                begin as usize
            }
            _ => 0,
        };
        let rules = of_row.unwrap_or(&none);
        let [seen, logit_bias, bitmask, allow_list, ban_list] = lists_of(rules).map(place);
        let features = RowFeatures {
            seen: without_provenance(seen),
            logit_bias: without_provenance(logit_bias),
            bitmask: without_provenance(bitmask),
            allow_list: without_provenance(allow_list),
            ban_list: without_provenance(ban_list),
            n_seen: rules.seen.len() as u32,
            n_logit_bias: rules.logit_bias.len() as u32,
            n_allowed: rules.allow_list.as_ref().map_or(0, Vec::len) as u32,
            n_banned: rules.ban_list.len() as u32,
            ..RowFeatures::from(params)
        };
        // SAFETY: the sizes are equal, there is no padding, and any bits are a word.
        let row: [u64; FEATURES_WORDS] = unsafe { std::mem::transmute(features) };
        words.extend(row);
    }
    words
}

/// The parts of a report between guards and full of poison; none of what is not wanted.
pub(super) struct DeviceReport {
    wanted: Wanted,
    parts: [Option<Guarded>; 6],
}

impl DeviceReport {
    /// Of `rows` rows with `draws` draws each.
    pub(super) fn new(stream: &Arc<CudaStream>, wanted: Wanted, rows: usize, draws: usize) -> Self {
        let best = rows * wanted.best as usize;
        let parts = [
            (wanted.logprobs, rows),
            (wanted.logprobs, rows * draws),
            (wanted.ranks, rows * draws),
            (wanted.entropies, rows),
            (best > 0, best),
            (best > 0, best),
        ];
        let part = |(wanted, len): (bool, usize)| wanted.then(|| Guarded::new(stream, len));
        Self { wanted, parts: parts.map(part) }
    }

    /// Poisons them again.
    pub(super) fn poison(&mut self, stream: &Arc<CudaStream>) {
        self.parts.iter_mut().flatten().for_each(|part| part.poison(stream));
    }

    /// Where they are.
    pub(super) fn operands(&self) -> RawReport {
        let [log_sum_exps, logprobs, ranks, entropies, best_tokens, best_logprobs] =
            self.parts.each_ref().map(|part| part.as_ref().map_or(0, Guarded::address));
        RawReport { log_sum_exps, logprobs, ranks, entropies, best_tokens, best_logprobs }
    }

    /// What was written, and nothing around it.
    pub(super) fn read(&self, stream: &Arc<CudaStream>, name: &str) -> Report {
        let words = self
            .parts
            .each_ref()
            .map(|part| part.as_ref().map_or_else(Vec::new, |part| part.read(stream, name)));
        let [log_sum_exps, logprobs, ranks, entropies, best_tokens, best_logprobs] = words;
        let floats = |words: Vec<u32>| words.into_iter().map(f32::from_bits).collect();
        let mut report = Report::default();
        report.wanted = self.wanted;
        report.log_sum_exps = floats(log_sum_exps);
        report.logprobs = floats(logprobs);
        report.ranks = ranks;
        report.entropies = floats(entropies);
        report.best_tokens = best_tokens;
        report.best_logprobs = floats(best_logprobs);
        report
    }
}
