//! Agent Workflow Memory: successful attempts are turned into named workflows, and the workflows are shown (Wang et al.
//! 2024, arXiv 2409.07429; released code: `webarena/induce_prompt.py`, `webarena/induce_rule.py`).
//!
//! As in the released code, all workflows are induced anew from all successes after each success; `mode = "append"` is
//! what the paper describes. Departures: workflows have a strict block form, so that they can be split again; what is no
//! block is dropped, and replies are held to blocks (`constrained`), which small backbones seldom write; the steps of a
//! program are its top-level parts; the worked example of the prompt never enters the memory; the semantic choice takes the
//! nearest workflows (the released retriever sorts the wrong way).

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::bound::{clip, clip_line};
use super::judge;
use super::llm::{Asker, Call};
use super::snapshot::Layout;
use super::template::fill;
use super::trajectory;
use super::vector::{Space, Vector, ranked};
use super::{Block, Content, Context, Handles, Memory, MemoryMethod, Recall, Resolved, TextPlacement, options};
use crate::engine::grammar::Grammar;
use crate::record::{Experience, ReplyFormat, TaskView};
use crate::registry::Registered;

pub struct Awm;

const NAME: &str = "awm";
const INDUCE: &str = include_str!("../../configs/prompts/awm_induce.txt");
const PREAMBLE: &str = include_str!("../../configs/prompts/awm_preamble.txt");
const EXAMPLES_PREAMBLE: &str = include_str!("../../configs/prompts/awm_examples_preamble.txt");
/// Title of the worked example in the prompt.
const WORKED_EXAMPLE: &str = "Answer a question from a table";

const HEADING: &str = "### Workflow:";
const TITLE_CHARACTERS: usize = 120;
const DESCRIPTION_CHARACTERS: usize = 400;
const BODY_CHARACTERS: usize = 2000;
const QUESTION_CHARACTERS: usize = 2000;
const STEP_CHARACTERS: usize = 1000;
const MAX_STEPS: usize = 30;

/// Options of `[[agents]]` with `memory = "awm"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    mode: Mode,
    show: Show,
    /// Workflows shown with `show = "nearest"`.
    k: usize,
    /// Most workflows kept.
    max_workflows: usize,
    /// Most successes kept and shown to the induction, newest first.
    max_examples: usize,
    max_prompt_tokens: usize,
    max_induced_tokens: usize,
    temperature: f64,
    /// Successes whose questions are at least this similar count as one, the newest; absent: only the same task does.
    same_task_cosine: Option<f64>,
    /// Whether replies are held to their form; the published method parses free text.
    constrained: bool,
    placement: TextPlacement,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// All workflows anew from all successes.
    Reinduce,
    /// New workflows from the newest success, beside those there are; one that says what a known one does is left out,
    /// which takes an embedding model.
    Append,
    /// No induction: successes with different steps are shown as they are.
    Examples,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Show {
    All,
    /// The k whose title and description are nearest to the question.
    Nearest,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            mode: Mode::Reinduce,
            show: Show::All,
            k: 2,
            max_workflows: 10,
            max_examples: 20,
            max_prompt_tokens: 12_000,
            max_induced_tokens: 2048,
            temperature: 1.0,
            same_task_cosine: None,
            constrained: true,
            placement: TextPlacement::AfterInstructions,
        }
    }
}

impl Options {
    fn read(table: &toml::Table) -> anyhow::Result<Options> {
        let options: Options = options(NAME, table)?;
        let counts =
            [("k", options.k), ("max_workflows", options.max_workflows), ("max_examples", options.max_examples)];
        for (key, value) in counts {
            ensure!(value > 0, "memory `awm`: `{key}` must be at least 1, found 0");
        }
        ensure!(
            options.show == Show::All || options.mode != Mode::Examples,
            "memory `awm`: `show = \"nearest\"` chooses workflows, and `mode = \"examples\"` makes none"
        );
        Ok(options)
    }

    fn embeds(&self) -> bool {
        self.embeds_workflows() || self.same_task_cosine.is_some()
    }

    /// To choose the nearest, or to know a new workflow that says what an old one does.
    fn embeds_workflows(&self) -> bool {
        self.show == Show::Nearest || self.mode == Mode::Append
    }
}

impl Registered for Awm {
    fn name(&self) -> &str {
        NAME
    }
    fn about(&self) -> &str {
        "workflows induced by the backbone from successful attempts"
    }
    fn source(&self) -> &str {
        "Agent Workflow Memory, arXiv 2409.07429; PATH-Bench agent"
    }
}

