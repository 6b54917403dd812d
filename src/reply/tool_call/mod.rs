//! Tool calls in a model's reply, its reasoning apart from its answer.
//!
//! Every model family writes calls in a form of its own, which its chat template fixes: a [`Dialect`] reads one. One
//! file a family, one line in [`DIALECTS`]. A reply is untrusted and often cut or malformed; what is wrong with it is a
//! [`Finding`] beside the calls that are whole, never an error, so that a broken call counts neither as a call nor as a
//! decision not to call.
//!
//! Reading takes time linear in the reply, nesting is limited to [`MAX_DEPTH`], and nothing here recurses deeper.

mod builder;
mod deepseek;
mod harmony;
mod hermes;
mod json_text;
mod llama_json;
mod llama_pythonic;
mod mistral;
mod qwen_coder;
mod scan;
mod tool;

use std::ops::Range;

use serde::Serialize;
use serde_json::{Map, Value};

pub use json_text::MAX_DEPTH;
pub use tool::Tool;

use crate::registry::{self, Registered, UnknownName};

/// How one model family writes its calls.
pub trait Dialect: Registered + Sync + std::fmt::Debug {
    /// Whether a chat template is of this family. The first of [`DIALECTS`] that says so is taken.
    fn is_of(&self, template: &str) -> bool;

    /// Whether thought and answer are messages of their own, framed by control tokens.
    fn has_channels(&self) -> bool {
        false
    }

    /// Reads a reply, control tokens written out (`Tokenizer::decode_with_specials`). Ending tokens may be missing.
    fn read(&self, reply: &str, reading: &Reading<'_>) -> Reply;
}

/// Every family, those with the more particular marks first.
pub static DIALECTS: &[&dyn Dialect] = &[
    &harmony::HARMONY,
    &qwen_coder::QWEN3_CODER,
    &deepseek::DEEPSEEK,
    &mistral::MISTRAL,
    &hermes::QWEN25,
    &hermes::HERMES,
    &llama_pythonic::LLAMA_PYTHONIC,
    &llama_json::LLAMA3_JSON,
];

/// Finds a dialect by its name.
///
/// # Errors
/// [`UnknownName`] with the nearest name.
pub fn find(name: &str) -> Result<&'static dyn Dialect, UnknownName> {
    registry::find("tool-call format", DIALECTS, name)
}

/// The dialect that a chat template asks its model to write; `None` when it knows no tools.
pub fn of_template(template: &str) -> Option<&'static dyn Dialect> {
    DIALECTS.iter().copied().find(|dialect| dialect.is_of(template))
}

/// What is known beside the reply.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading<'a> {
    /// The tools that were on offer; empty when not known.
    pub tools: &'a [Tool],
    /// Whether the prompt ended inside a thought that it had opened.
    pub thought_is_open: bool,
    /// Whether calls written inside a thought count. They do not by default: a model that weighs a call has not made it.
    pub calls_in_thoughts: bool,
}

/// Whether a prompt ends inside a thought that its template opened.
pub fn opens_thought(prompt: &str) -> bool {
    scan::THOUGHT_OPENS.iter().any(|open| prompt.trim_end().ends_with(open))
}

/// A reply, taken apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reply {
    pub status: Status,
    /// Calls that are whole, in the order in which they stand.
    pub calls: Vec<Call>,
    /// What the model said to the user: pieces around calls and thoughts, each trimmed, joined by a newline.
    pub text: String,
    /// Its reasoning; `None` when it wrote none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thought: Option<String>,
    /// What was wrong or unusual, in the order in which it was met.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

impl Reply {
    /// How many findings are of a kind.
    pub fn count(&self, kind: FindingKind) -> usize {
        self.findings.iter().filter(|finding| finding.kind == kind).count()
    }

    /// Whether something in it was meant as a call and is none, or was cut.
    pub fn has_faults(&self) -> bool {
        self.count(FindingKind::Broken) + self.count(FindingKind::Truncated) > 0
    }
}

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    pub name: String,
    pub arguments: Map<String, Value>,
    /// The arguments as the model wrote them, where it wrote JSON (numbers keep all their digits); else as JSON.
    pub arguments_raw: String,
    /// Bytes of the reply that the call takes.
    pub at: Range<usize>,
    /// Whether a tool of that name was on offer; `None` when the tools are not known. A call to no tool stays one, and is
    /// never to be executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<bool>,
}

