//! LM heads by the model they belong to, and the batch sizes of a decode step.

/// The LM head of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The model, as a word of a command line.
    pub name: &'static str,
    /// V: rows of the weights.
    pub vocab: u32,
    /// D: their length.
    pub hidden: u32,
}

impl Shape {
    /// Bytes of the weights in bf16, which every call has to read.
    pub const fn weights_bytes(&self) -> u64 {
        self.vocab as u64 * self.hidden as u64 * 2
    }

    /// The shape called `name`.
    pub fn find(name: &str) -> Option<Self> {
        SHAPES.iter().find(|shape| shape.name == name).copied()
    }
}

const fn shape(name: &'static str, vocab: u32, hidden: u32) -> Shape {
    Shape { name, vocab, hidden }
}

/// Every shape, as the models' published configurations have it.
pub const SHAPES: &[Shape] = &[
    shape("qwen3-8b", 151_936, 4_096),
    shape("llama-3-70b", 128_256, 8_192),
    shape("gemma-3-1b", 262_144, 1_152),
    shape("llama-3.2-1b", 128_256, 2_048),
    shape("deepseek-v3", 129_280, 7_168),
    shape("smollm2", 49_152, 576),
];

/// Those worth a CPU's time.
pub const CPU_SHAPES: &[Shape] =
    &[shape("smollm2", 49_152, 576), shape("qwen3-0.6b", 151_936, 1_024)];

/// Batch sizes of a decode step.
pub const BATCHES: &[u32] = &[1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512];

/// Of [`SHAPES`], how many a quick run takes.
pub const QUICK_SHAPES: usize = 2;

/// Batch sizes of a quick run.
pub const QUICK_BATCHES: &[u32] = &[1, 16, 64, 256];
