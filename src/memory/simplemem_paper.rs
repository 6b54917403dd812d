//! SimpleMem as its paper's first version describes it: a gate lets only windows with news in, the backbone turns each
//! into units, related units become one, and the depth of a search follows its complexity (arXiv 2601.02553v1, §3).
//!
//! The paper leaves weights open: α = 0.5, β = 0.7, λ = (0.6, 0.3, 0.1), k = 3 and twice that for a complex question.
//! Time is counted in tasks. Names are what has a capital, a digit or an underscore: the gate asks no model.
//! Replies are held to their JSON form (`constrained`), which the paper does not ask for.

use std::collections::BTreeSet;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::bm25::{scores, words};
use super::bound::clip_line;
use super::form;
use super::ladder;
use super::llm::{Asker, Call};
use super::simplemem::dialogue;
use super::snapshot::Layout;
use super::template::fill_within;
use super::vector::{Space, Vector, ranked};
use super::{Block, Content, Context, Handles, Memory, MemoryMethod, Recall, Resolved, TextPlacement, options};
use crate::engine::grammar::Grammar;
use crate::record::{Experience, TaskView};
use crate::registry::Registered;
use crate::reply::json::Kind;

pub struct SimpleMemPaper;

const NAME: &str = "simplemem_paper";
const PREAMBLE: &str = include_str!("../../configs/prompts/simplemem_preamble.txt");
const UNITS: &str = include_str!("../../configs/prompts/simplemem_paper_units.txt");
const MERGE: &str = include_str!("../../configs/prompts/simplemem_paper_merge.txt");
const PLAN: &str = include_str!("../../configs/prompts/simplemem_paper_plan.txt");

const PROMPT_TOKENS: usize = 8000;
const UNITS_TOKENS: usize = 2048;
const PLAN_TOKENS: usize = 512;
const MOST_UNITS: usize = 20;
const MOST_NAMES: usize = 5000;
const LEAST_SHOWN: usize = 3;
const MOST_SHOWN: usize = 20;

/// Options of `[[agents]]` with `memory = "simplemem_paper"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// Dialogue lines of one window, and how far the next begins behind it.
    window: usize,
    stride: usize,
    /// τ: windows with less news are dropped.
    gate: f64,
    /// α: weight of new names against new meaning in the gate.
    alpha: f64,
    /// β: weight of meaning against nearness in time when units are grouped.
    beta: f64,
    /// Loss of nearness a task.
    decay: f64,
    /// Units at least this related become one.
    merge_affinity: f64,
    /// Tasks between two merges; 0 never merges.
    merge_every: u32,
    k: usize,
    /// δ: how much more a complex question is shown.
    complexity_gain: f64,
    weight_meaning: f64,
    weight_words: f64,
    weight_names: f64,
    /// Most units kept; the oldest leave.
    max_units: usize,
    /// Whether replies are held to their form, where they have one; the published method parses free text.
    constrained: bool,
    placement: TextPlacement,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            window: 10,
            stride: 5,
            gate: 0.35,
            alpha: 0.5,
            beta: 0.7,
            decay: 0.1,
            merge_affinity: 0.85,
            merge_every: 20,
            k: 3,
            complexity_gain: 1.0,
            weight_meaning: 0.6,
            weight_words: 0.3,
            weight_names: 0.1,
            max_units: 1000,
            constrained: true,
            placement: TextPlacement::BeforeQuestion,
        }
    }
}

impl Options {
    fn read(table: &toml::Table) -> anyhow::Result<Options> {
        let options: Options = options(NAME, table)?;
        ensure!(
            0 < options.stride && options.stride <= options.window,
            "memory `{NAME}`: `stride` must be from 1 to `window`, found {} and {}",
            options.stride,
            options.window
        );
        for (key, value) in [("alpha", options.alpha), ("beta", options.beta), ("gate", options.gate)] {
            ensure!((0.0..=1.0).contains(&value), "memory `{NAME}`: `{key}` must be in 0..=1, found {value}");
        }
        ensure!(options.max_units > 0, "memory `{NAME}`: `max_units` must be at least 1, found 0");
        Ok(options)
    }
}

