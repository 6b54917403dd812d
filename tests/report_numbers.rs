//! The numbers of the report against a run that is small enough to compute by hand.

#[path = "support/by_hand.rs"]
mod by_hand;

use std::fs;
use std::path::Path;

use by_hand::{UNGRADED, put, record};
use lifelong::record::plan::{
    HistoryPlan, POOL_FILE, PlannedStep, PoolPlan, PoolTask, Relation, Relations, SEQUENCES_FILE, SequencePlan,
    SequencesPlan, StepKind, VOTE_FILE, VotePlan,
};
use lifelong::record::{AttemptRecord, MemoryCall, MemoryWork, TaskId, Usage};
use lifelong::report::{self, ReportData};
use lifelong::store::{FORMAT, Identity, Machine, Manifest, RunReader, RunStore};
use serde_json::json;

/// One call while recalling, and at step 3 two while learning: one that could not be read, and one that was too long to ask.
fn memory_work(step: u32) -> MemoryWork {
    let call = |purpose: &str, is_read| MemoryCall {
        purpose: purpose.into(),
        request: "00".into(),
        reply: "r".into(),
        is_read,
        usage: Usage { prompt_tokens: 7, generated_tokens: 3 },
    };
    let too_long = MemoryCall { usage: Usage::default(), reply: String::new(), ..call("m/learn", false) };
    let learned = if step == 3 { vec![call("m/learn", false), too_long] } else { Vec::new() };
    MemoryWork { learned, recalled: vec![call("m/recall", true)], ..MemoryWork::default() }
}

fn store_one(store: &RunStore, stage: &str, place: (u32, u32, u32), score: f64) {
    let memory_work = if stage.ends_with("rag") { memory_work(place.1) } else { MemoryWork::default() };
    store.append(AttemptRecord { memory_work, ..record(stage, place, score) }).unwrap();
}

/// Two tasks a and b, three seeds; three sequences of six steps for `none` and `rag`.
fn tiny_run(dir: &Path) {
    let identity = Identity {
        format: FORMAT,
        code: "1".into(),
        config: json!({"name": "tiny", "seed": 5, "matrix": {}, "vote": {}, "sequence": {}}),
        data: [].into(),
        models: [].into(),
        device: "cpu".into(),
    };
    let store = RunStore::create_or_open(dir, &Manifest::new(identity, "scalar"), Machine::default()).unwrap();
    let task = |id: &str| PoolTask { id: TaskId(format!("set/{id}")), family: Some("f".into()) };
    let pool = PoolPlan { tasks: vec![task("a"), task("b")], kept: vec![0, 1], models: vec!["m".into()], seeds: 3 };
    put(&store, POOL_FILE, &pool);
    for (sequence, step, scores) in
        [(0, 0, [0.0, 0.0, 1.0]), (0, 1, [1.0, 1.0, 1.0]), (1, 1, [0.0, 1.0, 1.0]), (2, 0, [1.0, 1.0, UNGRADED])]
    {
        for (attempt, score) in scores.into_iter().enumerate() {
            store_one(&store, "matrix/m", (sequence, step, attempt as u32), score);
        }
    }
    let mut relations = Relations::undecided(2);
    relations.set(0, 1, Some(Relation::Negative));
    relations.set(1, 0, Some(Relation::Positive));
    put(&store, VOTE_FILE, &VotePlan { voters: vec!["m".into()], by: Default::default(), relations });

    use StepKind::{ColdProbe, Intervening, Probe, WarmProbe, WarmUp};
    let steps = [ColdProbe, WarmUp, WarmProbe, Intervening, Probe, Probe];
    let steps = steps.map(|kind| PlannedStep { task: u32::from(!kind.is_probe()), kind }).to_vec();
    let plan = SequencesPlan {
        model: "m".into(),
        agents: vec!["none".into(), "rag".into()],
        baseline: Some("none".into()),
        runs: 1,
        histories: vec![HistoryPlan { name: "positive".into(), sequences: vec![SequencePlan { probe: 0, steps }; 3] }],
        paired: vec![],
    };
    put(&store, SEQUENCES_FILE, &plan);
    let lives = [
        ("none", [[0.0, 1.0, 1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]]),
        ("rag", [[0.0, 1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 1.0, 1.0, 1.0], [0.0, UNGRADED, 0.0, 1.0, 1.0, 1.0]]),
    ];
    for (agent, sequences) in lives {
        for (sequence, scores) in sequences.into_iter().enumerate() {
            for (step, score) in scores.into_iter().enumerate() {
                store_one(&store, &format!("sequence/positive/{agent}"), (sequence as u32, step as u32, 0), score);
            }
        }
    }
}

