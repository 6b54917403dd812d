//! A seeded run folder as a run leaves it, without a model: scores are drawn so that families help themselves and pairs
//! of families mislead each other, and agents with a memory follow their history.

use std::path::Path;

use lifelong::metric::{mean_gain, vote};
use lifelong::record::plan::{
    HistoryPlan, POOL_FILE, PlannedStep, PoolPlan, PoolTask, Relations, SEQUENCES_FILE, SequencePlan, SequencesPlan,
    StepKind, VOTE_FILE, VotePlan,
};
use lifelong::record::{Attempt, AttemptRecord, Coord, Ending, Message, Role, Score, TaskId, Usage};
use lifelong::seed::Seed;
use lifelong::store::{FORMAT, Identity, Machine, Manifest, RunStore, UnitTiming};
use serde_json::json;

const FAMILIES: [&str; 12] = [
    "reverse-word",
    "rotate-word",
    "count-vowels",
    "count-letters",
    "sort-up",
    "sort-down",
    "add-small",
    "add-shifted",
    "next-letter",
    "previous-letter",
    "upper-case",
    "lower-case",
];

/// How large the run is.
#[derive(Clone, Copy)]
pub struct Size {
    pub tasks_per_family: u32,
    pub seeds: u32,
    pub models: usize,
    pub sequences: u32,
    pub runs: u32,
    pub intervening: u32,
}

pub const SMALL: Size = Size { tasks_per_family: 2, seeds: 3, models: 1, sequences: 4, runs: 2, intervening: 12 };

#[allow(dead_code)]
pub const LARGE: Size = Size { tasks_per_family: 4, seeds: 5, models: 3, sequences: 10, runs: 3, intervening: 40 };

/// One unit of the run and its record.
pub type Units = Vec<AttemptRecord>;

/// A folder in memory where there is one: hundreds of flushes need no real disk.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub fn manifest(size: Size) -> Manifest {
    let identity = Identity {
        format: FORMAT,
        code: "0.1.0".into(),
        config: json!({
            "name": "synthetic", "about": "A run without a model: <b>made</b> to test reports & pages", "seed": 11,
            "models": {"backbones": models(size), "embedder": null},
            "sampling": {"temperature": 0.7, "max_tokens": 12, "stop": ["\n"]},
            "benchmark": {"name": "kata", "options": {}},
            "matrix": {"seeds": size.seeds}, "vote": {"seed_groups": 1},
            "sequence": {"sequences": size.sequences, "runs": size.runs, "intervening": size.intervening},
            "agents": AGENTS.iter().map(|agent| json!({"name": agent})).collect::<Vec<_>>(),
        }),
        data: [("kata".to_string(), "5f1d".repeat(16))].into(),
        models: models(size).into_iter().map(|model| (model, "a0c3".repeat(16))).collect(),
        device: "cpu".into(),
    };
    Manifest::new(identity, "avx2")
}

const AGENTS: [&str; 4] = ["memory-free", "rag", "replay", "group-self-consistency"];

fn models(size: Size) -> Vec<String> {
    (0..size.models).map(|index| format!("model-{}", (b'a' + index as u8) as char)).collect()
}

/// The plans and every unit's record, in coordinate order of each stage.
pub struct Run {
    pub size: Size,
    pub pool: PoolPlan,
    pub matrix: Units,
    pub vote: VotePlan,
    pub sequences: SequencesPlan,
    pub lives: Units,
}

impl Run {
    pub fn new(size: Size) -> Run {
        let tasks: Vec<PoolTask> = FAMILIES
            .iter()
            .flat_map(|family| {
                (0..size.tasks_per_family).map(move |index| PoolTask {
                    id: TaskId(format!("kata/{family}/{index}")),
                    family: Some(family.to_string()),
                })
            })
            .collect();
        // The last task of the pool has no headroom.
        let kept = (0..tasks.len() as u32 - 1).collect();
        let pool = PoolPlan { tasks, kept, models: models(size), seeds: size.seeds };
        let matrix = matrix(&pool);
        let vote = voted(&pool, &matrix);
        let sequences = plan(size, &pool, &vote.relations);
        let lives = lives(&pool, &sequences);
        Run { size, pool, matrix, vote, sequences, lives }
    }

