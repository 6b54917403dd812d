//! An attempt as text: what the methods that read or keep whole attempts are shown.
//!
//! Full: the task, numbered steps with thought, action and observation, the answer, and, where the run tells it, one
//! outcome line. A limit takes things away in a fixed order: observations to their first sentence and repeated steps as
//! one, then thoughts, then the middle steps (the first 3 and the last 5 stay), then all steps, then the end of the text.

use super::bound::first_sentence;
use super::llm;
use crate::record::{Experience, Feedback, Role};
use crate::reply::think;

const OBSERVATION_CHARACTERS: usize = 300;
const FIRST_STEPS: usize = 3;
const LAST_STEPS: usize = 5;

/// One reply of the agent and what answered it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub thought: Option<String>,
    pub action: String,
    pub observation: Option<String>,
}

/// Whether the outcome the run tells stands in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Shown,
    Hidden,
}

/// The attempt's steps.
pub(super) fn steps(experience: &Experience) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for turn in &experience.turns {
        match (turn.role, steps.last_mut()) {
            (Role::Assistant, _) => {
                let (thought, action) = split_thought(&turn.content);
                steps.push(Step { thought, action, observation: None });
            }
            (_, Some(step)) => step.observation = Some(turn.content.clone()),
            (_, None) => {}
        }
    }
    steps
}

/// Everything.
pub(super) fn full(experience: &Experience, outcome: Outcome) -> String {
    render(experience, &steps(experience), outcome)
}

/// Short observations, repeated steps once.
pub(super) fn compact(experience: &Experience, outcome: Outcome) -> String {
    render(experience, &shortened(steps(experience)), outcome)
}

/// The fullest form that `count` measures as at most `limit` tokens.
pub(super) fn within(experience: &Experience, outcome: Outcome, limit: usize, count: &dyn Fn(&str) -> usize) -> String {
    let text = full(experience, outcome);
    if count(&text) <= limit {
        return text;
    }
    let mut left = shortened(steps(experience));
    let cuts: [fn(Vec<Step>) -> Vec<Step>; 4] = [|steps| steps, without_thoughts, without_middle, |_| Vec::new()];
    let mut text = text;
    for cut in cuts {
        left = cut(left);
        text = render(experience, &left, outcome);
        if count(&text) <= limit {
            return text;
        }
    }
    llm::cut(&text, limit, count)
}

/// How the attempt went, as far as the run tells.
pub(super) fn outcome_line(feedback: &Feedback) -> Option<String> {
    Some(match feedback {
        Feedback::Withheld => return None,
        Feedback::Graded(grade) => format!("Outcome: score {grade:.2} of 1"),
        Feedback::Correct(is_correct) => format!("Outcome: {}", word(*is_correct)),
        Feedback::Revealed { is_correct, solution } => {
            format!("Outcome: {}\nReference solution:\n{solution}", word(*is_correct))
        }
    })
}

fn word(is_correct: bool) -> &'static str {
    if is_correct { "success" } else { "failure" }
}

fn render(experience: &Experience, steps: &[Step], outcome: Outcome) -> String {
    let mut text = format!("Task:\n{}\n", experience.task.question.trim());
    for (index, step) in steps.iter().enumerate() {
        text += &format!("\nStep {}\n", index + 1);
        for (label, part) in [
            ("Thought", step.thought.as_deref()),
            ("Action", Some(&*step.action)),
            ("Observation", step.observation.as_deref()),
        ] {
            if let Some(part) = part {
                text += &format!("{label}: {}\n", part.trim());
            }
        }
    }
    // A single-turn reply that is its own answer is said once.
    let said = steps.last().map(|step| step.action.trim());
    if let Some(answer) = experience.answer.as_deref().map(str::trim).filter(|answer| said != Some(*answer)) {
        text += &format!("\nFinal answer: {answer}\n");
    }
    if let (Outcome::Shown, Some(line)) = (outcome, outcome_line(&experience.feedback)) {
        text += &format!("\n{line}\n");
    }
    text
}

