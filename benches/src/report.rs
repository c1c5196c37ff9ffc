//! The files of a run: rows as CSV, written as they are measured, and tables as
//! Markdown with where they come from.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Our whole call at temperature 1, with the planner's variant.
pub const OURS: &str = "ours";
/// The same at temperature 0: what is left without the noise.
pub const OURS_GREEDY: &str = "ours T=0";
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
    pub fn push(&mut self, record: &Record) -> anyhow::Result<()> {
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

    /// Writes the tables.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_markdown(&self, path: &Path) -> anyhow::Result<()> {
        fs::write(path, self.markdown()).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The tables: ratios first, then times, then what surrounds a call.
    pub fn markdown(&self) -> String {
        let mut text = String::from("# Decode benchmark\n\n");
        text += "Written by `cargo bench -p flash-sampling-benches --bench decode`, never by hand.\n";
        text += "Microseconds of a whole call by graph replay on random bf16 data: median (10th to 90th percentile).\n\n";
        text += "| | |\n| --- | --- |\n";
        for (name, value) in &self.provenance {
            row(&mut text, [name.clone(), value.clone()]);
        }
        for shape in self.shapes() {
            for protocol in Protocol::ALL {
                let cells = self.cells(shape, protocol);
                if let Some(first) = cells.first().and_then(|cell| cell.first()) {
                    let _ = write!(
                        text,
                        "\n## {shape}: V = {}, D = {}, {}\n\n",
                        first.vocab,
                        first.hidden,
                        protocol.name()
                    );
                    times(&mut text, &cells);
                    text.push('\n');
                    surroundings(&mut text, &cells);
                }
            }
        }
        self.not_run(&mut text);
        text
    }

    /// The shapes' names, each once.
    pub fn shapes(&self) -> Vec<&str> {
        unique(self.records.iter().map(|record| record.shape.as_str()))
    }

    /// The rows of a shape, grouped by batch size, ascending.
    pub fn cells(&self, shape: &str, protocol: Protocol) -> Vec<Vec<&Record>> {
        let rows = || {
            self.records.iter().filter(|record| record.shape == shape && record.protocol == protocol)
        };
        let mut batches = unique(rows().map(|record| record.batch));
        batches.sort_unstable();
        batches
            .into_iter()
            .map(|batch| rows().filter(|record| record.batch == batch).collect())
            .collect()
    }

    fn not_run(&self, text: &mut String) {
        let missing = self.records.iter().filter(|record| record.median_us.is_none());
        let reasons =
            unique(missing.clone().map(|record| (record.contender.as_str(), &record.detail)));
        if !reasons.is_empty() {
            *text += "\n## Not run\n\n";
        }
        for (contender, reason) in reasons {
            let of_it = |record: &&Record| record.contender == contender && record.detail == *reason;
            let cells = missing.clone().filter(of_it).count();
            let _ = writeln!(text, "- {contender}, {cells} cells: {reason}");
        }
    }
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

fn times(text: &mut String, cells: &[Vec<&Record>]) {
    let contenders = contenders(cells);
    let mut header = vec!["B".to_owned()];
    header.extend(BASELINES.map(|baseline| format!("ours ÷ {baseline}")));
    header.extend(["share of floor".into(), "floor".into()]);
    header.extend(contenders.iter().map(|&contender| contender.to_owned()));
    header.push("variant".into());
    rule(text, header);
    for cell in cells {
        let ours = find(cell, OURS);
        let mut columns = vec![cell[0].batch.to_string()];
        columns.extend(BASELINES.map(|baseline| number(ratio(cell, baseline), 3)));
        let share = ours.and_then(share_of_floor);
        columns.push(share.map_or_else(absent, |share| format!("{:.1} %", share * 100.0)));
        columns.push(format!("{:.1}", cell[0].floor_us));
        columns.extend(contenders.iter().map(|contender| spread(find(cell, contender))));
        columns.push(ours.map_or_else(absent, |record| record.detail.clone()));
        row(text, columns);
    }
}

fn surroundings(text: &mut String, cells: &[Vec<&Record>]) {
    let contenders = contenders(cells);
    let mut header = vec!["B".to_owned()];
    for contender in &contenders {
        header.push(format!("{contender}: host µs"));
        header.push("eager µs".into());
        header.push("MHz".into());
        header.push("W".into());
    }
    rule(text, header);
    for cell in cells {
        let mut columns = vec![cell[0].batch.to_string()];
        for contender in &contenders {
            let record = find(cell, contender);
            columns.push(number(record.and_then(|record| record.host_us), 2));
            columns.push(number(record.and_then(|record| record.eager_us), 1));
            columns.push(number(record.and_then(|record| record.sm_mhz).map(f64::from), 0));
            columns.push(number(record.and_then(|record| record.power_w), 0));
        }
        row(text, columns);
    }
}

fn spread(record: Option<&Record>) -> String {
    match record {
        Some(Record { p10_us: Some(p10), median_us: Some(median), p90_us: Some(p90), .. }) => {
            format!("{median:.1} ({p10:.1} to {p90:.1})")
        }
        Some(_) => "not run".into(),
        None => absent(),
    }
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(absent, |value| format!("{value:.decimals$}"))
}

fn absent() -> String {
    "–".into()
}

fn rule(text: &mut String, header: Vec<String>) {
    let columns = header.len();
    row(text, header);
    row(text, vec!["---".to_owned(); columns]);
}

fn row(text: &mut String, columns: impl IntoIterator<Item = String>) {
    for column in columns {
        *text += "| ";
        // A bar would begin a column.
        *text += &column.replace('|', "/");
        text.push(' ');
    }
    *text += "|\n";
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
    fn tables_put_ratios_first_and_batches_in_order() {
        let text = example().markdown();
        let rows: Vec<_> = text.lines().filter(|line| line.contains("mma_b")).collect();
        assert_eq!(
            rows,
            [
                "| 1 | – | – | 99.8 % | 289.5 | 290.0 (289.0 to 291.0) | not run | mma_b8_bf16 |",
                "| 16 | 0.750 | – | 96.5 % | 289.5 | 300.0 (299.0 to 301.0) | 400.0 (399.0 to 401.0) | mma_b16_bf16 |",
            ]
        );
        assert!(text.contains("| card | a: b |"));
    }

    #[test]
    fn what_did_not_run_is_said_with_its_reason() {
        let text = example().markdown();
        assert!(text.ends_with("- cuBLAS, 1 cells: no cuBLASLt, \"libcublasLt.so\"\n"), "{text}");
    }
}
