//! The files of a run with features: a row for each feature in each cell, as CSV and as tables.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use crate::report::{CsvFile, provenance_table};

/// Logits have unit variance: at this temperature some 600 of 151,936 tokens have nine
/// tenths of the probability, as they may have in a model.
pub const TEMPERATURE: f32 = 0.25;

/// One feature in one cell: our call, and the product and a sampler apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The model's name.
    pub shape: String,
    /// V.
    pub vocab: u32,
    /// D.
    pub hidden: u32,
    /// B.
    pub batch: u32,
    /// What every row asks for.
    pub feature: String,
    /// The variant, and the kernel behind it.
    pub detail: String,
    /// Microseconds of a call: 10th percentile over the bursts.
    pub p10_us: f64,
    /// Median.
    pub median_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// Median of the ratios to the plain call of the same round.
    pub ratio: f64,
    /// cuBLASLt's algorithm and the sampler behind it, or why they did not run.
    pub separate_detail: String,
    /// Microseconds of both: 10th percentile over the bursts.
    pub separate_p10_us: Option<f64>,
    /// Median.
    pub separate_median_us: Option<f64>,
    /// 90th percentile.
    pub separate_p90_us: Option<f64>,
    /// Median of the ratios, ours over separate, of the same round.
    pub ratio_to_separate: Option<f64>,
}

impl Cost {
    /// A table's row.
    pub fn row(&self) -> String {
        let Self { batch, feature, p10_us, median_us, p90_us, ratio, .. } = self;
        let mut row = format!(
            "| {batch} | {feature} | {median_us:.1} | {p10_us:.1} to {p90_us:.1} | {ratio:.3} |"
        );
        let separate = (self.separate_median_us, self.separate_p10_us, self.separate_p90_us);
        let _ = match (separate, self.ratio_to_separate) {
            ((Some(median), Some(p10), Some(p90)), Some(ratio)) => {
                write!(row, " {median:.1} | {p10:.1} to {p90:.1} | {ratio:.3} |")
            }
            _ => write!(row, " not run | – | – |"),
        };
        row
    }
}

/// Writes `<stem>.csv` and `<stem>.md`.
///
/// # Errors
/// A file cannot be written.
pub fn write(stem: &Path, provenance: &[(String, String)], costs: &[Cost]) -> anyhow::Result<()> {
    let mut csv = CsvFile::create(&stem.with_extension("csv"), provenance)?;
    costs.iter().try_for_each(|cost| csv.push(cost))?;
    let path = stem.with_extension("md");
    fs::write(&path, markdown(provenance, costs))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// A table for each shape, and why what is missing did not run.
fn markdown(provenance: &[(String, String)], costs: &[Cost]) -> String {
    let mut text = String::from("# Features on a GPU\n\n");
    text += "Written by `cargo bench -p flash-sampling-benches --bench decode -- --features`, never by hand.\n";
    text += "Every row of a call asks for the feature; microseconds of a whole call by graph replay, and the median of the ratios to the plain call of the same round.\n";
    text += "*Separate* is what there is without fusion, timed in the same rounds: cuBLASLt's product to stored logits, then a sampler over them.\n";
    text += "For plain rows that is bf16 logits and the benchmarks' sampling kernel, for all others f32 logits and our own kernel that finishes rows.\n";
    let _ = write!(
        text,
        "Logits have unit variance, and the temperature is {TEMPERATURE} unless the name says otherwise.\n\n"
    );
    provenance_table(&mut text, provenance);
    for cells in costs.chunk_by(|a, b| a.shape == b.shape) {
        let Cost { shape, vocab, hidden, .. } = &cells[0];
        let _ = writeln!(text, "\n## {shape}: V = {vocab}, D = {hidden}\n");
        text += "| B | feature | ours µs | 10th to 90th percentile | ratio to plain | separate µs | 10th to 90th percentile | ours ÷ separate |\n";
        text += "| --- | --- | --- | --- | --- | --- | --- | --- |\n";
        for cost in cells {
            text += &cost.row();
            text.push('\n');
        }
    }
    let mut reasons: Vec<_> = costs
        .iter()
        .filter(|cost| cost.separate_median_us.is_none())
        .map(|cost| cost.separate_detail.as_str())
        .collect();
    reasons.sort_unstable();
    reasons.dedup();
    if !reasons.is_empty() {
        text += "\n## Not run\n\n";
    }
    for reason in reasons {
        let _ = writeln!(text, "- separate: {reason}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(feature: &str) -> Cost {
        Cost {
            shape: "qwen3-8b".into(),
            vocab: 151_936,
            hidden: 4096,
            batch: 8,
            feature: feature.into(),
            detail: "sm90_b8_bf16".into(),
            p10_us: 299.0,
            median_us: 300.0,
            p90_us: 302.0,
            ratio: 1.1,
            separate_detail: "first heuristic".into(),
            separate_p10_us: Some(399.0),
            separate_median_us: Some(400.0),
            separate_p90_us: Some(401.0),
            ratio_to_separate: Some(0.75),
        }
    }

    fn without_separate(feature: &str) -> Cost {
        Cost {
            separate_detail: "libcublasLt was not found".into(),
            separate_p10_us: None,
            separate_median_us: None,
            separate_p90_us: None,
            ratio_to_separate: None,
            ..cost(feature)
        }
    }

    #[test]
    fn a_row_has_both_times_and_both_ratios() {
        let text = markdown(&[("card".into(), "a".into())], &[cost("top_k 50")]);
        let row =
            "| 8 | top_k 50 | 300.0 | 299.0 to 302.0 | 1.100 | 400.0 | 399.0 to 401.0 | 0.750 |\n";
        assert!(text.ends_with(row), "{text}");
        assert!(text.contains("| card | a |\n\n## qwen3-8b: V = 151936, D = 4096\n"), "{text}");
    }

    #[test]
    fn what_did_not_run_is_said_once_with_its_reason() {
        let text = markdown(&[], &[without_separate("plain"), without_separate("min_p 0.05")]);
        let row = "| 8 | plain | 300.0 | 299.0 to 302.0 | 1.100 | not run | – | – |\n";
        assert!(text.contains(row), "{text}");
        let end = "\n## Not run\n\n- separate: libcublasLt was not found\n";
        assert!(text.ends_with(end), "{text}");
        assert_eq!(text.matches("libcublasLt").count(), 1);
    }

    #[test]
    fn every_row_of_the_csv_has_all_columns() {
        let stem = std::env::temp_dir().join(format!("costs-{}", std::process::id()));
        write(&stem, &[], &[cost("plain"), without_separate("top_p 0.9")]).unwrap();
        let csv = fs::read_to_string(stem.with_extension("csv")).unwrap();
        let lines: Vec<_> = csv.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].ends_with("separate_p90_us,ratio_to_separate"), "{csv}");
        assert!(lines[1].ends_with(",first heuristic,399.0,400.0,401.0,0.75"), "{csv}");
        assert!(lines[2].ends_with(",libcublasLt was not found,,,,"), "{csv}");
        for extension in ["csv", "md"] {
            fs::remove_file(stem.with_extension(extension)).unwrap();
        }
    }
}
