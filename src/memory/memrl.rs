//! MemRL: memories with a value that rewards teach; first similarity lets memories in, then value ranks them (arXiv
//! 2601.03192; released code: `memrl/service/`).
//!
//! Defaults are those of the released BigCodeBench settings; LifelongAgentBench's are `epsilon = 0.01`, `q_init_success =
//! 0.5`, `q_init_failure = 0.5`, `reward_failure = 0.0`, `q_floor = 0.0`, `k_keys = 10`, `add_similarity = 0.99`. Departures:
//! the mean and spread of similarities are measured on the run's own tasks, since the published ones belong to another
//! embedder; additions count at once, since a probe may come at any step; a key that exists is appended to; where the run
//! withholds the outcome the backbone judges, and an unreadable judgement teaches nothing. Only what was shown is
//! credited.

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::bound::clip;
use super::calibration::Threshold;
use super::llm::Call;
use super::snapshot::Layout;
use super::template::fill_within;
use super::trajectory::{self, Outcome};
use super::vector::{Space, Vector, ranked};
use super::{Block, Content, Context, Handles, Memory, MemoryMethod, Recall, Resolved, TextPlacement, judge, options};
use crate::record::{Experience, TaskView};
use crate::registry::Registered;

pub struct MemRl;

const NAME: &str = "memrl";
const SCRIPT: &str = include_str!("../../configs/prompts/memrl_script.txt");
const REFLECT: &str = include_str!("../../configs/prompts/memrl_reflect.txt");
const PREAMBLE: &str = include_str!("../../configs/prompts/memrl_preamble.txt");

const KEY_CHARACTERS: usize = 4096;
const CONTENT_CHARACTERS: usize = 6000;
const LESSON_CHARACTERS: usize = 1500;
const PROMPT_TOKENS: usize = 6000;
const REPLY_TOKENS: usize = 512;
/// Published for BigCodeBench; where the run has no similarities of its own.
const PUBLISHED_MEAN: f64 = 0.31;
const PUBLISHED_DEVIATION: f64 = 0.10;
const CLIP: f64 = 3.0;

/// Options of `[[agents]]` with `memory = "memrl"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// Probability of showing a random choice among the candidates.
    epsilon: f64,
    /// Step of a value towards a reward.
    alpha: f64,
    reward_success: f64,
    reward_failure: f64,
    q_init_success: f64,
    q_init_failure: f64,
    /// No value falls below it.
    q_floor: Option<f64>,
    /// Memories of lower value are no candidates.
    q_min: f64,
    /// Least similarity of a key.
    min_similarity: Threshold,
    /// Keys whose memories are candidates.
    k_keys: usize,
    /// Memories shown.
    k: usize,
    /// From this similarity a new memory joins an existing key.
    add_similarity: f64,
    weight_similarity: f64,
    weight_q: f64,
    /// Mean and spread of the similarities of random tasks; measured on the run's tasks when absent.
    similarity_mean: Option<f64>,
    similarity_deviation: Option<f64>,
    /// At most one memory of each task.
    one_per_task: bool,
    /// Characters shown, split evenly.
    max_characters: usize,
    placement: TextPlacement,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            epsilon: 0.1,
            alpha: 0.3,
            reward_success: 1.0,
            reward_failure: -1.0,
            q_init_success: 0.0,
            q_init_failure: 0.0,
            q_floor: None,
            q_min: -0.8,
            min_similarity: Threshold::Value(0.5),
            k_keys: 5,
            k: 5,
            add_similarity: 0.90,
            weight_similarity: 0.5,
            weight_q: 0.5,
            similarity_mean: None,
            similarity_deviation: None,
            one_per_task: false,
            max_characters: 2000,
            placement: TextPlacement::AfterInstructions,
        }
    }
}

impl Options {
    fn read(table: &toml::Table) -> anyhow::Result<Options> {
        let options: Options = options(NAME, table)?;
        for (key, value) in [("epsilon", options.epsilon), ("alpha", options.alpha)] {
            ensure!((0.0..=1.0).contains(&value), "memory `memrl`: `{key}` must be in 0..=1, found {value}");
        }
        for (key, value) in [("k_keys", options.k_keys), ("k", options.k), ("max_characters", options.max_characters)] {
            ensure!(value > 0, "memory `memrl`: `{key}` must be at least 1, found 0");
        }
        if let Some(deviation) = options.similarity_deviation {
            ensure!(deviation > 0.0, "memory `memrl`: `similarity_deviation` must be above 0, found {deviation}");
        }
        options.min_similarity.check(NAME, "min_similarity")?;
        Ok(options)
    }
}

