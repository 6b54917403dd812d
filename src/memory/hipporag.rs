//! HippoRAG 2: attempts as passages of a graph of phrases and facts; a question links to facts, and PageRank spreads from
//! there to passages (arXiv 2502.14802; released code: `src/hipporag/HippoRAG.py`, `rerank.py`, `openie_openai.py`).
//!
//! Departures: an attempt is one short passage; phrases keep the characters of identifiers (`normaliser = "original"` is
//! the released rule, which destroys `np.where` and all text that is not Latin); an edge stands once and is compared with
//! new phrases only, where the released index adds parallel synonym edges on every call; a phrase of weight zero counts
//! as not linked; ids are BLAKE3. With `edges = "faithful"` facts and synonyms count twice beside passages, as they do in
//! the released multigraph. Replies are held to their JSON form (`constrained`), the filter's without the marker in front.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bound::clip_line;
use super::calibration::Threshold;
use super::form;
use super::ladder;
use super::llm::{Asker, Call};
use super::page_rank::{self, Edge};
use super::snapshot::Layout;
use super::template::fill_within;
use super::trajectory::{self, Outcome};
use super::vector::{Space, Vector, ranked};
use super::{Block, Content, Context, Handles, Memory, MemoryMethod, Recall, Resolved, TextPlacement, options};
use crate::engine::grammar::Grammar;
use crate::record::{Experience, TaskView};
use crate::registry::Registered;
use crate::reply::json::Kind;

pub struct HippoRag;

const NAME: &str = "hipporag";
const PREAMBLE: &str = include_str!("../../configs/prompts/hipporag_preamble.txt");
const ENTITIES: &str = include_str!("../../configs/prompts/hipporag_entities.txt");
const TRIPLES: &str = include_str!("../../configs/prompts/hipporag_triples.txt");
const FILTER: &str = include_str!("../../configs/prompts/hipporag_filter.txt");
/// What the question is to find among the facts, told to models that embed for a task in words; passages are what these are
/// trained to find.
const FIND_FACTS: &str = "Given a question, find the facts, written as triplets, that help to answer it";
/// Where the facts of a filter's reply begin.
const MARKER: &str = "fact_after_filter";

const PASSAGE_TOKENS: usize = 4096;
const PROMPT_TOKENS: usize = 8000;
const INDEX_TOKENS: usize = 2048;
const FILTER_TOKENS: usize = 512;
const FILTERED_FACTS: usize = 4;
const NEIGHBOURS: usize = 100;
const MOST_ENTITIES: usize = 60;
const MOST_TRIPLES: usize = 60;
const PHRASE_CHARACTERS: usize = 120;

/// Options of `[[agents]]` with `memory = "hipporag"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// Passages shown.
    k: usize,
    /// Facts and phrases that a question links to.
    link_k: usize,
    /// Probability of following an edge.
    damping: f64,
    /// Weight of a passage's own similarity in the reset vector.
    passage_weight: f64,
    /// Phrases at least this similar are synonyms.
    synonym_similarity: Threshold,
    edges: Edges,
    normaliser: Normaliser,
    /// Whether replies are held to their form, where they have one; the published method parses free text.
    constrained: bool,
    placement: TextPlacement,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Edges {
    /// Fact and synonym edges count in both directions, passage edges once.
    Faithful,
    Single,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Normaliser {
    /// Keeps letters of all scripts and `_ . / : - #`.
    CodeSafe,
    /// Keeps ASCII letters, digits and spaces.
    Original,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            k: 2,
            link_k: 5,
            damping: 0.5,
            passage_weight: 0.05,
            synonym_similarity: Threshold::Value(0.8),
            edges: Edges::Faithful,
            normaliser: Normaliser::CodeSafe,
            constrained: true,
            placement: TextPlacement::BeforeQuestion,
        }
    }
}

