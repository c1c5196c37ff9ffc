//! The rates of the card at hand, measured in the same run as the calls.

use crate::baseline::{Cublas, Logits, Product};
use crate::bursts::{Burst, cooled};
use crate::gpu::Gpu;
use crate::kernels::Kernels;
use crate::meter::Meter;
use crate::shapes::Shape;
use crate::timing::Summary;

/// Bytes that are read or copied.
const BYTES: u64 = 2 << 30;
/// Rows, columns and depth of the product that measures the tensor cores.
const PRODUCT: u32 = 8_192;
const REPEATS: usize = 10;

/// Terabytes a second of a plain read, and of a copy, read and written together.
#[derive(Clone, Copy, Debug)]
pub struct MemoryRates {
    /// The ceiling of every call.
    pub read_tbps: f64,
    /// For comparison with other cards.
    pub copy_tbps: f64,
}

/// Measures both over much more than the cache holds.
///
/// # Errors
/// There is not enough memory, or the driver refuses.
pub fn memory_tbps(gpu: &Gpu, meter: &Meter, kernels: &Kernels) -> anyhow::Result<MemoryRates> {
    let from = gpu.random(1, BYTES / 2, 1.0, 1)?;
    let to = gpu.allocate(BYTES)?;
    let read = Burst::new(gpu, &from, 500.0, |from| kernels.read(gpu, from, &to))?;
    let copy = Burst::new(gpu, &from, 1_000.0, |from| gpu.copy(from, &to))?;
    let tbps = |us: f64| BYTES as f64 / us * 1e-6;
    Ok(MemoryRates {
        read_tbps: tbps(median_us(gpu, meter, read)?),
        copy_tbps: 2.0 * tbps(median_us(gpu, meter, copy)?),
    })
}

/// A square bf16 product through cuBLASLt: teraflops.
///
/// # Errors
/// There is not enough memory, or the library has no algorithm.
pub fn product_tflops(gpu: &Gpu, meter: &Meter, cublas: &Cublas) -> anyhow::Result<f64> {
    let shape = Shape { name: "square", vocab: PRODUCT, hidden: PRODUCT };
    let matrices = gpu.random(2, u64::from(PRODUCT).pow(2), 1.0, 2)?;
    let call = Product::new(cublas, gpu, &shape, PRODUCT, matrices[1].address(), Logits::Bf16)?;
    let us = median_us(gpu, meter, Burst::of_call(gpu, &call, &matrices[..1], 1_500.0)?)?;
    Ok(2.0 * f64::from(PRODUCT).powi(3) / us * 1e-6)
}

fn median_us(gpu: &Gpu, meter: &Meter, burst: Burst) -> anyhow::Result<f64> {
    let times = cooled(gpu, meter, &[burst], REPEATS)?;
    let samples = times.into_iter().flat_map(|times| times.samples).collect();
    Ok(Summary::of(samples).map_or(f64::NAN, |summary| summary.median))
}
