//! The promise of the run folder: what was acknowledged is there, whole, once, whatever happened in between.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use lifelong::record::{Attempt, AttemptRecord, Coord, Ending, Message, Role, Score, TaskId, Usage};
use lifelong::store::{ATTEMPTS_FILE, Error, FORMAT, Identity, Machine, Manifest, RunReader, RunStore, UnitTiming};
use proptest::prelude::*;
use serde_json::json;

fn manifest() -> Manifest {
    let identity = Identity {
        format: FORMAT,
        code: "test".into(),
        config: json!({"name": "small", "seed": 7, "sampling": {"temperature": 0}}),
        data: [("kata".to_string(), "d".to_string())].into(),
        models: [("tiny".to_string(), "m".to_string())].into(),
        device: "cpu".into(),
    };
    Manifest::new(identity, "scalar")
}

fn open(dir: &Path) -> Result<RunStore, Error> {
    RunStore::create_or_open(dir, &manifest(), Machine::default())
}

/// A folder in memory where there is one: tests that open hundreds of stores need no real disk.
fn quick_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn coord(step: u32) -> Coord {
    Coord { stage: "sequence/positive/rag".into(), sequence: 1, step, attempt: 0 }
}

fn record(step: u32, reply: &str) -> AttemptRecord {
    AttemptRecord {
        coord: coord(step),
        task: TaskId(format!("kata/reverse/{step}")),
        attempt: Attempt {
            turns: vec![Message::new(Role::User, "q"), Message::new(Role::Assistant, reply)],
            answer: Some(reply.into()),
            ending: Ending::Finished,
            usage: Usage { prompt_tokens: 12, generated_tokens: 3 },
            recalled: vec![],
            dropped_memories: 0,
            votes: vec![],
        },
        score: Score::Graded(0.5),
        detail: String::new(),
        memory: None,
        memory_work: Default::default(),
    }
}

fn steps(dir: &Path) -> Vec<u32> {
    RunReader::open(dir).unwrap().records().unwrap().0.iter().map(|record| record.coord.step).collect()
}

#[test]
fn records_come_back_sorted_and_equal() {
    let folder = tempfile::tempdir().unwrap();
    let written: Vec<AttemptRecord> =
        [2, 0, 1].iter().map(|step| record(*step, "a\u{85}b\u{2028}\n\"{\"record\":")).collect();
    {
        let store = open(folder.path()).unwrap();
        assert!(!store.is_continued());
        for record in &written {
            store.append(record.clone()).unwrap();
            assert_eq!(store.get(&record.coord).unwrap().as_ref(), Some(record));
        }
    }
    let store = open(folder.path()).unwrap();
    assert!(store.is_continued() && store.findings().is_clean());
    assert!(store.has(&coord(1)) && !store.has(&coord(3)));
    let mut sorted = written;
    sorted.sort_by(|left, right| left.coord.cmp(&right.coord));
    assert_eq!(store.records().unwrap(), sorted);
}

#[test]
fn many_producers_wait_at_once_and_all_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for step in 0..25 {
                    store.append(record(worker * 25 + step, "x")).unwrap();
                    store.note(&coord(worker * 25 + step), UnitTiming { seconds: 0.5, reused_tokens: 1 });
                }
            });
        }
    });
    drop(store);
    assert_eq!(steps(folder.path()), (0..200).collect::<Vec<u32>>());
    let totals = lifelong::store::totals(&RunReader::open(folder.path()).unwrap().timing().unwrap());
    assert_eq!((totals.segments, totals.units, totals.reused_tokens), (1, 200, 200));
}

