//! The behaviour cases of the family `resume_cache`.
//!
//! A case's `{"id": …, …}` becomes an attempt whose stage is the id and whose detail is the rest; whole lines get our
//! checksum, damage stays damage. There is no response cache in this program (a completion is a pure function, and the
//! run folder is the only thing that is continued), so the cases about cache keys are asked of the run's identity.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lifelong::record::{Attempt, AttemptRecord, Coord, Ending, Message, Role, Score, TaskId, Usage};
use lifelong::seed::Seed;
use lifelong::store::{
    ATTEMPTS_FILE, Error, FORMAT, Identity, Machine, Manifest, RunReader, RunStore, TimingRecord, UnitTiming, totals,
};
use serde_json::{Value, json};

/// The cases of the family, or one `skipped` line.
fn case(id: &str) -> Option<Value> {
    let root = std::env::var_os("LIFELONG_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let path = root.join("cases/resume_cache.json");
    let Ok(text) = fs::read_to_string(&path) else {
        println!("skipped: {} is not there", path.display());
        return None;
    };
    let family: Value = serde_json::from_str(&text).unwrap();
    Some(family["cases"].as_array().unwrap().iter().find(|case| case["id"] == id).unwrap().clone())
}

fn manifest(config: Value) -> Manifest {
    let identity = Identity {
        format: FORMAT,
        code: "1".into(),
        config,
        data: [("kata".to_string(), "d".to_string())].into(),
        models: [("tiny".to_string(), "m".to_string())].into(),
        device: "cpu".into(),
    };
    Manifest::new(identity, "scalar")
}

fn open(dir: &Path) -> Result<RunStore, Error> {
    RunStore::create_or_open(dir, &manifest(json!({})), Machine::default())
}

fn record(id: &str, detail: &str) -> AttemptRecord {
    AttemptRecord {
        coord: Coord { stage: id.into(), sequence: 0, step: 0, attempt: 0 },
        task: TaskId(id.into()),
        attempt: Attempt {
            turns: vec![Message::new(Role::Assistant, detail)],
            answer: None,
            ending: Ending::Finished,
            usage: Usage::default(),
            recalled: vec![],
            dropped_memories: 0,
            votes: vec![],
        },
        score: Score::Graded(1.0),
        detail: detail.into(),
        memory: None,
        memory_work: Default::default(),
    }
}

/// The line of a record as the store writes it, without the newline.
fn line(record: &AttemptRecord) -> String {
    let text = serde_json::to_string(record).unwrap();
    format!("{{\"record\":{text},\"check\":\"{}\"}}", &blake3::hash(text.as_bytes()).to_hex()[..16])
}

/// A case's record text as ours.
fn ours(text: &str) -> String {
    let value: Value = serde_json::from_str(text).unwrap();
    let detail = value.get("t").and_then(Value::as_str).map_or_else(|| value.to_string(), String::from);
    line(&record(value["id"].as_str().unwrap(), &detail))
}

/// A run folder whose record file holds `content`.
fn folder_with(content: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).unwrap());
    fs::write(folder.path().join(ATTEMPTS_FILE), content).unwrap();
    folder
}

fn stages(store: &RunStore) -> Vec<String> {
    store.records().unwrap().into_iter().map(|record| record.coord.stage).collect()
}

fn redone(store: &RunStore) -> Vec<String> {
    store.findings().damage.iter().filter_map(|damage| Some(damage.coord.as_ref()?.stage.clone())).collect()
}

fn assert_expected(store: &RunStore, expect: &Value) {
    assert_eq!(json!(stages(store)), expect["records"]);
    if let Some(redo) = expect.get("redo") {
        assert_eq!(json!(redone(store)), *redo);
    }
    if let Some(lines) = expect.get("bad_lines") {
        let found: Vec<u64> = store.findings().damage.iter().map(|damage| damage.line).collect();
        assert_eq!(json!(found), *lines);
    }
    if let Some(repaired) = expect.get("repaired") {
        assert_eq!(json!(store.findings().repaired), *repaired);
    }
}

