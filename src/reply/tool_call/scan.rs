//! The walk that most families share: running text with marks in it, some of which open calls.

use super::builder::Builder;
use super::{Reading, Reply};

pub(super) const THOUGHT_OPENS: [&str; 2] = ["<think>", "[THINK]"];
const THOUGHT_CLOSES: [&str; 2] = ["</think>", "[/THINK]"];

/// The marks of a family, and how what stands behind an opening one is read.
pub(super) struct Marks {
    /// Marks that open calls.
    pub opens: &'static [&'static str],
    /// Marks that mean nothing by themselves: left out of the text.
    pub strays: &'static [&'static str],
    /// Whether an opening mark, from the first place to the second, is one here; else it is text.
    pub is_open: fn(&Builder<'_>, usize, usize) -> bool,
    /// Reads calls from the opening mark at the first place on, its end at the second, and returns where the text goes
    /// on: after the mark at least.
    pub read: fn(&mut Builder<'_>, usize, usize) -> usize,
    /// For families whose calls may begin a reply without a mark: reads them from this place on, where only white space
    /// stands in front. Returns the same place when there are none.
    pub read_bare: Option<fn(&mut Builder<'_>, usize) -> usize>,
}

enum Mark {
    Open(usize),
    Stray(usize),
    ThoughtOpens(usize),
    ThoughtCloses(usize),
}

/// Takes a reply apart at its marks.
pub(super) fn scan(raw: &str, reading: &Reading<'_>, marks: &Marks) -> Reply {
    let mut builder = Builder::new(raw, reading);
    let mut words = bare(&mut builder, 0, marks);
    let mut at = words;
    while let Some((start, mark)) = next_mark(raw, at, marks, builder.reads_calls()) {
        if let Mark::Open(length) = mark
            && !(marks.is_open)(&builder, start, start + length)
        {
            at = start + length;
            continue;
        }
        builder.words(words..start);
        at = match mark {
            Mark::Open(length) => (marks.read)(&mut builder, start, start + length).max(start + length),
            Mark::Stray(length) => {
                builder.ignore(start, "no mark outside of calls");
                start + length
            }
            Mark::ThoughtOpens(length) => {
                builder.open_thought();
                start + length
            }
            Mark::ThoughtCloses(length) => {
                builder.close_thought(start);
                bare(&mut builder, start + length, marks)
            }
        };
        words = at;
    }
    builder.words(words..raw.len());
    builder.finish()
}

fn bare(builder: &mut Builder<'_>, at: usize, marks: &Marks) -> usize {
    match marks.read_bare {
        Some(read) if builder.is_at_start() && !builder.is_in_thought() => read(builder, at),
        _ => at,
    }
}

/// The first of some marks at or after `from`: where, and which. Walks no further than that place, so that looking for
/// marks one after the other stays linear whichever of them are absent.
pub(super) fn first_of(raw: &str, from: usize, marks: &[&str]) -> Option<(usize, usize)> {
    let bytes = raw.as_bytes();
    (from..bytes.len()).find_map(|at| {
        let found = marks.iter().position(|mark| bytes[at..].starts_with(mark.as_bytes()))?;
        Some((at, found))
    })
}

/// The next mark at or after `from`. Inside a thought the marks of calls are words.
fn next_mark(raw: &str, from: usize, marks: &Marks, reads_calls: bool) -> Option<(usize, Mark)> {
    let bytes = raw.as_bytes();
    (from..bytes.len()).filter(|at| matches!(bytes[*at], b'<' | b'[')).find_map(|at| {
        let rest = &raw[at..];
        let length = |list: &[&str]| list.iter().find(|mark| rest.starts_with(**mark)).map(|mark| mark.len());
        let of_calls = |list| if reads_calls { length(list) } else { None };
        let mark = length(&THOUGHT_OPENS)
            .map(Mark::ThoughtOpens)
            .or_else(|| length(&THOUGHT_CLOSES).map(Mark::ThoughtCloses))
            .or_else(|| of_calls(marks.opens).map(Mark::Open))
            .or_else(|| of_calls(marks.strays).map(Mark::Stray))?;
        Some((at, mark))
    })
}
