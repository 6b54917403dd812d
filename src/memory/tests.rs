//! Acceptance tests every memory passes, with a hashing embedder (specs of the shared tests: recall is pure, saved
//! equals restored, instances share nothing, an empty memory recalls nothing).

use super::*;
use crate::record::{Feedback, Message, ReplyFormat, Role, TaskId};
use crate::seed::Seed;

/// A unit vector drawn from the text's hash, moved towards the first word's direction: texts that begin alike are near.
struct HashingEmbedder;

impl Embed for HashingEmbedder {
    fn embed(&self, texts: &[String]) -> anyhow::Result<Vec<Vec<f32>>> {
        let direction = |text: &str| {
            let mut stream = Seed(1).derive(text, &[]).stream();
            (0..16).map(|_| stream.next_f64() - 0.5).collect::<Vec<f64>>()
        };
        Ok(texts
            .iter()
            .map(|text| {
                let first = direction(text.split_whitespace().next().unwrap_or(""));
                let whole = direction(text);
                let vector: Vec<f64> = first.iter().zip(&whole).map(|(a, b)| 2.0 * a + b).collect();
                let norm = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
                vector.iter().map(|x| (x / norm) as f32).collect()
            })
            .collect())
    }

    fn id(&self) -> String {
        "hashing".into()
    }
}

fn handles() -> Handles<'static> {
    Handles { embedder: Some(&HashingEmbedder) }
}

fn task(question: &str) -> TaskView {
    TaskView {
        id: TaskId(format!("t/{question}")),
        family: None,
        system: None,
        question: question.into(),
        reply_format: ReplyFormat::Line,
    }
}

fn experience(question: &str, reply: &str, is_correct: bool, position: u32) -> Experience {
    Experience {
        task: task(question),
        turns: vec![Message::new(Role::Assistant, reply)],
        answer: Some(reply.into()),
        is_finished: true,
        feedback: Feedback::Correct(is_correct),
        position,
    }
}

fn create(name: &str, options: &str) -> Box<dyn Memory> {
    find(name).unwrap().create(&toml::from_str(options).unwrap()).unwrap()
}

fn life(memory: &mut dyn Memory, from: u32, to: u32) {
    for position in from..to {
        let experience =
            experience(&format!("w{} q{position}", position % 3), &format!("r{position}"), position % 2 == 0, position);
        memory.learn(&experience, &handles()).unwrap();
    }
}

fn shown(recall: &Recall) -> Vec<Vec<&str>> {
    recall.contexts.iter().map(|context| context.blocks.iter().map(|block| block.reply.as_str()).collect()).collect()
}

#[test]
fn recall_is_pure_and_an_empty_memory_recalls_nothing() {
    for method in MEMORIES {
        let mut memory = method.create(&toml::Table::new()).unwrap();
        assert_eq!(memory.recall(&task("w1 x"), &handles()).unwrap(), Recall::default(), "{}", method.name());
        life(memory.as_mut(), 0, 9);
        let before = memory.save();
        let first = memory.recall(&task("w1 x"), &handles()).unwrap();
        assert_eq!(memory.recall(&task("w1 x"), &handles()).unwrap(), first, "{}", method.name());
        assert_eq!(memory.save(), before, "{}", method.name());
    }
}

#[test]
fn a_restored_memory_goes_on_as_the_saved_one() {
    for method in MEMORIES {
        let mut whole = method.create(&toml::Table::new()).unwrap();
        life(whole.as_mut(), 0, 9);
        let mut restored = method.create(&toml::Table::new()).unwrap();
        restored.load(&whole.save()).unwrap();
        assert_eq!(restored.save(), whole.save(), "{}", method.name());
        life(whole.as_mut(), 9, 19);
        life(restored.as_mut(), 9, 19);
        assert_eq!(restored.save(), whole.save(), "{}", method.name());
        let question = task("w2 y");
        assert_eq!(
            restored.recall(&question, &handles()).unwrap(),
            whole.recall(&question, &handles()).unwrap(),
            "{}",
            method.name()
        );
        assert!(restored.load(b"{broken").is_err(), "{}", method.name());
    }
}

#[test]
fn unknown_options_are_refused_with_the_method_named() {
    for method in MEMORIES {
        let table = toml::from_str("kk = 3").unwrap();
        let message = format!("{:#}", method.create(&table).err().expect("refused"));
        assert!(message.contains(method.name()) && message.contains("kk"), "{message}");
    }
}

