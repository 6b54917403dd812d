//! The run files of PATH-Bench, and what a whole small run of every experiment promises.

#[path = "support/killed.rs"]
mod killed;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lifelong::config;
use lifelong::report::ReportData;
use lifelong::store::RunReader;

fn configs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/runs")
}

fn lifelong(arguments: &[&std::ffi::OsStr]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lifelong")).args(arguments).output().unwrap()
}

fn succeeded(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{err}");
    (out, err)
}

#[test]
fn every_run_file_is_read_and_named_after_its_file() {
    let mut names = Vec::new();
    for entry in fs::read_dir(configs()).unwrap() {
        let path = entry.unwrap().path();
        let config = config::load(&path).unwrap();
        assert_eq!(Some(config.name.as_str()), path.file_stem().and_then(|name| name.to_str()));
        names.push(config.name);
    }
    for wanted in ["gains", "prefixes", "lives", "transitions", "orders"] {
        for size in ["", "-small"] {
            assert!(names.contains(&format!("path-bench-{wanted}{size}")), "{wanted}{size}: {names:?}");
        }
    }
}

/// Nothing that the paper states is otherwise in the whole run, and the small one has the same agents and stages.
#[test]
fn the_whole_run_is_the_papers_and_the_small_one_has_all_of_its_parts() {
    let load = |name: &str| config::load(&configs().join(name)).unwrap();
    let (whole, small) = (load("path-bench.toml"), load("path-bench-small.toml"));
    let matrix = whole.matrix.as_ref().unwrap();
    assert_eq!((matrix.seeds, matrix.tasks, whole.models.backbones.len()), (5, Some(120), 3));
    let sequence = whole.sequence.as_ref().unwrap();
    assert_eq!((sequence.sequences, sequence.runs, sequence.warm_up, sequence.intervening), (50, 5, 5, 100));
    let multi_task = whole.multi_task.as_ref().unwrap();
    assert_eq!((multi_task.targets, multi_task.sequences, multi_task.lengths.len()), (50, 3, 4));
    assert_eq!(whole.transitions.as_ref().unwrap().sequences, 30);
    assert_eq!(whole.orders.as_ref().unwrap().tasks, 50);
    let agents = |config: &config::RunConfig| -> Vec<(String, String)> {
        config.agents.iter().map(|agent| (agent.name.clone(), agent.memory.clone())).collect()
    };
    assert_eq!(agents(&whole), agents(&small));
    assert_eq!(agents(&whole).len(), 1 + 8 + 3);
    assert!(
        small.multi_task.is_some() && small.sequence.is_some() && small.transitions.is_some() && small.orders.is_some()
    );
    assert!(whole.agents.iter().filter(|agent| agent.memory == "seu").all(|agent| agent.sequences == Some(20)));
}

