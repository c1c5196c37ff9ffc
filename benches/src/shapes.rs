//! LM heads, named by model.

/// The weights of an LM head: `[vocab, hidden]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The model.
    pub model: &'static str,
    /// V.
    pub vocab: usize,
    /// D.
    pub hidden: usize,
}

impl Shape {
    /// Bytes that a call must read at two bytes an element.
    pub const fn weights_bytes(&self) -> u64 {
        self.vocab as u64 * self.hidden as u64 * 2
    }
}

/// 57 MB.
pub const SMOLLM2_135M: Shape = Shape { model: "SmolLM2-135M", vocab: 49_152, hidden: 576 };
/// 311 MB.
pub const QWEN3_0_6B: Shape = Shape { model: "Qwen3-0.6B", vocab: 151_936, hidden: 1_024 };
/// 1.05 GB.
pub const LLAMA3_8B: Shape = Shape { model: "Llama-3.1-8B", vocab: 128_256, hidden: 4_096 };
/// 1.24 GB.
pub const QWEN3_8B: Shape = Shape { model: "Qwen3-8B", vocab: 151_936, hidden: 4_096 };

/// Those worth a CPU's time.
pub const CPU: [Shape; 2] = [SMOLLM2_135M, QWEN3_0_6B];
/// Those of a GPU.
pub const GPU: [Shape; 3] = [QWEN3_0_6B, LLAMA3_8B, QWEN3_8B];