    pub fn open(&self, dir: &Path) -> RunStore {
        let machine = Machine { device: "cpu".into(), instruction_set: "avx2".into(), threads: 2 };
        RunStore::create_or_open(dir, &manifest(self.size), machine).unwrap()
    }

    /// Does what a run does from where the store is, until `stop_after` more records are stored. True when it is done.
    pub fn execute(&self, dir: &Path, stop_after: usize) -> bool {
        let store = self.open(dir);
        let mut left = stop_after;
        let mut stage = |units: &Units| {
            for record in units.iter().filter(|record| !store.has(&record.coord)) {
                if left == 0 {
                    return false;
                }
                left -= 1;
                store.append(record.clone()).unwrap();
                store.note(&record.coord, UnitTiming { seconds: 0.25, reused_tokens: 31 });
            }
            true
        };
        let put = |name: &str, plan: &dyn erased::Json| store.put_once(name, plan.text().as_bytes()).unwrap();
        let (zero_shot, one_shot): (Units, Units) =
            self.matrix.iter().cloned().partition(|record| record.coord.sequence == 0);
        if !stage(&zero_shot) {
            return false;
        }
        put(POOL_FILE, &self.pool);
        if !stage(&one_shot) {
            return false;
        }
        put(VOTE_FILE, &self.vote);
        put(SEQUENCES_FILE, &self.sequences);
        stage(&self.lives)
    }
}

mod erased {
    pub trait Json {
        fn text(&self) -> String;
    }

    impl<T: serde::Serialize> Json for T {
        fn text(&self) -> String {
            serde_json::to_string(self).unwrap()
        }
    }
}

fn family(task: u32, size_per_family: u32) -> u32 {
    task / size_per_family
}

/// Chance to be right at `target` after `source`.
fn chance(source: Option<u32>, target: u32, per_family: u32, model: usize) -> f64 {
    let base = 0.25 + 0.05 * f64::from(target % 7) + 0.03 * model as f64;
    let Some(source) = source else { return base };
    let (source, target) = (family(source, per_family), family(target, per_family));
    let effect = if source == target {
        0.45
    } else if source / 2 == target / 2 {
        -0.35
    } else {
        f64::from((source * 5 + target * 3) % 7) * 0.05 - 0.12
    };
    (base + effect).clamp(0.02, 0.98)
}

fn record(coord: Coord, task: &PoolTask, chance: f64, seed: Seed) -> AttemptRecord {
    let draw = seed.uniform_at(0);
    let is_right = draw < chance;
    let score = match seed.uniform_at(1) {
        odd if odd < 0.004 => Score::Ungraded { why: "the scorer could not run".into() },
        _ => Score::from_correct(is_right),
    };
    let reply = if is_right { "right" } else { "wrong, \"quoted\"\nand on two lines" };
    AttemptRecord {
        task: task.id.clone(),
        attempt: Attempt {
            turns: vec![Message::new(Role::User, "question"), Message::new(Role::Assistant, reply)],
            answer: Some(reply.into()),
            ending: if seed.uniform_at(2) < 0.1 { Ending::TokenLimit } else { Ending::Finished },
            usage: Usage { prompt_tokens: 80 + u64::from(coord.step), generated_tokens: 4 },
            recalled: vec![],
            dropped_memories: 0,
            votes: vec![],
        },
        score,
        detail: format!("drew {draw:.3}"),
        memory: coord.stage.ends_with("rag").then(|| "00ff".into()),
        memory_work: Default::default(),
        coord,
    }
}

fn matrix(pool: &PoolPlan) -> Units {
    let per_family = pool.tasks.len() as u32 / FAMILIES.len() as u32;
    let mut records = Vec::new();
    for (model, name) in pool.models.iter().enumerate() {
        for sequence in 0..=pool.tasks.len() as u32 {
            let source = sequence.checked_sub(1);
            for target in 0..pool.tasks.len() as u32 {
                let is_asked = match source {
                    None => true,
                    Some(source) => source != target && pool.kept.contains(&source) && pool.kept.contains(&target),
                };
                for attempt in (0..pool.seeds).filter(|_| is_asked) {
                    let coord = Coord { stage: format!("matrix/{name}"), sequence, step: target, attempt };
                    // The target's coordinates alone: common random numbers.
                    let seed = Seed(11).derive("matrix", &[model as u32, target, attempt]);
                    let chance = chance(source, target, per_family, model);
                    records.push(record(coord, &pool.tasks[target as usize], chance, seed));
                }
            }
        }
    }
    records
}