#[test]
fn rag_shows_the_most_similar_first_and_keeps_wrong_attempts() {
    let mut memory = create("rag", "k = 2\nembed = \"question\"");
    memory.learn(&experience("apple one", "a", false, 0), &handles()).unwrap();
    memory.learn(&experience("zebra two", "z", true, 1), &handles()).unwrap();
    memory.learn(&experience("apple three", "b", true, 2), &handles()).unwrap();
    let recall = memory.recall(&task("apple one"), &handles()).unwrap();
    assert_eq!(shown(&recall), [["a", "b"]]);
    assert!((recall.contexts[0].blocks[0].score - 1.0).abs() < 1e-6, "identical texts have cosine 1");
}

/// Case re-topk-ties: equal similarity goes to the earlier memory.
#[test]
fn rag_ties_go_to_the_earlier_memory() {
    let mut memory = create("rag", "k = 2\nembed = \"question\"");
    for (position, reply) in ["first", "second", "third"].iter().enumerate() {
        memory.learn(&experience("same", reply, true, position as u32), &handles()).unwrap();
    }
    assert_eq!(shown(&memory.recall(&task("same"), &handles()).unwrap()), [["first", "second"]]);
}

#[test]
fn rag_as_turns_puts_the_most_similar_next_to_the_question() {
    let mut memory = create("rag", "k = 2\nembed = \"question\"\nplacement = \"earlier_turns\"");
    memory.learn(&experience("apple one", "near", true, 0), &handles()).unwrap();
    memory.learn(&experience("apple three", "far", true, 1), &handles()).unwrap();
    assert_eq!(shown(&memory.recall(&task("apple one"), &handles()).unwrap()), [["far", "near"]]);
}

#[test]
fn rag_remembers_the_reference_where_the_run_reveals_it() {
    let mut memory = create("rag", "");
    let mut revealed = experience("apple", "wrong", false, 0);
    revealed.feedback = Feedback::Revealed { is_correct: false, solution: "right".into() };
    memory.learn(&revealed, &handles()).unwrap();
    assert_eq!(shown(&memory.recall(&task("apple"), &handles()).unwrap()), [["right"]]);
}

#[test]
fn rag_without_an_embedder_says_what_to_set() {
    let mut memory = create("rag", "");
    let message = memory.learn(&experience("q", "r", true, 0), &Handles { embedder: None }).unwrap_err().to_string();
    assert!(message.contains("embedder"), "{message}");
}

#[test]
fn replay_keeps_the_last_successes_oldest_first() {
    let mut memory = create("replay", "n = 2");
    for (position, (reply, is_correct)) in [("a", true), ("b", false), ("c", true), ("d", true)].iter().enumerate() {
        memory.learn(&experience("q", reply, *is_correct, position as u32), &handles()).unwrap();
    }
    assert_eq!(shown(&memory.recall(&task("q"), &handles()).unwrap()), [["c", "d"]]);
}

#[test]
fn replay_drops_what_did_not_finish_and_cuts_an_invented_user_turn() {
    let mut memory = create("replay", "");
    let mut unfinished = experience("q", "a", true, 0);
    unfinished.is_finished = false;
    memory.learn(&unfinished, &handles()).unwrap();
    assert_eq!(memory.recall(&task("q"), &handles()).unwrap(), Recall::default());
    memory.learn(&experience("q", "yes\nuser: and then?\nno", true, 1), &handles()).unwrap();
    assert_eq!(shown(&memory.recall(&task("q"), &handles()).unwrap()), [["yes"]]);
    assert_eq!(memory.stop_strings(), ["\nuser: "]);
}

#[test]
fn groups_deal_the_newest_successes_newest_first() {
    let mut memory = create("groups", "groups = 2\nsize = 2");
    for (position, reply) in ["a", "b", "c", "d", "e"].iter().enumerate() {
        memory.learn(&experience("q", reply, true, position as u32), &handles()).unwrap();
    }
    assert_eq!(shown(&memory.recall(&task("q"), &handles()).unwrap()), [["e", "d"], ["c", "b"]]);
    let mut small = create("groups", "groups = 4\nsize = 2");
    life(small.as_mut(), 0, 5);
    let sizes: Vec<usize> = shown(&small.recall(&task("q"), &handles()).unwrap()).iter().map(Vec::len).collect();
    assert_eq!(sizes, [2, 1], "fewer groups while little is stored");
}
