//! `host-crate/ptx/manifest.toml`: what the committed PTX was made from.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::{Codegen, Tool};
use crate::ptxas::Resources;
use crate::{hash, workspace};

const HEADER: &str = "# Written by `cargo xtask build-ptx`, never by hand.\n\n";

/// What the committed PTX was made from.
#[derive(Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// [`source_hash`] at the time.
    pub(crate) sources: String,
    pub(crate) codegen: Codegen,
    #[serde(flatten)]
    pub(crate) tool: Tool,
    /// Version of the ptxas that measured the resources, where there was one.
    pub(crate) ptxas: Option<String>,
    pub(crate) files: Vec<FileRecord>,
}

/// The PTX of one architecture.
#[derive(Serialize, Deserialize)]
pub(crate) struct FileRecord {
    pub(crate) arch: String,
    /// Hash of the text.
    pub(crate) sha256: String,
    /// What each entry needs; empty without ptxas.
    #[serde(default)]
    pub(crate) entries: BTreeMap<String, Resources>,
}

impl FileRecord {
    /// Its name in [`folder`].
    pub(crate) fn file_name(&self) -> String {
        file_name(&self.arch)
    }
}

/// Name of an architecture's file in [`folder`].
pub(crate) fn file_name(arch: &str) -> String {
    format!("flash_sampling.{arch}.ptx")
}

impl Manifest {
    pub(crate) fn read() -> anyhow::Result<Self> {
        let path = path();
        let text = fs::read_to_string(&path).with_context(|| {
            format!("no {}; `cargo xtask build-ptx` writes it", workspace::shown(&path))
        })?;
        toml::from_str(&text).with_context(|| {
            format!("{} is damaged; `cargo xtask build-ptx` rewrites it", workspace::shown(&path))
        })
    }

    pub(crate) fn write(&self) -> anyhow::Result<()> {
        fs::write(path(), HEADER.to_owned() + &toml::to_string(self)?)?;
        Ok(())
    }
}

/// Where the PTX is committed.
pub(crate) fn folder() -> PathBuf {
    workspace::root().join("host-crate/ptx")
}

/// The manifest's own place.
pub(crate) fn path() -> PathBuf {
    folder().join("manifest.toml")
}

/// Hash of all that decides the PTX besides the compiler: names and contents of the
/// kernels crate's manifest and sources.
pub(crate) fn source_hash() -> anyhow::Result<String> {
    hash::tree(&workspace::root().join("kernels-crate"), &["Cargo.toml", "src"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_survives_its_own_text() {
        let resources = Resources { registers: 40, shared_bytes: 16, ..Resources::default() };
        let manifest = Manifest {
            sources: "00".into(),
            codegen: Codegen::RustCuda,
            tool: Tool { compiler: "rustc".into(), backend: "LLVM".into() },
            ptxas: None,
            files: vec![FileRecord {
                arch: "sm_80".into(),
                sha256: "11".into(),
                entries: BTreeMap::from([("entry".into(), resources)]),
            }],
        };
        let text = toml::to_string(&manifest).unwrap();
        let again: Manifest = toml::from_str(&text).unwrap();
        assert_eq!(toml::to_string(&again).unwrap(), text);
        assert!(text.contains("codegen = \"rust-cuda\""));
    }
}