impl Options {
    fn read(table: &toml::Table) -> anyhow::Result<Options> {
        let options: Options = options(NAME, table)?;
        for (key, value) in [("k", options.k), ("link_k", options.link_k)] {
            ensure!(value > 0, "memory `hipporag`: `{key}` must be at least 1, found 0");
        }
        let is_share = (0.0..1.0).contains(&options.damping);
        ensure!(is_share, "memory `hipporag`: `damping` must be at least 0 and below 1, found {}", options.damping);
        let is_weight = options.passage_weight.is_finite() && options.passage_weight >= 0.0;
        ensure!(is_weight, "memory `hipporag`: `passage_weight` must be at least 0, found {}", options.passage_weight);
        options.synonym_similarity.check(NAME, "synonym_similarity")?;
        Ok(options)
    }
}

impl Registered for HippoRag {
    fn name(&self) -> &str {
        NAME
    }
    fn about(&self) -> &str {
        "a graph of phrases, facts and passages: facts link to the question, PageRank ranks the passages"
    }
    fn source(&self) -> &str {
        "HippoRAG 2, arXiv 2502.14802; PATH-Bench agent"
    }
}

impl MemoryMethod for HippoRag {
    fn create(&self, table: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        Ok(Box::new(Graph { options: Options::read(table)?, state: State::default() }))
    }

    fn resolve(&self, table: &toml::Table) -> anyhow::Result<Resolved> {
        Ok(Resolved { needs_embedder: true, ..Resolved::of(&Options::read(table)?)? })
    }
}

/// Indices into these lists name things everywhere; nothing is ever removed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct State {
    space: Space,
    passages: Vec<Passage>,
    phrases: Vec<Phrase>,
    facts: Vec<Fact>,
    /// How often a fact joins two phrases, the lower index first.
    joined: Vec<((usize, usize), u32)>,
    /// Cosine of synonyms, the lower index first.
    synonyms: Vec<((usize, usize), f64)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Passage {
    id: String,
    text: String,
    vector: Vector,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Phrase {
    text: String,
    vector: Vector,
    /// Passages that mention it, ascending.
    passages: BTreeSet<usize>,
}

/// Subject, predicate and object, normalised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Fact {
    triple: [String; 3],
    vector: Vector,
}

struct Graph {
    options: Options,
    state: State,
}

impl Memory for Graph {
    fn recall(&self, task: &TaskView, handles: &Handles<'_>) -> anyhow::Result<Recall> {
        if self.state.passages.is_empty() {
            return Ok(Recall::default());
        }
        let query = self.state.space.embed_query(NAME, &task.question, handles)?;
        let for_facts = self.state.space.embed_query_with(NAME, FIND_FACTS, &task.question, handles)?;
        let linked = self.link(task, &for_facts, &handles.asker(NAME, self.options.constrained)?)?;
        let order = match self.spread(&linked, &query) {
            Some(scores) => ranked(scores.into_iter()),
            None => ranked(self.state.passages.iter().map(|passage| passage.vector.cosine(&query))),
        };
        let blocks = order.into_iter().take(self.options.k).map(|(score, index)| {
            let Passage { id, text, .. } = &self.state.passages[index];
            Block { id: id.clone(), content: Content::Text(text.clone()), score }
        });
        let placement = self.options.placement.into();
        Ok(Recall::of(Context { placement, preamble: PREAMBLE.trim_end().into(), blocks: blocks.collect() }))
    }

