//! `cargo xtask tidy`: what the compiler does not check.
//!
//! One small function a rule. The tests plant a violation of each and expect it found:
//! a guard that cannot fail is worse than none.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::{build_ptx, workspace};

mod code;

use code::{code_of, comments_of, line_at, line_with_word};

#[derive(clap::Args)]
pub(crate) struct Args {}

/// The tracked text files, by path from the root with `/` between folders.
struct Tree(BTreeMap<String, String>);

/// A rule tells each violation as `path:line: what`.
type Rule = fn(&Tree) -> Vec<String>;

const RULES: [(&str, Rule); 16] = [
    ("paths in docs and comments exist", paths_exist),
    ("licence fields agree", licences_agree),
    ("the kernels crate depends on half alone, without std", kernels_depend_on_half),
    ("one logarithm, one exponential", logarithms_are_our_own),
    ("PTX is in arch/ptx", asm_is_in_arch),
    ("target cfgs are where the machines differ", target_cfgs_are_in_arch),
    ("entry names are in abi.rs", host_has_no_entry_names),
    ("both code generators have the same entries", entries_are_twins),
    ("the planner is pure", planner_is_pure),
    ("cust is named under cuda/", cust_is_in_cuda),
    ("the oracle shares no code", oracle_is_independent),
    ("files are short", files_are_short),
    ("no trailing white space", no_trailing_space),
    ("no registry hosts, no paths of one machine", no_private_names),
    ("locked packages come from public sources", locked_sources_are_public),
    ("the change log has an unreleased section", changelog_is_open),
];

pub(crate) fn run(_: Args) -> anyhow::Result<()> {
    let tree = Tree::tracked()?;
    let mut violations = 0;
    for (name, rule) in RULES {
        for violation in rule(&tree) {
            println!("{violation} [{name}]");
            violations += 1;
        }
    }
    ensure!(violations == 0, "tidy: {violations} violations in {} files", tree.0.len());
    println!("tidy: {} files, {} rules", tree.0.len(), RULES.len());
    Ok(())
}

impl Tree {
    /// What git tracks, without binary files and those deleted but not yet so committed.
    fn tracked() -> anyhow::Result<Self> {
        let mut git = Command::new("git");
        git.args(["ls-files", "-z"]).current_dir(workspace::root());
        let names = workspace::output(&mut git).context("tidy reads what git tracks")?;
        let read = |name: &str| {
            Some((name.to_owned(), fs::read_to_string(workspace::root().join(name)).ok()?))
        };
        Ok(Self(names.split_terminator('\0').filter_map(read).collect()))
    }

    /// Files below a folder, or that file itself.
    fn under<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .filter(move |(name, _)| name.starts_with(path))
    }

    fn rust<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.under(path).filter(|(name, _)| name.ends_with(".rs"))
    }

    fn named<'a>(&'a self, file: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.under("").filter(move |(name, _)| name.rsplit('/').next() == Some(file))
    }

    fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Whether a path is a tracked file or folder.
    fn has(&self, path: &str) -> bool {
        self.0.contains_key(path) || self.under(path).any(|(name, _)| is_below(name, path))
    }

    /// Whether a path is the end of a tracked file's.
    fn has_ending(&self, path: &str) -> bool {
        self.0.keys().any(|name| name.strip_suffix(path).is_some_and(|rest| rest.ends_with('/')))
    }
}

fn is_below(name: &str, folder: &str) -> bool {
    name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Findings are closed: what they name may have gone.
const CLOSED: &str = "docs/findings/";

/// In backticks, a path from the root must exist; a source or page may be named by
/// the end of its path.
fn paths_exist(tree: &Tree) -> Vec<String> {
    let pages =
        tree.under("").filter(|(name, _)| name.ends_with(".md") && !name.starts_with(CLOSED));
    let pages = pages.map(|(name, text)| (name, without_fences(text)));
    let sources = tree.rust("").map(|(name, text)| (name, comments_of(text)));
    let mut violations = Vec::new();
    for (name, text) in pages.chain(sources) {
        for (number, line) in (1..).zip(text.lines()) {
            for path in line.split('`').skip(1).step_by(2).filter(|quoted| is_path(quoted)) {
                let path = path.trim_end_matches('/');
                let root = path.split('/').next().unwrap_or(path);
                let exists = if path.contains('/') && tree.has(root) {
                    tree.has(path)
                } else {
                    let is_file = [".rs", ".md"].iter().any(|end| path.ends_with(end));
                    !is_file || tree.has(path) || tree.has_ending(path)
                };
                if !exists {
                    violations.push(format!("{name}:{number}: no {path}"));
                }
            }
        }
    }
    violations
}

fn is_path(text: &str) -> bool {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.') && text.chars().all(is_path)
}

/// Markdown with the contents of fenced blocks blank.
fn without_fences(text: &str) -> String {
    let mut fenced = false;
    let mut keep = |line: &str| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    };
    text.lines().map(|line| if keep(line) { format!("{line}\n") } else { "\n".into() }).collect()
}

