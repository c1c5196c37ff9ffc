//! Pinned values. The files are part of the binary, so that a GPU machine needs none.
//!
//! `FLASH_SAMPLING_BLESS=1 cargo test -p flash-sampling-tests` rewrites those that differ
//! and fails all the same: a run that rewrites never passes. A change of a golden file
//! is token-breaking and belongs in the CHANGELOG.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// A golden file.
pub struct Golden {
    name: &'static str,
    text: &'static str,
}

macro_rules! golden {
    ($name:literal) => {
        Golden { name: $name, text: include_str!(concat!("../golden/", $name)) }
    };
}

/// Random words of keys, draws and tokens.
pub const WORDS: Golden = golden!("words.txt");
/// Noise of words.
pub const NOISE: Golden = golden!("noise.txt");
/// Digests of the noise of ranges of words.
pub const DIGESTS: Golden = golden!("digests.txt");
/// Tokens of exact cases.
pub const TOKENS: Golden = golden!("tokens.txt");

impl Golden {
    /// Demands that the file has this header and these lines.
    pub fn assert_equal(&self, header: &str, lines: impl IntoIterator<Item = String>) {
        let mut expected = format!("# {header}\n");
        for line in lines {
            writeln!(expected, "{line}").expect("a String takes everything");
        }
        if self.text == expected {
            return;
        }
        if env::var_os("FLASH_SAMPLING_BLESS").is_some_and(|value| value == "1") {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(self.name);
            fs::write(&path, &expected).expect("the golden file can be written");
            panic!("rewrote golden/{}; run again without FLASH_SAMPLING_BLESS", self.name);
        }
        let differs = |(_, (golden, found)): &(usize, (&str, &str))| golden != found;
        let pairs = self.text.lines().zip(expected.lines());
        match pairs.enumerate().find(differs) {
            Some((i, (golden, found))) => {
                panic!("golden/{}, line {}: expected {golden:?}, found {found:?}", self.name, i + 1)
            }
            None => panic!(
                "golden/{} has {} lines, found {}",
                self.name,
                self.text.lines().count(),
                expected.lines().count()
            ),
        }
    }
}
