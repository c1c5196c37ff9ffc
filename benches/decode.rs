//! The time of a whole call on a GPU, beside the matrix product alone and the floor.
//!
//! `cargo bench -p flash-sampling-benches --features cuda --bench decode -- --help`

use std::path::PathBuf;

use clap::Parser;
use flash_sampling_benches::plot;
use flash_sampling_benches::report::{Protocol, Run};
use flash_sampling_benches::shapes::{BATCHES, SHAPES, Shape};

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
    /// The cuBLASLt library, such as `…/libcublasLt.so.13`, if the loader does not find it.
    #[arg(long, value_name = "FILE")]
    cublaslt: Option<PathBuf>,
    /// Device.
    #[arg(long, value_name = "ORDINAL", default_value_t = 0)]
    device: u32,
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
