//! Selective Experience Use: between any memory and the prompt the backbone keeps, drops or condenses what was recalled
//! (PATH-Bench §5.3 and appendix D). It keeps nothing itself.
//!
//! The paper speaks of each retrieved item in its text and of the whole bundle in its prompt: the bundle is the default,
//! `granularity = "item"` the other reading. A reply that names no action keeps everything, so that a broken compiler
//! falls back to the memory it wraps; `constrained` leaves only replies that name one. Nothing recalled costs no call. What was dropped counts as not shown.

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bound::clip;
use super::ladder;
use super::llm::{Asker, Call};
use super::template::fill_within;
use super::{
    Block, Content, Context, Handles, Memory, MemoryMethod, Placement, Recall, Resolved, find, options as read_options,
};
use crate::engine::grammar::Grammar;
use crate::record::{Experience, ReplyFormat, TaskView};
use crate::registry::Registered;

pub struct Seu;

const NAME: &str = "seu";
const COMPILE: &str = include_str!("../../configs/prompts/seu_compile.txt");
const REPLY_TOKENS: usize = 512;
const PROMPT_TOKENS: usize = 16_000;
const SUMMARY_CHARACTERS: usize = 4000;
/// Id of a condensed bundle.
const SUMMARY_ID: &str = "seu-summary";

/// Options of `[[agents]]` with `memory = "seu"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The memory that is wrapped.
    memory: String,
    #[serde(default)]
    granularity: Granularity,
    /// Whether replies are held to the three actions; the published method parses free text.
    #[serde(default = "by_default")]
    constrained: bool,
    /// The wrapped memory's own options.
    #[serde(default)]
    options: toml::Table,
}

fn by_default() -> bool {
    true
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Granularity {
    /// One judgement of everything recalled.
    #[default]
    Bundle,
    /// One judgement a block, in one batch.
    Item,
}

impl Options {
    fn read(table: &toml::Table) -> anyhow::Result<(Options, &'static dyn MemoryMethod)> {
        let options: Options = read_options(NAME, table)
            .context("memory `seu` wraps another memory: options = { memory = \"NAME\", options = { … } }")?;
        ensure!(options.memory != NAME, "memory `seu` cannot wrap itself");
        let inner = find(&options.memory).context("memory `seu`")?;
        Ok((options, inner))
    }
}

impl Registered for Seu {
    fn name(&self) -> &str {
        NAME
    }
    fn about(&self) -> &str {
        "around any memory: the backbone keeps, drops or condenses what was recalled"
    }
    fn source(&self) -> &str {
        "PATH-Bench, Selective Experience Use"
    }
}

impl MemoryMethod for Seu {
    fn create(&self, table: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        let (options, inner) = Options::read(table)?;
        let inner = inner.create(&options.options).context("memory `seu`")?;
        Ok(Box::new(Selective { granularity: options.granularity, is_constrained: options.constrained, inner }))
    }

    fn resolve(&self, table: &toml::Table) -> anyhow::Result<Resolved> {
        let (options, inner) = Options::read(table)?;
        let inner = inner.resolve(&options.options).context("memory `seu`")?;
        let options = Options { options: inner.options.clone(), ..options };
        Ok(Resolved { options: Resolved::of(&options)?.options, ..inner })
    }
}

struct Selective {
    granularity: Granularity,
    is_constrained: bool,
    inner: Box<dyn Memory>,
}

/// What the backbone wants done.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Keep,
    Ignore,
    Summarize(String),
}

/// What recall tells learning.
#[derive(Default, Serialize, Deserialize)]
struct Pending {
    /// Blocks that a condensed bundle stands for.
    condensed: Vec<String>,
    #[serde(default)]
    inner: Value,
}

