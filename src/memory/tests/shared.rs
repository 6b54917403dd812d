//! What every memory method must do, whatever it remembers (specs of the shared acceptance tests).

use super::*;
use crate::memory::freeze::Freezable;

/// A method under test: its options, and which of its calls a life must contain.
struct Variant {
    method: &'static str,
    options: &'static str,
    /// Purposes of the calls of the first and of the tenth step, in the order made.
    first: &'static [&'static str],
    tenth: &'static [&'static str],
}

const VARIANTS: &[Variant] = &[
    Variant { method: "none", options: "", first: &[], tenth: &[] },
    Variant { method: "rag", options: "", first: &[], tenth: &[] },
    Variant { method: "rag", options: "mode = \"sparse\"", first: &[], tenth: &[] },
    Variant { method: "rag", options: "mode = \"colbert\"", first: &[], tenth: &[] },
    Variant { method: "rag", options: "mode = \"hybrid\"", first: &[], tenth: &[] },
    Variant { method: "replay", options: "", first: &[], tenth: &[] },
    Variant { method: "groups", options: "", first: &[], tenth: &[] },
    Variant { method: "clin", options: "", first: &["clin/update"], tenth: &["clin/update"] },
    Variant {
        method: "clin",
        options: "mode = \"matched\"\nitems = \"advice\"",
        first: &["clin/update"],
        tenth: &["clin/update", "clin/meta"],
    },
    Variant { method: "awm", options: "", first: &["awm/induce"], tenth: &[] },
    Variant { method: "awm", options: "mode = \"append\"\nshow = \"nearest\"", first: &["awm/induce"], tenth: &[] },
    Variant { method: "awm", options: "mode = \"examples\"\nsame_task_cosine = 0.95", first: &[], tenth: &[] },
    Variant {
        method: "autoskill",
        options: "min_score = -1.0",
        first: &["autoskill/extract"],
        tenth: &["autoskill/select"],
    },
    Variant {
        method: "autoskill",
        options: "min_score = -1.0\nselector = false\nusage_judge = true",
        first: &["autoskill/extract"],
        tenth: &["autoskill/usage"],
    },
    Variant {
        method: "skillclaw",
        options: "batch = 2",
        first: &[],
        tenth: &["skillclaw/choose", "skillclaw/summarise", "skillclaw/summarise", "skillclaw/evolve_skill"],
    },
    Variant {
        method: "skillclaw",
        options: "batch = 1\nmode = \"embedding\"",
        first: &["skillclaw/summarise", "skillclaw/evolve_new"],
        tenth: &["skillclaw/summarise", "skillclaw/evolve_new"],
    },
    Variant { method: "memrl", options: "min_similarity = -1.0", first: &["memrl/script"], tenth: &["memrl/reflect"] },
    Variant {
        method: "simplemem",
        options: "",
        first: &["simplemem/extract"],
        tenth: &[
            "simplemem/requirements",
            "simplemem/queries",
            "simplemem/analyse",
            "simplemem/check",
            "simplemem/extract",
        ],
    },
    Variant {
        method: "simplemem_paper",
        options: "merge_every = 10",
        first: &["simplemem_paper/units"],
        tenth: &["simplemem_paper/plan", "simplemem_paper/units", "simplemem_paper/merge"],
    },
    Variant {
        method: "hipporag",
        options: "",
        first: &["hipporag/entities", "hipporag/triples"],
        tenth: &["hipporag/filter", "hipporag/entities", "hipporag/triples"],
    },
    Variant { method: "seu", options: "memory = \"awm\"", first: &["awm/induce"], tenth: &["seu/compile"] },
    Variant {
        method: "seu",
        options: "memory = \"rag\"\ngranularity = \"item\"",
        first: &[],
        tenth: &["seu/compile", "seu/compile"],
    },
];