impl Registered for MemRl {
    fn name(&self) -> &str {
        NAME
    }
    fn about(&self) -> &str {
        "scripts and reflections with a value learned from rewards: similar first, then valuable"
    }
    fn source(&self) -> &str {
        "MemRL, arXiv 2601.03192; PATH-Bench agent"
    }
}

impl MemoryMethod for MemRl {
    fn create(&self, table: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        Ok(Box::new(Values { options: Options::read(table)?, state: State::default() }))
    }

    fn resolve(&self, table: &toml::Table) -> anyhow::Result<Resolved> {
        Ok(Resolved { needs_embedder: true, ..Resolved::of(&Options::read(table)?)? })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct State {
    space: Space,
    keys: Vec<Key>,
    /// In the order they were made.
    memories: Vec<Record>,
}

/// A task's text and the memories filed under it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Key {
    text: String,
    vector: Vector,
    /// Indices of memories.
    memories: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    id: String,
    task: String,
    question: String,
    /// A procedure from a success, an adjustment from a failure.
    is_success: bool,
    /// The script or the reflection; `None` when the backbone gave none.
    lesson: Option<String>,
    attempt: String,
    confidence: f64,
    q: f64,
    visits: u32,
    last_reward: Option<f64>,
    /// Mean reward of all visits.
    mean_reward: f64,
    /// Position of the last use.
    last_used: Option<u32>,
}

struct Values {
    options: Options,
    state: State,
}

impl Memory for Values {
    fn recall(&self, task: &TaskView, handles: &Handles<'_>) -> anyhow::Result<Recall> {
        if self.state.keys.is_empty() {
            return Ok(Recall::default());
        }
        let query = self.state.space.embed_query(NAME, &key_text(task), handles)?;
        let candidates = self.candidates(&query, handles)?;
        let Options { epsilon, k, .. } = self.options;
        let explores = handles.seed.derive("memrl explore", &[]).uniform_at(0) < epsilon;
        let mut order = if explores {
            let mut indices: Vec<usize> = (0..candidates.len()).collect();
            handles.seed.derive("memrl sample", &[]).stream().shuffle(&mut indices);
            indices.into_iter().map(|index| (0.0, index)).collect()
        } else {
            ranked(self.scores(&candidates, handles).into_iter())
        };
        if self.options.one_per_task {
            let mut seen: Vec<&str> = Vec::new();
            order.retain(|(_, index)| {
                let task = self.state.memories[candidates[*index].0].task.as_str();
                let is_new = !seen.contains(&task);
                seen.push(task);
                is_new
            });
        }
        order.truncate(k);
        let share = self.options.max_characters / order.len().max(1);
        let blocks =
            order.into_iter().map(|(score, index)| self.state.memories[candidates[index].0].block(score, share));
        let placement = self.options.placement.into();
        Ok(Recall::of(Context { placement, preamble: PREAMBLE.trim_end().into(), blocks: blocks.collect() }))
    }

    fn learn(&mut self, experience: &Experience, handles: &Handles<'_>) -> anyhow::Result<()> {
        let llm = handles.llm(NAME)?;
        let Some(is_success) = judge::is_success(experience, llm)? else {
            return Ok(());
        };
        let limit = llm.room(PROMPT_TOKENS, REPLY_TOKENS);
        let attempt = trajectory::within(experience, Outcome::Shown, limit * 3 / 4, &|text| llm.count(text));
        let (purpose, template, temperature) =
            if is_success { ("memrl/script", SCRIPT, 0.0) } else { ("memrl/reflect", REFLECT, 0.3) };
        let prompt = fill_within(template, &[("attempt", &attempt)], &["attempt"], limit, llm);
        let call = Call { purpose, prompt, max_tokens: REPLY_TOKENS, temperature, form: None };
        let lesson = llm.ask(call, |reply| Some(clip(reply, LESSON_CHARACTERS)))?;
        let text = key_text(&experience.task);
        let vector = self.state.space.embed_one(NAME, &text, handles)?;

        let reward = if is_success { self.options.reward_success } else { self.options.reward_failure };
        let shown = |record: &&mut Record| experience.recalled.contains(&record.id);
        for record in self.state.memories.iter_mut().filter(shown) {
            record.reward(reward, experience.position, &self.options);
        }
        let state = &mut self.state;
        let index = state.memories.len();
        state.memories.push(Record {
            id: format!("memory-{}", index + 1),
            task: experience.task.id.to_string(),
            question: clip(&experience.task.question, KEY_CHARACTERS),
            is_success,
            lesson,
            attempt: clip(&trajectory::full(experience, Outcome::Hidden), CONTENT_CHARACTERS),
            confidence: if is_success { 1.0 } else { 0.8 },
            q: if is_success { self.options.q_init_success } else { self.options.q_init_failure },
            visits: 0,
            last_reward: None,
            mean_reward: 0.0,
            last_used: None,
        });
        let nearest = ranked(state.keys.iter().map(|key| key.vector.cosine(&vector))).into_iter().next();
        match nearest {
            Some((similarity, key)) if similarity >= self.options.add_similarity => {
                state.keys[key].memories.push(index)
            }
            _ => state.keys.push(Key { text, vector, memories: vec![index] }),
        }
        state.space.settle(handles);
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        self.layout().save(&self.state)
    }

