//! What a user may say about a model's chat template: its thinking switches, further variables, its tool-call format.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::TemplateError;
use super::source::reads;

/// Settings of one model's template. A setting that the template never reads would change nothing, and a run would not
/// show it: [`ChatTemplate::with_settings`](super::ChatTemplate::with_settings) refuses it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChatSettings {
    /// Whether a model that can do both reasons before it answers: the template's `enable_thinking`, or `thinking` where
    /// it is called so. The template's own default when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_thinking: Option<bool>,
    /// How long it reasons, in the template's words (gpt-oss: `low`, `medium`, `high`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// Any other variables of the template.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub variables: Map<String, Value>,
    /// The format that tool calls are read in, by name; told from the template when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_format: Option<String>,
}

/// What a rendering itself gives a template: a setting of that name would take the conversation's place.
const OWN: [&str; 4] = ["messages", "tools", "add_generation_prompt", "strftime_now"];

/// The names that templates give the thinking switch.
const THINKING: [&str; 2] = ["enable_thinking", "thinking"];

impl ChatSettings {
    /// The template's variables that these settings set.
    ///
    /// # Errors
    /// [`TemplateError::Unread`] for the first variable that the template never reads, [`TemplateError::Reserved`] for one
    /// that each rendering sets itself.
    pub(super) fn variables_of(&self, source: &str) -> Result<Map<String, Value>, TemplateError> {
        if let Some(name) = self.variables.keys().find(|name| OWN.contains(&name.as_str())) {
            return Err(TemplateError::Reserved { variable: name.clone() });
        }
        self.read_variables(source).map_err(|variable| TemplateError::Unread { variable })
    }

    fn read_variables(&self, source: &str) -> Result<Map<String, Value>, String> {
        let mut set = Map::new();
        if let Some(is_on) = self.enable_thinking {
            let name = THINKING.iter().find(|name| reads(source, name)).ok_or("enable_thinking")?;
            set.insert(name.to_string(), is_on.into());
        }
        if let Some(effort) = &self.reasoning_effort {
            let is_read = reads(source, "reasoning_effort");
            set.insert("reasoning_effort".into(), is_read.then(|| effort.clone().into()).ok_or("reasoning_effort")?);
        }
        for (name, value) in &self.variables {
            let is_read = reads(source, name);
            set.insert(name.clone(), is_read.then(|| value.clone()).ok_or(name.as_str())?);
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn unread(variable: &str) -> TemplateError {
        TemplateError::Unread { variable: variable.into() }
    }

    #[test]
    fn switches_reach_the_variable_that_the_template_reads() {
        let off = ChatSettings { enable_thinking: Some(false), ..ChatSettings::default() };
        assert_eq!(off.variables_of("{% if enable_thinking %}").unwrap()["enable_thinking"], false);
        assert_eq!(off.variables_of("{% if thinking is defined and thinking %}").unwrap()["thinking"], false);
        assert_eq!(
            off.variables_of("thinking {{ 'thinking' }} {# thinking #}").unwrap_err(),
            unread("enable_thinking")
        );
        let effort = ChatSettings { reasoning_effort: Some("low".into()), ..ChatSettings::default() };
        assert_eq!(effort.variables_of("{{ reasoning_effort }}").unwrap()["reasoning_effort"], "low");
        assert_eq!(effort.variables_of("{{ messages }}").unwrap_err(), unread("reasoning_effort"));
    }

    #[test]
    fn any_variable_can_be_set_when_it_is_read() {
        let variables = json!({"documents": [{"title": "a"}]}).as_object().unwrap().clone();
        let settings = ChatSettings { variables: variables.clone(), ..ChatSettings::default() };
        assert_eq!(settings.variables_of("{% for d in documents %}{% endfor %}").unwrap(), variables);
        assert_eq!(
            settings.variables_of("{{ m.documents }}").unwrap_err(),
            unread("documents"),
            "a field is no variable"
        );
    }

    #[test]
    fn the_conversation_is_no_setting() {
        for name in OWN {
            let variables = json!({ name: [] }).as_object().unwrap().clone();
            let settings = ChatSettings { variables, ..ChatSettings::default() };
            let error = settings.variables_of("{{ messages }}{{ tools }}").unwrap_err();
            assert_eq!(error, TemplateError::Reserved { variable: name.into() });
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
