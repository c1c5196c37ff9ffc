//! A GGUF file: its metadata and its tensors, with errors that say what to do.

use std::{collections::HashSet, fs::File, io::BufReader, path::Path};

use anyhow::{Context, Result, bail};
use candle_core::{
    Device,
    quantized::{
        QTensor,
        gguf_file::{Content, Value},
    },
};

/// An open GGUF file.
pub(crate) struct Gguf {
    /// The parsed header, which candle's tokenizer builder reads too.
    pub(crate) content: Content,
    file: BufReader<File>,
    tensors_read: HashSet<String>,
}

impl Gguf {
    /// Opens `path` and reads its header.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let name = path.display();
        let file = File::open(path)
            .with_context(|| format!("cannot open the model {name}, check --model"))?;
        let mut file = BufReader::new(file);
        let content = Content::read(&mut file).with_context(|| {
            format!("{name} is not a whole GGUF file, download it again or check --model")
        })?;
        Ok(Self { content, file, tensors_read: HashSet::new() })
    }

    /// The value of `key`, if the file has one.
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.content.metadata.get(key)
    }

    /// The text of `key`, if the file has one.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.value(key)?.to_string().ok().map(String::as_str)
    }

    /// The elements of the array `key`, which must be there.
    pub(crate) fn list<T>(
        &self,
        key: &str,
        element: impl Fn(&Value) -> candle_core::Result<T>,
    ) -> Result<Vec<T>> {
        let values = self.value(key).and_then(|value| value.to_vec().ok());
        let values =
            values.with_context(|| format!("the model's metadata lacks the list `{key}`"))?;
        let list = values.iter().map(element).collect::<candle_core::Result<_>>();
        list.with_context(|| format!("the model's metadata has a broken list `{key}`"))
    }

    /// The id of the special token `name`: `bos`, `eos`, `eot`.
    pub(crate) fn token_id(&self, name: &str) -> Option<u64> {
        self.value(&format!("tokenizer.ggml.{name}_token_id"))?.to_u64().ok()
    }

    /// Sets `key` for those who read the metadata later.
    pub(crate) fn set(&mut self, key: &str, value: Value) {
        self.content.metadata.insert(key.to_owned(), value);
    }

    /// The positive count of `key`, which must be there.
    pub(crate) fn count(&self, key: &str) -> Result<usize> {
        let count = self.value(key).and_then(|value| value.to_u64().ok());
        match count.map(usize::try_from) {
            Some(Ok(count)) if count > 0 => Ok(count),
            _ => bail!("the model's metadata lacks a positive count `{key}`"),
        }
    }

    /// Whether the file has the tensor `name`.
    pub(crate) fn has_tensor(&self, name: &str) -> bool {
        self.content.tensor_infos.contains_key(name)
    }

    /// Reads the tensor `name`, still quantized.
    pub(crate) fn tensor(&mut self, name: &str) -> Result<QTensor> {
        self.tensors_read.insert(name.to_owned());
        self.content.tensor(&mut self.file, name, &Device::Cpu).with_context(|| {
            format!("cannot read the tensor `{name}`, the model is damaged: download it again")
        })
    }

    /// A tensor that nobody read, if there is one.
    pub(crate) fn unread_tensor(&self) -> Option<&str> {
        let names = self.content.tensor_infos.keys();
        names.map(String::as_str).filter(|&name| !self.tensors_read.contains(name)).min()
    }
}
