//! The world of a single-turn task: the first reply is the answer.

use super::{Action, Environment, Outcome, World};
use crate::record::{Ending, ReplyFormat, Task, TaskView};
use crate::registry::Registered;
use crate::reply::{answer, code, python, think};

pub struct Reply;

struct OneReply;

impl Registered for Reply {
    fn name(&self) -> &str {
        "reply"
    }
    fn about(&self) -> &str {
        "single-turn tasks: the reply is the answer"
    }
    fn source(&self) -> &str {
        "own"
    }
}

impl Environment for Reply {
    fn open(&self, _task: &Task) -> anyhow::Result<Box<dyn World>> {
        Ok(Box::new(OneReply))
    }

    fn action(&self, task: &TaskView, reply: &str) -> Action {
        match read_answer(&task.reply_format, reply) {
            Some(text) => Action::Answer(text),
            None => Action::Invalid { why: format!("the reply holds no {}", describe(&task.reply_format)) },
        }
    }

    fn canonical(&self, task: &TaskView, reply: &str) -> Option<String> {
        let text = read_answer(&task.reply_format, reply)?;
        Some(match &task.reply_format {
            ReplyFormat::Code { .. } => python::canonical(&text).unwrap_or(text),
            ReplyFormat::FreeText | ReplyFormat::Line => {
                text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
            }
            ReplyFormat::Number | ReplyFormat::Choice(_) | ReplyFormat::ToolCalls { .. } => text,
        })
    }
}

impl World for OneReply {
    fn act(&mut self, action: Action) -> anyhow::Result<Outcome> {
        Ok(match action {
            Action::Answer(text) => Outcome::Done { answer: Some(text), ending: Ending::Finished },
            Action::OutOfContext => Outcome::Done { answer: None, ending: Ending::ContextLimit },
            Action::Call(_) | Action::Invalid { .. } => Outcome::Done { answer: None, ending: Ending::InvalidAction },
        })
    }
}

fn describe(format: &ReplyFormat) -> &'static str {
    match format {
        ReplyFormat::FreeText | ReplyFormat::Line | ReplyFormat::ToolCalls { .. } => "text",
        ReplyFormat::Number => "number",
        ReplyFormat::Choice(_) => "option letter",
        ReplyFormat::Code { .. } => "code",
    }
}

fn read_answer(format: &ReplyFormat, reply: &str) -> Option<String> {
    let text = think::strip(reply)?;
    match format {
        ReplyFormat::FreeText | ReplyFormat::ToolCalls { .. } => {
            Some(text.trim().to_string()).filter(|text| !text.is_empty())
        }
        ReplyFormat::Line => answer::first_line(text),
        ReplyFormat::Number => answer::last_number(text).map(|value| value.to_string()),
        ReplyFormat::Choice(letters) => answer::choice(text, letters),
        ReplyFormat::Code { language, entry_point } => code::extract(text, language, entry_point.as_deref()),
    }
}