    fn learn(&mut self, experience: &Experience, handles: &Handles<'_>) -> anyhow::Result<()> {
        let llm = &handles.asker(NAME, self.options.constrained)?;
        let limit = PASSAGE_TOKENS.min(llm.room(PROMPT_TOKENS, INDEX_TOKENS) / 2);
        let text = trajectory::compact(experience, Outcome::Hidden);
        let text = if llm.count(&text) <= limit {
            text
        } else {
            trajectory::within(experience, Outcome::Hidden, limit, &|text| llm.count(text))
        };
        let id = format!("passage-{}", &blake3::hash(text.as_bytes()).to_hex()[..16]);
        if self.state.passages.iter().any(|passage| passage.id == id) {
            return Ok(());
        }
        let entities = entities(&text, llm)?;
        let triples: Vec<[String; 3]> = triples(&text, &entities, llm)?
            .into_iter()
            .map(|triple| triple.map(|phrase| self.options.normaliser.apply(&phrase)))
            .filter(|triple| triple.iter().all(|phrase| !phrase.is_empty()))
            .collect();
        let synonym_similarity = self.options.synonym_similarity.value(handles)?;
        let mut state = self.state.clone();
        state.insert(Passage { id, text, vector: Vector::default() }, &triples, synonym_similarity, handles)?;
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

impl Graph {
    fn layout(&self) -> Layout<'_, Options> {
        Layout { method: NAME, version: 1, options: &self.options }
    }

    /// Facts that the question links to and the backbone finds useful, with their scores.
    fn link(&self, task: &TaskView, query: &Vector, llm: &Asker<'_>) -> anyhow::Result<Vec<(f64, usize)>> {
        let scores = spread_out(&self.state.facts.iter().map(|fact| fact.vector.cosine(query)).collect::<Vec<_>>());
        let best: Vec<(f64, usize)> = ranked(scores.into_iter()).into_iter().take(self.options.link_k).collect();
        if best.is_empty() {
            return Ok(Vec::new());
        }
        let listed: Vec<&[String; 3]> = best.iter().map(|(_, index)| &self.state.facts[*index].triple).collect();
        let facts = serde_json::to_string(&serde_json::json!({ "fact": listed }))?;
        let limit = llm.room(PROMPT_TOKENS, FILTER_TOKENS);
        let values = [("facts", &*facts), ("question", &*task.question)];
        let prompt = fill_within(FILTER, &values, &["question"], limit, llm);
        let call = Call {
            purpose: "hipporag/filter",
            prompt,
            max_tokens: FILTER_TOKENS,
            temperature: 0.0,
            form: Some(filter_form(&listed)),
        };
        let kept = llm.ask(call, read_filtered)?.unwrap_or_default();
        let mut linked: Vec<(f64, usize)> = Vec::new();
        for triple in kept.iter().take(FILTERED_FACTS) {
            // Even nonsense is mapped to the closest candidate, as in the released code.
            let nearest = ranked(listed.iter().map(|listed| likeness(&listed.join(" "), &triple.join(" "))));
            let chosen = best[nearest[0].1];
            if !linked.contains(&chosen) {
                linked.push(chosen);
            }
        }
        Ok(linked)
    }

    /// PageRank of every passage from the linked facts; `None` when nothing is linked.
    fn spread(&self, linked: &[(f64, usize)], query: &Vector) -> Option<Vec<f64>> {
        let State { passages, phrases, facts, .. } = &self.state;
        let mut weights: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        for (score, fact) in linked {
            let [subject, _, object] = &facts[*fact].triple;
            for phrase in [subject, object] {
                let index = phrases.iter().position(|known| known.text == *phrase)?;
                let (sum, count) = weights.entry(index).or_default();
                *sum += score / phrases[index].passages.len().max(1) as f64;
                *count += 1.0;
            }
        }
        let means: Vec<(usize, f64)> = weights.into_iter().map(|(index, (sum, count))| (index, sum / count)).collect();
        let strongest = ranked(means.iter().map(|(_, weight)| *weight));
        let strongest = strongest.into_iter().filter(|(weight, _)| *weight > 0.0).take(self.options.link_k);
        let mut reset = vec![0.0; phrases.len() + passages.len()];
        let mut is_linked = false;
        for (weight, place) in strongest {
            reset[means[place].0] = weight;
            is_linked = true;
        }
        if !is_linked {
            return None;
        }
        let own = spread_out(&passages.iter().map(|passage| passage.vector.cosine(query)).collect::<Vec<_>>());
        for (index, score) in own.into_iter().enumerate() {
            reset[phrases.len() + index] = score * self.options.passage_weight;
        }
        let scores = page_rank::scores(&self.state.edges(self.options.edges), &reset, self.options.damping);
        Some(scores[phrases.len()..].to_vec())
    }
}

impl State {
    fn insert(
        &mut self,
        mut passage: Passage,
        triples: &[[String; 3]],
        synonym_similarity: f64,
        handles: &Handles<'_>,
    ) -> anyhow::Result<()> {
        let is_new_fact = |triple: &&[String; 3]| self.facts.iter().all(|fact| fact.triple != **triple);
        let new_facts: Vec<[String; 3]> = triples.iter().filter(is_new_fact).cloned().collect();
        let mut new_phrases: Vec<String> = Vec::new();
        for phrase in triples.iter().flat_map(|[subject, _, object]| [subject, object]) {
            if self.phrases.iter().all(|known| known.text != *phrase) && !new_phrases.contains(phrase) {
                new_phrases.push(phrase.clone());
            }
        }
        let texts: Vec<String> = std::iter::once(passage.text.clone())
            .chain(new_phrases.iter().cloned())
            .chain(new_facts.iter().map(|triple| format!("({})", triple.join(", "))))
            .collect();
        let mut vectors = self.space.embed(NAME, &texts, handles)?.into_iter();
        let mut next = || vectors.next().unwrap_or_default();
        passage.vector = next();
        let first_new = self.phrases.len();
        for text in new_phrases {
            self.phrases.push(Phrase { text, vector: next(), passages: BTreeSet::new() });
        }
        self.facts.extend(new_facts.into_iter().map(|triple| Fact { triple, vector: next() }));
        self.space.settle(handles);

        let place = self.passages.len();
        self.passages.push(passage);
        let mut joined: BTreeMap<(usize, usize), u32> = self.joined.drain(..).collect();
        for [subject, _, object] in triples {
            let ends = [subject, object].map(|phrase| self.phrases.iter().position(|known| known.text == *phrase));
            let [Some(left), Some(right)] = ends else { continue };
            self.phrases[left].passages.insert(place);
            self.phrases[right].passages.insert(place);
            if left != right {
                *joined.entry((left.min(right), left.max(right))).or_insert(0) += 1;
            }
        }
        self.joined = joined.into_iter().collect();
        self.add_synonyms(first_new, synonym_similarity);
        Ok(())
    }