impl Memory for Selective {
    fn recall(&self, task: &TaskView, handles: &Handles<'_>) -> anyhow::Result<Recall> {
        let recall = self.inner.recall(task, handles)?;
        if recall.contexts.is_empty() {
            let pending = Pending { condensed: Vec::new(), inner: recall.pending };
            return Ok(Recall { contexts: Vec::new(), pending: pending.into_value()? });
        }
        let llm = &handles.asker(NAME, self.is_constrained)?;
        let mut condensed = Vec::new();
        let contexts = match self.granularity {
            Granularity::Bundle => {
                let bundles =
                    recall.contexts.iter().map(|context| context.text(&context.blocks.iter().collect::<Vec<_>>()));
                let actions = judge(task, &bundles.collect::<Vec<_>>(), llm)?;
                let judged = recall.contexts.into_iter().zip(actions);
                judged.filter_map(|(context, action)| bundle(context, action, &mut condensed)).collect()
            }
            Granularity::Item => {
                let blocks = recall.contexts.iter().flat_map(|context| &context.blocks);
                let texts: Vec<String> = blocks.map(|block| block.content.as_text()).collect();
                let mut actions = judge(task, &texts, llm)?.into_iter();
                let judged = recall.contexts.into_iter().map(|context| items(context, &mut actions));
                judged.filter(|context| !context.blocks.is_empty()).collect()
            }
        };
        let pending = Pending { condensed, inner: recall.pending };
        Ok(Recall { contexts, pending: pending.into_value()? })
    }

    fn learn(&mut self, experience: &Experience, handles: &Handles<'_>) -> anyhow::Result<()> {
        let Pending { condensed, inner } = serde_json::from_value(experience.pending.clone()).unwrap_or_default();
        let shown = |id: &String| if id == SUMMARY_ID { condensed.clone() } else { vec![id.clone()] };
        let recalled = experience.recalled.iter().flat_map(shown).collect();
        self.inner.learn(&Experience { recalled, pending: inner, ..experience.clone() }, handles)
    }

    fn save(&self) -> Vec<u8> {
        self.inner.save()
    }

    fn load(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.inner.load(bytes)
    }

    fn stop_strings(&self) -> Vec<String> {
        self.inner.stop_strings()
    }
}

impl Pending {
    /// `null` when there is nothing to hand on.
    fn into_value(self) -> anyhow::Result<Value> {
        if self.condensed.is_empty() && self.inner.is_null() {
            return Ok(Value::Null);
        }
        Ok(serde_json::to_value(self)?)
    }
}

/// One action a text, in one batch; keep where the reply names none.
fn judge(task: &TaskView, texts: &[String], llm: &Asker<'_>) -> anyhow::Result<Vec<Action>> {
    let limit = llm.room(PROMPT_TOKENS, REPLY_TOKENS);
    let calls: Vec<Call> = texts
        .iter()
        .map(|text| {
            let values =
                [("task_type", task_type(task)), ("current_task", &*task.question), ("retrieved_memory", &**text)];
            let prompt = fill_within(COMPILE, &values, &["retrieved_memory", "current_task"], limit, llm);
            Call { purpose: "seu/compile", prompt, max_tokens: REPLY_TOKENS, temperature: 0.0, form: Some(form()) }
        })
        .collect();
    let actions = llm.ask_all(calls, |_, reply| Action::read(reply))?;
    Ok(actions.into_iter().map(|action| action.unwrap_or(Action::Keep)).collect())
}

/// One of the three actions, the last with its summary.
fn form() -> Grammar {
    Grammar::Regex(r"KEEP|IGNORE|SUMMARIZE\n\S(.|\n)*".into())
}

fn task_type(task: &TaskView) -> &'static str {
    match task.reply_format {
        ReplyFormat::Code { .. } => "code generation",
        ReplyFormat::Choice(_) => "multiple choice",
        ReplyFormat::Number => "question with a number as the answer",
        ReplyFormat::FreeText | ReplyFormat::Line => "question with a short text as the answer",
    }
}

fn bundle(context: Context, action: Action, condensed: &mut Vec<String>) -> Option<Context> {
    match action {
        Action::Keep => Some(context),
        Action::Ignore => None,
        Action::Summarize(summary) => {
            condensed.extend(context.blocks.iter().map(|block| block.id.clone()));
            let block = Block { id: SUMMARY_ID.into(), content: Content::Text(summary), score: 1.0 };
            Some(Context { placement: of_text(context.placement), blocks: vec![block], ..context })
        }
    }
}

