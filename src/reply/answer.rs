//! The short answer inside a reply: a line, a number, what follows `####` or stands in `\boxed{}`, an option letter.
//!
//! Readers take text whose reasoning is already dropped ([`super::think::strip`]) and prefer what is stated last: a
//! model that repeats the examples or changes its mind ends with its own answer.

/// The first line that is not blank, without surrounding space.
pub fn first_line(text: &str) -> Option<String> {
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(String::from)
}

/// The last number in the text.
///
/// Thousands commas, currency signs, a percent sign and a closing full stop are no part of it; a minus sign directly
/// in front is (`-3`, `-$3`, `$-3`), unless it joins two terms (`5-3` ends in 3). Minus zero reads as zero.
pub fn last_number(text: &str) -> Option<f64> {
    let mut last = None;
    let mut at = 0;
    let bytes = text.as_bytes();
    while at < bytes.len() {
        let starts = bytes[at].is_ascii_digit()
            || (bytes[at] == b'.' && is_digit(bytes, at + 1) && (at == 0 || !bytes[at - 1].is_ascii_digit()));
        if !starts {
            at += 1;
            continue;
        }
        let end = number_end(bytes, at);
        let digits: String = text[at..end].chars().filter(|character| *character != ',').collect();
        if let Some(value) = digits.parse::<f64>().ok().filter(|value| value.is_finite()) {
            last = Some(if is_negated(&text[..at]) { 0.0 - value } else { value });
        }
        at = end;
    }
    last
}

/// The text after the last `####`, up to the end of its line (GSM8K's form of a final answer).
pub fn marker(text: &str) -> Option<&str> {
    let at = text.rfind("####")?;
    let value = text[at + 4..].lines().next()?.trim();
    Some(value).filter(|value| !value.is_empty())
}

/// The content of the last `\boxed{…}` whose braces balance.
pub fn boxed(text: &str) -> Option<&str> {
    const OPEN: &str = r"\boxed{";
    text.rmatch_indices(OPEN).find_map(|(at, _)| balanced(&text[at + OPEN.len()..])).map(str::trim)
}

/// The option letter the reply settles on, spelled as in `options`.
///
/// A letter said to be the answer (`the answer is C`, `Answer: (C)`) goes before a letter that is marked as an option
/// (`(C)`, `option C`, `C)` at a line's start, `C` alone on a line), and that before a bare capital in a sentence;
/// among equals the last one counts. A letter that reads as a word (`A dog …`, `I think …`) is not an option.
pub fn choice(text: &str, options: &[String]) -> Option<String> {
    let mut best: Option<(Statement, &String)> = None;
    for (start, word) in words(text) {
        let Some(option) = options.iter().find(|option| option.eq_ignore_ascii_case(word)) else { continue };
        let Some(statement) = statement(&text[..start], word, &text[start + word.len()..], option) else { continue };
        if best.is_none_or(|(found, _)| statement >= found) {
            best = Some((statement, option));
        }
    }
    best.map(|(_, option)| option.clone())
}

/// How firmly a letter is given as the answer, weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Statement {
    Mentioned,
    MarkedAsOption,
    SaidToBeTheAnswer,
}

fn statement(before: &str, word: &str, after: &str, option: &str) -> Option<Statement> {
    let is_wrapped = before.ends_with(['(', '[', '{', '*', '"', '\'', '`'])
        && after.starts_with([')', ']', '}', '*', '"', '\'', '`']);
    let ends_clause = after.trim_start_matches([' ', '\t']).chars().next().is_none_or(|next| !next.is_alphanumeric());
    let is_spelled_as_option = word == option;
    // "a dog" and "I think" are words: a letter in front of more words needs its capital, and A and I need more.
    if !is_wrapped && !ends_clause && !is_spelled_as_option {
        return None;
    }
    let lead =
        before.trim_end_matches(['(', '[', '{', '*', '"', '\'', '`', ' ', '\t', '$']).trim_end_matches("\\boxed");
    let lead = lead.trim_end_matches(['$', ' ', '\t', ':', '*']).to_lowercase();
    let follows = |cues: &[&str]| cues.iter().any(|cue| lead.ends_with(cue));
    if follows(&["answer is", "answer", "answer would be", "answer should be", "answer must be"]) {
        return Some(Statement::SaidToBeTheAnswer);
    }
    let starts_line = before.trim_end_matches([' ', '\t']).chars().next_back().is_none_or(|last| last == '\n');
    let is_label = starts_line
        && (after.starts_with([')', '.', ':'])
            || after.trim_start_matches([' ', '\t']).starts_with(['\n', '\r'])
            || after.trim().is_empty());
    if is_wrapped || is_label || follows(&["option", "choice"]) {
        return Some(Statement::MarkedAsOption);
    }
    let is_capital = is_spelled_as_option && word.chars().all(|letter| !letter.is_lowercase());
    let reads_as_word = matches!(word, "A" | "I") && !ends_clause;
    (is_capital && !reads_as_word).then_some(Statement::Mentioned)
}

