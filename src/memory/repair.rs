//! One more try at a reply that could not be read: the model is shown its reply and the form that was asked for. Only for
//! methods whose source does this.

use super::bound::clip;
use super::llm::{Asker, Call};
use super::template::fill;

const PROMPT: &str = include_str!("../../configs/prompts/repair.txt");
const QUOTED_CHARACTERS: usize = 4000;

/// Asks, and once more with the bad reply quoted, under the purpose given for repairs.
pub(super) fn ask<T>(
    llm: &Asker<'_>,
    call: Call,
    repair: &'static str,
    form: &str,
    read: impl Fn(&str) -> Option<T>,
) -> anyhow::Result<Option<T>> {
    let (max_tokens, held) = (call.max_tokens, call.form.clone());
    let first = llm.ask(call, &read)?;
    let said = llm.last_reply();
    if first.is_some() || said.trim().is_empty() {
        return Ok(first);
    }
    let prompt = fill(PROMPT, &[("form", form), ("reply", &clip(&said, QUOTED_CHARACTERS))]);
    llm.ask(Call { purpose: repair, prompt, max_tokens, temperature: 0.0, form: held }, read)
}
