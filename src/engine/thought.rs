//! Where in a reply the answer begins, followed token by token: behind a thought in tags, or on the last of its channels.
//!
//! A form of the reply holds the answer alone, so whoever draws tokens asks [`Phase`] first. Marks that are control tokens
//! print nothing; here they become the tags that the rest of the program reads ([`think`]), so that a thought never runs
//! into the answer behind it. A thought that the prompt opened is written with its opening tag: one that is cut short is not
//! read as an answer then.

use crate::engine::tokenizer::{DecodeStream, TokenKind, Tokenizer};
use crate::reply::think;

/// What the next token of a reply belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is written yet: this token would open a thought, any other one begins the answer.
    Start {
        opens: u32,
    },
    Thought,
    Answer,
}

/// Turns tokens into text one at a time, in whole characters.
pub(crate) trait TextStream: Send {
    /// The text that this token completed; empty while a character is unfinished.
    fn push(&mut self, token: u32) -> String;

    /// What the next token belongs to.
    fn phase(&self) -> Phase {
        Phase::Answer
    }
}

impl TextStream for DecodeStream {
    fn push(&mut self, token: u32) -> String {
        DecodeStream::push(self, token)
    }
}

/// Opening and closing tags of thoughts, those that the program writes first.
const TAGS: [[&str; 2]; 2] = [[think::OPEN, think::CLOSE], ["[THINK]", "[/THINK]"]];
/// A template opens or closes a thought with its last few tokens, or not at all.
const TAIL: usize = 16;

/// A reply whose thought stands between tags.
pub(crate) struct Tagged {
    inner: DecodeStream,
    tokenizer: Tokenizer,
    tags: [&'static str; 2],
    /// The opening tag, where it is one token.
    opens: Option<u32>,
    place: Place,
    /// Written in front of what comes next.
    owed: &'static str,
    /// White space in front of the answer, or the end of a thought that may begin the closing tag.
    held: String,
}

enum Place {
    Start,
    Thought,
    Answer,
}

impl Tagged {
    /// The stream of a reply to this prompt; `None` where neither the prompt nor the template knows thoughts.
    pub(crate) fn behind(prompt: &[u32], template: &str, tokenizer: &Tokenizer) -> Option<Tagged> {
        let end = tokenizer.decode_with_specials(&prompt[prompt.len().saturating_sub(TAIL)..]);
        let end = end.trim_end();
        let (tags, place) = TAGS.iter().find_map(|tags| match () {
            () if end.ends_with(tags[0]) => Some((*tags, Place::Thought)),
            () if end.ends_with(tags[1]) => Some((*tags, Place::Answer)),
            () if template.contains(tags[0]) => Some((*tags, Place::Start)),
            () => None,
        })?;
        let (inner, opens) = (tokenizer.decode_stream(), tokenizer.token_id(tags[0]));
        let owed = if let Place::Thought = place { think::OPEN } else { "" };
        Some(Tagged { inner, tokenizer: tokenizer.clone(), tags, opens, place, owed, held: String::new() })
    }

    /// A tag that is a control token, as text.
    fn hidden_tag(&self, token: u32) -> Option<&'static str> {
        let text = self.tokenizer.token_text(token)?;
        let tag = self.tags.iter().position(|tag| *tag == text)?;
        (self.tokenizer.token_kind(token) == Some(TokenKind::Control)).then(|| TAGS[0][tag])
    }

    fn follow(&mut self, text: &str) {
        if let Place::Start = self.place {
            self.held.push_str(text);
            let said = self.held.trim_start();
            match self.tags[0] {
                tag if said.starts_with(tag) || said.starts_with(think::OPEN) => {
                    self.place = Place::Thought;
                }
                tag if tag.starts_with(said) => return,
                _ => self.place = Place::Answer,
            }
        } else {
            self.held.push_str(text);
        }
        if let Place::Thought = self.place {
            if [self.tags[1], think::CLOSE].iter().any(|tag| self.held.contains(tag)) {
                self.place = Place::Answer;
            }
            let longest = self.tags[1].len().max(think::CLOSE.len());
            let cut = self.held.len().saturating_sub(longest);
            let cut = (cut..=self.held.len()).find(|at| self.held.is_char_boundary(*at)).unwrap_or_default();
            self.held.drain(..cut);
        }
        if let Place::Answer = self.place {
            self.held.clear();
        }
    }
}

impl TextStream for Tagged {
    fn push(&mut self, token: u32) -> String {
        let mut text = self.inner.push(token);
        text.push_str(self.hidden_tag(token).unwrap_or_default());
        if !matches!(self.place, Place::Answer) {
            self.follow(&text);
        }
        text.insert_str(0, std::mem::take(&mut self.owed));
        text
    }

    fn phase(&self) -> Phase {
        match (&self.place, self.opens) {
            (Place::Start, Some(opens)) => Phase::Start { opens },
            (Place::Thought, _) => Phase::Thought,
            (Place::Start | Place::Answer, _) => Phase::Answer,
        }
    }
}

