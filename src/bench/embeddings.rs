//! Measures an embedder: tokenising, encoding, pooling.

use std::time::Instant;

use super::measurement::{Measurement, Unit};
use super::prompt::sentences;
use super::workload::{Scale, Workload};
use crate::engine::embed::Embedder;
use crate::engine::error::{Error, Result};
use crate::engine::tokenizer::Specials;

/// Tokens of a sentence, those of the model's frame included.
pub(super) const SENTENCE_TOKENS: usize = 63;

/// A run is the mean of as many calls as take about this long: one call on one sentence is too short to time alone.
const LEAST_SECONDS: f64 = 0.05;

/// Embeds the same sentences again and again, after one run that does not count.
///
/// # Errors
/// When the encoder fails.
pub fn measure_embeddings(embedder: &Embedder, workload: Workload, count: usize, scale: &Scale) -> Result<Measurement> {
    let texts = sentences(embedder.tokenizer(), count, SENTENCE_TOKENS);
    let found = embedder.tokenizer().encode_document(&texts[0], Specials::Literal).len();
    if found != SENTENCE_TOKENS {
        let expected = format!("a vocabulary with enough words for sentences of {SENTENCE_TOKENS} tokens");
        return Err(Error::Option { option: "embedder", expected, found: format!("sentences of {found}") });
    }
    let started = Instant::now();
    embedder.embed(&texts)?;
    let repeats = (LEAST_SECONDS / started.elapsed().as_secs_f64()).ceil().max(1.0) as usize;
    let work = embedder.device().work();
    let mut seconds = Vec::with_capacity(scale.runs);
    for _ in 0..scale.runs {
        let started = Instant::now();
        for _ in 0..repeats {
            embedder.embed(&texts)?;
        }
        seconds.push(started.elapsed().as_secs_f64() / repeats as f64);
    }
    Ok(Measurement {
        name: workload.name,
        about: workload.about(scale),
        unit: Unit::Sentences,
        count,
        tokens: count * SENTENCE_TOKENS,
        seconds,
        times: None,
        calls: repeats,
        work: embedder.device().work().since(work),
        prompt_tokens: 0,
        reused_tokens: 0,
    })
}