    fn load(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.state = self.layout().load(bytes)?;
        Ok(())
    }
}

impl Values {
    fn layout(&self) -> Layout<'_, Options> {
        Layout { method: NAME, version: 1, options: &self.options }
    }

    /// Phase A: memories under the most similar keys, with the key's similarity.
    fn candidates(&self, query: &Vector, handles: &Handles<'_>) -> anyhow::Result<Vec<(usize, f64)>> {
        let least = self.options.min_similarity.value(handles)?;
        let keys = ranked(self.state.keys.iter().map(|key| key.vector.cosine(query)));
        let near = keys.into_iter().filter(|(similarity, _)| *similarity >= least).take(self.options.k_keys);
        let all = near
            .flat_map(|(similarity, key)| self.state.keys[key].memories.iter().map(move |index| (*index, similarity)));
        Ok(all.filter(|(index, _)| self.state.memories[*index].q >= self.options.q_min).collect())
    }

    /// Phase B: a weighted sum of standardised similarity and value.
    fn scores(&self, candidates: &[(usize, f64)], handles: &Handles<'_>) -> Vec<f64> {
        let measured = handles.similarities;
        let mean = self.options.similarity_mean.or(measured.map(|all| all.mean())).unwrap_or(PUBLISHED_MEAN);
        let deviation = self.options.similarity_deviation.or(measured.map(|all| all.deviation()));
        let deviation = deviation.filter(|deviation| *deviation > 0.0).unwrap_or(PUBLISHED_DEVIATION);
        let values: Vec<f64> = candidates.iter().map(|(index, _)| self.state.memories[*index].q).collect();
        let (q_mean, q_deviation) = moments(&values);
        let standard = |value: f64, mean: f64, deviation: f64| ((value - mean) / deviation).clamp(-CLIP, CLIP);
        let score = |(similarity, q): (f64, f64)| {
            self.options.weight_similarity * standard(similarity, mean, deviation)
                + self.options.weight_q * standard(q, q_mean, q_deviation)
        };
        candidates.iter().map(|(_, similarity)| *similarity).zip(values).map(score).collect()
    }
}

/// Mean and standard deviation; a spread of nothing counts as 1.
fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
    (mean, if deviation > 0.0 { deviation } else { 1.0 })
}

fn key_text(task: &TaskView) -> String {
    clip(&task.question, KEY_CHARACTERS)
}

impl Record {
    /// Q ← (1 − α)·Q + α·r: one step, without a next state (γ = 0).
    fn reward(&mut self, reward: f64, position: u32, options: &Options) {
        self.q = (1.0 - options.alpha) * self.q + options.alpha * reward;
        self.q = options.q_floor.map_or(self.q, |floor| self.q.max(floor));
        self.visits += 1;
        self.mean_reward += (reward - self.mean_reward) / f64::from(self.visits);
        self.last_reward = Some(reward);
        self.last_used = Some(position);
    }

