//! Very long white space, cut before the pattern matcher sees it.
//!
//! The word patterns backtrack over white space, and the matcher gives up after a million steps. The library takes that
//! for the end of the text: what follows becomes one piece, encoded in a way the model never saw, with no error. Runs
//! are therefore cut at a length the matcher manages. A run that long encodes to the same tokens but for the few at the
//! cuts; nothing changes below.

use tokenizers::normalizer::Range;
use tokenizers::{NormalizedString, PreTokenizedString};

/// Longest run of white space, in characters, that is left whole.
pub(super) const MAX_BLANK_RUN: usize = 200_000;

/// Cuts runs of white space longer than [`MAX_BLANK_RUN`] into pieces. `text_bytes` is the length of the whole text: a
/// short one has no such run, and no scan is made.
pub(super) fn cut(pieces: &mut PreTokenizedString, text_bytes: usize) {
    if text_bytes <= MAX_BLANK_RUN {
        return;
    }
    pieces.split(|_, piece| Ok(cut_piece(piece))).expect("the cuts cover the piece");
}

fn cut_piece(piece: NormalizedString) -> Vec<NormalizedString> {
    let cuts = cut_points(piece.get(), MAX_BLANK_RUN);
    if cuts.is_empty() {
        return vec![piece];
    }
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain(std::iter::once(piece.len()));
    let slice = |(start, end)| piece.slice(Range::Normalized(start..end)).expect("cuts lie on characters, in order");
    starts.zip(ends).map(slice).collect()
}

/// Byte offsets after every `limit` characters of one run of white space.
fn cut_points(text: &str, limit: usize) -> Vec<usize> {
    let mut cuts = Vec::new();
    let mut run = 0;
    for (at, character) in text.char_indices() {
        if !character.is_whitespace() {
            run = 0;
            continue;
        }
        if run == limit {
            cuts.push(at);
            run = 0;
        }
        run += 1;
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_only_above_the_limit() {
        assert!(cut_points("a   b   c", 3).is_empty());
        assert_eq!(cut_points("a    b", 3), [4]);
        assert_eq!(cut_points("\u{2003}\u{2003}\u{2003}", 1), [3, 6]);
        assert_eq!(cut_points("       ", 3), [3, 6]);
    }
}
