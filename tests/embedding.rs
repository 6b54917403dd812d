//! A text's vector is its own: the same bits alone, in any company and in any order.

mod support;

use std::path::Path;

use lifelong::engine::embed::{
    Embedder, EmbedderOptions, Head, HybridWeights, Pooling, Purpose, load_embedder, load_embedder_on,
};
use lifelong::engine::error::Error;
use lifelong::engine::hub::{ModelFile, ModelFiles};
use lifelong::engine::tokenizer::Specials;
use lifelong::memory::{self, Handles, Similarities};
use lifelong::record::{Experience, Feedback, ReplyFormat, TaskId, TaskView};
use lifelong::seed::Seed;
use lifelong_kernels::Device;
use serde_json::json;
use support::tiny::{letters, with_tokenizer};

fn load(name: &str, folder: &Path, threads: usize) -> Embedder {
    try_load(name, folder, threads, None).unwrap()
}

fn try_load(name: &str, folder: &Path, threads: usize, pooling: Option<Pooling>) -> Result<Embedder, Error> {
    load_on(name, folder, &[Device::cpu(threads)], pooling)
}

fn load_on(name: &str, folder: &Path, devices: &[Device], pooling: Option<Pooling>) -> Result<Embedder, Error> {
    let wanted = [
        "1_Pooling/config.json",
        "colbert_linear.pt",
        "config.json",
        "config_sentence_transformers.json",
        "model.safetensors",
        "modules.json",
        "pytorch_model.bin",
        "sentence_bert_config.json",
        "sparse_linear.pt",
        "tokenizer.json",
    ];
    let files = wanted.iter().filter(|file| folder.join(file).is_file()).map(|file| {
        let path = folder.join(file);
        let size = std::fs::metadata(&path).unwrap().len();
        ModelFile { name: file.to_string(), path, size, sha256: None, origin: "test".to_string() }
    });
    let files = ModelFiles { name: name.into(), kind: None, folder: folder.to_path_buf(), files: files.collect() };
    load_embedder_on(&files, devices, EmbedderOptions { pooling })
}

/// The tiny BERT of the models crate with a tokenizer of single letters, at most `max_tokens` of them.
struct Tiny {
    folder: tempfile::TempDir,
}

