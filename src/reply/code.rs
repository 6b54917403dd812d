//! The program inside a reply.
//!
//! Ladder, first hit wins ("defines" is asked only when an entry point is named):
//!
//! 1. the last block tagged with the language that parses and defines the entry point;
//! 2. the first block tagged with the language that parses;
//! 3. the last other block that parses and defines the entry point, untagged or not;
//! 4. the last untagged block that parses;
//! 5. the text before a closing fence that the prompt opened;
//! 6. the longest run of lines that parses: in the tagged blocks, then in the whole reply;
//! 7. the last tagged block, else the last block, whatever it holds.
//!
//! Without an entry point, step 2 takes the last block: models put the better version last. For languages we have no
//! parser for, everything "parses". The steps from 6 on are those of the public BigCodeBench sanitiser
//! (`bigcode-project/bigcodebench`, `sanitize.py`); the ones before are ours.

use super::fence::{self, Block};
use super::{python, think};

/// The program a reply holds, before anything is cut from it; `None` when it holds no code at all.
pub fn extract(reply: &str, language: &str, entry_point: Option<&str>) -> Option<String> {
    let reply = think::strip(reply)?;
    let is_python = language.eq_ignore_ascii_case("python");
    let parses = |text: &str| !text.trim().is_empty() && (!is_python || python::parses(text));
    let defines = |text: &str| entry_point.is_none_or(|name| !is_python || python::defines(text, name));

    let blocks: Vec<Block> = fence::blocks(reply).into_iter().filter(|block| !block.text.trim().is_empty()).collect();
    let (tagged, other): (Vec<&Block>, Vec<&Block>) = blocks.iter().partition(|block| block.is_tagged(language));
    let text = |block: &&Block| block.text.clone();
    let whole = |block: &&&Block| parses(&block.text);
    let defining = |block: &&&Block| parses(&block.text) && defines(&block.text);

    tagged
        .iter()
        .rev()
        .find(defining)
        .map(text)
        .or_else(|| tagged.iter().find(whole).map(text))
        .or_else(|| entry_point.and_then(|_| other.iter().rev().find(defining).map(text)))
        .or_else(|| other.iter().rev().filter(|block| block.tag.is_empty()).find(whole).map(text))
        .or_else(|| fence::before_lone_closing_fence(reply).filter(|text| parses(text)).map(str::to_string))
        .or_else(|| is_python.then(|| longest_run(reply, &tagged, entry_point)).flatten())
        .or_else(|| tagged.last().or(other.last()).map(text))
}

fn longest_run(reply: &str, tagged: &[&Block], entry_point: Option<&str>) -> Option<String> {
    let inside: Vec<&str> = tagged.iter().map(|block| block.text.as_str()).collect();
    let run = match inside.is_empty() {
        true => python::longest_parsable_run(reply, entry_point),
        false => python::longest_parsable_run(&inside.join("\n"), entry_point),
    };
    run.filter(|run| !is_mere_words(run))
}

/// A reply of one word ("Sorry") parses as an expression, and is no code.
fn is_mere_words(run: &str) -> bool {
    run.chars().all(|character| character.is_alphanumeric() || character.is_whitespace() || character == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_that_defines_the_entry_point_wins_over_later_examples() {
        let reply = "```python\ndef f(x):\n    return x\n```\nUse it:\n```python\nprint(f(1))\n```";
        assert_eq!(extract(reply, "python", Some("f")).unwrap(), "def f(x):\n    return x");
        assert_eq!(extract(reply, "python", None).unwrap(), "print(f(1))");
    }

    #[test]
    fn code_cut_off_by_the_token_limit_keeps_its_whole_statements() {
        let reply = "```python\nimport os\ndef f(x):\n    return x\n\ndef g(x):\n    return (x +";
        assert_eq!(extract(reply, "python", Some("f")).unwrap(), "import os\ndef f(x):\n    return x");
    }

    #[test]
    fn a_thought_is_not_searched_for_code() {
        let reply = "<think>\n```python\ndef f(): return 1\n```\n</think>\n```python\ndef f(): return 2\n```";
        assert_eq!(extract(reply, "python", Some("f")).unwrap(), "def f(): return 2");
    }

    #[test]
    fn prose_alone_is_no_code() {
        assert_eq!(extract("I cannot do that, sorry.", "python", Some("f")), None);
        assert_eq!(extract("Sorry", "python", Some("f")), None);
        assert_eq!(extract("", "python", None), None);
    }
}
