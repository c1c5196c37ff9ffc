//! The rates of the card at hand, measured in the same run as the calls.

use crate::baseline::Cublas;
use crate::bursts::{Burst, cooled};
use crate::contender::Contender;
use crate::gpu::Gpu;
use crate::meter::Meter;
use crate::shapes::Shape;
use crate::timing::Summary;

/// Bytes of a copy: far more than the cache holds.
const COPY_BYTES: u64 = 2 << 30;
/// Rows, columns and depth of the product that measures the tensor cores.
const PRODUCT: u32 = 8_192;
const REPEATS: usize = 10;

/// A copy within the device's memory: terabytes a second, read and written together.
///
/// # Errors
/// There is not enough memory, or the driver refuses.
pub fn copy_tbps(gpu: &Gpu, meter: &Meter) -> anyhow::Result<f64> {
    let from = gpu.random(1, COPY_BYTES / 2, 1.0, 1)?;
    let to = gpu.allocate(COPY_BYTES)?;
    let us = median_us(gpu, meter, Burst::new(gpu, &from, 1_000.0, |from| gpu.copy(from, &to))?)?;
    Ok(2.0 * COPY_BYTES as f64 / us * 1e-6)
}

/// A square bf16 product through cuBLASLt: teraflops.
///
/// # Errors
/// There is not enough memory, or the library has no algorithm.
pub fn product_tflops(gpu: &Gpu, meter: &Meter, cublas: &Cublas) -> anyhow::Result<f64> {
    let shape = Shape { name: "square", vocab: PRODUCT, hidden: PRODUCT };
    let matrices = gpu.random(2, u64::from(PRODUCT).pow(2), 1.0, 2)?;
    let call = cublas.prepare(gpu, &shape, PRODUCT, matrices[1].address())?;
    let us = median_us(gpu, meter, Burst::of_call(gpu, &*call, &matrices[..1], 1_500.0)?)?;
    Ok(2.0 * f64::from(PRODUCT).powi(3) / us * 1e-6)
}

fn median_us(gpu: &Gpu, meter: &Meter, burst: Burst) -> anyhow::Result<f64> {
    let times = cooled(gpu, meter, &[burst], REPEATS)?;
    let samples = times.into_iter().flat_map(|times| times.samples).collect();
    Ok(Summary::of(samples).map_or(f64::NAN, |summary| summary.median))
}
