//! The time of a whole call on a GPU, beside the matrix product alone and the floor.
//!
//! `cargo bench -p flash-sampling-benches --features cuda --bench decode -- --help`

#![allow(clippy::print_stdout, reason = "a benchmark talks to whoever runs it")]

use std::path::{Path, PathBuf};

use clap::Parser;
use flash_sampling_benches::plot;
use flash_sampling_benches::report::{Protocol, Run};
use flash_sampling_benches::shapes::{SHAPES, Shape};

/// Times whole calls on a GPU and writes a report, a CSV and charts.
#[derive(Debug, Parser)]
struct Options {
    /// Shape to run, by its model; may be repeated. All by default.
    #[arg(long = "shape", value_name = "MODEL", value_parser = parse_shape)]
    shapes: Vec<Shape>,
    /// Batch size to run; may be repeated or a list with commas.
    #[arg(long = "batch", value_name = "B", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    batches: Vec<u32>,
    /// Two shapes, four batch sizes, half the repeats.
    #[arg(long)]
    quick: bool,
    /// Also run back to back until the card has settled.
    #[arg(long)]
    sustained: bool,
    /// Bursts of each contender in each cell.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
    /// Begins no cell after so many seconds; the report says which were left out.
    #[arg(long, value_name = "S", default_value_t = 540)]
    seconds: u64,
    /// Variant to time in place of the planner's choice.
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Variant to time beside the planner's choice; may be repeated.
    #[arg(long, value_name = "NAME")]
    beside: Vec<String>,
    /// Also times calls that may start before the one before has ended.
    #[arg(long)]
    programmatic: bool,
    /// Times the plain call and calls whose rows ask for more, each beside cuBLASLt's product
    /// and a sampler apart, and nothing else.
    #[arg(long)]
    features: bool,
    /// The cuBLASLt library, such as `…/libcublasLt.so.13`, if the loader does not find it.
    #[arg(long, value_name = "FILE")]
    cublaslt: Option<PathBuf>,
    /// Device.
    #[arg(long, value_name = "ORDINAL", default_value_t = 0)]
    device: u32,
    /// Keeps the rows of the same day's CSV that this run does not measure again.
    #[arg(long)]
    append: bool,
    /// Folder of the report, the CSV and the charts.
    #[arg(long, value_name = "FOLDER", default_value = "benches/results")]
    out: PathBuf,
    /// Commit that the binary was built from, for the report.
    #[arg(long, value_name = "HASH", default_value = option_env!("FLASH_SAMPLING_COMMIT").unwrap_or("unknown"))]
    commit: String,
    /// Measures nothing: writes the report and the charts of a CSV again.
    #[arg(long, value_name = "CSV")]
    plot_from: Option<PathBuf>,
    /// Said by `cargo bench` to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn parse_shape(name: &str) -> Result<Shape, String> {
    let names = || SHAPES.iter().map(|shape| shape.name).collect::<Vec<_>>().join(", ");
    Shape::find(name).ok_or_else(|| format!("the shapes are {}", names()))
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    match &options.plot_from {
        Some(csv) => {
            let run = Run::read_csv(csv)?;
            write(&run, &csv.with_extension(""))
        }
        None => measure(&options),
    }
}

/// Writes the report and the charts of a run as `<stem>.md` and `<stem>-….svg`.
fn write(run: &Run, stem: &Path) -> anyhow::Result<()> {
    let report = stem.with_extension("md");
    run.write_markdown(&report)?;
    for protocol in Protocol::ALL {
        plot::write(run, protocol, stem)?;
    }
    println!("wrote {} and its charts", report.display());
    Ok(())
}

#[cfg(not(feature = "cuda"))]
fn measure(_: &Options) -> anyhow::Result<()> {
    println!("decode: nothing measured, as this was built without the feature `cuda`");
    Ok(())
}

