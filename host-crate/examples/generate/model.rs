//! A llama forward pass up to the last hidden state, on candle's CPU ops.
//!
//! The logits are not computed here: they are the sampler's business.
//! Axes: `S` new tokens, `T` tokens so far, `D` hidden, `H` query heads, `K` key-value heads,
//! `E` values a head.

use anyhow::{Context, Result, bail, ensure};
use candle_core::{
    DType, Device, Module, Tensor,
    quantized::{GgmlDType, QMatMul},
};
use candle_nn::{
    kv_cache::KvCache,
    ops::{rms_norm, silu, softmax_last_dim},
    rotary_emb::rope_i,
};
use flash_sampling::bf16;

use crate::gguf::Gguf;

/// Positions by which a key-value cache grows.
const CACHE_STEP: usize = 256;
/// The rotary base of llama files that do not name one.
const DEFAULT_ROPE_BASE: f32 = 10_000.0;

/// The rows of the LM head, dequantized once.
pub(crate) struct LmHead {
    /// `[rows, hidden]`, row-major.
    pub(crate) weights: Vec<bf16>,
    pub(crate) rows: usize,
    pub(crate) hidden: usize,
}

impl LmHead {
    /// Drops the rows beyond the first `tokens`, which only fill up a round number.
    pub(crate) fn drop_padding(&mut self, tokens: usize) {
        self.rows = self.rows.min(tokens);
        self.weights.truncate(self.rows * self.hidden);
    }
}

/// A llama with its key-value cache.
pub(crate) struct Llama {
    embedding: QMatMul,
    layers: Vec<Layer>,
    norm: Norm,
    /// Angle per position of each rotated pair, `[E / 2]`.
    rope_steps: Vec<f32>,
    position: usize,
    context: usize,
}

impl Llama {
    /// Loads the model and its head: the embedding itself where there is no `output.weight`.
    pub(crate) fn load(gguf: &mut Gguf) -> Result<(Self, LmHead)> {
        let architecture = gguf.text("general.architecture").unwrap_or("unnamed");
        ensure!(
            architecture == "llama",
            "the model's architecture is `{architecture}`, this example runs `llama`: \
             pass another --model"
        );
        let shape = Shape::read(gguf)?;
        let rope_steps = rope_steps(gguf, &shape)?;
        let embedding = QMatMul::from_qtensor(gguf.tensor("token_embd.weight")?)?;
        let norm = Norm::load(gguf, &shape, "output_norm.weight")?;
        let layers = (0..gguf.count("llama.block_count")?)
            .map(|layer| Layer::load(gguf, &shape, &format!("blk.{layer}")))
            .collect::<Result<_>>()?;
        let head = load_head(gguf)?;
        let context = gguf.count("llama.context_length")?;
        if let Some(name) = gguf.unread_tensor() {
            bail!(
                "the model has a tensor `{name}`, which this example's llama lacks: \
                 pass another --model"
            );
        }
        let model = Self { embedding, layers, norm, rope_steps, position: 0, context };
        Ok((model, head))
    }

    /// The most tokens the model was trained to see at once.
    pub(crate) fn context(&self) -> usize {
        self.context
    }

    /// Feeds `tokens` after those already seen; the hidden state `[D]` of the last one, ready
    /// for the LM head.
    pub(crate) fn forward(&mut self, tokens: &[u32]) -> Result<Vec<bf16>> {
        let ids = Tensor::new(tokens, &Device::Cpu)?;
        let mut x = self.embedding.embedding(&ids)?; // [S, D]
        let step = Step::new(self.position, tokens.len(), &self.rope_steps)?;
        for layer in &mut self.layers {
            x = layer.forward(&x, &step)?;
        }
        self.position += tokens.len();
        let last = self.norm.forward(&x.narrow(0, tokens.len() - 1, 1)?)?;
        Ok(last.to_dtype(DType::BF16)?.flatten_all()?.to_vec1()?)
    }
}

/// The sizes that the layers share.
struct Shape {
    heads: usize,
    kv_heads: usize,
    head_size: usize,
    epsilon: f32,
}

