//! Whether calls are among the accepted ones (Berkeley Function-Calling Leaderboard, AST checker for Python).
//!
//! As many calls as expected and each expected one found, names equal, required arguments present, none undeclared, each
//! value of its declared type and among the accepted ones. Texts are compared without case, spaces and `,./-_*^`.
//!
//! Departures: a reply with something meant as a call that is none is wrong everywhere, also where no call was right
//! (the released checker takes it for an abstention). *Strict* rules look for any one-to-one pairing of calls and
//! expected calls; the released checker gives each expected call the first that fits and never goes back.

use serde_json::{Map, Value};

use super::tool_paths::{first_unmatched, trace};
use super::{Grading, Scorer, options};
use crate::record::tool::{
    AcceptedCall, ExpectedReply, Gold, StepTrace, ToolCall, ToolDialogue, ToolRules, ToolTurn, ToolVerdict, TurnTrace,
    TurnVerdict,
};
use crate::record::{Attempt, Reference, ReplyFormat, Score, Task};
use crate::registry::Registered;

/// See the [module](self).
pub struct CallMatch;

impl Registered for CallMatch {
    fn name(&self) -> &str {
        "call_match"
    }
    fn about(&self) -> &str {
        "calls with accepted values, in any order; or no call where none helps"
    }
    fn source(&self) -> &str {
        "Berkeley Function-Calling Leaderboard v4, AST checker"
    }
}

impl Scorer for CallMatch {
    fn check(&self, reference: &Reference) -> anyhow::Result<()> {
        let dialogue: ToolDialogue = options::read(self.name(), reference)?;
        for (index, turn) in dialogue.turns.iter().enumerate() {
            let expected = expected(turn)?;
            if let ExpectedReply::Calls(calls) = expected {
                let values = calls.iter().flat_map(|call| &call.arguments);
                for (name, values) in values {
                    anyhow::ensure!(
                        values.is_array(),
                        "scorer `call_match`: turn {}, argument `{name}`: expected a list of accepted values, found {values}",
                        index + 1
                    );
                }
            }
        }
        Ok(())
    }

    fn score(&self, task: &Task, attempt: &Attempt, _grading: &Grading) -> anyhow::Result<(Score, String)> {
        let dialogue: ToolDialogue = options::read(self.name(), &task.reference)?;
        let ReplyFormat::ToolCalls { tools } = &task.view.reply_format else {
            anyhow::bail!("task {} offers no tools", task.id());
        };
        let trace = trace(attempt)?;
        let judged = dialogue.turns.iter().enumerate().map(|(index, turn)| {
            let expected = expected(turn)?;
            let of = |rules| turn_fault(tools, rules, expected, trace.turns.get(index));
            let fault = of(dialogue.rules);
            let differs = fault.is_none() != of(dialogue.rules.other()).is_none();
            Ok(verdict(turn, fault, differs, trace.turns.get(index)))
        });
        let verdict = ToolVerdict { turns: judged.collect::<anyhow::Result<_>>()? };
        Ok((Score::Graded(verdict.score()), verdict.to_string()))
    }
}

fn expected(turn: &ToolTurn) -> anyhow::Result<&ExpectedReply> {
    match &turn.gold {
        Gold::Reply(expected) => Ok(expected),
        Gold::Actions(_) => {
            anyhow::bail!("scorer `call_match` judges one expected reply a turn, found a graph of actions")
        }
    }
}

fn verdict(turn: &ToolTurn, fault: Option<String>, differs: bool, trace: Option<&TurnTrace>) -> TurnVerdict {
    TurnVerdict {
        kind: turn.kind.clone(),
        transition: turn.transition.clone(),
        is_optimal: fault.is_none(),
        fault,
        steps: trace.map_or(0, |trace| trace.steps.len() as u32),
        nodes: 1,
        is_winnable: true,
        differs,
    }
}

fn turn_fault(
    tools: &[Value],
    rules: ToolRules,
    expected: &ExpectedReply,
    trace: Option<&TurnTrace>,
) -> Option<String> {
    let Some(trace) = trace else { return Some("not attempted".into()) };
    if let Some(fault) = trace.end.fault() {
        return Some(fault.into());
    }
    let calls = trace.steps.last().map_or(&[][..], |step: &StepTrace| &step.calls);
    match expected {
        ExpectedReply::NoCall if calls.is_empty() => None,
        ExpectedReply::NoCall => Some("call where none helps".into()),
        ExpectedReply::SomeCall(_) if calls.is_empty() => Some("no call".into()),
        ExpectedReply::SomeCall(_) => None,
        ExpectedReply::Calls(accepted) => calls_fault(tools, rules, accepted, calls),
    }
}