/// A reply in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Calls, all whole; or, in a dialect that frames answers too, a framed answer.
    Ok,
    /// No call, and nothing that was meant as one.
    None,
    /// Whole calls beside broken or cut ones.
    Partial,
    /// Something meant as a call, and no whole one.
    Broken,
    /// The reply ended inside a call or a thought, and holds no whole call.
    Truncated,
}

/// What kind of finding it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Meant as a call, and none.
    Broken,
    /// The reply ended too early.
    Truncated,
    /// Not as the format says, but of one meaning; the call is among the calls.
    Repaired,
    /// Left out of calls and text.
    Ignored,
}

/// Something in a reply that is not as its dialect says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub kind: FindingKind,
    /// Byte of the reply.
    pub at: usize,
    pub expected: &'static str,
    /// What stands there, shortened.
    pub found: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dialect: &str, reply: &str) -> Reply {
        find(dialect).unwrap().read(reply, &Reading::default())
    }

    #[test]
    fn families_are_told_by_their_templates() {
        let of = |template: &str| of_template(template).map(|dialect| dialect.name());
        assert_eq!(of("{{ '<|im_start|>' }}<tool_call>"), Some("qwen25"));
        assert_eq!(of("<s><tool_call>"), Some("hermes"));
        assert_eq!(of("<tool_call>\n<function=example>\n<parameter=x>"), Some("qwen3_coder"));
        assert_eq!(of("<|start|>assistant<|channel|>"), Some("harmony"));
        assert_eq!(of("[INST] [TOOL_CALLS]"), Some("mistral"));
        assert_eq!(of("<｜tool▁calls▁begin｜>"), Some("deepseek"));
        assert_eq!(of("<|start_header_id|> {\"name\": .., \"parameters\": ..}"), Some("llama3_json"));
        assert_eq!(of("<start_of_turn>"), None);
    }

    #[test]
    fn a_thought_that_the_prompt_opened_is_no_text() {
        assert!(opens_thought("<|im_start|>assistant\n<think>\n"));
        assert!(!opens_thought("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
        assert!(!opens_thought("the tag <think> opens a thought<|im_start|>assistant\n"), "written by the user");
        let reading = Reading { thought_is_open: true, ..Reading::default() };
        for dialect in ["hermes", "qwen3_coder", "deepseek", "mistral", "llama3_json", "llama3_pythonic"] {
            let reply = find(dialect).unwrap().read("hmm\n</think>\n\nyes", &reading);
            assert_eq!((reply.text.as_str(), reply.thought.as_deref()), ("yes", Some("hmm")), "{dialect}");
            let reply = find(dialect).unwrap().read("still at it", &reading);
            assert_eq!((reply.text.as_str(), reply.status), ("", Status::Truncated), "{dialect}");
            // Nobody said that the prompt opened it, but the closing tag does.
            assert_eq!(read(dialect, "hmm</think>yes").thought.as_deref(), Some("hmm"), "{dialect}");
        }
    }

    #[test]
    fn calls_in_thoughts_count_when_asked_for() {
        let reply = "<think>so <tool_call>{\"name\": \"a\"}</tool_call></think>";
        assert!(read("hermes", reply).calls.is_empty());
        let reading = Reading { calls_in_thoughts: true, ..Reading::default() };
        let found = find("hermes").unwrap().read(reply, &reading);
        assert_eq!((found.calls.len(), found.thought.as_deref()), (1, Some("so")));
    }

    #[test]
    fn places_are_bytes_of_the_reply() {
        let reply = "é <tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call> <tool_call>{\"name\": }</tool_call>";
        let found = read("hermes", reply);
        assert_eq!(&reply[found.calls[0].at.clone()], "{\"name\": \"a\", \"arguments\": {}}");
        assert_eq!(&reply[found.findings[0].at..][..1], "}");
        assert_eq!(found.findings[0].expected, "a JSON value");
    }
}
