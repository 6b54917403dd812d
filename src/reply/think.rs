//! Reasoning apart from the answer.

use std::borrow::Cow;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// The part of a reply that is meant as the answer.
///
/// Blocks of `<think>…</think>` are left out. A lone closing tag ends a thought whose opening was part of the prompt:
/// everything before it goes. A thought that never closes runs to the end of the reply.
pub fn without_thought(reply: &str) -> Cow<'_, str> {
    let reply = match (reply.find(OPEN), reply.find(CLOSE)) {
        (None, None) => return Cow::Borrowed(reply),
        (open, Some(close)) if open.is_none_or(|open| close < open) => &reply[close + CLOSE.len()..],
        _ => reply,
    };
    let mut answer = String::new();
    let mut rest = reply;
    while let Some(open) = rest.find(OPEN) {
        answer.push_str(&rest[..open]);
        rest = match rest[open..].find(CLOSE) {
            Some(close) => &rest[open + close + CLOSE.len()..],
            None => "",
        };
    }
    answer.push_str(rest);
    Cow::Owned(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_are_dropped_wherever_they_stand() {
        assert_eq!(without_thought("plain"), "plain");
        assert_eq!(without_thought("<think>a</think>b"), "b");
        assert_eq!(without_thought("x<think>a</think>b<think>c</think>d"), "xbd");
        assert_eq!(without_thought("thought from the prompt</think>b"), "b");
        assert_eq!(without_thought("b<think>never closed"), "b");
        assert_eq!(without_thought("a</think>b<think>c</think>d"), "bd");
    }
}
