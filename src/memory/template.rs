//! Prompts of the memories' own calls: text files under `configs/prompts/` with `{{name}}` where a value goes.
//!
//! Values are models' and users' text: they are put in once and never read for placeholders themselves.

use super::llm::Llm;

/// The template with every placeholder replaced.
///
/// # Panics
/// When the template names a value that is not given: both are ours.
pub(super) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template.trim_end();
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").expect("a placeholder of our own templates is closed");
        let value = values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        filled.push_str(before);
        filled.push_str(
            value.unwrap_or_else(|| panic!("a prompt template asks for `{name}`: this is a bug in lifelong")),
        );
        rest = after;
    }
    filled.push_str(rest);
    filled
}

/// The same within `limit` tokens: the values named in `elastic` lose their ends, in that order, until it fits. Where
/// even that is not enough the prompt stays too long, and the call goes unanswered.
pub(super) fn fill_within(
    template: &str,
    values: &[(&str, &str)],
    elastic: &[&str],
    limit: usize,
    llm: &Llm<'_>,
) -> String {
    let mut values: Vec<(&str, String)> = values.iter().map(|(name, value)| (*name, value.to_string())).collect();
    let filled = |values: &[(&str, String)]| {
        let borrowed: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
        fill(template, &borrowed)
    };
    let mut prompt = filled(&values);
    for name in elastic {
        let over = llm.count(&prompt).saturating_sub(limit);
        if over == 0 {
            break;
        }
        if let Some((_, value)) = values.iter_mut().find(|(known, _)| known == name) {
            // Cutting may split a token in two: a little more than what is over.
            *value = llm.cut(value, llm.count(value).saturating_sub(over + 4));
        }
        prompt = filled(&values);
    }
    prompt
}

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn values_are_not_read_for_placeholders() {
        assert_eq!(fill("a {{x}} b {{y}}\n", &[("x", "{{y}}"), ("y", "2")]), "a {{y}} b 2");
    }
}