fn csv(dir: &Path, table: &str) -> String {
    fs::read_to_string(dir.join(format!("report/{table}.csv"))).unwrap()
}

fn reported() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    tiny_run(folder.path());
    let data = ReportData::build(&RunReader::open(folder.path()).unwrap()).unwrap();
    assert!(data.is_complete);
    report::write_files(&data, &folder.path().join("report")).unwrap();
    folder
}

/// a in front of b: differences -1, 0, 0, so the mean is -1/3; of the 27 draws one is all -1 (3.7 %, more than 2.5 %)
/// and eight are all 0. b in front of a: differences 1, 1 and an ungraded one: two units have no interval.
#[test]
fn gains_by_hand() {
    let expected = "\
model,source,source_family,target,target_family,gain,gain_low,gain_high,sign,excludes_zero,with_mean,graded,seeds,vote
m,set/a,f,set/b,f,-0.3333333333333333,-1,0,negative,false,0.6666666666666666,3,3,negative
m,set/b,f,set/a,f,1,,,positive,,1,2,3,positive
";
    assert_eq!(csv(reported().path(), "gains"), expected);
}

/// `none`: AP 3/6, 5/6, 1/6; FWT .5, 0, .5; BWT 0, 1, .5; FGT .5, 0, 0. `rag`: AP 5/6, 5/6, 3/5 (one ungraded); FWT 1, 0,
/// 1; BWT 0, 1, 1; FGT 0. With three sequences the interval runs from the smallest to the largest.
#[test]
fn metrics_by_hand() {
    let expected = "\
history,agent,ap,ap_low,ap_high,ap_sequences,fwt,fwt_low,fwt_high,fwt_sequences,bwt,bwt_low,bwt_high,bwt_sequences,\
fgt,fgt_low,fgt_high,fgt_sequences,probe_change,probe_change_low,probe_change_high,probe_change_sequences,\
sequences,complete_runs,runs,graded,executions
positive,none,50,16.666666667,83.333333333,3,33.333333333,0,50,3,50,0,100,3,16.666666667,0,50,3,\
33.333333333,-50,100,3,3,3,3,18,18
positive,rag,75.555555556,60,83.333333333,3,66.666666667,0,100,3,66.666666667,0,100,3,0,0,0,3,\
66.666666667,0,100,3,3,3,3,17,18
";
    assert_eq!(csv(reported().path(), "metrics"), expected);
}

/// AP of rag minus none: 2/6, 0, 3/5 - 1/6.
#[test]
fn contrasts_by_hand() {
    let text = csv(reported().path(), "contrasts");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "left,right,agent,history,metric,difference,difference_low,difference_high,excludes_zero,sequences,paired"
    );
    assert_eq!(lines[1], "rag,none,rag,positive,ap,25.555555556,0,43.333333333,false,3,true");
    assert_eq!(lines.len(), 6, "one history: nothing to compare between histories");
}

#[test]
fn the_other_tables_by_hand() {
    let folder = reported();
    let zero_shot = csv(folder.path(), "zero_shot");
    assert_eq!(zero_shot.lines().nth(1), Some("m,set/a,f,true,0.3333333333333333,0,1,0.33333333333333337,3,3"));
    let probes = csv(folder.path(), "probes");
    assert_eq!(probes.lines().nth(3), Some("positive,none,4,33.333333333,-100,100,3,3,true"));
    let usage = csv(folder.path(), "usage");
    assert_eq!(usage.lines().nth(1), Some("matrix/m,12,1,120,24,12,0,0,0,0,0"));
    let calls = csv(folder.path(), "memory_calls");
    let rows: Vec<&str> = calls.lines().collect();
    assert_eq!(
        rows,
        [
            "stage,purpose,calls,unasked,unread,prompt_tokens,generated_tokens",
            "sequence/positive/rag,m/learn,6,3,3,21,9",
            "sequence/positive/rag,m/recall,18,0,0,126,54",
        ]
    );
    let used = csv(folder.path(), "memory_use");
    assert_eq!(used.lines().last(), Some("sequence,rag,18,0,0,0,0,21,3,3,0,0,0,0"));
    let page = fs::read_to_string(folder.path().join("report/index.html")).unwrap();
    assert!(page.contains("Calls of the memories") && page.contains("100.0"));
    let sequences = csv(folder.path(), "sequences");
    assert_eq!(sequences.lines().nth(4), Some("positive,rag,0,0,set/a,6,6,83.333333333,100,0,0,0,0,1,6,60,12"));
}
