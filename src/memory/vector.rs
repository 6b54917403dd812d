//! Unit vectors in a memory's state: from which model they are, how near they are, how they are saved.

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::{Embed, Handles};
use crate::engine::embed::Purpose;

/// A unit vector. Saved as hex digits of its little-endian floats: exact, and a twentieth of the time of decimals.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Vector(pub Vec<f32>);

impl Vector {
    /// Cosine of unit vectors.
    pub fn cosine(&self, other: &Vector) -> f64 {
        cosine(&self.0, &other.0)
    }
}

/// Dot product of unit vectors, summed in index order in f64.
pub(super) fn cosine(left: &[f32], right: &[f32]) -> f64 {
    left.iter().zip(right).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// Indices of scores, the highest first; equal scores keep the earlier first, so that a run repeats.
pub(super) fn ranked(scores: impl Iterator<Item = f64>) -> Vec<(f64, usize)> {
    let mut ranked: Vec<(f64, usize)> = scores.enumerate().map(|(index, score)| (score, index)).collect();
    ranked.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
    ranked
}

/// The embedding model that the vectors of a state belong to; known with the first one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Space(Option<String>);

impl Space {
    /// One vector a text that is kept, or compared with such.
    ///
    /// # Errors
    /// Without an embedder, or with another one than the state's vectors are from.
    pub fn embed(&self, method: &str, texts: &[String], handles: &Handles<'_>) -> anyhow::Result<Vec<Vector>> {
        self.vectors(method, texts, Purpose::Document, handles)
    }

    /// One vector a text that asks for kept ones: models with an instruction for queries put it before these.
    ///
    /// # Errors
    /// As [`Space::embed`].
    pub fn embed_queries(&self, method: &str, texts: &[String], handles: &Handles<'_>) -> anyhow::Result<Vec<Vector>> {
        self.vectors(method, texts, Purpose::Query, handles)
    }

    pub fn embed_query(&self, method: &str, text: &str, handles: &Handles<'_>) -> anyhow::Result<Vector> {
        self.embed_queries(method, &[text.to_string()], handles)?.pop().context("the embedder returned no vector")
    }

    /// As [`Space::embed_query`], with what it is to find in words, for models that are told.
    pub fn embed_query_with(
        &self,
        method: &str,
        task: &str,
        text: &str,
        handles: &Handles<'_>,
    ) -> anyhow::Result<Vector> {
        let embedder = self.embedder(method, handles)?;
        let vectors = embedder.embed_queries_with(task, &[text.to_string()])?;
        vectors.into_iter().next().map(Vector).context("the embedder returned no vector")
    }

    fn vectors(
        &self,
        method: &str,
        texts: &[String],
        purpose: Purpose,
        handles: &Handles<'_>,
    ) -> anyhow::Result<Vec<Vector>> {
        let embedder = self.embedder(method, handles)?;
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let vectors = match purpose {
            Purpose::Document => embedder.embed(texts)?,
            Purpose::Query => embedder.embed_queries(texts)?,
        };
        Ok(vectors.into_iter().map(Vector).collect())
    }

    /// The run's embedder, which must be the one that the state's vectors are from.
    fn embedder<'h>(&self, method: &str, handles: &Handles<'h>) -> anyhow::Result<&'h dyn Embed> {
        let embedder = handles
            .embedder
            .with_context(|| format!("memory `{method}` needs an embedding model: set `embedder` in [models]"))?;
        if let Some(expected) = &self.0 {
            let found = embedder.id();
            ensure!(*expected == found, "memory `{method}` holds vectors of {expected}, the run's embedder is {found}");
        }
        Ok(embedder)
    }

    pub fn embed_one(&self, method: &str, text: &str, handles: &Handles<'_>) -> anyhow::Result<Vector> {
        self.embed(method, &[text.to_string()], handles)?.pop().context("the embedder returned no vector")
    }

    /// From now on the state holds vectors of the run's embedder.
    pub fn settle(&mut self, handles: &Handles<'_>) {
        self.0 = handles.embedder.map(|embedder| embedder.id());
    }
}

impl Serialize for Vector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let bytes = self.0.iter().flat_map(|value| value.to_le_bytes());
        let digits = bytes.flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        serializer.serialize_str(&digits.map(char::from).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Vector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let bytes: Option<Vec<u8>> =
            text.as_bytes().chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect();
        let bytes = bytes.filter(|bytes| bytes.len() % 4 == 0);
        let bytes = bytes.ok_or_else(|| D::Error::custom("a vector is eight hex digits a number"))?;
        Ok(Vector(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_reads_back_bit_for_bit() {
        let vector = Vector(vec![0.1, -2.5e-20, f32::MIN_POSITIVE, 0.0]);
        let text = serde_json::to_string(&vector).unwrap();
        assert_eq!(serde_json::from_str::<Vector>(&text).unwrap(), vector);
        assert!(serde_json::from_str::<Vector>("\"abc\"").is_err());
        assert!(serde_json::from_str::<Vector>("\"zzzzzzzz\"").is_err());
    }

    #[test]
    fn equal_scores_keep_their_order() {
        assert_eq!(ranked([0.5, 0.9, 0.5].into_iter()), [(0.9, 1), (0.5, 0), (0.5, 2)]);
    }
}
