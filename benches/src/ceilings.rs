//! The floor of a call: what no kernel on the card can undercut, and the rates it
//! rests on.

use crate::shapes::Shape;

/// Rates of one H200, in a round figure that every run's floor shares, so that floors
/// compare across runs; a run prints what it measured itself beside them.
///
/// Source: a reduction over 2 GB, and a dense bf16 product of random matrices.
pub const H200: Rates = Rates { read_tbps: 4.3, product_tflops: 790.0 };

/// How fast a card reads and multiplies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Terabytes that it reads in a second.
    pub read_tbps: f64,
    /// Teraflops of a bf16 product with f32 accumulation.
    pub product_tflops: f64,
}

impl Rates {
    /// Least microseconds of a call: the weights are read once, and every product of
    /// a weight and a hidden state is taken.
    pub fn floor_us(&self, shape: &Shape, batch: u32) -> f64 {
        let bytes = shape.weights_bytes() as f64;
        let flops = bytes * f64::from(batch);
        (bytes / self.read_tbps).max(flops / self.product_tflops) * 1e-6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_dearer_of_reading_and_multiplying() {
        let shape = Shape::find("qwen3-8b").expect("the shape is listed");
        let close = |floor: f64, expected: f64| (floor - expected).abs() < 0.05;
        assert!(close(H200.floor_us(&shape, 1), 289.5));
        assert!(close(H200.floor_us(&shape, 128), 289.5));
        assert!(close(H200.floor_us(&shape, 256), 403.3));
    }
}