fn licences_agree(tree: &Tree) -> Vec<String> {
    let root: toml::Table = parsed(tree, "Cargo.toml");
    let expected = root.get("workspace").and_then(|w| w.get("package")?.get("license")).cloned();
    let mut violations = Vec::new();
    for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
        if tree.get(file).is_none() {
            violations.push(format!("{file}:1: missing"));
        }
    }
    for (name, _) in tree.named("Cargo.toml") {
        let manifest = parsed(tree, name);
        let Some(package) = manifest.get("package") else { continue };
        let inherited = package.get("license").and_then(|license| license.get("workspace"));
        if inherited.is_none() && package.get("license") != expected.as_ref() {
            violations.push(format!("{name}:1: licence is not {expected:?}"));
        }
    }
    violations
}

/// A manifest; cargo itself refuses one that does not parse.
fn parsed(tree: &Tree, name: &str) -> toml::Table {
    tree.get(name).and_then(|text| toml::from_str(text).ok()).unwrap_or_default()
}

fn kernels_depend_on_half(tree: &Tree) -> Vec<String> {
    let name = "kernels-crate/Cargo.toml";
    let manifest = parsed(tree, name);
    let mut violations = Vec::new();
    for table in ["dependencies", "build-dependencies", "target"] {
        let Some(table) = manifest.get(table).and_then(toml::Value::as_table) else { continue };
        for dependency in table.keys().filter(|dependency| *dependency != "half") {
            violations.push(format!("{name}:1: depends on {dependency}"));
        }
    }
    let half = parsed(tree, "Cargo.toml");
    let half = half.get("workspace").and_then(|w| w.get("dependencies")?.get("half"));
    if half.and_then(|half| half.get("default-features")?.as_bool()) != Some(false) {
        violations.push("Cargo.toml:1: half has its default features, so std".into());
    }
    let library = tree.get("kernels-crate/src/lib.rs").unwrap_or_default();
    if !library.contains("\n#![no_std]\n") {
        violations.push("kernels-crate/src/lib.rs:1: no #![no_std]".into());
    }
    violations
}

/// Violations where code outside `allowed` has one of the words.
fn words_outside<'a>(
    files: impl Iterator<Item = (&'a str, &'a str)>,
    allowed: &[&str],
    words: &[&str],
) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, text) in files.filter(|(name, _)| !allowed.iter().any(|path| name.starts_with(path)))
    {
        let code = code_of(text);
        for word in words {
            if let Some(line) = line_with_word(&code, word) {
                violations.push(format!("{name}:{line}: {word}"));
            }
        }
    }
    violations
}

/// Invariant 2. Sums that need only be near have the hardware's exponential.
fn logarithms_are_our_own(tree: &Tree) -> Vec<String> {
    const NAMES: [&str; 12] = [
        "ln", "ln_1p", "log", "log2", "log10", "logf", "exp", "exp2", "exp_m1", "expf", "powf",
        "powi",
    ];
    let files = tree.rust("kernels-crate/src/").chain(tree.rust("host-crate/src/"));
    let allowed = ["kernels-crate/src/gumbel.rs", "kernels-crate/src/mass.rs"];
    let mut violations = words_outside(files, &allowed, &NAMES);
    let near = ["kernels-crate/src/arch/", "kernels-crate/src/partial_sum.rs"];
    violations.extend(words_outside(tree.rust("kernels-crate/src/"), &near, &["exp2_approx"]));
    for (name, text) in tree.rust("kernels-crate/src/") {
        for instruction in ["lg2.approx", "ex2.approx"] {
            let is_near = instruction == "ex2.approx" && name.starts_with(near[0]);
            if let Some(at) = text.find(instruction).filter(|_| !is_near) {
                violations.push(format!("{name}:{}: {instruction}", line_at(text, at)));
            }
        }
    }
    violations
}

/// Invariant 3.
fn asm_is_in_arch(tree: &Tree) -> Vec<String> {
    let files = tree.rust("kernels-crate/").chain(tree.rust("host-crate/src/"));
    words_outside(files, &["kernels-crate/src/arch/ptx"], &["asm", "global_asm"])
}

/// Invariant 3. The host picks its SIMD in `cpu`.
fn target_cfgs_are_in_arch(tree: &Tree) -> Vec<String> {
    let allowed = ["arch.rs", "arch/", "entry.rs", "kernels.rs", "lib.rs"]
        .map(|at| format!("kernels-crate/src/{at}"));
    let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
    words_outside(
        tree.rust("kernels-crate/src/"),
        &allowed,
        &["target_arch", "target_os", "target_feature"],
    )
}

/// Invariant 4.
fn host_has_no_entry_names(tree: &Tree) -> Vec<String> {
    let quoted = build_ptx::entries().into_iter().map(|entry| format!("{entry:?}"));
    let quoted: Vec<String> = quoted.collect();
    let mut violations = Vec::new();
    for (name, text) in tree.rust("host-crate/") {
        for entry in &quoted {
            if let Some(at) = text.find(entry) {
                violations.push(format!("{name}:{}: {entry}", line_at(text, at)));
            }
        }
    }
    violations
}

