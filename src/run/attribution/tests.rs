//! Plans by hand, and a scripted life in which one experience is known to be poison.

use super::*;
use crate::engine::forced::{ForcedLogprobs, ForcedRequest};
use crate::engine::generate::{Generate, Prompter};
use crate::engine::request::{self, Completion, Finish, Request};
use crate::engine::template::ChatMessage;
use crate::memory::{Block, Content, Context, Handles, Memory, MemoryMethod, Placement, Recall, Resolved};
use crate::record::plan::{HistoryPlan, PlannedStep, StepKind};
use crate::record::{Experience, Reference, ReplyFormat, Task, TaskId, TaskView};
use crate::registry::Registered;
use crate::run::progress::Progress;
use crate::run::resolve::ResolvedAgent;
use crate::scorer::Grading;
use crate::store::{self, Identity, Machine, Manifest};

/// cold, 1 warm-up, warm, then two experiences before each of three probes.
fn life() -> SequencePlan {
    use StepKind::{ColdProbe, Intervening, Probe, WarmProbe, WarmUp};
    let kinds = [
        ColdProbe,
        WarmUp,
        WarmProbe,
        Intervening,
        Intervening,
        Probe,
        Intervening,
        Intervening,
        Probe,
        Intervening,
        Intervening,
        Probe,
    ];
    SequencePlan { probe: 0, steps: kinds.map(|kind| PlannedStep { task: 0, kind }).to_vec() }
}

fn found(scores: [f64; 5], config: &AttributionConfig) -> Vec<(u32, u32, Vec<u32>)> {
    let probes: Vec<(u32, f64)> = [0, 2, 5, 8, 11].into_iter().zip(scores).collect();
    traced(&life(), &probes, config).map(|case| (case.earlier, case.probe, case.left_out)).collect()
}

#[test]
fn a_drop_is_traced_over_the_experiences_since_the_better_probe() {
    let config = AttributionConfig::default();
    let drop = vec![(2, 5, vec![3, 4])];
    assert_eq!(found([0.0, 1.0, 0.0, 0.0, 1.0], &config), drop, "a low probe that stays low is one drop");
    assert_eq!(found([1.0, 1.0, 1.0, 1.0, 1.0], &config), []);
    assert_eq!(found([1.0, 0.0, 1.0, 1.0, 0.0], &config), [(0, 2, vec![1]), (8, 11, vec![9, 10])]);
}

#[test]
fn every_probe_goes_back_to_the_last_good_one_or_the_one_before() {
    let config = AttributionConfig { probes: TracedProbes::Every, ..AttributionConfig::default() };
    let expected = [(0, 2, vec![1]), (2, 5, vec![3, 4]), (2, 8, vec![3, 4, 6, 7]), (8, 11, vec![9, 10])];
    assert_eq!(found([0.0, 1.0, 0.0, 0.0, 1.0], &config), expected);
    let short = AttributionConfig { max_experiences: 3, ..config };
    assert_eq!(found([0.0, 1.0, 0.0, 0.0, 1.0], &short)[2], (2, 8, vec![4, 6, 7]), "the latest are kept");
}

#[test]
fn the_deepest_drops_are_kept_in_order_of_place() {
    let case = |probe: u32, score: f64| AttributionCase {
        sequence: 0,
        run: 0,
        probe,
        earlier: 0,
        score,
        earlier_score: 1.0,
        left_out: vec![1],
    };
    let kept = deepest(vec![case(5, 0.5), case(8, 0.0), case(11, 0.5), case(14, 0.25)], 3);
    assert_eq!(kept.iter().map(|case| case.probe).collect::<Vec<_>>(), [5, 8, 14]);
}

#[test]
fn every_memory_of_a_case_has_its_draws_and_a_reference() {
    let case = AttributionCase {
        sequence: 3,
        run: 1,
        probe: 5,
        earlier: 2,
        score: 0.0,
        earlier_score: 1.0,
        left_out: vec![3, 4],
    };
    let group = AttributionGroup { history: "positive".into(), agent: "rag".into(), cases: vec![case] };
    let plan = AttributionPlan { draws: 2, groups: vec![group] };
    let coords: Vec<Coord> = coords(&plan).collect();
    assert_eq!(coords.len(), 3 * 3);
    assert_eq!(coords.iter().collect::<std::collections::BTreeSet<_>>().len(), 9);
    assert!(coords.iter().all(|coord| coord.sequence == 0 && coord.step <= 2));
}

/// What a scripted agent remembers: the question of everything it met, in order. One of them is poison.
struct Notebook;

const POISON: &str = "kata/7";

struct Notes(Vec<String>);

impl Registered for Notebook {
    fn name(&self) -> &str {
        "notebook"
    }
    fn about(&self) -> &str {
        "questions met"
    }
    fn source(&self) -> &str {
        "scripted"
    }
}

