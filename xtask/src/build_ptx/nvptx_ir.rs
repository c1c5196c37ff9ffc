//! The textual LLVM IR of the kernels, rewritten where rustc cannot say what PTX needs.
//!
//! - Statics in the section `.shared` move to address space 3, those in `.const` to
//!   address space 4. A `.shared` one of size zero becomes `external`: PTX's dynamic
//!   shared memory. Plain Rust pointers to them then give `ld.shared` and `st.shared`.
//! - Every side-effecting `asm!` becomes `convergent`, and every function: rustc marks
//!   no `asm!`, and LLVM may then copy a barrier into both sides of a branch.
//! - The hashes in symbol names go, so that the PTX depends on no checkout.

use anyhow::{Context, bail, ensure};

/// Alignment of dynamic shared memory: the largest vector access.
pub(super) const DYNAMIC_SHARED_ALIGN: u32 = 16;

/// Whether `asm!` and functions are marked convergent. Only a test leaves it out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Convergence {
    Marked,
    #[cfg(test)]
    Unmarked,
}

/// The module with all of this module's changes, and the names of its entries.
pub(crate) fn rewrite(ir: &str, convergence: Convergence) -> anyhow::Result<(String, Vec<String>)> {
    let mut moved = Vec::new();
    let mut lines = Vec::new();
    for line in ir.lines() {
        match Static::parse(line)? {
            Some(found) => {
                lines.push(found.line);
                moved.push((found.name, found.space));
            }
            None => lines.push(line.to_owned()),
        }
    }
    let mut entries = Vec::new();
    for line in &mut lines {
        for (name, space) in &moved {
            *line = cast_uses(line, name, *space);
        }
        if convergence == Convergence::Marked {
            *line = mark_convergent(line)?;
        }
        *line = without_hashes(line);
        entries.extend(entry_name(line));
    }
    ensure!(!entries.is_empty(), "the module has no function with the ptx_kernel convention");
    Ok((lines.join("\n") + "\n", entries))
}

/// A static that moves to another address space.
struct Static {
    name: String,
    space: u32,
    line: String,
}

impl Static {
    fn parse(line: &str) -> anyhow::Result<Option<Self>> {
        let Some((space, section)) = [(3, ", section \".shared\""), (4, ", section \".const\"")]
            .into_iter()
            .find(|(_, section)| line.starts_with('@') && line.contains(section))
        else {
            return Ok(None);
        };
        let (name, definition) = line.split_once(" = ").context("a static without a value")?;
        let definition = definition.replace(section, "");
        let (keyword, at) = [" global ", " constant "]
            .into_iter()
            .find_map(|keyword| Some((keyword, definition.find(keyword)?)))
            .with_context(|| format!("neither global nor constant: {line}"))?;
        let value = &definition[at + keyword.len()..];
        let line = if space == 3 && value.starts_with("<{}> ") {
            format!("{name} = external addrspace(3) global [0 x i8], align {DYNAMIC_SHARED_ALIGN}")
        } else {
            ensure!(
                space != 3 || value.contains(" undef,") || value.contains(" poison,"),
                "shared memory has no initial value; use MaybeUninit: {line}"
            );
            format!("{name} = {} addrspace({space}){keyword}{value}", &definition[..at])
        };
        Ok(Some(Self { name: name.to_owned(), space, line }))
    }
}

/// Turns uses of a moved static into casts to the generic address space, from which
/// LLVM infers the space again at every load and store.
fn cast_uses(line: &str, name: &str, space: u32) -> String {
    if line.starts_with(name) {
        return line.to_owned();
    }
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(name) {
        let (before, found) = rest.split_at(at);
        let after = &found[name.len()..];
        out.push_str(before);
        if after.starts_with(is_name_char) {
            out.push_str(name);
        } else {
            out.push_str(&format!("addrspacecast (ptr addrspace({space}) {name} to ptr)"));
        }
        rest = after;
    }
    out + rest
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '-')
}

/// The entry that a line defines.
fn entry_name(line: &str) -> Option<String> {
    let signature = line.strip_prefix("define ")?;
    let (before, after) = signature.split_once(" @")?;
    before
        .split(' ')
        .any(|word| word == "ptx_kernel")
        .then(|| after.split('(').next().unwrap_or(after).to_owned())
}

/// Marks the `asm` call or the function of a line.
fn mark_convergent(line: &str) -> anyhow::Result<String> {
    if line.starts_with("attributes #") {
        // Groups are shared by declarations; those of intrinsics LLVM sets itself.
        return Ok(line.to_owned());
    }
    if line.starts_with("define ") {
        let body = line.strip_suffix(" {").with_context(|| format!("no body: {line}"))?;
        let at = body.rfind(") ").map_or(body.len(), |at| at + 1);
        let after = match body[at..].strip_prefix(" unnamed_addr") {
            Some(_) => at + " unnamed_addr".len(),
            None => at,
        };
        return Ok(format!("{} convergent{} {{", &body[..after], &body[after..]));
    }
    let Some(at) = asm_call(line) else {
        return Ok(line.to_owned());
    };
    let (head, tail) = line.split_at(at + "asm ".len());
    let quote = tail.find('"').with_context(|| format!("asm without text: {line}"))?;
    let flags = &tail[..quote];
    let mut strings = tail[quote..].splitn(5, '"');
    let (text, constraints) = (strings.nth(1), strings.nth(1));
    let (Some(text), Some(constraints)) = (text, constraints) else {
        bail!("asm without constraints: {line}");
    };
    if !flags.contains("sideeffect") {
        ensure!(
            !text.contains(".sync") && !text.contains(".aligned"),
            "options(pure) on an asm of the whole warp: {line}"
        );
        return Ok(line.to_owned());
    }
    ensure!(head.contains("call "), "asm that is not a plain call: {line}");
    let operands = quote + text.len() + constraints.len() + "\"\", \"\"".len();
    let end = closing_parenthesis(&tail[operands..])
        .with_context(|| format!("asm without operands: {line}"))?;
    let (call, attributes) = tail.split_at(operands + end + 1);
    Ok(format!("{head}{call} convergent{attributes}"))
}

