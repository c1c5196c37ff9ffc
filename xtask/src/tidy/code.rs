//! Rust text without what a rule about code must not see.

/// The code of a file: comments and the contents of literals become spaces, so that
/// lines and columns stay.
pub(super) fn code_of(text: &str) -> String {
    blank(text, false)
}

/// The comments of a file: all else becomes spaces.
pub(super) fn comments_of(text: &str) -> String {
    blank(text, true)
}

fn blank(text: &str, keep_comments: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (length, is_comment, is_code) = piece(rest);
        let (piece, after) = rest.split_at(length);
        let keep = if keep_comments { is_comment } else { is_code };
        let blank = |c: char| if keep || c == '\n' { c } else { ' ' };
        out.extend(piece.chars().map(blank));
        rest = after;
    }
    out
}

/// Length of the piece that begins a text, and whether it is a comment, or code.
fn piece(text: &str) -> (usize, bool, bool) {
    let length = |end: Option<usize>| end.unwrap_or(text.len());
    if text.starts_with("//") {
        return (length(text.find('\n')), true, false);
    }
    if text.starts_with("/*") {
        return (length(text.find("*/").map(|at| at + 2)), true, false);
    }
    if let Some(literal) = raw_string(text) {
        return (literal, false, false);
    }
    if let Some(inner) = text.strip_prefix('"') {
        return (length(end_of_literal(inner, '"').map(|at| at + 1)), false, false);
    }
    // A lifetime has no second quote after one character.
    if let Some(inner) = text.strip_prefix('\'') {
        let is_char = inner.starts_with('\\') || inner.chars().nth(1) == Some('\'');
        if is_char && let Some(at) = end_of_literal(inner, '\'') {
            return (at + 1, false, false);
        }
    }
    // A word as a whole, so that the `r` of `for` begins no raw string.
    let word = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    (word.max(text.chars().next().map_or(0, char::len_utf8)), false, true)
}

/// Length of the raw string that begins a text.
fn raw_string(text: &str) -> Option<usize> {
    let after = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let inner = after[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = inner.find(&close).map_or(inner.len(), |at| at + close.len());
    Some(text.len() - inner.len() + end)
}

/// Where a literal ends, its closing quote included.
fn end_of_literal(inner: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in inner.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(at + c.len_utf8()),
            _ => {}
        }
    }
    None
}

/// Whether a text has `name` as a whole identifier, and on which line first.
pub(super) fn line_with_word(code: &str, name: &str) -> Option<usize> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name)
        .find(|(at, _)| {
            !code[..*at].ends_with(is_word) && !code[at + name.len()..].starts_with(is_word)
        })
        .map(|(at, _)| line_at(code, at))
}

/// The line of a byte, counted from 1.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "let a = \"x // \\\" y\"; // comment é\nlet b = r#\"z \" z\"#; /* c\nd */ for<'a> '\\'' 'q' e";

    #[test]
    fn code_has_no_comments_and_no_literals() {
        let code = code_of(TEXT);
        let words: Vec<_> = code.split_whitespace().collect();
        assert_eq!(words, ["let", "a", "=", ";", "let", "b", "=", ";", "for<'a>", "e"]);
        assert_eq!(code.lines().count(), TEXT.lines().count());
    }

    #[test]
    fn comments_have_no_code() {
        let comments = comments_of(TEXT);
        let words: Vec<_> = comments.split_whitespace().collect();
        assert_eq!(words, ["//", "comment", "é", "/*", "c", "d", "*/"]);
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(line_with_word("cust_raw\nmy_cust custom", "cust"), None);
        assert_eq!(line_with_word("cust_raw\nuse cust::Device", "cust"), Some(2));
    }
}
