//! SkillClaw: a library of skills that is revised in batches, from the sessions in which its skills were read (arXiv
//! 2604.08377; released code: `evolve_server/`, conservative editing, direct publishing).
//!
//! Departures: solvers here have no tool to read a skill, so the backbone first chooses one skill from the catalogue and
//! that skill's text is shown (`mode = "two_step"`); a batch is 5 sessions, so that the warm-up of a probe-centred
//! sequence makes one cycle; an edit that is based on the stored text is not merged with it (the released comparison
//! almost always differs); skills are named by BLAKE3; the optional verifier and the vote on every turn are left out;
//! proposals and judgements are held to their JSON form and a choice to the names that are there (`constrained`), with the
//! body inside the JSON.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bound::{clip, clip_line};
use super::form;
use super::ladder;
use super::llm::{Asker, Call};
use super::snapshot::Layout;
use super::template::fill_within;
use super::trajectory::{self, Outcome};
use super::vector::{Space, Vector, ranked};
use super::{Block, Content, Context, Handles, Memory, MemoryMethod, Recall, Resolved, TextPlacement, options};
use crate::engine::grammar::Grammar;
use crate::record::{Experience, TaskView};
use crate::registry::Registered;
use crate::reply::fence;
use crate::reply::json::Kind;

pub struct SkillClaw;

const NAME: &str = "skillclaw";
const CHOOSE: &str = include_str!("../../configs/prompts/skillclaw_choose.txt");
const PREAMBLE: &str = include_str!("../../configs/prompts/skillclaw_preamble.txt");
const SUMMARISE: &str = include_str!("../../configs/prompts/skillclaw_summarise.txt");
const JUDGE: &str = include_str!("../../configs/prompts/skillclaw_judge.txt");
const EVOLVE: &str = include_str!("../../configs/prompts/skillclaw_evolve.txt");
const EVOLVE_NEW: &str = include_str!("../../configs/prompts/skillclaw_evolve_new.txt");
const PRINCIPLES: &str = include_str!("../../configs/prompts/skillclaw_principles.txt");
const MERGE: &str = include_str!("../../configs/prompts/skillclaw_merge.txt");

const CATALOGUE_CHARACTERS: usize = 30_000;
const SESSION_CHARACTERS: usize = 4000;
const BODY_CHARACTERS: usize = 8000;
const NEAR_DUPLICATE: f64 = 0.9;
const EVIDENCE: usize = 30;
const HISTORY: usize = 20;
const POSITIVE: f64 = 0.67;
const NEGATIVE: f64 = 0.33;
const PROMPT_TOKENS: usize = 16_000;
const CHOICE_TOKENS: usize = 64;
const SUMMARY_TOKENS: usize = 800;
const JUDGE_TOKENS: usize = 1200;
const EVOLVE_TOKENS: usize = 8192;

/// Options of `[[agents]]` with `memory = "skillclaw"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    mode: Mode,
    /// Sessions that start one revision of the library.
    batch: usize,
    /// Skills shown with `mode = "embedding"`.
    k: usize,
    /// Most skills kept; the least effective and oldest leave.
    max_skills: usize,
    /// Whether replies are held to their form, where they have one; the published method parses free text.
    constrained: bool,
    placement: TextPlacement,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// The backbone reads the catalogue and chooses one skill or none; being chosen is being read.
    TwoStep,
    /// The k nearest skills by cosine and effectiveness are shown; being shown is not being read.
    Embedding,
}

impl Default for Options {
    fn default() -> Self {
        let placement = TextPlacement::AfterInstructions;
        Options { mode: Mode::TwoStep, batch: 5, k: 6, max_skills: 200, constrained: true, placement }
    }
}

impl Options {
    fn read(table: &toml::Table) -> anyhow::Result<Options> {
        let options: Options = options(NAME, table)?;
        for (key, value) in [("batch", options.batch), ("k", options.k), ("max_skills", options.max_skills)] {
            ensure!(value > 0, "memory `skillclaw`: `{key}` must be at least 1, found 0");
        }
        Ok(options)
    }
}

