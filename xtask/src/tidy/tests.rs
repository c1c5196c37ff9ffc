use flash_sampling_kernels::abi::VARIANTS;

use super::*;

const ENTRY: &str =
    "#[unsafe(no_mangle)]\npub unsafe extern \"ptx-kernel\" fn one(\n    at: *mut u32,\n) {}\n";
const TWIN: &str = "use cuda_std::kernel;\n#[kernel]\npub unsafe fn one(at: *mut u32) {}\n";
const PURE: &str = "//! Plans for CUDA.\n#![forbid(unsafe_code)]\n";
const PACKAGE: &str = "[package]\nlicense.workspace = true\n";

/// A tree without violations.
fn sound() -> Tree {
    let files = [
        (
            "Cargo.toml",
            "[workspace.package]\nlicense = \"MIT\"\n\
             [workspace.dependencies]\nhalf = { version = \"2\", default-features = false }\n",
        ),
        ("Cargo.lock", "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n"),
        ("LICENSE-MIT", "MIT\n"),
        ("LICENSE-APACHE", "Apache\n"),
        ("CHANGELOG.md", "# Changes\n\n## [Unreleased]\n"),
        (
            "README.md",
            "`docs/`, `docs/page.md`, `plan.rs`, `src/plan.rs`, `a/b`, `cargo test`, `target/x`\n\
             ```\n`docs/gone.md`\n```\n",
        ),
        ("docs/page.md", "text\n"),
        ("docs/findings/old.md", "`host-crate/src/gone.rs`\n"),
        ("host-crate/Cargo.toml", "[package]\nlicense = \"MIT\"\n"),
        ("host-crate/src/plan.rs", PURE),
        ("host-crate/src/problem.rs", PURE),
        ("host-crate/src/params.rs", PURE),
        ("host-crate/src/params/engines.rs", PURE),
        ("host-crate/src/plan/finish.rs", PURE),
        ("host-crate/src/problem/features.rs", PURE),
        ("host-crate/src/features.rs", PURE),
        ("host-crate/src/report.rs", PURE),
        ("host-crate/src/token_rules.rs", PURE),
        ("host-crate/src/inputs.rs", PURE),
        ("host-crate/src/workspace.rs", PURE),
        ("host-crate/src/cuda/device.rs", "use cust::device::Device;\n"),
        ("host-crate/ptx/kernels.ptx", "ret; \n"),
        (
            "kernels-crate/Cargo.toml",
            "[package]\nlicense = \"MIT\"\n[dependencies]\nhalf.workspace = true\n",
        ),
        (
            "kernels-crate/src/lib.rs",
            "//! Map.\n#![no_std]\n#![cfg_attr(target_arch = \"nvptx64\", a)]\n",
        ),
        ("kernels-crate/src/arch/ptx.rs", "use core::arch::asm;\n"),
        ("kernels-crate/src/entry.rs", ENTRY),
        ("kernels-crate/src/gumbel.rs", "fn ln(x: f32) -> f32 { x }\n"),
        (
            "kernels-crate/src/score.rs",
            "// The ln of asm! under target_arch, without cust.\nlet s = \"exp\";\n",
        ),
        ("kernels-crate/rust-cuda/src/lib.rs", TWIN),
        (
            "tests/src/oracle.rs",
            "/// As `flash_sampling` does.\nfn slow(x: f64) -> f64 { x.ln() }\n",
        ),
        ("xtask/Cargo.toml", PACKAGE),
    ];
    Tree(files.map(|(name, text)| (name.to_owned(), text.to_owned())).into())
}

/// The rules that find something, with what they find.
fn findings(tree: &Tree) -> Vec<(&'static str, Vec<String>)> {
    let found = RULES.map(|(name, rule)| (name, rule(tree)));
    found.into_iter().filter(|(_, violations)| !violations.is_empty()).collect()
}

#[test]
fn a_sound_tree_has_no_violation() {
    assert_eq!(findings(&sound()), []);
}