impl Shape {
    fn read(gguf: &Gguf) -> Result<Self> {
        let heads = gguf.count("llama.attention.head_count")?;
        let kv_heads = gguf.count("llama.attention.head_count_kv").unwrap_or(heads);
        let head_size = match gguf.count("llama.attention.key_length") {
            Ok(size) => size,
            Err(_) => gguf.count("llama.embedding_length")? / heads,
        };
        ensure!(
            heads.is_multiple_of(kv_heads) && head_size.is_multiple_of(2),
            "the model's attention makes no sense: {heads} heads of {head_size} \
             over {kv_heads} key-value heads"
        );
        let epsilon = gguf
            .value("llama.attention.layer_norm_rms_epsilon")
            .and_then(|value| value.to_f32().ok())
            .context("the model's metadata lacks `llama.attention.layer_norm_rms_epsilon`")?;
        Ok(Self { heads, kv_heads, head_size, epsilon })
    }
}

/// What every layer needs to know of the tokens being fed.
struct Step {
    cos: Tensor,
    sin: Tensor,
    /// `[S, T]`, zero where a token may look and −∞ where it may not; a single token may look
    /// everywhere.
    mask: Option<Tensor>,
}

impl Step {
    fn new(past: usize, tokens: usize, rope_steps: &[f32]) -> Result<Self> {
        let angles: Vec<f32> = (past..past + tokens)
            .flat_map(|position| rope_steps.iter().map(move |step| position as f32 * step))
            .collect();
        let angles = Tensor::from_vec(angles, (tokens, rope_steps.len()), &Device::Cpu)?;
        let mask = (tokens > 1)
            .then(|| {
                let mask: Vec<f32> = (past..past + tokens)
                    .flat_map(|query| {
                        (0..past + tokens)
                            .map(move |key| if key <= query { 0.0 } else { f32::NEG_INFINITY })
                    })
                    .collect();
                Tensor::from_vec(mask, (tokens, past + tokens), &Device::Cpu)
            })
            .transpose()?;
        Ok(Self { cos: angles.cos()?, sin: angles.sin()?, mask })
    }
}

struct Layer {
    attention_norm: Norm,
    attention: Attention,
    mlp_norm: Norm,
    mlp: Mlp,
}

impl Layer {
    fn load(gguf: &mut Gguf, shape: &Shape, prefix: &str) -> Result<Self> {
        Ok(Self {
            attention_norm: Norm::load(gguf, shape, &format!("{prefix}.attn_norm.weight"))?,
            attention: Attention::load(gguf, shape, prefix)?,
            mlp_norm: Norm::load(gguf, shape, &format!("{prefix}.ffn_norm.weight"))?,
            mlp: Mlp::load(gguf, prefix)?,
        })
    }

    fn forward(&mut self, x: &Tensor, step: &Step) -> Result<Tensor> {
        let x = (x + self.attention.forward(&self.attention_norm.forward(x)?, step)?)?;
        Ok((&x + self.mlp.forward(&self.mlp_norm.forward(&x)?)?)?)
    }
}

/// Grouped-query attention: `H / K` neighboring query heads share one key-value head.
struct Attention {
    query: QMatMul,
    key: QMatMul,
    value: QMatMul,
    output: QMatMul,
    cache: KvCache,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
}

impl Attention {
    fn load(gguf: &mut Gguf, shape: &Shape, prefix: &str) -> Result<Self> {
        let mut weights = |name| matrix(gguf, &format!("{prefix}.attn_{name}.weight"));
        Ok(Self {
            query: weights("q")?,
            key: weights("k")?,
            value: weights("v")?,
            output: weights("output")?,
            cache: KvCache::new(1, CACHE_STEP),
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            head_size: shape.head_size,
        })
    }

    fn forward(&mut self, x: &Tensor, step: &Step) -> Result<Tensor> {
        let tokens = x.dim(0)?;
        let group_rows = self.heads / self.kv_heads * tokens;
        let query = self.split(&self.query.forward(x)?, self.heads)?;
        let key = self.split(&self.key.forward(x)?, self.kv_heads)?;
        let value = self.split(&self.value.forward(x)?, self.kv_heads)?;
        let (query, key) = (rotate(&query, step)?, rotate(&key, step)?);
        let (keys, values) = self.cache.append(&key, &value)?; // [K, T, E]

        // A group's query heads lie side by side, so they are rows of one product with their keys.
        let query = query.reshape((self.kv_heads, group_rows, self.head_size))?;
        let mut scores = (query.matmul(&keys.t()?)? / (self.head_size as f64).sqrt())?;
        if let Some(mask) = &step.mask {
            let by_head = scores.reshape((self.heads, tokens, ()))?;
            scores = by_head.broadcast_add(mask)?.reshape(scores.shape())?;
        }
        let mixed = softmax_last_dim(&scores)?.matmul(&values)?; // [K, H / K · S, E]
        let mixed = mixed
            .reshape((self.heads, tokens, self.head_size))?
            .transpose(0, 1)?
            .reshape((tokens, self.heads * self.head_size))?;
        Ok(self.output.forward(&mixed)?)
    }

