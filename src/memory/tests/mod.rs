//! What memories are tested with: a scripted backbone and a hashing embedder. The tests that every method passes are in
//! `shared`; those of the small methods stand here, those of the others under their code.

mod prompts;
mod shared;

use std::sync::Mutex;

use super::*;
use crate::engine::generate::{Generate, Prompter};
use crate::engine::request::{self, Completion, Finish, Request};
use crate::engine::template::ChatMessage;
use crate::record::{Feedback, MemoryCall, Message, ReplyFormat, Role, TaskId};

/// A unit vector drawn from the text's hash, moved towards the first word's direction: texts that begin alike are near.
struct HashingEmbedder;

impl Embed for HashingEmbedder {
    fn embed(&self, texts: &[String]) -> anyhow::Result<Vec<Vec<f32>>> {
        let direction = |text: &str| {
            let mut stream = Seed(1).derive(text, &[]).stream();
            (0..16).map(|_| stream.next_f64() - 0.5).collect::<Vec<f64>>()
        };
        Ok(texts
            .iter()
            .map(|text| {
                let first = direction(text.split_whitespace().next().unwrap_or(""));
                let whole = direction(text);
                let vector: Vec<f64> = first.iter().zip(&whole).map(|(a, b)| 2.0 * a + b).collect();
                let norm = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
                vector.iter().map(|x| (x / norm) as f32).collect()
            })
            .collect())
    }

    fn id(&self) -> String {
        "hashing".into()
    }
}

/// Answers prompts by a function. Four bytes a token.
struct Scripted {
    reply: Box<dyn Fn(&str) -> String + Send + Sync>,
    prompts: Mutex<Vec<String>>,
    /// Whether each request was held to a form.
    held: Mutex<Vec<bool>>,
    context: usize,
}

fn text_of(tokens: &[u32]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    String::from_utf8(bytes).unwrap().trim_end_matches('\0').to_string()
}

impl Prompter for Scripted {
    fn render(&self, messages: &[ChatMessage]) -> anyhow::Result<Vec<u32>> {
        let texts: Vec<&str> = messages.iter().map(|message| message.content.as_str().unwrap_or_default()).collect();
        Ok(self.encode(&texts.join("\n")))
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        let word = |bytes: &[u8]| {
            let mut four = [0u8; 4];
            four[..bytes.len()].copy_from_slice(bytes);
            u32::from_le_bytes(four)
        };
        text.as_bytes().chunks(4).map(word).collect()
    }

    fn has_template(&self) -> bool {
        true
    }
}

impl Generate for Scripted {
    fn complete_all(&self, requests: Vec<Request>) -> anyhow::Result<Vec<Completion>> {
        Ok(requests
            .into_iter()
            .map(|request| {
                let prompt = text_of(&request.tokens);
                let text = (self.reply)(&prompt);
                self.held.lock().unwrap().push(request.sampling.grammar.is_some());
                self.prompts.lock().unwrap().push(prompt);
                Completion {
                    usage: request::Usage { prompt: request.tokens.len(), reused: 0, generated: text.len() / 4 },
                    text,
                    tokens: Vec::new(),
                    finish: Finish::Eos(0),
                    logprobs: Vec::new(),
                    seed: request.seed,
                }
            })
            .collect())
    }

    fn context(&self) -> usize {
        self.context
    }
}

/// A scripted backbone and the hashing embedder, with the texts that were embedded noted.
pub(in crate::memory) struct Bench {
    backbone: Scripted,
    embedder: Recording,
}

/// Notes what was embedded, and whether as a query; and what queries were told to find.
#[derive(Default)]
struct Recording(Mutex<Vec<(Purpose, String)>>, Mutex<Vec<String>>);

impl Recording {
    fn note(&self, purpose: Purpose, texts: &[String]) {
        self.0.lock().unwrap().extend(texts.iter().map(|text| (purpose, text.clone())));
    }
}

impl Embed for Recording {
    fn embed(&self, texts: &[String]) -> anyhow::Result<Vec<Vec<f32>>> {
        self.note(Purpose::Document, texts);
        HashingEmbedder.embed(texts)
    }

