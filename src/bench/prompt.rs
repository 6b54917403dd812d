//! Prompts and sentences of an exact number of tokens: random, and the same every time.

use crate::engine::request::Request;
use crate::engine::sampling::Sampling;
use crate::engine::tokenizer::{Specials, Tokenizer};
use crate::seed::Seed;

/// Tokens drawn from all but the first fiftieth of a vocabulary, where the control tokens stand.
pub(super) fn tokens(seed: u64, count: usize, vocabulary: usize) -> Vec<u32> {
    let least = vocabulary / 50;
    let mut stream = Seed(seed).derive("bench", &[]).stream();
    (0..count).map(|_| (least as u64 + stream.below((vocabulary - least) as u64)) as u32).collect()
}

/// Sampled as experiments sample, and never ended early.
pub(super) fn request(tokens: Vec<u32>, max_tokens: usize, seed: u64) -> Request {
    let sampling = Sampling { temperature: 0.8, top_p: 0.95, max_tokens, ignore_eos: true, ..Sampling::default() };
    Request { tokens, sampling, seed }
}

/// Different sentences of whole words, each `tokens` tokens long with the model's frame.
pub(super) fn sentences(tokenizer: &Tokenizer, count: usize, tokens: usize) -> Vec<String> {
    let is_word = |text: &str| text.len() > 2 && text.bytes().all(|byte| byte.is_ascii_lowercase());
    let encoded = |text: &str| tokenizer.encode_document(text, Specials::Literal).len();
    let frame = encoded("");
    let words: Vec<String> = (0..tokenizer.vocab_size() as u32)
        .filter_map(|id| tokenizer.token_text(id))
        .filter(|text| is_word(text) && encoded(text) == frame + 1)
        .map(String::from)
        .collect();
    let mut stream = Seed(7).derive("bench", &[]).stream();
    let mut draw = || words.get(stream.below(words.len().max(1) as u64) as usize).map_or("", String::as_str);
    (0..count).map(|_| (frame..tokens).map(|_| draw()).collect::<Vec<_>>().join(" ")).collect()
}