fn items(context: Context, actions: &mut impl Iterator<Item = Action>) -> Context {
    let mut placement = context.placement;
    let blocks = context.blocks.into_iter().zip(actions).filter_map(|(block, action)| match action {
        Action::Keep => Some(block),
        Action::Ignore => None,
        Action::Summarize(summary) => {
            placement = of_text(placement);
            Some(Block { content: Content::Text(summary), ..block })
        }
    });
    let blocks = blocks.collect();
    Context { placement, blocks, ..context }
}

/// A condensed text is no pair of question and reply: it cannot stand as a turn.
fn of_text(placement: Placement) -> Placement {
    if placement == Placement::EarlierTurns { Placement::BeforeQuestion } else { placement }
}

impl Action {
    /// The first line names the action; else the one action word that the reply holds.
    fn read(reply: &str) -> Option<Action> {
        let reply = ladder::unfenced(reply);
        let said = reply.trim_start_matches(|c: char| !c.is_alphanumeric());
        let starts = |word: &str| said.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
        let is_word = |word: &str| {
            starts(word) && said.as_bytes().get(word.len()).is_none_or(|next| !next.is_ascii_alphanumeric())
        };
        if is_word("KEEP") {
            return Some(Action::Keep);
        }
        if is_word("IGNORE") {
            return Some(Action::Ignore);
        }
        if let Some(word) = SUMMARIZE.iter().find(|word| starts(word)) {
            return Some(Action::condensed(&said[word.len()..]));
        }
        let upper = said.to_ascii_uppercase();
        let found: Vec<&&str> =
            ["KEEP", "IGNORE"].iter().chain(&SUMMARIZE).filter(|word| upper.contains(**word)).collect();
        match found.as_slice() {
            [word] if **word == "KEEP" => Some(Action::Keep),
            [word] if **word == "IGNORE" => Some(Action::Ignore),
            // ASCII capitals change no byte's place.
            [word] => Some(Action::condensed(&said[upper.find(**word)? + word.len()..])),
            _ => None,
        }
    }

    /// A summary of nothing is nothing.
    fn condensed(rest: &str) -> Action {
        let summary = rest.trim_start_matches(|c: char| c.is_whitespace() || "*_`:.—–-\"'".contains(c));
        if summary.trim().is_empty() { Action::Ignore } else { Action::Summarize(clip(summary, SUMMARY_CHARACTERS)) }
    }
}