#[test]
fn rs_half_line() {
    let Some(case) = case("rs-half-line") else { return };
    let file = case["given"]["file"].as_str().unwrap();
    let (whole, torn) = file.split_once('\n').unwrap();
    assert_eq!(json!(torn.len()), case["expect"]["dropped_bytes"]);
    let half = &ours(r#"{"id":"b","v":2}"#)[..120];
    let folder = folder_with(&format!("{}\n{half}", ours(whole)));
    let store = open(folder.path()).unwrap();
    assert_eq!(store.findings().damage.iter().map(|damage| damage.bytes.len()).sum::<usize>(), half.len());
    store.append(record("c", "3")).unwrap();
    assert_expected(&store, &case["expect"]);
    drop(store);
    assert!(open(folder.path()).unwrap().findings().is_clean());
    let aside = fs::read_to_string(folder.path().join("attempts.jsonl.damaged")).unwrap();
    assert_eq!(aside, format!("{half}\n"));
}

#[test]
fn rs_glued() {
    let Some(case) = case("rs-glued") else { return };
    let [a, b, c] = ["a", "b", "c"].map(|id| ours(&json!({"id": id}).to_string()));
    let folder = folder_with(&format!("{a}{b}\n{c}\n"));
    assert_expected(&open(folder.path()).unwrap(), &case["expect"]);
    assert_eq!(fs::read_to_string(folder.path().join(ATTEMPTS_FILE)).unwrap(), format!("{a}\n{b}\n{c}\n"));
}

/// The case allows the whole record in the damaged line to be recovered by its checksum; ours is.
#[test]
fn rs_half_then_whole() {
    let Some(case) = case("rs-half-then-whole") else { return };
    let [a, b, c] = ["a", "b", "c"].map(|id| ours(&json!({"id": id, "x": "true"}).to_string()));
    let folder = folder_with(&format!("{a}\n{}{b}\n{c}\n", &b[..b.len() - 40]));
    let store = open(folder.path()).unwrap();
    assert_eq!(stages(&store), ["a", "b", "c"]);
    assert_eq!(store.findings().damage[0].line, case["expect"]["bad_lines"][0].as_u64().unwrap());
    assert_eq!(json!(redone(&store)), case["expect"]["redo"]);
}

#[test]
fn rs_nel_and_rs_vt_ff() {
    for id in ["rs-nel", "rs-vt-ff"] {
        let Some(case) = case(id) else { return };
        let file = case["given"]["file"].as_str().unwrap();
        let mut content = String::new();
        for text in file.split('\n').filter(|text| !text.is_empty()) {
            // Our own writer would escape a control character; a line that holds one raw was made by something else.
            content += &match text.find('\u{1c}') {
                None => ours(text),
                Some(_) => ours(&text.replace('\u{1c}', "_")).replace('_', "\u{1c}"),
            };
            content.push('\n');
        }
        let folder = folder_with(&content);
        assert_expected(&open(folder.path()).unwrap(), &case["expect"]);
    }
}

#[test]
fn rs_dup() {
    let Some(case) = case("rs-dup") else { return };
    let file = case["given"]["file"].as_str().unwrap();
    let folder = folder_with(&file.lines().map(|text| ours(text) + "\n").collect::<String>());
    let error = open(folder.path()).err().unwrap();
    let text = error.to_string();
    assert!(text.contains(r#"\"v\":1"#) && text.contains(r#"\"v\":2"#), "both are shown: {text}");
    let Error::DuplicateResult { coord, .. } = error else { panic!("{text}") };
    assert_eq!(coord.stage, case["expect"]["error"]["ids"][0].as_str().unwrap());
}

/// Every byte of the middle record, one bit each: found, named, and the other two survive.
#[test]
fn rs_bitflip() {
    if case("rs-bitflip").is_none() {
        return;
    }
    let [a, b, c] = ["a", "b", "c"].map(|id| ours(&json!({"id": id}).to_string()));
    for at in 0..b.len() {
        let mut flipped = b.clone().into_bytes();
        flipped[at] ^= 1 << (at % 7);
        if flipped[at] == b'\n' {
            continue;
        }
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        drop(open(folder.path()).unwrap());
        let content = [a.as_bytes(), b"\n", &flipped, b"\n", c.as_bytes(), b"\n"].concat();
        fs::write(folder.path().join(ATTEMPTS_FILE), content).unwrap();
        let store = open(folder.path()).unwrap();
        assert_eq!(stages(&store), ["a", "c"], "byte {at}");
        assert_eq!(store.findings().damage[0].line, 2);
    }
}

/// What a response cache would put into its key is part of the run's identity.
#[test]
fn rs_cache_keys() {
    let base = || manifest(json!({"template": "chatml", "temperature": 0.0, "seed": 1, "max_tokens": 64}));
    let id = base().run_id;
    for field in ["template", "temperature", "seed", "max_tokens"] {
        let Some(case) = case(&format!("rs-cache-{field}")) else { return };
        let mut other = base().identity;
        other.config[field] = case["given"]["b"][field].clone();
        assert_eq!(json!(other.run_id() == id), case["expect"]["equal"], "{field}");
        assert_eq!(base().identity.differences(&other)[0].field, format!("config.{field}"));
    }
    let mut other = base().identity;
    other.models.insert("tiny".into(), "sha B".into());
    assert_ne!(other.run_id(), id, "rs-cache-model");
    let mut other = base().identity;
    other.code = "2".into();
    assert_ne!(other.run_id(), id, "rs-cache-engine_numeric_version");
}

/// No answer and the empty answer stay apart.
#[test]
fn rs_cache_null() {
    let Some(case) = case("rs-cache-null") else { return };
    let folder = tempfile::tempdir().unwrap();
    let answers: Vec<Option<String>> = serde_json::from_value(case["given"]["values"].clone()).unwrap();
    {
        let store = open(folder.path()).unwrap();
        for (index, answer) in answers.iter().enumerate() {
            let mut record = record(&index.to_string(), "");
            record.attempt.answer = answer.clone();
            store.append(record).unwrap();
        }
    }
    let stored: Vec<Option<String>> =
        open(folder.path()).unwrap().records().unwrap().into_iter().map(|record| record.attempt.answer).collect();
    assert_eq!(stored, answers);
}

/// A text can never become a file name that leaves the folder.
#[test]
fn rs_cache_name() {
    let Some(case) = case("rs-cache-name") else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    let name = case["given"]["key_text"].as_str().unwrap();
    assert!(matches!(store.put_once(name, b"x"), Err(Error::BadPlanName { .. })));
    assert!(store.dir().to_string_lossy().len() < 128);
}

#[test]
fn rs_all_cached() {
    let Some(case) = case("rs-all-cached") else { return };
    let items = case["given"]["items"].as_u64().unwrap();
    let records: Vec<AttemptRecord> = (0..items).map(|item| record(&format!("item {item:03}"), "")).collect();
    let folder = folder_with(&records.iter().map(|record| line(record) + "\n").collect::<String>());
    let store = open(folder.path()).unwrap();
    let left = records.iter().filter(|record| !store.has(&record.coord)).count() as u64;
    assert_eq!(json!(left), case["expect"]["model_calls"]);
    assert_eq!(store.records().unwrap(), records);
}

const CHILD_DIR: &str = "LIFELONG_TEST_RESUME_DIR";
const ITEMS: u32 = 60;

fn item(index: u32) -> AttemptRecord {
    record(&format!("item {index:02}"), &"a reply of some length ".repeat(20 + index as usize))
}

/// A 60-item run that does what is left and says so as it goes.
fn work(dir: &Path) {
    let store = open(dir).unwrap();
    for index in (0..ITEMS).filter(|index| !store.has(&item(*index).coord)) {
        match store.append(item(index)) {
            Ok(()) => println!("done {index}"),
            Err(error) => println!("failed {index}: {error}"),
        }
        std::io::stdout().flush().unwrap();
    }
}

fn child(test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(CHILD_DIR, dir);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// rs-kill-sweep and rs-kill-twice: 200 kills, each after a random number of finished items, most of them of a run
/// that was killed before. Every finished run holds what an uninterrupted one holds, and no acknowledged item is redone.
#[test]
fn rs_kill_sweep_and_rs_kill_twice() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        return work(Path::new(&dir));
    }
    let expected: Vec<AttemptRecord> = (0..ITEMS).map(item).collect();
    let mut draws = Seed(2026).derive("kill", &[]).stream();
    let mut folder = tempfile::tempdir().unwrap();
    let mut done = Vec::new();
    let mut kills = 0;
    while kills < 200 {
        let mut process = child("rs_kill_sweep_and_rs_kill_twice", folder.path()).spawn().unwrap();
        let finished = |line: &str| line.strip_prefix("done ").and_then(|index| index.parse::<u32>().ok());
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut until = draws.below(20);
        for line in lines.by_ref() {
            done.extend(finished(&line));
            if finished(&line).is_some() && until == 0 {
                break;
            }
            until = until.saturating_sub(u64::from(finished(&line).is_some()));
        }
        process.kill().unwrap();
        kills += 1;
        done.extend(lines.filter_map(|line| finished(&line)));
        process.wait().unwrap();
        let records = RunReader::open(folder.path()).unwrap().records().unwrap().0;
        assert!(done.iter().all(|index| records.contains(&item(*index))), "kill {kills}: an acknowledged item is lost");
        if records.len() == ITEMS as usize {
            assert_eq!(records, expected);
            let mut once = done.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), done.len(), "an acknowledged item was done again");
            folder = tempfile::tempdir().unwrap();
            done.clear();
        }
    }
}

