//! The cases of the extraction family about code and JSON, one test each, named by their ids.

mod code_benchmarks;

use std::collections::BTreeSet;

use code_benchmarks::shared;
use lifelong::reply::json::Kind;
use lifelong::reply::{code, json, python};
use lifelong::sandbox::python::Interpreter;
use lifelong::sandbox::{Ending, Launcher, Limits, Sandbox, SandboxOptions};
use serde_json::Value;

fn case(id: &str) -> Option<(Value, Value)> {
    let family: Value = serde_json::from_slice(&std::fs::read(shared("cases/extraction.json")?).unwrap()).unwrap();
    let cases = family["cases"].as_array().unwrap();
    let case = cases.iter().find(|case| case["id"] == id).unwrap_or_else(|| panic!("no case {id}"));
    Some((case["given"].clone(), case["expect"].clone()))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn check_code(id: &str) {
    let Some((given, expect)) = case(id) else { return };
    let code = code::extract(text(&given["text"]), text(&given["lang"]), None);
    assert_eq!(code.as_deref(), expect["code"].as_str(), "{id}");
}

fn check_json(id: &str) {
    let Some((given, expect)) = case(id) else { return };
    assert_eq!(given["kind"], "object");
    assert_eq!(json::first_value(text(&given["text"]), Kind::Object).as_ref(), Some(&expect["value"]), "{id}");
}

fn check_sanitised(id: &str) {
    let Some((given, expect)) = case(id) else { return };
    let program = python::sanitize(text(&given["code"]), text(&given["entry_point"]), &BTreeSet::new());
    for name in expect["must_define"].as_array().unwrap() {
        assert!(python::defines(&program, text(name)), "{id}:\n{program}");
    }
    for part in expect["must_not_contain"].as_array().into_iter().flatten() {
        assert!(!program.contains(text(part)), "{id}:\n{program}");
    }
    let call = text(&expect["run"]["call"]);
    assert_eq!(value_of(&program, call), expect["run"]["equals"], "{id}:\n{program}");
}

/// What a call gives after a program has run, in the sandbox.
fn value_of(program: &str, call: &str) -> Value {
    Launcher::of_binary(env!("CARGO_BIN_EXE_lifelong")).use_for_process();
    let sandbox = Sandbox::start(SandboxOptions::default()).unwrap();
    let script = format!("{program}\nimport json\nprint(json.dumps({call}))\n");
    let job = Interpreter::find("python3").unwrap().job(&script, Limits::default());
    let outcome = sandbox.run(&job).unwrap();
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", String::from_utf8_lossy(&outcome.stderr));
    serde_json::from_slice(&outcome.stdout).unwrap()
}

macro_rules! cases {
    ($check:ident: $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $check(&stringify!($name).replace('_', "-"));
            }
        )*
    };
}

cases! { check_code: ex_code_ident ex_code_last_prose ex_code_two ex_code_js ex_code_tag_case ex_code_none }
cases! { check_json: ex_json_fence ex_json_prose ex_json_surrogate ex_json_think }
cases! { check_sanitised: ex_sanitize_entry ex_sanitize_redef ex_sanitize_deps }

#[test]
fn ex_sanitize_time() {
    let Some((given, expect)) = case("ex-sanitize-time") else { return };
    let repeat = given["repeat"].as_u64().unwrap() as usize;
    let reply = format!("{}{}", text(&given["code_unit"]).repeat(repeat), text(&given["tail"]));
    let entry_point = text(&given["entry_point"]);
    let before = cpu_s();
    let program =
        python::sanitize(&code::extract(&reply, "python", Some(entry_point)).unwrap(), entry_point, &BTreeSet::new());
    let spent = cpu_s() - before;
    assert!(python::defines(&program, text(&expect["must_define"][0])), "{program}");
    assert!(spent < expect["max_seconds_cpu"].as_f64().unwrap(), "{spent} s");
}

/// CPU seconds of this process so far, from `/proc/self/stat` (clock ticks of 10 ms).
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
    let ticks = |number: usize| fields[number - 3].parse::<f64>().unwrap();
    (ticks(14) + ticks(15)) / 100.0
}

/// Every case of the family about code and JSON has a test above; the others are about answers.
#[test]
fn no_case_is_forgotten() {
    let Some(path) = shared("cases/extraction.json") else { return };
    let family: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let is_ours = |case: &&Value| matches!(text(&case["given"]["op"]), "code" | "json" | "sanitize" | "sanitize_time");
    assert_eq!(family["cases"].as_array().unwrap().iter().filter(is_ours).count(), 14);
}