    /// `[S, heads · E]` to `[heads, S, E]`.
    fn split(&self, x: &Tensor, heads: usize) -> Result<Tensor> {
        let x = x.reshape((x.dim(0)?, heads, self.head_size))?;
        Ok(x.transpose(0, 1)?.contiguous()?)
    }
}

/// GGUF stores llama's query and key rows for the interleaved rotation: pairs are neighbors,
/// not halves.
fn rotate(x: &Tensor, step: &Step) -> Result<Tensor> {
    Ok(rope_i(&x.unsqueeze(0)?, &step.cos, &step.sin)?.squeeze(0)?)
}

struct Mlp {
    gate: QMatMul,
    up: QMatMul,
    down: QMatMul,
}

impl Mlp {
    fn load(gguf: &mut Gguf, prefix: &str) -> Result<Self> {
        let mut weights = |name| matrix(gguf, &format!("{prefix}.ffn_{name}.weight"));
        Ok(Self { gate: weights("gate")?, up: weights("up")?, down: weights("down")? })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let gate = silu(&self.gate.forward(x)?)?;
        Ok(self.down.forward(&(gate * self.up.forward(x)?)?)?)
    }
}

struct Norm {
    weight: Tensor,
    epsilon: f32,
}

impl Norm {
    fn load(gguf: &mut Gguf, shape: &Shape, name: &str) -> Result<Self> {
        Ok(Self { weight: gguf.tensor(name)?.dequantize(&Device::Cpu)?, epsilon: shape.epsilon })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(rms_norm(x, &self.weight, self.epsilon)?)
    }
}

/// Weights of a product.
///
/// candle has vector code for most quantized types; the others are slower than f32 and round more.
fn matrix(gguf: &mut Gguf, name: &str) -> Result<QMatMul> {
    use GgmlDType::{Q4_1, Q5_0, Q5_1, Q8_1};
    let weights = gguf.tensor(name)?;
    Ok(match weights.dtype() {
        Q4_1 | Q5_0 | Q5_1 | Q8_1 => QMatMul::Tensor(weights.dequantize(&Device::Cpu)?),
        _ => QMatMul::from_qtensor(weights)?,
    })
}

fn load_head(gguf: &mut Gguf) -> Result<LmHead> {
    let tied = !gguf.has_tensor("output.weight");
    let head = gguf.tensor(if tied { "token_embd.weight" } else { "output.weight" })?;
    let (rows, hidden) = head.shape().dims2()?;
    let weights = head.dequantize(&Device::Cpu)?.to_dtype(DType::BF16)?;
    Ok(LmHead { weights: weights.flatten_all()?.to_vec1()?, rows, hidden })
}

/// How far one position turns each pair; long-context models slow some pairs by `rope_freqs`.
fn rope_steps(gguf: &mut Gguf, shape: &Shape) -> Result<Vec<f32>> {
    let scaling = gguf.text("llama.rope.scaling.type").unwrap_or("none");
    ensure!(
        scaling == "none",
        "the model scales its rotations by `{scaling}`, which this example does not know: \
         pass another --model"
    );
    let rotated = gguf.count("llama.rope.dimension_count").unwrap_or(shape.head_size);
    ensure!(
        rotated == shape.head_size,
        "the model rotates {rotated} of {} values a head, this example rotates all: \
         pass another --model",
        shape.head_size
    );
    let base = gguf
        .value("llama.rope.freq_base")
        .and_then(|value| value.to_f32().ok())
        .unwrap_or(DEFAULT_ROPE_BASE);
    let mut steps: Vec<f32> =
        (0..rotated).step_by(2).map(|pair| base.powf(-(pair as f32) / rotated as f32)).collect();
    if gguf.has_tensor("rope_freqs.weight") {
        let slowdown = gguf.tensor("rope_freqs.weight")?.dequantize(&Device::Cpu)?;
        let slowdown = slowdown.to_vec1::<f32>()?;
        for (step, slowdown) in steps.iter_mut().zip(slowdown) {
            *step /= slowdown;
        }
    }
    Ok(steps)
}
