//! gpt-oss (harmony): messages on channels. `analysis` is the thought; `commentary` with a recipient
//! `functions.NAME` is a call; `final` is the answer. Source: openai/harmony, docs/format.md.
//!
//! A reply goes on from `<|start|>assistant`, so its first message has no start. Commentary without a recipient is the
//! model's own note before calls and counts to the thought.

use super::builder::Builder;
use super::json_text::{arguments_of, skip_space, value_end};
use super::scan::first_of;
use super::{Dialect, Reading, Reply};
use crate::registry::Registered;
use crate::reply::think;

#[derive(Debug)]
pub(super) struct Harmony;

pub(super) static HARMONY: Harmony = Harmony;

const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
/// What a message's body ends at; the start of the next one is no part of this one.
const MARKS: [&str; 4] = ["<|start|>", "<|end|>", "<|call|>", "<|return|>"];

impl Registered for Harmony {
    fn name(&self) -> &str {
        "harmony"
    }

    fn about(&self) -> &str {
        "messages on channels (gpt-oss)"
    }

    fn source(&self) -> &str {
        "openai/harmony, docs/format.md"
    }
}

impl Dialect for Harmony {
    fn is_of(&self, template: &str) -> bool {
        template.contains(CHANNEL)
    }

    fn has_channels(&self) -> bool {
        true
    }

    fn read(&self, reply: &str, reading: &Reading<'_>) -> Reply {
        let mut builder = Builder::new(reply, &Reading { thought_is_open: false, ..*reading });
        if !reply.contains(CHANNEL) && !reply.contains(MESSAGE) {
            without_marks(&mut builder);
            return builder.finish();
        }
        let mut at = 0;
        while skip_space(reply, at) < reply.len() {
            at = message(&mut builder, at);
        }
        builder.finish()
    }
}

/// A reply whose marks were taken out: the thought, if any, stands between tags (`<think>`).
fn without_marks(builder: &mut Builder<'_>) {
    let raw = builder.raw;
    if let Some(close) = raw.find(think::CLOSE) {
        let open = raw.find(think::OPEN).filter(|open| *open < close).map_or(0, |open| open + think::OPEN.len());
        builder.thought(open..close);
        builder.words(close + think::CLOSE.len()..raw.len());
    } else if let Some(rest) = raw.strip_prefix(think::OPEN) {
        builder.thought(raw.len() - rest.len()..raw.len());
        builder.cut("the end of the thought");
    } else {
        builder.words(0..raw.len());
    }
}

/// Reads one message and returns where the next one starts.
fn message(builder: &mut Builder<'_>, start: usize) -> usize {
    let raw = builder.raw;
    let Some(length) = raw[start..].find(MESSAGE) else {
        builder.cut("`<|message|>`");
        return raw.len();
    };
    let header = Header::read(builder, start, start + length);
    let body = start + length + MESSAGE.len();
    // A header that never came to its message leaves the next one's start inside this body.
    let (end, mark) = first_of(raw, body, &MARKS).unwrap_or((raw.len(), 0));
    let is_end = end < raw.len() && mark != 0;
    let after = if is_end { end + MARKS[mark].len() } else { end };
    match header.channel {
        "final" => builder.framed_answer(body..end),
        "analysis" => {
            if header.recipient.is_some() {
                builder.ignore(start, "no recipient outside of commentary");
            }
            builder.thought(body..end);
        }
        "commentary" => match header.recipient.map(|name| name.strip_prefix("functions.").ok_or(name)) {
            Some(Ok(name)) if !name.is_empty() => return call(builder, name, start, body..end, after),
            Some(_) => builder.broken(start, "a recipient `functions.NAME`"),
            None => builder.thought(body..end),
        },
        _ => builder.broken(start, "one of the channels analysis, commentary and final"),
    }
    after
}

