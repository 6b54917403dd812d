//! AutoSkill: a library of versioned skills, extracted from successful attempts, kept apart or merged by the backbone, and
//! chosen before they are shown (arXiv 2603.01145; released code: the offline trajectory channel with its maintenance).
//!
//! Choices where the sources are open: no rewriting of the query, since a task's text stands for itself; an empty library
//! needs no decision; a discarded candidate is gone. Usage is counted in learning, never in recall. A
//! departure: replies are held to their JSON form (`constrained`), ids to those that are there.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::bm25::{overlap, scores, words};
use super::bound::{clip, clip_line};
use super::calibration::Threshold;
use super::llm::{Asker, Call};
use super::snapshot::Layout;
use super::template::{fill, fill_within};
use super::trajectory::{self, Outcome};
use super::vector::{Space, Vector, ranked};
use super::{Block, Content, Context, Handles, Memory, MemoryMethod, Recall, Resolved, TextPlacement, options};
use super::{form, judge, ladder, repair};
use crate::engine::grammar::Grammar;
use crate::record::{Experience, TaskView};
use crate::registry::Registered;
use crate::reply::json::Kind;

pub struct AutoSkill;

const NAME: &str = "autoskill";
const PREAMBLE: &str = include_str!("../../configs/prompts/autoskill_preamble.txt");
const EXTRACT: &str = include_str!("../../configs/prompts/autoskill_extract.txt");
const DECIDE: &str = include_str!("../../configs/prompts/autoskill_decide.txt");
const GATE: &str = include_str!("../../configs/prompts/autoskill_gate.txt");
const MERGE: &str = include_str!("../../configs/prompts/autoskill_merge.txt");
const SELECT: &str = include_str!("../../configs/prompts/autoskill_select.txt");
const USAGE: &str = include_str!("../../configs/prompts/autoskill_usage.txt");

const EXTRACT_FORM: &str = r#"{"skills": [{"name": "...", "description": "...", "prompt": "...", "triggers": ["..."], "tags": ["..."], "confidence": 0.0}]}"#;
const SELECT_FORM: &str = r#"{"use_skills": true, "selected_skill_ids": ["..."], "reason": "..."}"#;

const BM25_WEIGHT: f64 = 0.1;
/// Similarity from which an `add` is questioned.
const GUARD: f64 = 0.4;
const GATE_CONFIDENCE: f64 = 0.55;
const SIMILAR: usize = 5;
const MOST_SELECTED: usize = 3;
const HISTORY: usize = 30;
const PRUNE_RETRIEVED: u32 = 40;
const REPLY_TOKENS: usize = 2048;
const SHORT_REPLY_TOKENS: usize = 512;
const PROMPT_TOKENS: usize = 8000;
const PREVIEW_CHARACTERS: usize = 240;

/// Options of `[[agents]]` with `memory = "autoskill"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// Candidates of the search.
    k: usize,
    /// Least score of a candidate: nine tenths cosine, one tenth words.
    min_score: Threshold,
    /// Whether the backbone chooses among the candidates.
    selector: bool,
    /// Whether the backbone judges, after an attempt, which retrieved skills were used; else the shown ones count.
    usage_judge: bool,
    /// Most skills taken from one attempt.
    max_candidates: usize,
    /// Most skills kept; the least used and oldest leave.
    max_skills: usize,
    /// Whether replies are held to their form, where they have one; the published method parses free text.
    constrained: bool,
    placement: TextPlacement,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            k: 1,
            min_score: Threshold::Value(0.4),
            selector: true,
            usage_judge: false,
            max_candidates: 1,
            max_skills: 200,
            constrained: true,
            placement: TextPlacement::AfterInstructions,
        }
    }
}

impl Options {
    fn read(table: &toml::Table) -> anyhow::Result<Options> {
        let options: Options = options(NAME, table)?;
        let counts = [("k", options.k), ("max_candidates", options.max_candidates), ("max_skills", options.max_skills)];
        for (key, value) in counts {
            ensure!(value > 0, "memory `autoskill`: `{key}` must be at least 1, found 0");
        }
        options.min_score.check(NAME, "min_score")?;
        Ok(options)
    }
}

impl Registered for AutoSkill {
    fn name(&self) -> &str {
        NAME
    }
    fn about(&self) -> &str {
        "a library of versioned skills extracted from successes, merged, and chosen before they are shown"
    }
    fn source(&self) -> &str {
        "AutoSkill, arXiv 2603.01145; PATH-Bench agent"
    }
}