    /// Synonyms of the phrases from `first_new` on. Old pairs do not change: their vectors did not.
    fn add_synonyms(&mut self, first_new: usize, least: f64) {
        let mut synonyms: BTreeMap<(usize, usize), f64> = self.synonyms.drain(..).collect();
        let is_long = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).count() > 2;
        for new in (first_new..self.phrases.len()).filter(|&new| is_long(&self.phrases[new].text)) {
            let near = ranked(self.phrases.iter().map(|phrase| phrase.vector.cosine(&self.phrases[new].vector)));
            let near =
                near.into_iter().filter(|(_, other)| *other != new).take_while(|(similarity, _)| *similarity >= least);
            for (similarity, other) in near.take(NEIGHBOURS) {
                synonyms.insert((new.min(other), new.max(other)), similarity);
            }
        }
        self.synonyms = synonyms.into_iter().collect();
    }

    /// Phrases are vertices first, passages behind them. A synonym edge takes the place of a fact edge.
    fn edges(&self, semantics: Edges) -> Vec<Edge> {
        let times = if semantics == Edges::Faithful { 2.0 } else { 1.0 };
        let mut weights: BTreeMap<(usize, usize), f64> =
            self.joined.iter().map(|(ends, count)| (*ends, times * f64::from(*count))).collect();
        // A walk needs weights above 0, which a very low threshold does not promise.
        let alike = self.synonyms.iter().filter(|(_, cosine)| *cosine > 0.0);
        weights.extend(alike.map(|(ends, cosine)| (*ends, times * cosine)));
        for (index, phrase) in self.phrases.iter().enumerate() {
            weights.extend(phrase.passages.iter().map(|passage| ((index, self.phrases.len() + passage), 1.0)));
        }
        weights.into_iter().map(|(ends, weight)| Edge { ends, weight }).collect()
    }
}

