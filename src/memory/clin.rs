//! CLIN: one numbered list of causal rules, rewritten by the backbone after every attempt (Majumder et al. 2023,
//! arXiv 2310.10134; the released agent for ScienceWorld).
//!
//! A rule has one of four shapes: two causal relations, each tentative or confirmed. Departures, because a lifelong
//! sequence is not one world: the list is asked to help with tasks of the same kind, is at most 25 rules long, and lines
//! of another shape are dropped, since they are model text that would stand in later prompts. A reply without any rule
//! keeps the old list. The three-part reply form of the game agent is not asked for. The reply is held to numbered lines of
//! these shapes (`constrained`; advice to numbered lines), since small backbones seldom write one.

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::bound::{clip, clip_line};
use super::llm::{Asker, Call};
use super::snapshot::Layout;
use super::template::fill;
use super::trajectory::{self, Outcome};
use super::{Block, Content, Context, Handles, Memory, MemoryMethod, Recall, Resolved, TextPlacement, options};
use crate::engine::grammar::Grammar;
use crate::record::{Experience, Feedback, TaskView};
use crate::registry::Registered;

pub struct Clin;

const NAME: &str = "clin";
const UPDATE: &str = include_str!("../../configs/prompts/clin_update.txt");
const META: &str = include_str!("../../configs/prompts/clin_meta.txt");
const CAUSAL: &str = include_str!("../../configs/prompts/clin_causal.txt");
const ADVICE: &str = include_str!("../../configs/prompts/clin_advice.txt");
const SAME_TASK: &str = include_str!("../../configs/prompts/clin_same_task.txt");
const SAME_FAMILY: &str = include_str!("../../configs/prompts/clin_same_family.txt");
const OTHER_TASKS: &str = include_str!("../../configs/prompts/clin_other_tasks.txt");

/// Runs that stay in the state: what generalised rules are made from.
const KEPT_RUNS: usize = 30;
/// Runs that one generalisation reads.
const META_RUNS: usize = 10;
const META_ITEMS: usize = 20;
const ITEM_CHARACTERS: usize = 300;
const TASK_CHARACTERS: usize = 600;

/// Options of `[[agents]]` with `memory = "clin"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    mode: Mode,
    items: Items,
    /// Earlier runs whose lists the rewriting reads.
    last_runs: usize,
    /// Most rules of the list.
    max_items: usize,
    max_prompt_tokens: usize,
    max_update_tokens: usize,
    /// With `mode = "matched"`: generalised rules are made after this many learned tasks; 0 never.
    meta_every: u32,
    /// Whether replies are held to their form, where they have one; the published method parses free text.
    constrained: bool,
    placement: TextPlacement,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// One list for everything.
    Rolling,
    /// The list of the same task or family where there is one, else generalised rules, else the newest list.
    Matched,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Items {
    /// The four causal shapes.
    Causal,
    /// Free advice: the paper's ablation.
    Advice,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            mode: Mode::Rolling,
            items: Items::Causal,
            last_runs: 3,
            max_items: 25,
            max_prompt_tokens: 6500,
            max_update_tokens: 1000,
            meta_every: 10,
            constrained: true,
            placement: TextPlacement::BeforeQuestion,
        }
    }
}

impl Options {
    fn read(table: &toml::Table) -> anyhow::Result<Options> {
        let options: Options = options(NAME, table)?;
        ensure!(options.max_items > 0, "memory `clin`: `max_items` must be at least 1, found 0");
        Ok(options)
    }
}

impl Registered for Clin {
    fn name(&self) -> &str {
        NAME
    }
    fn about(&self) -> &str {
        "one list of causal rules, rewritten by the backbone after every attempt"
    }
    fn source(&self) -> &str {
        "CLIN, arXiv 2310.10134; PATH-Bench agent"
    }
}

impl MemoryMethod for Clin {
    fn create(&self, table: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        Ok(Box::new(Rules { options: Options::read(table)?, state: State::default() }))
    }