const SUMMARIZE: [&str; 2] = ["SUMMARIZE", "SUMMARISE"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::{Bench, create, experience, task};

    #[test]
    fn the_form_admits_the_three_actions_and_can_be_left_out() {
        let Grammar::Regex(pattern) = form() else { panic!("a regular expression") };
        let pattern = regex::Regex::new(&format!("^(?:{pattern})$")).unwrap();
        for (reply, is_admitted) in [
            ("KEEP", true),
            ("IGNORE", true),
            ("SUMMARIZE\nTry both.\nThen stop.", true),
            ("SUMMARIZE", false),
            ("Keep it", false),
        ] {
            assert_eq!(pattern.is_match(reply), is_admitted, "{reply:?}");
            assert!(!is_admitted || Action::read(reply).is_some());
        }
        for (options, held) in [("", true), ("constrained = false", false)] {
            let bench = Bench::new(|_| "KEEP".to_string());
            let mut memory = create(NAME, &format!("memory = \"replay\"\n{options}"));
            bench.learn(memory.as_mut(), &experience("q", "r", true, 0));
            bench.recall(memory.as_ref(), &task("x"));
            assert_eq!(bench.held(), [held], "{options}");
        }
    }

    #[test]
    fn replies_are_read_as_the_table_says() {
        let summary = |text: &str| Some(Action::Summarize(text.into()));
        for (reply, expected) in [
            ("KEEP", Some(Action::Keep)),
            ("keep", Some(Action::Keep)),
            ("**KEEP**", Some(Action::Keep)),
            ("\n`Ignore`.\n", Some(Action::Ignore)),
            ("```\nIGNORE\n```", Some(Action::Ignore)),
            ("SUMMARIZE\nCount first.", summary("Count first.")),
            ("SUMMARISE: Count first.\nThen add.", summary("Count first.\nThen add.")),
            ("**Summarize**: Count.", summary("Count.")),
            ("SUMMARIZE", Some(Action::Ignore)),
            ("summarize:\n", Some(Action::Ignore)),
            ("I would keep this.", Some(Action::Keep)),
            ("My answer is SUMMARIZE Count first.", summary("Count first.")),
            ("Either KEEP or IGNORE.", None),
            ("Keeping this in mind, I would IGNORE it. KEEP nothing.", None),
            ("No idea.", None),
            ("", None),
        ] {
            assert_eq!(Action::read(reply), expected, "{reply:?}");
        }
    }

    fn wrapped(reply: &'static str, inner: &str, options: &str) -> (Bench, Box<dyn Memory>) {
        let bench = Bench::new(move |prompt| {
            if prompt.contains("<retrieved_memory>") { reply } else { "1. Do it." }.to_string()
        });
        let mut memory = create(NAME, &format!("memory = \"{inner}\"\n{options}"));
        bench.step(memory.as_mut(), experience("apple one", "r", true, 0));
        bench.step(memory.as_mut(), experience("apple two", "s", true, 1));
        (bench, memory)
    }

    #[test]
    fn keep_ignore_summarize_and_nonsense() {
        let shown = |reply| {
            let (bench, memory) = wrapped(reply, "rag", "options = { placement = \"earlier_turns\" }");
            bench.recall(memory.as_ref(), &task("apple")).contexts
        };
        let kept = shown("KEEP");
        assert_eq!(kept[0].blocks.len(), 2);
        assert_eq!(shown("what?"), kept);
        assert!(shown("IGNORE").is_empty());
        let condensed = &shown("SUMMARIZE Say r.")[0];
        assert_eq!(condensed.blocks[0].content, Content::Text("Say r.".into()));
        assert_eq!((condensed.placement, &condensed.preamble), (Placement::BeforeQuestion, &kept[0].preamble));
    }

    #[test]
    fn each_item_is_judged_alone_when_asked_to() {
        let (bench, memory) = wrapped("SUMMARIZE Short.", "rag", "granularity = \"item\"");
        let (recall, calls) = bench.recall_at(memory.as_ref(), &task("apple"), 2);
        assert_eq!(calls.len(), 2);
        assert!(recall.contexts[0].blocks.iter().all(|block| block.content == Content::Text("Short.".into())));
        assert!(recall.contexts[0].blocks.iter().any(|block| block.id == "t/apple one@0"));
    }

    /// The value of the memory that the last step was shown, or was not.
    fn q_after(reply: &'static str) -> f64 {
        let options = "options = { min_similarity = -1.0, epsilon = 0.0, k = 1 }";
        let (bench, mut memory) = wrapped(reply, "memrl", options);
        bench.step(memory.as_mut(), experience("apple one", "r", true, 2));
        let state: Value = serde_json::from_slice(&memory.save()).unwrap();
        state["state"]["memories"][0]["q"].as_f64().unwrap()
    }

    #[test]
    fn what_was_ignored_is_not_credited_and_what_was_condensed_is() {
        assert_eq!(q_after("IGNORE"), 0.0);
        assert!(q_after("KEEP") > 0.0);
        assert_eq!(q_after("SUMMARIZE Say r."), q_after("KEEP"));
    }

    #[test]
    fn the_wrapped_memory_is_named_in_errors_and_resolved_whole() {
        let method = find(NAME).unwrap();
        let error = |text: &str| format!("{:#}", method.create(&toml::from_str(text).unwrap()).err().unwrap());
        assert!(error("").contains("memory = \"NAME\""));
        assert!(error("memory = \"ragg\"").contains("did you mean `rag`"));
        assert!(error("memory = \"seu\"").contains("itself"));
        assert!(error("memory = \"rag\"\noptions = { kk = 1 }").contains("kk"));
        let resolved = method.resolve(&toml::from_str("memory = \"rag\"").unwrap()).unwrap();
        assert!(resolved.needs_embedder);
        assert_eq!(resolved.options["options"]["k"].as_integer(), Some(2));
    }
}