#[test]
fn the_file_cut_at_any_byte_keeps_every_whole_record_and_goes_on() {
    let folder = quick_folder();
    {
        let store = open(folder.path()).unwrap();
        (0..3).for_each(|step| store.append(record(step, "some reply")).unwrap());
    }
    let path = folder.path().join(ATTEMPTS_FILE);
    let bytes = fs::read(&path).unwrap();
    let ends: Vec<usize> = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
    for length in 0..=bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let _ = fs::remove_file(folder.path().join("attempts.jsonl.damaged"));
        // A record is whole when its closing brace is there, even if only the newline is missing.
        let whole = ends.iter().filter(|end| **end <= length).count() as u32;
        {
            let store = open(folder.path()).unwrap();
            assert_eq!(store.len() as u32, whole, "cut at {length}");
            let torn = length - ends[..whole as usize].last().map_or(0, |end| (*end + 1).min(length));
            let found: usize = store.findings().damage.iter().map(|damage| damage.bytes.len()).sum();
            assert_eq!(found, torn, "cut at {length}");
            (0..3).for_each(|step| store.append(record(step, "some reply")).unwrap());
            if torn > 0 {
                let aside = fs::read(folder.path().join("attempts.jsonl.damaged")).unwrap();
                assert_eq!(aside[..torn], bytes[length - torn..length]);
            }
        }
        assert_eq!(fs::read(&path).unwrap(), bytes, "cut at {length}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever bytes are overwritten, every record outside the damage survives and nothing false appears.
    #[test]
    fn overwritten_bytes_cost_at_most_the_records_they_touch(
        start in 0usize..2000, noise in prop::collection::vec(any::<u8>(), 1..60)
    ) {
        let folder = quick_folder();
        {
            let store = open(folder.path()).unwrap();
            (0..5).for_each(|step| store.append(record(step, "some reply")).unwrap());
        }
        let path = folder.path().join(ATTEMPTS_FILE);
        let mut bytes = fs::read(&path).unwrap();
        let start = start % bytes.len();
        let end = (start + noise.len()).min(bytes.len());
        let mut touched = BTreeSet::new();
        let mut step = 0;
        for (at, byte) in bytes.iter_mut().enumerate() {
            let is_newline = *byte == b'\n';
            if (start..end).contains(&at) && *byte != noise[at - start] {
                *byte = noise[at - start];
                touched.insert(step);
            }
            step += u32::from(is_newline);
        }
        fs::write(&path, &bytes).unwrap();
        let store = open(folder.path()).unwrap();
        for step in 0..5 {
            match store.get(&coord(step)).unwrap() {
                Some(stored) => prop_assert_eq!(stored, record(step, "some reply")),
                None => prop_assert!(touched.contains(&step), "record {} lost, damage in {:?}", step, touched),
            }
        }
        drop(store);
        prop_assert!(open(folder.path()).unwrap().findings().is_clean());
    }
}

#[test]
fn the_same_result_twice_is_fine_and_another_is_refused_showing_both() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    store.append(record(0, "yes")).unwrap();
    store.append(record(0, "yes")).unwrap();
    let error = store.append(record(0, "no")).unwrap_err();
    assert!(matches!(error, Error::DuplicateResult { .. }));
    let text = error.to_string();
    assert!(text.contains("\"yes\"") && text.contains("\"no\"") && text.contains("step 0"), "{text}");
    assert_eq!(store.records().unwrap(), [record(0, "yes")]);
}

#[test]
fn a_score_outside_its_range_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    for grade in [f64::NAN, -0.1, 1.5] {
        let bad = AttemptRecord { score: Score::Graded(grade), ..record(0, "x") };
        assert!(store.append(bad).unwrap_err().to_string().contains("0..=1"));
    }
    assert!(store.is_empty());
}

#[test]
fn a_plan_file_never_changes() {
    let folder = tempfile::tempdir().unwrap();
    {
        let store = open(folder.path()).unwrap();
        store.put_once("pool.json", b"{\"tasks\":[1,2]}").unwrap();
        store.put_once("pool.json", b"{\"tasks\":[1,2]}").unwrap();
    }
    let store = open(folder.path()).unwrap();
    let error = store.put_once("pool.json", b"{\"tasks\":[1,3]}").unwrap_err().to_string();
    assert!(error.contains("pool.json") && error.contains("byte 12"), "{error}");
    assert_eq!(store.get_once("pool.json").unwrap().unwrap(), b"{\"tasks\":[1,2]}");
    assert_eq!(store.get_once("vote.json").unwrap(), None);
    for name in ["", "../x", "a/b", ".hidden", "attempts.jsonl", "manifest.json"] {
        assert!(matches!(store.put_once(name, b""), Err(Error::BadPlanName { .. })), "{name}");
    }
}