impl Tiny {
    fn new(max_tokens: usize) -> Tiny {
        let folder = tempfile::tempdir().unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tests/golden/bert");
        for name in ["config.json", "model.safetensors"] {
            std::fs::copy(golden.join(name), folder.path().join(name)).unwrap();
        }
        let write = |name: &str, value: serde_json::Value| {
            std::fs::write(folder.path().join(name), value.to_string()).unwrap();
        };
        std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
        write("1_Pooling/config.json", json!({ "pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false }));
        write("sentence_bert_config.json", json!({ "max_seq_length": max_tokens }));
        write("tokenizer.json", letters(["[PAD]", "[UNK]", "[CLS]", "[SEP]"], Some(2), 3));
        Tiny { folder }
    }

    fn load(&self, threads: usize) -> Embedder {
        load("tiny-bert", self.folder.path(), threads)
    }
}

/// Texts of mixed length, the empty one among them.
fn texts(count: usize, longest: u64) -> Vec<String> {
    let mut stream = Seed(4).stream();
    let mut word = |length| (0..length).map(|_| char::from(b'a' + stream.below(26) as u8)).collect::<String>();
    let mut lengths = Seed(5).stream();
    let mut texts: Vec<String> = (1..count).map(|_| word(lengths.below(longest))).collect();
    texts.push(String::new());
    texts
}

fn bits(vectors: &[Vec<f32>]) -> Vec<Vec<u32>> {
    vectors.iter().map(|vector| vector.iter().map(|value| value.to_bits()).collect()).collect()
}

/// re-batch, re-batch-sort.
fn company_order_and_threads_do_not_matter(one: &Embedder, two: &Embedder, texts: &[String]) {
    let together = bits(&one.embed(texts).unwrap());
    for (text, expected) in texts.iter().zip(&together) {
        assert_eq!(&bits(&two.embed(std::slice::from_ref(text)).unwrap())[0], expected, "{text:?}");
    }
    for shuffle in 0..3 {
        let mut order: Vec<usize> = (0..texts.len()).collect();
        Seed(shuffle).stream().shuffle(&mut order);
        for batch in [7, texts.len()] {
            for indices in order.chunks(batch) {
                let some: Vec<String> = indices.iter().map(|&index| texts[index].clone()).collect();
                let vectors = bits(&two.embed(&some).unwrap());
                assert!(indices.iter().zip(&vectors).all(|(&index, vector)| vector == &together[index]));
            }
        }
    }
}

/// Several devices share a call's batches.
#[test]
fn no_vector_shows_how_many_devices_there_are() {
    let tiny = Tiny::new(40);
    // Some batches each.
    let texts = texts(900, 36);
    let expected = bits(&tiny.load(1).embed(&texts).unwrap());
    for count in [2, 3] {
        let devices: Vec<Device> = (0..count).map(|_| Device::cpu(1)).collect();
        let embedder = load_on("tiny-bert", tiny.folder.path(), &devices, None).unwrap();
        assert_eq!(bits(&embedder.embed(&texts).unwrap()), expected, "{count} devices");
        assert!(devices.iter().all(|device| device.work().float_products.operations > 0), "{count} devices");
        assert!(embedder.sparse(Purpose::Query, &[]).is_err_and(|error| error.to_string().contains("sparse")));
    }
    let error = load_on("tiny-bert", tiny.folder.path(), &[], None).map(drop).unwrap_err().to_string();
    assert!(error.contains("at least one"), "{error}");
}

#[test]
fn vectors_of_a_tiny_model_do_not_see_their_batch() {
    let tiny = Tiny::new(40);
    company_order_and_threads_do_not_matter(&tiny.load(1), &tiny.load(2), &texts(64, 36));
}

/// re-empty-text.
#[test]
fn vectors_have_length_one_and_their_texts_order() {
    let embedder = Tiny::new(40).load(1);
    let texts = ["abc", "", " ", "xyz"].map(String::from);
    let vectors = embedder.embed(&texts).unwrap();
    for vector in &vectors {
        let length: f32 = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        assert_eq!(vector.len(), embedder.dimensions());
        assert!((length - 1.0).abs() < 1e-6);
    }
    assert_eq!(bits(&vectors)[1], bits(&vectors)[2], "both are the empty frame");
    assert_ne!(bits(&vectors)[0], bits(&vectors)[3]);
    assert!(embedder.embed(&[]).unwrap().is_empty());
}

#[test]
fn long_texts_are_cut_at_the_models_limit_and_counted() {
    let embedder = Tiny::new(12).load(1);
    assert_eq!((embedder.max_tokens(), embedder.pooling()), (12, Pooling::Mean));
    let cut = embedder.embed(&["abcdefghijklmnop".to_string(), "abcdefghij".to_string()]).unwrap();
    assert_eq!(bits(&cut)[0], bits(&cut)[1], "ten letters fit between [CLS] and [SEP]");
    assert_eq!(embedder.truncated_texts(), 1);
}

#[test]
fn descriptor_names_model_weights_and_pooling() {
    let (short, long) = (Tiny::new(12).load(1), Tiny::new(40).load(1));
    assert!(short.descriptor().starts_with("tiny-bert ") && short.descriptor().contains("Mean"));
    assert_ne!(short.descriptor(), long.descriptor(), "another limit gives other vectors");
}

#[derive(serde::Deserialize)]
struct Made {
    ids: Vec<u32>,
    dense: Vec<f32>,
    sparse: std::collections::BTreeMap<u32, f32>,
    colbert: Vec<f32>,
    /// With each text: dense, sparse, colbert.
    scores: Vec<[f64; 3]>,
}

#[derive(serde::Deserialize)]
struct Expected {
    texts: Vec<String>,
    made: Vec<Made>,
}

/// re-sparse, and the three scores: what torch computes from the same files of `torch.save`.
#[test]
fn the_three_heads_of_bge_m3_and_their_scores() {
    let specials = ["<s>", "<pad>", "</s>", "<unk>"];
    let folder = with_tokenizer("bge-m3", &letters(specials, Some(0), 2));
    let embedder = load("tiny-bge-m3", folder.path(), 2);
    let text = std::fs::read_to_string(folder.path().join("expected.json")).unwrap();
    let Expected { texts, made } = serde_json::from_str(&text).unwrap();
    assert_eq!(embedder.pooling(), Pooling::Cls);
    assert_eq!(embedder.heads(), [Head::Dense, Head::Sparse, Head::Colbert]);
    let found = embedder.multi(Purpose::Document, &texts).unwrap();
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-4, "{a} and {b}");
    for ((found, made), text) in found.iter().zip(&made).zip(&texts) {
        assert_eq!(embedder.tokenizer().encode_document(text, Specials::Literal), made.ids);
        found.dense.iter().zip(&made.dense).for_each(|(a, b)| close((*a).into(), (*b).into()));
        assert_eq!(found.sparse.weights.keys().collect::<Vec<_>>(), made.sparse.keys().collect::<Vec<_>>(), "{text}");
        found.sparse.weights.iter().for_each(|(id, weight)| close((*weight).into(), made.sparse[id].into()));
        assert_eq!((found.colbert.width, found.colbert.rows.len()), (12, made.colbert.len()));
        found.colbert.rows.iter().zip(&made.colbert).for_each(|(a, b)| close((*a).into(), (*b).into()));
    }
    assert!(made.iter().any(|made| made.sparse.len() > 1), "a check of nothing");
    let only = |dense, sparse, colbert| HybridWeights { dense, sparse, colbert };
    for (query, made) in found.iter().zip(&made) {
        for (document, [dense, sparse, colbert]) in found.iter().zip(&made.scores) {
            close(query.score(document, only(1.0, 0.0, 0.0)), *dense);
            close(query.score(document, only(0.0, 1.0, 0.0)), *sparse);
            close(query.score(document, only(0.0, 0.0, 1.0)), *colbert);
            close(query.score(document, HybridWeights::default()), (dense + sparse + colbert) / 3.0);
        }
    }
    // Each head alone gives what all of them together gave.
    assert_eq!(embedder.sparse(Purpose::Query, &texts).unwrap()[2], found[2].sparse);
    assert_eq!(embedder.colbert(Purpose::Query, &texts[2..3]).unwrap()[0], found[2].colbert);
    assert_eq!(bits(&embedder.embed(&texts).unwrap())[1], bits(&[found[1].dense.clone()])[0]);
    let error = Tiny::new(12).load(1).sparse(Purpose::Query, &texts).unwrap_err();
    assert!(error.to_string().contains("sparse_linear"), "{error}");
}

/// Memory `rag` on the tiny BGE-M3: the torch reference's scores, in its order, in each mode.
#[test]
fn rag_ranks_by_each_head_of_bge_m3() {
    let folder = with_tokenizer("bge-m3", &letters(["<s>", "<pad>", "</s>", "<unk>"], Some(0), 2));
    let embedder = load("tiny-bge-m3", folder.path(), 1);
    let text = std::fs::read_to_string(folder.path().join("expected.json")).unwrap();
    let Expected { texts, made } = serde_json::from_str(&text).unwrap();
    let handles = Handles { embedder: Some(&embedder), ..Handles::none() };
    let task = |question: &str| TaskView {
        id: TaskId("t".into()),
        family: None,
        system: None,
        question: question.into(),
        reply_format: ReplyFormat::Line,
    };
    let experience = |question: &str, position: u32| Experience {
        task: task(question),
        turns: Vec::new(),
        answer: None,
        is_finished: true,
        feedback: Feedback::Correct(true),
        position,
        recalled: Vec::new(),
        pending: serde_json::Value::Null,
    };
    type Score = fn(&[f64; 3]) -> f64;
    let modes: [(&str, Score); 4] = [
        ("dense", |scores| scores[0]),
        ("sparse", |scores| scores[1]),
        ("colbert", |scores| scores[2]),
        ("hybrid", |scores| scores.iter().sum::<f64>() / 3.0),
    ];
    for (mode, score) in modes {
        let options = format!("k = {}\nembed = \"question\"\nmode = \"{mode}\"", texts.len());
        let options = toml::from_str(&options).unwrap();
        let mut rag = memory::find("rag").unwrap().create(&options).unwrap();
        for (position, text) in (0..).zip(&texts) {
            rag.learn(&experience(text, position), &handles).unwrap();
        }
        let mut restored = memory::find("rag").unwrap().create(&options).unwrap();
        restored.load(&rag.save()).unwrap();
        assert_eq!(restored.save(), rag.save(), "{mode}");
        for (text, made) in texts.iter().zip(&made) {
            let recall = restored.recall(&task(text), &handles).unwrap();
            let blocks = &recall.contexts[0].blocks;
            assert_eq!(blocks.len(), texts.len());
            for block in blocks {
                let stored: usize = block.id.trim_start_matches("t@").parse().unwrap();
                let expected = score(&made.scores[stored]);
                assert!((block.score - expected).abs() < 1e-4, "{mode} {text}: {} and {expected}", block.score);
            }
            assert!(blocks.is_sorted_by(|left, right| left.score >= right.score), "{mode} {text}");
        }
    }
    let tiny = Tiny::new(12).load(1);
    let headless = Handles { embedder: Some(&tiny), ..Handles::none() };
    for mode in ["sparse", "colbert", "hybrid"] {
        let options = toml::from_str(&format!("mode = \"{mode}\"")).unwrap();
        let mut rag = memory::find("rag").unwrap().create(&options).unwrap();
        let error = format!("{:#}", rag.learn(&experience("abc", 0), &headless).unwrap_err());
        assert!(error.contains("memory `rag`") && error.contains("_linear"), "{error}");
    }
}

/// re-eos-append, re-query-prefix: a decoder's body with its end token behind every text, instructions before queries
/// alone, and the last token's state.
#[test]
fn queries_of_a_decoder_body_have_their_instruction() {
    let specials = ["<pad>", "<unk>", "<|im_start|>", "<|endoftext|>"];
    let mut tokenizer = letters(specials, None, 3);
    // The tiny vocabulary has 40 tokens: letters at the start of a word, and nine behind one.
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    vocabulary.retain(|_, id| id.as_u64().unwrap() < 40);
    let folder = with_tokenizer("qwen3-embedding", &tokenizer);
    let write = |name: &str, value: serde_json::Value| {
        std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    };
    let modules = |pooling| json!([{ "type": "sentence_transformers.models.Transformer", "path": "" }, pooling]);
    write("modules.json", modules(json!({ "type": "sentence_transformers.models.Pooling", "path": "1_Pooling" })));
    std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    write("1_Pooling/config.json", json!({ "pooling_mode_lasttoken": true, "include_prompt": true }));
    write("config_sentence_transformers.json", json!({ "prompts": { "query": "x y ", "document": "" } }));
    let embedder = load("tiny-qwen3-embedding", folder.path(), 2);
    assert_eq!(embedder.pooling(), Pooling::Last);
    let encoded = embedder.tokenizer().encode_document("a b", Specials::Literal);
    assert_eq!(encoded, [4, 5, 3], "two letters and the end");
    let texts = ["a b", "x y a b", ""].map(String::from);
    let documents = bits(&embedder.embed(&texts).unwrap());
    let queries = bits(&embedder.embed_for(Purpose::Query, &texts[..1]).unwrap());
    assert_eq!(queries[0], documents[1], "the instruction stands before a query");
    assert_ne!(queries[0], documents[0], "and not before a document");
    company_order_and_threads_do_not_matter(&embedder, &load("again", folder.path(), 1), &texts);
}

#[test]
fn what_the_files_do_not_say_is_asked() {
    let tiny = Tiny::new(12);
    std::fs::remove_file(tiny.folder.path().join("1_Pooling/config.json")).unwrap();
    let error = try_load("tiny-bert", tiny.folder.path(), 1, None).err().unwrap().to_string();
    assert!(error.contains("--pooling mean|cls|last"), "{error}");
    let told = try_load("tiny-bert", tiny.folder.path(), 1, Some(Pooling::Cls)).unwrap();
    assert_eq!(told.pooling(), Pooling::Cls);
    std::fs::write(
        tiny.folder.path().join("modules.json"),
        json!([{ "type": "sentence_transformers.models.Pooling", "path": "1_Pooling" }]).to_string(),
    )
    .unwrap();
    let error = try_load("tiny-bert", tiny.folder.path(), 1, Some(Pooling::Cls)).err().unwrap().to_string();
    assert!(error.contains("1_Pooling/config.json"), "{error}");
}

/// `lifelong calibrate` on the tiny BGE-M3 prints what the library measures; backbones and agents are not looked at.
#[test]
fn the_command_line_calibrates() {
    let folder = with_tokenizer("bge-m3", &letters(["<s>", "<pad>", "</s>", "<unk>"], Some(0), 2));
    let model = folder.path().to_str().unwrap();
    let calibrate = |models: &str| {
        let path = folder.path().join("run.toml");
        let agent = "[[agents]]\nname = \"memory-free\"\n";
        let text = format!(
            "name = \"c\"\nseed = 3\n[models]\nbackbones = [\"no-such-model\"]\n{models}\n[benchmark]\nname = \"kata\"\n{agent}"
        );
        std::fs::write(&path, text).unwrap();
        let program = std::process::Command::new(env!("CARGO_BIN_EXE_lifelong")).arg("calibrate").arg(&path).output();
        program.unwrap()
    };
    let output = calibrate(&format!("embedder = {model:?}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();

    let tasks = lifelong::benchmark::find("kata").unwrap().load(&Default::default()).unwrap().tasks;
    let questions: Vec<String> = tasks.into_iter().map(|task| task.view.question).collect();
    let measured = Similarities::measure(&questions, &load("tiny-bge-m3", folder.path(), 1), Seed(3)).unwrap();
    let first = format!("{} random pairs of {} tasks", measured.pairs(), questions.len());
    let spread = format!("mean {:.4}  standard deviation {:.4}", measured.mean(), measured.deviation());
    assert!(printed.starts_with(&first) && printed.contains(&spread), "{printed}\nexpected {first}, {spread}");
    for percent in [1.0, 50.0, 99.0] {
        let line = format!("{percent:>3.0} %  {:.4}", measured.percentile(percent));
        assert!(printed.lines().any(|found| found == line), "{printed}\nexpected {line}");
    }
    assert!(measured.deviation() > 0.0, "a check of nothing");
    let refused = calibrate("");
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("models.embedder"));
}

/// `lifelong embed` on the tiny BGE-M3: one JSON object a text, in order.
#[test]
fn the_command_line_writes_each_head() {
    let folder = with_tokenizer("bge-m3", &letters(["<s>", "<pad>", "</s>", "<unk>"], Some(0), 2));
    let input = folder.path().join("texts.txt");
    std::fs::write(&input, "abcab\nzzy\n").unwrap();
    let embed = |more: &[&str]| {
        let (model, input) = (folder.path().to_str().unwrap(), input.to_str().unwrap());
        let head = ["embed", "--model", model, "--input", input, "--threads", "1"];
        std::process::Command::new(env!("CARGO_BIN_EXE_lifelong")).args([&head[..], more].concat()).output().unwrap()
    };
    let lines = |more: &[&str]| -> Vec<serde_json::Value> {
        let output = embed(more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let embedder = load("tiny-bge-m3", folder.path(), 1);
    let texts = ["abcab", "zzy"].map(String::from);
    let sparse = lines(&["--head", "sparse"]);
    for ((line, text), expected) in sparse.iter().zip(&texts).zip(embedder.sparse(Purpose::Document, &texts).unwrap()) {
        assert_eq!(line["text"], *text);
        let weights = line["weights"].as_object().unwrap();
        assert_eq!(weights.len(), expected.weights.len());
        for (token, weight) in &expected.weights {
            assert_eq!(weights[&token.to_string()].as_f64().unwrap() as f32, *weight);
        }
    }
    let colbert = lines(&["--head", "colbert"]);
    assert_eq!(colbert[0]["vectors"].as_array().unwrap().len(), 6, "five letters and the end");
    assert_eq!(lines(&[])[1]["embedding"].as_array().unwrap().len(), 16);
    let refused = embed(&["--head", "sparse", "--output", "x.parquet"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains(".jsonl"));
}

#[test]
fn vectors_of_real_weights_do_not_see_their_batch() {
    let Some(files) = support::model_files("all-minilm-l6-v2") else { return };
    let load = |threads| load_embedder(&files, &Device::cpu(threads)).unwrap();
    let (one, two) = (load(1), load(2));
    company_order_and_threads_do_not_matter(&one, &two, &texts(12, 60));
}
