//! What only an in-process run can do, on real weights: seeds that stop draw the first seeds of the run that does not stop,
//! to the byte; gains by log-probability and attribution can be added to a run that has ended; all of it is the same at
//! any batch size and after a kill.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The resume test's run, smaller, with seeds enough to leave some out.
const CONFIG: &str = r#"
name = "in-process"
seed = 3
[models]
backbones = ["smollm2-135m-instruct"]
embedder = "all-minilm-l6-v2"
[sampling]
temperature = 0.7
max_tokens = 8
stop = ["\n"]
[benchmark]
name = "kata"
limit = 12
[matrix]
seeds = 4
STOPPING
[vote]
[sequence]
histories = ["positive"]
sequences = 1
runs = 2
warm_up = 1
intervening = 6
dominant_share = 0.5
probe_interval = [2, 3]
[[agents]]
name = "memory-free"
[[agents]]
name = "rag"
memory = "rag"
feedback = "revealed"
options = { placement = "earlier_turns" }
[[agents]]
name = "rag-frozen"
memory = "rag"
feedback = "revealed"
freeze = "after_warm_up"
options = { placement = "earlier_turns" }
[[agents]]
name = "memrl"
memory = "memrl"
max_call_tokens = 8
options = { min_similarity = { percentile = 20.0 } }
"#;

const BESIDE: &str = "[logprob]\n[attribution]\nprobes = \"every\"\nmax_probes = 2\nmax_experiences = 3\ndraws = 2\n";