impl Registered for SimpleMemPaper {
    fn name(&self) -> &str {
        NAME
    }
    fn about(&self) -> &str {
        "SimpleMem as first published: an entropy gate, units that are merged, search as deep as the question"
    }
    fn source(&self) -> &str {
        "SimpleMem, arXiv 2601.02553v1"
    }
}

impl MemoryMethod for SimpleMemPaper {
    fn create(&self, table: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        Ok(Box::new(Units { options: Options::read(table)?, state: State::default() }))
    }

    fn resolve(&self, table: &toml::Table) -> anyhow::Result<Resolved> {
        Ok(Resolved { needs_embedder: true, ..Resolved::of(&Options::read(table)?)? })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct State {
    space: Space,
    units: Vec<Unit>,
    /// Units that became part of a merged one, by content.
    archive: Vec<String>,
    made: u32,
    learned: u32,
    /// Of the newest window.
    previous: Option<Vector>,
    names: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Unit {
    id: String,
    content: String,
    entities: Vec<String>,
    topic: String,
    salience: f64,
    /// Position of the task it is from; of the newest, for a merged one.
    position: u32,
    vector: Vector,
}

struct Units {
    options: Options,
    state: State,
}

/// How a question is to be searched.
struct Search {
    is_complex: bool,
    keywords: Vec<String>,
    query: String,
}

impl Memory for Units {
    fn recall(&self, task: &TaskView, handles: &Handles<'_>) -> anyhow::Result<Recall> {
        let units = &self.state.units;
        if units.is_empty() {
            return Ok(Recall::default());
        }
        let search = plan(task, &handles.asker(NAME, self.options.constrained)?)?;
        let query = self.state.space.embed_query(NAME, &search.query, handles)?;
        let documents: Vec<Vec<String>> = units.iter().map(|unit| words(&unit.content)).collect();
        let meaning = scaled(units.iter().map(|unit| unit.vector.cosine(&query)).collect());
        let by_words = scaled(scores(&search.keywords, &documents));
        let by_names = scaled(units.iter().map(|unit| unit.named(&search.keywords)).collect());
        let Options { weight_meaning, weight_words, weight_names, k, complexity_gain, .. } = self.options;
        let score = |index: usize| {
            weight_meaning * meaning[index] + weight_words * by_words[index] + weight_names * by_names[index]
        };
        let depth = k as f64 * (1.0 + if search.is_complex { complexity_gain } else { 0.0 });
        let shown = (depth.floor() as usize).clamp(LEAST_SHOWN, MOST_SHOWN);
        let best = ranked((0..units.len()).map(score)).into_iter().take(shown);
        let blocks = best.map(|(score, index)| {
            let Unit { id, content, .. } = &units[index];
            Block { id: id.clone(), content: Content::Text(format!("- {content}")), score }
        });
        let placement = self.options.placement.into();
        Ok(Recall::of(Context { placement, preamble: PREAMBLE.trim_end().into(), blocks: blocks.collect() }))
    }

    fn learn(&mut self, experience: &Experience, handles: &Handles<'_>) -> anyhow::Result<()> {
        let llm = &handles.asker(NAME, self.options.constrained)?;
        let mut state = self.state.clone();
        let windows = self.windows(&dialogue(experience));
        let vectors = state.space.embed(NAME, &windows, handles)?;
        let kept: Vec<&String> = windows
            .iter()
            .zip(vectors)
            .filter(|(window, vector)| state.is_news(window, vector, &self.options))
            .map(|(window, _)| window)
            .collect();
        let limit = llm.room(PROMPT_TOKENS, UNITS_TOKENS);
        let [content, entities, topic] = Unit::fields();
        let (timestamp, salience) = (("timestamp", form::optional(form::line(40))), ("salience", form::share()));
        let units = form::list(form::object([content, entities, topic, timestamp, salience]), 0..=MOST_UNITS);
        let call = |window: &&String| {
            let prompt = fill_within(UNITS, &[("dialogue", window)], &["dialogue"], limit, llm);
            Call {
                purpose: "simplemem_paper/units",
                prompt,
                max_tokens: UNITS_TOKENS,
                temperature: 0.0,
                form: Some(form::json(units.clone())),
            }
        };
        let calls: Vec<Call> = kept.iter().map(call).collect();
        let found = llm.ask_all(calls, |_, reply| read_units(reply, experience.position))?;
        state.add(found.into_iter().flatten().flatten().collect(), handles)?;
        state.learned += 1;
        let every = self.options.merge_every;
        if every > 0 && state.learned.is_multiple_of(every) {
            self.merge(&mut state, handles)?;
        }
        let excess = state.units.len().saturating_sub(self.options.max_units);
        state.units.drain(..excess);
        state.space.settle(handles);
        self.state = state;
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

impl Units {
    fn layout(&self) -> Layout<'_, Options> {
        Layout { method: NAME, version: 1, options: &self.options }
    }

    fn windows(&self, lines: &[String]) -> Vec<String> {
        let mut windows = Vec::new();
        let mut start = 0;
        loop {
            let end = (start + self.options.window).min(lines.len());
            windows.push(lines[start..end].join("\n"));
            if end == lines.len() {
                return windows;
            }
            start += self.options.stride;
        }
    }

    /// One unit of each group of related ones; a group whose merge cannot be read stays as it is.
    fn merge(&self, state: &mut State, handles: &Handles<'_>) -> anyhow::Result<()> {
        let llm = &handles.asker(NAME, self.options.constrained)?;
        let groups = groups(&state.units, &self.options);
        let limit = llm.room(PROMPT_TOKENS, PLAN_TOKENS);
        let call = |group: &Vec<usize>| {
            let units: Vec<String> = group.iter().map(|&index| format!("- {}", state.units[index].content)).collect();
            let prompt = fill_within(MERGE, &[("units", &units.join("\n"))], &["units"], limit, llm);
            Call {
                purpose: "simplemem_paper/merge",
                prompt,
                max_tokens: PLAN_TOKENS,
                temperature: 0.0,
                form: Some(form::json(form::object(Unit::fields()))),
            }
        };
        let calls: Vec<Call> = groups.iter().map(call).collect();
        let merged = llm.ask_all(calls, |index, reply| {
            let value = ladder::value(reply, Kind::Object)?;
            let position = groups[index].iter().map(|&unit| state.units[unit].position).max()?;
            Unit::read(&value, position)
        })?;
        let mut gone = BTreeSet::new();
        let mut new = Vec::new();
        for (group, unit) in groups.iter().zip(merged) {
            if let Some(unit) = unit {
                gone.extend(group.iter().copied());
                new.push(unit);
            }
        }
        let mut index = 0;
        let State { units, archive, .. } = state;
        units.retain(|unit| {
            let stays = !gone.contains(&index);
            if !stays {
                archive.push(unit.content.clone());
            }
            index += 1;
            stays
        });
        let excess = archive.len().saturating_sub(self.options.max_units);
        archive.drain(..excess);
        state.add(new, handles)
    }
}

impl State {
    /// H = α·(new names a line) + (1 − α)·(1 − cos(window, window before)), at most 1 for the first part; the window is
    /// then the one before.
    fn is_news(&mut self, window: &str, vector: &Vector, options: &Options) -> bool {
        let names = names(window);
        let new = names.iter().filter(|name| !self.names.contains(*name)).count();
        let share = (new as f64 / window.lines().count().max(1) as f64).min(1.0);
        let likeness = self.previous.as_ref().map_or(0.0, |previous| previous.cosine(vector));
        self.previous = Some(vector.clone());
        self.names.extend(names);
        while self.names.len() > MOST_NAMES {
            self.names.pop_first();
        }
        options.alpha * share + (1.0 - options.alpha) * (1.0 - likeness) >= options.gate
    }

    fn add(&mut self, mut units: Vec<Unit>, handles: &Handles<'_>) -> anyhow::Result<()> {
        let texts: Vec<String> = units.iter().map(|unit| unit.content.clone()).collect();
        for (unit, vector) in units.iter_mut().zip(self.space.embed(NAME, &texts, handles)?) {
            self.made += 1;
            unit.id = format!("unit-{}", self.made);
            unit.vector = vector;
        }
        self.units.extend(units);
        Ok(())
    }
}

impl Unit {
    fn fields() -> [(&'static str, serde_json::Value); 3] {
        [("content", form::line(400)), ("entities", form::list(form::line(80), 0..=12)), ("topic", form::line(120))]
    }

    fn read(value: &serde_json::Value, position: u32) -> Option<Unit> {
        let entities = ladder::texts(value, "entities");
        Some(Unit {
            id: String::new(),
            content: clip_line(ladder::text(value, "content")?, 600),
            entities: entities.iter().take(12).map(|name| clip_line(name, 80)).collect(),
            topic: clip_line(ladder::text(value, "topic").unwrap_or_default(), 120),
            salience: value.get("salience").and_then(serde_json::Value::as_f64).unwrap_or(0.5).clamp(0.0, 1.0),
            position,
            vector: Vector::default(),
        })
    }

    /// The share of the keywords that its names and topic hold.
    fn named(&self, keywords: &[String]) -> f64 {
        let own = words(&format!("{} {}", self.entities.join(" "), self.topic));
        let hits = keywords.iter().filter(|word| own.contains(word)).count();
        hits as f64 / keywords.len().max(1) as f64
    }
}

fn read_units(reply: &str, position: u32) -> Option<Vec<Unit>> {
    let value = ladder::value(reply, Kind::Container)?;
    let members = value.as_array().or_else(|| value.get("units")?.as_array())?;
    let units: Vec<Unit> = members.iter().filter_map(|unit| Unit::read(unit, position)).take(MOST_UNITS).collect();
    (members.is_empty() || !units.is_empty()).then_some(units)
}

/// Words with a capital, a digit or an underscore, in lower case.
fn names(text: &str) -> BTreeSet<String> {
    text.split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
        .filter(|word| word.chars().count() > 1 && word.chars().any(|c| c.is_uppercase() || c.is_numeric() || c == '_'))
        .map(str::to_lowercase)
        .collect()
}

fn plan_form() -> Grammar {
    form::json(form::object([
        ("complexity", form::choice(&["LOW", "HIGH"])),
        ("rationale", form::line(160)),
        ("keywords", form::list(form::line(60), 1..=8)),
        ("time", form::optional(form::line(40))),
        ("semantic_query", form::line(200)),
    ]))
}

fn plan(task: &TaskView, llm: &Asker<'_>) -> anyhow::Result<Search> {
    let limit = llm.room(PROMPT_TOKENS, PLAN_TOKENS);
    let prompt = fill_within(PLAN, &[("task", &task.question)], &["task"], limit, llm);
    let call = Call {
        purpose: "simplemem_paper/plan",
        prompt,
        max_tokens: PLAN_TOKENS,
        temperature: 0.0,
        form: Some(plan_form()),
    };
    let found = llm.ask(call, |reply| {
        let value = ladder::value(reply, Kind::Object)?;
        let is_complex = match ladder::text(&value, "complexity")?.to_uppercase().as_str() {
            "HIGH" => true,
            "LOW" => false,
            _ => return None,
        };
        let keywords = words(&ladder::texts(&value, "keywords").join(" "));
        let query = ladder::text(&value, "semantic_query").map_or(task.question.clone(), |query| clip_line(query, 600));
        Some(Search { is_complex, keywords, query })
    })?;
    let plain = || Search { is_complex: false, keywords: words(&task.question), query: task.question.clone() };
    Ok(found.unwrap_or_else(plain))
}

/// Connected groups of at least two units, by ω = β·cos + (1 − β)·exp(−decay·|Δt|), each ascending.
fn groups(units: &[Unit], options: &Options) -> Vec<Vec<usize>> {
    let affinity = |left: &Unit, right: &Unit| {
        let apart = f64::from(left.position.abs_diff(right.position));
        options.beta * left.vector.cosine(&right.vector) + (1.0 - options.beta) * (-options.decay * apart).exp()
    };
    let mut group_of: Vec<usize> = (0..units.len()).collect();
    for right in 0..units.len() {
        for left in 0..right {
            if affinity(&units[left], &units[right]) >= options.merge_affinity {
                let (from, to) = (group_of[right].max(group_of[left]), group_of[right].min(group_of[left]));
                group_of.iter_mut().filter(|group| **group == from).for_each(|group| *group = to);
            }
        }
    }
    let members = |group: usize| (0..units.len()).filter(|&unit| group_of[unit] == group).collect::<Vec<_>>();
    (0..units.len()).map(members).filter(|members| members.len() > 1).collect()
}

/// Moved to 0..=1 by the least and the greatest; all zeros when they are equal: then they decide nothing.
fn scaled(scores: Vec<f64>) -> Vec<f64> {
    let least = scores.iter().copied().fold(f64::INFINITY, f64::min);
    let range = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max) - least;
    scores.iter().map(|score| if range > 0.0 { (score - least) / range } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::{Bench, create, experience, task};

    fn backbone(complexity: &'static str) -> Bench {
        Bench::new(move |prompt| {
            if prompt.contains("memory units") {
                r#"[{"content": "apple tasks want red", "entities": ["Apple"], "topic": "fruit", "salience": 0.9}]"#
                    .into()
            } else if prompt.contains("one unit") {
                r#"{"content": "all fruit is red", "entities": ["Apple"], "topic": "fruit"}"#.into()
            } else {
                format!(r#"{{"complexity": "{complexity}", "keywords": ["apple"], "semantic_query": "apple"}}"#)
            }
        })
    }

    fn units(memory: &dyn Memory) -> serde_json::Value {
        serde_json::from_slice::<serde_json::Value>(&memory.save()).unwrap()["state"].clone()
    }

    #[test]
    fn a_window_without_news_is_dropped_without_a_call() {
        let bench = backbone("LOW");
        let mut memory = Units { options: Options { gate: 0.5, ..Options::default() }, state: State::default() };
        let first = memory.windows(&dialogue(&experience("same", "r", true, 0)));
        let vector = Vector(vec![1.0, 0.0]);
        assert!(memory.state.is_news(&first[0], &vector, &memory.options));
        assert!(!memory.state.is_news(&first[0], &vector, &memory.options), "the same window again");
        assert!(memory.state.is_news("[t] User: about NumPy 2", &Vector(vec![0.0, 1.0]), &memory.options));
        memory.options.gate = 1.0;
        memory.state.names = names(&first.join(" "));
        assert_eq!(bench.learn(&mut memory, &experience("same", "r", true, 0)), []);
    }

    #[test]
    fn related_units_become_one_and_stay_in_the_archive() {
        let bench = backbone("LOW");
        let mut memory = create(NAME, "merge_every = 3\ngate = 0.0");
        for position in 0..3 {
            bench.learn(memory.as_mut(), &experience(&format!("Q{position}"), "r", true, position));
        }
        let state = units(memory.as_ref());
        assert_eq!(state["units"].as_array().unwrap().len(), 1);
        assert_eq!(state["units"][0]["content"], "all fruit is red");
        assert_eq!((state["archive"].as_array().unwrap().len(), &state["units"][0]["position"]), (3, &2.into()));
    }

    #[test]
    fn a_complex_question_is_shown_twice_as_much() {
        for (complexity, shown) in [("LOW", 3), ("HIGH", 6), ("MEDIUM", 3)] {
            let bench = backbone(complexity);
            let mut memory = create(NAME, "merge_every = 0\ngate = 0.0");
            for position in 0..8 {
                bench.learn(memory.as_mut(), &experience(&format!("Q{position}"), "r", true, position));
            }
            let (recall, calls) = bench.recall_at(memory.as_ref(), &task("apple"), 9);
            assert_eq!(recall.contexts[0].blocks.len(), shown, "{complexity}");
            assert_eq!(calls[0].is_read, complexity != "MEDIUM");
        }
    }

    #[test]
    fn groups_are_connected_by_meaning_and_time() {
        let unit = |vector: Vec<f32>, position| Unit {
            vector: Vector(vector),
            ..Unit::read(&serde_json::json!({ "content": "c" }), position).unwrap()
        };
        let near =
            vec![unit(vec![1.0, 0.0], 0), unit(vec![0.0, 1.0], 0), unit(vec![1.0, 0.0], 1), unit(vec![1.0, 0.0], 90)];
        // 0.7 + 0.3·e^−0.1 = 0.97; ninety tasks apart 0.7
        assert_eq!(groups(&near, &Options::default()), [[0, 2]]);
    }
}
