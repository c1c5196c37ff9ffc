//! The chat format that the model was trained on.

use anyhow::{Context, Result};
use minijinja::{Environment, context};

use crate::gguf::Gguf;

/// The model's own template of a conversation.
pub(super) struct ChatFormat {
    template: String,
    bos: String,
    eos: String,
}

impl ChatFormat {
    /// The file's template, if it has one.
    pub(super) fn read(gguf: &Gguf) -> Option<Self> {
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
    pub(super) fn render(&self, prompt: &str) -> Result<String> {
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
