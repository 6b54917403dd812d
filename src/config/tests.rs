use super::*;

const SMALL: &str = r#"
name = "small"
[models]
backbones = ["m"]
[benchmark]
name = "kata"
"#;

fn error(text: &str) -> String {
    format!("{:#}", parse(text).expect_err("the config must be refused"))
}

#[test]
fn defaults_are_the_papers() {
    let config = parse(&format!("{SMALL}[matrix]\n[vote]\n[sequence]\n[[agents]]\nname = \"a\"\n")).unwrap();
    let sequence = config.sequence.unwrap();
    assert_eq!((sequence.sequences, sequence.runs, sequence.warm_up, sequence.intervening), (50, 5, 5, 100));
    assert_eq!(sequence.probe_interval, [6, 12]);
    assert_eq!(sequence.dominant_share, 0.7);
    assert_eq!(config.matrix.unwrap().seeds, 5);
    assert_eq!(config.sampling.temperature, 0.7);
    assert_eq!(config.agents[0].memory, "none");
}

#[test]
fn defaults_of_the_experiments_are_the_papers() {
    let stages = "[matrix]\n[vote]\n[multi_task]\n[transitions]\n[orders]\n";
    let agents = "[[agents]]\nname = \"a\"\n[[agents]]\nname = \"b\"\nagainst = \"a\"\nsequences = 20\n";
    let config = parse(&format!("{SMALL}{stages}{agents}")).unwrap();
    let multi_task = config.multi_task.as_ref().unwrap();
    assert_eq!((multi_task.targets, multi_task.sequences, multi_task.lengths.as_slice()), (50, 3, &[3, 6, 9, 12][..]));
    let transitions = config.transitions.as_ref().unwrap();
    assert_eq!((transitions.sequences, transitions.runs, transitions.interval), (30, 5, 5));
    let orders = config.orders.as_ref().unwrap();
    assert_eq!((orders.tasks, orders.paths, orders.runs), (50, 2, 3));
    assert_eq!(config.agents_of(None), ["a"], "an agent that is compared with another lives in sequences alone");
    let plain = serde_json::to_value(parse(SMALL).unwrap()).unwrap();
    for key in ["multi_task", "transitions", "orders"] {
        assert!(plain.get(key).is_none(), "a run without the stage is the run it was before there was any");
    }
}

/// Case cf-typo.
#[test]
fn a_typo_names_the_key_and_the_nearest_one() {
    let message = error(&format!("{SMALL}[sampling]\ntemprature = 0.7\n"));
    assert!(message.contains("temprature") && message.contains("did you mean `temperature`"), "{message}");
}

/// Case cf-dup-key.
#[test]
fn a_key_given_twice_is_refused() {
    let message = error("seed = 1\nseed = 2\n");
    assert!(message.contains("duplicate key"), "{message}");
}

/// Case cf-yaml-bool.
#[test]
fn a_value_of_the_wrong_type_is_refused() {
    let message = error("name = \"x\"\n[models]\nbackbones = [false, 1e3]\n[benchmark]\nname = \"kata\"\n");
    assert!(message.contains("backbones") && message.contains("expected a string"), "{message}");
}

