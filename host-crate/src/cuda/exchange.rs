//! What the easy door copies in and out: where it lies, and how it is written and read.

use std::ptr::{null, without_provenance};

use flash_sampling_kernels::abi::kept::RowFeatures;
use flash_sampling_kernels::dims::align_up;
use flash_sampling_kernels::status::Status;

use super::driver::Address;
use super::{HostRows, RawOperands, RawReport};
use crate::matrix::MatrixRef;
use crate::output::Output;
use crate::params::SamplingParams;
use crate::problem::Problem;
use crate::report::{Report, Wanted};
use crate::token_rules::{TokenRules, WORD};

/// Alignment of the parts of an [`Exchange`]: that of the widest of them.
const PART_ALIGNMENT_BYTES: u64 = 8;

/// Bytes of a word of a list.
const WORD_BYTES: u64 = 4;

/// Where the parts of a call begin in the buffers that carry it, in bytes: first all
/// that is copied in, then all that is copied out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    /// `[B, D]`, with the problem's dtype and stride; at 0.
    hidden_states: u64,
    /// `[B]` u64.
    seeds: u64,
    /// `[B]` u64.
    positions: u64,
    /// `[B]` f32.
    temperatures: u64,
    /// `[B]` [`RowFeatures`], or nothing.
    features: u64,
    /// The lists that they point to, behind each other.
    lists: u64,
    /// `[B, S]` u32: the first of the outputs.
    pub(super) tokens: u64,
    /// `[B, S]` u32.
    status: u64,
    /// `[B, S]` f32.
    scores: u64,
    /// `[B, S]` f32.
    margins: u64,
    /// Where the reports are.
    raw: RawReport,
    processed: RawReport,
    /// All of it.
    pub(super) bytes: u64,
}

impl Exchange {
    pub(super) fn new(problem: &Problem, rows: &HostRows<'_>) -> Self {
        let (batch, outputs) = (u64::from(problem.batch()), problem.outputs());
        let features = problem.features();
        let (mut features_bytes, mut lists_bytes) = (0, 0);
        if features.of_rows() {
            features_bytes = batch * size_of::<RowFeatures>() as u64;
            lists_bytes = rows.lists(problem).map(|(_, lists)| list_bytes(&lists)).sum();
        }
        let mut bytes = 0;
        let mut part = |part_bytes: u64| {
            let begin = bytes;
            bytes = align_up(begin + part_bytes, PART_ALIGNMENT_BYTES);
            begin
        };
        let row_bytes = problem.hidden_stride() * problem.hidden_dtype().bytes();
        Self {
            hidden_states: part(batch * row_bytes),
            seeds: part(batch * 8),
            positions: part(batch * 8),
            temperatures: part(batch * 4),
            features: part(features_bytes),
            lists: part(lists_bytes),
            tokens: part(outputs * 4),
            status: part(outputs * 4),
            scores: part(outputs * 4),
            margins: part(outputs * 4),
            raw: report(features.raw, problem, &mut part),
            processed: report(features.processed, problem, &mut part),
            bytes,
        }
    }

    /// Addresses of the parts, and of everything else that a call needs.
    pub(super) fn operands(
        &self,
        exchange: Address,
        (weights, bias): (Address, Address),
        workspace: (Address, u64),
        kept: (Address, u64),
    ) -> RawOperands {
        RawOperands {
            weights,
            hidden_states: exchange + self.hidden_states,
            bias,
            temperatures: exchange + self.temperatures,
            seeds: exchange + self.seeds,
            positions: exchange + self.positions,
            tokens: exchange + self.tokens,
            status: exchange + self.status,
            scores: exchange + self.scores,
            margins: exchange + self.margins,
            workspace: workspace.0,
            workspace_bytes: workspace.1,
            features: exchange + self.features,
            kept: kept.0,
            kept_bytes: kept.1,
            raw: behind(exchange, self.raw),
            processed: behind(exchange, self.processed),
        }
    }

