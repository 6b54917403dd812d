//! Penalties on tokens already seen: the first thing that happens to a row of logits.

use std::collections::BTreeMap;

use super::sampling::Sampling;

/// What a request has seen so far: for every token id of its prompt or its generated text, how often it was generated.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    times_generated: BTreeMap<u32, u32>,
}

impl History {
    /// The history after a prompt.
    pub(crate) fn of_prompt(prompt: &[u32]) -> Self {
        History { times_generated: prompt.iter().map(|&token| (token, 0)).collect() }
    }

    /// Takes in one generated token.
    pub(crate) fn push(&mut self, token: u32) {
        *self.times_generated.entry(token).or_insert(0) += 1;
    }

    /// Changes the logits of seen tokens; `before` gets the token ids and the logits they had.
    ///
    /// Repetition counts prompt and generated tokens alike and once; presence and frequency count generated tokens.
    pub(crate) fn penalise(&self, logits: &mut [f32], before: &mut Vec<(u32, f32)>, sampling: &Sampling) {
        before.clear();
        for (&token, &times) in &self.times_generated {
            let Some(logit) = logits.get_mut(token as usize) else { continue };
            before.push((token, *logit));
            let mut value = f64::from(*logit);
            value = if value > 0.0 { value / sampling.repetition_penalty } else { value * sampling.repetition_penalty };
            if times > 0 {
                value -= sampling.presence_penalty + sampling.frequency_penalty * f64::from(times);
            }
            // A huge bonus must stay a number: only the model itself may be at fault for logits that are not finite.
            *logit = value.min(f64::from(f32::MAX)) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_stays_a_mask_and_bonus_stays_finite() {
        let mut history = History::of_prompt(&[0, 1]);
        history.push(2);
        let sampling = Sampling { repetition_penalty: 1e-300, presence_penalty: -1e300, ..Sampling::default() };
        let mut logits = [f32::NEG_INFINITY, 1.0, 0.5, 0.25];
        let mut before = Vec::new();
        history.penalise(&mut logits, &mut before, &sampling);
        assert_eq!(logits, [f32::NEG_INFINITY, f32::MAX, f32::MAX, 0.25]);
        assert_eq!(before, [(0, f32::NEG_INFINITY), (1, 1.0), (2, 0.5)]);
    }
}
