//! Byte pairs merged within words, as GPT-2 and Llama 3 do.

use anyhow::{Context, Result, bail};
use candle_core::quantized::{gguf_file::Value, tokenizer::TokenizerFromGguf};
use tokenizers::{
    PreTokenizerWrapper, Tokenizer,
    pre_tokenizers::{byte_level::ByteLevel, digits::Digits, sequence::Sequence},
};

use crate::gguf::Gguf;

/// The tokenizer of a file whose `tokenizer.ggml.model` is `gpt2`.
pub(super) fn build(gguf: &mut Gguf) -> Result<Tokenizer> {
    let splitter = splitter(gguf)?;
    let mut tokenizer = Tokenizer::from_gguf(&gguf.content)
        .context("the model's tokenizer cannot be built, pass another --model")?;
    if let Some(splitter) = splitter {
        tokenizer.with_pre_tokenizer(Some(splitter));
    }
    Ok(tokenizer)
}

/// How text is cut into words before byte pairs merge within them, where candle's builder does
/// not know: it reads llama.cpp's name for this, but knows few of them and takes the rest for a
/// GPT-2 that adds a leading space.
fn splitter(gguf: &mut Gguf) -> Result<Option<PreTokenizerWrapper>> {
    const NAME: &str = "tokenizer.ggml.pre";
    let words = ByteLevel::new(false, true, true);
    match gguf.text(NAME).unwrap_or("default") {
        "default" | "gpt-2" => Ok(Some(words.into())),
        "smollm" | "starcoder" | "refact" => {
            Ok(Some(Sequence::new(vec![Digits::new(true).into(), words.into()]).into()))
        }
        // Llama 3, whose words are looked up whole before they are built by merges.
        "llama-bpe" | "llama3" | "llama-v3" => {
            gguf.set(NAME, Value::String("llama3".to_owned()));
            gguf.set("tokenizer.ggml.ignore_merges", Value::Bool(true));
            Ok(None)
        }
        other => bail!(
            "the model splits text like `{other}`, which this example does not know: \
             pass another --model"
        ),
    }
}