fn calls_fault(tools: &[Value], rules: ToolRules, accepted: &[AcceptedCall], calls: &[ToolCall]) -> Option<String> {
    if calls.len() != accepted.len() {
        return Some("wrong count of calls".into());
    }
    let fault = |call: usize, gold: usize| call_fault(tools, &accepted[gold], &calls[call]);
    // With one call its own fault says most.
    if calls.len() == 1 {
        return fault(0, 0).map(String::from);
    }
    let is_matched = match rules {
        ToolRules::Strict => {
            first_unmatched(calls.len(), accepted.len(), &|call, gold| fault(call, gold).is_none()).is_none()
        }
        ToolRules::Official => {
            let mut left: Vec<usize> = (0..calls.len()).collect();
            (0..accepted.len()).all(|gold| {
                let found = left.iter().position(|call| fault(*call, gold).is_none());
                found.map(|position| left.remove(position)).is_some()
            })
        }
    };
    (!is_matched).then(|| "no match".into())
}

fn call_fault(tools: &[Value], accepted: &AcceptedCall, call: &ToolCall) -> Option<&'static str> {
    if call.name != accepted.name {
        return Some("name");
    }
    let Ok(Value::Object(arguments)) = serde_json::from_str::<Value>(&call.arguments) else {
        return Some("arguments: no JSON object");
    };
    let mut functions = tools.iter().map(|tool| tool.get("function").unwrap_or(tool));
    let function = functions.find(|function| function["name"] == call.name.as_str())?;
    let parameters = &function["parameters"];
    let mut required = parameters["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if required.any(|name| !arguments.contains_key(name)) {
        return Some("missing required argument");
    }
    for (name, value) in &arguments {
        let (Some(schema), Some(values)) = (parameters["properties"].get(name), accepted.arguments.get(name)) else {
            return Some("unexpected argument");
        };
        if let Some(fault) = value_fault(value, values.as_array().map_or(&[][..], Vec::as_slice), schema) {
            return Some(fault);
        }
    }
    let mut left_out = accepted.arguments.iter().filter(|(name, _)| !arguments.contains_key(*name));
    left_out.any(|(_, values)| !may_be_left_out(values)).then_some("missing argument")
}

fn may_be_left_out(values: &Value) -> bool {
    values.as_array().is_some_and(|values| values.iter().any(|value| value == ""))
}

/// Python's type of a value, and what a declared type is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Str,
    Int,
    Float,
    Bool,
    List,
    Dict,
    None,
}

impl Kind {
    fn of(value: &Value) -> Kind {
        match value {
            Value::Null => Kind::None,
            Value::Bool(_) => Kind::Bool,
            Value::Number(number) if number.is_f64() => Kind::Float,
            Value::Number(_) => Kind::Int,
            Value::String(_) => Kind::Str,
            Value::Array(_) => Kind::List,
            Value::Object(_) => Kind::Dict,
        }
    }

    /// Of a declaration in JSON schema's words.
    fn declared(schema: &Value) -> Kind {
        match schema["type"].as_str().unwrap_or("string") {
            "integer" => Kind::Int,
            "number" | "float" => Kind::Float,
            "boolean" => Kind::Bool,
            "array" | "tuple" => Kind::List,
            "object" | "dict" => Kind::Dict,
            _ => Kind::Str,
        }
    }
}

fn value_fault(value: &Value, accepted: &[Value], schema: &Value) -> Option<&'static str> {
    let declared = Kind::declared(schema);
    let items = schema.get("items").filter(|_| declared == Kind::List).map(Kind::declared);
    // An integer stands for a float.
    let value = match (declared, value.as_i64()) {
        (Kind::Float, Some(whole)) if Kind::of(value) == Kind::Int => &Value::from(whole as f64),
        _ => value,
    };
    let is_variable = match typed(value, accepted, declared, items) {
        Typed::Wrong => return Some("type"),
        Typed::NestedWrong => return Some("nested type"),
        Typed::Right { is_variable } => is_variable,
    };
    let is_accepted = match (is_variable, declared, value) {
        (false, Kind::Dict, Value::Object(fields)) => dict_is_accepted(fields, accepted),
        (false, Kind::List, Value::Array(found)) if items == Some(Kind::Dict) => dicts_are_accepted(found, accepted),
        (false, Kind::Str, Value::String(text)) => {
            let text = plain(text);
            accepted.iter().filter_map(Value::as_str).any(|accepted| plain(accepted) == text)
        }
        (false, Kind::List, Value::Array(found)) => {
            let found: Vec<Value> = found.iter().map(plain_value).collect();
            accepted.iter().any(|accepted| equal_lists(&found, &plain_items(accepted)))
        }
        _ => accepted.iter().any(|accepted| equal(accepted, value)),
    };
    (!is_accepted).then_some("value")
}