    fn block(&self, score: f64, characters: usize) -> Block {
        let (outcome, kind) = if self.is_success { ("success", "procedure") } else { ("failure", "reflection") };
        let mut text = format!("[{outcome}] {} ({kind})\n", self.task);
        if let Some(lesson) = &self.lesson {
            text += &format!("{lesson}\n");
        }
        // A failed attempt is told by its reflection; the attempt stands in only where there is none.
        if self.is_success || self.lesson.is_none() {
            text += &self.attempt;
        } else {
            text += &format!("Task:\n{}", self.question);
        }
        Block { id: self.id.clone(), content: Content::Text(clip(&text, characters)), score }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::memory::tests::{Bench, create, experience, task};

    fn state(memory: &dyn Memory) -> Value {
        serde_json::from_slice::<Value>(&memory.save()).unwrap()["state"].clone()
    }

    fn bench() -> Bench {
        Bench::new(|_| "1. Do it.".to_string())
    }

    #[test]
    fn q_follows_its_closed_form() {
        let bench = bench();
        let mut memory =
            create(NAME, "epsilon = 0.0\nk = 1\nmin_similarity = -1.0\nq_min = -10.0\nadd_similarity = 1.0");
        bench.step(memory.as_mut(), experience("q", "r", true, 0));
        let rewards = [true, false, false, true];
        for (step, is_correct) in rewards.into_iter().enumerate() {
            let mut next = experience("q", "r", is_correct, step as u32 + 1);
            next.recalled = vec!["memory-1".into()];
            bench.learn(memory.as_mut(), &next);
        }
        // Σ α(1 − α)^(n−i) r_i from Q = 0
        let expected = 0.3 * (0.7f64.powi(3) - 0.7f64.powi(2) - 0.7 + 1.0);
        let first = &state(memory.as_ref())["memories"][0];
        assert!((first["q"].as_f64().unwrap() - expected).abs() < 1e-12);
        assert_eq!((first["visits"].as_u64(), first["last_used"].as_u64()), (Some(4), Some(4)));
        assert!(first["mean_reward"].as_f64().unwrap().abs() < 1e-12);
    }

    #[test]
    fn an_empty_gate_shows_nothing_and_only_inserts() {
        let bench = bench();
        let mut memory = create(NAME, "min_similarity = 1.0");
        bench.step(memory.as_mut(), experience("apple one", "r", true, 0));
        let before = state(memory.as_ref())["memories"][0].clone();
        let (recall, _) = bench.step(memory.as_mut(), experience("zebra two", "r", true, 1));
        assert_eq!(recall, Recall::default());
        let after = state(memory.as_ref());
        assert_eq!(after["memories"][0], before);
        assert_eq!((after["memories"].as_array().unwrap().len(), after["keys"].as_array().unwrap().len()), (2, 2));
    }

    #[test]
    fn value_outranks_similarity_and_the_same_task_shares_a_key() {
        let bench = bench();
        let mut memory =
            create(NAME, "epsilon = 0.0\nk = 1\nmin_similarity = -1.0\nq_min = -10.0\nweight_similarity = 0.0");
        for position in 0..3 {
            bench.learn(memory.as_mut(), &experience("same", "r", true, position));
        }
        assert_eq!(state(memory.as_ref())["keys"].as_array().unwrap().len(), 1);
        let mut praised = experience("same", "r", true, 3);
        praised.recalled = vec!["memory-2".into()];
        bench.learn(memory.as_mut(), &praised);
        assert_eq!(bench.recall(memory.as_ref(), &task("same")).contexts[0].blocks[0].id, "memory-2");
    }

    #[test]
    fn exploring_depends_on_the_place_alone() {
        let bench = bench();
        let mut memory = create(NAME, "epsilon = 1.0\nk = 1\nmin_similarity = -1.0");
        for position in 0..8 {
            bench.learn(memory.as_mut(), &experience(&format!("a {position}"), "r", true, position));
        }
        let at = |position| bench.recall_at(memory.as_ref(), &task("a"), position).0.contexts[0].blocks[0].id.clone();
        let first: Vec<String> = (0..12).map(at).collect();
        assert_eq!((0..12).map(at).collect::<Vec<_>>(), first);
        assert!(first.iter().any(|id| *id != first[0]), "{first:?}");
    }

    #[test]
    fn a_failure_is_told_by_its_reflection_and_nothing_is_learned_without_a_judgement() {
        let bench = bench();
        let mut memory = create(NAME, "min_similarity = -1.0");
        bench.learn(memory.as_mut(), &experience("q", "wrong way", false, 0));
        let text = bench.recall(memory.as_ref(), &task("q")).contexts[0].blocks[0].content.as_text();
        assert!(text.starts_with("[failure] t/q (reflection)\n1. Do it.") && !text.contains("wrong way"), "{text}");
        let before = memory.save();
        let mut untold = experience("q", "r", true, 1);
        untold.feedback = crate::record::Feedback::Withheld;
        bench.learn(memory.as_mut(), &untold);
        assert_eq!(memory.save(), before);
    }
}
