//! Turns judged from what an agent did in them.

use serde_json::json;

use super::*;
use crate::record::tool::{ANSWER, TurnEnd};
use crate::record::{Ending, TaskId, TaskView, Usage};

fn node(name: &str, arguments: Value, waits_for: &[usize]) -> ToolNode {
    ToolNode { name: name.into(), arguments, observation: json!("r"), user_input: None, waits_for: waits_for.to_vec() }
}

/// One turn: two parallel calls of `f`, then `g`, then the answer. `g`'s reference breaks its declaration when asked to.
fn task(rules: ToolRules, is_broken: bool) -> Task {
    let g = if is_broken { json!({"n": "12"}) } else { json!({"n": 12}) };
    let nodes = vec![
        node("f", json!({"a": "one", "b": 1}), &[]),
        node("f", json!({"a": "two", "b": 2}), &[]),
        node("g", g, &[0, 1]),
        node(ANSWER, json!({}), &[2]),
    ];
    let turn =
        ToolTurn { user: "u".into(), kind: "Mixed Multi-Tool".into(), transition: None, gold: Gold::Actions(nodes) };
    let tool = |name: &str, properties: Value, required: Value| {
        json!({"type": "function", "function": {"name": name, "parameters": {
            "type": "object", "properties": properties, "required": required
        }}})
    };
    let tools = vec![
        tool("f", json!({"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "boolean"}}), json!(["a"])),
        tool("g", json!({"n": {"type": "integer"}}), json!(["n"])),
    ];
    Task {
        view: TaskView {
            id: TaskId("t".into()),
            family: None,
            system: None,
            question: "u".into(),
            reply_format: ReplyFormat::ToolCalls { tools },
        },
        reference: Reference {
            solution: String::new(),
            scorer: "tool_paths".into(),
            options: serde_json::to_value(ToolDialogue { rules, turns: vec![turn] }).unwrap(),
        },
    }
}

fn step(gold: &[usize], calls: &[(&str, &str)]) -> StepTrace {
    let calls =
        calls.iter().map(|(name, arguments)| ToolCall { name: name.to_string(), arguments: arguments.to_string() });
    StepTrace { calls: calls.collect(), gold: gold.to_vec() }
}

fn judged(task: &Task, steps: Vec<StepTrace>, end: TurnEnd) -> TurnVerdict {
    let trace = ToolTrace { turns: vec![TurnTrace { steps, end }] };
    let attempt = Attempt {
        turns: Vec::new(),
        answer: Some(serde_json::to_string(&trace).unwrap()),
        ending: Ending::Finished,
        usage: Usage::default(),
        recalled: Vec::new(),
        dropped_memories: 0,
        votes: Vec::new(),
    };
    ToolPaths.check(&task.reference).unwrap();
    let (score, detail) = ToolPaths.score(task, &attempt, &Grading::default()).unwrap();
    let verdict = ToolVerdict::from_detail(&detail).unwrap();
    assert_eq!(score, Score::Graded(verdict.score()));
    verdict.turns[0].clone()
}

const ONE: &str = r#"{"a": "one", "b": 1}"#;
const TWO: &str = r#"{"a": "two", "b": 2}"#;

fn right() -> Vec<StepTrace> {
    vec![step(&[0, 1], &[("f", TWO), ("f", ONE)]), step(&[2], &[("g", r#"{"n":12}"#)]), step(&[3], &[])]
}

#[test]
fn right_actions_with_right_arguments_are_right_and_optimal() {
    for rules in [ToolRules::Official, ToolRules::Strict] {
        let verdict = judged(&task(rules, false), right(), TurnEnd::Answered);
        assert_eq!((verdict.fault, verdict.is_optimal, verdict.steps, verdict.nodes), (None, true, 3, 4));
        assert!(verdict.is_winnable);
    }
}

#[test]
fn one_by_one_is_right_and_not_optimal() {
    let steps = vec![
        step(&[0], &[("f", ONE)]),
        step(&[1], &[("f", TWO)]),
        step(&[2], &[("g", r#"{"n":12}"#)]),
        step(&[3], &[]),
    ];
    let verdict = judged(&task(ToolRules::Official, false), steps, TurnEnd::Answered);
    assert_eq!((verdict.fault, verdict.is_optimal, verdict.steps), (None, false, 4));
}

#[test]
fn the_first_wrong_argument_names_the_fault() {
    for (arguments, words) in [
        ("{\"n\": 13}", "match: value"),
        ("{\"n\": \"12\"}", "schema: nested type"),
        ("{}", "schema: missing"),
        ("{\"n\": 12, \"m\": 1}", "schema: undefined"),
        ("{\"n\": 12", "arguments: no JSON"),
    ] {
        let mut steps = right();
        steps[1] = step(&[2], &[("g", arguments)]);
        let verdict = judged(&task(ToolRules::Official, false), steps.clone(), TurnEnd::Answered);
        assert_eq!(verdict.fault.as_deref(), Some(words));
        // The step that failed is logged, the one behind it is not.
        assert_eq!((verdict.is_optimal, verdict.steps), (false, 2));
        let verdict = judged(&task(ToolRules::Strict, false), steps, TurnEnd::Answered);
        assert_eq!(verdict.steps, 1, "strict progress counts right steps");
    }
    let mut steps = right();
    steps[0] = step(&[0, 1], &[("f", r#"{"a": "one", "b": 1, "c": true}"#), ("f", TWO)]);
    let verdict = judged(&task(ToolRules::Official, false), steps, TurnEnd::Answered);
    assert_eq!(verdict.fault.as_deref(), Some("match: keys"));
}

#[test]
fn a_wrong_action_is_told_by_its_end_unless_an_argument_failed_before() {
    for (end, words) in [
        (TurnEnd::ActionName, "action name"),
        (TurnEnd::EmptyReply, "empty reply"),
        (TurnEnd::UnreadableCalls, "unreadable calls"),
        (TurnEnd::StepLimit, "step limit"),
        (TurnEnd::ContextLimit, "context limit"),
    ] {
        let steps = vec![step(&[0, 1], &[("f", ONE), ("f", TWO)]), step(&[], &[("h", "{}")])];
        let verdict = judged(&task(ToolRules::Official, false), steps, end);
        assert_eq!((verdict.fault.as_deref(), verdict.steps), (Some(words), 2));
        let steps = vec![step(&[0, 1], &[("f", ONE), ("f", ONE)]), step(&[], &[("h", "{}")])];
        let verdict = judged(&task(ToolRules::Official, false), steps, end);
        assert_eq!(verdict.fault.as_deref(), Some("match: text similarity"));
    }
}

#[test]
fn calls_are_paired_by_their_text_officially_and_by_fit_strictly() {
    // The same two calls with keys written the other way round: sorted by text they meet the wrong partners.
    let mut steps = right();
    steps[0] = step(&[0, 1], &[("f", r#"{"b": 1, "a": "one"}"#), ("f", r#"{"a": "two", "b": 2}"#)]);
    let official = judged(&task(ToolRules::Official, false), steps.clone(), TurnEnd::Answered);
    assert_eq!(official.fault.as_deref(), Some("match: text similarity"));
    let strict = judged(&task(ToolRules::Strict, false), steps, TurnEnd::Answered);
    assert_eq!((strict.fault, official.differs, strict.differs), (None, true, true));
}

#[test]
fn a_reference_that_breaks_its_declaration_is_unwinnable_officially_and_accepted_strictly() {
    let with = |arguments: &str| {
        let mut steps = right();
        steps[1] = step(&[2], &[("g", arguments)]);
        steps
    };
    for (arguments, official, strict) in [
        (r#"{"n": "12"}"#, Some("schema: nested type"), None),
        (r#"{"n": 12}"#, Some("match: type"), None),
        (r#"{"n": 13}"#, Some("match: type"), Some("match: value")),
        ("{}", Some("schema: missing"), Some("match: keys")),
    ] {
        let verdict = judged(&task(ToolRules::Official, true), with(arguments), TurnEnd::Answered);
        assert_eq!((verdict.fault.as_deref(), verdict.is_winnable), (official, false), "{arguments}");
        let verdict = judged(&task(ToolRules::Strict, true), with(arguments), TurnEnd::Answered);
        assert_eq!((verdict.fault.as_deref(), verdict.is_winnable), (strict, false), "{arguments}");
        assert_eq!(verdict.differs, strict.is_none(), "{arguments}");
    }
}

#[test]
fn an_attempt_without_a_trace_has_no_turn_right() {
    let task = task(ToolRules::Official, false);
    let attempt = Attempt {
        turns: Vec::new(),
        answer: None,
        ending: Ending::ContextLimit,
        usage: Usage::default(),
        recalled: Vec::new(),
        dropped_memories: 0,
        votes: Vec::new(),
    };
    let (score, detail) = ToolPaths.score(&task, &attempt, &Grading::default()).unwrap();
    assert_eq!(score, Score::Graded(0.0));
    assert!(detail.contains("not attempted"), "{detail}");
}