fn voted(pool: &PoolPlan, records: &Units) -> VotePlan {
    let score = |model: &str, sequence: u32, step: u32, attempt: u32| {
        let coord = Coord { stage: format!("matrix/{model}"), sequence, step, attempt };
        let at = records.binary_search_by(|record| record.coord.cmp(&coord)).ok()?;
        records[at].score.graded()
    };
    let mut relations = Relations::undecided(pool.tasks.len());
    for source in &pool.kept {
        for target in pool.kept.iter().filter(|target| *target != source) {
            let gains: Vec<Option<f64>> = pool
                .models
                .iter()
                .map(|model| {
                    let side = |sequence| -> Vec<Option<f64>> {
                        (0..pool.seeds).map(|seed| score(model, sequence, *target, seed)).collect()
                    };
                    mean_gain(&side(source + 1), &side(0))
                })
                .collect();
            relations.set(*source as usize, *target as usize, vote(&gains));
        }
    }
    VotePlan { voters: pool.models.clone(), by: Default::default(), relations }
}

fn plan(size: Size, pool: &PoolPlan, relations: &Relations) -> SequencesPlan {
    use lifelong::record::plan::Relation::{Negative, Neutral, Positive};
    let histories = [("positive", Positive), ("negative", Negative)].map(|(name, dominant)| {
        let sequences = (0..size.sequences)
            .map(|index| {
                let mut draws = Seed(11).derive(name, &[index]).stream();
                let probe = pool.kept[(index as usize * 5) % pool.kept.len()];
                let mut source = |wanted: &[lifelong::record::plan::Relation]| {
                    let found: Vec<u32> = pool
                        .kept
                        .iter()
                        .copied()
                        .filter(|task| *task != probe)
                        .filter(|task| {
                            wanted
                                .iter()
                                .any(|relation| relations.get(*task as usize, probe as usize) == Some(*relation))
                        })
                        .collect();
                    *draws.choose(&found).unwrap_or(&pool.kept[0])
                };
                let mut steps = vec![PlannedStep { task: probe, kind: StepKind::ColdProbe }];
                steps.extend((0..5).map(|_| PlannedStep { task: source(&[Positive]), kind: StepKind::WarmUp }));
                steps.push(PlannedStep { task: probe, kind: StepKind::WarmProbe });
                for place in 0..size.intervening {
                    let wanted: &[_] = if place % 10 < 7 { &[dominant] } else { &[Neutral, Positive, Negative] };
                    steps.push(PlannedStep { task: source(wanted), kind: StepKind::Intervening });
                    // Sequence 0 has one occurrence more than the others.
                    if place % 4 == 3 || (index == 0 && place == 1) {
                        steps.push(PlannedStep { task: probe, kind: StepKind::Probe });
                    }
                }
                SequencePlan { probe, steps }
            })
            .collect();
        HistoryPlan { name: name.into(), sequences }
    });
    SequencesPlan {
        model: pool.models[0].clone(),
        agents: AGENTS.map(String::from).to_vec(),
        baseline: Some("memory-free".into()),
        runs: size.runs,
        histories: histories.to_vec(),
        paired: vec![],
    }
}

fn lives(pool: &PoolPlan, plan: &SequencesPlan) -> Units {
    let mut records = Vec::new();
    for history in &plan.histories {
        let direction = if history.name == "positive" { 1.0 } else { -0.7 };
        for (strength, agent) in plan.agents.iter().enumerate() {
            for (sequence, planned) in history.sequences.iter().enumerate() {
                for run in 0..plan.runs {
                    for (step, place) in planned.steps.iter().enumerate() {
                        let stage = format!("sequence/{}/{agent}", history.name);
                        let (sequence, step) = (sequence as u32, step as u32);
                        let seed = Seed(11).derive("sequence", &[sequence, step, run]);
                        let learnt = f64::from(step) / planned.steps.len() as f64 * direction;
                        let warm = if step > 0 && strength > 0 { 0.15 } else { 0.0 };
                        let chance = 0.4 + warm + 0.14 * strength as f64 * learnt;
                        let coord = Coord { stage, sequence, step, attempt: run };
                        records.push(record(coord, &pool.tasks[place.task as usize], chance, seed));
                    }
                }
            }
        }
    }
    records
}
