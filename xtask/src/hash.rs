//! SHA-256 of texts and of source trees, in hexadecimal.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use sha2::{Digest, Sha256};

/// Hash of a file's text.
pub(crate) fn text(text: &str) -> String {
    hex(&Sha256::digest(text))
}

/// Hash of names and contents of all files in `parts` of `root`.
pub(crate) fn tree(root: &Path, parts: &[&str]) -> anyhow::Result<String> {
    let mut files = Vec::new();
    for part in parts {
        list_files(&root.join(part), &mut files)?;
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let name = file.strip_prefix(root)?.to_str().context("a file name is not UTF-8")?;
        let contents = fs::read(&file)?;
        // Lengths keep one file's end from being taken for the next one's beginning.
        for bytes in [name.as_bytes(), &contents] {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
    }
    Ok(hex(&hash.finalize()))
}

fn list_files(path: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            list_files(&entry?.path(), files)?;
        }
    } else {
        files.push(path.to_owned());
    }
    Ok(())
}

/// A digest as people write it.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn a_moved_byte_changes_the_hash() {
        let root = workspace::target("hash-test");
        let hash = |a: &str, b: &str| {
            fs::create_dir_all(root.join("src")).unwrap();
            fs::write(root.join("src/a.rs"), a).unwrap();
            fs::write(root.join("src/b.rs"), b).unwrap();
            tree(&root, &["src"]).unwrap()
        };
        let original = hash("one", "two");
        assert_ne!(hash("onet", "wo"), original);
        assert_eq!(hash("one", "two"), original);
    }
}