impl Normaliser {
    /// Lower case; what the rule does not keep becomes a space.
    fn apply(self, phrase: &str) -> String {
        let is_kept = |c: char| match self {
            Normaliser::CodeSafe => c.is_alphanumeric() || "_./:-#".contains(c),
            Normaliser::Original => c.is_ascii_alphanumeric(),
        };
        let spaced: String = phrase.to_lowercase().chars().map(|c| if is_kept(c) { c } else { ' ' }).collect();
        clip_line(&spaced, PHRASE_CHARACTERS)
    }
}

/// Scores moved to 0..=1 by the least and the greatest; all ones when they are equal.
fn spread_out(scores: &[f64]) -> Vec<f64> {
    let least = scores.iter().copied().fold(f64::INFINITY, f64::min);
    let range = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max) - least;
    scores.iter().map(|score| if range > 0.0 { (score - least) / range } else { 1.0 }).collect()
}

/// Names in a passage; none when the reply cannot be read.
fn entities(text: &str, llm: &Asker<'_>) -> anyhow::Result<Vec<String>> {
    let limit = llm.room(PROMPT_TOKENS, INDEX_TOKENS);
    let prompt = fill_within(ENTITIES, &[("passage", text)], &["passage"], limit, llm);
    let names = form::object([("named_entities", form::list(form::line(80), 0..=MOST_ENTITIES))]);
    let call = Call {
        purpose: "hipporag/entities",
        prompt,
        max_tokens: INDEX_TOKENS,
        temperature: 0.0,
        form: Some(form::json(names)),
    };
    let found = llm.ask(call, |reply| {
        let value = ladder::value(reply, Kind::Object)?;
        value.get("named_entities")?.as_array()?;
        let names = ladder::texts(&value, "named_entities");
        Some(names.iter().take(MOST_ENTITIES).map(|name| clip_line(name, PHRASE_CHARACTERS)).collect())
    })?;
    Ok(found.unwrap_or_default())
}

/// Facts of a passage; none when the reply cannot be read. What is not three texts is left out.
fn triples(text: &str, entities: &[String], llm: &Asker<'_>) -> anyhow::Result<Vec<[String; 3]>> {
    let named = serde_json::json!({ "named_entities": entities }).to_string();
    let limit = llm.room(PROMPT_TOKENS, INDEX_TOKENS);
    let prompt = fill_within(TRIPLES, &[("passage", text), ("entities", &named)], &["passage", "entities"], limit, llm);
    let triple = form::list(form::line(PHRASE_CHARACTERS), 3..=3);
    let facts = form::object([("triples", form::list(triple, 0..=MOST_TRIPLES))]);
    let call = Call {
        purpose: "hipporag/triples",
        prompt,
        max_tokens: INDEX_TOKENS,
        temperature: 0.0,
        form: Some(form::json(facts)),
    };
    let found = llm.ask(call, |reply| {
        let value = ladder::value(reply, Kind::Object)?;
        let mut kept: Vec<[String; 3]> = Vec::new();
        for triple in value.get("triples")?.as_array()?.iter().filter_map(as_triple) {
            if !kept.contains(&triple) && kept.len() < MOST_TRIPLES {
                kept.push(triple);
            }
        }
        Some(kept)
    })?;
    Ok(found.unwrap_or_default())
}

