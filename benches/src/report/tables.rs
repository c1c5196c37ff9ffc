//! A run as Markdown.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context;

use super::{
    BASELINES, OURS, Protocol, Record, Run, contenders, find, ratio, share_of_floor, unique,
};

impl Run {
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
        text +=
            "Written by `cargo bench -p flash-sampling-benches --bench decode`, never by hand.\n";
        text += "Microseconds of a whole call by graph replay on random bf16 data: median (10th to 90th percentile).\n\n";
        provenance_table(&mut text, &self.provenance);
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

    fn not_run(&self, text: &mut String) {
        let missing = self.records.iter().filter(|record| record.median_us.is_none());
        let reasons =
            unique(missing.clone().map(|record| (record.contender.as_str(), &record.detail)));
        if !reasons.is_empty() {
            *text += "\n## Not run\n\n";
        }
        for (contender, reason) in reasons {
            let of_it =
                |record: &&Record| record.contender == contender && record.detail == *reason;
            let cells = missing.clone().filter(of_it).count();
            let _ = writeln!(text, "- {contender}, {cells} cells: {reason}");
        }
    }
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

/// Where a run's numbers come from.
pub fn provenance_table(text: &mut String, provenance: &[(String, String)]) {
    *text += "| | |\n| --- | --- |\n";
    for (name, value) in provenance {
        row(text, [name.clone(), value.clone()]);
    }
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

#[cfg(test)]
mod tests {
    use super::super::tests::example;

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