/// A measurement of made-up round rates, so that hours can be checked by hand.
fn measurement(folder: &Path, model: &str) -> PathBuf {
    let path = folder.join("measured.json");
    let text = format!(
        r#"{{"model":"{model}","device":"cpu (test)","workloads":[{{"name":"prefill-2048","median":1000.0}},
        {{"name":"decode-32-own","median":100.0}}]}}"#
    );
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_dry_run_prices_every_stage_and_gives_hours_for_what_was_measured() {
    if support::model_files("smollm2-135m-instruct").is_none() || support::model_files("all-minilm-l6-v2").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let small = configs().join("path-bench-small.toml");
    let (out, _) = succeeded(&lifelong(&["run".as_ref(), small.as_os_str(), "--dry-run".as_ref()]));
    for part in [
        "zero-shot: 288 attempts",
        "one-shot: at most 3312 attempts",
        "multi-task prefixes: at most 864 attempts",
        "sequences: at most 1224 attempts",
        "transitions: 756 attempts",
        "orders: 420 attempts",
        "sharing prefixes saves",
        "hours of smollm2-135m-instruct: not estimated",
        "--measured FILE",
    ] {
        assert!(out.contains(part), "{part}\n{out}");
    }
    let measured = measurement(folder.path(), "smollm2-135m-instruct");
    let arguments =
        ["run".as_ref(), small.as_os_str(), "--dry-run".as_ref(), "--measured".as_ref(), measured.as_os_str()];
    let (out, _) = succeeded(&lifelong(&arguments));
    assert!(out.contains("measured smollm2-135m-instruct on cpu (test): 1000 prompt tokens/s (prefill-2048)"), "{out}");
    assert!(out.contains("in all ") && !out.contains("not estimated"), "{out}");
    // 288 attempts of at most 16 tokens at 100 tokens/s are 46.08 s; the rest of the line's hours is prefill at 1000.
    let lines: Vec<&str> = out.lines().collect();
    let at = lines.iter().position(|line| line.contains("zero-shot")).unwrap();
    let computed: f64 = lines[at + 1].split(", ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let hours: f64 = lines[at + 2].trim().split(' ').next().unwrap().parse().unwrap();
    assert!((hours - (46.08 + computed / 1000.0) / 3600.0).abs() < 0.006, "{hours} {computed}");
}

/// Nothing of the models is here and nothing is fetched: the plan of a large run is priced all the same, says that its tokens
/// are estimated, and takes what memories ask from a run that was made.
#[test]
fn a_dry_run_needs_no_model_files() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("large.toml");
    let text = "name = \"large\"\n[models]\nbackbones = [\"qwen2.5-32b-instruct\", \"llama-3.1-8b-instruct\"]\n\
                embedder = \"bge-m3\"\n[benchmark]\nname = \"kata\"\nlimit = 20\n[matrix]\nseeds = 2\n[logprob]\n[vote]\n\
                [sequence]\nsequences = 2\nruns = 1\n[[agents]]\nname = \"memory-free\"\n[[agents]]\nname = \"rag\"\n\
                memory = \"rag\"\nmax_memory_tokens = 100\n";
    fs::write(&config, text).unwrap();
    let measured = measurement(folder.path(), "qwen2.5-32b-instruct");
    let output = Command::new(env!("CARGO_BIN_EXE_lifelong"))
        .args(["run".as_ref(), config.as_os_str(), "--dry-run".as_ref(), "--measured".as_ref(), measured.as_os_str()])
        .env("LIFELONG_HOME", folder.path())
        .env("HF_HOME", folder.path())
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .unwrap();
    let (out, _) = succeeded(&output);
    for part in [
        "tokens of qwen2.5-32b-instruct are estimated",
        "tokens of llama-3.1-8b-instruct are estimated",
        "matrix qwen2.5-32b-instruct one-shot: 760 attempts",
        "logprob/llama-3.1-8b-instruct: 400 attempts, at most 0 tokens generated",
        "calls of the memories come on top: `--calls-from RUN_DIR`",
        "hours of llama-3.1-8b-instruct: not estimated",
    ] {
        assert!(out.contains(part), "{part}\n{out}");
    }
    // References are part of what the log-probability stage computes: more than the prompts of the matrix at one seed.
    let lines: Vec<&str> = out.lines().collect();
    let tokens = |stage: &str| -> u64 {
        let at = lines.iter().position(|line| line.contains(stage)).unwrap();
        lines[at + 1].trim().trim_start_matches("about ").split(' ').next().unwrap().parse().unwrap()
    };
    let model = "qwen2.5-32b-instruct";
    let prompts = (tokens(&format!("matrix {model} zero-shot")) + tokens(&format!("matrix {model} one-shot"))) / 2;
    assert!(tokens(&format!("logprob/{model}")) > prompts, "{out}");
}