    /// Fills the part that is copied in, for a device that will have it at `exchange`.
    pub(super) fn write_inputs(
        &self,
        bytes: &mut [u8],
        problem: &Problem,
        rows: &HostRows<'_>,
        exchange: Address,
    ) {
        let stride_bytes = (problem.hidden_stride() * problem.hidden_dtype().bytes()) as usize;
        let states = bytes[self.hidden_states as usize..].chunks_exact_mut(stride_bytes);
        for (row, state) in states.take(rows.hidden_states.rows()).enumerate() {
            let elements = row_bytes(rows.hidden_states, row);
            state[..elements.len()].copy_from_slice(elements);
        }
        for (row, params) in rows.params.iter().enumerate() {
            let mut put = |part: u64, value: &[u8]| {
                let begin = part as usize + row * value.len();
                bytes[begin..begin + value.len()].copy_from_slice(value);
            };
            put(self.seeds, &params.key.seed.to_ne_bytes());
            put(self.positions, &params.key.position.to_ne_bytes());
            put(self.temperatures, &params.temperature.to_ne_bytes());
        }
        if problem.features().of_rows() {
            self.write_features(bytes, problem, rows, exchange);
        }
    }

    fn write_features(
        &self,
        bytes: &mut [u8],
        problem: &Problem,
        rows: &HostRows<'_>,
        exchange: Address,
    ) {
        let (begin, lists) = bytes.split_at_mut(self.lists as usize);
        let all = begin[self.features as usize..].chunks_exact_mut(size_of::<RowFeatures>());
        let mut lists = Lists { rest: lists, address: exchange + self.lists };
        for (to, (params, rules)) in all.zip(rows.lists(problem)) {
            let features = RowFeatures {
                seen: lists.put(rules.seen.iter().map(|seen| [seen.token, seen.count])),
                logit_bias: lists.put(rules.logit_bias.iter().map(|&(id, y)| [id, y.to_bits()])),
                bitmask: lists.put_ids(rules.bitmask),
                allow_list: lists.put_ids(rules.allow_list),
                ban_list: lists.put_ids(Some(rules.ban_list)),
                // Ids are distinct, and so no more than 32 bits count.
                n_seen: rules.seen.len() as u32,
                n_logit_bias: rules.logit_bias.len() as u32,
                n_allowed: rules.allow_list.map_or(0, <[u32]>::len) as u32,
                n_banned: rules.ban_list.len() as u32,
                ..RowFeatures::from(params)
            };
            // SAFETY: the chunk has the size of the features, which `write_unaligned` lets lie
            // anywhere.
            unsafe { to.as_mut_ptr().cast::<RowFeatures>().write_unaligned(features) };
        }
    }

    /// Reads the part that is copied out.
    pub(super) fn read_outputs(&self, bytes: &[u8], output: &mut Output) {
        read(bytes, self.tokens, &mut output.tokens, |word| word);
        read(bytes, self.status, &mut output.status, Status::from_bits);
        read(bytes, self.scores, &mut output.scores, f32::from_bits);
        read(bytes, self.margins, &mut output.margins, f32::from_bits);
        read_report(bytes, &self.raw, &mut output.raw);
        read_report(bytes, &self.processed, &mut output.processed);
    }
}

impl<'a> HostRows<'a> {
    /// Each row's parameters, and of its rules what the device has to know.
    fn lists(
        &self,
        problem: &Problem,
    ) -> impl Iterator<Item = (&'a SamplingParams, TokenRules<'a>)> {
        let words = (problem.first_token() + problem.vocab()).div_ceil(WORD) as usize;
        let rules = self.rules;
        self.params.iter().enumerate().map(move |(row, params)| {
            let rules = rules.get(row).copied().unwrap_or_default();
            let penalizes = params.first_penalty().is_some();
            let seen = if penalizes { rules.seen } else { &[] };
            let bitmask = rules.bitmask.map(|bitmask| &bitmask[..words]);
            (params, TokenRules { seen, bitmask, ..rules })
        })
    }
}

/// Bytes of a row's lists.
fn list_bytes(lists: &TokenRules<'_>) -> u64 {
    let TokenRules { seen, logit_bias, bitmask, allow_list, ban_list } = lists;
    let ids = [*bitmask, *allow_list, Some(ban_list)].into_iter().flatten().flatten().count();
    (2 * (seen.len() + logit_bias.len()) + ids) as u64 * WORD_BYTES
}

/// Where lists go, one behind the other.
struct Lists<'a> {
    rest: &'a mut [u8],
    /// Of the rest, on the device.
    address: Address,
}

