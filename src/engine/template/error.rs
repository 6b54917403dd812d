//! Why a chat could not be rendered.

use std::path::PathBuf;

use minijinja::ErrorKind;

/// A chat template that is absent, cannot be read, or fails on a conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    #[error(
        "the model `{model}` has no chat template, and guessing one would put words into its prompts: put the template as \
         `chat_template.jinja` beside its weights, or send a plain prompt in place of messages"
    )]
    Absent { model: String },

    #[error("cannot read {}: {reason}", path.display())]
    Read { path: PathBuf, reason: String },

    #[error(
        "the chat template never reads `{variable}`, so setting it would change nothing: leave it out, or set a variable \
         that this model's template has"
    )]
    Unread { variable: String },

    #[error(
        "`{variable}` is what a chat template is given with every conversation, and a setting of that name would replace it: \
         leave it out"
    )]
    Reserved { variable: String },

    #[error("{0}")]
    ToolFormat(String),

    #[error("the chat template {fault}{}: {reason}{}", at(*line), shown(snippet))]
    Failed {
        fault: TemplateFault,
        /// Line of the template, from 1.
        line: Option<usize>,
        reason: String,
        /// That line of the template, shortened; empty when it is not known.
        snippet: String,
    },
}

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TemplateFault {
    /// It is not a template.
    Syntax,
    /// The template itself refused the conversation (`raise_exception`).
    Raised,
    /// An operation on values of the wrong kind (text + null).
    Type,
    /// Use of something that is not there.
    Undefined,
    /// A reach into the program, or a change to the caller's messages.
    Security,
    /// More work than one rendering may do.
    Limit,
}

impl std::fmt::Display for TemplateFault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            TemplateFault::Syntax => "cannot be parsed",
            TemplateFault::Raised => "refused the conversation",
            TemplateFault::Type => "used a value of the wrong kind",
            TemplateFault::Undefined => "used a value that is not defined",
            TemplateFault::Security => "tried what templates may not do",
            TemplateFault::Limit => "asked for more work than one rendering may do",
        })
    }
}

fn at(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(" in line {line}"))
}

fn shown(snippet: &str) -> String {
    if snippet.is_empty() { String::new() } else { format!(" (`{snippet}`)") }
}

/// Marks an error that one of our functions raised with the kind it stands for.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("{0}")]
struct Marked(TemplateFault);

/// An error to be raised inside a template.
pub(super) fn fault(fault: TemplateFault, reason: impl Into<String>) -> minijinja::Error {
    minijinja::Error::new(ErrorKind::InvalidOperation, reason.into()).with_source(Marked(fault))
}

impl TemplateError {
    /// Reads an error of the template engine; `source` is the template.
    pub(super) fn from_engine(error: &minijinja::Error, source: &str) -> Self {
        let innermost = innermost(error);
        let line = error.line();
        TemplateError::Failed {
            fault: fault_of(innermost),
            line,
            reason: innermost.detail().map_or_else(|| innermost.kind().to_string(), str::to_string),
            snippet: line.map_or_else(String::new, |line| snippet(source, line)),
        }
    }
}

/// The error at the bottom of a chain of template errors (a macro's error is wrapped by its call).
fn innermost(error: &minijinja::Error) -> &minijinja::Error {
    let mut innermost = error;
    while let Some(inner) = std::error::Error::source(innermost).and_then(|source| source.downcast_ref()) {
        innermost = inner;
    }
    innermost
}

fn fault_of(error: &minijinja::Error) -> TemplateFault {
    if let Some(Marked(fault)) = std::error::Error::source(error).and_then(|source| source.downcast_ref()) {
        return *fault;
    }
    let detail = error.detail().unwrap_or_default();
    match error.kind() {
        ErrorKind::OutOfFuel => TemplateFault::Limit,
        _ if detail.contains("recursion limit") => TemplateFault::Limit,
        _ if detail.contains("types undefined") || detail.ends_with("and undefined") => TemplateFault::Undefined,
        ErrorKind::SyntaxError | ErrorKind::BadEscape | ErrorKind::UnknownFilter | ErrorKind::UnknownTest => {
            TemplateFault::Syntax
        }
        ErrorKind::UndefinedError | ErrorKind::UnknownFunction | ErrorKind::UnknownMethod => TemplateFault::Undefined,
        _ => TemplateFault::Type,
    }
}

/// One line of the template, at most 100 characters.
fn snippet(source: &str, line: usize) -> String {
    const LONGEST: usize = 100;
    let text = source.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}
