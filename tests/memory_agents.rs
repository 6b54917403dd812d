//! Every memory on real weights: a short life on the bundled tasks leaves something in memory, and the same bits come out
//! on a second run and at another batch size.

mod support;

use lifelong::agent::{Agent, Work, attempt};
use lifelong::benchmark::{self, Selection};
use lifelong::engine::embed::{Embedder, load_embedder};
use lifelong::engine::model::load;
use lifelong::engine::sampling::Sampling;
use lifelong::engine::session::{Engine, EngineOptions, Session};
use lifelong::memory::{self, Handles, Llm, Similarities};
use lifelong::policy;
use lifelong::record::{Experience, Feedback, MemoryCall, Role, Score, Task};
use lifelong::scorer::{self, Grading};
use lifelong::seed::Seed;
use lifelong_kernels::Device;

/// Name, options, and the most tokens of each reply to the memory's own calls. Forms hold the replies, so that a model of
/// 135 M parameters fills each of them.
const AGENTS: &[(&str, &str, usize)] = &[
    ("hipporag", "", 48),
    ("clin", "", 64),
    ("awm", "", 96),
    ("simplemem", "reflection_rounds = 0", 48),
    ("simplemem_paper", "", 48),
    ("memrl", "min_similarity = { percentile = 10.0 }", 32),
    ("autoskill", "min_score = { percentile = 10.0 }\nselector = false", 96),
    ("skillclaw", "batch = 1\nk = 2\nmode = \"embedding\"", 128),
    ("skillclaw", CHOOSES, 128),
    ("seu", "memory = \"rag\"", 24),
];
/// SkillClaw's own way: the backbone chooses a skill, or none, before it is shown.
const CHOOSES: &str = "batch = 1";
const TASKS: usize = 3;

struct World {
    tasks: Vec<Task>,
    embedder: Embedder,
    similarities: Similarities,
}

impl World {
    fn handles<'a>(&'a self, llm: &'a Llm<'a>, position: usize) -> Handles<'a> {
        Handles {
            embedder: Some(&self.embedder),
            llm: Some(llm),
            similarities: Some(&self.similarities),
            seed: Seed(5).derive("memory", &[position as u32]),
        }
    }
}

/// What one life leaves: the state after every task, the calls made, what was shown and what was replied.
type Life = (Vec<Vec<u8>>, Vec<MemoryCall>, Vec<String>);

fn live(world: &World, session: &Session, (name, options, call_tokens): (&str, &str, usize)) -> Life {
    let mut memory = memory::find(name).unwrap().create(&toml::from_str(options).unwrap()).unwrap();
    let sampling = Sampling { max_tokens: 12, stop: vec!["\n".into()], ..Sampling::default() };
    let agent = Agent {
        policy: policy::find("single").unwrap(),
        sampling: &sampling,
        max_memory_tokens: Some(256),
        max_turns: 1,
    };
    let (mut states, mut calls, mut seen) = (vec![memory.save()], Vec::new(), Vec::new());
    for (position, task) in world.tasks.iter().enumerate() {
        let phase = |phase: &str| {
            let seed = Seed(5).derive(phase, &[position as u32]);
            (seed, Llm::new(session, seed, Some(call_tokens)))
        };
        let (seed, llm) = phase("recall");
        let work = Work { task, memory: memory.as_ref(), handles: &world.handles(&llm, position), seed };
        let made = attempt(&agent, &work, session).unwrap();
        calls.extend(llm.into_calls());
        assert_eq!(memory.save(), *states.last().unwrap(), "{name}: recall changed the state");
        seen.push(format!("{:?} {:?}", made.attempt.recalled, made.attempt.reply()));

        let scorer = scorer::find(&task.reference.scorer).unwrap();
        let (score, _) = scorer.score(task, &made.attempt, &Grading::default()).unwrap();
        assert!(matches!(score, Score::Graded(_)));
        let first_reply = made.attempt.turns.iter().rposition(|turn| turn.role == Role::User).map_or(0, |at| at + 1);
        let experience = Experience {
            task: task.view.clone(),
            turns: made.attempt.turns[first_reply..].to_vec(),
            answer: made.attempt.answer.clone(),
            is_finished: true,
            // A model this small rarely succeeds; what methods do with success is what is run here.
            feedback: Feedback::Correct(position % 3 != 2),
            position: position as u32,
            recalled: made.attempt.recalled.clone(),
            pending: made.pending,
        };
        let (_, llm) = phase("learn");
        memory.learn(&experience, &world.handles(&llm, position)).unwrap();
        calls.extend(llm.into_calls());
        states.push(memory.save());
    }
    (states, calls, seen)
}

/// All agents at once, each on a thread of its own, in their order.
fn lives(world: &World, session: &Session) -> Vec<Life> {
    std::thread::scope(|scope| {
        let start = |(name, options, tokens): &(&'static str, &'static str, usize)| {
            let agent = (*name, *options, *tokens);
            scope.spawn(move || live(world, session, agent))
        };
        let threads: Vec<_> = AGENTS.iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn memories_fill_and_repeat_whatever_the_batch() {
    let (Some(backbone), Some(encoder)) =
        (support::model_files("smollm2-135m-instruct"), support::model_files("all-minilm-l6-v2"))
    else {
        return;
    };
    let device = Device::cpu(std::thread::available_parallelism().map_or(1, usize::from));
    let model = load(&backbone, &device).unwrap();
    let embedder = load_embedder(&encoder, &device).unwrap();
    let pool = benchmark::find("kata").unwrap().load(&Selection::default()).unwrap();
    let questions: Vec<String> = pool.tasks.iter().map(|task| task.view.question.clone()).collect();
    let similarities = Similarities::measure(&questions, &embedder, Seed(5)).unwrap();
    let tasks: Vec<Task> = pool.tasks.into_iter().step_by(3).take(TASKS).collect();
    let world = World { tasks, embedder, similarities };

    let run = |max_batch| {
        let options = EngineOptions { max_batch, kv_memory_bytes: Some(512 << 20), ..EngineOptions::default() };
        let engine = Engine::start(model.clone(), &options).unwrap();
        lives(&world, &engine.session())
    };
    let started = std::time::Instant::now();
    let first = run(8);
    for ((name, options, _), (states, calls, seen)) in AGENTS.iter().zip(&first) {
        let unread = calls.iter().filter(|call| !call.is_read).count();
        let shown = seen.iter().filter(|seen| !seen.starts_with("[]")).count();
        println!("{name} {options}: {} calls, {unread} unreadable, shown for {shown} of {TASKS} tasks", calls.len());
        assert!(states[TASKS] != states[0], "{name} {options} is empty after {TASKS} tasks");
        if *options == CHOOSES {
            // The model may choose none of the skills: that there are some is what is asked of it.
            let saved: serde_json::Value = serde_json::from_slice(&states[TASKS]).unwrap();
            let body = saved["state"]["skills"][0]["body"].as_str().unwrap_or_default();
            assert!(!body.trim().is_empty(), "{name} {options} keeps no skill: {saved}");
        } else {
            assert!(shown > 0, "{name} {options} shows nothing");
        }
    }
    println!("one run: {:.1} s", started.elapsed().as_secs_f64());
    assert!(run(3) == first, "another batch size gives other lives");
}