/// Some of the candidates, as they are written, without the marker in front.
fn filter_form(listed: &[&[String; 3]]) -> Grammar {
    let candidate = serde_json::json!({ "enum": listed });
    form::json(form::object([("fact", form::list(candidate, 0..=FILTERED_FACTS))]))
}

fn as_triple(value: &Value) -> Option<[String; 3]> {
    let parts: Vec<String> =
        value.as_array()?.iter().map(|part| part.as_str().map(String::from)).collect::<Option<_>>()?;
    <[String; 3]>::try_from(parts).ok()
}

/// The facts that a filter's reply keeps, behind the marker where there is one.
fn read_filtered(reply: &str) -> Option<Vec<[String; 3]>> {
    let said = reply.rfind(MARKER).map_or(reply, |at| &reply[at + MARKER.len()..]);
    let value = ladder::value(said, Kind::Object).or_else(|| ladder::value(reply, Kind::Object))?;
    Some(value.get("fact")?.as_array()?.iter().filter_map(as_triple).collect())
}

/// Shared pairs of neighbouring characters over all pairs (Dice): 1 for equal texts, 0 for texts without any in common.
fn likeness(left: &str, right: &str) -> f64 {
    let pairs = |text: &str| {
        let letters: Vec<char> = text.to_lowercase().chars().collect();
        let mut pairs: BTreeMap<[char; 2], usize> = BTreeMap::new();
        letters.windows(2).for_each(|pair| *pairs.entry([pair[0], pair[1]]).or_insert(0) += 1);
        pairs
    };
    let (left, right) = (pairs(left), pairs(right));
    let all = left.values().sum::<usize>() + right.values().sum::<usize>();
    let shared: usize = left.iter().map(|(pair, count)| right.get(pair).copied().unwrap_or(0).min(*count)).sum();
    if all == 0 { 0.0 } else { 2.0 * shared as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::{Bench, create, experience, task};

    /// Facts by the task's first word; the filter keeps what `filter` says.
    fn backbone(filter: &'static str) -> Bench {
        Bench::new(move |prompt| {
            if prompt.contains("list the names") {
                r#"{"named_entities": ["apple", "colour"]}"#.to_string()
            } else if prompt.contains("Task:\napple") && prompt.contains("facts as triples") {
                r#"{"triples": [["apple", "has", "colour red"], ["apple", "has", "colour red"], ["apple", "is"], ["Tree", "bears", "apple"]]}"#.into()
            } else if prompt.contains("facts as triples") {
                r#"{"triples": [["zebra", "has", "stripes"]]}"#.into()
            } else {
                filter.to_string()
            }
        })
    }

    fn graph(bench: &Bench, questions: &[&str]) -> Graph {
        let mut graph = Graph { options: Options::default(), state: State::default() };
        for (position, question) in questions.iter().enumerate() {
            bench.learn(&mut graph, &experience(question, "r", true, position as u32));
        }
        graph
    }

    fn ids(recall: &Recall) -> Vec<&str> {
        recall.contexts[0].blocks.iter().map(|block| block.id.as_str()).collect()
    }

    #[test]
    fn a_store_of_one_fact_works() {
        let bench = backbone(r#"fact_after_filter: {"fact": [["zebra", "has", "stripes"]]}"#);
        let graph = graph(&bench, &["zebra one"]);
        assert_eq!(graph.state.facts.len(), 1);
        assert_eq!(ids(&bench.recall(&graph, &task("zebra?"))).len(), 1);
    }

    #[test]
    fn indexing_the_same_attempt_again_is_a_no_op() {
        let bench = backbone("");
        let mut graph = graph(&bench, &["apple one"]);
        let before = graph.save();
        assert_eq!(bench.learn(&mut graph, &experience("apple one", "r", true, 7)), []);
        assert_eq!(graph.save(), before);
    }

    #[test]
    fn synonyms_do_not_grow_when_unrelated_passages_arrive() {
        let bench = backbone("");
        let mut memory = graph(&bench, &["apple one"]);
        memory.options.synonym_similarity = Threshold::Value(-1.0);
        memory.state = State::default();
        bench.learn(&mut memory, &experience("apple one", "r", true, 0));
        let synonyms = memory.state.synonyms.clone();
        assert_eq!(synonyms.len(), 3, "three phrases, all pairs");
        for position in 1..4 {
            bench.learn(&mut memory, &experience(&format!("apple {position}"), "r", true, position));
        }
        assert_eq!(memory.state.synonyms, synonyms, "the same phrases again");
        assert_eq!(memory.state.joined[0], ((0, 1), 4), "facts count once a passage");
        memory.state.synonyms[0].1 = -0.5;
        assert!(memory.state.edges(Edges::Faithful).iter().all(|edge| edge.weight > 0.0));
    }

    #[test]
    fn a_linked_fact_pulls_its_passages_and_no_fact_falls_back_to_similarity() {
        let linking = backbone("reasons\nfact_after_filter: {'fact': [['aple', 'has', 'color red'],]}");
        let graph = graph(&linking, &["zebra one", "apple two", "zebra three"]);
        let apple = graph.state.passages[1].id.as_str();
        let query =
            |question: &str| graph.state.space.embed_one(NAME, question, &crate::memory::tests::handles()).unwrap();
        let nearest = |question: &str| {
            let query = query(question);
            ranked(graph.state.passages.iter().map(|passage| passage.vector.cosine(&query)))[0].1
        };
        // Another passage is nearest, and the fact of the apple is not the weakest of all, whose score is 0.
        let is_telling = |question: &&String| {
            let query = query(question);
            let facts = ranked(graph.state.facts.iter().map(|fact| fact.vector.cosine(&query)));
            nearest(question) != 1 && graph.state.facts[facts[0].1].triple[0] == "apple"
        };
        let questions: Vec<String> = (0..100).map(|n| format!("w{n} question")).collect();
        let question = questions.iter().find(is_telling).unwrap();
        let (recall, calls) = linking.recall_at(&graph, &task(question), 3);
        assert_eq!(calls[0].purpose, "hipporag/filter");
        assert_eq!(ids(&recall)[0], apple, "the closest candidate to a misspelt triple");
        assert_eq!(linking.told(), [FIND_FACTS], "facts and passages are asked for in their own words");
        for nothing in [r#"{"fact": []}"#, "none of them helps"] {
            let (recall, calls) = backbone(nothing).recall_at(&graph, &task(question), 3);
            assert_eq!(ids(&recall)[0], graph.state.passages[nearest(question)].id);
            assert_eq!(calls[0].is_read, nothing.starts_with('{'));
        }
    }

    #[test]
    fn edges_count_as_in_the_released_multigraph_unless_told_otherwise() {
        let bench = backbone("");
        let state = graph(&bench, &["apple one"]).state;
        let weights = |edges| state.edges(edges).iter().map(|edge| edge.weight).collect::<Vec<_>>();
        assert_eq!(weights(Edges::Single), [1.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(weights(Edges::Faithful).iter().filter(|weight| **weight == 2.0).count(), 2);
    }

    #[test]
    fn identifiers_survive_the_code_safe_rule() {
        assert_eq!(Normaliser::CodeSafe.apply("np.where(Größe)"), "np.where größe");
        assert_eq!(Normaliser::Original.apply("np.where(Größe)"), "np where gr e");
        assert_eq!(spread_out(&[2.0, 2.0]), [1.0, 1.0]);
        assert_eq!(spread_out(&[1.0, 3.0, 2.0]), [0.0, 1.0, 0.5]);
    }

    #[test]
    fn the_registered_method_takes_its_options() {
        assert!(super::super::find(NAME).unwrap().create(&toml::from_str("damping = 1.0").unwrap()).is_err());
        create(NAME, "synonym_similarity = { percentile = 99.0 }\nedges = \"single\"");
    }
}