fn shortened(steps: Vec<Step>) -> Vec<Step> {
    let mut kept: Vec<(Step, usize)> = Vec::new();
    for mut step in steps {
        step.observation = step.observation.map(|text| first_sentence(&text, OBSERVATION_CHARACTERS));
        match kept.last_mut() {
            Some((last, times)) if (&last.action, &last.observation) == (&step.action, &step.observation) => {
                *times += 1
            }
            _ => kept.push((step, 1)),
        }
    }
    kept.into_iter()
        .map(|(mut step, times)| {
            if times > 1 {
                step.action = format!("{} ({times} times)", step.action.trim_end());
            }
            step
        })
        .collect()
}

fn without_thoughts(steps: Vec<Step>) -> Vec<Step> {
    steps.into_iter().map(|step| Step { thought: None, ..step }).collect()
}

fn without_middle(steps: Vec<Step>) -> Vec<Step> {
    if steps.len() <= FIRST_STEPS + LAST_STEPS {
        return steps;
    }
    let left_out = steps.len() - FIRST_STEPS - LAST_STEPS;
    let mark = Step { thought: None, action: format!("[{left_out} steps left out]"), observation: None };
    let (first, rest) = steps.split_at(FIRST_STEPS);
    [first, &[mark], &rest[left_out..]].concat()
}

fn split_thought(reply: &str) -> (Option<String>, String) {
    let Some(action) = think::strip(reply) else {
        return (Some(without_tags(reply)).filter(|thought| !thought.is_empty()), String::new());
    };
    let before = action.as_ptr() as usize - reply.as_ptr() as usize;
    (Some(without_tags(&reply[..before])).filter(|thought| !thought.is_empty()), action.trim().to_string())
}

fn without_tags(text: &str) -> String {
    text.replace("<think>", "").replace("</think>", "").trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::experience;
    use crate::record::Message;

    fn words(text: &str) -> usize {
        text.split_whitespace().count()
    }

    fn long() -> Experience {
        let mut long = experience("Do it.", "", true, 0);
        long.turns = (0..12)
            .flat_map(|step| {
                let thought = format!("<think>hm {step}</think>act {}", step.max(1));
                [Message::new(Role::Assistant, thought), Message::new(Role::User, "Seen. Then more words.")]
            })
            .collect();
        long.answer = Some("done".into());
        long
    }

    #[test]
    fn the_full_form_has_thoughts_steps_answer_and_outcome() {
        let text = full(&long(), Outcome::Shown);
        assert!(
            text.starts_with("Task:\nDo it.\n\nStep 1\nThought: hm 0\nAction: act 1\nObservation: Seen. Then more")
        );
        assert!(text.ends_with("\nFinal answer: done\n\nOutcome: success\n"), "{text}");
        assert!(!full(&long(), Outcome::Hidden).contains("Outcome"));
        assert_eq!(full(&experience("Q?", "a", true, 0), Outcome::Hidden), "Task:\nQ?\n\nStep 1\nAction: a\n");
    }

    #[test]
    fn a_limit_takes_observations_then_thoughts_then_the_middle_then_steps() {
        let experience = long();
        let at = |limit| within(&experience, Outcome::Shown, limit, &words);
        let compact = compact(&experience, Outcome::Shown);
        assert!(compact.contains("act 1 (2 times)") && !compact.contains("Then more"));
        assert_eq!(at(words(&compact)), compact);
        let without_thoughts = at(words(&compact) - 1);
        assert!(!without_thoughts.contains("Thought") && without_thoughts.contains("act 5"));
        let without_middle = at(words(&without_thoughts) - 1);
        assert!(without_middle.contains("[3 steps left out]"), "{without_middle}");
        let bare = at(words(&without_middle) - 1);
        assert_eq!(bare, "Task:\nDo it.\n\nFinal answer: done\n\nOutcome: success\n");
        for limit in 0..60 {
            assert!(words(&at(limit)) <= limit);
        }
    }
}