#[test]
fn another_config_cannot_continue_a_run() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).unwrap());
    let mut other = manifest();
    other.identity.config["sampling"]["temperature"] = json!(0.7);
    let other = Manifest::new(other.identity, "scalar");
    let error = RunStore::create_or_open(folder.path(), &other, Machine::default()).err().unwrap();
    assert!(error.to_string().contains("config.sampling.temperature: 0 -> 0.7"), "{error}");
    let elsewhere = Manifest::new(manifest().identity, "avx2");
    assert!(RunStore::create_or_open(folder.path(), &elsewhere, Machine::default()).unwrap().is_continued());
}

#[test]
fn a_folder_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("thesis.tex"), "x").unwrap();
    let error = open(folder.path()).err().unwrap().to_string();
    assert!(error.contains("thesis.tex"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

const CHILD_DIR: &str = "LIFELONG_TEST_STORE_DIR";

/// Runs the named test of this file as another process, in which [`CHILD_DIR`] is set.
fn child(test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(CHILD_DIR, dir);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

#[test]
fn killed_at_any_moment_every_acknowledged_record_is_there() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        let store = open(Path::new(&dir)).unwrap();
        let from = store.len() as u32;
        for step in from..from + 100_000 {
            store.append(record(step, &"long reply ".repeat(50))).unwrap();
            println!("acknowledged {step}");
            std::io::stdout().flush().unwrap();
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for round in 0..20u32 {
        let mut process =
            child("killed_at_any_moment_every_acknowledged_record_is_there", folder.path()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut acknowledged = Vec::new();
        let wanted = 1 + (round * 7) % 13;
        while (acknowledged.len() as u32) < wanted {
            let line = lines.next().unwrap().unwrap();
            acknowledged.extend(line.strip_prefix("acknowledged ").map(|step| step.parse::<u32>().unwrap()));
        }
        let refused = open(folder.path()).err().unwrap();
        assert!(matches!(&refused, Error::Locked { holder, .. } if *holder == process.id().to_string()), "{refused}");
        process.kill().unwrap();
        process.wait().unwrap();
        acknowledged.extend(
            lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("acknowledged ")?.parse::<u32>().ok()),
        );
        let stored = steps(folder.path());
        assert!(acknowledged.iter().all(|step| stored.contains(step)), "round {round}: {acknowledged:?} {stored:?}");
        assert_eq!(stored, (0..stored.len() as u32).collect::<Vec<u32>>());
    }
}

/// The disk is made full by a limit on the size of files, which the kernel enforces in the middle of a write.
#[test]
fn a_full_disk_is_an_error_that_names_the_file_and_loses_nothing() {
    const LIMIT: u64 = 8_000;
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        // SAFETY: both calls only change limits of this process, with valid arguments.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: LIMIT };
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        }
        let store = open(Path::new(&dir)).unwrap();
        for step in 0..60 {
            match store.append(record(step, "reply")) {
                Ok(()) => println!("acknowledged {step}"),
                Err(error) => println!("failed {step}: {error}"),
            }
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output =
        child("a_full_disk_is_an_error_that_names_the_file_and_loses_nothing", folder.path()).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let acknowledged = output.lines().filter(|line| line.starts_with("acknowledged")).count() as u32;
    let failed: Vec<&str> = output.lines().filter(|line| line.starts_with("failed")).collect();
    assert!(acknowledged > 3 && failed.len() as u32 == 60 - acknowledged, "{output}");
    assert!(failed.iter().all(|line| line.contains("attempts.jsonl")), "{output}");
    let store = open(folder.path()).unwrap();
    assert!(store.findings().is_clean());
    assert_eq!(store.len() as u32, acknowledged);
    store.append(record(acknowledged, "reply")).unwrap();
}
