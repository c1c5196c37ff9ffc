//! The files of a run: rows as CSV, written as they are measured, and tables as
//! Markdown with where they come from.

mod tables;

pub use tables::provenance_table;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Our whole call at temperature 1, with the planner's variant.
pub const OURS: &str = "ours";
/// The same at temperature 0: what is left without the noise.
pub const OURS_GREEDY: &str = "ours T=0";
/// The same at a temperature that leaves logits as they are: random words are drawn, and no
/// noise comes of them.
pub const OURS_WORDS: &str = "ours words only";
/// Ours by `Sampler::enqueue_programmatic`.
pub const OURS_PROGRAMMATIC: &str = "ours PDL";
/// The matrix product alone.
pub const CUBLAS: &str = "cuBLAS";
/// The product, then a sampling kernel over the stored logits.
pub const CUBLAS_SAMPLED: &str = "cuBLAS + sampling";

/// What ours is compared with.
pub const BASELINES: [&str; 2] = [CUBLAS, CUBLAS_SAMPLED];

/// One contender in one cell of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The model's name.
    pub shape: String,
    /// V.
    pub vocab: u32,
    /// D.
    pub hidden: u32,
    /// B.
    pub batch: u32,
    /// How bursts follow each other.
    pub protocol: Protocol,
    /// [`OURS`] and so on.
    pub contender: String,
    /// The variant or algorithm that ran, or why none did.
    pub detail: String,
    /// Bursts measured; 0 if it did not run.
    pub repeats: u32,
    /// Calls of a burst.
    pub calls: u32,
    /// Microseconds of a call: 10th percentile over the bursts.
    pub p10_us: Option<f64>,
    /// Median.
    pub median_us: Option<f64>,
    /// 90th percentile.
    pub p90_us: Option<f64>,
    /// What no kernel can undercut; see [`crate::ceilings`].
    pub floor_us: f64,
    /// Clock of the multiprocessors during a burst, in MHz.
    pub sm_mhz: Option<u32>,
    /// The card's power during a burst, in watts.
    pub power_w: Option<f64>,
    /// Microseconds that the host takes to enqueue one call.
    pub host_us: Option<f64>,
    /// Microseconds between events around one call on an idle stream, launch included.
    pub eager_us: Option<f64>,
}

/// How bursts of calls follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Each after an idle pause: the card is at full clock.
    Cooled,
    /// Back to back until the card has settled: its power limit counts.
    Sustained,
}

impl Protocol {
    /// Both, in the order of a report.
    pub const ALL: [Self; 2] = [Self::Cooled, Self::Sustained];

    /// The word in reports and file names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cooled => "cooled",
            Self::Sustained => "sustained",
        }
    }
}

/// A run's rows and where they come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Names and values, such as the commit and the card.
    pub provenance: Vec<(String, String)>,
    /// The rows, in the order they were measured.
    pub records: Vec<Record>,
}

/// A CSV that grows row by row, so that a run that is cut short keeps its rows.
#[derive(Debug)]
pub struct CsvFile(csv::Writer<File>);

impl CsvFile {
    /// Begins the file with the provenance as comments.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, provenance: &[(String, String)]) -> anyhow::Result<Self> {
        let context = || format!("cannot write {}", path.display());
        let mut file = File::create(path).with_context(context)?;
        for (name, value) in provenance {
            writeln!(file, "# {name}: {value}").with_context(context)?;
        }
        Ok(Self(csv::Writer::from_writer(file)))
    }

    /// Adds a row, on disk when this returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, record: &impl Serialize) -> anyhow::Result<()> {
        self.0.serialize(record)?;
        Ok(self.0.flush()?)
    }
}

impl Run {
    /// Reads what [`CsvFile`] wrote.
    ///
    /// # Errors
    /// The file cannot be read, or a row lacks a column.
    pub fn read_csv(path: &Path) -> anyhow::Result<Self> {
        let context = || format!("cannot read {}", path.display());
        let mut provenance = Vec::new();
        for line in BufReader::new(File::open(path).with_context(context)?).lines() {
            let line = line.with_context(context)?;
            let Some(comment) = line.strip_prefix("# ") else { break };
            let (name, value) = comment.split_once(": ").unwrap_or((comment, ""));
            provenance.push((name.to_owned(), value.to_owned()));
        }
        let mut reader =
            csv::ReaderBuilder::new().comment(Some(b'#')).from_path(path).with_context(context)?;
        let records = reader.deserialize().collect::<Result<_, _>>().with_context(context)?;
        Ok(Self { provenance, records })
    }

    /// This run and then `later`, which measures the cells again that `again` names.
    #[must_use]
    pub fn continued(mut self, later: Self, again: impl Fn(&str, u32) -> bool) -> Self {
        self.records.retain(|record| !again(&record.shape, record.batch));
        self.records.extend(later.records);
        for fact in later.provenance {
            if !self.provenance.contains(&fact) {
                self.provenance.push(fact);
            }
        }
        self
    }

    /// The shapes' names, each once.
    pub fn shapes(&self) -> Vec<&str> {
        unique(self.records.iter().map(|record| record.shape.as_str()))
    }

    /// The rows of a shape, grouped by batch size, ascending.
    pub fn cells(&self, shape: &str, protocol: Protocol) -> Vec<Vec<&Record>> {
        let rows = || {
            self.records
                .iter()
                .filter(|record| record.shape == shape && record.protocol == protocol)
        };
        let mut batches = unique(rows().map(|record| record.batch));
        batches.sort_unstable();
        batches
            .into_iter()
            .map(|batch| rows().filter(|record| record.batch == batch).collect())
            .collect()
    }
}

