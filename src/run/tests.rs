//! Lives with a scripted backbone whose answers depend on what came before in a known way: the metrics must be those that
//! follow from the rule, exactly.

use std::path::Path;
use std::sync::Mutex;

use super::order;
use super::orders;
use super::progress::Progress;
use super::resolve::{Resolved, ResolvedAgent};
use super::sequence::{self, Family, World};
use super::transition;
use crate::config::{self, History, OrdersConfig, SequenceConfig, TransitionsConfig};
use crate::engine::generate::{Generate, Prompter};
use crate::engine::request::{Completion, Finish, Request, Usage};
use crate::engine::template::ChatMessage;
use crate::memory::{self, Handles, Memory, MemoryMethod, Recall};
use crate::metric::{path_metrics, task_matrix};
use crate::policy;
use crate::record::experiment::{OrdersPlan, PathPlan};
use crate::record::plan::{HistoryPlan, Relation, Relations, SequencePlan, SequencesPlan, StepKind};
use crate::record::{Coord, Experience, Reference, ReplyFormat, Task, TaskId, TaskView};
use crate::registry::Registered;
use crate::scorer::Grading;
use crate::seed::Seed;
use crate::store::{FORMAT, Identity, Machine, Manifest, RunStore};

const TASKS: u32 = 30;

/// Right or wrong at a task, given how many successes stand in front of it. Any rule will do that is not monotone.
fn is_right(task: u32, remembered: usize) -> bool {
    // Tasks of one kind differ, or a history of one kind would stay where all of it fails.
    let moved = remembered + task as usize / 3;
    match task % 3 {
        0 => moved % 4 != 1,
        1 => moved.is_multiple_of(2),
        _ => remembered > 3 && remembered < 11,
    }
}

/// Answers by [`is_right`]: one token a byte, a chat as `role|content` lines.
struct Scripted;

impl Prompter for Scripted {
    fn render(&self, messages: &[ChatMessage]) -> anyhow::Result<Vec<u32>> {
        let line = |message: &ChatMessage| format!("{}|{}", message.role, message.content.as_str().unwrap_or_default());
        Ok(self.encode(&messages.iter().map(line).collect::<Vec<_>>().join("\n")))
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    fn has_template(&self) -> bool {
        true
    }
}

impl Generate for Scripted {
    fn complete_all(&self, requests: Vec<Request>) -> anyhow::Result<Vec<Completion>> {
        let answer = |request: Request| {
            let text = String::from_utf8(request.tokens.iter().map(|token| *token as u8).collect()).unwrap();
            let question = text.lines().rfind(|line| line.starts_with("user|task ")).unwrap();
            let task: u32 = question.trim_start_matches("user|task ").parse().unwrap();
            let remembered = text.lines().filter(|line| line.starts_with("assistant|")).count();
            Completion {
                text: if is_right(task, remembered) { "right" } else { "wrong" }.into(),
                tokens: vec![1],
                finish: Finish::Eos(0),
                usage: Usage { prompt: request.tokens.len(), reused: 0, generated: 1 },
                logprobs: Vec::new(),
                seed: request.seed,
            }
        };
        Ok(requests.into_iter().map(answer).collect())
    }

