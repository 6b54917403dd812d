//! SimpleMem: attempts are cut into dialogue windows, each window becomes facts that stand alone, and recall plans its
//! searches (arXiv 2601.02553; the current released system: `core/memory_builder.py`, `core/hybrid_retriever.py`).
//!
//! An attempt is told as a dialogue between user, agent, environment and evaluator under a virtual clock, so that the
//! rule of absolute times invents no dates. Departures: a window never spans attempts and is also closed at 6000 tokens;
//! what recall merges is capped at the 10 nearest facts; the planning prompts speak of solving a task. Replies
//! are held to their JSON form (`constrained`). The earlier system of the paper (entropy gate, consolidation) is
//! `simplemem_paper`.

use anyhow::ensure;
use jiff::{ToSpan as _, civil};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bm25::{scores, words};
use super::bound::{clip, clip_line};
use super::form;
use super::ladder;
use super::llm::{Asker, Call};
use super::snapshot::Layout;
use super::template::fill_within;
use super::trajectory;
use super::vector::{Space, Vector, ranked};
use super::{Block, Content, Context, Handles, Memory, MemoryMethod, Recall, Resolved, TextPlacement, options};
use crate::engine::grammar::Grammar;
use crate::record::{Experience, TaskView};
use crate::registry::Registered;
use crate::reply::json::Kind;

pub struct SimpleMem;

const NAME: &str = "simplemem";
const PREAMBLE: &str = include_str!("../../configs/prompts/simplemem_preamble.txt");
const EXTRACT: &str = include_str!("../../configs/prompts/simplemem_extract.txt");
const REQUIREMENTS: &str = include_str!("../../configs/prompts/simplemem_requirements.txt");
const QUERIES: &str = include_str!("../../configs/prompts/simplemem_queries.txt");
const ANALYSE: &str = include_str!("../../configs/prompts/simplemem_analyse.txt");
const CHECK: &str = include_str!("../../configs/prompts/simplemem_check.txt");
const MORE: &str = include_str!("../../configs/prompts/simplemem_more.txt");

const TRIES: u32 = 3;
const MOST_QUERIES: usize = 4;
const MOST_MORE_QUERIES: usize = 3;
const PREVIOUS: usize = 3;
/// Of one window.
const MOST_FACTS: usize = 40;
const PROMPT_TOKENS: usize = 10_000;
const WINDOW_TOKENS: usize = 6000;
const EXTRACT_TOKENS: usize = 2048;
const PLAN_TOKENS: usize = 512;
const SAID_CHARACTERS: usize = 4000;
const OBSERVATION_CHARACTERS: usize = 300;

/// Options of `[[agents]]` with `memory = "simplemem"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// Dialogue lines of one window.
    window: usize,
    /// Lines that two windows share.
    overlap: usize,
    /// Facts taken by each search.
    semantic_k: usize,
    keyword_k: usize,
    structured_k: usize,
    /// Whether recall plans its queries; else the question is the only one.
    planning: bool,
    /// Rounds in which the backbone may ask for more.
    reflection_rounds: u32,
    /// Most facts shown.
    max_shown: usize,
    /// Most facts kept; the oldest leave.
    max_facts: usize,
    /// Whether replies are held to their form, where they have one; the published method parses free text.
    constrained: bool,
    placement: TextPlacement,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            window: 40,
            overlap: 2,
            semantic_k: 25,
            keyword_k: 5,
            structured_k: 5,
            planning: true,
            reflection_rounds: 2,
            max_shown: 10,
            max_facts: 1000,
            constrained: true,
            placement: TextPlacement::BeforeQuestion,
        }
    }
}

impl Options {
    fn read(table: &toml::Table) -> anyhow::Result<Options> {
        let options: Options = options(NAME, table)?;
        let counts =
            [("semantic_k", options.semantic_k), ("max_shown", options.max_shown), ("max_facts", options.max_facts)];
        for (key, value) in counts {
            ensure!(value > 0, "memory `simplemem`: `{key}` must be at least 1, found 0");
        }
        ensure!(
            options.overlap < options.window,
            "memory `simplemem`: `overlap` must be below `window`, found {} and {}",
            options.overlap,
            options.window
        );
        Ok(options)
    }
}

