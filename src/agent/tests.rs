//! The turn loop with a scripted backbone: what was asked, in which order, and what became of the replies.

use std::sync::Mutex;

use super::{Agent, Work, attempt};
use crate::engine::generate::{Generate, Prompter};
use crate::engine::request::{Completion, Finish, Request, Usage};
use crate::engine::sampling::Sampling;
use crate::engine::template::ChatMessage;
use crate::memory::{self, Block, Content, Context, Handles, Memory, Placement, Recall};
use crate::policy;
use crate::record::{
    Ending, Experience, Feedback, Message, Reference, ReplyFormat, Role, Task, TaskId, TaskView, tool,
};
use crate::seed::Seed;

/// Renders a chat as `role|content` lines, one token a byte, and replies with what a function says.
struct Scripted<F> {
    reply: F,
    context: usize,
    seen: Mutex<Vec<Request>>,
}

impl<F: Fn(&str) -> String + Send + Sync> Scripted<F> {
    fn new(reply: F) -> Self {
        Scripted { reply, context: 10_000, seen: Mutex::new(Vec::new()) }
    }

    fn prompts(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|request| text_of(&request.tokens)).collect()
    }
}

fn text_of(tokens: &[u32]) -> String {
    String::from_utf8(tokens.iter().map(|token| *token as u8).collect()).unwrap()
}

impl<F: Fn(&str) -> String + Send + Sync> Prompter for Scripted<F> {
    fn render(&self, messages: &[ChatMessage]) -> anyhow::Result<Vec<u32>> {
        let lines: Vec<String> = messages
            .iter()
            .map(|message| format!("{}|{}", message.role, message.content.as_str().unwrap_or_default()))
            .collect();
        Ok(self.encode(&lines.join("\n")))
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    fn has_template(&self) -> bool {
        true
    }
}

impl<F: Fn(&str) -> String + Send + Sync> Generate for Scripted<F> {
    fn complete_all(&self, requests: Vec<Request>) -> anyhow::Result<Vec<Completion>> {
        self.seen.lock().unwrap().extend(requests.clone());
        Ok(requests
            .into_iter()
            .map(|request| Completion {
                text: (self.reply)(&text_of(&request.tokens)),
                tokens: vec![1, 2],
                finish: Finish::Eos(0),
                usage: Usage { prompt: request.tokens.len(), reused: 3, generated: 3 },
                logprobs: Vec::new(),
                seed: request.seed,
            })
            .collect())
    }

    fn context(&self) -> usize {
        self.context
    }
}

fn task(question: &str) -> TaskView {
    TaskView {
        id: TaskId(format!("t/{question}")),
        family: None,
        system: Some("Answer.".into()),
        question: question.into(),
        reply_format: ReplyFormat::Line,
    }
}

fn remembering(name: &str, options: &str, experiences: &[(&str, &str)]) -> Box<dyn Memory> {
    let mut memory = memory::find(name).unwrap().create(&toml::from_str(options).unwrap()).unwrap();
    for (position, (question, reply)) in experiences.iter().enumerate() {
        let experience = Experience {
            task: task(question),
            turns: vec![Message::new(Role::Assistant, *reply)],
            answer: Some(reply.to_string()),
            is_finished: true,
            feedback: Feedback::Correct(true),
            position: position as u32,
            recalled: Vec::new(),
            pending: serde_json::Value::Null,
        };
        memory.learn(&experience, &Handles::none()).unwrap();
    }
    memory
}

fn agent<'a>(policy: &str, sampling: &'a Sampling, max_memory_tokens: Option<usize>) -> Agent<'a> {
    Agent { policy: policy::find(policy).unwrap(), sampling, max_memory_tokens, max_turns: 1 }
}

fn make(agent: &Agent<'_>, memory: &dyn Memory, backbone: &dyn Generate) -> super::Made {
    let handles = Handles::none();
    let reference = Reference { solution: String::new(), scorer: "exact".into(), options: serde_json::Value::Null };
    let task = Task { view: task("Q?"), reference };
    attempt(agent, &Work { task: &task, memory, handles: &handles, seed: Seed(5) }, backbone).unwrap()
}

#[test]
fn a_memory_free_prompt_is_the_memory_prompt_without_its_block() {
    let sampling = Sampling::default();
    let backbone = Scripted::new(|_| "ok".to_string());
    let empty = remembering("replay", "", &[]);
    let none = remembering("none", "", &[]);
    make(&agent("single", &sampling, None), none.as_ref(), &backbone);
    make(&agent("single", &sampling, None), empty.as_ref(), &backbone);
    let prompts = backbone.prompts();
    assert_eq!(prompts[0], "system|Answer.\nuser|Q?");
    assert_eq!(prompts[0], prompts[1]);
}

