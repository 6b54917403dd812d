//! What memories brought to the prompts of their agents, and what of it was lost on the way: a memory that stays empty, or
//! whose own calls cannot be read, explains a metric better than its method does.

use std::collections::BTreeMap;

use crate::record::AttemptRecord;

use super::data::ReportData;
use super::table::{Cell, Column, Kind, Table};
use super::view::{View, share};

/// Purpose of the calls in which selective experience use judges what was recalled.
const JUDGE: &str = "seu/compile";
/// Id of what such a call condensed a bundle into.
const CONDENSED: &str = "seu-summary";

/// Counts over the attempts of one agent in one kind of stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// `sequence`, `transition` or `orders`.
    pub family: String,
    pub agent: String,
    pub attempts: usize,
    /// Attempts whose prompt held a memory.
    pub with_memory: usize,
    /// Memories in all prompts together.
    pub shown: usize,
    /// Memories that did not fit the budget, and tokens cut from the end of those that were too long.
    pub dropped: usize,
    pub cut_tokens: u64,
    /// Calls to the backbone, those of them whose reply could not be read, and those too long to be made.
    pub calls: usize,
    pub unread: usize,
    pub unasked: usize,
    /// What a judge of recalled memories did.
    pub judged: Judged,
}

/// Attempts in which recalled memories were judged, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    pub kept: usize,
    pub condensed: usize,
    pub ignored: usize,
    /// Of those kept: the judge's reply could not be read.
    pub unread: usize,
}

impl MemoryUse {
    fn add(&mut self, record: &AttemptRecord) {
        let recalled = &record.attempt.recalled;
        self.attempts += 1;
        self.with_memory += usize::from(!recalled.is_empty());
        self.shown += recalled.len();
        self.dropped += record.attempt.dropped_memories as usize;
        self.cut_tokens += record.memory_work.cut_tokens;
        for call in record.memory_work.calls() {
            self.calls += usize::from(call.is_asked());
            self.unread += usize::from(call.is_asked() && !call.is_read);
            self.unasked += usize::from(!call.is_asked());
        }
        let mut judges = record.memory_work.recalled.iter().filter(|call| call.purpose == JUDGE).peekable();
        if judges.peek().is_none() {
            return;
        }
        match (recalled.is_empty(), recalled.iter().any(|id| id == CONDENSED)) {
            (true, _) => self.judged.ignored += 1,
            (false, true) => self.judged.condensed += 1,
            (false, false) => self.judged.kept += 1,
        }
        self.judged.unread += usize::from(judges.any(|call| !call.is_read));
    }
}

/// One entry an agent with a memory and kind of stage, in the order of the stages' names.
pub(super) fn build(data: &ReportData) -> Vec<MemoryUse> {
    let mut found: BTreeMap<(&str, &str), MemoryUse> = BTreeMap::new();
    for record in &data.records {
        let mut parts = record.coord.stage.split('/');
        let (Some(family), Some(_), Some(agent)) = (parts.next(), parts.next(), parts.next()) else { continue };
        if ["sequence", "transition", "orders"].contains(&family) && data.method(agent) != Some("none") {
            found.entry((family, agent)).or_default().add(record);
        }
    }
    let named = |((family, agent), counts): ((&str, &str), MemoryUse)| MemoryUse {
        family: family.into(),
        agent: agent.into(),
        ..counts
    };
    found.into_iter().map(named).collect()
}

fn per(part: f64, of: usize) -> String {
    if of == 0 { "n/a".into() } else { format!("{:.1}", part / of as f64) }
}

fn percent(part: usize, of: usize) -> String {
    share((of > 0).then(|| part as f64 / of as f64))
}

pub(super) fn view(data: &ReportData) -> View {
    let headers = [
        "stage",
        "agent",
        "attempts",
        "with memory %",
        "memories an attempt",
        "left out for length",
        "tokens cut",
        "calls an attempt",
        "unreadable %",
    ];
    let mut view = View::new("What memories brought to the prompts", 2, &headers);
    for row in build(data) {
        view.rows.push(vec![
            row.family,
            row.agent,
            row.attempts.to_string(),
            percent(row.with_memory, row.attempts),
            per(row.shown as f64, row.attempts),
            row.dropped.to_string(),
            row.cut_tokens.to_string(),
            per(row.calls as f64, row.attempts),
            percent(row.unread, row.calls),
        ]);
    }
    view
}