    fn resolve(&self, table: &toml::Table) -> anyhow::Result<Resolved> {
        Resolved::of(&Options::read(table)?)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct State {
    /// The newest list; empty before the first.
    current: String,
    /// Generalised rules.
    meta: Option<String>,
    /// The last runs, oldest first.
    runs: Vec<Run>,
    /// Tasks learned from, ever.
    learned: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Run {
    task: String,
    family: Option<String>,
    question: String,
    /// How many runs of the same task came before.
    episode: u32,
    grade: Option<f64>,
    learnings: String,
}

impl Run {
    fn block(&self) -> String {
        let report = report(self.grade);
        format!(
            "Task: {}\nAttempt {} at it. {report}\nRules after it:\n{}",
            self.question,
            self.episode + 1,
            self.learnings
        )
    }
}

struct Rules {
    options: Options,
    state: State,
}

impl Memory for Rules {
    fn recall(&self, task: &TaskView, _handles: &Handles<'_>) -> anyhow::Result<Recall> {
        let (preamble, list) = self.list_for(task);
        let blocks = if list.is_empty() {
            Vec::new()
        } else {
            vec![Block { id: NAME.into(), content: Content::Text(list.to_string()), score: 1.0 }]
        };
        Ok(Recall::of(Context {
            placement: self.options.placement.into(),
            preamble: preamble.trim_end().into(),
            blocks,
        }))
    }

    fn learn(&mut self, experience: &Experience, handles: &Handles<'_>) -> anyhow::Result<()> {
        let llm = &handles.asker(NAME, self.options.constrained)?;
        let prompt = self.update_prompt(experience, llm);
        let Options { max_update_tokens, max_items, .. } = self.options;
        let call = Call {
            purpose: "clin/update",
            prompt,
            max_tokens: max_update_tokens,
            temperature: 0.0,
            form: Some(self.options.items.form(max_items)),
        };
        let list = llm.ask(call, |reply| self.options.items.read(reply, max_items))?;

        let mut state = self.state.clone();
        state.current = list.unwrap_or(state.current);
        let task = experience.task.id.to_string();
        state.runs.push(Run {
            episode: state.runs.iter().filter(|run| run.task == task).count() as u32,
            task,
            family: experience.task.family.clone(),
            question: clip(&experience.task.question, TASK_CHARACTERS),
            grade: experience.feedback.grade(),
            learnings: state.current.clone(),
        });
        let excess = state.runs.len().saturating_sub(KEPT_RUNS);
        state.runs.drain(..excess);
        state.learned += 1;

        let every = self.options.meta_every;
        if self.options.mode == Mode::Matched && every > 0 && state.learned.is_multiple_of(every) {
            let call = Call { purpose: "clin/meta", ..meta_call(&self.options, &state.runs, llm) };
            let meta = llm.ask(call, |reply| self.options.items.read(reply, META_ITEMS))?;
            state.meta = meta.or(state.meta);
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

impl Rules {
    fn layout(&self) -> Layout<'_, Options> {
        Layout { method: NAME, version: 1, options: &self.options }
    }

    /// The list that fits a task best, and the sentence that says how the two are related.
    fn list_for(&self, task: &TaskView) -> (&str, &str) {
        let State { current, meta, runs, .. } = &self.state;
        if self.options.mode == Mode::Rolling {
            return (OTHER_TASKS, current);
        }
        let id = task.id.to_string();
        if let Some(run) = runs.iter().rev().find(|run| run.task == id) {
            return (SAME_TASK, &run.learnings);
        }
        if let Some(run) = runs.iter().rev().find(|run| run.family.is_some() && run.family == task.family) {
            return (SAME_FAMILY, &run.learnings);
        }
        (OTHER_TASKS, meta.as_deref().unwrap_or(current))
    }

    /// Over the budget first the generalised rules go, then the oldest run, again and again, then parts of the attempt.
    fn update_prompt(&self, experience: &Experience, llm: &Asker<'_>) -> String {
        let limit = llm.room(self.options.max_prompt_tokens, self.options.max_update_tokens);
        let mut meta = self.state.meta.as_deref();
        let first = self.state.runs.len().saturating_sub(self.options.last_runs);
        let mut previous: Vec<String> = self.state.runs[first..].iter().map(Run::block).collect();
        let filled = |meta: Option<&str>, previous: &[String], attempt: &str| {
            let earlier = if previous.is_empty() { "(none yet)".to_string() } else { previous.join("\n\n") };
            let meta = meta.map_or(String::new(), |meta| format!("General rules from other tasks:\n{meta}\n\n"));
            let values = [
                ("shapes", self.options.items.prompt()),
                ("reminder", self.options.items.reminder()),
                ("max_items", &*self.options.max_items.to_string()),
                ("meta", &*meta),
                ("earlier", &*earlier),
                ("attempt", attempt),
                ("report", &*reported(experience)),
            ];
            fill(UPDATE, &values)
        };
        let attempt = trajectory::full(experience, Outcome::Hidden);
        loop {
            let prompt = filled(meta, &previous, &attempt);
            let tokens = llm.count(&prompt);
            if tokens <= limit {
                return prompt;
            }
            if meta.take().is_some() {
                continue;
            }
            if !previous.is_empty() {
                previous.remove(0);
                continue;
            }
            let left = (limit + llm.count(&attempt)).saturating_sub(tokens);
            return filled(None, &[], &trajectory::within(experience, Outcome::Hidden, left, &|text| llm.count(text)));
        }
    }
}

/// The best run of each task, at most ten, asked to become rules without particular objects.
fn meta_call(options: &Options, runs: &[Run], llm: &Asker<'_>) -> Call {
    let mut best: Vec<&Run> = Vec::new();
    for run in runs {
        match best.iter_mut().find(|kept| kept.task == run.task) {
            Some(kept) if run.grade >= kept.grade => *kept = run,
            Some(_) => {}
            None => best.push(run),
        }
    }
    // Stable: among equals the earlier stays in front.
    best.sort_by(|left, right| right.grade.unwrap_or(0.0).total_cmp(&left.grade.unwrap_or(0.0)));
    best.truncate(META_RUNS);
    let limit = llm.room(options.max_prompt_tokens, options.max_update_tokens);
    let filled = |best: &[&Run]| {
        let runs = best.iter().map(|run| run.block()).collect::<Vec<_>>().join("\n\n");
        let values = [
            ("shapes", options.items.prompt()),
            ("reminder", options.items.reminder()),
            ("max_items", &*META_ITEMS.to_string()),
            ("runs", &*runs),
        ];
        fill(META, &values)
    };
    while best.len() > 1 && llm.count(&filled(&best)) > limit {
        best.pop();
    }
    Call {
        purpose: "clin/meta",
        prompt: filled(&best),
        max_tokens: options.max_update_tokens,
        temperature: 0.0,
        form: Some(options.items.form(META_ITEMS)),
    }
}

impl Items {
    fn prompt(self) -> &'static str {
        match self {
            Items::Causal => CAUSAL.trim_end(),
            Items::Advice => ADVICE.trim_end(),
        }
    }

    /// Said once more at the prompt's end, where small models listen.
    fn reminder(self) -> &'static str {
        match self {
            Items::Causal => {
                "Every line has MAY BE NECESSARY to, SHOULD BE NECESSARY to, MAY NOT CONTRIBUTE to or DOES NOT CONTRIBUTE to in it."
            }
            Items::Advice => "Every line is one sentence of advice.",
        }
    }

    /// At most so many numbered lines of the right shape.
    fn form(self, most: usize) -> Grammar {
        let item = match self {
            Items::Causal => {
                r"[A-Z][^\n]{2,100} (MAY BE NECESSARY|SHOULD BE NECESSARY|MAY NOT CONTRIBUTE|DOES NOT CONTRIBUTE) to [^\n]{3,150}"
            }
            Items::Advice => r"[A-Z][^\n]{2,250}",
        };
        let line = format!(r"[1-9][0-9]?\. {item}");
        Grammar::Regex(format!(r"{line}(\n{line}){{0,{}}}", most.saturating_sub(1)))
    }

    /// The list in a reply, numbered anew; `None` when no line of it is an item.
    fn read(self, reply: &str, most: usize) -> Option<String> {
        let mut items: Vec<String> = Vec::new();
        for line in reply.lines().map(without_marker) {
            let item = clip_line(line, ITEM_CHARACTERS);
            if self.is_item(&item) && !items.contains(&item) && items.len() < most {
                items.push(item);
            }
        }
        let numbered = items.iter().enumerate().map(|(index, item)| format!("{}. {item}", index + 1));
        Some(numbered.collect::<Vec<_>>().join("\n")).filter(|list| !list.is_empty())
    }

    fn is_item(self, line: &str) -> bool {
        const SHAPES: [&str; 4] = [
            " MAY BE NECESSARY TO ",
            " SHOULD BE NECESSARY TO ",
            " MAY NOT CONTRIBUTE TO ",
            " DOES NOT CONTRIBUTE TO ",
        ];
        match self {
            // The shapes themselves, copied from the prompt, say nothing.
            Items::Causal => SHAPES.iter().any(|shape| {
                let line = line.to_uppercase();
                line.contains(shape) && line != format!("X{shape}Y")
            }),
            Items::Advice => line.chars().any(char::is_alphabetic),
        }
    }
}

/// The line without a list marker: digits with a stop or bracket, a dash, a star.
fn without_marker(line: &str) -> &str {
    let line = line.trim();
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    match rest.strip_prefix(['.', ')', ':']) {
        Some(rest) if rest.len() < line.len() - 1 => rest.trim(),
        _ => line.trim_start_matches(['-', '*', '•']).trim(),
    }
}

fn reported(experience: &Experience) -> String {
    match &experience.feedback {
        Feedback::Revealed { solution, .. } => {
            format!("{} The reference solution was:\n{solution}", report(experience.feedback.grade()))
        }
        feedback => report(feedback.grade()),
    }
}

/// The outcome in words, by the released agent's ranges of a score of 100.
fn report(grade: Option<f64>) -> String {
    let Some(score) = grade.map(|grade| grade * 100.0) else {
        return "Evaluation: the outcome is not known; judge it yourself.".into();
    };
    let words = match score {
        s if s < 20.0 => "The attempt did poorly.",
        s if s < 50.0 => "The attempt made moderate progress.",
        s if s < 90.0 => "The attempt did very well but did not finish.",
        s if s < 100.0 => "The attempt nearly solved the task.",
        _ => "The attempt solved the task.",
    };
    format!("Evaluation: final score {score:.0} of 100. {words}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::{Bench, create, experience, task};

    const RULES: &str = "1. Reading the last line MAY BE NECESSARY to name the colour.\nSo there.\n\
                         2) Guessing DOES NOT CONTRIBUTE to a right answer.";

    #[test]
    fn rules_of_the_four_shapes_replace_the_list_and_other_lines_are_dropped() {
        let bench = Bench::new(|_| RULES.to_string());
        let mut memory = create(NAME, "");
        bench.learn(memory.as_mut(), &experience("q", "r", false, 0));
        let shown = bench.recall(memory.as_ref(), &task("other"));
        assert_eq!(
            shown.contexts[0].blocks[0].content.as_text(),
            "1. Reading the last line MAY BE NECESSARY to name the colour.\n2. Guessing DOES NOT CONTRIBUTE to a right answer."
        );
        assert!(bench.prompts()[0].contains("final score 0 of 100"));
    }

    #[test]
    fn a_reply_without_any_valid_rule_keeps_the_old_list() {
        let bench = Bench::new(|prompt| if prompt.contains("bad") { "be nice" } else { RULES }.to_string());
        let mut memory = create(NAME, "");
        bench.learn(memory.as_mut(), &experience("good", "r", true, 0));
        let before = bench.recall(memory.as_ref(), &task("x"));
        let calls = bench.learn(memory.as_mut(), &experience("bad", "r", true, 1));
        assert_eq!(calls.iter().filter(|call| !call.is_read).count(), 1);
        assert_eq!(bench.recall(memory.as_ref(), &task("x")), before);
    }

    #[test]
    fn an_attempt_longer_than_the_budget_is_cut_and_the_call_is_made() {
        let bench = Bench::new(|_| RULES.to_string());
        let mut memory = create(NAME, "max_prompt_tokens = 700");
        let calls = bench.learn(memory.as_mut(), &experience("q", &"word ".repeat(20_000), true, 0));
        assert!(calls[0].is_read && calls[0].usage.prompt_tokens < 800, "{:?}", calls[0].usage);
    }

    #[test]
    fn matched_mode_tells_the_same_task_and_the_family_apart() {
        let bench = Bench::new(|_| RULES.to_string());
        let mut memory = create(NAME, "mode = \"matched\"\nmeta_every = 2");
        let mut first = experience("a", "r", true, 0);
        first.task.family = Some("f".into());
        bench.learn(memory.as_mut(), &first);
        let calls = bench.learn(memory.as_mut(), &experience("b", "r", true, 1));
        assert_eq!(calls.iter().map(|call| call.purpose.as_str()).collect::<Vec<_>>(), ["clin/update", "clin/meta"]);
        let preamble = |task: &TaskView| bench.recall(memory.as_ref(), task).contexts[0].preamble.clone();
        assert_eq!(preamble(&task("a")), SAME_TASK.trim_end());
        let cousin = TaskView { family: Some("f".into()), ..task("c") };
        assert_eq!(preamble(&cousin), SAME_FAMILY.trim_end());
        assert_eq!(preamble(&task("d")), OTHER_TASKS.trim_end());
    }

    #[test]
    fn the_report_has_the_released_ranges() {
        for (grade, word) in
            [(0.0, "poorly"), (0.2, "moderate"), (0.5, "very well"), (0.9, "nearly"), (1.0, "solved the")]
        {
            assert!(report(Some(grade)).contains(word), "{grade}");
        }
    }
}
