//! `cargo xtask`: everything about this repository that is not `cargo build` or `cargo test`.
#![allow(clippy::print_stdout, reason = "a command-line tool")]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod build_ptx;
mod ci;
mod cuda_stub;
mod demo;
mod device;
mod hash;
mod programs;
mod ptx_report;
mod ptxas;
mod sass;
mod setup;
mod tidy;
mod workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The tasks of flash-sampling")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install the device compiler, or print the command that does
    Setup(setup::Args),
    /// Compile the kernels to host-crate/ptx, or verify what is there
    BuildPtx(build_ptx::Args),
    /// Compile the benchmarks' own kernels to benches/ptx, or verify what is there
    BenchPtx(build_ptx::benches::Args),
    /// Registers, spills and shared memory of every entry, by ptxas
    PtxReport(ptx_report::Args),
    /// A real model generates text through the sampler
    Demo(demo::Args),
    /// Build a stub libcuda, so that the `cuda` feature links without a driver
    CudaStub(cuda_stub::Args),
    /// Check what the compiler does not: paths in docs, invariants, licences
    Tidy(tidy::Args),
    /// Exactly what CI runs
    Ci(ci::Args),
    /// GPU test and bench binaries in one folder, to carry to a GPU machine
    DeviceBundle(device::BundleArgs),
    /// The GPU tests; fails without a GPU
    DeviceTest(device::Args),
    /// The GPU tests under the four tools of compute-sanitizer
    Sanitize(device::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    match task {
        Task::Setup(args) => setup::run(args),
        Task::BuildPtx(args) => build_ptx::run(args),
        Task::BenchPtx(args) => build_ptx::benches::run(args),
        Task::PtxReport(args) => ptx_report::run(args),
        Task::Demo(args) => demo::run(args),
        Task::CudaStub(args) => cuda_stub::run(args),
        Task::Tidy(args) => tidy::run(args),
        Task::Ci(args) => ci::run(args),
        Task::DeviceBundle(args) => device::run_bundle(args),
        Task::DeviceTest(args) => device::run_test(args),
        Task::Sanitize(args) => device::run_sanitize(args),
    }
}