impl Registered for SimpleMem {
    fn name(&self) -> &str {
        NAME
    }
    fn about(&self) -> &str {
        "facts that stand alone, found by planned semantic, keyword and structured searches"
    }
    fn source(&self) -> &str {
        "SimpleMem, arXiv 2601.02553 (released system); PATH-Bench agent"
    }
}

impl MemoryMethod for SimpleMem {
    fn create(&self, table: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        Ok(Box::new(Facts { options: Options::read(table)?, state: State::default() }))
    }

    fn resolve(&self, table: &toml::Table) -> anyhow::Result<Resolved> {
        Ok(Resolved { needs_embedder: true, ..Resolved::of(&Options::read(table)?)? })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct State {
    space: Space,
    facts: Vec<Fact>,
    /// Facts ever made: the next one's id.
    made: u32,
    /// The last facts of the newest window: shown to the next, so that it does not repeat them.
    previous: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Fact {
    id: String,
    restatement: String,
    keywords: Vec<String>,
    timestamp: Option<String>,
    location: Option<String>,
    persons: Vec<String>,
    entities: Vec<String>,
    topic: Option<String>,
    vector: Vector,
}

struct Facts {
    options: Options,
    state: State,
}

impl Memory for Facts {
    fn recall(&self, task: &TaskView, handles: &Handles<'_>) -> anyhow::Result<Recall> {
        if self.state.facts.is_empty() {
            return Ok(Recall::default());
        }
        let llm = &handles.asker(NAME, self.options.constrained)?;
        let queries = if self.options.planning { plan(task, llm)? } else { vec![task.question.clone()] };
        let mut search = Search { facts: self, queries: Vec::new(), found: Vec::new() };
        search.semantic(&queries, handles)?;
        let analysis = analyse(task, llm)?;
        search.keyword(&analysis);
        search.structured(&analysis);
        for _ in 0..self.options.reflection_rounds {
            match search.more(task, llm)? {
                Some(queries) => search.semantic(&queries, handles)?,
                None => break,
            }
        }
        let blocks = search.nearest().into_iter().map(|(score, index)| self.state.facts[index].block(score)).collect();
        let placement = self.options.placement.into();
        Ok(Recall::of(Context { placement, preamble: PREAMBLE.trim_end().into(), blocks }))
    }

    fn learn(&mut self, experience: &Experience, handles: &Handles<'_>) -> anyhow::Result<()> {
        let llm = &handles.asker(NAME, self.options.constrained)?;
        let mut state = self.state.clone();
        for window in self.windows(&dialogue(experience), llm) {
            let previous = state.previous.iter().map(|text| format!("- {text}")).collect::<Vec<_>>().join("\n");
            let previous = if previous.is_empty() { "(none)".to_string() } else { previous };
            let limit = llm.room(PROMPT_TOKENS, EXTRACT_TOKENS);
            let values = [("previous", &*previous), ("dialogue", &*window)];
            let prompt = fill_within(EXTRACT, &values, &["dialogue"], limit, llm);
            let call = Call {
                purpose: "simplemem/extract",
                prompt,
                max_tokens: EXTRACT_TOKENS,
                temperature: 0.1,
                form: Some(facts_form()),
            };
            let Some(mut facts) = llm.ask_again(call, TRIES, read_facts)? else {
                tracing::debug!(task = %experience.task.id, "simplemem loses a window: no reply could be read");
                continue;
            };
            let texts: Vec<String> = facts.iter().map(|fact| fact.restatement.clone()).collect();
            for (fact, vector) in facts.iter_mut().zip(state.space.embed(NAME, &texts, handles)?) {
                state.made += 1;
                fact.id = format!("fact-{}", state.made);
                fact.vector = vector;
            }
            state.space.settle(handles);
            state.previous = texts.into_iter().rev().take(PREVIOUS).rev().collect();
            state.facts.extend(facts);
        }
        let excess = state.facts.len().saturating_sub(self.options.max_facts);
        state.facts.drain(..excess);
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

impl Facts {
    fn layout(&self) -> Layout<'_, Options> {
        Layout { method: NAME, version: 1, options: &self.options }
    }

    /// Runs of lines, at most so many and so long, overlapping.
    fn windows(&self, lines: &[String], llm: &Asker<'_>) -> Vec<String> {
        let mut windows = Vec::new();
        let mut start = 0;
        while start < lines.len() {
            let mut end = start;
            let mut tokens = 0;
            while end < lines.len() && end - start < self.options.window {
                tokens += llm.count(&lines[end]) + 1;
                if end > start && tokens > WINDOW_TOKENS {
                    break;
                }
                end += 1;
            }
            windows.push(lines[start..end].join("\n"));
            if end == lines.len() {
                break;
            }
            start = end.saturating_sub(self.options.overlap).max(start + 1);
        }
        windows
    }
}

/// The attempt as timed lines: a step every minute, an attempt every hour, from a fixed day.
pub(super) fn dialogue(experience: &Experience) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let hour = civil::date(2025, 1, 1).at(0, 0, 0, 0).saturating_add(i64::from(experience.position).hours());
    let mut say = |speaker: &str, text: &str, most: usize| {
        let at = hour.saturating_add((lines.len() as i64).minutes()).strftime("%Y-%m-%dT%H:%M").to_string();
        lines.push(format!("[{at}] {speaker}: {}", clip(text, most)));
    };
    say("User", &experience.task.question, SAID_CHARACTERS);
    let steps = trajectory::steps(experience);
    for step in &steps {
        let thought = step.thought.as_ref().map_or(String::new(), |thought| format!("({thought}) "));
        say("Agent", &format!("{thought}{}", step.action), SAID_CHARACTERS);
        if let Some(observation) = &step.observation {
            say("Environment", observation, OBSERVATION_CHARACTERS);
        }
    }
    let said = steps.last().map(|step| step.action.trim());
    if let Some(answer) = experience.answer.as_deref().map(str::trim).filter(|answer| said != Some(*answer)) {
        say("Agent", &format!("Final answer: {answer}"), SAID_CHARACTERS);
    }
    if let Some(outcome) = trajectory::outcome_line(&experience.feedback) {
        say("Evaluator", &outcome, SAID_CHARACTERS);
    }
    lines
}

/// The facts of a reply: an array of objects, an object that holds one, or a single fact. Objects without a restatement
/// are left out; a reply of other things is a bad one.
fn read_facts(reply: &str) -> Option<Vec<Fact>> {
    let value = ladder::value(reply, Kind::Container)?;
    let members = match value.as_array().or_else(|| value.get("entries")?.as_array()) {
        Some(members) => members.as_slice(),
        None => std::slice::from_ref(&value),
    };
    let short = |object: &Value, key: &str| ladder::text(object, key).map(|text| clip_line(text, 120));
    let list = |object: &Value, key: &str| -> Vec<String> {
        ladder::texts(object, key).iter().take(12).map(|text| clip_line(text, 80)).collect()
    };
    let facts: Vec<Fact> = members
        .iter()
        .filter_map(|object| {
            Some(Fact {
                id: String::new(),
                restatement: clip_line(ladder::text(object, "restatement")?, 600),
                keywords: list(object, "keywords"),
                timestamp: short(object, "timestamp"),
                location: short(object, "location"),
                persons: list(object, "persons"),
                entities: list(object, "entities"),
                topic: short(object, "topic"),
                vector: Vector::default(),
            })
        })
        .take(MOST_FACTS)
        .collect();
    (members.is_empty() || !facts.is_empty()).then_some(facts)
}

fn facts_form() -> Grammar {
    let names = || form::list(form::line(80), 0..=12);
    let fact = form::object([
        ("restatement", form::line(400)),
        ("keywords", names()),
        ("timestamp", form::optional(form::line(40))),
        ("location", form::optional(form::line(120))),
        ("persons", names()),
        ("entities", names()),
        ("topic", form::line(120)),
    ]);
    form::json(form::list(fact, 0..=MOST_FACTS))
}

fn requirements_form() -> Grammar {
    form::json(form::object([
        ("question_type", form::line(80)),
        ("key_entities", form::list(form::line(80), 0..=8)),
        ("required_information", form::list(form::line(200), 1..=8)),
        ("minimum_queries", form::counted(1..=MOST_QUERIES)),
    ]))
}

fn queries_form(most: usize) -> Grammar {
    form::json(form::object([("queries", form::list(form::line(200), 1..=most))]))
}

fn analysis_form() -> Grammar {
    let names = |least| form::list(form::line(80), least..=8);
    form::json(form::object([
        ("keywords", names(1)),
        ("persons", names(0)),
        ("entities", names(0)),
        ("location", form::optional(form::line(80))),
        ("time_expression", form::optional(form::line(40))),
    ]))
}

fn check_form() -> Grammar {
    form::json(form::object([("assessment", form::choice(&["complete", "incomplete"])), ("reason", form::line(200))]))
}

/// What must be known, then what to search for; the question itself always first.
fn plan(task: &TaskView, llm: &Asker<'_>) -> anyhow::Result<Vec<String>> {
    let required =
        llm.ask(call("simplemem/requirements", REQUIREMENTS, task, &[], 0.2, requirements_form(), llm), |reply| {
            let required = ladder::texts(&ladder::value(reply, Kind::Object)?, "required_information");
            let required: Vec<String> = required.iter().take(8).map(|text| clip_line(text, 300)).collect();
            (!required.is_empty()).then(|| required.join("\n"))
        })?;
    let required = required.unwrap_or_else(|| clip(&task.question, 2000));
    let queries = llm.ask(
        call("simplemem/queries", QUERIES, task, &[("required", &required)], 0.3, queries_form(MOST_QUERIES), llm),
        read_queries,
    )?;
    let mut all = vec![task.question.clone()];
    for query in queries.unwrap_or_default() {
        if !all.contains(&query) && all.len() < MOST_QUERIES {
            all.push(query);
        }
    }
    Ok(all)
}

fn read_queries(reply: &str) -> Option<Vec<String>> {
    let queries = ladder::texts(&ladder::value(reply, Kind::Object)?, "queries");
    let queries: Vec<String> = queries.iter().take(MOST_QUERIES).map(|query| clip_line(query, 300)).collect();
    Some(queries).filter(|queries| !queries.is_empty())
}

/// What a question names.
#[derive(Debug, Default, PartialEq)]
struct Analysis {
    keywords: Vec<String>,
    persons: Vec<String>,
    entities: Vec<String>,
    location: Option<String>,
    /// A date or the start of one.
    time: Option<String>,
}

fn analyse(task: &TaskView, llm: &Asker<'_>) -> anyhow::Result<Analysis> {
    let call = call("simplemem/analyse", ANALYSE, task, &[], 0.1, analysis_form(), llm);
    let found = llm.ask_again(call, TRIES, |reply| {
        let value = ladder::value(reply, Kind::Object)?;
        let keywords = ladder::texts(&value, "keywords");
        (!keywords.is_empty()).then(|| Analysis {
            keywords,
            persons: ladder::texts(&value, "persons"),
            entities: ladder::texts(&value, "entities"),
            location: ladder::text(&value, "location").map(String::from),
            time: ladder::text(&value, "time_expression").map(String::from),
        })
    })?;
    Ok(found.unwrap_or_else(|| Analysis { keywords: words(&task.question), ..Analysis::default() }))
}

fn call(
    purpose: &'static str,
    template: &str,
    task: &TaskView,
    values: &[(&str, &str)],
    temperature: f64,
    form: Grammar,
    llm: &Asker<'_>,
) -> Call {
    let limit = llm.room(PROMPT_TOKENS, PLAN_TOKENS);
    let values: Vec<(&str, &str)> = values.iter().copied().chain([("task", task.question.as_str())]).collect();
    let prompt = fill_within(template, &values, &["facts", "required", "task"], limit, llm);
    Call { purpose, prompt, max_tokens: PLAN_TOKENS, temperature, form: Some(form) }
}

/// The searches of one recall: what was asked, and what was found, in the order found.
struct Search<'a> {
    facts: &'a Facts,
    queries: Vec<Vector>,
    found: Vec<usize>,
}

impl Search<'_> {
    fn semantic(&mut self, queries: &[String], handles: &Handles<'_>) -> anyhow::Result<()> {
        let Facts { options, state } = self.facts;
        for query in state.space.embed_queries(NAME, queries, handles)? {
            let nearest = ranked(state.facts.iter().map(|fact| fact.vector.cosine(&query)));
            self.add(nearest.into_iter().take(options.semantic_k).map(|(_, index)| index));
            self.queries.push(query);
        }
        Ok(())
    }

    fn keyword(&mut self, analysis: &Analysis) {
        let Facts { options, state } = self.facts;
        let documents: Vec<Vec<String>> = state.facts.iter().map(|fact| words(&fact.restatement)).collect();
        let by_words = ranked(scores(&words(&analysis.keywords.join(" ")), &documents).into_iter());
        let hits = by_words.into_iter().filter(|(score, _)| *score > 0.0).take(options.keyword_k);
        self.add(hits.map(|(_, index)| index).collect::<Vec<_>>().into_iter());
    }

    /// Facts that meet every condition the question names; none when it names none.
    fn structured(&mut self, analysis: &Analysis) {
        let Facts { options, state } = self.facts;
        let Analysis { persons, entities, location, time, .. } = analysis;
        if persons.is_empty() && entities.is_empty() && location.is_none() && time.is_none() {
            return;
        }
        let holds = |have: &[String], want: &[String]| {
            want.is_empty() || want.iter().any(|want| have.iter().any(|have| have.eq_ignore_ascii_case(want)))
        };
        let lies_in = |have: &Option<String>, want: &Option<String>| match (have, want) {
            (_, None) => true,
            (Some(have), Some(want)) => have.to_lowercase().contains(&want.to_lowercase()),
            (None, Some(_)) => false,
        };
        let meets = |fact: &Fact| {
            holds(&fact.persons, persons)
                && holds(&fact.entities, entities)
                && lies_in(&fact.location, location)
                && lies_in(&fact.timestamp, time)
        };
        let hits = (0..state.facts.len()).filter(|&index| meets(&state.facts[index])).take(options.structured_k);
        self.add(hits);
    }

    /// Further queries, when the backbone finds that what was found is not enough. An unreadable check counts as not
    /// enough; unreadable queries end the search.
    fn more(&self, task: &TaskView, llm: &Asker<'_>) -> anyhow::Result<Option<Vec<String>>> {
        let facts = self.nearest();
        let facts: Vec<String> =
            facts.iter().map(|(_, index)| format!("- {}", self.facts.state.facts[*index].restatement)).collect();
        let facts = facts.join("\n");
        let is_complete =
            llm.ask(call("simplemem/check", CHECK, task, &[("facts", &facts)], 0.1, check_form(), llm), |reply| {
                match ladder::text(&ladder::value(reply, Kind::Object)?, "assessment")?.to_lowercase().as_str() {
                    "complete" => Some(true),
                    "incomplete" => Some(false),
                    _ => None,
                }
            })?;
        if is_complete == Some(true) {
            return Ok(None);
        }
        let queries = llm.ask(
            call("simplemem/more", MORE, task, &[("facts", &facts)], 0.3, queries_form(MOST_MORE_QUERIES), llm),
            read_queries,
        )?;
        Ok(queries.map(|queries| queries.into_iter().take(MOST_MORE_QUERIES).collect()))
    }

    fn add(&mut self, found: impl Iterator<Item = usize>) {
        for index in found {
            if !self.found.contains(&index) {
                self.found.push(index);
            }
        }
    }

    /// The found facts nearest to any query.
    fn nearest(&self) -> Vec<(f64, usize)> {
        let facts = &self.facts.state.facts;
        let best = |index: &usize| {
            self.queries.iter().map(|query| facts[*index].vector.cosine(query)).fold(f64::NEG_INFINITY, f64::max)
        };
        let order = ranked(self.found.iter().map(best));
        order.into_iter().take(self.facts.options.max_shown).map(|(score, place)| (score, self.found[place])).collect()
    }
}

impl Fact {
    fn block(&self, score: f64) -> Block {
        let mut text = format!("- {}", self.restatement);
        let line = |label: &str, value: &str| format!("\n  {label}: {value}");
        for (label, value) in [("Time", &self.timestamp), ("Location", &self.location), ("Topic", &self.topic)] {
            text += &value.as_ref().map_or(String::new(), |value| line(label, value));
        }
        for (label, values) in [("Persons", &self.persons), ("Related", &self.entities)] {
            if !values.is_empty() {
                text += &line(label, &values.join(", "));
            }
        }
        Block { id: self.id.clone(), content: Content::Text(text), score }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::{Bench, create, experience, task};
    use crate::record::{Message, Role};

    const FACTS: &str = r#"[{"restatement": "apple tasks want the colour", "keywords": ["apple"], "entities": ["apple"],
        "timestamp": "2025-01-01T00:01"}, {"restatement": "zebra tasks want stripes", "persons": [], "location": null}]"#;

