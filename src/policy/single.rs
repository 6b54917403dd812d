//! One prompt, one reply: the first recalled context when there is one, else the bare prompt.

use anyhow::Context as _;

use super::{Chosen, Policy, Turn, request};
use crate::engine::generate::Generate;
use crate::registry::Registered;

pub struct Single;

impl Registered for Single {
    fn name(&self) -> &str {
        "single"
    }
    fn about(&self) -> &str {
        "one reply from the prompt with what was recalled"
    }
    fn source(&self) -> &str {
        "own"
    }
}

impl Policy for Single {
    fn reply(&self, turn: Turn<'_>, backbone: &dyn Generate) -> anyhow::Result<Chosen> {
        let prompt = turn.recalled.into_iter().next().unwrap_or(turn.bare);
        let mut completions = backbone.complete_all(vec![request(prompt, turn.sampling, turn.seed, 0)])?;
        let completion = completions.pop().context("the engine returned no completion")?;
        Ok(Chosen {
            usage: completion.usage.into(),
            reused_tokens: completion.usage.reused as u64,
            completion,
            votes: Vec::new(),
        })
    }
}