/// An argument for the provenance, with only the last part of its path: where things lie
/// on that machine helps nobody.
pub fn without_folders(argument: &str) -> String {
    let (option, path) = match argument.split_once('=') {
        Some((option, path)) if option.starts_with('-') => (format!("{option}="), path),
        _ => (String::new(), argument),
    };
    option + path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// One line for a cell's rows, as they come.
pub fn summary(records: &[Record]) -> String {
    let Some(first) = records.first() else { return String::new() };
    let mut text = format!("{} B={}", first.shape, first.batch);
    for protocol in Protocol::ALL {
        let cell: Vec<_> = records.iter().filter(|record| record.protocol == protocol).collect();
        if cell.is_empty() {
            continue;
        }
        let _ = write!(text, " | {}", protocol.name());
        for record in &cell {
            let _ = match record.median_us {
                Some(median) => write!(text, " {} {median:.1}", record.contender),
                None => write!(text, " {} not run,", record.contender),
            };
        }
        let _ = write!(text, " floor {:.1}", first.floor_us);
        if let Some(ratio) = ratio(&cell, CUBLAS) {
            let _ = write!(text, ", ÷ {CUBLAS} {ratio:.3}");
        }
    }
    text
}

/// The row of `contender` in a cell.
pub fn find<'a>(cell: &[&'a Record], contender: &str) -> Option<&'a Record> {
    cell.iter().find(|record| record.contender == contender).copied()
}

/// The contenders of a shape, each once, in the order they ran.
pub fn contenders<'a>(cells: &[Vec<&'a Record>]) -> Vec<&'a str> {
    unique(cells.iter().flatten().map(|record| record.contender.as_str()))
}

/// Ours over `baseline`, of medians.
pub fn ratio(cell: &[&Record], baseline: &str) -> Option<f64> {
    Some(find(cell, OURS)?.median_us? / find(cell, baseline)?.median_us?)
}

/// Which part of a call's time the floor explains.
pub fn share_of_floor(record: &Record) -> Option<f64> {
    Some(record.floor_us / record.median_us?)
}

fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;

    /// A run of one shape with made-up times.
    pub(crate) fn example() -> Run {
        let record = |batch, contender: &str, median_us: Option<f64>, detail: &str| Record {
            shape: "qwen3-8b".into(),
            vocab: 151_936,
            hidden: 4096,
            batch,
            protocol: Protocol::Cooled,
            contender: contender.into(),
            detail: detail.into(),
            repeats: 20,
            calls: 6,
            p10_us: median_us.map(|median| median - 1.0),
            median_us,
            p90_us: median_us.map(|median| median + 1.0),
            floor_us: 289.5,
            sm_mhz: Some(1980),
            power_w: None,
            host_us: Some(2.5),
            eager_us: Some(310.0),
        };
        let missing = "no cuBLASLt, \"libcublasLt.so\"";
        Run {
            provenance: vec![("commit".into(), "abc".into()), ("card".into(), "a: b".into())],
            records: vec![
                record(16, OURS, Some(300.0), "mma_b16_bf16"),
                record(16, CUBLAS, Some(400.0), "heuristic 1 of 8"),
                record(1, OURS, Some(290.0), "mma_b8_bf16"),
                record(1, CUBLAS, None, missing),
            ],
        }
    }

    #[test]
    fn a_csv_gives_back_what_was_written() {
        let run = example();
        let path = std::env::temp_dir().join(format!("report-{}.csv", std::process::id()));
        let mut file = CsvFile::create(&path, &run.provenance).unwrap();
        for record in &run.records {
            file.push(record).unwrap();
        }
        assert_eq!(Run::read_csv(&path).unwrap(), run);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_report_tells_no_folders() {
        for (argument, shown) in [
            ("--shape", "--shape"),
            ("1,8,16", "1,8,16"),
            ("/usr/lib/libcublasLt.so.13", "libcublasLt.so.13"),
            ("out/of/it/", "it"),
            ("--cublaslt=/usr/lib/libcublasLt.so.13", "--cublaslt=libcublasLt.so.13"),
            ("--out=here", "--out=here"),
        ] {
            assert_eq!(without_folders(argument), shown);
        }
    }

    #[test]
    fn a_later_run_replaces_the_cells_that_it_measured() {
        let (first, mut later) = (example(), example());
        later.provenance[0].1 = "def".into();
        later.records.retain(|record| record.batch == 16);
        later.records[0].median_us = Some(200.0);
        let both = first.continued(later, |shape, batch| shape == "qwen3-8b" && batch == 16);
        let cells = both.cells("qwen3-8b", Protocol::Cooled);
        assert_eq!(cells.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(ratio(&cells[1], CUBLAS), Some(0.5));
        let commits = both.provenance.iter().filter(|(name, _)| name == "commit").count();
        assert_eq!((commits, both.provenance.len()), (2, 3));
    }

    #[test]
    fn a_line_tells_a_cell() {
        let run = example();
        let line = "qwen3-8b B=16 | cooled ours 300.0 cuBLAS 400.0 floor 289.5, ÷ cuBLAS 0.750";
        assert_eq!(summary(&run.records[..2]), line);
        assert!(summary(&run.records[2..]).contains("cuBLAS not run"));
    }
}
