//! From text to tokens and back, with what the GGUF file says about both.

use anyhow::{Context, Result, anyhow, bail, ensure};
use candle_core::quantized::{gguf_file::Value, tokenizer::TokenizerFromGguf};
use minijinja::{Environment, context};
use tokenizers::{
    PreTokenizerWrapper, Tokenizer,
    pre_tokenizers::{byte_level::ByteLevel, digits::Digits, sequence::Sequence},
};

use crate::gguf::Gguf;

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
        let splitter = splitter(gguf)?;
        let mut tokenizer = Tokenizer::from_gguf(&gguf.content)
            .context("the model's tokenizer cannot be built, pass another --model")?;
        if let Some(splitter) = splitter {
            tokenizer.with_pre_tokenizer(Some(splitter));
        }
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

    /// The tokens of a prompt: a user's message in the model's chat format, or plain if `raw` or if it has none.
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

    /// A function that takes token after token and returns text as soon as its characters are whole.
    pub(crate) fn stream(&self) -> impl FnMut(u32) -> Result<Option<String>> {
        let mut stream = self.tokenizer.decode_stream(true);
        move |token| {
            stream.step(token).map_err(|error| anyhow!("cannot decode token {token}: {error}"))
        }
    }
}

/// How text is cut into words before byte pairs merge within them, where candle's builder does not know:
/// it reads llama.cpp's name for this, but knows few of them and takes the rest for a GPT-2 that adds a leading space.
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
            "the model splits text like `{other}`, which this example does not know: pass another --model"
        ),
    }
}

/// The model's own template of a conversation.
struct ChatFormat {
    template: String,
    bos: String,
    eos: String,
}

impl ChatFormat {
    fn read(gguf: &Gguf) -> Option<Self> {
        let tokens = gguf.value("tokenizer.ggml.tokens")?.to_vec().ok()?;
        let special = |name| {
            let token = tokens.get(usize::try_from(gguf.token_id(name)?).ok()?)?;
            token.to_string().ok().cloned()
        };
        Some(Self {
            template: gguf.text("tokenizer.chat_template")?.to_owned(),
            bos: special("bos").unwrap_or_default(),
            eos: special("eos").unwrap_or_default(),
        })
    }

    /// The text of a conversation of one user's message, up to where the answer begins.
    fn render(&self, prompt: &str) -> Result<String> {
        let mut environment = Environment::new();
        // The settings under which these templates are written.
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        let text = environment.render_str(
            &self.template,
            context! {
                messages => [context! { role => "user", content => prompt }],
                add_generation_prompt => true,
                bos_token => self.bos,
                eos_token => self.eos,
            },
        );
        text.context("the model's chat template cannot be rendered, pass --raw")
    }
}
