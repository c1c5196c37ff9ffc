//! A run as charts, one panel for each shape.

use std::ops::Range;
use std::path::Path;

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::report::{BASELINES, Protocol, Record, Run, contenders, find, ratio, share_of_floor};

/// Width and height of a panel in pixels.
const PANEL: (u32, u32) = (520, 380);
/// Panels beside each other.
const COLUMNS: usize = 2;
const FLOOR: &str = "floor";
/// Of the floor, which every chart of times has.
const FLOOR_COLOR: RGBColor = RGBColor(110, 110, 110);
/// Of the other lines, in the order of the contenders; distinct to the color-blind
/// (Okabe and Ito).
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(0, 0, 0),
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

/// How an axis of values is drawn.
#[derive(Clone, Copy)]
enum Scale {
    /// From 0 to at least 1.
    Linear,
    /// By powers of 2.
    Logarithmic,
}

impl Scale {
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Logarithmic => value.log2(),
        }
    }

    fn label(self, place: f64) -> String {
        match self {
            Self::Linear => format!("{place:.1}"),
            Self::Logarithmic => format!("{:.0}", place.exp2()),
        }
    }

    /// The places of an axis that shows `values`, with room for the legend.
    fn extent(self, values: impl Iterator<Item = f64>) -> Range<f64> {
        let (low, high) = values
            .map(|value| self.place(value))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), place| {
                (low.min(place), high.max(place))
            });
        match self {
            Self::Linear => 0.0..high.max(1.0) * 1.2,
            Self::Logarithmic => low - 0.2..high + 0.8,
        }
    }
}

fn time_lines(cells: &[Vec<&Record>]) -> Vec<Line> {
    let mut lines = by_contender(cells, |record| record.median_us);
    if !lines.is_empty() {
        lines.push(line(FLOOR, cells, |cell| Some(cell[0].floor_us)));
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
    let points = || lines.iter().flat_map(|line| &line.points);
    let batches = points().map(|(batch, _)| batch.log2());
    let (first, last) = batches
        .fold((f64::INFINITY, 0.0_f64), |(first, last), place| (first.min(place), last.max(place)));
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(
            first - 0.2..last + 0.2,
            scale.extent(points().map(|&(_, value)| value)),
        )?;
    chart
        .configure_mesh()
        .x_desc("B")
        .x_labels(10)
        .x_label_formatter(&|place| Scale::Logarithmic.label(*place))
        .y_label_formatter(&|place| scale.label(*place))
        .light_line_style(WHITE)
        .draw()?;
    for (line, color) in lines.iter().zip(COLORS.into_iter().cycle()) {
        let color = if line.name == FLOOR { FLOOR_COLOR } else { color };
        let points = line.points.iter().map(|&(batch, value)| (batch.log2(), scale.place(value)));
        chart
            .draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
        chart.draw_series(points.map(|point| Circle::new(point, 3, color.filled())))?;
    }
    let legend = match scale {
        Scale::Linear => SeriesLabelPosition::LowerLeft,
        Scale::Logarithmic => SeriesLabelPosition::UpperLeft,
    };
    chart
        .configure_series_labels()
        .position(legend)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
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