/// What a good model would say to each prompt.
fn good_reply(prompt: &str) -> String {
    let replies: &[(&str, &str)] = &[
        ("Status: success or failure", "Thoughts: it fits.\nStatus: success"),
        ("Write the new numbered list", "1. Reading twice SHOULD BE NECESSARY to be right."),
        ("Write the workflows of these records", "### Workflow: Look twice\nFor all.\n1. Look.\n2. Look again."),
        (
            "skills worth keeping",
            r#"{"skills": [{"name": "look", "description": "looks twice", "prompt": "Look.", "confidence": 0.7}]}"#,
        ),
        ("Merge the two", r#"{"name": "look", "description": "looks twice", "prompt": "Look again."}"#),
        ("Choose the skills", r#"{"use_skills": true, "selected_skill_ids": ["skill-1"], "reason": "fits"}"#),
        ("Skills were offered", r#"{"skills": [{"id": "skill-1", "relevant": true, "used": true}]}"#),
        ("Choose the one skill", "look"),
        ("Summarise the session", "The agent looked at the task once and then wrote the answer."),
        (
            "You maintain a library",
            r#"{"action": "create_skill", "rationale": "", "skill": {"name": "look", "description": "d", "body": "Look."}}"#,
        ),
        ("The attempt below", "1. Look. 2. Write."),
        ("memory units", r#"[{"content": "Tasks want a look.", "entities": ["task"], "topic": "looking"}]"#),
        ("Write one unit", r#"{"content": "Look at all tasks.", "entities": ["task"], "topic": "looking"}"#),
        ("Plan one search", r#"{"complexity": "LOW", "keywords": ["look"], "semantic_query": "look"}"#),
        ("Turn the dialogue", r#"[{"restatement": "Tasks want a look.", "keywords": ["look"], "entities": ["task"]}]"#),
        ("what must be known", r#"{"required_information": ["how to look"]}"#),
        ("Write search queries", r#"{"queries": ["look"]}"#),
        ("Read off the task", r#"{"keywords": ["look"], "entities": ["task"]}"#),
        ("Facts were found", r#"{"assessment": "complete"}"#),
        ("list the names", r#"{"named_entities": ["task", "look"]}"#),
        ("facts as triples", r#"{"triples": [["task", "wants", "look"], ["look", "needs", "eyes"]]}"#),
        ("A memory holds facts", r#"fact_after_filter: {"fact": [["task", "wants", "look"]]}"#),
        ("<retrieved_memory>", "KEEP"),
        ("Write the numbered list", "1. Counting MAY BE NECESSARY to answer."),
    ];
    let reply = replies.iter().find(|(mark, _)| prompt.contains(mark)).map(|(_, reply)| *reply);
    reply.unwrap_or_else(|| panic!("a prompt without a scripted reply:\n{prompt}")).to_string()
}

fn variants() -> impl Iterator<Item = (&'static Variant, String)> {
    VARIANTS.iter().map(|variant| (variant, format!("{} {}", variant.method, variant.options)))
}

impl Variant {
    fn create(&self) -> Box<dyn Memory> {
        create(self.method, self.options)
    }
}

/// Even positions succeed; three kinds of tasks return.
fn nth(position: u32) -> Experience {
    experience(&format!("w{} q{position}", position % 3), &format!("r{position}"), position.is_multiple_of(2), position)
}

fn life(bench: &Bench, memory: &mut dyn Memory, positions: std::ops::Range<u32>) {
    for position in positions {
        bench.step(memory, nth(position));
    }
}

#[test]
fn every_method_is_tested_here() {
    for method in MEMORIES {
        assert!(VARIANTS.iter().any(|variant| variant.method == method.name()), "{}", method.name());
    }
}

#[test]
fn recall_is_pure_and_an_empty_memory_shows_nothing() {
    for (variant, name) in variants() {
        let bench = Bench::new(good_reply);
        let mut memory = variant.create();
        assert!(bench.recall(memory.as_ref(), &task("w1 x")).contexts.is_empty(), "{name}");
        life(&bench, memory.as_mut(), 0..9);
        let before = memory.save();
        let first = bench.recall_at(memory.as_ref(), &task("w1 x"), 9);
        assert_eq!(bench.recall_at(memory.as_ref(), &task("w1 x"), 9), first, "{name}");
        assert_eq!(memory.save(), before, "{name}");
        assert!(variant.method == "none" || !first.0.contexts.is_empty(), "{name} shows nothing after nine tasks");
    }
}

/// Models with an instruction for queries compare asymmetrically: what asks and what is kept must not be mixed up.
#[test]
fn recall_embeds_queries_and_learning_documents() {
    for (variant, name) in variants() {
        let bench = Bench::new(good_reply);
        let mut memory = variant.create();
        let (mut asked, mut kept) = (0, 0);
        for position in 0..9 {
            let (recall, _) = bench.recall_at(memory.as_ref(), &nth(position).task, position);
            let while_recalling = bench.take_embedded();
            assert!(
                while_recalling.iter().all(|(purpose, _)| *purpose == Purpose::Query),
                "{name}: {while_recalling:?}"
            );
            asked += while_recalling.len();
            let mut experience = nth(position);
            experience.pending = recall.pending;
            bench.learn(memory.as_mut(), &experience);
            let while_learning = bench.take_embedded();
            assert!(
                while_learning.iter().all(|(purpose, _)| *purpose == Purpose::Document),
                "{name}: {while_learning:?}"
            );
            kept += while_learning.len();
        }
        let method = find(variant.method).unwrap();
        let embeds = method.resolve(&toml::from_str(variant.options).unwrap()).unwrap().needs_embedder;
        // Examples are compared with each other alone, when they are taken in.
        let searches = embeds && !variant.options.contains("\"examples\"");
        assert_eq!((asked > 0, kept > 0), (searches, embeds), "{name}");
    }
}

/// Unconstrained is the published way; constrained holds every call with a form, under one state layout but other options.
#[test]
fn forms_are_an_option_that_snapshots_and_manifests_hold() {
    for name in ["autoskill", "clin", "hipporag", "simplemem", "simplemem_paper", "skillclaw"] {
        let options = |text: &str| find(name).unwrap().resolve(&toml::from_str(text).unwrap()).unwrap().options;
        assert_eq!(options("")["constrained"].as_bool(), Some(true), "{name}");
        assert_eq!(options("constrained = false")["constrained"].as_bool(), Some(false), "{name}");
        assert!(create(name, "constrained = false").load(&create(name, "").save()).is_err(), "{name}");
        let is_held = |text: &str| {
            let bench = Bench::new(good_reply);
            life(&bench, create(name, text).as_mut(), 0..5);
            bench.held()
        };
        assert!(is_held("").iter().any(|is_held| *is_held), "{name}");
        assert!(is_held("constrained = false").iter().all(|is_held| !is_held), "{name}");
    }
}

#[test]
fn a_frozen_memory_asks_nothing_and_stays_and_learns_again_when_released() {
    for (variant, name) in variants() {
        let bench = Bench::new(good_reply);
        let mut memory = Freezable::new(variant.create());
        life(&bench, &mut memory, 0..4);
        memory.freeze();
        let before = memory.save();
        assert_eq!(bench.learn(&mut memory, &nth(4)), [], "{name}");
        assert_eq!(memory.save(), before, "{name}");
        assert!(bench.recall(&memory, &task("w1 x")).contexts.len() <= 8, "{name}");
        memory.unfreeze();
        life(&bench, &mut memory, 4..9);
        assert!(variant.method == "none" || memory.save() != before, "{name}");
    }
}

#[test]
fn a_restored_memory_goes_on_as_the_saved_one() {
    for (variant, name) in variants() {
        let bench = Bench::new(good_reply);
        let mut whole = variant.create();
        life(&bench, whole.as_mut(), 0..9);
        let mut restored = variant.create();
        restored.load(&whole.save()).unwrap();
        assert_eq!(restored.save(), whole.save(), "{name}");
        for position in 9..19 {
            let one = bench.step(whole.as_mut(), nth(position));
            assert_eq!(bench.step(restored.as_mut(), nth(position)), one, "{name}");
            assert_eq!(restored.save(), whole.save(), "{name}");
        }
        assert!(restored.load(b"{broken").is_err(), "{name}");
    }
}

#[test]
fn unknown_options_are_refused_with_the_method_named() {
    for (variant, name) in variants() {
        let mut table: toml::Table = toml::from_str(variant.options).unwrap();
        table.insert("kk".into(), 3.into());
        let method = find(variant.method).unwrap();
        let message = format!("{:#}", method.create(&table).err().expect("refused"));
        assert!(message.contains(variant.method) && message.contains("kk"), "{name}: {message}");
        assert!(method.resolve(&table).is_err(), "{name}");
    }
}

#[test]
fn resolved_options_say_every_default_and_mean_the_same() {
    for (variant, name) in variants() {
        let method = find(variant.method).unwrap();
        let resolved = method.resolve(&toml::from_str(variant.options).unwrap()).unwrap();
        assert_eq!(method.resolve(&resolved.options).unwrap(), resolved, "{name}");
        let bench = Bench::new(good_reply);
        let (mut said, mut filled) = (variant.create(), method.create(&resolved.options).unwrap());
        life(&bench, said.as_mut(), 0..3);
        life(&bench, filled.as_mut(), 0..3);
        assert_eq!(said.save(), filled.save(), "{name}");
    }
}

/// Replies that no method can use.
const BAD: &[&str] = &[
    "",
    "I am happy to help with that.",
    "{\"a\": [\"b",
    "{\"a\": 5, \"b\": [1, {}], \"c\": null}",
    "<think>so, first",
];

#[test]
fn a_bad_reply_has_a_fallback_and_is_counted() {
    for (variant, name) in variants() {
        for reply in BAD {
            let bench = Bench::new(good_reply);
            let mut memory = variant.create();
            life(&bench, memory.as_mut(), 0..3);
            let bad = Bench::new(|_| reply.to_string());
            let calls: Vec<MemoryCall> =
                (3..9).flat_map(|position| bad.step(memory.as_mut(), nth(position)).1).collect();
            // Free text is what one method asks for: only silence is unreadable there.
            let may_read = variant.options.contains("advice") || variant.method == "memrl";
            let is_silent = reply.is_empty() || reply.starts_with("<think>");
            if !may_read || is_silent {
                assert!(calls.iter().all(|call| !call.is_read), "{name}: {reply:?} was read: {calls:?}");
            }
            assert_eq!(calls.is_empty(), variant.tenth.is_empty() && variant.first.is_empty(), "{name}");
            memory.load(&memory.save()).unwrap();
        }
    }
}

#[test]
fn calls_are_those_of_the_method() {
    for (variant, name) in variants() {
        let bench = Bench::new(good_reply);
        let mut memory = variant.create();
        for position in 0..10 {
            let (_, calls) = bench.step(memory.as_mut(), nth(position));
            let purposes: Vec<&str> = calls.iter().map(|call| call.purpose.as_str()).collect();
            let expected = match position {
                0 => variant.first,
                9 => variant.tenth,
                _ => continue,
            };
            assert_eq!(purposes, expected, "{name} at {position}");
        }
    }
}

#[test]
fn two_memories_share_nothing() {
    for (variant, name) in variants() {
        let bench = Bench::new(good_reply);
        let mut alone = variant.create();
        life(&bench, alone.as_mut(), 0..6);
        let (mut left, mut right) = (variant.create(), variant.create());
        for position in 0..6 {
            bench.step(left.as_mut(), nth(position));
            bench.step(right.as_mut(), experience("other", "x", true, position));
        }
        assert_eq!(left.save(), alone.save(), "{name}");
    }
}

#[test]
fn a_model_cannot_blow_up_a_memory_by_long_replies() {
    for (variant, name) in variants() {
        let bench = Bench::new(|prompt| format!("{}\n{}", good_reply(prompt), "and more ".repeat(20_000)));
        let mut memory = variant.create();
        life(&bench, memory.as_mut(), 0..6);
        assert!(memory.save().len() < 120_000, "{name}: {} bytes", memory.save().len());
    }
}

#[test]
fn a_prompt_that_cannot_fit_goes_unanswered() {
    for (variant, name) in variants() {
        let bench = Bench::new(good_reply).with_context(300);
        let mut memory = variant.create();
        life(&bench, memory.as_mut(), 0..3);
        assert!(bench.prompts().iter().all(|prompt| prompt.len() < 1200), "{name}");
    }
}

#[test]
fn stored_replies_take_the_place_of_the_backbone_and_must_belong_to_the_request() {
    for (variant, name) in variants() {
        let bench = Bench::new(good_reply);
        let mut asked = variant.create();
        let calls = bench.learn(asked.as_mut(), &nth(0));
        let silent = Bench::new(|_| panic!("a replayed call is not asked again"));
        let replay = |calls: &[MemoryCall]| {
            let mut memory = variant.create();
            let seed = Seed(9).derive("learn", &[0]);
            let llm = Llm::new(&silent.backbone, seed, None).replaying(calls.to_vec());
            let handles = Handles { embedder: Some(&silent.embedder), llm: Some(&llm), similarities: None, seed };
            memory.learn(&nth(0), &handles).map(|()| memory.save())
        };
        assert_eq!(replay(&calls).unwrap(), asked.save(), "{name}");
        if let Some((first, rest)) = calls.split_first() {
            let other = MemoryCall { request: "0123456789abcdef".into(), ..first.clone() };
            let message = format!("{:#}", replay(&[&[other], rest].concat()).unwrap_err());
            assert!(message.contains(&first.request) && message.contains("--out"), "{message}");
            assert!(replay(&[]).is_err());
        }
    }
}