impl MemoryMethod for AutoSkill {
    fn create(&self, table: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        Ok(Box::new(Library { options: Options::read(table)?, state: State::default() }))
    }

    fn resolve(&self, table: &toml::Table) -> anyhow::Result<Resolved> {
        let options = Options::read(table)?;
        Ok(Resolved { needs_embedder: true, max_memory_tokens: Resolved::LIBRARY_TOKENS, ..Resolved::of(&options)? })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct State {
    space: Space,
    skills: Vec<Skill>,
    /// Skills ever made: the next one's id.
    made: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Skill {
    id: String,
    text: Text,
    confidence: f64,
    /// Third number of the version `0.1.N`.
    patch: u32,
    /// Former texts, oldest first.
    history: Vec<Text>,
    created: u32,
    updated: u32,
    retrieved: u32,
    relevant: u32,
    used: u32,
    vector: Vector,
}

/// What a skill says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Text {
    name: String,
    description: String,
    instructions: String,
    triggers: Vec<String>,
    tags: Vec<String>,
    resources: BTreeMap<String, String>,
}

/// A skill as extracted, with its place among the others.
struct Candidate {
    text: Text,
    confidence: f64,
    vector: Vector,
}

/// What recall tells learning.
#[derive(Default, Serialize, Deserialize)]
struct Pending {
    retrieved: Vec<String>,
}

struct Library {
    options: Options,
    state: State,
}

impl Memory for Library {
    fn recall(&self, task: &TaskView, handles: &Handles<'_>) -> anyhow::Result<Recall> {
        let skills = &self.state.skills;
        if skills.is_empty() {
            return Ok(Recall::default());
        }
        let query = self.state.space.embed_query(NAME, &task.question, handles)?;
        let least = self.options.min_score.value(handles)?;
        let found: Vec<(f64, &Skill)> = search(skills, &query, &task.question)
            .into_iter()
            .filter(|(score, _)| *score >= least)
            .take(self.options.k)
            .map(|(score, index)| (score, &skills[index]))
            .collect();
        if found.is_empty() {
            return Ok(Recall::default());
        }
        let pending = Pending { retrieved: found.iter().map(|(_, skill)| skill.id.clone()).collect() };
        let chosen = if self.options.selector {
            select(task, &found, &handles.asker(NAME, self.options.constrained)?)?
        } else {
            pending.retrieved.clone()
        };
        let shown = found.iter().filter(|(_, skill)| chosen.contains(&skill.id));
        let blocks = shown.map(|(score, skill)| skill.block(*score)).collect();
        let context =
            Context { placement: self.options.placement.into(), preamble: PREAMBLE.trim_end().into(), blocks };
        Ok(Recall { pending: serde_json::to_value(pending)?, ..Recall::of(context) })
    }

    fn learn(&mut self, experience: &Experience, handles: &Handles<'_>) -> anyhow::Result<()> {
        let llm = &handles.asker(NAME, self.options.constrained)?;
        let mut state = self.state.clone();
        self.count_usage(&mut state, experience, llm)?;
        if judge::is_success(experience, llm)? == Some(true) {
            for (text, confidence) in self.extract(experience, llm)? {
                let vector = state.space.embed_one(NAME, &text.index(), handles)?;
                state.space.settle(handles);
                maintain(&mut state, Candidate { text, confidence, vector }, experience.position, handles, llm)?;
            }
        }
        while state.skills.len() > self.options.max_skills {
            let idlest = (0..state.skills.len()).min_by_key(|&index| (state.skills[index].used, index)).unwrap_or(0);
            state.skills.remove(idlest);
        }
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

impl Library {
    fn layout(&self) -> Layout<'_, Options> {
        Layout { method: NAME, version: 1, options: &self.options }
    }

    /// Reusable skills of one attempt; none when the reply stays unreadable after one repair.
    fn extract(&self, experience: &Experience, llm: &Asker<'_>) -> anyhow::Result<Vec<(Text, f64)>> {
        let limit = llm.room(PROMPT_TOKENS, REPLY_TOKENS);
        let attempt = trajectory::within(experience, Outcome::Shown, limit * 2 / 3, &|text| llm.count(text));
        let most = self.options.max_candidates.to_string();
        let values = [("attempt", &*attempt), ("most", &*most), ("form", EXTRACT_FORM)];
        let prompt = fill_within(EXTRACT, &values, &["attempt"], limit, llm);
        let call = Call {
            purpose: "autoskill/extract",
            prompt,
            max_tokens: REPLY_TOKENS,
            temperature: 0.0,
            form: Some(extract_form(self.options.max_candidates)),
        };
        let found = repair::ask(llm, call, "autoskill/extract_repair", EXTRACT_FORM, extracted)?;
        Ok(found.unwrap_or_default().into_iter().take(self.options.max_candidates).collect())
    }

    fn count_usage(&self, state: &mut State, experience: &Experience, llm: &Asker<'_>) -> anyhow::Result<()> {
        let pending: Pending = serde_json::from_value(experience.pending.clone()).unwrap_or_default();
        let retrieved: Vec<&Skill> =
            state.skills.iter().filter(|skill| pending.retrieved.contains(&skill.id)).collect();
        if retrieved.is_empty() {
            return Ok(());
        }
        let is_shown = |id: &str| experience.recalled.iter().any(|shown| shown == id);
        let mut judged: BTreeMap<String, (bool, bool)> =
            retrieved.iter().map(|skill| (skill.id.clone(), (is_shown(&skill.id), is_shown(&skill.id)))).collect();
        if self.options.usage_judge {
            let limit = llm.room(PROMPT_TOKENS, SHORT_REPLY_TOKENS);
            let attempt = trajectory::within(experience, Outcome::Hidden, limit / 2, &|text| llm.count(text));
            let skills = retrieved.iter().map(|skill| skill.brief()).collect::<Vec<_>>().join("\n\n");
            let prompt =
                fill_within(USAGE, &[("attempt", &attempt), ("skills", &skills)], &["skills", "attempt"], limit, llm);
            let call = Call {
                purpose: "autoskill/usage",
                prompt,
                max_tokens: SHORT_REPLY_TOKENS,
                temperature: 0.0,
                form: Some(usage_form(&retrieved)),
            };
            if let Some(found) = llm.ask(call, used)? {
                judged.iter_mut().for_each(|(id, verdict)| *verdict = found.get(id).copied().unwrap_or((false, false)));
            }
        }
        for skill in &mut state.skills {
            if let Some((is_relevant, is_used)) = judged.get(&skill.id) {
                skill.retrieved += 1;
                skill.relevant += u32::from(*is_relevant);
                skill.used += u32::from(*is_used);
            }
        }
        state.skills.retain(|skill| skill.retrieved < PRUNE_RETRIEVED || skill.used > 0);
        Ok(())
    }
}

/// Skills by score: nine tenths cosine, one tenth BM25 over the best BM25 of all.
fn search(skills: &[Skill], query: &Vector, text: &str) -> Vec<(f64, usize)> {
    let documents: Vec<Vec<String>> = skills.iter().map(|skill| words(&skill.text.index())).collect();
    let by_words = scores(&words(text), &documents);
    let best = by_words.iter().copied().fold(0.0, f64::max);
    let share = |score: f64| if best > 0.0 { score / best } else { 0.0 };
    let blended = skills
        .iter()
        .zip(by_words)
        .map(|(skill, score)| (1.0 - BM25_WEIGHT) * skill.vector.cosine(query) + BM25_WEIGHT * share(score));
    ranked(blended)
}

/// The ids that the backbone would show. Unreadable even after one repair: the sole candidate, or the one with the most
/// words of the task, or none.
fn select(task: &TaskView, found: &[(f64, &Skill)], llm: &Asker<'_>) -> anyhow::Result<Vec<String>> {
    let briefs = found.iter().map(|(_, skill)| skill.brief()).collect::<Vec<_>>().join("\n\n");
    let values = [("skills", &*briefs), ("task", &*task.question), ("form", SELECT_FORM)];
    let limit = llm.room(PROMPT_TOKENS, SHORT_REPLY_TOKENS);
    let prompt = fill_within(SELECT, &values, &["skills", "task"], limit, llm);
    let call = Call {
        purpose: "autoskill/select",
        prompt,
        max_tokens: SHORT_REPLY_TOKENS,
        temperature: 0.0,
        form: Some(select_form(found)),
    };
    let ids = repair::ask(llm, call, "autoskill/select_repair", SELECT_FORM, |reply| {
        let value = ladder::value(reply, Kind::Object)?;
        let is_wanted = value.get("use_skills")?.as_bool()?;
        Some(if is_wanted { ladder::texts(&value, "selected_skill_ids") } else { Vec::new() })
    })?;
    Ok(match ids {
        Some(ids) => ids.into_iter().take(MOST_SELECTED).collect(),
        None if found.len() == 1 => vec![found[0].1.id.clone()],
        None => {
            let task = words(&task.question);
            let shared = found.iter().map(|(_, skill)| {
                let skill = words(&skill.text.index());
                task.iter().filter(|word| skill.contains(word)).count() as f64
            });
            let best = ranked(shared).into_iter().next().filter(|(shared, _)| *shared > 0.0);
            best.map(|(_, index)| found[index].1.id.clone()).into_iter().collect()
        }
    })
}

/// Adds, merges or drops a candidate.
fn maintain(
    state: &mut State,
    candidate: Candidate,
    position: u32,
    handles: &Handles<'_>,
    llm: &Asker<'_>,
) -> anyhow::Result<()> {
    let same = state.skills.iter().position(|skill| skill.text.identity() == candidate.text.identity());
    let action = match same {
        Some(index) => Action::Merge(index),
        None => decide(state, &candidate, llm)?,
    };
    match action {
        Action::Discard => tracing::debug!(name = candidate.text.name, "autoskill discards a candidate"),
        Action::Add => {
            let id = format!("skill-{}", state.made + 1);
            state.made += 1;
            let Candidate { text, confidence, vector } = candidate;
            state.skills.push(Skill {
                id,
                text,
                confidence,
                patch: 0,
                history: Vec::new(),
                created: position,
                updated: position,
                retrieved: 0,
                relevant: 0,
                used: 0,
                vector,
            });
        }
        Action::Merge(index) => {
            let text = merge(&state.skills[index], &candidate, llm)?;
            let vector = state.space.embed_one(NAME, &text.index(), handles)?;
            let skill = &mut state.skills[index];
            skill.history.push(std::mem::replace(&mut skill.text, text));
            let excess = skill.history.len().saturating_sub(HISTORY);
            skill.history.drain(..excess);
            skill.patch += 1;
            skill.updated = position;
            skill.confidence = skill.confidence.max(candidate.confidence);
            skill.vector = vector;
        }
    }
    Ok(())
}

enum Action {
    Add,
    Merge(usize),
    Discard,
}

fn decide(state: &State, candidate: &Candidate, llm: &Asker<'_>) -> anyhow::Result<Action> {
    let similar: Vec<(f64, usize)> =
        search(&state.skills, &candidate.vector, &candidate.text.index()).into_iter().take(SIMILAR).collect();
    let Some((best_score, best)) = similar.first().copied() else {
        return Ok(Action::Add);
    };
    let briefs = similar.iter().map(|(_, index)| state.skills[*index].brief()).collect::<Vec<_>>().join("\n\n");
    let shown = candidate.text.brief("candidate");
    let prompt = fill(DECIDE, &[("candidate", &shown), ("skills", &briefs)]);
    let call = Call {
        purpose: "autoskill/decide",
        prompt,
        max_tokens: SHORT_REPLY_TOKENS,
        temperature: 0.0,
        form: Some(decide_form(state, &similar)),
    };
    let decision = llm.ask(call, |reply| {
        let value = ladder::value(reply, Kind::Object)?;
        let action = ladder::text(&value, "action")?.to_lowercase();
        let target = ladder::text(&value, "target_skill_id").map(String::from);
        ["add", "merge", "discard"].contains(&action.as_str()).then_some((action, target))
    })?;
    let is_same = |index: usize| is_same_by_rule(&state.skills[index], candidate);
    Ok(match decision {
        None if is_same(best) => Action::Merge(best),
        None => Action::Add,
        Some((action, _)) if action == "discard" => Action::Discard,
        Some((action, target)) if action == "merge" => {
            let target = target.and_then(|id| state.skills.iter().position(|skill| skill.id == id));
            Action::Merge(target.unwrap_or(best))
        }
        Some(_) if best_score < GUARD => Action::Add,
        Some(_) => {
            let known = state.skills[best].brief();
            let prompt = fill(GATE, &[("known", &known), ("candidate", &shown)]);
            let call = Call {
                purpose: "autoskill/gate",
                prompt,
                max_tokens: SHORT_REPLY_TOKENS,
                temperature: 0.0,
                form: Some(gate_form()),
            };
            let verdict = llm.ask(call, |reply| {
                let value = ladder::value(reply, Kind::Object)?;
                Some((value.get("same_capability")?.as_bool()?, value.get("confidence")?.as_f64()?))
            })?;
            let is_merged = match verdict {
                Some((is_same, confidence)) if confidence >= GATE_CONFIDENCE => is_same,
                _ => is_same(best),
            };
            if is_merged { Action::Merge(best) } else { Action::Add }
        }
    })
}

/// The rule where no model decides: a blend of meaning, triggers and tags, and names.
fn is_same_by_rule(skill: &Skill, candidate: &Candidate) -> bool {
    let signals = |text: &Text| words(&[text.triggers.join(" "), text.tags.join(" ")].join(" "));
    let signal = overlap(&signals(&skill.text), &signals(&candidate.text));
    let name = overlap(&words(&skill.text.name), &words(&candidate.text.name));
    let blend = 0.70 * skill.vector.cosine(&candidate.vector) + 0.18 * signal + 0.12 * name;
    // At or above 0.82 surely, at or below 0.20 surely not, between them from 0.52: one threshold.
    blend >= 0.52
}

/// One text of two. Unreadable: the text of the surer side, and all triggers and tags.
fn merge(skill: &Skill, candidate: &Candidate, llm: &Asker<'_>) -> anyhow::Result<Text> {
    let prompt = fill(MERGE, &[("old", &skill.text.whole()), ("new", &candidate.text.whole())]);
    let call = Call {
        purpose: "autoskill/merge",
        prompt,
        max_tokens: REPLY_TOKENS,
        temperature: 0.0,
        form: Some(form::json(Text::form())),
    };
    let merged = llm.ask(call, |reply| Text::read(&ladder::value(reply, Kind::Object)?))?;
    let (old, new) = (&skill.text, &candidate.text);
    let mut text = merged.unwrap_or_else(|| {
        let surer = if candidate.confidence > skill.confidence { new } else { old };
        let union = |left: &[String], right: &[String]| [left, right].concat();
        let mut text = surer.clone();
        text.triggers = bounded(union(&old.triggers, &new.triggers), 8);
        text.tags = bounded(union(&old.tags, &new.tags), 8);
        text
    });
    text.resources = old.resources.clone().into_iter().chain(new.resources.clone()).take(MOST_RESOURCES).collect();
    Ok(text)
}

const MOST_RESOURCES: usize = 4;

/// What [`EXTRACT_FORM`] says in words.
fn extract_form(most: usize) -> Grammar {
    let confidence = ("confidence", form::share());
    let [name, description, prompt, triggers, tags] = Text::fields();
    let skill = form::object([name, description, prompt, triggers, tags, confidence]);
    form::json(form::object([("skills", form::list(skill, 0..=most))]))
}

/// What [`SELECT_FORM`] says in words, with the ids that are there.
fn select_form(found: &[(f64, &Skill)]) -> Grammar {
    let ids: Vec<&str> = found.iter().map(|(_, skill)| skill.id.as_str()).collect();
    form::json(form::object([
        ("use_skills", form::flag()),
        ("selected_skill_ids", form::list(form::choice(&ids), 0..=MOST_SELECTED)),
        ("reason", form::line(200)),
    ]))
}

fn decide_form(state: &State, similar: &[(f64, usize)]) -> Grammar {
    let ids = similar.iter().map(|(_, index)| state.skills[*index].id.as_str());
    let ids: Vec<&str> = ids.chain([""]).collect();
    form::json(form::object([
        ("action", form::choice(&["add", "merge", "discard"])),
        ("target_skill_id", form::choice(&ids)),
        ("reason", form::line(200)),
    ]))
}

fn gate_form() -> Grammar {
    form::json(form::object([("same_capability", form::flag()), ("confidence", form::share())]))
}

fn usage_form(retrieved: &[&Skill]) -> Grammar {
    let ids: Vec<&str> = retrieved.iter().map(|skill| skill.id.as_str()).collect();
    let skill = form::object([("id", form::choice(&ids)), ("relevant", form::flag()), ("used", form::flag())]);
    form::json(form::object([("skills", form::list(skill, 0..=ids.len()))]))
}

impl Text {
    fn fields() -> [(&'static str, Value); 5] {
        [
            ("name", form::line(80)),
            ("description", form::line(300)),
            ("prompt", form::text()),
            ("triggers", form::list(form::line(100), 0..=5)),
            ("tags", form::list(form::line(30), 0..=6)),
        ]
    }

    fn form() -> Value {
        form::object(Text::fields())
    }

    /// A skill in an object; without a name or instructions there is none. Everything is bounded.
    fn read(object: &Value) -> Option<Text> {
        let instructions = ladder::text(object, "prompt").or_else(|| ladder::text(object, "instructions"))?;
        let resources = object.get("resources").and_then(Value::as_object).into_iter().flatten();
        let is_inside = |path: &str| {
            ["scripts/", "references/", "assets/"].iter().any(|folder| path.starts_with(folder)) && !path.contains("..")
        };
        Some(Text {
            name: clip_line(ladder::text(object, "name")?, 80),
            description: clip_line(ladder::text(object, "description").unwrap_or_default(), 500),
            instructions: clip(instructions, 6000),
            triggers: bounded(ladder::texts(object, "triggers"), 5),
            tags: bounded(ladder::texts(object, "tags"), 6),
            resources: resources
                .filter(|(path, _)| is_inside(path) && path.len() <= 80)
                .filter_map(|(path, text)| Some((path.clone(), clip(text.as_str()?, 2000))))
                .take(MOST_RESOURCES)
                .collect(),
        })
    }

    /// Two skills with one identity are the same: the description, case and white space aside.
    fn identity(&self) -> String {
        let plain = self.description.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
        blake3::hash(plain.as_bytes()).to_hex()[..16].to_string()
    }

    /// What is embedded and searched.
    fn index(&self) -> String {
        let resources = self.resources.keys().cloned().collect::<Vec<_>>().join(", ");
        format!(
            "name: {}\ndescription: {}\ntriggers: {}\ntags: {}\nresources: {resources}",
            self.name,
            self.description,
            self.triggers.join(", "),
            self.tags.join(", ")
        )
    }

    fn brief(&self, id: &str) -> String {
        let (tags, triggers) = (self.tags.join(", "), self.triggers.join(", "));
        let preview = clip_line(&self.instructions, PREVIEW_CHARACTERS);
        format!(
            "id: {id}\nname: {}\ndescription: {}\ntags: {tags}\ntriggers: {triggers}\npreview: {preview}",
            self.name, self.description
        )
    }

    fn whole(&self) -> String {
        json!({
            "name": self.name, "description": self.description, "prompt": self.instructions,
            "triggers": self.triggers, "tags": self.tags,
        })
        .to_string()
    }
}

impl Skill {
    fn brief(&self) -> String {
        self.text.brief(&self.id)
    }

    fn block(&self, score: f64) -> Block {
        let Text { name, description, instructions, triggers, tags, resources } = &self.text;
        let mut text = format!("## {name} (version 0.1.{})\nid: {}\n{description}\n", self.patch, self.id);
        for (label, values) in [("Tags", tags), ("Triggers", triggers)] {
            if !values.is_empty() {
                text += &format!("{label}: {}\n", values.join(", "));
            }
        }
        if !resources.is_empty() {
            text += &format!("Resources: {}\n", resources.keys().cloned().collect::<Vec<_>>().join(", "));
        }
        Block { id: self.id.clone(), content: Content::Text(format!("{text}\n{instructions}")), score }
    }
}

/// Distinct short texts, at most so many.
fn bounded(texts: Vec<String>, most: usize) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for text in texts.iter().map(|text| clip_line(text, 100)) {
        if !kept.contains(&text) && kept.len() < most {
            kept.push(text);
        }
    }
    kept
}

/// The skills of an extraction: JSON, else labelled lines of one skill. `None` when neither can be read.
fn extracted(reply: &str) -> Option<Vec<(Text, f64)>> {
    let Some(value) = ladder::value(reply, Kind::Object) else {
        return Some(vec![(Text::read(&labelled(reply))?, 0.5)]);
    };
    let skills = value.get("skills")?.as_array()?;
    let read = |skill: &Value| {
        let confidence = skill.get("confidence").and_then(Value::as_f64).unwrap_or(0.5).clamp(0.0, 1.0);
        Some((Text::read(skill)?, confidence))
    };
    let found: Vec<(Text, f64)> = skills.iter().filter_map(read).collect();
    // A list of things that are no skills is a bad reply; an empty list is a decision.
    (skills.is_empty() || !found.is_empty()).then_some(found)
}

/// `name: …`, `description: …` and so on, each up to the next label.
fn labelled(reply: &str) -> Value {
    const LABELS: [&str; 5] = ["name", "description", "prompt", "triggers", "tags"];
    let mut fields: BTreeMap<&str, String> = BTreeMap::new();
    let mut open = None;
    for line in reply.lines() {
        let plain = line.trim_start_matches(|c: char| !c.is_alphanumeric());
        let label = LABELS.iter().find(|label| {
            plain.get(..label.len()).is_some_and(|start| start.eq_ignore_ascii_case(label))
                && plain[label.len()..].trim_start_matches('*').starts_with(':')
        });
        match (label, open) {
            (Some(label), _) => {
                let value = plain[label.len()..].trim_start_matches(['*', ':', ' ']);
                fields.insert(label, value.to_string());
                open = Some(*label);
            }
            (None, Some(label)) => {
                let field = fields.entry(label).or_default();
                field.push('\n');
                field.push_str(line);
            }
            (None, None) => {}
        }
    }
    let list = |text: Option<&String>| {
        text.map_or(Vec::new(), |text| text.split(',').map(|part| part.trim().to_string()).collect())
    };
    json!({
        "name": fields.get("name"), "description": fields.get("description"), "prompt": fields.get("prompt"),
        "triggers": list(fields.get("triggers")), "tags": list(fields.get("tags")),
    })
}

/// Whether each skill was relevant and whether it was used, by id.
fn used(reply: &str) -> Option<BTreeMap<String, (bool, bool)>> {
    let value = ladder::value(reply, Kind::Object)?;
    let verdict = |skill: &Value| {
        let flag = |key: &str| skill.get(key).and_then(Value::as_bool);
        Some((ladder::text(skill, "id")?.to_string(), (flag("relevant")?, flag("used")?)))
    };
    Some(value.get("skills")?.as_array()?.iter().filter_map(verdict).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::{Bench, create, experience, task};

    fn skill(name: &str, description: &str) -> String {
        json!({"skills": [{"name": name, "description": description, "prompt": format!("Do {name}."),
               "triggers": ["letters"], "tags": ["text"], "confidence": 0.8}]})
        .to_string()
    }

    /// Says what a table of (part of the prompt, reply) says.
    fn scripted(table: Vec<(&'static str, String)>) -> Bench {
        Bench::new(move |prompt| {
            let reply = table.iter().find(|(part, _)| prompt.contains(part)).map(|(_, reply)| reply.clone());
            reply.unwrap_or_else(|| panic!("{prompt}"))
        })
    }

    const EXTRACTION: &str = "skills worth keeping";
    const DECISION: &str = "add it, merge it or discard it";
    const MERGING: &str = "Merge the two";
    const CHOICE: &str = "Choose the skills";

    fn purposes(calls: &[crate::record::MemoryCall]) -> Vec<&str> {
        calls.iter().map(|call| call.purpose.as_str()).collect()
    }

    #[test]
    fn an_identical_description_goes_straight_to_the_merge_and_raises_the_patch_version() {
        let merged = json!({"name": "count", "description": "Counts  LETTERS", "prompt": "Better."}).to_string();
        let bench = scripted(vec![
            (EXTRACTION, skill("count", "counts letters")),
            (MERGING, merged),
            (CHOICE, r#"{"use_skills": true, "selected_skill_ids": ["skill-1"], "reason": ""}"#.into()),
        ]);
        let mut memory = create(NAME, "min_score = -1.0");
        assert_eq!(purposes(&bench.learn(memory.as_mut(), &experience("q", "r", true, 0))), ["autoskill/extract"]);
        for position in 1..40 {
            let calls = bench.learn(memory.as_mut(), &experience("q", "r", true, position));
            assert_eq!(purposes(&calls), ["autoskill/extract", "autoskill/merge"]);
        }
        let shown = bench.recall(memory.as_ref(), &task("q"));
        let text = shown.contexts[0].blocks[0].content.as_text();
        assert!(text.contains("version 0.1.39") && text.ends_with("Better."), "{text}");
        let state: Value = serde_json::from_slice(&memory.save()).unwrap();
        assert_eq!(state["state"]["skills"][0]["history"].as_array().unwrap().len(), HISTORY);
    }

    #[test]
    fn the_decision_and_its_fallbacks() {
        let decision =
            |action: &str, id: &str| json!({"action": action, "target_skill_id": id, "reason": ""}).to_string();
        let gate = |same: bool, confidence: f64| json!({"same_capability": same, "confidence": confidence}).to_string();
        let merged = json!({"name": "m", "description": "merged", "prompt": "Both."}).to_string();
        for (decided, gated, skills) in [
            (decision("discard", ""), gate(true, 1.0), 1),
            (decision("merge", "skill-1"), gate(false, 1.0), 1),
            (decision("merge", "no such"), gate(false, 1.0), 1),
            (decision("add", ""), gate(true, 0.9), 1),
            (decision("add", ""), gate(false, 0.9), 2),
            // An unsure gate and an unreadable decision leave it to the rule, for which these two are the same.
            (decision("add", ""), gate(false, 0.1), 1),
            ("no decision".into(), gate(false, 1.0), 1),
        ] {
            let bench = scripted(vec![
                ("new q0", skill("word count", "first")),
                ("new q1", skill("word count", "first one")),
                (DECISION, decided.clone()),
                ("same capability", gated),
                (MERGING, merged.clone()),
            ]);
            let mut memory = create(NAME, "selector = false");
            for position in 0..2 {
                bench.learn(memory.as_mut(), &experience(&format!("new q{position}"), "r", true, position));
            }
            let state: Value = serde_json::from_slice(&memory.save()).unwrap();
            assert_eq!(state["state"]["skills"].as_array().unwrap().len(), skills, "{decided}");
        }
    }

    #[test]
    fn failures_teach_nothing_and_a_bad_extraction_is_repaired_once() {
        let bench =
            Bench::new(|prompt| if prompt.contains("could not be read") { skill("a", "b") } else { "Hm {".into() });
        let mut memory = create(NAME, "");
        assert_eq!(bench.learn(memory.as_mut(), &experience("q", "r", false, 0)), []);
        let calls = bench.learn(memory.as_mut(), &experience("q", "r", true, 1));
        assert_eq!(purposes(&calls), ["autoskill/extract", "autoskill/extract_repair"]);
        assert_eq!(calls.iter().map(|call| call.is_read).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn a_selector_may_show_nothing_and_retrieval_is_counted_when_learning() {
        let nothing = json!({"use_skills": false, "selected_skill_ids": [], "reason": "none fits"}).to_string();
        let bench = scripted(vec![(EXTRACTION, skill("a", "b")), (CHOICE, nothing)]);
        let mut memory = create(NAME, "min_score = -1.0");
        bench.learn(memory.as_mut(), &experience("q", "r", true, 0));
        let (recall, _) = bench.step(memory.as_mut(), experience("q", "r", false, 1));
        assert!(recall.contexts.is_empty());
        let state: Value = serde_json::from_slice(&memory.save()).unwrap();
        let skill = &state["state"]["skills"][0];
        assert_eq!((&skill["retrieved"], &skill["used"]), (&json!(1), &json!(0)));
        for position in 2..42 {
            bench.step(memory.as_mut(), experience("q", "r", false, position));
        }
        let state: Value = serde_json::from_slice(&memory.save()).unwrap();
        assert_eq!(state["state"]["skills"], json!([]), "retrieved forty times and never used");
    }

    #[test]
    fn labelled_lines_are_read_where_there_is_no_json() {
        let found = extracted("**Name**: Count\nDescription: counts\nPrompt: Do it.\nTwice.\nTags: a, b").unwrap();
        assert_eq!(found[0].0.instructions, "Do it.\nTwice.");
        assert_eq!(found[0].0.tags, ["a", "b"]);
        assert_eq!(extracted("nothing here"), None);
        assert_eq!(extracted("{\"skills\": []}"), Some(Vec::new()));
    }

    #[test]
    fn a_resource_outside_its_folders_is_dropped() {
        let object = json!({"name": "n", "prompt": "p", "resources": {"../x": "bad", "scripts/../../x": "bad", "scripts/ok.py": "good"}});
        assert_eq!(Text::read(&object).unwrap().resources.keys().collect::<Vec<_>>(), ["scripts/ok.py"]);
    }
}