    fn embed_queries(&self, texts: &[String]) -> anyhow::Result<Vec<Vec<f32>>> {
        self.note(Purpose::Query, texts);
        HashingEmbedder.embed(texts)
    }

    fn embed_queries_with(&self, task: &str, texts: &[String]) -> anyhow::Result<Vec<Vec<f32>>> {
        self.1.lock().unwrap().push(task.to_string());
        self.embed_queries(texts)
    }

    fn sparse(&self, purpose: Purpose, texts: &[String]) -> anyhow::Result<Vec<SparseVector>> {
        self.note(purpose, texts);
        let weights = |text: &String| text.bytes().map(|byte| (u32::from(byte), 1.0)).collect();
        Ok(texts.iter().map(|text| SparseVector { weights: weights(text) }).collect())
    }

    fn colbert(&self, purpose: Purpose, texts: &[String]) -> anyhow::Result<Vec<TokenVectors>> {
        self.note(purpose, texts);
        let rows = HashingEmbedder.embed(texts)?;
        Ok(rows.into_iter().map(|rows| TokenVectors { width: rows.len(), rows }).collect())
    }

    fn id(&self) -> String {
        "hashing".into()
    }
}

impl Bench {
    pub fn new(reply: impl Fn(&str) -> String + Send + Sync + 'static) -> Bench {
        let backbone =
            Scripted { reply: Box::new(reply), prompts: Mutex::default(), held: Mutex::default(), context: 30_000 };
        Bench { backbone, embedder: Recording::default() }
    }

    pub fn with_context(self, context: usize) -> Bench {
        Bench { backbone: Scripted { context, ..self.backbone }, ..self }
    }

    /// Learns, and returns the calls made.
    pub fn learn(&self, memory: &mut dyn Memory, experience: &Experience) -> Vec<MemoryCall> {
        self.at("learn", experience.position, |handles| memory.learn(experience, handles).unwrap()).1
    }

    pub fn recall(&self, memory: &dyn Memory, task: &TaskView) -> Recall {
        self.recall_at(memory, task, 0).0
    }

    /// Recalls at a position of the sequence, and returns the calls made.
    pub fn recall_at(&self, memory: &dyn Memory, task: &TaskView, position: u32) -> (Recall, Vec<MemoryCall>) {
        self.at("recall", position, |handles| memory.recall(task, handles).unwrap())
    }

    /// One whole step: recall, an attempt that shows everything recalled, learn.
    pub fn step(&self, memory: &mut dyn Memory, mut experience: Experience) -> (Recall, Vec<MemoryCall>) {
        let (recall, mut calls) = self.recall_at(memory, &experience.task, experience.position);
        let blocks = recall.contexts.first().map(|context| context.blocks.as_slice()).unwrap_or_default();
        experience.recalled = blocks.iter().map(|block| block.id.clone()).collect();
        experience.pending = recall.pending.clone();
        calls.extend(self.learn(memory, &experience));
        (recall, calls)
    }

    /// What queries were told to find so far, one text a query that was told.
    pub fn told(&self) -> Vec<String> {
        self.embedder.1.lock().unwrap().clone()
    }

    /// Every prompt so far.
    pub fn prompts(&self) -> Vec<String> {
        self.backbone.prompts.lock().unwrap().clone()
    }

    /// Whether each request so far was held to a form.
    pub fn held(&self) -> Vec<bool> {
        self.backbone.held.lock().unwrap().clone()
    }

    /// Texts embedded so far.
    pub fn embedded(&self) -> usize {
        self.embedder.0.lock().unwrap().len()
    }

    /// What was embedded since the last time.
    pub fn take_embedded(&self) -> Vec<(Purpose, String)> {
        std::mem::take(&mut self.embedder.0.lock().unwrap())
    }

    fn at<T>(&self, phase: &str, position: u32, act: impl FnOnce(&Handles<'_>) -> T) -> (T, Vec<MemoryCall>) {
        let seed = Seed(9).derive(phase, &[position]);
        let llm = Llm::new(&self.backbone, seed, None);
        let made = act(&Handles { embedder: Some(&self.embedder), llm: Some(&llm), similarities: None, seed });
        (made, llm.into_calls())
    }
}

pub(in crate::memory) fn handles() -> Handles<'static> {
    Handles { embedder: Some(&HashingEmbedder), ..Handles::none() }
}

