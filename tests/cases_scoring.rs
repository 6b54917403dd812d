//! The `scoring` behaviour cases, through the scorers as a run uses them.

mod cases;

use lifelong::record::{Attempt, Ending, Reference, ReplyFormat, Score, Task, TaskId, TaskView, Usage};
use lifelong::scorer::{self, Grading};
use serde_json::{Value, json};

fn grade(scorer: &str, options: Value, answer: &str) -> f64 {
    let task = Task {
        view: TaskView {
            id: TaskId("case".into()),
            family: None,
            system: None,
            question: String::new(),
            reply_format: ReplyFormat::FreeText,
        },
        reference: Reference { solution: String::new(), scorer: scorer.into(), options },
    };
    let attempt = Attempt {
        turns: Vec::new(),
        answer: Some(answer.into()).filter(|answer: &String| !answer.is_empty()),
        ending: Ending::Finished,
        usage: Usage::default(),
        recalled: Vec::new(),
        dropped_memories: 0,
        votes: Vec::new(),
    };
    let scorer = scorer::find(scorer).unwrap();
    scorer.check(&task.reference).unwrap();
    let (score, _) = scorer.score(&task, &attempt, &Grading::default()).unwrap();
    match score {
        Score::Graded(grade) => grade,
        Score::Ungraded { why } => panic!("ungraded: {why}"),
    }
}

#[test]
fn scoring_cases_hold() {
    let Some(cases) = cases::load("scoring.json") else { return };
    let mut checked = 0;
    for case in &cases {
        let id = case["id"].as_str().unwrap();
        let given = &case["given"];
        let expect = &case["expect"];
        let prediction = given["prediction"].as_str().unwrap();
        match given["op"].as_str().unwrap() {
            "qa" => {
                let mut options = json!({ "answers": given["references"], "normalise": "squad" });
                if let Some(words) = given.get("no_answer_words") {
                    options["no_answer_words"] = words.clone();
                }
                let em = grade("exact", options.clone(), prediction);
                let f1 = grade("token_f1", options, prediction);
                assert!((em - expect["em"].as_f64().unwrap()).abs() < 1e-6, "{id}: em {em}");
                assert!((f1 - expect["f1"].as_f64().unwrap()).abs() < 1e-6, "{id}: f1 {f1}");
            }
            "numeric" => {
                // No number reads out of "nan", so such a gold is refused when it is loaded: never right either way.
                if given["reference"] == "nan" {
                    let reference = Reference {
                        solution: String::new(),
                        scorer: "numeric".into(),
                        options: json!({ "answer": "nan" }),
                    };
                    assert!(scorer::find("numeric").unwrap().check(&reference).is_err(), "{id}");
                    assert_eq!(grade("numeric", json!({ "answer": 0 }), prediction), 0.0, "{id}");
                } else {
                    let right = grade("numeric", json!({ "answer": given["reference"] }), prediction) == 1.0;
                    assert_eq!(right, expect["correct"].as_bool().unwrap(), "{id}");
                }
            }
            other => panic!("{id}: unknown op {other}"),
        }
        checked += 1;
    }
    assert!(checked >= 17, "only {checked} cases");
}

#[test]
fn contains_regex_and_choice_decide() {
    let capital = json!({ "answers": ["Paris"], "forbidden": ["French", "Europe"] });
    assert_eq!(grade("contains", capital.clone(), "The capital of France is Paris."), 1.0);
    assert_eq!(grade("contains", capital.clone(), "Parisian"), 0.0);
    assert_eq!(grade("contains", capital.clone(), "Paris, French, Europe"), 0.0);
    assert_eq!(grade("contains", capital, ""), 0.0);
    assert_eq!(grade("regex", json!({ "pattern": "(?i)^par" }), "paris"), 1.0);
    assert_eq!(grade("regex", json!({ "pattern": "^par" }), "Paris"), 0.0);
    assert_eq!(grade("choice", json!({ "answer": "B" }), "b"), 1.0);
    assert_eq!(grade("choice", json!({ "answer": "B" }), "A"), 0.0);
    assert_eq!(grade("numeric", json!({ "answer": 100, "relative": 0.01 }), "about 99.5"), 1.0);
    assert_eq!(grade("numeric", json!({ "answer": "$1,200" }), "1200 dollars"), 1.0);
    assert_eq!(grade("exact", json!({ "answers": ["Yes."] }), "yes"), 1.0);
    assert_eq!(grade("exact", json!({ "answers": ["Yes"], "normalise": "exact" }), "yes"), 0.0);
}

#[test]
fn bad_options_name_scorer_and_field() {
    for (scorer, options, parts) in [
        ("exact", json!({ "answers": [] }), ["answers", "at least one"]),
        ("exact", json!({ "answer": ["x"] }), ["exact", "unknown field `answer`"]),
        ("contains", json!({ "answers": ["?"] }), ["answers", "letters or digits"]),
        ("regex", json!({ "pattern": "(" }), ["pattern", "regular expression"]),
        ("numeric", json!({ "answer": "many" }), ["answer", "many"]),
        ("numeric", json!({ "answer": 1, "relative": -1 }), ["relative", "at least 0"]),
        ("choice", json!({ "answer": " " }), ["choice", "answer"]),
    ] {
        let reference = Reference { solution: String::new(), scorer: scorer.into(), options };
        let message = format!("{:#}", scorer::find(scorer).unwrap().check(&reference).unwrap_err());
        for part in parts {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
    }
}

proptest::proptest! {
    /// Whatever a model writes is graded in 0..=1.
    #[test]
    fn any_answer_gets_a_grade(answer in "\\PC{0,60}") {
        for (scorer, options) in [
            ("exact", json!({ "answers": ["the"], "normalise": "squad" })),
            ("token_f1", json!({ "answers": ["a b", "c"] })),
            ("contains", json!({ "answers": ["a b"], "forbidden": ["c"] })),
            ("regex", json!({ "pattern": "(a+)+$" })),
            ("numeric", json!({ "answer": 3 })),
            ("choice", json!({ "answer": "A" })),
        ] {
            let value = grade(scorer, options, &answer);
            assert!((0.0..=1.0).contains(&value), "{scorer} gives {value} to {answer:?}");
        }
    }
}
