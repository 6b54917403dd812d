//! Okapi BM25 over a handful of short texts (Robertson and Zaragoza 2009, §3.1), with k1 = 1.5 and b = 0.75.

use std::collections::BTreeMap;

const K1: f64 = 1.5;
const B: f64 = 0.75;

/// Words that say nothing about a topic.
const STOP_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "has", "have", "if", "in", "into", "is", "it",
    "its", "of", "on", "or", "that", "the", "then", "there", "this", "to", "was", "what", "when", "which", "will",
    "with", "you", "your",
];

/// Lower-cased runs of letters and digits, stop words left out.
pub(super) fn words(text: &str) -> Vec<String> {
    text.to_lowercase()
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty() && !STOP_WORDS.contains(word))
        .map(String::from)
        .collect()
}

/// The score of each document for a query given as words; repeated query words count once.
pub(super) fn scores(query: &[String], documents: &[Vec<String>]) -> Vec<f64> {
    let count = documents.len() as f64;
    let mean_length = documents.iter().map(Vec::len).sum::<usize>() as f64 / count.max(1.0);
    let frequencies: Vec<BTreeMap<&str, f64>> = documents
        .iter()
        .map(|document| {
            let mut frequencies = BTreeMap::new();
            document.iter().for_each(|word| *frequencies.entry(word.as_str()).or_insert(0.0) += 1.0);
            frequencies
        })
        .collect();
    let mut scores = vec![0.0; documents.len()];
    for (index, word) in query.iter().enumerate() {
        if query[..index].contains(word) {
            continue;
        }
        let holders = frequencies.iter().filter(|frequencies| frequencies.contains_key(word.as_str())).count() as f64;
        let rarity = (1.0 + (count - holders + 0.5) / (holders + 0.5)).ln();
        for (score, (frequencies, document)) in scores.iter_mut().zip(frequencies.iter().zip(documents)) {
            if let Some(frequency) = frequencies.get(word.as_str()) {
                let length = 1.0 - B + B * document.len() as f64 / mean_length.max(1.0);
                *score += rarity * frequency * (K1 + 1.0) / (frequency + K1 * length);
            }
        }
    }
    scores
}

/// Words shared by two texts over all their words (Jaccard); 0 when neither has any.
pub(super) fn overlap(left: &[String], right: &[String]) -> f64 {
    let (left, right): (std::collections::BTreeSet<_>, std::collections::BTreeSet<_>) =
        (left.iter().collect(), right.iter().collect());
    let all = left.union(&right).count();
    if all == 0 { 0.0 } else { left.intersection(&right).count() as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rare_word_in_a_short_text_scores_highest() {
        let documents = ["sort the list of words", "reverse the words", "sum the numbers and the words of the list"];
        let documents: Vec<Vec<String>> = documents.iter().map(|text| words(text)).collect();
        let scores = scores(&words("reverse words"), &documents);
        assert!(scores[1] > scores[0] && scores[0] > scores[2] && scores[2] > 0.0, "{scores:?}");
        // ln(1 + 2.5/1.5)·2.5/(1 + 1.5·(0.25 + 0.75·2/3)) + ln(1 + 0.5/3.5)·…, by hand
        let length = 1.0 + 1.5 * (0.25 + 0.75 * 2.0 / 3.0);
        let expected = ((1.0f64 + 2.5 / 1.5).ln() + (1.0f64 + 0.5 / 3.5).ln()) * 2.5 / length;
        assert!((scores[1] - expected).abs() < 1e-12, "{} {expected}", scores[1]);
    }
}