pub(in crate::memory) fn task(question: &str) -> TaskView {
    TaskView {
        id: TaskId(format!("t/{question}")),
        family: None,
        system: None,
        question: question.into(),
        reply_format: ReplyFormat::Line,
    }
}

pub(in crate::memory) fn experience(question: &str, reply: &str, is_correct: bool, position: u32) -> Experience {
    Experience {
        task: task(question),
        turns: vec![Message::new(Role::Assistant, reply)],
        answer: Some(reply.into()),
        is_finished: true,
        feedback: Feedback::Correct(is_correct),
        position,
        recalled: Vec::new(),
        pending: Value::Null,
    }
}

pub(in crate::memory) fn create(name: &str, options: &str) -> Box<dyn Memory> {
    find(name).unwrap().create(&toml::from_str(options).unwrap()).unwrap()
}

fn reply_of(block: &Block) -> &str {
    match &block.content {
        Content::Pair { reply, .. } => reply,
        Content::Text(text) => text,
    }
}

fn shown(recall: &Recall) -> Vec<Vec<&str>> {
    recall.contexts.iter().map(|context| context.blocks.iter().map(reply_of).collect()).collect()
}

#[test]
fn rag_shows_the_most_similar_first_and_keeps_wrong_attempts() {
    let mut memory = create("rag", "k = 2\nembed = \"question\"");
    memory.learn(&experience("apple one", "a", false, 0), &handles()).unwrap();
    memory.learn(&experience("zebra two", "z", true, 1), &handles()).unwrap();
    memory.learn(&experience("apple three", "b", true, 2), &handles()).unwrap();
    let recall = memory.recall(&task("apple one"), &handles()).unwrap();
    assert_eq!(shown(&recall), [["a", "b"]]);
    assert!((recall.contexts[0].blocks[0].score - 1.0).abs() < 1e-6, "identical texts have cosine 1");
}

/// Case re-topk-ties: equal similarity goes to the earlier memory.
#[test]
fn rag_ties_go_to_the_earlier_memory() {
    let mut memory = create("rag", "k = 2\nembed = \"question\"");
    for (position, reply) in ["first", "second", "third"].iter().enumerate() {
        memory.learn(&experience("same", reply, true, position as u32), &handles()).unwrap();
    }
    assert_eq!(shown(&memory.recall(&task("same"), &handles()).unwrap()), [["first", "second"]]);
}

#[test]
fn rag_as_turns_puts_the_most_similar_next_to_the_question() {
    let mut memory = create("rag", "k = 2\nembed = \"question\"\nplacement = \"earlier_turns\"");
    memory.learn(&experience("apple one", "near", true, 0), &handles()).unwrap();
    memory.learn(&experience("apple three", "far", true, 1), &handles()).unwrap();
    assert_eq!(shown(&memory.recall(&task("apple one"), &handles()).unwrap()), [["far", "near"]]);
}

#[test]
fn rag_remembers_the_reference_where_the_run_reveals_it() {
    let mut memory = create("rag", "");
    let mut revealed = experience("apple", "wrong", false, 0);
    revealed.feedback = Feedback::Revealed { is_correct: false, solution: "right".into() };
    memory.learn(&revealed, &handles()).unwrap();
    assert_eq!(shown(&memory.recall(&task("apple"), &handles()).unwrap()), [["right"]]);
}

#[test]
fn rag_says_the_outcome_when_asked_to() {
    let mut memory = create("rag", "outcome = true");
    memory.learn(&experience("apple", "red", false, 0), &handles()).unwrap();
    assert_eq!(shown(&memory.recall(&task("apple"), &handles()).unwrap()), [["red\nOutcome: failure"]]);
}