fn lifelong(home: &Path, config: &str, folder: &str) -> Output {
    let file = home.join("run.toml");
    fs::write(&file, config).unwrap();
    Command::new(env!("CARGO_BIN_EXE_lifelong"))
        .args(["run".as_ref(), file.as_os_str(), "--out".as_ref(), home.join(folder).as_os_str()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .unwrap()
}

fn run(home: &Path, config: &str, folder: &str) -> String {
    let output = lifelong(home, config, folder);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

/// Lines of a run's log whose stage begins so: bytes, checks included.
fn lines(home: &Path, folder: &str, stage: &str) -> BTreeSet<String> {
    let log = fs::read_to_string(home.join(folder).join("attempts.jsonl")).unwrap();
    let opening = format!("{{\"record\":{{\"coord\":{{\"stage\":\"{stage}");
    log.lines().filter(|line| line.starts_with(&opening)).map(String::from).collect()
}

fn table(home: &Path, folder: &str, name: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(home.join(folder).join(format!("report/{name}.csv"))).unwrap();
    text.lines().map(|line| line.split(',').map(String::from).collect()).collect()
}

#[test]
fn what_stops_and_what_is_added_changes_nothing_else() {
    if support::model_files("smollm2-135m-instruct").is_none() || support::model_files("all-minilm-l6-v2").is_none() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let (full, certain) =
        (CONFIG.replace("STOPPING", ""), CONFIG.replace("STOPPING", "stopping = { error_rate = 0.0 }"));
    run(home, &full, "full");
    run(home, &certain, "certain");

    // What was drawn is what the full run drew first, and the votes are the same.
    let (all, drawn) = (lines(home, "full", "matrix/"), lines(home, "certain", "matrix/"));
    assert_eq!(all.len(), 12 * 4 + 12 * 11 * 4);
    assert!(drawn.is_subset(&all) && drawn.len() * 10 < all.len() * 9, "{} of {}", drawn.len(), all.len());
    let vote = |folder: &str| fs::read(home.join(folder).join("vote.json")).unwrap();
    assert!(vote("certain") == vote("full"), "certainty changed a vote");
    assert_eq!(lines(home, "certain", "sequence/"), lines(home, "full", "sequence/"));
    println!("{} of {} attempts, the votes are the same", drawn.len(), all.len());

    // Whatever the batch; and a run that is done asks for nothing.
    let slow = format!("{certain}[engine]\nmax_batch = 3\nthreads = 1\n");
    run(home, &slow, "slow");
    assert_eq!(lines(home, "slow", ""), lines(home, "certain", ""));
    let again = run(home, &certain, "certain");
    assert!(!again.contains("tokens in"), "a finished run did something: {again}");

    // Groups of seeds need all of them.
    let refused = lifelong(home, &certain.replace("[vote]", "[vote]\nseed_groups = 2"), "refused");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("seed_groups"));

    // Added afterwards: in one go, and at another batch size with a third of the work lost.
    let (before, config) = (lines(home, "certain", ""), certain.replace("[vote]", &format!("{BESIDE}[vote]")));
    run(home, &config, "certain");
    let whole = lines(home, "certain", "");
    assert!(before.is_subset(&whole));
    assert_eq!(lines(home, "certain", "logprob/").len(), 12 + 12 * 11);
    let kept: Vec<String> =
        whole.iter().enumerate().filter(|(index, _)| index % 3 > 0).map(|(_, line)| line.clone()).collect();
    let kept: Vec<String> =
        before.iter().cloned().chain(kept.into_iter().filter(|line| !before.contains(line))).collect();
    fs::write(home.join("slow/attempts.jsonl"), kept.join("\n") + "\n").unwrap();
    run(home, &slow.replace("[vote]", &format!("{BESIDE}[vote]")), "slow");
    assert_eq!(lines(home, "slow", ""), whole);

    // The report shows all three.
    let page = fs::read_to_string(home.join("certain/report/index.html")).unwrap();
    for part in ["id=\"stopping\"", "id=\"logprobs\"", "id=\"logprobs-0\"", "id=\"attribution\""] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("NaN") && !page.contains("This run is not complete"));
    let stopping = table(home, "certain", "stopping");
    let made: usize = stopping[1..].iter().map(|row| row[3].parse::<usize>().unwrap()).sum();
    assert_eq!((stopping.len() - 1, made), (12 * 11, drawn.len() - 12 * 4));
    assert_eq!(table(home, "certain", "logprob_gains").len() - 1, 12 * 11);
    let traced = table(home, "certain", "attribution");
    assert!(traced.len() > 4, "{traced:?}");
    // An agent that learned nothing after the warm-up is moved by nothing after it.
    let frozen: Vec<&Vec<String>> = traced.iter().filter(|row| row[1] == "rag-frozen").collect();
    assert!(!frozen.is_empty() && frozen.iter().all(|row| row[10] == "1" || row[18] == "true"), "{frozen:?}");
}

/// Every reply is held to one wrong word, so scores tell nothing: the filter says so, and the log-probabilities of references
/// still name what helps which task.
#[test]
fn a_backbone_that_solves_nothing_still_has_relations() {
    if support::model_files("smollm2-135m-instruct").is_none() || support::model_files("all-minilm-l6-v2").is_none() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let hopeless = "[sampling.grammar]\njson_schema = { const = \"zzz\" }\n[benchmark]";
    let config = CONFIG.replace("[benchmark]", hopeless).replace("seeds = 4\nSTOPPING", "seeds = 1\nHEADROOM");
    let filtered = config.replace("HEADROOM", "headroom = { min = 0.1, max = 0.9 }");
    let refused = String::from_utf8(lifelong(home, &filtered, "filtered").stderr).unwrap();
    for part in ["keeps 0 of 12 tasks", "0 of 12 attempts score", "log_probability_over_median"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let by_score = config.replace("HEADROOM", "");
    let refused = String::from_utf8(lifelong(home, &by_score, "neutral").stderr).unwrap();
    assert!(refused.contains("can be the probe of a positive-dominant sequence: 0 have"), "{refused}");

    let voted = by_score.replace("[vote]", "[logprob]\n[vote]\nby = \"log_probability_over_median\"");
    run(home, &voted, "voted");
    let vote = fs::read_to_string(home.join("voted/vote.json")).unwrap();
    assert!(vote.contains("\"by\": \"log_probability_over_median\""), "{vote}");
    // Eleven sources a target: five above the median, five below, and the median itself.
    let relations = table(home, "voted", "logprob_gains");
    let count = |relation: &str| relations[1..].iter().filter(|row| row.last().unwrap() == relation).count();
    assert_eq!(["positive", "neutral", "negative"].map(count), [60, 12, 60]);
    let agreement = table(home, "voted", "agreement");
    assert_eq!((agreement[1][0].as_str(), agreement[1][2].as_str()), ("smollm2-135m-instruct", "100"));
    let page = fs::read_to_string(home.join("voted/report/index.html")).unwrap();
    for part in [
        "id=\"cautions\"",
        "solves none of the 12 tasks",
        "All 132 gains of smollm2-135m-instruct by score are exactly zero",
        "Every graded execution of every sequence scores 0",
        "gains that vote: log-probability of the reference, minus its median behind all demonstrations",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("NaN") && !page.contains("This run is not complete"));
}

/// With scores from a file the pool is known before the first attempt: no other task is attempted, and the file is part of
/// what the run is.
#[test]
fn headroom_from_a_file_spares_the_other_tasks() {
    if support::model_files("smollm2-135m-instruct").is_none() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let pool = lifelong::benchmark::find("kata").unwrap().load(&Default::default()).unwrap();
    let names: Vec<&str> = pool.tasks.iter().map(|task| task.id().0.as_str()).collect();
    let scores = home.join("scores.jsonl");
    let line =
        |task: &str, rate: f64| format!("{{\"task_id\": \"{}\", \"solve_rate\": {rate}}}\n", task.to_uppercase());
    let rates = [(names[0], 1.0), (names[2], 0.5), (names[3], 0.0), (names[5], 0.3), (names[7], 0.8)];
    fs::write(&scores, rates.map(|(task, rate)| line(task, rate)).concat()).unwrap();
    let config = format!(
        "name = \"given\"\nseed = 3\n[models]\nbackbones = [\"smollm2-135m-instruct\"]\n[sampling]\nmax_tokens = 4\n\
         [benchmark]\nname = \"kata\"\n[matrix]\nseeds = 2\nheadroom = {{ min = 0.1, max = 0.9, scores = {:?} }}\n",
        scores.display().to_string()
    );
    let said = run(home, &config, "given");
    assert!(said.contains(&format!("rates 5 of {} tasks", names.len())), "{said}");
    assert_eq!(lines(home, "given", "matrix/").len(), 3 * 2 + 3 * 2 * 2);
    let zero_shot = table(home, "given", "zero_shot");
    let attempted: Vec<&str> = zero_shot[1..].iter().map(|row| row[1].as_str()).collect();
    assert_eq!(attempted, [names[2], names[5], names[7]]);
    let page = fs::read_to_string(home.join("given/report/index.html")).unwrap();
    assert!(!page.contains("This run is not complete") && page.contains("scores of strong models"));

    // Other scores are another run.
    fs::write(&scores, rates.map(|(task, rate)| line(task, rate / 2.0)).concat()).unwrap();
    let refused = lifelong(home, &config, "given");
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && message.contains("data.scores of strong models"), "{message}");
    fs::write(&scores, line("elsewhere/1", 0.5)).unwrap();
    let refused = lifelong(home, &config, "other");
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(message.contains("rates none of the") && message.contains("elsewhere/1"), "{message}");
}
