//! What the rows of a call that asks for a feature have in device memory.

use std::ptr::without_provenance;

use flash_sampling::TokenRules;
use flash_sampling::cuda::{RawReport, RowFeatures};

use crate::asked::Feature;
use crate::gpu::{Buffer, Gpu};
use crate::rows::Rows;

/// Parts of two reports, and the most values that a row has in one.
const REPORT_PARTS: u64 = 12;
const ROW_VALUES: u64 = 20;

/// Rows that all ask for the same, of tokens of their own, and room for their reports.
#[derive(Debug)]
pub struct AskedRows {
    /// What every call has.
    pub rows: Rows,
    /// `[B]` of [`RowFeatures`].
    pub features: Buffer,
    reports: Buffer,
    /// What the features point to.
    _lists: Vec<Buffer>,
}

impl AskedRows {
    /// B rows, and a cleared workspace.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(
        gpu: &Gpu,
        batch: u32,
        feature: &Feature<'_>,
        workspace_bytes: u64,
    ) -> anyhow::Result<Self> {
        let (features, lists) = upload(gpu, batch, feature)?;
        Ok(Self {
            rows: Rows::new(gpu, batch, feature.params.temperature, workspace_bytes)?,
            features: gpu.upload(&features)?,
            reports: gpu.allocate(REPORT_PARTS * u64::from(batch) * ROW_VALUES * 4)?,
            _lists: lists,
        })
    }

    /// Where the report on the model's distribution goes.
    pub fn raw(&self) -> RawReport {
        self.report(0)
    }

    /// Where the report on each row's goes.
    pub fn processed(&self) -> RawReport {
        self.report(REPORT_PARTS / 2)
    }

    /// Six of the reports' parts.
    fn report(&self, first: u64) -> RawReport {
        let part_bytes = self.reports.bytes() as u64 / REPORT_PARTS;
        let part = |part: u64| self.reports.address() + (first + part) * part_bytes;
        RawReport {
            log_sum_exps: part(0),
            logprobs: part(1),
            ranks: part(2),
            entropies: part(3),
            best_tokens: part(4),
            best_logprobs: part(5),
        }
    }
}

/// The rows' features as words, and the lists that they point to. Edits are of other tokens in
/// each row.
fn upload(gpu: &Gpu, batch: u32, feature: &Feature<'_>) -> anyhow::Result<(Vec<u64>, Vec<Buffer>)> {
    const WORDS: usize = size_of::<RowFeatures>() / size_of::<u64>();
    let TokenRules { seen, logit_bias, bitmask, allow_list, ban_list } = feature.rules;
    let of_rows = |pairs: &[[u32; 2]]| {
        // Ids from one to the next are as far apart.
        let gap = if let [[a, _], [b, _], ..] = pairs { b - a } else { 1 };
        let of_row = |row: u32| pairs.iter().map(move |&[id, of_id]| [id + row % gap, of_id]);
        let all: Vec<_> = (0..batch).flat_map(of_row).collect();
        gpu.upload(all.as_flattened())
    };
    let lists = vec![
        of_rows(&seen.iter().map(|seen| [seen.token, seen.count]).collect::<Vec<_>>())?,
        of_rows(&logit_bias.iter().map(|&(id, y)| [id, y.to_bits()]).collect::<Vec<_>>())?,
        gpu.upload(bitmask.unwrap_or(&[]))?,
        gpu.upload(allow_list.unwrap_or(&[]))?,
        gpu.upload(ban_list)?,
    ];
    let address =
        |list: usize, wanted: bool| if wanted { lists[list].address() as usize } else { 0 };
    let of_row = |row: usize| -> anyhow::Result<[u64; WORDS]> {
        let features = RowFeatures {
            seen: without_provenance(address(0, true) + row * size_of_val(seen)),
            logit_bias: without_provenance(address(1, true) + row * size_of_val(logit_bias)),
            bitmask: without_provenance(address(2, bitmask.is_some())),
            allow_list: without_provenance(address(3, allow_list.is_some())),
            ban_list: without_provenance(address(4, true)),
            n_seen: u32::try_from(seen.len())?,
            n_logit_bias: u32::try_from(logit_bias.len())?,
            n_allowed: u32::try_from(allow_list.map_or(0, <[u32]>::len))?,
            n_banned: u32::try_from(ban_list.len())?,
            ..RowFeatures::from(&feature.params)
        };
        // SAFETY: the sizes are equal, there is no padding, and any bits are a word.
        Ok(unsafe { std::mem::transmute::<RowFeatures, [u64; WORDS]>(features) })
    };
    let words = (0..batch as usize).map(of_row).collect::<anyhow::Result<Vec<_>>>()?;
    Ok((words.concat(), lists))
}