/// Runs of letters and digits with the byte where each starts.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split(|character: char| !character.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(move |word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
}

/// Where the number that starts at `at` ends: digits in groups of three after commas or plain, a fraction, an exponent.
fn number_end(bytes: &[u8], at: usize) -> usize {
    let mut end = skip_digits(bytes, at);
    if (1..=3).contains(&(end - at)) {
        while bytes.get(end) == Some(&b',') && skip_digits(bytes, end + 1) == end + 4 {
            end += 4;
        }
    }
    if bytes.get(end) == Some(&b'.') && is_digit(bytes, end + 1) {
        end = skip_digits(bytes, end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let exponent = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let after = skip_digits(bytes, exponent);
        if after > exponent && !bytes.get(after).is_some_and(u8::is_ascii_alphanumeric) {
            end = after;
        }
    }
    end
}

fn skip_digits(bytes: &[u8], from: usize) -> usize {
    let mut end = from;
    while is_digit(bytes, end) {
        end += 1;
    }
    end
}

fn is_digit(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_some_and(u8::is_ascii_digit)
}

/// Whether the text in front of a number ends in a minus sign that belongs to it.
fn is_negated(before: &str) -> bool {
    let before = before.strip_suffix(['$', '€', '£', '¥']).unwrap_or(before);
    let Some(left) = before.strip_suffix(['-', '\u{2212}']) else { return false };
    let left = left.strip_suffix(['$', '€', '£', '¥']).unwrap_or(left);
    !left.ends_with(|character: char| character.is_alphanumeric() || matches!(character, ')' | ']' | '%'))
}

/// The text up to the brace that closes one opened just before; `\{` and `\}` are characters, not braces.
fn balanced(text: &str) -> Option<&str> {
    let mut depth = 0usize;
    let mut is_escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '{' => depth += 1,
            '}' if depth == 0 => return Some(&text[..at]),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(text: &str) -> Option<String> {
        choice(text, &["A", "B", "C", "D"].map(String::from))
    }

    #[test]
    fn last_number_reads_what_people_write() {
        for (text, value) in [
            ("$1,234.50 in all", 1234.5),
            ("1,2,3", 3.0),
            ("12,34", 34.0),
            ("1,2345", 2345.0),
            (".5", 0.5),
            ("-$3", -3.0),
            ("$-3", -3.0),
            ("\u{2212}7", -7.0),
            ("5-3", 3.0),
            ("5 - 3", 3.0),
            ("1e2", 100.0),
            ("2.5E-1!", 0.25),
            ("3em", 3.0),
            ("45%", 45.0),
            ("It is 8.", 8.0),
            ("共5个", 5.0),
        ] {
            assert_eq!(last_number(text), Some(value), "{text}");
        }
        assert_eq!(last_number("none, at all."), None);
        assert_eq!(last_number(&"9".repeat(400)), None, "beyond the range of a double");
        assert!(last_number("-0").is_some_and(|zero| zero == 0.0 && zero.is_sign_positive()));
    }

    #[test]
    fn boxed_skips_a_box_that_never_closes() {
        assert_eq!(boxed(r"\boxed{ 1 } then \boxed{2"), Some("1"));
        assert_eq!(boxed(r"\boxed{\{1\}}"), Some(r"\{1\}"));
        assert_eq!(boxed("no box"), None);
    }

    #[test]
    fn marker_ends_at_its_line() {
        assert_eq!(marker("#### 8 \nThat is all."), Some("8"));
        assert_eq!(marker("8\n####  "), None);
    }

    #[test]
    fn choice_goes_by_how_firmly_a_letter_is_stated() {
        for (text, letter) in [
            ("C", "C"),
            ("c", "C"),
            ("**B**", "B"),
            ("B) because it is warm", "B"),
            ("The answer is B because A is too small.", "B"),
            ("Answer: c", "C"),
            (r"$\boxed{D}$", "D"),
            ("First (A), no: (C).", "C"),
            ("It has to be D", "D"),
            ("A dog barks, so B", "B"),
        ] {
            assert_eq!(letters(text).as_deref(), Some(letter), "{text}");
        }
        for text in ["", "A dog is an animal.", "a cat", "ABCD", "none of these"] {
            assert_eq!(letters(text), None, "{text}");
        }
    }

    #[test]
    fn first_line_skips_blank_lines() {
        assert_eq!(first_line("\n  \n yes \nno").as_deref(), Some("yes"));
        assert_eq!(first_line(" \n"), None);
    }
}