/// Where a line calls `asm`, outside of strings.
fn asm_call(line: &str) -> Option<usize> {
    let at = line.find(" asm ")? + 1;
    (!line[..at].contains('"')).then_some(at)
}

/// Index of the parenthesis that closes the first one.
fn closing_parenthesis(text: &str) -> Option<usize> {
    if !text.starts_with('(') {
        return None;
    }
    let mut depth = 0;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

/// Drops the crate hashes `Cs<base 62>_` from the symbols `_R…` of a line.
fn without_hashes(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("@_R") {
        out.push_str(&rest[..at]);
        let symbol = &rest[at..];
        let end = symbol[1..].find(|c| !is_name_char(c)).map_or(symbol.len(), |end| end + 1);
        let mut symbol_rest = &symbol[..end];
        while let Some(at) = symbol_rest.find("Cs") {
            let hash = &symbol_rest[at + 2..];
            let len = hash.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(hash.len());
            let after = &hash[len..];
            let is_hash = len > 0
                && after.starts_with('_')
                && after[1..].starts_with(|c: char| c.is_ascii_digit());
            out.push_str(&symbol_rest[..at + 1]);
            symbol_rest = if is_hash { &after[1..] } else { &symbol_rest[at + 1..] };
        }
        out.push_str(symbol_rest);
        rest = &symbol[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = r#"
@_RNvCsit1grTyQbxX_7fixture3DYN = internal global <{}> zeroinitializer, section ".shared", align 4
@S = internal global [256 x i8] undef, section ".shared", align 4
@S2 = internal constant [4 x i8] c"\01\02\03\04", section ".const", align 4
@other = private constant [3 x i8] c"asm"
define ptx_kernel void @one(ptr noundef %0, i32 %1) unnamed_addr #0 {
  %2 = load i32, ptr @S, align 4
  %3 = load i32, ptr getelementptr (i8, ptr @S2, i64 1), align 4
  store i32 %2, ptr @_RNvCsit1grTyQbxX_7fixture3DYN, align 4
  call void asm sideeffect "bar.sync 0;", "~{memory}"(), !srcloc !2
  %4 = tail call { i32, i32 } asm sideeffect "f (a);", "=r,=r,r"(i32 trunc (i64 7 to i32)) #3, !srcloc !2
  call void @f(ptr noundef nonnull @S, ptr @S2.1)
  %5 = call i32 asm "mov.b32 $0, 1;", "=r"()
  ret void
}
define internal void @two() {
"#;

    fn marked() -> String {
        rewrite(MODULE, Convergence::Marked).unwrap().0
    }

    #[test]
    fn statics_move_and_their_uses_are_cast() {
        let ir = marked();
        for expected in [
            "@_RNvC7fixture3DYN = external addrspace(3) global [0 x i8], align 16\n",
            "@S = internal addrspace(3) global [256 x i8] undef, align 4\n",
            "@S2 = internal addrspace(4) constant [4 x i8] c\"\\01\\02\\03\\04\", align 4\n",
            "load i32, ptr addrspacecast (ptr addrspace(3) @S to ptr), align 4\n",
            "(ptr noundef nonnull addrspacecast (ptr addrspace(3) @S to ptr), ptr @S2.1)\n",
            "(i8, ptr addrspacecast (ptr addrspace(4) @S2 to ptr), i64 1)",
            "ptr addrspacecast (ptr addrspace(3) @_RNvC7fixture3DYN to ptr), align 4\n",
        ] {
            assert!(ir.contains(expected), "{expected}\nnot in\n{ir}");
        }
    }

    #[test]
    fn side_effects_and_functions_are_convergent() {
        let ir = marked();
        for expected in [
            "\"~{memory}\"() convergent, !srcloc !2\n",
            "(i32 trunc (i64 7 to i32)) convergent #3, !srcloc !2\n",
            "asm \"mov.b32 $0, 1;\", \"=r\"()\n",
            "unnamed_addr convergent #0 {\n",
            "@two() convergent {\n",
        ] {
            assert!(ir.contains(expected), "{expected}\nnot in\n{ir}");
        }
    }

    #[test]
    fn entries_are_the_kernels() {
        assert_eq!(rewrite(MODULE, Convergence::Marked).unwrap().1, ["one"]);
        assert!(rewrite("define void @f() {", Convergence::Marked).is_err());
    }

    #[test]
    fn a_pure_asm_of_the_warp_is_refused() {
        let line = "  %1 = call i32 asm \"shfl.sync.idx.b32 $0, 1, 2, 3, 4;\", \"=r\"()";
        assert!(mark_convergent(line).is_err());
    }

    #[test]
    fn an_initial_value_in_shared_memory_is_refused() {
        let line = "@S = internal global i32 7, section \".shared\", align 4";
        assert!(Static::parse(line).is_err());
    }
}