impl MemoryMethod for Awm {
    fn create(&self, table: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        Ok(Box::new(Workflows { options: Options::read(table)?, state: State::default() }))
    }

    fn resolve(&self, table: &toml::Table) -> anyhow::Result<Resolved> {
        let options = Options::read(table)?;
        let needs_embedder = options.embeds();
        Ok(Resolved { needs_embedder, max_memory_tokens: Resolved::LIBRARY_TOKENS, ..Resolved::of(&options)? })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct State {
    space: Space,
    /// Oldest first.
    successes: Vec<Success>,
    workflows: Vec<Workflow>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Success {
    task: String,
    question: String,
    steps: Vec<String>,
    /// Of the question, with `same_task_cosine`.
    vector: Option<Vector>,
}

impl Success {
    fn of(experience: &Experience) -> Success {
        Success {
            task: experience.task.id.to_string(),
            question: clip(&experience.task.question, QUESTION_CHARACTERS),
            steps: steps(experience),
            vector: None,
        }
    }

    fn text(&self) -> String {
        let steps = self.steps.iter().enumerate().map(|(index, step)| format!("Step {}:\n{step}", index + 1));
        format!("Task: {}\n{}", self.question, steps.collect::<Vec<_>>().join("\n"))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Workflow {
    title: String,
    description: String,
    /// Numbered steps, one a line or more.
    body: String,
    /// Of title and description, with `show = "nearest"` or `mode = "append"`.
    vector: Option<Vector>,
}

impl Workflow {
    fn text(&self) -> String {
        format!("{HEADING} {}\n{}\n{}", self.title, self.description, self.body)
    }

    fn key(&self) -> String {
        format!("{} {}", self.title, self.description)
    }
}

struct Workflows {
    options: Options,
    state: State,
}

impl Memory for Workflows {
    fn recall(&self, task: &TaskView, handles: &Handles<'_>) -> anyhow::Result<Recall> {
        let placement = self.options.placement.into();
        if self.options.mode == Mode::Examples {
            let blocks = self.state.successes.iter().enumerate().map(|(index, success)| Block {
                id: success.task.clone(),
                content: Content::Text(success.text()),
                // A short budget drops the oldest first.
                score: index as f64,
            });
            return Ok(Recall::of(Context {
                placement,
                preamble: EXAMPLES_PREAMBLE.trim_end().into(),
                blocks: blocks.collect(),
            }));
        }
        let block = |workflow: &Workflow, score: f64| Block {
            id: workflow.title.clone(),
            content: Content::Text(workflow.text()),
            score,
        };
        let workflows = &self.state.workflows;
        let blocks = match self.options.show {
            // The induction lists the most useful first.
            Show::All => workflows.iter().enumerate().map(|(index, flow)| block(flow, -(index as f64))).collect(),
            Show::Nearest if workflows.is_empty() => Vec::new(),
            Show::Nearest => {
                let query = self.state.space.embed_query(NAME, &task.question, handles)?;
                let scores =
                    workflows.iter().map(|flow| flow.vector.as_ref().map_or(-1.0, |vector| vector.cosine(&query)));
                let nearest = ranked(scores).into_iter().take(self.options.k);
                nearest.map(|(score, index)| block(&workflows[index], score)).collect()
            }
        };
        Ok(Recall::of(Context { placement, preamble: PREAMBLE.trim_end().into(), blocks }))
    }

    fn learn(&mut self, experience: &Experience, handles: &Handles<'_>) -> anyhow::Result<()> {
        let llm = &handles.asker(NAME, self.options.constrained)?;
        if judge::is_success(experience, llm)? != Some(true) {
            return Ok(());
        }
        let mut state = self.state.clone();
        self.add(&mut state, Success::of(experience), handles)?;
        match self.options.mode {
            Mode::Examples => {}
            Mode::Reinduce => {
                if let Some(workflows) = self.induce(&state.successes, llm)? {
                    state.workflows = self.embedded(&mut state.space, workflows, handles)?;
                }
            }
            Mode::Append => {
                let newest = &state.successes[state.successes.len() - 1..];
                if let Some(workflows) = self.induce(newest, llm)? {
                    let new = self.embedded(&mut state.space, workflows, handles)?;
                    append(&mut state.workflows, new, self.options.max_workflows);
                }
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

impl Workflows {
    fn layout(&self) -> Layout<'_, Options> {
        Layout { method: NAME, version: 1, options: &self.options }
    }

    /// Takes in a success; an earlier one of the same task, by id, steps or similarity, makes room for it.
    fn add(&self, state: &mut State, mut new: Success, handles: &Handles<'_>) -> anyhow::Result<()> {
        if self.options.same_task_cosine.is_some() {
            new.vector = Some(state.space.embed_one(NAME, &new.question, handles)?);
            state.space.settle(handles);
        }
        state.successes.retain(|old| {
            let is_near = match (self.options.same_task_cosine, &old.vector, &new.vector) {
                (Some(least), Some(old), Some(new)) => old.cosine(new) >= least,
                _ => false,
            };
            let has_same_steps = self.options.mode == Mode::Examples && old.steps == new.steps;
            old.task != new.task && !is_near && !has_same_steps
        });
        state.successes.push(new);
        let excess = state.successes.len().saturating_sub(self.options.max_examples);
        state.successes.drain(..excess);
        Ok(())
    }

    /// Workflows from successes; the oldest are left out while the prompt is too long.
    fn induce(&self, successes: &[Success], llm: &Asker<'_>) -> anyhow::Result<Option<Vec<Workflow>>> {
        let limit = llm.room(self.options.max_prompt_tokens, self.options.max_induced_tokens);
        let most = self.options.max_workflows;
        let mut texts: Vec<String> = successes.iter().rev().map(Success::text).collect();
        let filled =
            |texts: &[String]| fill(INDUCE, &[("max_workflows", &most.to_string()), ("examples", &texts.join("\n\n"))]);
        while texts.len() > 1 && llm.count(&filled(&texts)) > limit {
            texts.pop();
        }
        let over = llm.count(&filled(&texts)).saturating_sub(limit);
        if over > 0
            && let Some(only) = texts.first_mut()
        {
            *only = llm.cut(only, llm.count(only).saturating_sub(over + 4));
        }
        let call = Call {
            purpose: "awm/induce",
            prompt: filled(&texts),
            max_tokens: self.options.max_induced_tokens,
            temperature: self.options.temperature,
            form: Some(form(most)),
        };
        llm.ask(call, |reply| Some(split(reply, most)).filter(|workflows| !workflows.is_empty()))
    }

    fn embedded(
        &self,
        space: &mut Space,
        mut workflows: Vec<Workflow>,
        handles: &Handles<'_>,
    ) -> anyhow::Result<Vec<Workflow>> {
        if self.options.embeds_workflows() {
            let keys: Vec<String> = workflows.iter().map(Workflow::key).collect();
            for (workflow, vector) in workflows.iter_mut().zip(space.embed(NAME, &keys, handles)?) {
                workflow.vector = Some(vector);
            }
            space.settle(handles);
        }
        Ok(workflows)
    }
}

/// New workflows behind the old, without those whose title is known or whose meaning is nearly (cosine 0.9); the oldest
/// leave when there are too many.
fn append(workflows: &mut Vec<Workflow>, new: Vec<Workflow>, most: usize) {
    const SAME: f64 = 0.9;
    for workflow in new {
        let is_known = workflows.iter().any(|known| {
            let is_near = match (&known.vector, &workflow.vector) {
                (Some(known), Some(new)) => known.cosine(new) >= SAME,
                _ => false,
            };
            is_near || known.title.eq_ignore_ascii_case(&workflow.title)
        });
        if !is_known {
            workflows.push(workflow);
        }
    }
    let excess = workflows.len().saturating_sub(most);
    workflows.drain(..excess);
}

/// Blocks as [`split`] reads them, with shorter lines than it would take: a small backbone fills whatever it may.
fn form(most: usize) -> Grammar {
    const MORE_STEPS: usize = 6;
    let line = |characters: usize| format!(r"\S[^\n]{{0,{}}}", characters - 1);
    let (title, description, step) = (line(80), line(120), line(160));
    let block =
        format!(r"{HEADING} {title}\n{description}\n1\. {step}\n2\. {step}(\n[3-9]\. {step}){{0,{MORE_STEPS}}}");
    Grammar::Regex(format!(r"{block}(\n\n{block}){{0,{}}}", most - 1))
}

/// The workflow blocks of a reply: a heading, a line of description, at least two lines of steps.
fn split(reply: &str, most: usize) -> Vec<Workflow> {
    let mut blocks: Vec<(String, Vec<&str>)> = Vec::new();
    for line in reply.lines() {
        let heading = line.trim().trim_start_matches('#').trim();
        let title =
            heading.get(..9).filter(|word| line.trim().starts_with('#') && word.eq_ignore_ascii_case("workflow:"));
        match (title, blocks.last_mut()) {
            (Some(_), _) => blocks.push((clip_line(&heading[9..], TITLE_CHARACTERS), Vec::new())),
            (None, Some((_, lines))) if !line.trim().is_empty() => lines.push(line.trim_end()),
            _ => {}
        }
    }
    let mut workflows: Vec<Workflow> = Vec::new();
    for (title, lines) in blocks {
        let is_new = !title.is_empty()
            && !title.eq_ignore_ascii_case(WORKED_EXAMPLE)
            && workflows.iter().all(|workflow| !workflow.title.eq_ignore_ascii_case(&title));
        if let ([description, steps @ ..], true) = (lines.as_slice(), is_new)
            && steps.len() >= 2
            && workflows.len() < most
        {
            workflows.push(Workflow {
                title,
                description: clip_line(description, DESCRIPTION_CHARACTERS),
                body: clip(&steps.join("\n"), BODY_CHARACTERS),
                vector: None,
            });
        }
    }
    workflows
}

/// What was done, part by part: the turns of a dialogue, or the top-level parts of a program.
fn steps(experience: &Experience) -> Vec<String> {
    let steps = match (&experience.task.reply_format, &experience.answer) {
        (ReplyFormat::Code { .. }, Some(program)) => parts(program),
        _ => trajectory::steps(experience)
            .into_iter()
            .map(|step| match step.thought {
                Some(thought) => format!("Think: {thought}\nDo: {}", step.action),
                None => format!("Do: {}", step.action),
            })
            .collect(),
    };
    steps.iter().take(MAX_STEPS).map(|step| clip(step, STEP_CHARACTERS)).collect()
}

/// A program cut before every line at the left margin; lines of one kind of import stay together.
fn parts(program: &str) -> Vec<String> {
    let is_import = |line: &str| line.starts_with("import ") || line.starts_with("from ");
    let mut parts: Vec<String> = Vec::new();
    for line in program.lines().filter(|line| !line.trim().is_empty()) {
        let starts_part = !line.starts_with([' ', '\t', ')', ']', '}']);
        match parts.last_mut() {
            Some(part) if !starts_part || (is_import(line) && part.lines().all(is_import)) => {
                part.push('\n');
                part.push_str(line);
            }
            _ => parts.push(line.to_string()),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::{Bench, create, experience, task};
    use crate::record::Feedback;

    const FLOWS: &str = "Here they are.\n\n### Workflow: Count letters\nFor questions about letters.\n1. Spell {word}.\n\
                         2. Count {letter}.\n\n### Workflow: Only a title\n\n## workflow: Add up\nFor sums.\n1. Align.\n2. Add.\n";

    #[test]
    fn splitting_is_the_inverse_of_rendering() {
        let workflows = split(FLOWS, 10);
        assert_eq!(workflows.iter().map(|flow| flow.title.as_str()).collect::<Vec<_>>(), ["Count letters", "Add up"]);
        let text = workflows.iter().map(Workflow::text).collect::<Vec<_>>().join("\n\n");
        assert_eq!(split(&text, 10), workflows);
        assert_eq!(split(&text, 1), workflows[..1]);
    }

    #[test]
    fn failures_never_enter_the_induction() {
        let bench = Bench::new(|_| FLOWS.to_string());
        let mut memory = create(NAME, "");
        assert_eq!(bench.learn(memory.as_mut(), &experience("lost cause", "r", false, 0)), []);
        bench.learn(memory.as_mut(), &experience("won", "r", true, 1));
        bench.learn(memory.as_mut(), &experience("lost again", "r", false, 2));
        bench.learn(memory.as_mut(), &experience("won too", "r", true, 3));
        let prompts = bench.prompts();
        assert_eq!(prompts.len(), 2);
        assert!(!prompts[1].contains("lost") && prompts[1].contains("Task: won too\n"));
        assert!(prompts[1].find("won too").unwrap() < prompts[1].find("Task: won\n").unwrap(), "newest first");
        assert_eq!(bench.recall(memory.as_ref(), &task("x")).contexts[0].blocks.len(), 2);
    }

    #[test]
    fn the_form_is_that_of_the_blocks_and_can_be_left_out() {
        let Grammar::Regex(pattern) = form(2) else { panic!("a regular expression") };
        let pattern = regex::Regex::new(&format!("^(?:{pattern})$")).unwrap();
        let blocks: Vec<String> = split(FLOWS, 10).iter().map(Workflow::text).collect();
        assert!(pattern.is_match(&blocks.join("\n\n")) && pattern.is_match(&blocks[0]));
        for other in ["### Workflow: One step\nFor this.\n1. Do.", "Here they are.", ""] {
            assert!(!pattern.is_match(other), "{other:?}");
        }
        for (options, held) in [("", true), ("constrained = false", false)] {
            let bench = Bench::new(|_| FLOWS.to_string());
            bench.learn(create(NAME, options).as_mut(), &experience("q", "r", true, 0));
            assert_eq!(bench.held(), [held], "{options}");
        }
    }

    #[test]
    fn without_feedback_the_backbone_judges_and_an_unreadable_judgement_is_no_success() {
        for (judgement, kept) in [("Status: success", 2), ("Status: failure", 0), ("no idea", 0)] {
            let bench =
                Bench::new(move |prompt| if prompt.contains("Status:") { judgement } else { FLOWS }.to_string());
            let mut memory = create(NAME, "");
            let mut untold = experience("q", "r", true, 0);
            untold.feedback = Feedback::Withheld;
            bench.learn(memory.as_mut(), &untold);
            let shown = bench.recall(memory.as_ref(), &task("x"));
            assert_eq!(shown.contexts.first().map_or(0, |context| context.blocks.len()), kept, "{judgement}");
        }
    }

    #[test]
    fn the_worked_example_of_the_prompt_never_becomes_a_memory() {
        assert!(INDUCE.contains(&format!("{HEADING} {WORKED_EXAMPLE}\n")));
        let start = INDUCE.find(HEADING).unwrap();
        assert_eq!(split(&INDUCE[start..], 10), []);
    }

    #[test]
    fn the_nearest_workflows_are_shown() {
        let bench = Bench::new(|_| FLOWS.to_string());
        let mut memory = create(NAME, "show = \"nearest\"\nk = 1");
        bench.learn(memory.as_mut(), &experience("q", "r", true, 0));
        assert_eq!(bench.embedded(), 2);
        let shown = bench.recall(memory.as_ref(), &task("Add 3 and 4"));
        assert_eq!(shown.contexts[0].blocks[0].id, "Add up");
    }

    #[test]
    fn append_keeps_old_workflows_and_examples_keep_successes() {
        let bench = Bench::new(
            |prompt| if prompt.contains("second") { FLOWS.replace("Add", "Subtract") } else { FLOWS.into() },
        );
        let mut memory = create(NAME, "mode = \"append\"");
        bench.learn(memory.as_mut(), &experience("first", "r", true, 0));
        bench.learn(memory.as_mut(), &experience("second", "r", true, 1));
        let shown = bench.recall(memory.as_ref(), &task("x"));
        let ids: Vec<&str> = shown.contexts[0].blocks.iter().map(|block| block.id.as_str()).collect();
        assert_eq!(ids, ["Count letters", "Add up", "Subtract up"]);
        let mut examples = create(NAME, "mode = \"examples\"");
        for (position, (question, reply)) in [("a", "r"), ("b", "r"), ("c", "s")].into_iter().enumerate() {
            assert_eq!(bench.learn(examples.as_mut(), &experience(question, reply, true, position as u32)), []);
        }
        let shown = bench.recall(examples.as_ref(), &task("x"));
        assert_eq!(shown.contexts[0].blocks[0].content.as_text(), "Task: b\nStep 1:\nDo: r");
    }

    /// Also where all workflows are shown, and none is looked for by its vector.
    #[test]
    fn append_leaves_out_what_a_known_workflow_says_under_another_title() {
        let bench = Bench::new(|prompt| {
            if prompt.contains("second") {
                FLOWS.replace("Add up\n", "Add\nup ").replace("Count", "Tally")
            } else {
                FLOWS.into()
            }
        });
        let mut memory = create(NAME, "mode = \"append\"");
        bench.learn(memory.as_mut(), &experience("first", "r", true, 0));
        bench.learn(memory.as_mut(), &experience("second", "r", true, 1));
        let shown = bench.recall(memory.as_ref(), &task("x"));
        let ids: Vec<&str> = shown.contexts[0].blocks.iter().map(|block| block.id.as_str()).collect();
        assert_eq!(ids, ["Count letters", "Add up", "Tally letters"]);
        let needs = |options: &str| Awm.resolve(&toml::from_str(options).unwrap()).unwrap().needs_embedder;
        assert!(needs("mode = \"append\"") && !needs(""));
    }

    #[test]
    fn a_program_is_its_top_level_parts() {
        let program = "import a\nimport b\n\ndef f(x):\n    y = x\n\n    return y\n\nprint(\n    f(1)\n)\n";
        assert_eq!(parts(program), ["import a\nimport b", "def f(x):\n    y = x\n    return y", "print(\n    f(1)\n)"]);
    }
}