impl MemoryMethod for Notebook {
    fn create(&self, _options: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        Ok(Box::new(Notes(Vec::new())))
    }

    fn resolve(&self, options: &toml::Table) -> anyhow::Result<Resolved> {
        let options = options.clone();
        Ok(Resolved { options, needs_embedder: false, needs_feedback: false, max_memory_tokens: 1000 })
    }
}

impl Memory for Notes {
    fn recall(&self, _task: &TaskView, _handles: &Handles<'_>) -> anyhow::Result<Recall> {
        let block = |(index, note): (usize, &String)| Block {
            id: index.to_string(),
            content: Content::Text(note.clone()),
            score: 0.0,
        };
        let blocks: Vec<Block> = self.0.iter().enumerate().map(block).collect();
        let context = Context { placement: Placement::BeforeQuestion, preamble: "Met before:".into(), blocks };
        let contexts = if context.blocks.is_empty() { Vec::new() } else { vec![context] };
        Ok(Recall { contexts, pending: serde_json::Value::Null })
    }

    fn learn(&mut self, experience: &Experience, _handles: &Handles<'_>) -> anyhow::Result<()> {
        self.0.push(experience.task.id.to_string());
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).unwrap()
    }

    fn load(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.0 = serde_json::from_slice(bytes)?;
        Ok(())
    }
}

/// Right until its prompt holds the poison; how likely it finds a reference depends on how many notes it reads.
#[derive(Default)]
struct Poisoned {
    asked: AtomicUsize,
}

fn text_of(tokens: &[u32]) -> String {
    tokens.iter().filter_map(|token| char::from_u32(*token)).collect()
}

impl Prompter for Poisoned {
    fn render(&self, messages: &[ChatMessage]) -> anyhow::Result<Vec<u32>> {
        Ok(messages.iter().flat_map(|message| self.encode(message.content.as_str().unwrap_or_default())).collect())
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        text.chars().map(u32::from).collect()
    }

    fn has_template(&self) -> bool {
        true
    }
}

impl Generate for Poisoned {
    fn complete_all(&self, requests: Vec<Request>) -> anyhow::Result<Vec<Completion>> {
        let complete = |request: Request| {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let text = if text_of(&request.tokens).contains(POISON) { "wrong" } else { "right" };
            Completion {
                tokens: self.encode(text),
                text: text.into(),
                finish: Finish::Eos(0),
                usage: request::Usage { prompt: request.tokens.len(), reused: 0, generated: 5 },
                logprobs: Vec::new(),
                seed: request.seed,
            }
        };
        Ok(requests.into_iter().map(complete).collect())
    }

    fn logprobs_all(&self, requests: Vec<ForcedRequest>) -> anyhow::Result<Vec<ForcedLogprobs>> {
        let rate = |request: ForcedRequest| {
            let text = text_of(&request.prompt);
            let each = if text.contains(POISON) { -2.0 } else { -0.01 * text.matches("kata/").count() as f32 };
            ForcedLogprobs { logprobs: vec![each; request.continuation.len()], usage: request::Usage::default() }
        };
        Ok(requests.into_iter().map(rate).collect())
    }

    fn context(&self) -> usize {
        100_000
    }
}

fn resolved() -> crate::run::Resolved {
    let config = crate::config::parse(
        "name = \"traced\"\n[models]\nbackbones = [\"scripted\"]\n[benchmark]\nname = \"kata\"\n[matrix]\n[vote]\n\
         [sequence]\nsequences = 1\nruns = 2\n[[agents]]\nname = \"notes\"\n[attribution]\ndraws = 3\n",
    )
    .unwrap();
    let task = |index: u32| Task {
        view: TaskView {
            id: TaskId(format!("kata/{index}")),
            family: None,
            system: None,
            question: format!("question {index}"),
            reply_format: ReplyFormat::Line,
        },
        reference: Reference {
            solution: "right".into(),
            scorer: "exact".into(),
            options: serde_json::json!({"answers": ["right"]}),
        },
    };
    let agent = ResolvedAgent {
        config: config.agents[0].clone(),
        method: &Notebook,
        policy: crate::policy::find("single").unwrap(),
        needs_embedder: false,
    };
    crate::run::Resolved {
        tasks: (0..12).map(task).collect(),
        data_digest: String::new(),
        ignored: BTreeMap::new(),
        strong: None,
        backbones: Vec::new(),
        embedder: None,
        agents: vec![agent],
        grading: Grading::default(),
        config,
    }
}