impl Registered for SkillClaw {
    fn name(&self) -> &str {
        NAME
    }
    fn about(&self) -> &str {
        "a skill library revised in batches from the sessions that read its skills"
    }
    fn source(&self) -> &str {
        "SkillClaw, arXiv 2604.08377; PATH-Bench agent"
    }
}

impl MemoryMethod for SkillClaw {
    fn create(&self, table: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        Ok(Box::new(Library { options: Options::read(table)?, state: State::default() }))
    }

    fn resolve(&self, table: &toml::Table) -> anyhow::Result<Resolved> {
        let options = Options::read(table)?;
        let needs_embedder = options.mode == Mode::Embedding;
        Ok(Resolved { needs_embedder, max_memory_tokens: Resolved::LIBRARY_TOKENS, ..Resolved::of(&options)? })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct State {
    space: Space,
    /// In the order they were made.
    skills: Vec<Skill>,
    /// Finished sessions that await the next revision.
    queue: Vec<Session>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Skill {
    /// First 12 hex digits of the BLAKE3 digest of the name.
    id: String,
    name: String,
    description: String,
    category: String,
    body: String,
    version: u32,
    /// Former versions' digests, oldest first.
    history: Vec<String>,
    stats: Stats,
    vector: Option<Vector>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Stats {
    injected: u32,
    positive: u32,
    negative: u32,
    neutral: u32,
}

impl Stats {
    fn effectiveness(self) -> f64 {
        if self.injected == 0 { 0.5 } else { f64::from(self.positive) / f64::from(self.injected) }
    }
}

/// One attempt as evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Session {
    text: String,
    grade: Option<f64>,
    shown: Vec<String>,
    read: Vec<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct Pending {
    shown: Vec<String>,
    read: Vec<String>,
}

struct Library {
    options: Options,
    state: State,
}

impl Memory for Library {
    fn recall(&self, task: &TaskView, handles: &Handles<'_>) -> anyhow::Result<Recall> {
        if self.state.skills.is_empty() {
            return Ok(Recall::default());
        }
        let (shown, pending) = match self.options.mode {
            Mode::TwoStep => {
                let chosen = choose(&self.state.skills, task, &handles.asker(NAME, self.options.constrained)?)?;
                let names: Vec<String> = chosen.iter().map(|skill| skill.name.clone()).collect();
                (chosen.into_iter().map(|skill| (1.0, skill)).collect(), Pending { shown: names.clone(), read: names })
            }
            Mode::Embedding => {
                let shown = self.nearest(task, handles)?;
                let names = shown.iter().map(|(_, skill)| skill.name.clone()).collect();
                (shown, Pending { shown: names, read: Vec::new() })
            }
        };
        let blocks = shown.into_iter().map(|(score, skill)| Block {
            id: skill.name.clone(),
            content: Content::Text(format!("## {}\n{}\n\n{}", skill.name, skill.description, skill.body)),
            score,
        });
        let placement = self.options.placement.into();
        let recall = Recall::of(Context { placement, preamble: PREAMBLE.trim_end().into(), blocks: blocks.collect() });
        Ok(Recall { pending: serde_json::to_value(pending)?, ..recall })
    }

    fn learn(&mut self, experience: &Experience, handles: &Handles<'_>) -> anyhow::Result<()> {
        let llm = &handles.asker(NAME, self.options.constrained)?;
        let Pending { shown, read } = serde_json::from_value(experience.pending.clone()).unwrap_or_default();
        let mut state = self.state.clone();
        state.queue.push(Session {
            text: clip(&trajectory::compact(experience, Outcome::Hidden), SESSION_CHARACTERS),
            grade: experience.feedback.grade(),
            shown,
            // What the attempt did not get to see was not read.
            read: read.into_iter().filter(|name| experience.recalled.contains(name)).collect(),
        });
        if state.queue.len() >= self.options.batch {
            let sessions = std::mem::take(&mut state.queue);
            self.evolve(&mut state, sessions, llm)?;
            while state.skills.len() > self.options.max_skills {
                let worst = (0..state.skills.len()).min_by(|left, right| {
                    let value = |index: &usize| state.skills[*index].stats.effectiveness();
                    value(left).total_cmp(&value(right)).then(left.cmp(right))
                });
                state.skills.remove(worst.unwrap_or(0));
            }
            if self.options.mode == Mode::Embedding {
                self.embed(&mut state, handles)?;
            }
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

    /// The best by cosine weighted with effectiveness, near duplicates of better ones left out.
    fn nearest(&self, task: &TaskView, handles: &Handles<'_>) -> anyhow::Result<Vec<(f64, &Skill)>> {
        let query = self.state.space.embed_query(NAME, &task.question, handles)?;
        let vector = |skill: &Skill| skill.vector.clone().unwrap_or_default();
        let weight = |skill: &Skill| 0.3 + 0.7 * skill.stats.effectiveness();
        let order = ranked(self.state.skills.iter().map(|skill| vector(skill).cosine(&query) * weight(skill)));
        let mut kept: Vec<(f64, &Skill)> = Vec::new();
        for (score, index) in order.into_iter().take(3 * self.options.k) {
            let skill = &self.state.skills[index];
            let is_double = kept.iter().any(|(_, other)| vector(other).cosine(&vector(skill)) > NEAR_DUPLICATE);
            if !is_double && kept.len() < self.options.k {
                kept.push((score, skill));
            }
        }
        Ok(kept)
    }

    fn embed(&self, state: &mut State, handles: &Handles<'_>) -> anyhow::Result<()> {
        let missing: Vec<usize> =
            (0..state.skills.len()).filter(|&index| state.skills[index].vector.is_none()).collect();
        let texts: Vec<String> = missing.iter().map(|&index| state.skills[index].index()).collect();
        for (index, vector) in missing.into_iter().zip(state.space.embed(NAME, &texts, handles)?) {
            state.skills[index].vector = Some(vector);
        }
        state.space.settle(handles);
        Ok(())
    }

    /// One revision: summaries and judgements, one proposal a group of sessions, then the edits in order.
    fn evolve(&self, state: &mut State, mut sessions: Vec<Session>, llm: &Asker<'_>) -> anyhow::Result<()> {
        let summaries = assess(&mut sessions, llm)?;
        for session in &sessions {
            count(&mut state.skills, session);
        }
        // `None` are the sessions that read nothing; a session may stand in several groups.
        let mut groups: BTreeMap<Option<String>, Vec<usize>> = BTreeMap::new();
        for (index, session) in sessions.iter().enumerate() {
            let known = session.read.iter().filter(|name| state.skills.iter().any(|skill| skill.name == **name));
            let mut is_alone = true;
            for name in known {
                groups.entry(Some(name.clone())).or_default().push(index);
                is_alone = false;
            }
            if is_alone {
                groups.entry(None).or_default().push(index);
            }
        }
        let calls: Vec<Call> = groups
            .iter()
            .map(|(name, members)| proposal_call(state, name.as_deref(), members, &sessions, &summaries, llm))
            .collect();
        let proposals = llm.ask_all(calls, |_, reply| Proposal::read(reply))?;
        // What each proposal was based on.
        let bases: BTreeMap<String, String> =
            state.skills.iter().map(|skill| (skill.name.clone(), skill.digest())).collect();
        for (group, proposal) in groups.keys().zip(proposals) {
            if let Some(proposal) = proposal {
                apply(state, group.as_deref(), proposal, &bases, llm)?;
            }
        }
        Ok(())
    }
}

/// The skill that the backbone chooses, at most one.
fn choose<'s>(skills: &'s [Skill], task: &TaskView, llm: &Asker<'_>) -> anyhow::Result<Vec<&'s Skill>> {
    let entry = |skill: &Skill, with: bool| match with {
        true => format!("<skill><name>{}</name><description>{}</description></skill>", skill.name, skill.description),
        false => format!("<skill><name>{}</name></skill>", skill.name),
    };
    let listed = |with: bool| skills.iter().map(|skill| entry(skill, with)).collect::<Vec<_>>().join("\n");
    let mut catalogue = listed(true);
    if catalogue.chars().count() > CATALOGUE_CHARACTERS {
        catalogue = listed(false);
    }
    let limit = llm.room(PROMPT_TOKENS, CHOICE_TOKENS);
    let values = [("catalogue", &*catalogue), ("task", &*task.question)];
    let prompt = fill_within(CHOOSE, &values, &["catalogue", "task"], limit, llm);
    let call = Call {
        purpose: "skillclaw/choose",
        prompt,
        max_tokens: CHOICE_TOKENS,
        temperature: 0.0,
        form: Some(choice_form(skills)),
    };
    let chosen = llm.ask(call, |reply| {
        let said = ladder::unfenced(reply);
        let said = said.trim().trim_matches(|c: char| !c.is_alphanumeric());
        if said.eq_ignore_ascii_case("none") {
            return Some(None);
        }
        let exact = skills.iter().find(|skill| skill.name == said);
        exact.or_else(|| skills.iter().find(|skill| skill.name.eq_ignore_ascii_case(said))).map(Some)
    })?;
    Ok(chosen.flatten().into_iter().collect())
}

/// One of the names, or that none fits.
fn choice_form(skills: &[Skill]) -> Grammar {
    let names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).chain(["NONE"]).collect();
    // Slugs: no character of a name has a meaning in a regular expression.
    Grammar::Regex(names.join("|"))
}

fn judge_form() -> Grammar {
    let [a, b, c, d] = WEIGHTS.map(|(key, _)| (key, form::share()));
    form::json(form::object([a, b, c, d, ("reason", form::line(200))]))
}

/// What one call of the first round yields.
enum Assessment {
    Summary(String),
    Grade(f64),
}

/// A summary of each session (empty when unreadable), and a grade for those that have none (still none when unreadable).
fn assess(sessions: &mut [Session], llm: &Asker<'_>) -> anyhow::Result<Vec<String>> {
    let call = |purpose, template, session: &Session, max_tokens, temperature, form| {
        let limit = llm.room(PROMPT_TOKENS, max_tokens);
        let outcome = session.grade.map_or("not known".to_string(), |grade| format!("score {grade:.2} of 1"));
        let values = [("session", &*session.text), ("outcome", &*outcome)];
        let prompt = fill_within(template, &values, &["session"], limit, llm);
        Call { purpose, prompt, max_tokens, temperature, form }
    };
    let ungraded: Vec<usize> = (0..sessions.len()).filter(|&index| sessions[index].grade.is_none()).collect();
    let mut calls: Vec<Call> = sessions
        .iter()
        .map(|session| call("skillclaw/summarise", SUMMARISE, session, SUMMARY_TOKENS, 0.2, None))
        .collect();
    calls.extend(
        ungraded
            .iter()
            .map(|&index| call("skillclaw/judge", JUDGE, &sessions[index], JUDGE_TOKENS, 0.1, Some(judge_form()))),
    );
    let found = llm.ask_all(calls, |index, reply| {
        if index < sessions.len() {
            summary(reply).map(Assessment::Summary)
        } else {
            judged(reply).map(Assessment::Grade)
        }
    })?;
    let mut summaries = vec![String::new(); sessions.len()];
    for (index, found) in found.into_iter().enumerate() {
        match found {
            Some(Assessment::Summary(text)) => summaries[index] = text,
            Some(Assessment::Grade(grade)) => sessions[ungraded[index - summaries.len()]].grade = Some(grade),
            None => {}
        }
    }
    Ok(summaries)
}

/// Plain analysis; what has no sentence of three words is none, and neither is a bare value.
fn summary(reply: &str) -> Option<String> {
    let text = clip(reply, 4000);
    let is_text = text.split_whitespace().count() >= 8 && !text.starts_with(['{', '[']);
    is_text.then_some(text)
}

/// The judge's scores and their weights.
const WEIGHTS: [(&str, f64); 4] =
    [("task_completion", 0.55), ("response_quality", 0.30), ("efficiency", 0.05), ("tool_usage", 0.10)];

/// The weighted mean of the judge's four scores, computed here and not by the model.
fn judged(reply: &str) -> Option<f64> {
    let value = ladder::value(reply, Kind::Object)?;
    let scores: Option<Vec<f64>> = WEIGHTS
        .iter()
        .map(|(key, weight)| Some(weight * value.get(key)?.as_f64().filter(|score| (0.0..=1.0).contains(score))?))
        .collect();
    scores.map(|scores| scores.iter().sum())
}

/// Uses of the skills that a session was shown, by how it went.
fn count(skills: &mut [Skill], session: &Session) {
    for skill in skills.iter_mut().filter(|skill| session.shown.contains(&skill.name)) {
        skill.stats.injected += 1;
        match session.grade {
            Some(grade) if grade >= POSITIVE => skill.stats.positive += 1,
            Some(grade) if grade <= NEGATIVE => skill.stats.negative += 1,
            _ => skill.stats.neutral += 1,
        }
    }
}

fn proposal_call(
    state: &State,
    name: Option<&str>,
    members: &[usize],
    sessions: &[Session],
    summaries: &[String],
    llm: &Asker<'_>,
) -> Call {
    let evidence = members.iter().take(EVIDENCE).map(|&index| {
        let Session { text, grade, .. } = &sessions[index];
        let outcome = grade.map_or("not known".to_string(), |grade| format!("score {grade:.2} of 1"));
        format!("Outcome: {outcome}\nSummary: {}\n{text}", summaries[index])
    });
    let evidence = evidence.collect::<Vec<_>>().join("\n\n---\n\n");
    let names = state.skills.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>().join(", ");
    let limit = llm.room(PROMPT_TOKENS, EVOLVE_TOKENS);
    let skill = name.and_then(|name| state.skills.iter().find(|skill| skill.name == name));
    let (purpose, prompt) = match skill {
        Some(skill) => {
            let current = skill.file();
            let values = [
                ("principles", PRINCIPLES.trim_end()),
                ("skill", &*current),
                ("names", &*names),
                ("evidence", &*evidence),
            ];
            ("skillclaw/evolve_skill", fill_within(EVOLVE, &values, &["evidence", "names"], limit, llm))
        }
        None => {
            let values = [("principles", PRINCIPLES.trim_end()), ("names", &*names), ("evidence", &*evidence)];
            ("skillclaw/evolve_new", fill_within(EVOLVE_NEW, &values, &["evidence", "names"], limit, llm))
        }
    };
    Call { purpose, prompt, max_tokens: EVOLVE_TOKENS, temperature: 0.4, form: Some(Proposal::form(skill.is_some())) }
}

/// What the backbone proposes for one group.
#[derive(Debug, PartialEq)]
enum Proposal {
    Skip,
    Describe(String),
    /// A new body, and a new description where one is given.
    Improve {
        description: Option<String>,
        body: String,
    },
    Create {
        name: String,
        description: String,
        category: String,
        body: String,
    },
}

impl Proposal {
    fn form(has_skill: bool) -> Grammar {
        let fields = || {
            [
                ("name", form::name(64)),
                ("description", form::line(300)),
                ("category", form::line(60)),
                ("body", form::text()),
            ]
        };
        let acted = |actions: &[&str], skill: Value| {
            let (action, rationale) = (("action", form::choice(actions)), ("rationale", form::line(160)));
            form::object([action, rationale, ("skill", skill)])
        };
        let skipped = form::object([("action", form::choice(&["skip"])), ("rationale", form::line(160))]);
        let [name, description, category, _] = fields();
        let described = form::object([name, description, category]);
        form::json(form::any(if has_skill {
            let whole = acted(&["improve_skill", "create_skill"], form::object(fields()));
            vec![whole, acted(&["optimize_description"], described), skipped]
        } else {
            vec![acted(&["create_skill"], form::object(fields())), skipped]
        }))
    }

    /// JSON; the body may stand in a fenced block after it, since Markdown inside JSON is where small models fail.
    fn read(reply: &str) -> Option<Proposal> {
        let value = ladder::value(reply, Kind::Object)?;
        let skill = value.get("skill").filter(|skill| skill.is_object()).unwrap_or(&value);
        let fenced = || {
            let blocks = fence::blocks(reply);
            blocks.into_iter().find(|block| !block.is_tagged("json") && !block.text.trim_start().starts_with('{'))
        };
        let text = |key: &str| ladder::text(skill, key).map(String::from);
        let body = || {
            let body = text("body").or_else(|| fenced().map(|block| block.text));
            body.map(|body| clip(&body, BODY_CHARACTERS)).filter(|body| !body.is_empty())
        };
        let description = || text("description").map(|text| clip_line(&text, 500));
        Some(match ladder::text(&value, "action")?.to_lowercase().as_str() {
            "skip" => Proposal::Skip,
            "optimize_description" => Proposal::Describe(description()?),
            "improve_skill" => Proposal::Improve { description: description(), body: body()? },
            "create_skill" => Proposal::Create {
                name: slug(&text("name")?)?,
                description: description()?,
                category: clip_line(&text("category").unwrap_or_else(|| "general".into()), 60),
                body: body()?,
            },
            _ => return None,
        })
    }
}

/// Lower-case words joined by hyphens; `None` when nothing is left.
fn slug(name: &str) -> Option<String> {
    let words: Vec<String> = name
        .to_lowercase()
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(String::from)
        .collect();
    let slug: String = words.join("-").chars().take(64).collect();
    Some(slug.trim_end_matches('-').to_string()).filter(|slug| !slug.is_empty())
}

fn apply(
    state: &mut State,
    group: Option<&str>,
    proposal: Proposal,
    bases: &BTreeMap<String, String>,
    llm: &Asker<'_>,
) -> anyhow::Result<()> {
    let (name, description, body) = match proposal {
        Proposal::Skip => return Ok(()),
        Proposal::Create { name, description, category, body } => {
            if state.skills.iter().all(|skill| skill.name != name) {
                state.skills.push(Skill::new(name, description, category, body));
                return Ok(());
            }
            (name, Some(description), Some(body))
        }
        Proposal::Improve { description, body } => (group.unwrap_or_default().to_string(), description, Some(body)),
        Proposal::Describe(description) => (group.unwrap_or_default().to_string(), Some(description), None),
    };
    let Some(skill) = state.skills.iter_mut().find(|skill| skill.name == name) else {
        // An edit of no skill: the group had none to edit.
        return Ok(());
    };
    let mut body = body.unwrap_or_else(|| skill.body.clone());
    if bases.get(&name) != Some(&skill.digest()) {
        let values = [("name", &*name), ("stored", &*skill.body), ("proposed", &*body)];
        let limit = llm.room(PROMPT_TOKENS, EVOLVE_TOKENS);
        let prompt = fill_within(MERGE, &values, &["proposed", "stored"], limit, llm);
        let call = Call { purpose: "skillclaw/merge", prompt, max_tokens: EVOLVE_TOKENS, temperature: 0.3, form: None };
        let merged = llm
            .ask(call, |reply| Some(clip(&ladder::unfenced(reply), BODY_CHARACTERS)).filter(|text| !text.is_empty()))?;
        body = merged.unwrap_or(body);
    }
    skill.history.push(skill.digest());
    let excess = skill.history.len().saturating_sub(HISTORY);
    skill.history.drain(..excess);
    skill.version += 1;
    skill.body = body;
    skill.description = description.unwrap_or_else(|| std::mem::take(&mut skill.description));
    skill.vector = None;
    Ok(())
}

impl Skill {
    fn new(name: String, description: String, category: String, body: String) -> Skill {
        let id = blake3::hash(name.as_bytes()).to_hex()[..12].to_string();
        let (history, stats) = (Vec::new(), Stats::default());
        Skill { id, name, description, category, body, version: 1, history, stats, vector: None }
    }

    /// The skill as its SKILL.md.
    fn file(&self) -> String {
        format!(
            "---\nname: {}\ndescription: {}\ncategory: {}\n---\n\n{}",
            self.name, self.description, self.category, self.body
        )
    }

    fn digest(&self) -> String {
        blake3::hash(self.file().as_bytes()).to_hex()[..16].to_string()
    }

    /// What is embedded.
    fn index(&self) -> String {
        format!("{}\n{}\n{}", self.name, self.description, self.body.chars().take(200).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::memory::tests::{Bench, create, experience, task};

    fn proposal(action: &str, name: &str, body: &str) -> String {
        json!({"action": action, "rationale": "r", "skill": {"name": name, "description": "about it", "category": "c", "body": body}})
            .to_string()
    }

    const SUMMARY: &str = "The agent read the task, did it in one step and was right.";

    /// A backbone that chooses `chosen` and proposes by whether a skill is at hand.
    fn backbone(chosen: &'static str, for_skill: String, for_none: String) -> Bench {
        Bench::new(move |prompt| {
            if prompt.contains("Choose the one skill") {
                chosen.to_string()
            } else if prompt.contains("Summarise the session") {
                SUMMARY.to_string()
            } else if prompt.contains("two versions of one skill") {
                "merged body".to_string()
            } else if prompt.contains("<current_skill>") {
                for_skill.clone()
            } else {
                for_none.clone()
            }
        })
    }

    fn live(bench: &Bench, memory: &mut dyn Memory, positions: std::ops::Range<u32>) -> Vec<String> {
        let step = |position| bench.step(memory, experience(&format!("q{position}"), "r", true, position)).1;
        positions.flat_map(step).map(|call| call.purpose).collect()
    }

    #[test]
    fn one_cycle_a_batch_and_an_edit_on_its_base_is_not_merged() {
        let bench = backbone(
            "Count-Letters.",
            proposal("improve_skill", "", "better"),
            proposal("create_skill", "Count letters", "body"),
        );
        let mut memory = create(NAME, "batch = 2");
        assert_eq!(
            live(&bench, memory.as_mut(), 0..2),
            ["skillclaw/summarise", "skillclaw/summarise", "skillclaw/evolve_new"]
        );
        let calls = live(&bench, memory.as_mut(), 2..4);
        let expected = [
            "skillclaw/choose",
            "skillclaw/choose",
            "skillclaw/summarise",
            "skillclaw/summarise",
            "skillclaw/evolve_skill",
        ];
        assert_eq!(calls, expected);
        let shown = bench.recall(memory.as_ref(), &task("x"));
        assert_eq!(shown.contexts[0].blocks[0].content.as_text(), "## count-letters\nabout it\n\nbetter");
        let state: Value = serde_json::from_slice(&memory.save()).unwrap();
        let skill = &state["state"]["skills"][0];
        assert_eq!((&skill["version"], &skill["stats"]["positive"]), (&json!(2), &json!(2)));
    }

    #[test]
    fn a_second_edit_of_one_skill_in_one_cycle_is_merged() {
        let first = Bench::new(|prompt| {
            if prompt.contains("Summarise") { SUMMARY.into() } else { proposal("create_skill", "a", "body") }
        });
        let mut memory = create(NAME, "batch = 1");
        live(&first, memory.as_mut(), 0..1);
        // The no-skill bucket makes a skill that is there, and the skill's own group improves it: in this order.
        let chooser = std::sync::atomic::AtomicU32::new(0);
        let bench = Bench::new(move |prompt| {
            if prompt.contains("Choose the one skill") {
                let turn = chooser.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                return if turn == 0 { "a" } else { "NONE" }.to_string();
            }
            match prompt {
                prompt if prompt.contains("Summarise") => SUMMARY.into(),
                prompt if prompt.contains("two versions of one skill") => "merged body".into(),
                prompt if prompt.contains("<current_skill>") => proposal("improve_skill", "", "from its group"),
                _ => proposal("create_skill", "a", "from the bucket"),
            }
        });
        let saved = memory.save();
        let text = String::from_utf8(saved).unwrap();
        let mut memory = create(NAME, "batch = 2");
        let digest = |options: &str| blake3::hash(options.as_bytes()).to_hex()[..16].to_string();
        let options = |batch| {
            format!(
                r#"{{"mode":"two_step","batch":{batch},"k":6,"max_skills":200,"constrained":true,"placement":"after_instructions"}}"#
            )
        };
        memory.load(text.replace(&digest(&options(1)), &digest(&options(2))).as_bytes()).unwrap();
        let calls = live(&bench, memory.as_mut(), 1..3);
        assert_eq!(calls.iter().filter(|purpose| *purpose == "skillclaw/merge").count(), 1, "{calls:?}");
    }

    #[test]
    fn a_skill_that_was_shown_and_not_read_gets_no_evidence() {
        let bench = backbone("", "unused".into(), proposal("create_skill", "a", "body"));
        let mut memory = create(NAME, "batch = 1\nmode = \"embedding\"");
        live(&bench, memory.as_mut(), 0..1);
        assert_eq!(live(&bench, memory.as_mut(), 1..2), ["skillclaw/summarise", "skillclaw/evolve_new"]);
    }

    #[test]
    fn an_unknown_choice_is_none_and_an_ungraded_session_is_judged() {
        let bench = backbone("all of them", String::new(), proposal("create_skill", "a", "body"));
        let mut memory = create(NAME, "batch = 1");
        live(&bench, memory.as_mut(), 0..1);
        let (recall, calls) = bench.recall_at(memory.as_ref(), &task("x"), 1);
        assert!(recall.contexts.is_empty() && !calls[0].is_read);
        let mut untold = experience("q", "r", true, 1);
        untold.feedback = crate::record::Feedback::Withheld;
        let purposes: Vec<String> =
            bench.learn(memory.as_mut(), &untold).into_iter().map(|call| call.purpose).collect();
        assert_eq!(purposes, ["skillclaw/summarise", "skillclaw/judge", "skillclaw/evolve_new"]);
        let scores = r#"{"task_completion": 1.0, "response_quality": 0.5, "efficiency": 0, "tool_usage": 1}"#;
        assert!((judged(scores).unwrap() - 0.8).abs() < 1e-12);
        assert_eq!(judged(r#"{"task_completion": 7}"#), None);
    }

    #[test]
    fn a_body_may_stand_in_a_fence_behind_the_json() {
        let reply = "{\"action\": \"improve_skill\", \"rationale\": \"\", \"skill\": {\"description\": \"d\"}}\n```markdown\n# Body\n\"quoted\"\n```";
        let expected = Proposal::Improve { description: Some("d".into()), body: "# Body\n\"quoted\"".into() };
        assert_eq!(Proposal::read(reply), Some(expected));
        assert_eq!(Proposal::read("{\"action\": \"delete_skill\"}"), None);
        assert_eq!(slug("  Count_the Letters! "), Some("count-the-letters".into()));
    }
}