#[test]
fn rs_disk_full() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        let limit: u64 = (0..17).map(|index| line(&item(index)).len() as u64 + 1).sum::<u64>() - 100;
        // SAFETY: both calls only change limits of this process, with valid arguments.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        }
        return work(Path::new(&dir));
    }
    let Some(case) = case("rs-disk-full") else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = child("rs_disk_full", folder.path()).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let failed: Vec<&str> = output.lines().filter(|line| line.starts_with("failed")).collect();
    assert!(!failed.is_empty() && failed.iter().all(|line| line.contains("attempts.jsonl")), "{output}");
    let store = open(folder.path()).unwrap();
    assert_eq!(json!(store.len()), case["expect"]["records"]);
    drop(store);
    work(folder.path());
    assert_eq!(open(folder.path()).unwrap().records().unwrap(), (0..ITEMS).map(item).collect::<Vec<_>>());
}

#[test]
fn rs_two_writers() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path()).unwrap();
    let refused = open(folder.path()).err().unwrap().to_string();
    assert!(refused.contains(&format!("locked by process {}", std::process::id())), "{refused}");
    first.append(record("a", "")).unwrap();
    drop(first);
    assert_eq!(stages(&open(folder.path()).unwrap()), ["a"]);
}

#[test]
fn rs_config_change() {
    let Some(case) = case("rs-config-change") else { return };
    let folder = tempfile::tempdir().unwrap();
    let start = |temperature: Value| {
        let manifest = manifest(json!({"temperature": temperature}));
        RunStore::create_or_open(folder.path(), &manifest, Machine::default())
    };
    drop(start(json!(0)).unwrap());
    let error = start(json!(0.7)).err().unwrap();
    assert!(matches!(error, Error::ManifestDiffers { .. }));
    assert!(error.to_string().contains(case["expect"]["error"]["diff"].as_str().unwrap()), "{error}");
}