/// The marks of channels (gpt-oss). Source: openai/harmony, docs/format.md.
#[derive(Clone, Copy)]
struct Marks {
    start: u32,
    channel: u32,
    message: u32,
    end: u32,
}

impl Marks {
    fn of(tokenizer: &Tokenizer) -> Option<Marks> {
        let control = |text: &str| {
            let id = tokenizer.token_id(text)?;
            (tokenizer.token_kind(id) == Some(TokenKind::Control)).then_some(id)
        };
        Some(Marks {
            start: control("<|start|>")?,
            channel: control("<|channel|>")?,
            message: control("<|message|>")?,
            end: control("<|end|>")?,
        })
    }
}

/// A reply in messages on channels: those of thought become one thought between tags, that of the answer stands behind it,
/// and calls stay as they are written.
pub(crate) struct Channels {
    marks: Marks,
    inner: DecodeStream,
    written_out: DecodeStream,
    place: Spot,
    is_thought_open: bool,
    /// Written in front of what comes next.
    owed: &'static str,
}

enum Spot {
    /// Between messages, or in the head of one: the text so far, marks written out.
    Head(String),
    Thought,
    Answer,
    Call,
}

impl Channels {
    /// The stream of a reply to this prompt; `None` for a tokenizer without these marks.
    pub(crate) fn behind(prompt: &[u32], tokenizer: &Tokenizer) -> Option<Channels> {
        let marks = Marks::of(tokenizer)?;
        let mut stream = Channels {
            marks,
            inner: tokenizer.decode_stream(),
            written_out: tokenizer.decode_stream_with_specials(),
            place: Spot::Answer,
            is_thought_open: false,
            owed: "",
        };
        // The message that the prompt has begun; a prompt without any is no chat.
        if let Some(last) = prompt.iter().rposition(|token| *token == marks.start) {
            prompt[last..].iter().for_each(|token| drop(stream.push(*token)));
            stream.inner = tokenizer.decode_stream();
        }
        if stream.is_thought_open {
            stream.owed = think::OPEN;
        }
        Some(stream)
    }

    /// What a head says of the message behind it, and what is written in front of that.
    fn open(&mut self, head: &str) -> String {
        let named = head.split("<|channel|>").nth(1).unwrap_or("final").trim_start();
        let channel: &str = named.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
        let is_call = channel == "commentary" && head.contains("to=");
        if !is_call && channel != "final" {
            self.place = Spot::Thought;
            let before = if self.is_thought_open { "\n\n" } else { think::OPEN };
            self.is_thought_open = true;
            return before.to_string();
        }
        let mut before = String::new();
        if std::mem::take(&mut self.is_thought_open) {
            before = format!("{}\n\n", think::CLOSE);
        }
        self.place = Spot::Answer;
        if is_call {
            self.place = Spot::Call;
            let marks = head.find("<|channel|>").unwrap_or_default();
            before.push_str(&head[marks..]);
            before.push_str("<|message|>");
        }
        before
    }
}

impl TextStream for Channels {
    fn push(&mut self, token: u32) -> String {
        let mut text = self.follow(token);
        text.insert_str(0, std::mem::take(&mut self.owed));
        text
    }

    fn phase(&self) -> Phase {
        match self.place {
            Spot::Answer => Phase::Answer,
            Spot::Head(_) | Spot::Thought | Spot::Call => Phase::Thought,
        }
    }
}