enum Typed {
    Right {
        /// A value of another type than declared is accepted here: a name that stands for a value.
        is_variable: bool,
    },
    Wrong,
    NestedWrong,
}

fn typed(value: &Value, accepted: &[Value], declared: Kind, items: Option<Kind>) -> Typed {
    let accepted_kind = accepted.iter().find(|value| **value != "").map(Kind::of);
    if Kind::of(value) != declared {
        let is_variable = accepted_kind == Some(Kind::of(value));
        return if is_variable { Typed::Right { is_variable: true } } else { Typed::Wrong };
    }
    let right = Typed::Right { is_variable: accepted_kind.is_some_and(|kind| kind != declared) };
    let Some(items) = items else { return right };
    let found = value.as_array().map_or(&[][..], Vec::as_slice);
    let fits = |accepted: &Value| match accepted {
        Value::Array(accepted) => {
            found.iter().all(|item| matches!(typed(item, accepted, items, None), Typed::Right { .. }))
        }
        _ => true,
    };
    if accepted.iter().any(fits) { right } else { Typed::NestedWrong }
}

fn dict_is_accepted(fields: &Map<String, Value>, accepted: &[Value]) -> bool {
    accepted.iter().filter_map(Value::as_object).any(|accepted| {
        let fits = |(name, value): (&String, &Value)| {
            let values = accepted.get(name).and_then(Value::as_array);
            values
                .is_some_and(|values| values.iter().any(|accepted| equal(&plain_value(accepted), &plain_value(value))))
        };
        let mut left_out = accepted.iter().filter(|(name, _)| !fields.contains_key(*name));
        fields.iter().all(fits) && left_out.all(|(_, values)| may_be_left_out(values))
    })
}

fn dicts_are_accepted(found: &[Value], accepted: &[Value]) -> bool {
    accepted.iter().any(|accepted| {
        let accepted = accepted.as_array().map_or(&[][..], Vec::as_slice);
        found.len() == accepted.len()
            && found.iter().zip(accepted).all(|(found, accepted)| {
                found.as_object().is_some_and(|fields| dict_is_accepted(fields, std::slice::from_ref(accepted)))
            })
    })
}

/// Without case, spaces and `,./-_*^`; single quotes as double ones.
fn plain(text: &str) -> String {
    let kept = text.chars().filter(|character| !" ,./-_*^".contains(*character));
    kept.collect::<String>().to_lowercase().replace('\'', "\"")
}

fn plain_value(value: &Value) -> Value {
    value.as_str().map_or_else(|| value.clone(), |text| plain(text).into())
}

fn plain_items(accepted: &Value) -> Vec<Value> {
    match accepted {
        Value::Array(items) => items.iter().map(plain_value).collect(),
        // A text is a list of its characters in Python.
        Value::String(text) => text.chars().map(|character| plain(&character.to_string()).into()).collect(),
        _ => vec![accepted.clone()],
    }
}

fn equal_lists(one: &[Value], other: &[Value]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
}

