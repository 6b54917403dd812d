//! What BGE-M3 gives besides one vector a text: a weight for each of its words, and a vector for each of its tokens.
//!
//! Source: Chen et al. 2024, "BGE M3-Embedding", §3.2; which tokens count is that of the released code,
//! `FlagEmbedding/inference/embedder/encoder_only/m3.py` of `FlagOpen/FlagEmbedding`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a text becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Head {
    /// One unit vector.
    #[default]
    Dense,
    /// Learned weights of the text's own tokens, for lexical matching.
    Sparse,
    /// A unit vector a token, for late interaction.
    Colbert,
}

impl std::str::FromStr for Head {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "dense" => Ok(Head::Dense),
            "sparse" => Ok(Head::Sparse),
            "colbert" => Ok(Head::Colbert),
            other => Err(format!("expected dense, sparse or colbert, found `{other}`")),
        }
    }
}

/// Weights above 0 of a text's tokens, by token id.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SparseVector {
    pub weights: BTreeMap<u32, f32>,
}

impl SparseVector {
    /// Keeps for each token its largest weight above 0; `special` tokens have none.
    pub fn of(tokens: &[u32], weights: &[f32], special: &[u32]) -> Self {
        let mut kept = BTreeMap::new();
        for (token, weight) in tokens.iter().zip(weights) {
            if *weight > 0.0 && !special.contains(token) {
                let largest = kept.entry(*token).or_insert(*weight);
                *largest = weight.max(*largest);
            }
        }
        SparseVector { weights: kept }
    }

    /// The sum over shared tokens of the products of their weights, in order of token ids.
    pub fn score(&self, other: &SparseVector) -> f64 {
        let shared = self.weights.iter().filter_map(|(token, weight)| Some((weight, other.weights.get(token)?)));
        shared.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    }
}

/// A unit vector for each token of a text, the first token (CLS) left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenVectors {
    /// Numbers in a vector.
    pub width: usize,
    /// `[tokens][width]`
    pub rows: Vec<f32>,
}

impl TokenVectors {
    /// For every vector of this query its largest product with one of the document, and of these the mean; 0 when either
    /// has none.
    pub fn score(&self, document: &TokenVectors) -> f64 {
        let rows = |vectors: &TokenVectors| vectors.rows.len() / vectors.width.max(1);
        if rows(self) == 0 || rows(document) == 0 {
            return 0.0;
        }
        let best = |query: &[f32]| {
            let products = document.rows.chunks_exact(document.width).map(|row| dot(query, row));
            products.fold(f64::NEG_INFINITY, f64::max)
        };
        self.rows.chunks_exact(self.width).map(best).sum::<f64>() / rows(self) as f64
    }
}

/// All that a text becomes, of one pass through the model.
#[derive(Clone, Debug, PartialEq)]
pub struct MultiVector {
    pub dense: Vec<f32>,
    pub sparse: SparseVector,
    pub colbert: TokenVectors,
}

/// How the three scores are added.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HybridWeights {
    pub dense: f64,
    pub sparse: f64,
    pub colbert: f64,
}

impl Default for HybridWeights {
    /// Equal parts, as the released code does where none are given.
    fn default() -> Self {
        HybridWeights { dense: 1.0, sparse: 1.0, colbert: 1.0 }
    }
}

impl HybridWeights {
    /// The weighted mean of three scores.
    pub fn mean(self, dense: f64, sparse: f64, colbert: f64) -> f64 {
        let sum = self.dense * dense + self.sparse * sparse + self.colbert * colbert;
        sum / (self.dense + self.sparse + self.colbert)
    }
}

impl MultiVector {
    /// The weighted mean of the three scores of this query and a document.
    pub fn score(&self, document: &MultiVector, weights: HybridWeights) -> f64 {
        let dense = dot(&self.dense, &document.dense);
        weights.mean(dense, self.sparse.score(&document.sparse), self.colbert.score(&document.colbert))
    }
}

/// In index order, in 64 bits.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_token_keeps_its_largest_weight_and_special_ones_none() {
        let sparse = SparseVector::of(&[0, 7, 8, 7, 9, 2], &[9.0, 0.2, 0.5, 0.4, -1.0, 9.0], &[0, 1, 2, 3]);
        assert_eq!(sparse.weights, BTreeMap::from([(7, 0.4), (8, 0.5)]));
        let other = SparseVector::of(&[8, 9], &[2.0, 3.0], &[]);
        assert_eq!((sparse.score(&other), other.score(&sparse)), (1.0, 1.0));
        assert_eq!(sparse.score(&SparseVector::default()), 0.0);
    }

    #[test]
    fn late_interaction_is_a_mean_over_the_query() {
        let query = TokenVectors { width: 2, rows: vec![1.0, 0.0, 0.0, 1.0] };
        let document = TokenVectors { width: 2, rows: vec![0.6, 0.8] };
        assert!((query.score(&document) - 0.7).abs() < 1e-6);
        assert!((document.score(&query) - 0.8).abs() < 1e-6);
        assert_eq!(query.score(&TokenVectors { width: 2, rows: Vec::new() }), 0.0);
    }

    #[test]
    fn the_hybrid_score_is_a_weighted_mean() {
        let text = |dense: f32, weight: f32| MultiVector {
            dense: vec![dense, 0.0],
            sparse: SparseVector { weights: BTreeMap::from([(5, weight)]) },
            colbert: TokenVectors { width: 1, rows: vec![1.0] },
        };
        let (query, document) = (text(1.0, 0.5), text(0.5, 0.5));
        assert_eq!(query.score(&document, HybridWeights::default()), (0.5 + 0.25 + 1.0) / 3.0);
        let weights = HybridWeights { dense: 2.0, sparse: 2.0, colbert: 0.0 };
        assert_eq!(query.score(&document, weights), 0.375);
    }
}