#[test]
fn rag_compares_as_its_mode_says() {
    let bench = Bench::new(|_| String::new());
    let score = |mode: &str| {
        let mut memory = create("rag", &format!("k = 1\nembed = \"question\"\n{mode}"));
        bench.learn(memory.as_mut(), &experience("bba", "r", true, 0));
        bench.recall(memory.as_ref(), &task("ab")).contexts[0].blocks[0].score
    };
    let (dense, sparse, colbert) = (score(""), score("mode = \"sparse\""), score("mode = \"colbert\""));
    assert_eq!(sparse, 2.0, "two letters in common");
    assert_eq!(colbert, dense, "one vector a text");
    let hybrid = score("mode = \"hybrid\"\nweights = { dense = 1.0, sparse = 3.0, colbert = 0.0 }");
    assert_eq!(hybrid, (dense + 3.0 * sparse + 0.0 * colbert) / 4.0);
    let none = "mode = \"hybrid\"\nweights = { dense = 0.0, sparse = 0.0, colbert = 0.0 }";
    assert!(find("rag").unwrap().create(&toml::from_str(none).unwrap()).is_err());
}

#[test]
fn rag_stores_only_what_its_mode_compares_and_refuses_another_modes_state() {
    let bench = Bench::new(|_| String::new());
    let saved = |mode: &str| {
        let mut memory = create("rag", mode);
        bench.learn(memory.as_mut(), &experience("q", "r", true, 0));
        memory.save()
    };
    let dense = String::from_utf8(saved("")).unwrap();
    assert!(!dense.contains("sparse") && !dense.contains("colbert"), "{dense}");
    for mode in ["sparse", "colbert", "hybrid"] {
        let mode = format!("mode = \"{mode}\"");
        assert!(create("rag", &mode).load(dense.as_bytes()).is_err(), "{mode}");
        assert!(create("rag", "").load(&saved(&mode)).is_err(), "{mode}");
    }
}

#[test]
fn rag_names_the_mode_that_an_embedder_cannot_serve() {
    for mode in ["sparse", "colbert", "hybrid"] {
        let mut memory = create("rag", &format!("mode = \"{mode}\""));
        let message = format!("{:#}", memory.learn(&experience("q", "r", true, 0), &handles()).unwrap_err());
        assert!(message.to_lowercase().contains(mode) && message.contains("BGE-M3"), "{message}");
    }
}

#[test]
fn rag_without_an_embedder_says_what_to_set() {
    let mut memory = create("rag", "");
    let message = memory.learn(&experience("q", "r", true, 0), &Handles::none()).unwrap_err().to_string();
    assert!(message.contains("embedder"), "{message}");
}

#[test]
fn replay_keeps_the_last_successes_oldest_first() {
    let mut memory = create("replay", "n = 2");
    for (position, (reply, is_correct)) in [("a", true), ("b", false), ("c", true), ("d", true)].iter().enumerate() {
        memory.learn(&experience("q", reply, *is_correct, position as u32), &handles()).unwrap();
    }
    assert_eq!(shown(&memory.recall(&task("q"), &handles()).unwrap()), [["c", "d"]]);
}

#[test]
fn replay_drops_what_did_not_finish_and_cuts_an_invented_user_turn() {
    let mut memory = create("replay", "");
    let mut unfinished = experience("q", "a", true, 0);
    unfinished.is_finished = false;
    memory.learn(&unfinished, &handles()).unwrap();
    assert_eq!(memory.recall(&task("q"), &handles()).unwrap(), Recall::default());
    memory.learn(&experience("q", "yes\nuser: and then?\nno", true, 1), &handles()).unwrap();
    assert_eq!(shown(&memory.recall(&task("q"), &handles()).unwrap()), [["yes"]]);
    assert_eq!(memory.stop_strings(), ["\nuser: "]);
}

#[test]
fn groups_deal_the_newest_successes_newest_first() {
    let mut memory = create("groups", "groups = 2\nsize = 2");
    for (position, reply) in ["a", "b", "c", "d", "e"].iter().enumerate() {
        memory.learn(&experience("q", reply, true, position as u32), &handles()).unwrap();
    }
    assert_eq!(shown(&memory.recall(&task("q"), &handles()).unwrap()), [["e", "d"], ["c", "b"]]);
    let mut small = create("groups", "groups = 4\nsize = 2");
    for position in 0..3 {
        small.learn(&experience("q", "r", true, position), &handles()).unwrap();
    }
    let sizes: Vec<usize> = shown(&small.recall(&task("q"), &handles()).unwrap()).iter().map(Vec::len).collect();
    assert_eq!(sizes, [2, 1], "fewer groups while little is stored");
}
