//! From text to tokens and back, with what the GGUF file says about both.

use anyhow::{Result, anyhow, bail, ensure};
use tokenizers::Tokenizer;

use crate::gguf::Gguf;
use chat::ChatFormat;

mod byte_level;
mod chat;
mod sentencepiece;

/// A model's tokenizer and chat format.
pub(crate) struct Vocabulary {
    tokenizer: Tokenizer,
    size: usize,
    chat: Option<ChatFormat>,
    stops: Vec<u64>,
}

impl Vocabulary {
    /// Builds the tokenizer that the file's metadata describes.
    pub(crate) fn load(gguf: &mut Gguf) -> Result<Self> {
        let tokenizer = match gguf.text("tokenizer.ggml.model").unwrap_or("unnamed") {
            "gpt2" => byte_level::build(gguf)?,
            "llama" => sentencepiece::build(gguf)?,
            other => bail!(
                "the model's tokenizer is `{other}`, which this example does not know: \
                 pass another --model"
            ),
        };
        let tokens = gguf.value("tokenizer.ggml.tokens").and_then(|tokens| tokens.to_vec().ok());
        let stops = ["eos", "eot"].iter().filter_map(|name| gguf.token_id(name)).collect();
        Ok(Self {
            tokenizer,
            size: tokens.map_or(0, Vec::len),
            chat: ChatFormat::read(gguf),
            stops,
        })
    }

    /// How many tokens there are; an LM head may have more rows, as padding.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Whether the model ends its answer by this token.
    pub(crate) fn is_stop(&self, token: u32) -> bool {
        self.stops.contains(&token.into())
    }

    /// The tokens of a prompt: a user's message in the model's chat format, or plain if `raw`
    /// or if the model has none.
    pub(crate) fn encode(&self, prompt: &str, raw: bool) -> Result<Vec<u32>> {
        let encoding = match &self.chat {
            // The format writes the special tokens itself.
            Some(chat) if !raw => self.tokenizer.encode(chat.render(prompt)?, false),
            _ => self.tokenizer.encode(prompt, true),
        };
        let encoding = encoding.map_err(|error| anyhow!("cannot encode the prompt: {error}"))?;
        ensure!(!encoding.is_empty(), "the prompt is empty, pass a --prompt");
        Ok(encoding.get_ids().to_vec())
    }

    /// One token's text, quoted.
    pub(crate) fn quote(&self, token: u32) -> String {
        format!("{:?}", self.tokenizer.decode(&[token], false).unwrap_or_default())
    }

    /// A function that takes token after token and returns text once its characters are whole.
    pub(crate) fn stream(&self) -> impl FnMut(u32) -> Result<Option<String>> {
        let mut stream = self.tokenizer.decode_stream(true);
        move |token| {
            stream.step(token).map_err(|error| anyhow!("cannot decode token {token}: {error}"))
        }
    }
}
