//! What untrusted bytes are fed to: by the fuzz targets here, and by `tests/hostile_bytes.rs`, which needs no nightly
//! compiler. Each function takes any bytes, must return, and checks what holds of every outcome.
#![allow(dead_code, reason = "each fuzz target uses one of them")]

use std::path::Path;
use std::sync::Arc;

use lifelong::engine::template::{ChatMessage, ChatTemplate, RenderOptions, TemplateTokens};
use lifelong::engine::tokenizer::{GgufVocabulary, Specials, Tokenizer};
use lifelong::reply::tool_call::{self, Reading, Status, Tool};
use lifelong::reply::{answer, fence, json, think};
use lifelong_models::Checkpoint;
use lifelong_models::file::ModelFile;
use lifelong_models::{safetensors, torch_file};

const TEXT: &str = "Hello, w\u{f6}rld 123 <|end|>\n\t\u{1f600}";

/// A GGUF file: its header, every value and tensor, and the tokenizer and template that its metadata describe.
pub fn gguf(bytes: &[u8]) {
    let file = Arc::new(ModelFile::from_bytes(Path::new("hostile.gguf"), bytes.to_vec()));
    let Ok(checkpoint) = Checkpoint::from_gguf(file) else { return };
    let header = checkpoint.gguf().expect("it was read as one");
    let keys: Vec<String> = header.keys().map(String::from).collect();
    for key in &keys {
        let _ = header.value(key);
    }
    let names: Vec<String> = checkpoint.names().map(String::from).collect();
    for name in &names {
        if let Ok(view) = checkpoint.tensor(name) {
            assert!(view.bytes.len() <= bytes.len(), "a tensor is no larger than its file");
        }
    }
    if let Ok(Some(vocabulary)) = GgufVocabulary::read(header)
        && let Ok(tokenizer) = Tokenizer::from_gguf(&vocabulary)
    {
        use_tokenizer(&tokenizer);
    }
    if let Ok(Some(source)) = header.get::<&str>("tokenizer.chat_template") {
        template(source.as_bytes());
    }
}

/// The header of a safetensors file.
pub fn safetensors(bytes: &[u8]) {
    let file = ModelFile::from_bytes(Path::new("hostile.safetensors"), bytes.to_vec());
    if let Ok(header) = safetensors::Header::read(&file) {
        let _ = format!("{header:?}");
    }
}

/// A file of `torch.save`: the zip and the pickle in it.
pub fn torch(bytes: &[u8]) {
    let file = ModelFile::from_bytes(Path::new("hostile.bin"), bytes.to_vec());
    let Ok(header) = torch_file::Header::read(&file) else { return };
    for info in header.tensors.values() {
        assert!(info.range.start <= info.range.end && info.range.end <= bytes.len(), "a tensor lies in its file");
        let elements = info.shape.iter().fold(1, |elements: usize, extent| elements.saturating_mul(*extent));
        let bits = elements.saturating_mul(info.kind.bits);
        assert_eq!(bits, info.range.len() * 8, "a tensor is as large as its shape says");
    }
}

/// A `tokenizer.json`.
pub fn tokenizer(bytes: &[u8]) {
    if let Ok(tokenizer) = Tokenizer::from_bytes(bytes) {
        use_tokenizer(&tokenizer);
    }
}

fn use_tokenizer(tokenizer: &Tokenizer) {
    for specials in [Specials::Parse, Specials::Literal] {
        let ids = tokenizer.encode_document(TEXT, specials);
        let mut stream = tokenizer.decode_stream();
        let streamed: String = ids.iter().map(|id| stream.push(*id)).collect();
        assert_eq!(streamed, tokenizer.decode(&ids), "streamed text is decoded text");
    }
    let _ = tokenizer.decode_with_specials(&[0, 1, 2, u32::MAX]);
}

/// A chat template, rendered with tools and without.
pub fn template(bytes: &[u8]) {
    let source = String::from_utf8_lossy(bytes);
    let Ok(template) = ChatTemplate::new(&source, TemplateTokens::default()) else { return };
    let call = serde_json::json!({"type": "function", "function": {"name": "f", "arguments": {"a": [1, 2.5, null]}}});
    let mut called = ChatMessage::assistant("");
    called.tool_calls = Some(vec![call]);
    let messages = [ChatMessage::system("s"), ChatMessage::user(TEXT), called, ChatMessage::new("tool", "3")];
    let tool = serde_json::json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let with_tools = RenderOptions { tools: Some(vec![tool]), ..RenderOptions::default() };
    for options in [RenderOptions::default(), with_tools] {
        let (first, second) = (template.render(&messages, &options), template.render(&messages, &options));
        assert_eq!(first, second, "a rendering has no memory");
    }
}

/// A model's reply, by every reader that does not start a thread of its own.
pub fn reply(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let parameters = serde_json::json!({"x": {"type": "integer"}, "y": {"type": ["object", "string"]}});
    let parameters = parameters.as_object().expect("written as one").clone();
    let tools = [Tool { name: "f".into(), parameters }, Tool { name: "look_up".into(), ..Tool::default() }];
    for dialect in tool_call::DIALECTS {
        for reading in [
            Reading::default(),
            Reading { tools: &tools, thought_is_open: true, calls_in_thoughts: false },
            Reading { tools: &tools, thought_is_open: false, calls_in_thoughts: true },
        ] {
            let reply = dialect.read(&text, &reading);
            let mut end = 0;
            for call in &reply.calls {
                assert!(text.get(call.at.clone()).is_some(), "{}: a call stands in the reply", dialect.name());
                assert!(call.at.start >= end && !call.name.is_empty(), "{}: calls stand in order", dialect.name());
                assert_eq!(call.known.is_some(), !reading.tools.is_empty());
                end = call.at.end;
            }
            assert!(reply.findings.iter().all(|finding| finding.at <= text.len()));
            assert_eq!(reply.status == Status::Partial, !reply.calls.is_empty() && reply.has_faults());
        }
    }
    let _ = think::strip(&text);
    let _ = (answer::first_line(&text), answer::last_number(&text), answer::marker(&text), answer::boxed(&text));
    let _ = answer::choice(&text, &["A", "B"].map(String::from));
    let _ = (fence::blocks(&text), fence::before_lone_closing_fence(&text));
    let _ = json::first_value(&text, json::Kind::Container);
}
