//! The bundled pool is checkable: its own solutions score 1, silence and an echo of the question do not.

use lifelong::benchmark::{self, Selection};
use lifelong::environment::{Action, ENVIRONMENTS};
use lifelong::record::{Attempt, Ending, Task, Usage};
use lifelong::registry;
use lifelong::scorer::{self, Grading};

fn grade(task: &Task, reply: &str) -> f64 {
    let environment = registry::find("environment", ENVIRONMENTS, "reply").unwrap();
    let answer = match environment.action(&task.view, reply) {
        Action::Answer(text) => Some(text),
        _ => None,
    };
    let attempt = Attempt {
        turns: Vec::new(),
        answer,
        ending: Ending::Finished,
        usage: Usage::default(),
        recalled: Vec::new(),
        dropped_memories: 0,
        votes: Vec::new(),
    };
    let scorer = scorer::find(&task.reference.scorer).unwrap();
    scorer.check(&task.reference).unwrap();
    scorer.score(task, &attempt, &Grading::default()).unwrap().0.graded().unwrap()
}

#[test]
fn gold_scores_one_and_nothing_scores_less() {
    for seed in [1, 2, 3] {
        let options = format!("seed = {seed}").parse().unwrap();
        let pool = benchmark::find("kata").unwrap().load(&Selection { path: None, options }).unwrap();
        for task in &pool.tasks {
            assert_eq!(grade(task, &task.reference.solution), 1.0, "{}: {}", task.id(), task.reference.solution);
            assert!(grade(task, "") < 1.0, "{}", task.id());
            assert!(grade(task, &task.view.question) < 1.0, "{}", task.id());
        }
    }
}

/// The point of the pool: the right content in the other family's form is not right.
#[test]
fn the_other_form_of_the_right_answer_is_not_right() {
    let pool = benchmark::find("kata").unwrap().load(&Selection::default()).unwrap();
    for task in &pool.tasks {
        let solution = &task.reference.solution;
        let other = match task.reference.options["answers"][0].as_str() {
            Some(answer) if answer != solution => answer.to_string(),
            _ => format!("The answer is {solution}."),
        };
        assert!(grade(task, &other) < 1.0, "{}: {other}", task.id());
    }
}
