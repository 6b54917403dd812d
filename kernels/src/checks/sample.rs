//! Draws.

use super::Checked;
use super::inputs::*;
use crate::Device;
use crate::ops::sample::{self, Sampling};

/// Filters that keep all, few, and every combination.
fn samplings() -> Vec<Sampling> {
    let greedy = Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, key: 5, position: 9 };
    let mut all = vec![greedy];
    for temperature in [0.3, 1.0, 3.0] {
        for (top_k, top_p, min_p) in [
            (0, 1.0, 0.0),
            (7, 1.0, 0.0),
            (1, 1.0, 0.0),
            (0, 0.9, 0.0),
            (0, 0.3, 0.0),
            (0, 1.0, 0.05),
            (40, 0.8, 0.02),
            (100_000, 0.99, 0.0),
            (0, 0.999, 0.3),
        ] {
            all.push(Sampling { temperature, top_k, top_p, min_p, key: 77 + top_k as u64, position: all.len() as u64 });
        }
    }
    all
}

pub fn draws_are_the_processors(device: &Device) -> Checked {
    let rows = samplings();
    for vocabulary in [1, 64, 65, 1000, 3001] {
        let mut logits: Vec<f32> =
            random(1200 + vocabulary as u64, rows.len() * vocabulary).iter().map(|x| x * 8.0).collect();
        // Ties everywhere, and masks; every row keeps a token.
        for (index, logit) in logits.iter_mut().enumerate() {
            *logit = (*logit * 4.0).round() / 4.0;
            if index % 11 == 3 && index % vocabulary != 0 {
                *logit = f32::NEG_INFINITY;
            }
        }
        let expected = sample::draw(&Device::cpu(1), &logits, vocabulary, &rows).unwrap();
        let found = sample::draw(device, &logits, vocabulary, &rows).map_err(|error| error.to_string())?;
        for ((found, expected), row) in found.iter().zip(&expected).zip(&rows) {
            if found != expected || found.is_none() {
                return Err(format!("{vocabulary} tokens, {row:?}: {found:?}, expected {expected:?}"));
            }
        }
    }
    Ok(())
}

pub fn rows_without_numbers_draw_nothing(device: &Device) -> Checked {
    let row = Sampling { temperature: 1.0, top_k: 2, top_p: 0.9, min_p: 0.1, key: 1, position: 2 };
    let mut logits = vec![0.5f32; 4 * 70];
    logits[69] = f32::NAN;
    logits[70] = f32::INFINITY;
    logits[140..210].fill(f32::NEG_INFINITY);
    let found = sample::draw(device, &logits, 70, &[row; 4]).map_err(|error| error.to_string())?;
    match found.as_slice() {
        [None, None, None, Some(drawn)] if drawn.token < 70 => Ok(()),
        found => Err(format!("{found:?}, expected nothing but in the last row")),
    }
}