/// Probe 0; experiences 1, then 2 and 3, then 6, 7 (the poison) and 8, then 9: the probe falls behind 8.
fn poisoned_plan() -> SequencesPlan {
    use StepKind::{ColdProbe, Intervening, Probe, WarmProbe, WarmUp};
    let steps = [
        (0, ColdProbe),
        (1, WarmUp),
        (0, WarmProbe),
        (2, Intervening),
        (3, Intervening),
        (0, Probe),
        (6, Intervening),
        (7, Intervening),
        (8, Intervening),
        (0, Probe),
        (9, Intervening),
        (0, Probe),
    ];
    let steps = steps.map(|(task, kind)| PlannedStep { task, kind }).to_vec();
    let history = HistoryPlan { name: "positive".into(), sequences: vec![SequencePlan { probe: 0, steps }] };
    SequencesPlan {
        model: "scripted".into(),
        agents: vec!["notes".into()],
        baseline: None,
        runs: 2,
        histories: vec![history],
        paired: Vec::new(),
    }
}

fn open(dir: &std::path::Path) -> RunStore {
    let identity = Identity {
        format: store::FORMAT,
        code: "t".into(),
        config: serde_json::Value::Null,
        data: BTreeMap::new(),
        models: BTreeMap::new(),
        device: "cpu".into(),
    };
    RunStore::create_or_open(dir, &Manifest::new(identity, "scalar"), Machine::default()).unwrap()
}

/// Lives the sequences and traces them; gives the plan, and the records of its stages.
fn traced_run(dir: &std::path::Path, threads: usize) -> (AttributionPlan, Vec<AttemptRecord>, usize) {
    let (resolved, sequences, backbone, store) = (resolved(), poisoned_plan(), Poisoned::default(), open(dir));
    let progress = Progress::start("test", 1, 0);
    let world = World {
        resolved: &resolved,
        store: &store,
        backbone: &backbone,
        embedder: None,
        similarities: None,
        progress: &progress,
    };
    super::super::sequence::run(&world, Family::Sequence, &sequences, threads).unwrap();
    let plan = plan(&store, &sequences, resolved.config.attribution.as_ref().unwrap()).unwrap();
    let before = backbone.asked.load(Ordering::Relaxed);
    run(&world, &plan, &sequences, threads).unwrap();
    let asked = backbone.asked.load(Ordering::Relaxed) - before;
    let records = store.records().unwrap();
    (plan, records.into_iter().filter(|record| record.coord.stage.starts_with("attribution")).collect(), asked)
}

#[test]
fn the_poison_is_found_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, records, asked) = traced_run(dir.path(), 4);
    let cases = &plan.groups[0].cases;
    assert_eq!(cases.len(), 2, "one drop in each run: {cases:?}");
    assert_eq!((cases[0].earlier, cases[0].probe, &cases[0].left_out), (5, 9, &vec![6, 7, 8]));
    // Three draws from four memories in two cases, and a reference for each memory.
    assert_eq!((asked, records.len()), (2 * 4 * 3, 2 * 4 * 4));
    let mut logprobs = BTreeMap::new();
    for record in &records {
        let score = record.score.graded().unwrap();
        if record.coord.stage.starts_with("attribution-logprob/") {
            logprobs.insert((record.coord.sequence, record.coord.step), score.ln());
        } else {
            let is_cured = record.coord.step == 2;
            assert_eq!(score, if is_cured { 1.0 } else { 0.0 }, "{}", record.coord);
            assert_eq!(record.task.0, "kata/0");
        }
    }
    // Without experience 6 or 8 the poison is still read; without it five notes are left.
    for case in 0..2 {
        let found = |left_out| logprobs[&(case, left_out)];
        assert_eq!([found(0), found(1), found(3)].map(|value| (value * 100.0).round()), [-200.0; 3]);
        assert!((found(2) - -0.05).abs() < 1e-6, "{}", found(2));
    }
}

#[test]
fn a_second_run_asks_nothing_and_another_number_of_threads_stores_the_same() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (plan, records, _) = traced_run(first.path(), 4);
    assert_eq!(traced_run(first.path(), 4), (plan.clone(), records.clone(), 0));
    let (other_plan, other_records, _) = traced_run(second.path(), 1);
    assert_eq!((other_plan, other_records), (plan, records));
}

#[test]
fn a_run_that_was_cut_off_ends_with_the_same_records() {
    let whole = tempfile::tempdir().unwrap();
    let (plan, records, _) = traced_run(whole.path(), 4);
    // The last third of the log is gone.
    let cut = tempfile::tempdir().unwrap();
    let log = std::fs::read_to_string(whole.path().join("attempts.jsonl")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    let (life, traced): (Vec<&str>, Vec<&str>) = lines.into_iter().partition(|line| !line.contains("\"attribution"));
    let kept: Vec<&str> = life.into_iter().chain(traced.into_iter().step_by(3)).collect();
    std::fs::copy(whole.path().join("manifest.json"), cut.path().join("manifest.json")).unwrap();
    std::fs::write(cut.path().join("attempts.jsonl"), kept.join("\n") + "\n").unwrap();
    let (again, found, asked) = traced_run(cut.path(), 2);
    assert!(asked > 0 && asked <= 24, "{asked}");
    assert_eq!((again, found), (plan, records));
}