/// A step's result and the digest of the memory after it are one line: there is no state with one and not the other.
#[test]
fn rs_lifelong_memory() {
    let with_memory = AttemptRecord { memory: Some("digest".into()), ..record("step", "reply") };
    let whole = line(&with_memory) + "\n";
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    drop(open(folder.path()).unwrap());
    for length in 0..=whole.len() {
        fs::write(folder.path().join(ATTEMPTS_FILE), &whole[..length]).unwrap();
        match open(folder.path()).unwrap().records().unwrap().as_slice() {
            [] => assert!(length + 1 < whole.len()),
            records => assert_eq!(records, std::slice::from_ref(&with_memory)),
        }
    }
}

#[test]
fn rs_totals() {
    let Some(case) = case("rs-totals") else { return };
    let mut log = Vec::new();
    for part in ["first", "second"] {
        let part = &case["given"][part];
        let started = format!("2026-01-01T{}:00Z", part["started"].as_str().unwrap()).parse().unwrap();
        log.push(TimingRecord::Segment { started, machine: Machine::default() });
        let coord = Coord { stage: "s".into(), sequence: 0, step: 0, attempt: 0 };
        let timing = UnitTiming { seconds: 9.0, reused_tokens: part["tokens"].as_u64().unwrap() };
        log.push(TimingRecord::Unit { coord, timing, at_s: 10.0 });
    }
    let totals = totals(&log);
    assert_eq!(json!(totals.reused_tokens), case["expect"]["tokens"]);
    assert!(totals.started.unwrap().to_string().contains(case["expect"]["started"].as_str().unwrap()));
    assert_eq!(totals.active_seconds, 20.0);
    assert_eq!(totals.wall_seconds, 2.0 * 3600.0 + 10.0);
}