/// What selective experience use decided; empty where no agent has it.
pub(super) fn judged_view(data: &ReportData) -> View {
    let headers = ["stage", "agent", "judged", "kept %", "condensed %", "ignored %", "unreadable, so kept"];
    let mut view = View::new("What the judge did with recalled memories", 2, &headers);
    for row in build(data) {
        let Judged { kept, condensed, ignored, unread } = row.judged;
        let all = kept + condensed + ignored;
        if all > 0 {
            view.rows.push(vec![
                row.family,
                row.agent,
                all.to_string(),
                percent(kept, all),
                percent(condensed, all),
                percent(ignored, all),
                unread.to_string(),
            ]);
        }
    }
    view
}

/// `None` where no agent with a memory lived.
pub(super) fn table(data: &ReportData) -> Option<Table> {
    let columns = [
        ("stage", Kind::Text, "sequence, transition or orders"),
        ("agent", Kind::Text, "name in the run file"),
        ("attempts", Kind::Whole, "attempts stored"),
        ("with_memory", Kind::Whole, "attempts whose prompt held a memory"),
        ("shown", Kind::Whole, "memories in all prompts together"),
        ("dropped", Kind::Whole, "memories left out because they did not fit the budget"),
        ("cut_tokens", Kind::Whole, "tokens cut from the end of memories that were too long"),
        ("calls", Kind::Whole, "calls of the memory to the backbone"),
        ("unread", Kind::Whole, "those of them whose reply could not be read: the method's fallback applied"),
        ("unasked", Kind::Whole, "further calls that did not fit the context"),
        ("kept", Kind::Whole, "attempts whose recalled memories a judge kept"),
        ("condensed", Kind::Whole, "attempts whose recalled memories a judge condensed"),
        ("ignored", Kind::Whole, "attempts whose recalled memories a judge left out"),
        ("judge_unread", Kind::Whole, "judged attempts with a reply that could not be read"),
    ];
    let columns = columns.map(|(name, kind, about)| Column::new(name, kind, about)).to_vec();
    let mut table = Table::new("memory_use", "one row per kind of stage and agent with a memory", columns);
    for row in build(data) {
        let counts = [
            row.attempts,
            row.with_memory,
            row.shown,
            row.dropped,
            row.cut_tokens as usize,
            row.calls,
            row.unread,
            row.unasked,
            row.judged.kept,
            row.judged.condensed,
            row.judged.ignored,
            row.judged.unread,
        ];
        let mut cells = vec![Cell::text(&row.family), Cell::text(&row.agent)];
        cells.extend(counts.map(Cell::whole));
        table.push(cells);
    }
    (!table.rows.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Attempt, Coord, Ending, MemoryCall, MemoryWork, Score, TaskId, Usage};

    fn record(recalled: &[&str], judged: Option<bool>) -> AttemptRecord {
        let call = |is_read| MemoryCall {
            purpose: JUDGE.into(),
            request: "00".into(),
            reply: "KEEP".into(),
            is_read,
            usage: Usage { prompt_tokens: 9, generated_tokens: 1 },
        };
        AttemptRecord {
            coord: Coord { stage: "sequence/positive/a".into(), sequence: 0, step: 0, attempt: 0 },
            task: TaskId("t".into()),
            attempt: Attempt {
                turns: Vec::new(),
                answer: None,
                ending: Ending::Finished,
                usage: Usage::default(),
                recalled: recalled.iter().map(ToString::to_string).collect(),
                dropped_memories: 2,
                votes: Vec::new(),
            },
            score: Score::Graded(1.0),
            detail: String::new(),
            memory: None,
            memory_work: MemoryWork {
                recalled: judged.map(call).into_iter().collect(),
                cut_tokens: 3,
                ..MemoryWork::default()
            },
        }
    }

    #[test]
    fn what_a_judge_did_is_told_from_what_was_shown() {
        let mut counts = MemoryUse::default();
        for record in [
            record(&[], None),
            record(&["a", "b"], Some(true)),
            record(&["a"], Some(false)),
            record(&[CONDENSED], Some(true)),
            record(&[], Some(true)),
        ] {
            counts.add(&record);
        }
        assert_eq!(counts.judged, Judged { kept: 2, condensed: 1, ignored: 1, unread: 1 });
        assert_eq!((counts.attempts, counts.with_memory, counts.shown), (5, 3, 4));
        assert_eq!((counts.dropped, counts.cut_tokens, counts.calls, counts.unread), (10, 15, 4, 1));
    }
}