    fn context(&self) -> usize {
        1_000_000
    }
}

fn resolved(method: &'static dyn MemoryMethod) -> Resolved {
    let task = |index: u32| Task {
        view: TaskView {
            id: TaskId(format!("set/{index}")),
            family: None,
            system: None,
            question: format!("task {index}"),
            reply_format: ReplyFormat::Line,
        },
        reference: Reference {
            solution: "right".into(),
            scorer: "exact".into(),
            options: serde_json::json!({ "answers": ["right"] }),
        },
    };
    let text = "name = \"scripted\"\n[models]\nbackbones = [\"m\"]\n[benchmark]\nname = \"kata\"\n[[agents]]\nname = \"replay\"\n\
                memory = \"replay\"\nmax_memory_tokens = 0\noptions = { n = 1000, placement = \"earlier_turns\" }\n";
    let config = config::parse(text).unwrap();
    let agent = ResolvedAgent {
        config: config.agents[0].clone(),
        method,
        policy: policy::find("single").unwrap(),
        needs_embedder: false,
    };
    Resolved {
        config,
        tasks: (0..TASKS).map(task).collect(),
        data_digest: String::new(),
        ignored: Default::default(),
        strong: None,
        backbones: Vec::new(),
        embedder: None,
        agents: vec![agent],
        grading: Grading::default(),
    }
}

fn store(folder: &Path) -> RunStore {
    let identity = Identity {
        format: FORMAT,
        code: "1".into(),
        config: serde_json::json!({}),
        data: Default::default(),
        models: Default::default(),
        device: "cpu".into(),
    };
    RunStore::create_or_open(folder, &Manifest::new(identity, "scalar"), Machine::default()).unwrap()
}

fn in_world(
    resolved: &Resolved,
    store: &RunStore,
    stage: impl FnOnce(&World<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let progress = Progress::start("scripted", 1, 0);
    stage(&World { resolved, store, backbone: &Scripted, embedder: None, similarities: None, progress: &progress })
}

fn plan(histories: Vec<HistoryPlan>, runs: u32) -> SequencesPlan {
    SequencesPlan {
        model: "m".into(),
        agents: vec!["replay".into()],
        baseline: None,
        runs,
        histories,
        paired: Vec::new(),
    }
}

/// Every third source helps, every third misleads, whatever the target.
fn relations() -> Relations {
    let mut square = Relations::undecided(TASKS as usize);
    for source in 0..TASKS as usize {
        for target in (0..TASKS as usize).filter(|target| *target != source) {
            let relation = [Relation::Positive, Relation::Negative, Relation::Neutral][source % 3];
            square.set(source, target, Some(relation));
        }
    }
    square
}

/// The scores that the rule gives along a sequence: only successes between probes are remembered.
fn expected(sequence: &SequencePlan) -> Vec<f64> {
    let mut remembered = 0;
    let mut scores = Vec::new();
    for step in &sequence.steps {
        let is_right = is_right(step.task, remembered);
        scores.push(f64::from(u8::from(is_right)));
        remembered += usize::from(is_right && !step.kind.is_probe());
    }
    scores
}

/// The paper's formulas, written out anew.
fn by_hand(sequence: &SequencePlan, scores: &[f64]) -> [f64; 4] {
    let probes: Vec<f64> = scores
        .iter()
        .zip(&sequence.steps)
        .filter(|(_, step)| step.task == sequence.probe)
        .map(|(score, _)| *score)
        .collect();
    let (cold, warm, later) = (probes[0], probes[1], &probes[2..]);
    let over = |term: &dyn Fn(f64) -> f64| later.iter().map(|score| term(*score)).sum::<f64>() / later.len() as f64;
    [
        scores.iter().sum::<f64>() / scores.len() as f64,
        over(&|score| score - cold),
        over(&|score| if score > warm { score - warm } else { 0.0 }),
        over(&|score| if score < warm { warm - score } else { 0.0 }),
    ]
}

#[test]
fn a_solver_that_follows_its_history_gives_the_metrics_of_its_rule() {
    let resolved = resolved(memory::find("replay").unwrap());
    let config = SequenceConfig { sequences: 6, runs: 2, intervening: 30, ..SequenceConfig::default() };
    let kept: Vec<u32> = (0..TASKS).collect();
    let history = |history| order::history(history, &config, &relations(), &kept, Seed(3)).unwrap();
    let plan = plan(vec![history(History::Positive), history(History::Negative)], 2);
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    in_world(&resolved, &store, |world| sequence::run(world, Family::Sequence, &plan, 4)).unwrap();

    let mut seen = std::collections::BTreeSet::new();
    for history in &plan.histories {
        for (sequence, planned) in history.sequences.iter().enumerate() {
            for run in 0..2 {
                let record = |step: usize| {
                    let stage = Family::Sequence.stage(&history.name, "replay");
                    let coord = Coord { stage, sequence: sequence as u32, step: step as u32, attempt: run };
                    store.get(&coord).unwrap().unwrap()
                };
                let executions: Vec<(StepKind, Option<f64>)> = planned
                    .steps
                    .iter()
                    .enumerate()
                    .map(|(step, kind)| (kind.kind, record(step).score.graded()))
                    .collect();
                let scores = expected(planned);
                assert_eq!(executions.iter().map(|(_, score)| score.unwrap()).collect::<Vec<_>>(), scores);
                let metrics = path_metrics(&executions);
                let found = [metrics.ap, metrics.fwt, metrics.bwt, metrics.fgt].map(Option::unwrap);
                let exact = by_hand(planned, &scores);
                assert!(
                    found.iter().zip(&exact).all(|(found, exact)| (found - exact).abs() < 1e-12),
                    "{found:?} {exact:?}"
                );
                seen.insert(format!("{found:?}"));
                for (step, planned) in planned.steps.iter().enumerate().filter(|(_, planned)| planned.kind.is_probe()) {
                    let next = step + 1;
                    let has_next = next < history.sequences[sequence].steps.len();
                    assert!(!has_next || record(step).memory == record(next).memory, "{planned:?}");
                }
            }
        }
    }
    assert!(seen.len() > 4, "a rule that gives one number for all proves little: {seen:?}");
}

#[test]
fn transitions_are_lived_by_the_same_loop() {
    let resolved = resolved(memory::find("replay").unwrap());
    let kept: Vec<u32> = (0..TASKS).collect();
    let config = TransitionsConfig { sequences: 3, runs: 1, interval: 4, agents: None };
    let plan = plan(transition::conditions(&config, &relations(), &kept, Seed(5)).unwrap(), 1);
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    in_world(&resolved, &store, |world| sequence::run(world, Family::Transition, &plan, 2)).unwrap();
    assert_eq!(store.len(), 4 * 3 * 11);
    for history in &plan.histories {
        for (sequence, planned) in history.sequences.iter().enumerate() {
            for (step, score) in expected(planned).into_iter().enumerate() {
                let stage = Family::Transition.stage(&history.name, "replay");
                let coord = Coord { stage, sequence: sequence as u32, step: step as u32, attempt: 0 };
                assert_eq!(store.get(&coord).unwrap().unwrap().score.graded(), Some(score));
            }
        }
    }
}

/// Rows of a path by the rule: what is remembered when a row is attempted are the successes at the tasks learned before.
fn rows(path: &PathPlan) -> Vec<Vec<f64>> {
    let mut remembered = 0;
    let mut rows = Vec::new();
    for learned in 0..=path.tasks.len() {
        rows.push(path.tasks.iter().map(|task| f64::from(u8::from(is_right(*task, remembered)))).collect());
        if let Some(next) = path.tasks.get(learned) {
            remembered += usize::from(is_right(*next, remembered));
        }
    }
    rows
}

#[test]
fn a_task_matrix_is_that_of_the_rule_also_when_it_is_stopped_and_continued() {
    let resolved = resolved(memory::find("replay").unwrap());
    let config = OrdersConfig { tasks: 9, paths: 2, runs: 2, agents: None };
    let kept: Vec<u32> = (0..TASKS).collect();
    let plan: OrdersPlan = orders::plan(&config, &kept, "m", vec!["replay".into()], Seed(1));
    let folder = tempfile::tempdir().unwrap();
    let (whole, partial) = (folder.path().join("whole"), folder.path().join("partial"));
    let whole = store(&whole);
    in_world(&resolved, &whole, |world| orders::run(world, &plan, 8)).unwrap();
    for path in &plan.paths {
        let expected = rows(path);
        for run in 0..2 {
            let score = |row: usize, task: u32| {
                let stage = OrdersPlan::stage(&path.name, "replay");
                let coord = Coord { stage, sequence: row as u32, step: task, attempt: run };
                whole.get(&coord).unwrap().unwrap().score.graded().unwrap()
            };
            let found: Vec<Vec<f64>> =
                (0..=9).map(|row| path.tasks.iter().map(|task| score(row, *task)).collect()).collect();
            assert_eq!(found, expected);
            let metrics = task_matrix(&found[1..], Some(&found[0]));
            let forward: f64 = (1..9).map(|task| expected[task][task] - expected[0][task]).sum::<f64>() / 8.0;
            assert!((metrics.forward.unwrap() - forward).abs() < 1e-12);
        }
    }
    // A third of the attempts is there already, as after a crash: the others are made around them.
    let partial = store(&partial);
    for record in whole.records().unwrap().into_iter().step_by(3) {
        partial.append(record).unwrap();
    }
    in_world(&resolved, &partial, |world| orders::run(world, &plan, 3)).unwrap();
    assert_eq!(partial.records().unwrap(), whole.records().unwrap());
}

/// Remembers how often it was asked, which no recall may.
struct Restless(Mutex<u64>);

impl Memory for Restless {
    fn recall(&self, _task: &TaskView, _handles: &Handles<'_>) -> anyhow::Result<Recall> {
        *self.0.lock().unwrap() += 1;
        Ok(Recall::default())
    }

    fn learn(&mut self, _experience: &Experience, _handles: &Handles<'_>) -> anyhow::Result<()> {
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        self.0.lock().unwrap().to_le_bytes().to_vec()
    }

    fn load(&mut self, _bytes: &[u8]) -> anyhow::Result<()> {
        Ok(())
    }
}

struct RestlessMethod;

impl Registered for RestlessMethod {
    fn name(&self) -> &str {
        "restless"
    }
    fn about(&self) -> &str {
        "counts its recalls"
    }
    fn source(&self) -> &str {
        "a test"
    }
}

impl MemoryMethod for RestlessMethod {
    fn create(&self, _options: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        Ok(Box::new(Restless(Mutex::new(0))))
    }

    fn resolve(&self, _options: &toml::Table) -> anyhow::Result<memory::Resolved> {
        anyhow::bail!("not asked here")
    }
}

#[test]
fn a_probe_that_changes_a_memory_stops_the_run() {
    let resolved = resolved(&RestlessMethod);
    let steps = [StepKind::ColdProbe, StepKind::WarmUp, StepKind::WarmProbe];
    let steps = steps.map(|kind| crate::record::plan::PlannedStep { task: 0, kind }).to_vec();
    let history = HistoryPlan { name: "positive".into(), sequences: vec![SequencePlan { probe: 0, steps }] };
    let plan = plan(vec![history], 1);
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let outcome = in_world(&resolved, &store, |world| sequence::run(world, Family::Sequence, &plan, 1));
    let message = format!("{:#}", outcome.unwrap_err());
    assert!(message.contains("a probe changed the memory") && message.contains("step 0"), "{message}");
}