#[test]
fn values_out_of_range_name_key_value_and_range() {
    for (addition, parts) in [
        ("[matrix]\nseeds = 0", vec!["matrix.seeds", "0"]),
        ("[matrix]\nheadroom = { min = 0.9, max = 0.1 }", vec!["matrix.headroom", "0.9", "0.1"]),
        ("[engine]\ndevice = \"gpu\"", vec!["engine.device", "gpu", "cuda:N"]),
        ("[vote]", vec!["[matrix]"]),
        ("[matrix]\ntasks = 1", vec!["matrix.tasks", "1"]),
        ("[matrix]\nheadroom = { min = 0.1, max = 0.9, models = [\"n\"] }", vec!["headroom.models", "`n`"]),
        (
            "[matrix]\nheadroom = { min = 0.1, max = 0.9, models = [\"m\"], scores = \"s.csv\" }",
            vec!["matrix.headroom", "`scores`", "both"],
        ),
        ("[multi_task]", vec!["[multi_task]", "[vote]"]),
        ("[matrix]\n[vote]\n[multi_task]\nlengths = [3, 3]", vec!["multi_task.lengths", "[3, 3]"]),
        ("[matrix]\n[vote]\n[transitions]", vec!["[transitions]", "[[agents]]"]),
        ("[orders]\ntasks = 1\n[[agents]]\nname = \"a\"", vec!["orders.tasks", "1"]),
        ("[orders]\nagents = [\"b\"]\n[[agents]]\nname = \"a\"", vec!["orders.agents", "`b`"]),
        ("[[agents]]\nname = \"a\"\nagainst = \"a\"", vec!["agent `a`", "against"]),
        ("[[agents]]\nname = \"a\"\nsequences = 0", vec!["agents.sequences", "0"]),
        ("[logprob]", vec!["[logprob]", "[matrix]"]),
        ("[attribution]", vec!["[attribution]", "[sequence]"]),
        ("[matrix]\nstopping = { error_rate = 0.5 }", vec!["matrix.stopping.error_rate", "0.5"]),
        ("[matrix]\nseeds = 3\nstopping = { least_seeds = 4 }", vec!["least_seeds", "matrix.seeds", "4"]),
        ("[matrix]\nstopping = {}\n[vote]\nseed_groups = 2", vec!["vote.seed_groups", "stopping", "2"]),
        ("[matrix]\n[vote]\nby = \"log_probability\"", vec!["vote.by", "[logprob]"]),
        ("[matrix]\n[logprob]\n[vote]\nseed_groups = 2\nby = \"log_probability\"", vec!["vote.seed_groups", "2"]),
        ("[matrix]\n[vote]\nby = \"luck\"", vec!["luck", "log_probability_over_median"]),
        ("[sampling]\ntop_p = 0.0", vec!["top_p", "0"]),
        ("[engine]\nkv_memory = \"lots\"", vec!["512MiB", "lots"]),
        ("[[agents]]\nname = \"a\"\n[[agents]]\nname = \"a\"", vec!["agents.name", "twice"]),
    ] {
        let message = error(&format!("{SMALL}{addition}\n"));
        for part in parts {
            assert!(message.contains(part), "{addition}: {message}");
        }
    }
    assert!(error(&SMALL.replace("small", "../up")).contains("folder"));
}

/// Stages that only read what others made are no part of a run's identity, so that a run can be traced after the fact.
#[test]
fn stages_that_change_no_other_are_not_stored_with_the_run() {
    let stages =
        "[matrix]\n[logprob]\n[vote]\n[sequence]\n[attribution]\nprobes = \"every\"\n[[agents]]\nname = \"a\"\n";
    let config = parse(&format!("{SMALL}{stages}")).unwrap();
    assert!(config.logprob.is_some());
    assert_eq!(config.attribution.as_ref().unwrap().probes, TracedProbes::Every);
    let stored = serde_json::to_value(&config).unwrap();
    assert!(stored.get("matrix").is_some() && stored.get("logprob").is_none() && stored.get("attribution").is_none());
    assert!(
        stored["matrix"].get("stopping").is_none(),
        "a run without stopping is the run it was before there was any"
    );
}

#[test]
fn a_backbones_chat_and_a_grammar_are_said_in_the_run_file() {
    let additions = "[models.chat.m]\nenable_thinking = false\nvariables = { date_string = \"today\" }\n\
                     [sampling.grammar]\njson_schema = { type = \"integer\", maximum = 5 }\n";
    let config = parse(&format!("{SMALL}{additions}")).unwrap();
    let chat = config.models.chat_of("m");
    assert_eq!((chat.enable_thinking, chat.variables["date_string"].as_str()), (Some(false), Some("today")));
    assert_eq!(config.models.chat_of("other"), Default::default());
    let schema = serde_json::json!({"json_schema": {"type": "integer", "maximum": 5}});
    assert_eq!(serde_json::to_value(&config.sampling.grammar).unwrap(), schema);
    let stranger = error(&format!("{SMALL}[models.chat.n]\nenable_thinking = true\n"));
    assert!(stranger.contains("models.chat") && stranger.contains("`n`"), "{stranger}");
    let typo = error(&format!("{SMALL}[models.chat.m]\nenable_thought = true\n"));
    assert!(typo.contains("enable_thought"), "{typo}");
}
