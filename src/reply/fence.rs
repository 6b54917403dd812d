//! Fenced blocks of Markdown, read line by line.
//!
//! Not a Markdown parser: models write fences inside lists, leave them open when they reach their token limit, and
//! close ones that the prompt opened, and all of that has one reading here.

/// One fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// First word after the opening fence, as written; empty when there is none.
    pub tag: String,
    /// The lines inside, without the last line end and without the indentation of the fence.
    pub text: String,
    /// Whether the closing fence is there.
    pub is_closed: bool,
}

impl Block {
    /// Whether the tag names this language, under any of its usual names and in any case.
    pub fn is_tagged(&self, language: &str) -> bool {
        let tag = self.tag.to_ascii_lowercase();
        names_of(language).contains(&tag.as_str()) || tag == language.to_ascii_lowercase()
    }
}

/// The fenced blocks of a text, in order.
///
/// A fence is a line of its own: three or more backticks or tildes after any indentation. An opening fence may carry a
/// tag, which ends at the line's end; backticks inside a line of prose open nothing.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(Fence, Block)> = None;
    for line in text.lines() {
        let fence = Fence::read(line);
        match (open.take(), fence) {
            (None, Some(fence)) => {
                let block = Block { tag: fence.tag.clone(), text: String::new(), is_closed: false };
                open = Some((fence, block));
            }
            (Some((opener, mut block)), Some(fence)) if fence.closes(&opener) => {
                block.is_closed = true;
                blocks.push(finished(block));
            }
            (Some((opener, mut block)), _) => {
                block.text.push_str(without_indentation(line, opener.indentation));
                block.text.push('\n');
                open = Some((opener, block));
            }
            (None, None) => {}
        }
    }
    blocks.extend(open.map(|(_, block)| finished(block)));
    blocks
}

/// The text before a closing fence whose opening fence was part of the prompt; `None` when that is not what it looks
/// like: the first fence has no tag, something stands before it, and fences do not pair up.
pub fn before_lone_closing_fence(text: &str) -> Option<&str> {
    let fences: Vec<(usize, Fence)> = text
        .split_inclusive('\n')
        .scan(0, |offset, line| {
            let start = *offset;
            *offset += line.len();
            Some((start, line))
        })
        .filter_map(|(start, line)| Some((start, Fence::read(line.trim_end_matches(['\n', '\r']))?)))
        .collect();
    let (start, first) = fences.first()?;
    let before = text[..*start].trim_end();
    (first.tag.is_empty() && fences.len() % 2 == 1 && !before.trim().is_empty()).then_some(before)
}

struct Fence {
    mark: char,
    length: usize,
    indentation: usize,
    tag: String,
}

impl Fence {
    fn read(line: &str) -> Option<Fence> {
        let body = line.trim_start_matches([' ', '\t']);
        let indentation = line.len() - body.len();
        let mark = body.chars().next().filter(|first| matches!(first, '`' | '~'))?;
        let length = body.chars().take_while(|character| *character == mark).count();
        let info = body[length..].trim();
        if length < 3 || info.contains('`') {
            return None;
        }
        let tag = info.split(|c: char| c.is_whitespace() || matches!(c, '{' | ':' | ',')).next().unwrap_or_default();
        Some(Fence { mark, length, indentation, tag: tag.to_string() })
    }

    fn closes(&self, opener: &Fence) -> bool {
        self.tag.is_empty() && self.mark == opener.mark && self.length >= opener.length
    }
}

fn finished(mut block: Block) -> Block {
    let kept = block.text.trim_end_matches('\n').len();
    block.text.truncate(kept);
    block
}

/// Takes off as much white space as the fence had, at most.
fn without_indentation(line: &str, indentation: usize) -> &str {
    let space = line.bytes().take(indentation).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &line[space..]
}

fn names_of(language: &str) -> &'static [&'static str] {
    match language.to_ascii_lowercase().as_str() {
        "python" => &["python", "py", "python3", "py3"],
        "javascript" => &["javascript", "js", "node", "jsx"],
        "typescript" => &["typescript", "ts", "tsx"],
        "sh" | "bash" | "shell" => &["sh", "bash", "shell", "zsh"],
        "rust" => &["rust", "rs"],
        "cpp" => &["cpp", "c++", "cc"],
        "sql" => &["sql", "mysql", "sqlite", "postgresql"],
        "json" => &["json", "jsonc"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(tag: &str, text: &str, is_closed: bool) -> Block {
        Block { tag: tag.into(), text: text.into(), is_closed }
    }

    #[test]
    fn tags_end_at_the_line_and_prose_opens_nothing() {
        let text = "Put it in a ``` block.\n```Python3 {.numbered}\nx = 1\n\n```\ntext\n~~~\ny\n```\n~~~";
        assert_eq!(blocks(text), [block("Python3", "x = 1", true), block("", "y\n```", true)]);
        assert!(blocks(text)[0].is_tagged("python"));
    }

    #[test]
    fn a_block_in_a_list_loses_the_indentation_of_its_fence() {
        let text = "1. like so\n   ```py\n   def f():\n       return 1\n   ```\n";
        assert_eq!(blocks(text), [block("py", "def f():\n    return 1", true)]);
    }

    #[test]
    fn a_reply_cut_short_leaves_its_block_open() {
        assert_eq!(blocks("```py\nx = 1\ny ="), [block("py", "x = 1\ny =", false)]);
    }

    #[test]
    fn only_an_unpaired_bare_fence_closes_what_the_prompt_opened() {
        assert_eq!(before_lone_closing_fence("x = 1\n```\nDone."), Some("x = 1"));
        assert_eq!(before_lone_closing_fence("Look:\n```\nx = 1\n```"), None);
        assert_eq!(before_lone_closing_fence("Look:\n```python\nx = 1"), None);
        assert_eq!(before_lone_closing_fence("```\nx = 1"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "([`~]{0,4}|[ a\u{e9}\n\t]{0,3}|\u{1f600}){0,40}") {
            let lines: usize = blocks(&text).iter().map(|block| block.text.lines().count()).sum();
            prop_assert!(lines <= text.lines().count());
            let _ = before_lone_closing_fence(&text);
        }
    }
}