/// From the first entry on, the two lists differ only in what marks an entry.
fn entries_are_twins(tree: &Tree) -> Vec<String> {
    const LLVM: &str = "kernels-crate/src/entry.rs";
    const RUST_CUDA: &str = "kernels-crate/rust-cuda/src/lib.rs";
    let tokens = |path: &str, from: &str, mark: &str, abi: &str| {
        let code = code_of(&tree.get(path).unwrap_or_default().replace(abi, ""));
        let begin = code.find(from).unwrap_or(code.len());
        let end = code.find("#[panic_handler]").unwrap_or(code.len());
        let text: String = code[begin..end.max(begin)].split_whitespace().collect();
        text.replace(mark, "#entry").replace(",)", ")")
    };
    let mark = "#[unsafe(no_mangle)]";
    let llvm = tokens(LLVM, mark, mark, "extern \"ptx-kernel\" ");
    let rust_cuda = tokens(RUST_CUDA, "#[kernel]", "#[kernel]", "");
    if llvm == rust_cuda {
        return Vec::new();
    }
    let same = llvm.bytes().zip(rust_cuda.bytes()).take_while(|(a, b)| a == b).count();
    let at = |text: &str| text.chars().skip(same.saturating_sub(20)).take(60).collect::<String>();
    vec![format!("{RUST_CUDA}:1: {:?}, but {LLVM} has {:?}", at(&rust_cuda), at(&llvm))]
}

/// Invariant 6.
fn planner_is_pure(tree: &Tree) -> Vec<String> {
    let mut violations = Vec::new();
    const PURE: &str = "features inputs params params/engines plan plan/finish problem problem/features report \
         token_rules workspace";
    for file in PURE.split(' ') {
        let name = format!("host-crate/src/{file}.rs");
        let code = code_of(tree.get(&name).unwrap_or_default());
        if !code.contains("#![forbid(unsafe_code)]") {
            violations.push(format!("{name}:1: no #![forbid(unsafe_code)]"));
        }
        if let Some(at) = code.to_ascii_lowercase().find("cuda") {
            violations.push(format!("{name}:{}: names CUDA", line_at(&code, at)));
        }
    }
    violations
}

/// Invariant 7.
fn cust_is_in_cuda(tree: &Tree) -> Vec<String> {
    words_outside(tree.rust(""), &["host-crate/src/cuda"], &["cust"])
}

/// Invariant 10.
fn oracle_is_independent(tree: &Tree) -> Vec<String> {
    words_outside(tree.rust("tests/src/oracle"), &[], &["flash_sampling_kernels", "flash_sampling"])
}

const LONGEST: usize = 400;

fn files_are_short(tree: &Tree) -> Vec<String> {
    let lines = tree.rust("").map(|(name, text)| (name, text.lines().count()));
    let long = lines.filter(|(_, lines)| *lines > LONGEST);
    long.map(|(name, lines)| format!("{name}:{lines}: more than {LONGEST} lines")).collect()
}

/// Compilers write the PTX, cargo the lock files.
fn is_generated(name: &str) -> bool {
    name.starts_with("host-crate/ptx/") || name.ends_with("Cargo.lock")
}

fn no_trailing_space(tree: &Tree) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, text) in tree.under("").filter(|(name, _)| !is_generated(name)) {
        for (number, line) in (1..).zip(text.split('\n')) {
            if line.ends_with([' ', '\t', '\r']) {
                violations.push(format!("{name}:{number}: trailing white space"));
            }
        }
    }
    violations
}

/// Spelled in two parts, so that this file passes.
const PRIVATE: [&str; 9] = [
    concat!("/wo", "rk/"),
    concat!("/tm", "p/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("pypi", ".org"),
    concat!("python", "hosted.org"),
    concat!("static.", "crates.io"),
    concat!("index.", "crates.io"),
    concat!("deb.", "debian.org"),
];

fn no_private_names(tree: &Tree) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, text) in tree.under("") {
        for private in PRIVATE {
            if let Some(at) = text.find(private) {
                violations.push(format!("{name}:{}: {private}", line_at(text, at)));
            }
        }
    }
    violations
}

fn locked_sources_are_public(tree: &Tree) -> Vec<String> {
    const PUBLIC: [&str; 2] = [
        "registry+https://github.com/rust-lang/crates.io-index",
        "git+https://github.com/Rust-GPU/rust-cuda?rev=",
    ];
    let mut violations = Vec::new();
    for (name, text) in tree.named("Cargo.lock") {
        for (number, line) in (1..).zip(text.lines()) {
            let Some(source) = line.strip_prefix("source = \"") else { continue };
            if !PUBLIC.iter().any(|public| source.starts_with(public)) {
                violations.push(format!("{name}:{number}: {source}"));
            }
        }
    }
    violations
}

fn changelog_is_open(tree: &Tree) -> Vec<String> {
    let text = tree.get("CHANGELOG.md").unwrap_or_default();
    let is_open = text.lines().any(|line| line.trim_end() == "## [Unreleased]");
    if is_open { vec![] } else { vec!["CHANGELOG.md:1: no section \"## [Unreleased]\"".into()] }
}

#[cfg(test)]
mod tests;