#[cfg(feature = "cuda")]
fn measure(options: &Options) -> anyhow::Result<()> {
    use anyhow::{Context, ensure};
    use flash_sampling_benches::report::CsvFile;
    use flash_sampling_benches::session::{Session, Settings};

    let session = Session::open(&Settings {
        device: options.device,
        variant: options.variant.clone(),
        beside: options.beside.clone(),
        programmatic: options.programmatic,
        cublaslt: options.cublaslt.clone(),
        repeats: options.repeats.unwrap_or(if options.quick { 10 } else { 20 }),
        sustained: options.sustained,
    })?;
    let mut run = Run { provenance: session.provenance().to_vec(), records: Vec::new() };
    run.provenance.insert(0, ("commit".into(), options.commit.clone()));
    for (name, value) in &run.provenance {
        println!("{name}: {value}");
    }

    std::fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot create {}", options.out.display()))?;
    let stem = options.out.join(session.file_stem()?);
    if options.features {
        return measure_features(&session, options, &run.provenance, &stem);
    }
    let csv = stem.with_extension("csv");
    let cells = cells(options);
    if options.append && csv.exists() {
        let again = |shape: &str, batch| cells.iter().any(|(s, b)| s.name == shape && *b == batch);
        run = Run::read_csv(&csv)?.continued(run, again);
    }
    let mut file = CsvFile::create(&csv, &run.provenance)?;
    run.records.iter().try_for_each(|record| file.push(record))?;
    // What was measured before an error is worth a report.
    let measured = measure_cells(&session, options, &cells, &mut run, &mut file);
    write(&run, &stem)?;
    let missing = measured?;
    ensure!(missing == 0, "ours did not run, or was wrong, in {missing} cells");
    Ok(())
}

/// Measures what features cost in each cell, as long as there is time.
#[cfg(feature = "cuda")]
fn measure_features(
    session: &flash_sampling_benches::session::Session,
    options: &Options,
    provenance: &[(String, String)],
    stem: &Path,
) -> anyhow::Result<()> {
    use std::time::{Duration, Instant};

    use flash_sampling_benches::{costs, features};

    let begin = Instant::now();
    let stem = PathBuf::from(format!("{}-features", stem.display()));
    let mut measured = Vec::new();
    let cells = cells(options);
    for cells in cells.chunk_by(|(a, _), (b, _)| a == b) {
        let rows = cells.iter().map(|&(_, batch)| batch).max().unwrap_or(1);
        let data = session.data(&cells[0].0, rows)?;
        for (shape, batch) in cells {
            if begin.elapsed() >= Duration::from_secs(options.seconds) {
                println!("{} B={batch}: no time was left", shape.name);
                continue;
            }
            for cost in features::costs(session, shape, *batch, &data)? {
                println!("{} {}", shape.name, cost.row());
                measured.push(cost);
            }
            // What was measured before an error is worth a report.
            costs::write(&stem, provenance, &measured)?;
        }
    }
    Ok(())
}

/// Measures the cells and returns in how many of them ours gave no time.
#[cfg(feature = "cuda")]
fn measure_cells(
    session: &flash_sampling_benches::session::Session,
    options: &Options,
    cells: &[(Shape, u32)],
    run: &mut Run,
    file: &mut flash_sampling_benches::report::CsvFile,
) -> anyhow::Result<usize> {
    use std::time::{Duration, Instant};

    use flash_sampling_benches::report::{OURS, summary};

    let begin = Instant::now();
    let mut missing = 0;
    for cells in cells.chunk_by(|(a, _), (b, _)| a == b) {
        let shape = cells[0].0;
        let rows = cells.iter().map(|&(_, batch)| batch).max().unwrap_or(1);
        let in_time = || begin.elapsed() < Duration::from_secs(options.seconds);
        let data = in_time().then(|| session.data(&shape, rows)).transpose()?;
        for &(_, batch) in cells {
            let records = match &data {
                Some(data) if in_time() => {
                    let records = session.cell(&shape, batch, data)?;
                    missing += usize::from(
                        records
                            .iter()
                            .any(|record| record.contender == OURS && record.median_us.is_none()),
                    );
                    records
                }
                _ => session.left_out(&shape, batch, "no time was left"),
            };
            records.iter().try_for_each(|record| file.push(record))?;
            println!("{:4.0} s  {}", begin.elapsed().as_secs_f64(), summary(&records));
            run.records.extend(records);
        }
    }
    Ok(missing)
}

/// The cells asked for, shape by shape.
#[cfg(feature = "cuda")]
fn cells(options: &Options) -> Vec<(Shape, u32)> {
    use flash_sampling_benches::shapes::{BATCHES, QUICK_BATCHES, QUICK_SHAPES};

    let shapes: &[Shape] = match (&options.shapes[..], options.quick) {
        ([], true) => &SHAPES[..QUICK_SHAPES],
        ([], false) => SHAPES,
        (asked, _) => asked,
    };
    let batches: &[u32] = match (&options.batches[..], options.quick) {
        ([], true) => QUICK_BATCHES,
        ([], false) => BATCHES,
        (asked, _) => asked,
    };
    shapes.iter().flat_map(|&shape| batches.iter().map(move |&batch| (shape, batch))).collect()
}