impl Lists<'_> {
    /// Writes a list of `N` words each, and tells where the device has it.
    fn put<const N: usize, T>(&mut self, list: impl Iterator<Item = [u32; N]>) -> *const T {
        let begin = self.address;
        for word in list.flatten() {
            let (to, rest) = std::mem::take(&mut self.rest).split_at_mut(WORD_BYTES as usize);
            to.copy_from_slice(&word.to_ne_bytes());
            self.rest = rest;
            self.address += WORD_BYTES;
        }
        without_provenance(begin as usize)
    }

    /// The same of ids, or null.
    fn put_ids(&mut self, ids: Option<&[u32]>) -> *const u32 {
        ids.map_or(null(), |ids| self.put(ids.iter().map(|&id| [id])))
    }
}

/// Lays out the parts of a report.
fn report(wanted: Wanted, problem: &Problem, part: &mut impl FnMut(u64) -> u64) -> RawReport {
    let lens = wanted.lens(problem.batch().into(), problem.draws().into());
    RawReport {
        log_sum_exps: part(lens.log_sum_exps * 4),
        logprobs: part(lens.logprobs * 4),
        ranks: part(lens.ranks * 4),
        entropies: part(lens.entropies * 4),
        best_tokens: part(lens.best * 4),
        best_logprobs: part(lens.best * 4),
    }
}

/// The parts at these offsets behind an address.
fn behind(address: Address, offsets: RawReport) -> RawReport {
    RawReport {
        log_sum_exps: address + offsets.log_sum_exps,
        logprobs: address + offsets.logprobs,
        ranks: address + offsets.ranks,
        entropies: address + offsets.entropies,
        best_tokens: address + offsets.best_tokens,
        best_logprobs: address + offsets.best_logprobs,
    }
}

fn read_report(bytes: &[u8], parts: &RawReport, report: &mut Report) {
    read(bytes, parts.log_sum_exps, &mut report.log_sum_exps, f32::from_bits);
    read(bytes, parts.logprobs, &mut report.logprobs, f32::from_bits);
    read(bytes, parts.ranks, &mut report.ranks, |word| word);
    read(bytes, parts.entropies, &mut report.entropies, f32::from_bits);
    read(bytes, parts.best_tokens, &mut report.best_tokens, |word| word);
    read(bytes, parts.best_logprobs, &mut report.best_logprobs, f32::from_bits);
}

/// Reads as many values as there are, from `part` on.
fn read<T>(bytes: &[u8], part: u64, values: &mut [T], value: impl Fn(u32) -> T) {
    let words = bytes[part as usize..].as_chunks::<{ WORD_BYTES as usize }>().0;
    for (to, &word) in values.iter_mut().zip(words) {
        *to = value(u32::from_ne_bytes(word));
    }
}