impl Channels {
    fn follow(&mut self, token: u32) -> String {
        let Marks { start, channel, message, end } = self.marks;
        if token == start || token == end {
            self.place = Spot::Head(String::new());
            return String::new();
        }
        if token == channel && !matches!(self.place, Spot::Head(_)) {
            self.place = Spot::Head(String::new());
        }
        match &mut self.place {
            Spot::Head(head) if token == message => {
                let head = std::mem::take(head);
                self.open(&head)
            }
            Spot::Head(head) => {
                head.push_str(&self.written_out.push(token));
                String::new()
            }
            Spot::Thought | Spot::Answer | Spot::Call => self.inner.push(token),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tokenizer::{GgufVocabulary, Specials};

    const CONTROLS: [&str; 8] =
        ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "[THINK]", "[/THINK]"];

    /// Every printable character, the marks of channels, and tags of thoughts in both kinds.
    fn tokenizer() -> Tokenizer {
        let words = ["<think>", "</think>", "Ċ", "Ġ", "~~"];
        let characters = (0x21..=0x7e).filter_map(char::from_u32).map(String::from);
        let tokens: Vec<String> =
            CONTROLS.iter().chain(&words).map(|text| text.to_string()).chain(characters).collect();
        let kind = |id: usize| {
            if id < CONTROLS.len() {
                3
            } else if id < CONTROLS.len() + 2 {
                4
            } else {
                1
            }
        };
        Tokenizer::from_gguf(&GgufVocabulary {
            model: "gpt2".to_string(),
            pre: Some("smollm".to_string()),
            token_types: (0..tokens.len()).map(kind).collect(),
            tokens,
            merges: vec!["~ ~".to_string()],
            eos: Some(4),
            ..GgufVocabulary::default()
        })
        .unwrap()
    }

    /// The text of a reply, and for each of its tokens what the next one belongs to: `?`, `t` or `a`.
    fn follow(mut stream: impl TextStream, tokenizer: &Tokenizer, reply: &str) -> (String, String) {
        let letter = |phase| match phase {
            Phase::Start { .. } => '?',
            Phase::Thought => 't',
            Phase::Answer => 'a',
        };
        let (mut text, mut phases) = (String::new(), String::from(letter(stream.phase())));
        for token in tokenizer.encode(reply, Specials::Parse) {
            text.push_str(&stream.push(token));
            phases.push(letter(stream.phase()));
        }
        (text, phases)
    }

    fn tagged(prompt: &str, template: &str, reply: &str) -> Option<(String, String)> {
        let tokenizer = tokenizer();
        let prompt = tokenizer.encode(prompt, Specials::Parse);
        Some(follow(Tagged::behind(&prompt, template, &tokenizer)?, &tokenizer, reply))
    }

    #[test]
    fn a_thought_is_what_stands_between_tags() {
        let followed = |prompt, reply: &str| tagged(prompt, "{# <think> #}", reply).unwrap().1;
        assert_eq!(followed("x", "<think>a</think>{}"), "?ttaaa");
        assert_eq!(followed("x", "\n<think>"), "??t", "behind white space");
        assert_eq!(followed("x", "{<think>"), "?aa", "an answer that has begun opens none");
        assert_eq!(followed("<think>\n", "a</think>\n{"), "ttaaa");
        assert_eq!(followed("<think>\n\n</think>\n\n", "{}"), "aaa");
        // Tags that come in pieces.
        assert_eq!(followed("<think>", "a</thin"), "tttttttt");
        assert_eq!(tagged("x", "no thoughts", "<think>"), None);
        let (text, _) = tagged("<think>\n", "", "4, or 5").unwrap();
        assert_eq!(
            (text.as_str(), think::strip(&text)),
            ("<think>4, or 5", None),
            "a thought that was cut is no answer"
        );
    }

    #[test]
    fn tags_that_print_nothing_are_written_as_those_that_do() {
        let (text, phases) = tagged("x", "[THINK]", "[THINK]a[/THINK]b").unwrap();
        assert_eq!((text.as_str(), phases.as_str()), ("<think>a</think>b", "?ttaa"));
        let (text, _) = tagged("x", "<think>", "<think>a</think>b").unwrap();
        assert_eq!(text, "<think>a</think>b");
    }

    fn channels(prompt: &str, reply: &str) -> (String, String) {
        let tokenizer = tokenizer();
        let prompt = tokenizer.encode(prompt, Specials::Parse);
        follow(Channels::behind(&prompt, &tokenizer).unwrap(), &tokenizer, reply)
    }

    const PROMPT: &str = "<|start|>user<|message|>hi<|end|><|start|>assistant";

    #[test]
    fn the_final_channel_is_the_answer_behind_one_thought() {
        let reply = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>\
                     <|start|>assistant<|channel|>final<|message|>c";
        let (text, phases) = channels(PROMPT, reply);
        assert_eq!(text, "<think>a\n\nb</think>\n\nc");
        assert_eq!(think::strip(&text).map(str::trim), Some("c"));
        assert!(phases.ends_with("taa") && !phases[..phases.len() - 2].contains('a'), "{phases}");
        let (text, phases) = channels(PROMPT, "<|channel|>final <|message|>{}");
        assert_eq!((text.as_str(), &phases[phases.len() - 3..]), ("{}", "aaa"), "no thought at all");
        let (text, _) = channels(PROMPT, "<|channel|>analysis<|message|>a");
        assert_eq!(think::strip(&text), None, "cut inside the thought");
    }

    #[test]
    fn a_prompt_may_have_begun_the_message() {
        let begun = format!("{PROMPT}<|channel|>final<|message|>");
        assert_eq!(channels(&begun, "{}"), ("{}".to_string(), "aaa".to_string()));
        let begun = format!("{PROMPT}<|channel|>analysis<|message|>");
        let (text, phases) = channels(&begun, "a<|end|><|start|>assistant<|channel|>final<|message|>c");
        assert_eq!((text.as_str(), &phases[..2]), ("<think>a</think>\n\nc", "tt"));
        assert_eq!(think::strip(&text).map(str::trim), Some("c"));
        assert_eq!(channels("plain text", "c").1, "aa", "no chat: the text is the answer");
    }

    #[test]
    fn calls_stay_as_they_are_written() {
        let call = "<|channel|>commentary to=functions.f <|message|>{\"a\":1}";
        let (text, phases) =
            channels(PROMPT, &format!("<|channel|>analysis<|message|>a<|end|><|start|>assistant{call}"));
        assert_eq!(text, format!("<think>a</think>\n\n{call}"));
        assert!(!phases.contains('a'), "no form holds a call: {phases}");
    }
}