/// A call's arguments. They decide where the message ends: a mark may stand inside a string.
fn call(builder: &mut Builder<'_>, name: &str, start: usize, body: std::ops::Range<usize>, after: usize) -> usize {
    let raw = builder.raw;
    let at = skip_space(raw, body.start);
    if body.end < raw.len() && raw[body.clone()].trim().is_empty() {
        builder.repair(at, "an object of arguments");
        builder.call(start..body.end, name.to_string(), serde_json::Map::new(), "{}".to_string());
        return after;
    }
    match value_end(raw, at) {
        Ok(end) => {
            match arguments_of(&raw[at..end]) {
                Some((arguments, arguments_raw, is_repaired)) => {
                    if is_repaired {
                        builder.repair(at, "arguments as a JSON object");
                    }
                    builder.call(start..end, name.to_string(), arguments, arguments_raw);
                }
                None => builder.broken(at, "an object of arguments"),
            }
            let end = skip_space(raw, end);
            let mark = MARKS[1..].iter().find(|mark| raw[end..].starts_with(**mark));
            mark.map_or(after.max(end), |mark| end + mark.len())
        }
        Err(fault) if body.end < raw.len() => {
            builder.broken(fault.at.min(body.end), fault.expected);
            after
        }
        Err(fault) => {
            builder.fault(fault);
            after
        }
    }
}

struct Header<'a> {
    /// Empty when none is named.
    channel: &'a str,
    recipient: Option<&'a str>,
}

impl<'a> Header<'a> {
    /// The first channel counts; the recipient may stand before or behind it.
    fn read(builder: &mut Builder<'a>, start: usize, end: usize) -> Header<'a> {
        let header = &builder.raw[start..end];
        let mut channels = header.match_indices(CHANNEL).map(|(at, mark)| &header[at + mark.len()..]);
        let named = channels.next().unwrap_or_default();
        let length = named.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(named.len());
        let (channel, behind) = named.split_at(length);
        if channels.next().is_some() {
            builder.ignore(start, "one channel a message");
        }
        if !channel.is_empty() && !behind.is_empty() && !behind.starts_with([' ', '<', '\n']) {
            builder.ignore(start, "nothing directly behind the channel's name");
        }
        let recipient = header.find("to=").map(|at| &header[at + 3..]);
        let recipient =
            recipient.map(|rest| rest.split(|c: char| c.is_whitespace() || c == '<').next().unwrap_or_default());
        Header { channel, recipient }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{FindingKind, Status};
    use super::*;

    fn read(reply: &str) -> Reply {
        HARMONY.read(reply, &Reading::default())
    }

    #[test]
    fn the_mark_that_ends_a_reply_may_be_missing() {
        let reply = read("<|channel|>commentary to=functions.f<|constrain|>json<|message|>{\"a\": \"<|end|>\"}");
        assert_eq!((reply.status, reply.calls[0].arguments["a"].clone()), (Status::Ok, json!("<|end|>")));
        let reply = read(" to=functions.f<|channel|>commentary<|message|>{}<|call|>");
        assert_eq!((reply.status, reply.calls.len()), (Status::Ok, 1), "the recipient may stand first");
    }

    #[test]
    fn cut_messages_are_told() {
        assert_eq!(read("<|channel|>commentary to=functions.f<|message|>{\"a\": ").status, Status::Truncated);
        assert_eq!(read("<|channel|>commentary to=functions.f").status, Status::Truncated);
        assert_eq!(read("<|channel|>commentary to=functions.f<|message|>{\"a\": }<|call|>").status, Status::Broken);
        assert_eq!(read("<|channel|>commentary to=python<|message|>1<|call|>").status, Status::Broken);
    }

    #[test]
    fn text_without_channels_is_text() {
        let reply = read("It is 4.");
        assert_eq!((reply.text.as_str(), reply.status), ("It is 4.", Status::None));
        let reply = read("<think>Two and two.</think>\n\nIt is 4.");
        assert_eq!((reply.text.as_str(), reply.thought.as_deref()), ("It is 4.", Some("Two and two.")));
        let reply = read("<think>Two and");
        assert_eq!((reply.text.as_str(), reply.status), ("", Status::Truncated));
    }

    #[test]
    fn several_calls_stand_in_messages_of_their_own() {
        let call = |name: &str| format!("<|channel|>commentary to=functions.{name}<|message|>{{}}<|call|>");
        let reply = read(&format!(
            "<|channel|>commentary<|message|>Two.<|end|><|start|>assistant{}<|start|>assistant{}",
            call("a"),
            call("b")
        ));
        assert_eq!(
            (reply.calls.len(), reply.thought.as_deref(), reply.count(FindingKind::Ignored)),
            (2, Some("Two."), 0)
        );
    }
}