/// Python's equality: 1, 1.0 and true are one, also inside lists and objects.
fn equal(one: &Value, other: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::Bool(value) => Some(f64::from(u8::from(*value))),
        Value::Number(value) => value.as_f64(),
        _ => None,
    };
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => equal_lists(one, other),
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| equal(value, other)))
        }
        _ => match (number(one), number(other)) {
            (Some(one), Some(other)) => one == other,
            _ => one == other,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fault(schema: Value, accepted: Value, value: Value) -> Option<&'static str> {
        value_fault(&value, accepted.as_array().unwrap(), &schema)
    }

    #[test]
    fn values_are_compared_by_their_declared_type() {
        let text = json!({"type": "string"});
        assert_eq!(fault(text.clone(), json!(["New York, NY", ""]), json!("new york ny")), None);
        assert_eq!(fault(text.clone(), json!(["a"]), json!("b")), Some("value"));
        assert_eq!(fault(text, json!(["a"]), json!(1)), Some("type"));
        let number = json!({"type": "number"});
        assert_eq!(fault(number.clone(), json!([10.0]), json!(10)), None);
        assert_eq!(fault(number.clone(), json!([10]), json!(10)), None);
        assert_eq!(fault(number, json!([10.5]), json!("10.5")), Some("type"));
        let integer = json!({"type": "integer"});
        assert_eq!(fault(integer.clone(), json!([3]), json!(3.0)), Some("type"));
        assert_eq!(fault(integer, json!(["n"]), json!("n")), None, "a variable's name");
        assert_eq!(fault(json!({"type": "boolean"}), json!([true]), json!(1)), Some("type"));
    }

    #[test]
    fn lists_and_objects_are_compared_item_by_item() {
        let list = json!({"type": "array", "items": {"type": "string"}});
        assert_eq!(fault(list.clone(), json!([["New York", "LA"]]), json!(["new york", "la"])), None);
        assert_eq!(fault(list.clone(), json!([["a", "b"]]), json!(["b", "a"])), Some("value"));
        assert_eq!(fault(list, json!([["a"]]), json!([1])), Some("nested type"));
        let object = json!({"type": "object"});
        let accepted = json!([{"lat": [1.5], "name": ["Home", ""]}]);
        assert_eq!(fault(object.clone(), accepted.clone(), json!({"lat": 1.5})), None);
        assert_eq!(fault(object.clone(), accepted.clone(), json!({"lat": 1.5, "name": "home"})), None);
        assert_eq!(fault(object.clone(), accepted.clone(), json!({"name": "Home"})), Some("value"));
        assert_eq!(fault(object, accepted, json!({"lat": 1.5, "x": 1})), Some("value"));
        let objects = json!({"type": "array", "items": {"type": "object"}});
        assert_eq!(fault(objects.clone(), json!([[{"a": [1]}, {"a": [2]}]]), json!([{"a": 1}, {"a": 2}])), None);
        assert_eq!(fault(objects, json!([[{"a": [1]}]]), json!([{"a": 1}, {"a": 2}])), Some("value"));
    }

    fn call(arguments: &Value) -> ToolCall {
        ToolCall { name: "f".into(), arguments: arguments.to_string() }
    }

    #[test]
    fn pairing_is_greedy_as_released_and_complete_when_strict() {
        let tools = [json!({"function": {"name": "f", "parameters": {"properties": {"x": {"type": "integer"}}}}})];
        let accepted = |values: Value| {
            let arguments = json!({ "x": values });
            AcceptedCall { name: "f".into(), arguments: arguments.as_object().unwrap().clone() }
        };
        // The first expected call takes the 1, which is the only one that fits the second.
        let golds = [accepted(json!([1, 2])), accepted(json!([1]))];
        let calls = [call(&json!({"x": 1})), call(&json!({"x": 2}))];
        assert_eq!(calls_fault(&tools, ToolRules::Official, &golds, &calls).as_deref(), Some("no match"));
        assert_eq!(calls_fault(&tools, ToolRules::Strict, &golds, &calls), None);
        assert_eq!(
            calls_fault(&tools, ToolRules::Strict, &golds, &calls[..1]).as_deref(),
            Some("wrong count of calls")
        );
    }

    #[test]
    fn arguments_must_be_declared_expected_and_complete() {
        let tools = [json!({"function": {"name": "f", "parameters": {
            "required": ["x"], "properties": {"x": {"type": "integer"}, "y": {"type": "string"}, "z": {"type": "string"}}
        }}})];
        let arguments = json!({"x": [1], "y": ["a", ""], "z": ["b"]});
        let gold = AcceptedCall { name: "f".into(), arguments: arguments.as_object().unwrap().clone() };
        let of = |arguments: Value| call_fault(&tools, &gold, &call(&arguments));
        assert_eq!(of(json!({"x": 1, "z": "B"})), None);
        assert_eq!(of(json!({"z": "b"})), Some("missing required argument"));
        assert_eq!(of(json!({"x": 1})), Some("missing argument"));
        assert_eq!(of(json!({"x": 1, "z": "b", "w": 1})), Some("unexpected argument"));
        assert_eq!(call_fault(&tools, &gold, &ToolCall { name: "g".into(), arguments: "{}".into() }), Some("name"));
    }
}
