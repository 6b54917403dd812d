//! Chat templates render as under Python's Jinja2 in the settings of `transformers`: SmolLM2's own template, templates of
//! the common shapes, and one probe for each feature. `tests/golden/template/make.py` made the file.

use std::collections::BTreeMap;
use std::path::Path;

use lifelong::engine::template::{
    ChatMessage, ChatTemplate, RenderOptions, TemplateError, TemplateFault, TemplateTokens,
};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Golden {
    templates: BTreeMap<String, String>,
    probes: Vec<Probe>,
}

#[derive(Deserialize)]
struct Probe {
    name: String,
    /// Absent: the template named before the slash.
    template: Option<String>,
    given: Given,
    text: Option<String>,
    error: Option<String>,
    python: Option<String>,
}

#[derive(Deserialize)]
struct Given {
    messages: Vec<ChatMessage>,
    add_generation_prompt: bool,
    tools: Option<Vec<Value>>,
    #[serde(default)]
    vars: Map<String, Value>,
}

fn golden() -> Golden {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/template/golden.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn render(template: &str, given: &Given) -> Result<String, TemplateError> {
    let tokens =
        TemplateTokens { bos: Some("<bos>".to_string()), eos: Some("<eos>".to_string()), ..TemplateTokens::default() };
    let options = RenderOptions {
        add_generation_prompt: given.add_generation_prompt,
        tools: given.tools.clone(),
        extra: given.vars.clone(),
        ..RenderOptions::default()
    };
    ChatTemplate::new(template, tokens)?.render(&given.messages, &options)
}

fn fault_named(name: &str) -> TemplateFault {
    match name {
        "syntax" => TemplateFault::Syntax,
        "raised" => TemplateFault::Raised,
        "type" => TemplateFault::Type,
        "undefined" => TemplateFault::Undefined,
        "security" => TemplateFault::Security,
        "limit" => TemplateFault::Limit,
        other => panic!("no fault is called {other}"),
    }
}

#[test]
fn every_probe_renders_as_in_python() {
    let golden = golden();
    let mut differing = Vec::new();
    for probe in &golden.probes {
        let template = probe.template.as_ref().unwrap_or_else(|| {
            &golden.templates[probe.name.split('/').next().expect("probes are called template/what")]
        });
        let found = render(template, &probe.given);
        let agrees = match (&found, &probe.text, &probe.error) {
            (Ok(found), Some(expected), None) => found == expected,
            (Err(TemplateError::Failed { fault, .. }), None, Some(expected)) => *fault == fault_named(expected),
            _ => false,
        };
        if !agrees {
            let expected = probe.text.as_ref().or(probe.python.as_ref());
            differing.push(format!("{}: {template:?}\n  found    {found:?}\n  expected {expected:?}", probe.name));
        }
    }
    assert!(differing.is_empty(), "{} of {} differ:\n{}", differing.len(), golden.probes.len(), differing.join("\n"));
}
