//! What is done to a template's text before it is compiled.

use std::sync::LazyLock;

use regex::Regex;

/// `{% generation %}` marks what the assistant wrote, for training masks; it prints its body. The engine has no such
/// block, so it becomes `{% if true %}`. Line numbers stay.
pub(super) fn without_generation_blocks(source: &str) -> String {
    static OPEN: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\{%([-+]?)(\s*)generation(\s*)([-+]?)%\}").expect("a valid pattern"));
    static CLOSE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\{%([-+]?)(\s*)endgeneration(\s*)([-+]?)%\}").expect("a valid pattern"));
    let opened = OPEN.replace_all(source, "{%${1}${2}if true${3}${4}%}");
    CLOSE.replace_all(&opened, "{%${1}${2}endif${3}${4}%}").into_owned()
}

/// The first name in the template's code that reaches for Python's internals (`''.__class__`), with its line from 1.
///
/// Nothing of the sort exists here; such a name is still refused, because a template with one was written to break out
/// of its sandbox, and Python's would refuse it too.
pub(super) fn python_internals(source: &str) -> Option<(usize, String)> {
    static REACH: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"(?:\.\s*|\[\s*["']|\battr\s*\(\s*["'])(__\w+)"#).expect("a valid pattern"));
    let (start, name) = code_spans(source).find_map(|(start, code)| {
        let code = blank_strings(code);
        let found = REACH.captures(&code)?;
        let name = found.get(1).expect("the group is not optional");
        Some((start + name.start(), name.as_str().to_string()))
    })?;
    Some((1 + source[..start].matches('\n').count(), name))
}

/// Whether the template's code uses a variable of this name, fields and keys of that name apart.
pub(super) fn reads(source: &str, name: &str) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    code_spans(source).any(|(_, code)| {
        let code = blank_strings(code);
        code.match_indices(name).any(|(at, _)| {
            let (before, after) = (&code[..at], &code[at + name.len()..]);
            !before.ends_with(is_word) && !after.starts_with(is_word) && !before.trim_end().ends_with(['.', '"', '\''])
        })
    })
}

/// The insides of `{{ … }}` and `{% … %}`, with their byte offsets; comments and text are left out.
fn code_spans(source: &str) -> impl Iterator<Item = (usize, &str)> {
    static SPAN: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?s)\{#.*?#\}|\{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\}|\{\{(.*?)\}\}|\{%(.*?)%\}")
            .expect("a valid pattern")
    });
    SPAN.captures_iter(source)
        .filter_map(|span| span.get(1).or_else(|| span.get(2)))
        .map(|code| (code.start(), code.as_str()))
}

/// The code with the insides of its strings blanked out, except where a string names an attribute or a key, byte for
/// byte as long as before.
fn blank_strings(code: &str) -> String {
    let mut out: Vec<u8> = Vec::with_capacity(code.len());
    let mut bytes = code.bytes().peekable();
    while let Some(byte) = bytes.next() {
        out.push(byte);
        if byte != b'"' && byte != b'\'' {
            continue;
        }
        let names = names_an_attribute(&out);
        while let Some(inside) = bytes.next() {
            if inside == byte {
                out.push(inside);
                break;
            }
            out.push(if names && inside.is_ascii() { inside } else { b' ' });
            if inside == b'\\' && bytes.next().is_some() {
                out.push(b' ');
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether the string that begins at the end of `before` is a subscript or the argument of the `attr` filter.
fn names_an_attribute(before: &[u8]) -> bool {
    let before = before[..before.len() - 1].trim_ascii_end();
    before.ends_with(b"[") || before.strip_suffix(b"(").is_some_and(|rest| rest.trim_ascii_end().ends_with(b"attr"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_blocks_print_their_body_and_keep_their_marks() {
        let source = "{%- generation -%}\nx{% endgeneration %}{% endgeneration+%}";
        assert_eq!(without_generation_blocks(source), "{%- if true -%}\nx{% endif %}{% endif+%}");
    }

    #[test]
    fn internals_are_found_in_code_only() {
        let internal = |source: &str| python_internals(source).map(|(line, name)| format!("{line}:{name}"));
        assert_eq!(internal("a\n{{ ''.__class__ }}").as_deref(), Some("2:__class__"));
        assert_eq!(internal("{{ x['__globals__'] }}").as_deref(), Some("1:__globals__"));
        assert_eq!(internal("{% set y = x | attr(\"__init__\") %}").as_deref(), Some("1:__init__"));
        assert_eq!(internal("text.__class__ {# x.__class__ #} {{ 'a.__class__' }} {{ m.role }}"), None);
        assert_eq!(internal("{% raw %}{{ x.__class__ }}{% endraw %}"), None);
    }
}
