//! The committed PTX as text: its entries, and what stands in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use flash_sampling_kernels::abi::kept::{KeptVariant, kept_variant};
use flash_sampling_kernels::abi::{Kernel, VARIANTS, Variant};

pub mod together;

/// A committed file: architecture, compute capability, PTX ISA version.
pub const FILES: [(&str, u32, &str); 2] = [("sm_80", 80, "7.4"), ("sm_90a", 90, "8.0")];

/// An entry's text, in its three parts.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Bytes of each parameter.
    pub parameters: Vec<usize>,
    /// What stands between the parameters and the body.
    pub bounds: String,
    /// Its lines.
    pub body: Vec<String>,
}

impl Entry {
    /// Instructions whose name begins with `prefix`, predicated ones too.
    pub fn count(&self, prefix: &str) -> usize {
        self.body.iter().filter(|line| instruction(line).starts_with(prefix)).count()
    }
}

/// A line without its guard predicate.
pub fn instruction(line: &str) -> &str {
    match line.strip_prefix('@') {
        Some(guarded) => guarded.split_once([' ', '\t']).map_or("", |(_, rest)| rest.trim_start()),
        None => line,
    }
}

/// A committed file.
///
/// # Panics
/// It cannot be read.
pub fn text(arch: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host-crate/ptx");
    let path = folder.join(format!("flash_sampling.{arch}.ptx"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The entries of a file by name.
pub fn entries(ptx: &str) -> BTreeMap<String, Entry> {
    let parts = ptx.split(".entry ").skip(1);
    let entry = |part: &str| {
        let (name, rest) = part.split_once('(').expect("a parameter list begins");
        let (parameters, rest) = rest.split_once(')').expect("the parameter list ends");
        let (bounds, rest) = rest.split_once("\n{").expect("a body begins");
        let body = &rest[..end_of_body(rest)];
        let entry = Entry {
            parameters: parameters.split(',').map(parameter_bytes).collect(),
            bounds: bounds.to_owned(),
            body: body.lines().map(|line| line.trim().to_owned()).collect(),
        };
        (name.trim().to_owned(), entry)
    };
    parts.map(entry).collect()
}

/// Where the brace that was opened before `text` is closed; scopes and lists nest.
fn end_of_body(text: &str) -> usize {
    let mut depth = 1;
    let closes = |(at, c): (usize, char)| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    };
    text.char_indices().find_map(closes).expect("the body ends")
}

/// Bytes of one `.param` declaration.
fn parameter_bytes(declaration: &str) -> usize {
    if declaration.contains(".b8 ") {
        let (_, size) = declaration.split_once('[').expect("a struct's parameter has a size");
        return size.trim_end().trim_end_matches(']').parse().expect("the size is a number");
    }
    match declaration.split_whitespace().nth(1) {
        Some(".u64" | ".b64") => 8,
        Some(".u32" | ".b32") => 4,
        other => panic!("unknown parameter type {other:?} in {declaration}"),
    }
}

/// Calls `check` for every variant of every file, with words that say which it is.
///
/// # Panics
/// There are none.
pub fn for_each_variant(kernel: Kernel, check: impl Fn(&Variant, &Entry, &str)) {
    let mut checked = 0;
    for (arch, compute_capability, _) in FILES {
        let entries = entries(&text(arch));
        for variant in VARIANTS {
            if variant.kernel == kernel && variant.runs_on(compute_capability) {
                let at = format!("{arch} {}", variant.name);
                check(variant, &entries[variant.entry], &at);
                checked += 1;
            }
        }
    }
    assert!(checked > 0);
}

/// Calls `check` for every compilation of the kernel that finishes kept rows.
pub fn for_each_kept(check: impl Fn(&KeptVariant, &Entry, &str)) {
    for (arch, compute_capability, _) in FILES {
        let entries = entries(&text(arch));
        if let Some(variant) = kept_variant(compute_capability) {
            check(variant, &entries[variant.entry], &format!("{arch} {}", variant.entry));
        }
    }
}