#[test]
fn memories_stand_between_instructions_and_question() {
    let sampling = Sampling::default();
    let backbone = Scripted::new(|_| "ok".to_string());
    let turns = remembering("replay", "placement = \"earlier_turns\"", &[("A?", "a"), ("B?", "b")]);
    let made = make(&agent("single", &sampling, None), turns.as_ref(), &backbone);
    let text = remembering("replay", "", &[("A?", "a")]);
    make(&agent("single", &sampling, None), text.as_ref(), &backbone);
    let prompts = backbone.prompts();
    assert_eq!(prompts[0], "system|Answer.\nuser|A?\nassistant|a\nuser|B?\nassistant|b\nuser|Q?");
    assert!(prompts[1].starts_with("system|Answer.\nuser|") && prompts[1].ends_with("Question: A?\nReply: a\n\nQ?"));
    assert_eq!(made.attempt.recalled, ["t/A?@0", "t/B?@1"]);
    assert_eq!(made.attempt.turns.last(), Some(&Message::new(Role::Assistant, "ok")));
    assert_eq!(made.reused_tokens, 3);
}

#[test]
fn a_memory_over_its_budget_loses_its_lowest_blocks_and_says_how_many() {
    let sampling = Sampling::default();
    let backbone = Scripted::new(|_| "ok".to_string());
    let memory =
        remembering("replay", "placement = \"earlier_turns\"", &[("A?", "aaaa"), ("B?", "bbbb"), ("C?", "cccc")]);
    let preamble = backbone.encode(include_str!("../../configs/prompts/replay_preamble.txt")).len();
    let one_block = "\n\nQuestion: A?\nReply: aaaa".len();
    let made = make(&agent("single", &sampling, Some(preamble + 2 * one_block)), memory.as_ref(), &backbone);
    assert_eq!(backbone.prompts()[0], "system|Answer.\nuser|B?\nassistant|bbbb\nuser|C?\nassistant|cccc\nuser|Q?");
    assert_eq!(made.attempt.dropped_memories, 1);
    let made = make(&agent("single", &sampling, Some(1)), memory.as_ref(), &backbone);
    assert_eq!(backbone.prompts()[1], "system|Answer.\nuser|Q?");
    assert_eq!((made.attempt.dropped_memories, made.attempt.recalled.len()), (3, 0));
}

#[test]
fn the_vote_sees_the_bare_prompt_first_and_one_prompt_a_group() {
    let sampling = Sampling::default();
    let backbone =
        Scripted::new(|prompt| if prompt.contains("A?") || prompt.contains("B?") { "Yes " } else { "no" }.to_string());
    let memory = remembering("groups", "groups = 2\nplacement = \"earlier_turns\"", &[("A?", "a"), ("B?", "b")]);
    let made = make(&agent("group_self_consistency", &sampling, None), memory.as_ref(), &backbone);
    let prompts = backbone.prompts();
    assert_eq!(prompts.len(), 3);
    assert_eq!(prompts[0], "system|Answer.\nuser|Q?");
    assert_eq!(made.attempt.answer.as_deref(), Some("Yes"));
    let votes: Vec<(Option<&str>, bool)> =
        made.attempt.votes.iter().map(|vote| (vote.canonical.as_deref(), vote.is_chosen)).collect();
    assert_eq!(votes, [(Some("no"), false), (Some("yes"), true), (Some("yes"), false)]);
    let seeds: std::collections::BTreeSet<u64> =
        backbone.seen.lock().unwrap().iter().map(|request| request.seed).collect();
    assert_eq!(seeds.len(), 3, "candidates draw apart");
    assert_eq!(backbone.seen.lock().unwrap()[0].seed, 5, "candidate 0 draws as the single policy does");
    assert_eq!(made.attempt.usage.generated_tokens, 9);
}

#[test]
fn a_prompt_that_does_not_fit_is_an_ending_and_asks_nothing() {
    let sampling = Sampling::default();
    let backbone = Scripted { context: 100, ..Scripted::new(|_| "ok".to_string()) };
    let made = make(&agent("single", &sampling, None), remembering("none", "", &[]).as_ref(), &backbone);
    assert_eq!(made.attempt.ending, Ending::ContextLimit);
    assert_eq!(made.attempt.answer, None);
    assert!(backbone.prompts().is_empty());
}

#[test]
fn a_reply_without_an_answer_is_data() {
    let sampling = Sampling::default();
    for reply in ["", "  \n ", "<think>never closed"] {
        let backbone = Scripted::new(move |_| reply.to_string());
        let made = make(&agent("single", &sampling, None), remembering("none", "", &[]).as_ref(), &backbone);
        assert_eq!((made.attempt.answer, made.attempt.ending), (None, Ending::InvalidAction), "{reply:?}");
    }
}