/// For each rule: a file, what to add at its end, and what the rule says.
fn planted() -> Vec<(&'static str, &'static str, String, String)> {
    let own = |text: &str| text.to_owned();
    let entry = VARIANTS[0].entry;
    vec![
        (RULES[0].0, "README.md", own("`docs/gone.md`\n"), own("README.md:5: no docs/gone.md")),
        (
            RULES[0].0,
            "kernels-crate/src/score.rs",
            own("/// See `gone.rs`.\n"),
            own("kernels-crate/src/score.rs:3: no gone.rs"),
        ),
        (
            RULES[1].0,
            "tests/Cargo.toml",
            own("[package]\nlicense = \"GPL\"\n"),
            own("tests/Cargo.toml:1: licence is not Some(String(\"MIT\"))"),
        ),
        (
            RULES[2].0,
            "kernels-crate/Cargo.toml",
            own("libm = \"1\"\n"),
            own("kernels-crate/Cargo.toml:1: depends on libm"),
        ),
        (
            RULES[3].0,
            "kernels-crate/src/score.rs",
            own("let e = x.exp();\n"),
            own("kernels-crate/src/score.rs:3: exp"),
        ),
        (
            RULES[4].0,
            "kernels-crate/src/score.rs",
            own("asm!(\"ret;\");\n"),
            own("kernels-crate/src/score.rs:3: asm"),
        ),
        (
            RULES[5].0,
            "kernels-crate/src/score.rs",
            own("#[cfg(target_arch = \"nvptx64\")]\n"),
            own("kernels-crate/src/score.rs:3: target_arch"),
        ),
        (
            RULES[6].0,
            "host-crate/src/cuda/device.rs",
            format!("let name = {entry:?};\n"),
            format!("host-crate/src/cuda/device.rs:2: {entry:?}"),
        ),
        (
            RULES[7].0,
            "kernels-crate/src/entry.rs",
            own("#[unsafe(no_mangle)]\npub unsafe extern \"ptx-kernel\" fn two() {}\n"),
            own("kernels-crate/rust-cuda/src/lib.rs:1: \"efnone(at:*mutu32){}\", but \
                 kernels-crate/src/entry.rs has \"efnone(at:*mutu32){}#entrypubunsafefntwo(){}\""),
        ),
        (
            RULES[8].0,
            "host-crate/src/plan.rs",
            own("use crate::Cuda;\n"),
            own("host-crate/src/plan.rs:3: names CUDA"),
        ),
        (
            RULES[9].0,
            "xtask/src/main.rs",
            own("use cust::Device;\n"),
            own("xtask/src/main.rs:1: cust"),
        ),
        (
            RULES[10].0,
            "tests/src/oracle.rs",
            own("use flash_sampling_kernels::gumbel::noise;\n"),
            own("tests/src/oracle.rs:3: flash_sampling_kernels"),
        ),
        (
            RULES[11].0,
            "xtask/src/main.rs",
            "\n".repeat(LONGEST + 1),
            own("xtask/src/main.rs:401: more than 400 lines"),
        ),
        (RULES[12].0, "docs/page.md", own("end \n"), own("docs/page.md:2: trailing white space")),
        (
            RULES[13].0,
            "docs/page.md",
            format!("see {}x\n", PRIVATE[1]),
            format!("docs/page.md:2: {}", PRIVATE[1]),
        ),
        (
            RULES[14].0,
            "Cargo.lock",
            own("source = \"registry+https://mirror.example/index\"\n"),
            own("Cargo.lock:2: registry+https://mirror.example/index\""),
        ),
    ]
}

#[test]
fn each_planted_violation_is_found_by_its_rule_alone() {
    for (rule, file, text, expected) in planted() {
        let mut tree = sound();
        tree.0.entry(file.to_owned()).or_default().push_str(&text);
        assert_eq!(findings(&tree), [(rule, vec![expected])]);
    }
}

/// For each rule about what must be there: a file, and what it says without it.
const REQUIRED: [(usize, &str, &str); 4] = [
    (1, "LICENSE-MIT", "LICENSE-MIT:1: missing"),
    (2, "kernels-crate/src/lib.rs", "kernels-crate/src/lib.rs:1: no #![no_std]"),
    (8, "host-crate/src/params.rs", "host-crate/src/params.rs:1: no #![forbid(unsafe_code)]"),
    (15, "CHANGELOG.md", "CHANGELOG.md:1: no section \"## [Unreleased]\""),
];

#[test]
fn what_is_missing_is_found() {
    for (rule, file, expected) in REQUIRED {
        let mut tree = sound();
        tree.0.remove(file);
        assert_eq!(findings(&tree), [(RULES[rule].0, vec![expected.to_owned()])]);
    }
}

#[test]
fn every_rule_has_a_planted_violation() {
    for (at, (name, _)) in RULES.iter().enumerate() {
        let planted = planted().iter().any(|(rule, ..)| rule == name);
        let required = REQUIRED.iter().any(|(rule, ..)| *rule == at);
        assert!(planted || required, "no test of {name:?}");
    }
}

#[test]
fn std_comes_back_through_the_features_of_half() {
    let mut tree = sound();
    let root = tree.0.get_mut("Cargo.toml").unwrap();
    *root = root.replace(", default-features = false", "");
    let expected = "Cargo.toml:1: half has its default features, so std".to_owned();
    assert_eq!(findings(&tree), [(RULES[2].0, vec![expected])]);
}