/// Case: a backbone joins. The matrix of the first is taken over, that of the second measured, and the report is the one of
/// a run that did both.
#[test]
fn a_backbone_joins_a_run_without_repeating_it() {
    let models = ["smollm2-135m-instruct", "gemma-3-270m"];
    if models.iter().any(|model| support::model_files(model).is_none()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, backbones: &str, from: Option<&Path>| -> (PathBuf, String) {
        let config = folder.path().join(format!("{name}.toml"));
        let text = format!(
            "name = \"joined\"\nseed = 2\n[models]\nbackbones = {backbones}\n[sampling]\ntemperature = 0.7\nmax_tokens = 6\n\
             stop = [\"\\n\"]\n[benchmark]\nname = \"kata\"\nlimit = 5\n[matrix]\nseeds = 2\n[vote]\n"
        );
        fs::write(&config, text).unwrap();
        let out = folder.path().join(name);
        let mut arguments = vec!["run".as_ref(), config.as_os_str(), "--out".as_ref(), out.as_os_str()];
        arguments.extend(from.iter().flat_map(|from| ["--matrix-from".as_ref(), from.as_os_str()]));
        let (_, err) = succeeded(&lifelong(&arguments));
        (out, err)
    };
    let both = "[\"smollm2-135m-instruct\", \"gemma-3-270m\"]";
    let (one, _) = run("one", "[\"smollm2-135m-instruct\"]", None);
    let (joined, said) = run("joined", both, Some(&one));
    let (whole, _) = run("whole", both, None);
    assert!(
        said.contains("zero-shot: 10 attempts taken over") && said.contains("one-shot: 40 attempts taken over"),
        "{said}"
    );
    for file in ["gains.csv", "zero_shot.csv", "agreement.csv", "attempts.csv", "usage.csv"] {
        let text = |run: &Path| fs::read_to_string(run.join("report").join(file)).unwrap();
        assert_eq!(text(&joined), text(&whole), "{file}");
    }
    let data = ReportData::build(&RunReader::open(&joined).unwrap()).unwrap();
    assert_eq!(data.voters.len(), 2);
    // Under other conditions nothing may be taken over.
    let config = folder.path().join("joined.toml");
    fs::write(&config, fs::read_to_string(&config).unwrap().replace("max_tokens = 6", "max_tokens = 7")).unwrap();
    let out = folder.path().join("other");
    let output = lifelong(&[
        "run".as_ref(),
        config.as_os_str(),
        "--out".as_ref(),
        out.as_os_str(),
        "--matrix-from".as_ref(),
        one.as_os_str(),
    ]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("config.sampling.max_tokens: 6 -> 7"), "{message}");
    assert!(!out.exists(), "a refused run leaves no folder");
}

/// The whole small run of every experiment, and the same killed five times on the way: equal to the byte.
///
/// `cargo test --release --workspace --test path_bench -- --ignored --nocapture`; with `LIFELONG_FINISHED_RUN=FOLDER` the
/// uninterrupted run is one that was made before, of which a copy is reported anew.
#[test]
#[ignore = "two whole runs, 8 minutes each on two quiet cores"]
fn the_small_run_killed_five_times_ends_with_the_same_report() {
    if support::model_files("smollm2-135m-instruct").is_none() || support::model_files("all-minilm-l6-v2").is_none() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let config = configs().join("path-bench-small.toml");
    let (whole, stopped) = (home.path().join("whole"), home.path().join("killed"));
    let started = std::time::Instant::now();
    match std::env::var_os("LIFELONG_FINISHED_RUN") {
        Some(finished) => copy_run(Path::new(&finished), &whole),
        None => killed::finish(killed::start(&config, &whole)),
    }
    println!("uninterrupted: {:.0} s", started.elapsed().as_secs_f64());
    let all = killed::stored_bytes(&whole);
    for kill in 1..=5 {
        let mut child = killed::start(&config, &stopped);
        assert!(killed::kill_after(&mut child, &stopped, all / 6), "kill {kill} came after the end");
        let stored = killed::stored_bytes(&stopped);
        println!("kill {kill}: {stored} of {all} bytes stored, {:.0} s", started.elapsed().as_secs_f64());
    }
    killed::finish(killed::start(&config, &stopped));
    assert!(killed::records(&stopped) == killed::records(&whole), "records differ");
    let (expected, found) = (killed::report(&whole), killed::report(&stopped));
    assert_eq!(expected.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
    for (name, bytes) in &expected {
        assert!(found[name] == *bytes, "{name} differs");
    }
    for figure in ["figure-1.svg", "figure-4.svg", "figure-5.svg", "figure-7.svg", "trajectory-rag.svg"] {
        assert!(expected.contains_key(figure), "{figure}");
    }
    println!("{} records, {} files of the report are equal", killed::records(&whole).len(), expected.len());
}

/// A run's records and plans in another folder, with the report that this program makes of them.
fn copy_run(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
    succeeded(&lifelong(&["report".as_ref(), to.as_os_str()]));
}