#[test]
fn the_memorys_stop_strings_join_the_runs() {
    let sampling = Sampling { stop: vec!["END".into()], ..Sampling::default() };
    let backbone = Scripted::new(|_| "ok".to_string());
    make(&agent("single", &sampling, None), remembering("replay", "", &[]).as_ref(), &backbone);
    assert_eq!(backbone.seen.lock().unwrap()[0].sampling.stop, ["END", "\nuser: "]);
}

/// Recalls one context, whatever the task.
struct Fixed(Context);

impl Memory for Fixed {
    fn recall(&self, _task: &TaskView, _handles: &Handles<'_>) -> anyhow::Result<Recall> {
        Ok(Recall { contexts: vec![self.0.clone()], pending: serde_json::json!({ "seen": 1 }) })
    }

    fn learn(&mut self, _experience: &Experience, _handles: &Handles<'_>) -> anyhow::Result<()> {
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    fn load(&mut self, _bytes: &[u8]) -> anyhow::Result<()> {
        Ok(())
    }
}

fn fixed(placement: Placement, texts: &[&str]) -> Fixed {
    let block = |(index, text): (usize, &&str)| Block {
        id: format!("b{index}"),
        content: Content::Text(text.to_string()),
        score: -(index as f64),
    };
    let blocks = texts.iter().enumerate().map(block).collect();
    Fixed(Context { placement, preamble: "Notes.".into(), blocks })
}

#[test]
fn a_text_can_stand_behind_the_instructions_and_hands_its_pending_on() {
    let sampling = Sampling::default();
    let backbone = Scripted::new(|_| "ok".to_string());
    let made =
        make(&agent("single", &sampling, None), &fixed(Placement::AfterInstructions, &["one", "two"]), &backbone);
    assert_eq!(backbone.prompts()[0], "system|Answer.\n\nNotes.\n\none\n\ntwo\nuser|Q?");
    assert_eq!(made.pending, serde_json::json!({ "seen": 1 }));
}

#[test]
fn the_last_text_over_the_budget_is_cut_and_the_cut_is_counted() {
    let sampling = Sampling::default();
    let backbone = Scripted::new(|_| "ok".to_string());
    let memory = fixed(Placement::BeforeQuestion, &["0123456789", "low"]);
    let limit = "Notes.\n\n01234".len();
    let made = make(&agent("single", &sampling, Some(limit)), &memory, &backbone);
    assert_eq!(backbone.prompts()[0], "system|Answer.\nuser|Notes.\n\n01234\n\nQ?");
    assert_eq!((made.attempt.recalled, made.attempt.dropped_memories, made.cut_tokens), (vec!["b0".into()], 1, 5));
    // No room for any of it: the bare prompt.
    let made = make(&agent("single", &sampling, Some(7)), &memory, &backbone);
    assert_eq!(backbone.prompts()[1], "system|Answer.\nuser|Q?");
    assert_eq!((made.attempt.dropped_memories, made.cut_tokens), (2, 0));
}

/// Two turns: a call of `now` and its answer, then talk.
fn dialogue() -> Task {
    let node = |name: &str, observation: &str, waits_for: &[usize]| tool::ToolNode {
        name: name.into(),
        arguments: serde_json::json!({}),
        observation: observation.into(),
        user_input: None,
        waits_for: waits_for.to_vec(),
    };
    let turn = |user: &str, nodes: Vec<tool::ToolNode>| tool::ToolTurn {
        user: user.into(),
        kind: "Chat".into(),
        transition: None,
        gold: tool::Gold::Actions(nodes),
    };
    let turns = vec![
        turn("Q?", vec![node("now", "noon", &[]), node(tool::ANSWER, "It is noon.", &[0])]),
        turn("Thanks.", vec![node(tool::ANSWER, "Welcome.", &[])]),
    ];
    let options = serde_json::to_value(tool::ToolDialogue { rules: tool::ToolRules::Official, turns }).unwrap();
    let tools = vec![serde_json::json!({"type": "function", "function": {"name": "now", "parameters": {}}})];
    let view = TaskView { reply_format: ReplyFormat::ToolCalls { tools }, ..task("Q?") };
    Task { view, reference: Reference { solution: String::new(), scorer: "tool_paths".into(), options } }
}

const CALL: &str = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

fn converse(agent: &Agent<'_>, memory: &dyn Memory, backbone: &dyn Generate) -> super::Made {
    let handles = Handles::none();
    let task = dialogue();
    let agent = Agent { max_turns: 40, ..*agent };
    attempt(&agent, &Work { task: &task, memory, handles: &handles, seed: Seed(5) }, backbone).unwrap()
}

fn trace(made: &super::Made) -> tool::ToolTrace {
    serde_json::from_str(made.attempt.answer.as_deref().unwrap()).unwrap()
}

#[test]
fn a_dialogue_is_one_attempt_whose_turns_stand_behind_the_reference_history() {
    let sampling = Sampling::default();
    // Asks the tool at once, then talks; what it says is not what the reference says.
    let backbone = Scripted::new(|prompt| match prompt.ends_with("Q?") {
        true => CALL.into(),
        false => "As you see.".to_string(),
    });
    let memory = remembering("replay", "placement = \"earlier_turns\"", &[("A?", "a")]);
    let made = converse(&agent("single", &sampling, None), memory.as_ref(), &backbone);
    let prompts = backbone.prompts();
    let opening = "system|Answer.\nuser|A?\nassistant|a\nuser|Q?";
    assert_eq!(prompts.len(), 3);
    assert_eq!(prompts[0], opening);
    let live = format!("{opening}\nassistant|{CALL}\nuser|<tool_response>\nnoon\n</tool_response>");
    assert_eq!(prompts[1], live);
    let history = format!("{opening}\nassistant|{CALL}\nuser|<tool_response>\n\"noon\"\n</tool_response>");
    assert_eq!(prompts[2], format!("{history}\nassistant|It is noon.\nuser|Thanks."));
    let ends: Vec<tool::TurnEnd> = trace(&made).turns.iter().map(|turn| turn.end).collect();
    assert_eq!((made.attempt.ending, ends), (Ending::Finished, vec![tool::TurnEnd::Answered; 2]));
    let said: Vec<&str> = made.attempt.turns.iter().skip(4).map(|turn| turn.content.as_str()).collect();
    assert_eq!(said, [CALL, "<tool_response>\nnoon\n</tool_response>", "As you see.", "Thanks.", "As you see."]);
    assert_eq!(made.attempt.usage.generated_tokens, 9);
}

#[test]
fn a_turns_draws_do_not_depend_on_how_many_replies_the_one_before_took() {
    let sampling = Sampling::default();
    let none = remembering("none", "", &[]);
    let seeds = |calls: bool| -> Vec<u64> {
        let backbone = Scripted::new(move |prompt| match calls && prompt.ends_with("Q?") {
            true => CALL.into(),
            false => "No.".to_string(),
        });
        converse(&agent("single", &sampling, None), none.as_ref(), &backbone);
        backbone.seen.lock().unwrap().iter().map(|request| request.seed).collect()
    };
    let (long, short) = (seeds(true), seeds(false));
    assert_eq!((long.len(), short.len()), (3, 2));
    assert_eq!((long[0], long[2]), (short[0], short[1]));
    assert_eq!(long.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
}

#[test]
fn a_turn_that_does_not_fit_is_lost_and_the_next_is_tried() {
    let sampling = Sampling { max_tokens: 10, ..Sampling::default() };
    let none = remembering("none", "", &[]);
    // Room for the first question alone.
    let opening = "system|Answer.\nuser|Q?".len();
    let backbone = Scripted { context: opening + 10, ..Scripted::new(|_| CALL.to_string()) };
    let made = converse(&agent("single", &sampling, None), none.as_ref(), &backbone);
    let ends: Vec<tool::TurnEnd> = trace(&made).turns.iter().map(|turn| turn.end).collect();
    assert_eq!(ends, vec![tool::TurnEnd::ContextLimit; 2]);
    assert_eq!(backbone.prompts().len(), 1);
}

#[test]
fn groups_vote_on_calls_turn_by_turn() {
    let sampling = Sampling::default();
    let backbone = Scripted::new(|prompt| match prompt.ends_with("Q?") && prompt.contains("?\nassistant|") {
        true => CALL.into(),
        false => "No.".to_string(),
    });
    let memory = remembering("groups", "groups = 2\nplacement = \"earlier_turns\"", &[("A?", "a"), ("B?", "b")]);
    let made = converse(&agent("group_self_consistency", &sampling, None), memory.as_ref(), &backbone);
    assert_eq!(trace(&made).turns[0].steps[0].calls[0].name, "now", "two groups of three call");
    assert_eq!(made.attempt.votes.len(), 9);
}

#[test]
fn a_dialogue_that_never_ends_is_ended_by_its_world() {
    let sampling = Sampling::default();
    let backbone = Scripted::new(|_| CALL.to_string());
    let none = remembering("none", "", &[]);
    let made = converse(&agent("single", &sampling, None), none.as_ref(), &backbone);
    let ends: Vec<tool::TurnEnd> = trace(&made).turns.iter().map(|turn| turn.end).collect();
    assert_eq!(ends, vec![tool::TurnEnd::ActionName; 2]);
}
