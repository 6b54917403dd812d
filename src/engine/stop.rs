//! Stop texts in a stream of decoded text: found wherever token borders fall, and never shown even in part.

use super::sampling::Sampling;

/// Finds stop texts in text that arrives in parts.
///
/// A stop text ends the completion when its last character arrives; of stop texts that end at the same character the
/// one that begins first is taken, so that nothing of either is shown. The result therefore does not depend on where
/// the parts are cut. Text that may still become a stop text is held back.
///
/// ```text
///   … shown before │ held: a suffix that begins some stop text │ next part …
/// ```
#[derive(Clone, Debug)]
pub(crate) struct StopText {
    stops: Vec<String>,
    state: State,
    held: String,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    /// Inside a reasoning block that this text ends.
    Thinking {
        end: String,
    },
    /// After the block, before the first character of the answer.
    BeforeAnswer,
    Answer,
}

/// What one part of text became.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Text that will not be taken back.
    pub(crate) text: String,
    /// The stop text that ended the completion.
    pub(crate) stopped_by: Option<String>,
}

impl StopText {
    pub(crate) fn new(sampling: &Sampling) -> Self {
        let state = match &sampling.think_end {
            Some(end) => State::Thinking { end: end.clone() },
            None => State::Answer,
        };
        StopText { stops: sampling.stop.clone(), state, held: String::new() }
    }

    /// Takes in the next part. Nothing may be pushed after a stop.
    pub(crate) fn push(&mut self, part: &str) -> Shown {
        self.held.push_str(part);
        let mut text = String::new();
        if let State::Thinking { end } = &self.state {
            match self.held.find(end.as_str()) {
                Some(start) => {
                    text.extend(self.held.drain(..start + end.len()));
                    self.state = State::BeforeAnswer;
                }
                None => {
                    let shown = self.held.len() - beginning_of([end.as_str()], &self.held);
                    text.extend(self.held.drain(..shown));
                    return Shown { text, stopped_by: None };
                }
            }
        }
        if self.state == State::BeforeAnswer {
            let spaces = self.held.len() - self.held.trim_start().len();
            text.extend(self.held.drain(..spaces));
            if self.held.is_empty() {
                return Shown { text, stopped_by: None };
            }
            self.state = State::Answer;
        }
        if let Some((start, stop)) = self.first_stop() {
            text.push_str(&self.held[..start]);
            let stopped_by = Some(stop.to_string());
            self.held.clear();
            return Shown { text, stopped_by };
        }
        let held = beginning_of(self.stops.iter().map(String::as_str), &self.held);
        text.extend(self.held.drain(..self.held.len() - held));
        Shown { text, stopped_by: None }
    }

    /// Whether the reasoning block is still open.
    pub(crate) fn is_thinking(&self) -> bool {
        matches!(self.state, State::Thinking { .. })
    }

    /// The text held back, when the completion ended otherwise.
    pub(crate) fn flush(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Where the stop text that is complete first begins.
    fn first_stop(&self) -> Option<(usize, &str)> {
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str()).map(|start| (start, stop)));
        found.min_by_key(|(start, stop)| (start + stop.len(), *start)).map(|(start, stop)| (start, stop.as_str()))
    }
}

/// The length of the longest suffix of `text` that begins one of `stops` without completing it.
fn beginning_of<'a>(stops: impl IntoIterator<Item = &'a str>, text: &str) -> usize {
    let longest = |stop: &str| {
        let most = text.len().min(stop.len() - 1);
        let is_beginning = |&length: &usize| text.as_bytes().ends_with(&stop.as_bytes()[..length]);
        (1..=most).rev().find(is_beginning).unwrap_or(0)
    };
    let length = stops.into_iter().map(longest).max().unwrap_or(0);
    // A stop text cut inside a character cannot match whole characters of the text, so this is a character border
    // unless the text's own last character shares leading bytes with the stop text's; then hold the character.
    (length..=text.len()).find(|held| text.is_char_boundary(text.len() - held)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stops(stops: &[&str]) -> StopText {
        StopText::new(&Sampling { stop: stops.iter().map(|stop| stop.to_string()).collect(), ..Sampling::default() })
    }

    fn read(mut matcher: StopText, parts: &[&str]) -> (String, Option<String>) {
        let mut text = String::new();
        for part in parts {
            let shown = matcher.push(part);
            text.push_str(&shown.text);
            if shown.stopped_by.is_some() {
                return (text, shown.stopped_by);
            }
        }
        text.push_str(&matcher.flush());
        (text, None)
    }

    #[test]
    fn unfinished_stop_text_is_shown_at_the_end() {
        assert_eq!(read(stops(&["\nUser:"]), &["Yes.", "\nUse"]), ("Yes.\nUse".to_string(), None));
    }

    #[test]
    fn stop_text_that_completes_first_wins_and_hides_what_ends_with_it() {
        let expected = ("x".to_string(), Some("\n\nUser".to_string()));
        assert_eq!(read(stops(&["User", "\n\nUser", "User: long"]), &["x\n\nUser: long"]), expected);
    }

    #[test]
    fn overlapping_beginnings_hold_the_longest() {
        let mut matcher = stops(&["aab"]);
        assert_eq!(matcher.push("aaa").text, "a");
        assert_eq!(matcher.push("b"), Shown { text: String::new(), stopped_by: Some("aab".to_string()) });
    }

    #[test]
    fn think_end_may_straddle_parts_and_white_space_after_it_is_not_the_answer() {
        let sampling =
            Sampling { stop: vec!["\n".to_string()], think_end: Some("</t>".to_string()), ..Sampling::default() };
        let parts = ["a\nb<", "/t", ">", "\n", "\n4", "2\nrest"];
        assert_eq!(read(StopText::new(&sampling), &parts), ("a\nb</t>\n\n42".to_string(), Some("\n".to_string())));
    }

    proptest! {
        #[test]
        fn where_parts_are_cut_does_not_matter(
            text in "[ab\u{e9}\u{4e2d}\u{4e2e}]{0,24}",
            stop_texts in prop::collection::vec("[ab\u{e9}\u{4e2d}]{1,4}", 0..4),
            cuts in prop::collection::vec(0usize..24, 0..6),
        ) {
            let characters: Vec<char> = text.chars().collect();
            let mut borders: Vec<usize> = cuts.iter().map(|cut| (*cut).min(characters.len())).collect();
            borders.extend([0, characters.len()]);
            borders.sort_unstable();
            let parts: Vec<String> =
                borders.windows(2).map(|pair| characters[pair[0]..pair[1]].iter().collect()).collect();
            let sampling = Sampling { stop: stop_texts.clone(), ..Sampling::default() };
            let in_parts = read(StopText::new(&sampling), &parts.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert_eq!(&in_parts, &read(StopText::new(&sampling), &[&text]));
            // The naive rule: the first prefix of the text that ends with a stop text.
            let ends = text.char_indices().map(|(at, character)| at + character.len_utf8());
            let naive = ends.clone().find_map(|end| {
                let stop = stop_texts.iter().filter(|stop| text[..end].ends_with(stop.as_str())).max_by_key(|s| s.len());
                stop.map(|stop| (text[..end - stop.len()].to_string(), Some(stop.clone())))
            });
            prop_assert_eq!(in_parts, naive.unwrap_or((text.clone(), None)));
        }
    }
}
