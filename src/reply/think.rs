//! The reply apart from the reasoning in front of it.

pub const OPEN: &str = "<think>";
pub const CLOSE: &str = "</think>";

/// What the model said to the user: the text after the last closing tag, up to a tag that is opened and never closed.
///
/// A closing tag without its opening one counts too: chat templates of reasoning models often open it in the prompt.
/// `None` when the reply ended inside its reasoning and nothing was said outside.
pub fn strip(reply: &str) -> Option<&str> {
    let said = reply.rfind(CLOSE).map_or(reply, |at| &reply[at + CLOSE.len()..]);
    match said.find(OPEN) {
        None => Some(said),
        Some(at) => Some(&said[..at]).filter(|before| !before.trim().is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::strip;

    #[test]
    fn text_after_the_last_thought_is_the_reply() {
        assert_eq!(strip("plain"), Some("plain"));
        assert_eq!(strip("<think>a</think> b <think>c</think> d"), Some(" d"));
        assert_eq!(strip("opened in the prompt</think>\nyes"), Some("\nyes"));
    }

    #[test]
    fn a_reply_that_never_leaves_its_reasoning_says_nothing() {
        assert_eq!(strip("<think>still thinking"), None);
        assert_eq!(strip("<think>a</think>\n<think>again"), None);
        assert_eq!(strip("42 <think>or is it"), Some("42 "));
    }
}
