//! A run as charts, one panel for each shape.

use std::path::Path;

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::report::{BASELINES, Protocol, Record, Run, contenders, find, ratio, share_of_floor};

/// Width and height of a panel in pixels.
const PANEL: (u32, u32) = (520, 380);
/// Panels beside each other.
const COLUMNS: usize = 2;
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
];

/// A named line through (B, value).
#[derive(Debug, PartialEq)]
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// The charts of a run under `protocol`, written beside each other as
/// `<stem>-<chart>.svg`; nothing if the run has no such rows.
///
/// # Errors
/// A file cannot be written.
pub fn write(run: &Run, protocol: Protocol, stem: &Path) -> anyhow::Result<()> {
    let charts: [(&str, &str, Scale, Lines); 3] = [
        ("time", "microseconds of a call", Scale::Logarithmic, time_lines),
        ("share", "share of the floor", Scale::Linear, share_lines),
        ("ratio", "ours ÷ baseline", Scale::Linear, ratio_lines),
    ];
    for (name, unit, scale, lines) in charts {
        let panels: Vec<_> = run
            .shapes()
            .into_iter()
            .map(|shape| (shape, lines(&run.cells(shape, protocol))))
            .filter(|(_, lines)| !lines.is_empty())
            .collect();
        if panels.is_empty() {
            continue;
        }
        let mut file = stem.as_os_str().to_owned();
        file.push(format!("-{}-{name}.svg", protocol.name()));
        let rows = panels.len().div_ceil(COLUMNS);
        let columns = panels.len().min(COLUMNS);
        let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32);
        let root = SVGBackend::new(Path::new(&file), size).into_drawing_area();
        let failed = |error: &dyn std::fmt::Display| {
            anyhow!("cannot draw {}: {error}", Path::new(&file).display())
        };
        root.fill(&WHITE).map_err(|error| failed(&error))?;
        for ((shape, lines), area) in panels.iter().zip(root.split_evenly((rows, columns))) {
            let caption = format!("{shape} ({}): {unit}", protocol.name());
            panel(&area, &caption, scale, lines).map_err(|error| failed(&error))?;
        }
        root.present().map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// What a chart shows of a shape's cells.
type Lines = fn(&[Vec<&Record>]) -> Vec<Line>;

#[derive(Clone, Copy)]
enum Scale {
    Linear,
    Logarithmic,
}

fn time_lines(cells: &[Vec<&Record>]) -> Vec<Line> {
    let mut lines = by_contender(cells, |record| record.median_us);
    if !lines.is_empty() {
        lines.push(line("floor", cells, |cell| Some(cell[0].floor_us)));
    }
    lines
}

fn share_lines(cells: &[Vec<&Record>]) -> Vec<Line> {
    by_contender(cells, share_of_floor)
}

fn ratio_lines(cells: &[Vec<&Record>]) -> Vec<Line> {
    let lines = BASELINES
        .map(|baseline| line(&format!("ours ÷ {baseline}"), cells, |cell| ratio(cell, baseline)));
    lines.into_iter().filter(|line| !line.points.is_empty()).collect()
}

fn by_contender(cells: &[Vec<&Record>], value: fn(&Record) -> Option<f64>) -> Vec<Line> {
    contenders(cells)
        .into_iter()
        .map(|contender| line(contender, cells, |cell| find(cell, contender).and_then(value)))
        .filter(|line| !line.points.is_empty())
        .collect()
}

fn line(name: &str, cells: &[Vec<&Record>], value: impl Fn(&[&Record]) -> Option<f64>) -> Line {
    let point = |cell: &Vec<&Record>| Some((f64::from(cell[0].batch), value(cell)?));
    Line { name: name.to_owned(), points: cells.iter().filter_map(point).collect() }
}

/// Draws `lines` over a logarithmic axis of batch sizes.
fn panel<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    caption: &str,
    scale: Scale,
    lines: &[Line],
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let (batches, values) = (bounds(points().map(|(b, _)| b)), bounds(points().map(|(_, y)| y)));
    // A line needs an extent even where all points share a batch size.
    let batches = (batches.0 * 0.9..batches.1 * 1.1).log_scale();
    let mut builder = ChartBuilder::on(area);
    builder
        .caption(caption, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(52);
    // The two scales are two types of axis: everything drawn is the same.
    macro_rules! draw {
        ($values:expr) => {{
            let mut chart = builder.build_cartesian_2d(batches, $values)?;
            chart.configure_mesh().x_desc("B").light_line_style(WHITE).draw()?;
            for (line, color) in lines.iter().zip(COLORS.iter().cycle()) {
                chart
                    .draw_series(LineSeries::new(
                        line.points.iter().copied(),
                        color.stroke_width(2),
                    ))?
                    .label(&line.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
                let dots = line.points.iter().map(|&point| Circle::new(point, 3, color.filled()));
                chart.draw_series(dots)?;
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.3))
                .draw()?;
        }};
    }
    match scale {
        Scale::Linear => draw!(0.0..values.1.max(1.0) * 1.25),
        Scale::Logarithmic => draw!((values.0 * 0.8..values.1 * 2.0).log_scale()),
    }
    Ok(())
}

/// Least and greatest of `values`, of which there is at least one.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(low, high), value| (low.min(value), high.max(value)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::report::tests::example;

    #[test]
    fn a_line_skips_what_did_not_run() {
        let run = example();
        let cells = run.cells("qwen3-8b", Protocol::Cooled);
        let names: Vec<_> = time_lines(&cells).into_iter().map(|line| line.name).collect();
        assert_eq!(names, ["ours", "cuBLAS", "floor"]);
        let expected = [Line { name: "ours ÷ cuBLAS".into(), points: vec![(16.0, 0.75)] }];
        assert_eq!(ratio_lines(&cells), expected);
    }

    #[test]
    fn charts_are_written_for_the_protocols_that_ran() {
        let folder = std::env::temp_dir().join(format!("plot-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for protocol in Protocol::ALL {
            write(&example(), protocol, &folder.join("run")).unwrap();
        }
        let mut files: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let charts = ["run-cooled-ratio.svg", "run-cooled-share.svg", "run-cooled-time.svg"];
        assert_eq!(files, charts);
        let svg = fs::read_to_string(folder.join("run-cooled-time.svg")).unwrap();
        assert!(svg.ends_with("</svg>\n") && svg.contains("qwen3-8b (cooled)"));
        fs::remove_dir_all(folder).unwrap();
    }
}
