//! How the next token is chosen from the logits, and when a completion ends.
//!
//! The order is fixed, because another order is another distribution: repetition, presence and frequency penalties on
//! the logits; the mask of the grammar; division by the temperature; top-k; top-p; min-p; renormalisation; one draw. Each filter sees the
//! distribution the one before it left, renormalised. Temperature 0 is argmax of the penalised logits and ignores the
//! filters. Ties, at argmax and at every cut, go to the lowest token id.

use serde::{Deserialize, Serialize};

use super::error::{Error, Result};
use super::grammar::Grammar;

/// The sampling of one request. The default is greedy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Divides the logits; 0 chooses the most likely token. Default 0.
    pub temperature: f64,
    /// Keeps the k most likely tokens; 0 or -1 keeps all. Default 0.
    pub top_k: i64,
    /// Keeps the smallest set of most likely tokens whose probabilities reach this sum, the token that crosses it
    /// included; in (0, 1], 1 keeps all. Default 1.
    pub top_p: f64,
    /// Keeps tokens at least this fraction as likely as the most likely one; in [0, 1], 0 keeps all. Default 0.
    pub min_p: f64,
    /// Divides positive and multiplies negative logits of every token seen in the prompt or the generated text, once
    /// each (Keskar et al. 2019, "CTRL", §4.1); above 0, 1 is off. Default 1.
    pub repetition_penalty: f64,
    /// Subtracted once from the logit of every generated token id. Default 0.
    pub presence_penalty: f64,
    /// Subtracted from the logit of a generated token id once for each time it was generated. Default 0.
    pub frequency_penalty: f64,
    /// Texts that end the completion; the text stops before them. They may straddle tokens.
    pub stop: Vec<String>,
    /// Token ids that end the completion; not part of it.
    pub stop_tokens: Vec<u32>,
    /// Where a reasoning block ends, for example `</think>`: `stop` applies only after this text and the white space
    /// that follows it, and `grammar` from the token behind it. Default none: `stop` applies from the first character, and
    /// `grammar` from the token behind the thought where the model's template shows how it thinks, else from the first.
    pub think_end: Option<String>,
    /// The form that the reply must have; see [`Grammar`]. A reply that [`max_tokens`](Sampling::max_tokens) cuts short has
    /// the beginning of it. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grammar: Option<Grammar>,
    /// The most tokens to generate; 0 generates nothing and is legal. Default 256.
    pub max_tokens: usize,
    /// Keeps going past the model's end tokens, which then are ordinary tokens. Default false.
    pub ignore_eos: bool,
    /// For each generated token its log-probability and those of this many most likely tokens, under the model's own
    /// distribution: before penalties, temperature and filters. Default 0: none.
    pub logprobs: usize,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            stop: Vec::new(),
            stop_tokens: Vec::new(),
            think_end: None,
            grammar: None,
            max_tokens: 256,
            ignore_eos: false,
            logprobs: 0,
        }
    }
}

impl Sampling {
    /// Checks every range.
    ///
    /// # Errors
    /// [`Error::Sampling`] naming the first parameter out of range.
    pub fn validate(&self) -> Result<()> {
        let in_range = |parameter, value: f64, expected, is_valid: bool| {
            if is_valid { Ok(()) } else { Err(Error::Sampling { parameter, expected, found: value.to_string() }) }
        };
        let Sampling { temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, .. } = *self;
        in_range(
            "temperature",
            temperature,
            "a finite number of at least 0",
            temperature.is_finite() && temperature >= 0.0,
        )?;
        in_range("top_k", self.top_k as f64, "a count, or 0 or -1 to keep all", self.top_k >= -1)?;
        in_range("top_p", top_p, "a number above 0 and at most 1", top_p > 0.0 && top_p <= 1.0)?;
        in_range("min_p", min_p, "a number from 0 to 1", (0.0..=1.0).contains(&min_p))?;
        in_range(
            "repetition_penalty",
            repetition_penalty,
            "a finite number above 0 (1 is off)",
            repetition_penalty.is_finite() && repetition_penalty > 0.0,
        )?;
        in_range("presence_penalty", presence_penalty, "a finite number (0 is off)", presence_penalty.is_finite())?;
        in_range("frequency_penalty", frequency_penalty, "a finite number (0 is off)", frequency_penalty.is_finite())?;
        let empty = |parameter| Error::Sampling {
            parameter,
            expected: "a text of at least one character",
            found: "an empty text".to_string(),
        };
        if self.stop.iter().any(String::is_empty) {
            return Err(empty("stop"));
        }
        if self.think_end.as_ref().is_some_and(String::is_empty) {
            return Err(empty("think_end"));
        }
        Ok(())
    }

    /// Whether the most likely token is taken: temperature 0, or too small to divide by in 32 bits.
    pub fn is_greedy(&self) -> bool {
        self.temperature as f32 == 0.0
    }

    /// How many most likely tokens are kept of a vocabulary, `None` when all are.
    pub(crate) fn top_k_of(&self, vocabulary: usize) -> Option<usize> {
        let k = usize::try_from(self.top_k).ok()?;
        (k > 0 && k < vocabulary).then_some(k)
    }

    /// Whether any penalty changes logits.
    pub(crate) fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_greedy_and_valid() {
        let sampling = Sampling::default();
        assert!(sampling.is_greedy());
        assert_eq!(sampling.validate(), Ok(()));
    }

    #[test]
    fn error_names_the_parameter() {
        let cases: [(Sampling, &str); 8] = [
            (Sampling { temperature: -0.1, ..Sampling::default() }, "temperature"),
            (Sampling { top_k: -2, ..Sampling::default() }, "top_k"),
            (Sampling { top_p: f64::NAN, ..Sampling::default() }, "top_p"),
            (Sampling { min_p: 1.5, ..Sampling::default() }, "min_p"),
            (Sampling { repetition_penalty: 0.0, ..Sampling::default() }, "repetition_penalty"),
            (Sampling { presence_penalty: f64::INFINITY, ..Sampling::default() }, "presence_penalty"),
            (Sampling { frequency_penalty: f64::NAN, ..Sampling::default() }, "frequency_penalty"),
            (Sampling { stop: vec![String::new()], ..Sampling::default() }, "stop"),
        ];
        for (sampling, parameter) in cases {
            let message = sampling.validate().unwrap_err().to_string();
            assert!(message.contains(&format!("`{parameter}`")), "{message}");
        }
    }

    #[test]
    fn unknown_field_is_refused() {
        let error = toml::from_str::<Sampling>("temprature = 0.8").unwrap_err().to_string();
        assert!(error.contains("temprature"), "{error}");
    }

    #[test]
    fn top_k_is_off_at_zero_minus_one_and_the_whole_vocabulary() {
        for (top_k, kept) in [(0, None), (-1, None), (5, None), (9, None), (4, Some(4))] {
            assert_eq!(Sampling { top_k, ..Sampling::default() }.top_k_of(5), kept);
        }
    }
}
