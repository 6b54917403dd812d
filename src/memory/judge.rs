//! Success or failure where the run withholds it: the backbone judges its own attempt.
//!
//! The form is AWM's evaluator (two lines, `Thoughts:` and `Status:`), shared by the methods that learn from success.

use super::llm::{Call, Llm};
use super::template::fill_within;
use super::trajectory::{self, Outcome};
use crate::record::Experience;

const PROMPT: &str = include_str!("../../configs/prompts/judge.txt");
const REPLY_TOKENS: usize = 256;
const PROMPT_TOKENS: usize = 6000;

/// What the run tells, else what the backbone judges; `None` when its reply says neither.
pub(super) fn is_success(experience: &Experience, llm: &Llm<'_>) -> anyhow::Result<Option<bool>> {
    if let Some(is_correct) = experience.feedback.is_correct() {
        return Ok(Some(is_correct));
    }
    let attempt = trajectory::compact(experience, Outcome::Hidden);
    let limit = llm.room(PROMPT_TOKENS, REPLY_TOKENS);
    let prompt = fill_within(PROMPT, &[("attempt", &attempt)], &["attempt"], limit, llm);
    llm.ask(Call { purpose: "judge/outcome", prompt, max_tokens: REPLY_TOKENS, temperature: 0.0, form: None }, status)
}

/// The last line that begins with `Status`, whatever markup is around it.
fn status(reply: &str) -> Option<bool> {
    let lines = reply.lines().map(|line| line.trim_start_matches(|c: char| !c.is_alphanumeric()).to_lowercase());
    let line = lines.rev().find(|line| line.starts_with("status"))?;
    match (line.contains("success"), line.contains("fail")) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::status;

    #[test]
    fn the_last_status_line_counts() {
        assert_eq!(status("Thoughts: Status looks odd.\nStatus: success"), Some(true));
        assert_eq!(status("**Status:** Failure."), Some(false));
        assert_eq!(status("status: success\nStatus: \"failure\""), Some(false));
        assert_eq!(status("success"), None);
        assert_eq!(status("Status: success or failure"), None);
    }
}
