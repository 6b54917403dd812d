//! A reply while it is being taken apart.

use std::ops::Range;

use serde_json::{Map, Value};

use super::json_text::{Fault, ObjectCall};
use super::{Call, Finding, FindingKind, Reading, Reply, Status};

/// Longest part of the reply that a finding quotes, in characters.
const QUOTED: usize = 40;

pub(super) struct Builder<'a> {
    pub raw: &'a str,
    reading: Reading<'a>,
    calls: Vec<Call>,
    texts: Vec<&'a str>,
    thoughts: Vec<&'a str>,
    findings: Vec<Finding>,
    in_thought: bool,
    has_thought: bool,
    /// The dialect frames answers, and this reply held one.
    has_framed_answer: bool,
    /// Bytes that may still be walked to look for the end of values that turn out broken.
    budget: usize,
}

impl<'a> Builder<'a> {
    pub(super) fn new(raw: &'a str, reading: &Reading<'a>) -> Self {
        Builder {
            raw,
            reading: *reading,
            calls: Vec::new(),
            texts: Vec::new(),
            thoughts: Vec::new(),
            findings: Vec::new(),
            in_thought: reading.thought_is_open,
            has_thought: reading.thought_is_open,
            has_framed_answer: false,
            budget: 8 * raw.len() + 4096,
        }
    }

    /// Whether marks of calls are marks here.
    pub(super) fn reads_calls(&self) -> bool {
        !self.in_thought || self.reading.calls_in_thoughts
    }

    pub(super) fn is_in_thought(&self) -> bool {
        self.in_thought
    }

    /// Whether nothing has been said or called yet.
    pub(super) fn is_at_start(&self) -> bool {
        self.calls.is_empty() && self.texts.is_empty()
    }

    pub(super) fn declares_tools(&self) -> bool {
        !self.reading.tools.is_empty()
    }

    pub(super) fn tool(&self, name: &str) -> Option<&'a super::Tool> {
        self.reading.tools.iter().find(|tool| tool.name == name)
    }

    /// Whether the name of a declared tool stands at `at`, up to one of some letters or the end. Looks no further than
    /// the names are long.
    pub(super) fn names_tool(&self, at: usize, ends: &[char]) -> bool {
        let is_named = |name: &str| {
            let rest = self.raw[at..].strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(ends))
        };
        self.reading.tools.iter().any(|tool| is_named(&tool.name))
    }

    /// Whether a tool of that name may be called; `true` when the tools are not known.
    pub(super) fn may_call(&self, name: &str) -> bool {
        !self.declares_tools() || self.tool(name).is_some()
    }

    /// Words outside of calls: the answer's, or the thought's.
    pub(super) fn words(&mut self, span: Range<usize>) {
        let piece = self.raw[span].trim();
        if !piece.is_empty() {
            if self.in_thought { self.thoughts.push(piece) } else { self.texts.push(piece) }
        }
    }

    pub(super) fn thought(&mut self, span: Range<usize>) {
        self.has_thought = true;
        self.thoughts.extend(Some(self.raw[span].trim()).filter(|piece| !piece.is_empty()));
    }

    pub(super) fn framed_answer(&mut self, span: Range<usize>) {
        self.has_framed_answer = true;
        self.words(span);
    }

    pub(super) fn open_thought(&mut self) {
        (self.in_thought, self.has_thought) = (true, true);
    }

    /// The mark at `at` closes a thought. Where none was ever opened, the prompt must have opened it, and all that stands
    /// before belongs to it.
    pub(super) fn close_thought(&mut self, at: usize) {
        if !self.has_thought {
            self.calls.clear();
            self.texts.clear();
            self.findings.clear();
            self.thought(0..at);
        } else if !self.in_thought {
            self.ignore(at, "no end of a thought outside of one");
        }
        self.in_thought = false;
    }

    pub(super) fn call(&mut self, at: Range<usize>, name: String, arguments: Map<String, Value>, raw: String) {
        let known = self.declares_tools().then(|| self.tool(&name).is_some());
        self.calls.push(Call { name, arguments, arguments_raw: raw, at, known });
    }

    /// Adds what an object was read as.
    pub(super) fn object_call(&mut self, at: Range<usize>, call: Result<ObjectCall, Fault>) {
        match call {
            Ok(ObjectCall { name, arguments, arguments_raw, is_repaired }) => {
                if is_repaired {
                    self.repair(at.start, "arguments as a JSON object");
                }
                self.call(at, name, arguments, arguments_raw);
            }
            Err(fault) => self.fault(fault),
        }
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        let kind = if fault.is_cut { FindingKind::Truncated } else { FindingKind::Broken };
        self.find(kind, fault.at, fault.expected);
    }

    pub(super) fn broken(&mut self, at: usize, expected: &'static str) {
        self.find(FindingKind::Broken, at, expected);
    }

    pub(super) fn cut(&mut self, expected: &'static str) {
        self.find(FindingKind::Truncated, self.raw.len(), expected);
    }

    pub(super) fn repair(&mut self, at: usize, expected: &'static str) {
        self.find(FindingKind::Repaired, at, expected);
    }

    pub(super) fn ignore(&mut self, at: usize, expected: &'static str) {
        self.find(FindingKind::Ignored, at, expected);
    }

    fn find(&mut self, kind: FindingKind, at: usize, expected: &'static str) {
        let rest = self.raw.get(at..).unwrap_or_default();
        let mut found: String = rest.chars().take(QUOTED).collect();
        if found.is_empty() {
            found.push_str("the end of the reply");
        } else if found.len() < rest.len() {
            found.push('…');
        }
        self.findings.push(Finding { kind, at, expected, found });
    }

    /// Where to go on looking for `close` after a value that starts at `start` broke at `fault_at`: at its start, since
    /// the mark may stand inside what was walked, for as long as that keeps the whole linear.
    pub(super) fn after_broken(&mut self, start: usize, fault_at: usize, close: &str) -> Option<usize> {
        let walked = fault_at.saturating_sub(start);
        let from = match self.budget.checked_sub(walked) {
            Some(left) => {
                self.budget = left;
                start
            }
            None => fault_at,
        };
        // A fault may stand in the middle of an escape.
        let from = (from..=self.raw.len()).find(|at| self.raw.is_char_boundary(*at))?;
        self.raw[from..].find(close).map(|at| from + at + close.len())
    }

    pub(super) fn finish(mut self) -> Reply {
        if self.in_thought && self.is_at_start() {
            self.cut("the end of the thought");
        }
        let has = |kind| self.findings.iter().any(|finding| finding.kind == kind);
        let (has_broken, is_cut) = (has(FindingKind::Broken), has(FindingKind::Truncated));
        let status = match (self.calls.is_empty(), has_broken, is_cut) {
            (false, false, false) => Status::Ok,
            (false, ..) => Status::Partial,
            (true, true, _) => Status::Broken,
            (true, false, true) => Status::Truncated,
            (true, false, false) if self.has_framed_answer => Status::Ok,
            (true, false, false) => Status::None,
        };
        Reply {
            status,
            calls: self.calls,
            text: self.texts.join("\n"),
            thought: self.has_thought.then(|| self.thoughts.join("\n")),
            findings: self.findings,
        }
    }
}