/// A row's elements as bytes.
fn row_bytes(matrix: MatrixRef<'_>, row: usize) -> &[u8] {
    let element_bytes = matrix.dtype().bytes() as usize;
    assert!(row < matrix.rows());
    // SAFETY: `MatrixRef` guarantees that row's elements, and their types have no padding.
    unsafe {
        let begin = matrix.base_ptr().add(row * matrix.row_stride() * element_bytes);
        std::slice::from_raw_parts(begin, matrix.columns() * element_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Operand;
    use crate::problem::Features;
    use crate::token_rules::SeenToken;
    use flash_sampling_kernels::abi::Dtype;
    use flash_sampling_kernels::transform::Penalties;

    const DEVICE: Address = 0x7000_0000;

    fn problem(features: Features, draws: u64) -> Problem {
        let builder = Problem::builder(3, 70, 2).hidden_dtype(Dtype::F32).features(features);
        builder.draws(draws).build().unwrap()
    }

    fn words(bytes: &[u8], address: *const impl Sized, n: usize) -> Vec<u32> {
        let begin = (address.addr() as u64 - DEVICE) as usize;
        let words = bytes[begin..].as_chunks::<4>().0;
        words[..n].iter().map(|&word| u32::from_ne_bytes(word)).collect()
    }

    #[test]
    fn lists_are_where_features_say() {
        let states = [1.0f32; 6];
        let penalized = SamplingParams::new(0.5, 1, 2)
            .with_top_k(7)
            .with_penalties(Penalties { repetition: 2.0, ..Penalties::NONE });
        let params = [penalized, SamplingParams::new(1.0, 3, 4), penalized];
        let seen = [SeenToken { token: 5, count: 1 }, SeenToken { token: 9, count: 0 }];
        let all = TokenRules {
            seen: &seen,
            logit_bias: &[(3, -1.5)],
            bitmask: Some(&[1, 2, 3, 4, 5]),
            allow_list: Some(&[8, 10, 11]),
            ban_list: &[6, 7],
        };
        let rules = [all, all, TokenRules::default()];
        let hidden_states = MatrixRef::new(Operand::HiddenStates, &states, 3, 2).unwrap();
        let rows = HostRows { hidden_states, params: &params, rules: &rules };
        let features = Features { rules: true, filters: true, ..Features::NONE };
        let problem = problem(features, 1);
        let exchange = Exchange::new(&problem, &rows);
        let mut bytes = vec![0xA5; exchange.bytes as usize];
        exchange.write_inputs(&mut bytes, &problem, &rows, DEVICE);
        let read = |row: usize| {
            let size = size_of::<RowFeatures>();
            let chunk = &bytes[exchange.features as usize + row * size..][..size];
            // SAFETY: that many bytes, of plain numbers and addresses.
            unsafe { chunk.as_ptr().cast::<RowFeatures>().read_unaligned() }
        };
        for (row, n_seen) in [(0, 2), (1, 0)] {
            let found = read(row);
            let lens = [found.n_seen, found.n_logit_bias, found.n_allowed, found.n_banned];
            assert_eq!(lens, [n_seen, 1, 3, 2], "row {row}: without penalties nothing is seen");
            let pairs = 2 * n_seen as usize;
            assert_eq!(words(&bytes, found.seen, pairs), [5, 1, 9, 0][..pairs]);
            assert_eq!(words(&bytes, found.logit_bias, 2), [3, (-1.5f32).to_bits()]);
            assert_eq!(words(&bytes, found.bitmask, 3), [1, 2, 3]);
            assert_eq!(words(&bytes, found.allow_list, 3), [8, 10, 11]);
            assert_eq!(words(&bytes, found.ban_list, 2), [6, 7]);
        }
        assert_eq!((read(0).top_k, read(0).repetition, read(1).top_k), (7, 2.0, 0));
        let last = read(2);
        assert!(last.bitmask.is_null() && last.allow_list.is_null());
        assert_eq!([last.n_seen, last.n_logit_bias, last.n_allowed, last.n_banned], [0; 4]);
        // The lists end where the outputs begin.
        let words = 2 * 2 + 2 * (2 + 3 + 3 + 2);
        assert_eq!(exchange.tokens, align_up(exchange.lists + words * 4, PART_ALIGNMENT_BYTES));
        assert!(bytes[exchange.tokens as usize..].iter().all(|&byte| byte == 0xA5));
    }

    #[test]
    fn reports_are_copied_out_as_they_are_laid_out() {
        let wanted = Wanted { logprobs: true, ranks: false, entropies: true, best: 2 };
        let features = Features { processed: wanted, ..Features::NONE };
        let problem = problem(features, 2);
        let states = [1.0f32; 6];
        let hidden_states = MatrixRef::new(Operand::HiddenStates, &states, 3, 2).unwrap();
        let rows = HostRows { hidden_states, params: &[], rules: &[] };
        let exchange = Exchange::new(&problem, &rows);
        let words = exchange.bytes / 4;
        let bytes: Vec<u8> = (0..words as u32).flat_map(|word| word.to_ne_bytes()).collect();
        let mut output = Output::default();
        output.processed.wanted = wanted;
        output.resize(&problem).unwrap();
        exchange.read_outputs(&bytes, &mut output);
        let mut expected = (exchange.tokens / 4) as u32;
        let mut check = |values: &[u32]| {
            assert_eq!(values, (expected..).take(values.len()).collect::<Vec<_>>());
            expected += values.len().next_multiple_of(2) as u32;
        };
        let bits = |values: &[f32]| values.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
        check(&output.tokens);
        check(&output.status.iter().map(|status| status.bits()).collect::<Vec<_>>());
        check(&bits(&output.scores));
        check(&bits(&output.margins));
        let Report { log_sum_exps, logprobs, ranks, entropies, best_tokens, best_logprobs, .. } =
            &output.processed;
        let lens = [log_sum_exps, logprobs, entropies, best_logprobs].map(Vec::len);
        assert_eq!((lens, ranks.len(), best_tokens.len()), ([3, 6, 3, 6], 0, 6));
        check(&bits(log_sum_exps));
        check(&bits(logprobs));
        check(&bits(entropies));
        check(best_tokens);
        check(&bits(best_logprobs));
        assert_eq!(u64::from(expected), words, "nothing is left");
    }
}