    fn backbone(check: &'static str) -> Bench {
        Bench::new(move |prompt| {
            match prompt {
                p if p.contains("Turn the dialogue") => FACTS,
                p if p.contains("what must be known") => {
                    r#"{"question_type": "x", "required_information": ["colour"]}"#
                }
                p if p.contains("search queries") && p.contains("not enough") => r#"{"queries": ["stripes"]}"#,
                p if p.contains("search queries") => r#"{"queries": ["colour of apples"]}"#,
                p if p.contains("Read off") => r#"{"keywords": ["stripes"], "entities": ["Apple"]}"#,
                _ => check,
            }
            .to_string()
        })
    }

    fn purposes(calls: &[crate::record::MemoryCall]) -> Vec<&str> {
        calls.iter().map(|call| call.purpose.strip_prefix("simplemem/").unwrap()).collect()
    }

    #[test]
    fn calls_of_recall_are_four_when_the_first_check_is_content_and_seven_at_most() {
        for (check, expected) in [
            (r#"{"assessment": "complete"}"#, vec!["requirements", "queries", "analyse", "check"]),
            ("hm", vec!["requirements", "queries", "analyse", "check", "more", "check", "more"]),
        ] {
            let bench = backbone(check);
            let mut memory = create(NAME, "");
            assert_eq!(purposes(&bench.learn(memory.as_mut(), &experience("q", "r", true, 0))), ["extract"]);
            let (recall, calls) = bench.recall_at(memory.as_ref(), &task("apple"), 1);
            assert_eq!(purposes(&calls), expected);
            assert_eq!(recall.contexts[0].blocks.len(), 2);
        }
    }

    #[test]
    fn a_window_lost_after_three_tries_leaves_the_state() {
        let bench = Bench::new(|_| "no facts today".to_string());
        let mut memory = create(NAME, "");
        let before = memory.save();
        assert_eq!(purposes(&bench.learn(memory.as_mut(), &experience("q", "r", true, 0))), ["extract"; 3]);
        assert_eq!(memory.save(), before);
    }

    #[test]
    fn windows_advance_by_their_length_less_the_overlap_and_close_at_a_token_limit() {
        let bench = backbone("");
        let mut long = experience("q", "", true, 0);
        long.turns = (0..90).map(|step| Message::new(Role::Assistant, format!("step {step}"))).collect();
        let mut memory = create(NAME, "");
        // 1 question, 90 steps, 1 answer and 1 outcome: ⌈(93 − 2) / 38⌉ windows
        assert_eq!(bench.learn(memory.as_mut(), &long).len(), 3);
        assert!(
            bench.prompts()[1].contains("Agent: step 37") && bench.prompts()[1].contains("apple tasks want the colour")
        );
        let mut wide = experience("q", "", true, 0);
        wide.turns = (0..30).map(|_| Message::new(Role::Assistant, "x".repeat(4000))).collect();
        // At most five such lines a window, two of them shared with the next.
        assert_eq!(bench.learn(create(NAME, "").as_mut(), &wide).len(), 10);
        assert!(bench.prompts()[3..].iter().all(|prompt| prompt.len() < 4 * (6000 + 500)));
    }

    #[test]
    fn structured_search_needs_every_condition() {
        let bench = backbone("");
        let mut memory = Facts { options: Options::default(), state: State::default() };
        bench.learn(&mut memory, &experience("q", "r", true, 0));
        let found = |analysis: Analysis| {
            let mut search = Search { facts: &memory, queries: Vec::new(), found: Vec::new() };
            search.structured(&analysis);
            search.found
        };
        let apple = || vec!["APPLE".to_string()];
        assert_eq!(found(Analysis { entities: apple(), ..Analysis::default() }), [0]);
        assert_eq!(found(Analysis { entities: apple(), time: Some("2025-01-01".into()), ..Analysis::default() }), [0]);
        assert_eq!(
            found(Analysis { entities: apple(), location: Some("x".into()), ..Analysis::default() }),
            [0usize; 0]
        );
        assert_eq!(found(Analysis::default()), [0usize; 0]);
    }

    #[test]
    fn a_dialogue_has_a_virtual_clock() {
        let lines = dialogue(&experience("Q?", "a", true, 25));
        assert_eq!(
            lines,
            [
                "[2025-01-02T01:00] User: Q?",
                "[2025-01-02T01:01] Agent: a",
                "[2025-01-02T01:02] Evaluator: Outcome: success"
            ]
        );
    }
}
