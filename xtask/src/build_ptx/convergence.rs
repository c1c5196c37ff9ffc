//! The one miscompilation that is silent: a barrier or shuffle copied into both sides
//! of a branch. `fixtures/convergence` reproduces it through the whole pipeline.

use std::env;
use std::io::Write;

use super::llvm::{Compiler, Package};
use super::nvptx_ir::Convergence;
use super::{ARCHES, REQUIRE_COMPILER, Request};
use crate::workspace;

/// Occurrences of an instruction in an entry's body.
fn count(ptx: &str, entry: &str, instruction: &str) -> usize {
    let (_, after) = ptx.split_once(&format!(".entry {entry}(")).expect("the entry is there");
    let body = after.split_once("\n}").expect("the entry ends").0;
    body.lines().filter(|line| line.trim_start().starts_with(instruction)).count()
}

#[test]
fn barriers_and_shuffles_are_not_copied() {
    let compiler = match Compiler::find(&Request::default()) {
        Ok(compiler) => compiler,
        Err(reason) => {
            assert!(
                env::var_os(REQUIRE_COMPILER).is_none(),
                "{REQUIRE_COMPILER} is set, but {reason:#}"
            );
            // Past the harness, which hides what a passing test prints.
            writeln!(std::io::stderr(), "SKIPPED: convergence fixture: {reason:#}").unwrap();
            return;
        }
    };
    let manifest = workspace::root().join("xtask/fixtures/convergence/Cargo.toml");
    let package = Package { manifest: &manifest, library: "convergence", features: "" };
    let archive = compiler.archive(&package).unwrap();

    let marked = compiler.link(&archive, &ARCHES[0], Convergence::Marked, "").unwrap();
    for entry in ["barrier_bare", "barrier_anchored"] {
        assert_eq!(count(&marked, entry, "bar.sync"), 1, "{entry}\n{marked}");
        assert!(count(&marked, entry, "ld.shared") > 0, "{entry}\n{marked}");
    }
    for entry in ["shuffle_bare", "shuffle_anchored"] {
        assert_eq!(count(&marked, entry, "shfl.sync"), 1, "{entry}\n{marked}");
    }
    assert!(marked.contains(".extern .shared .align 16 .b8 "), "dynamic shared memory\n{marked}");

    // Without the marks the fault shows, so the counts above can fail; and the anchor
    // alone prevents it.
    let unmarked = compiler.link(&archive, &ARCHES[0], Convergence::Unmarked, "").unwrap();
    assert_eq!(count(&unmarked, "barrier_bare", "bar.sync"), 2, "{unmarked}");
    assert_eq!(count(&unmarked, "shuffle_bare", "shfl.sync"), 2, "{unmarked}");
    assert_eq!(count(&unmarked, "barrier_anchored", "bar.sync"), 1, "{unmarked}");
    assert_eq!(count(&unmarked, "shuffle_anchored", "shfl.sync"), 1, "{unmarked}");
}
