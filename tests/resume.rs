//! The promise of a run: killed at any moment, the same command goes on, to the same report.

#[path = "support/killed.rs"]
mod killed;
mod support;

use std::fs;

use killed::{finish, kill_after, records, report, start, stored_bytes};
use lifelong::seed::Seed;

const KILLS: u32 = 20;

/// Small, with every stage and every agent. Its results are a function of the weights, so what it needs of the pool
/// (an eligible probe) holds or fails for ever.
const CONFIG: &str = r#"
name = "resume"
seed = 3
[models]
backbones = ["smollm2-135m-instruct"]
embedder = "all-minilm-l6-v2"
[sampling]
temperature = 0.7
max_tokens = 8
stop = ["\n"]
[benchmark]
name = "kata"
limit = 12
[matrix]
seeds = 2
[vote]
[multi_task]
targets = 2
lengths = [1, 3]
sequences = 1
[orders]
tasks = 4
runs = 1
agents = ["rag", "memrl"]
[sequence]
histories = ["positive"]
sequences = 2
runs = 2
warm_up = 1
intervening = 8
dominant_share = 0.5
probe_interval = [2, 4]
[[agents]]
name = "memory-free"
[[agents]]
name = "rag"
memory = "rag"
feedback = "revealed"
options = { placement = "earlier_turns" }
[[agents]]
name = "replay"
memory = "replay"
[[agents]]
name = "memrl"
memory = "memrl"
max_call_tokens = 8
options = { min_similarity = { percentile = 20.0 } }
[[agents]]
name = "selective"
memory = "seu"
max_call_tokens = 4
options = { memory = "rag" }
against = "rag"
sequences = 1
[[agents]]
name = "vote"
memory = "groups"
policy = "group_self_consistency"
options = { groups = 2 }
"#;

#[test]
fn a_run_killed_twenty_times_reports_what_an_uninterrupted_one_does() {
    if support::model_files("smollm2-135m-instruct").is_none() || support::model_files("all-minilm-l6-v2").is_none() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("resume.toml");
    fs::write(&config, CONFIG).unwrap();
    let (whole, killed) = (home.path().join("whole"), home.path().join("killed"));
    finish(start(&config, &whole));

    let step = stored_bytes(&whole) / u64::from(KILLS);
    let mut draws = Seed(11).stream();
    for _ in 0..KILLS {
        let mut child = start(&config, &killed);
        // On average a little less than a twentieth of the run, from the very first line on.
        if !kill_after(&mut child, &killed, draws.below(2 * step - step / 4)) {
            break;
        }
    }
    finish(start(&config, &killed));

    assert!(records(&killed) == records(&whole), "records differ");
    let (expected, found) = (report(&whole), report(&killed));
    assert_eq!(expected.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
    for (name, bytes) in &expected {
        assert!(found[name] == *bytes, "{name} differs");
    }
    assert!(expected.len() >= 10, "{:?}", expected.keys());

    // Another config may not go on in this folder; another speed may.
    fs::write(&config, CONFIG.replace("temperature = 0.7", "temperature = 0.8")).unwrap();
    let refused = start(&config, &killed).wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && message.contains("temperature"), "{message}");
    fs::write(&config, format!("{CONFIG}[engine]\nmax_batch = 3\nthreads = 1\n")).unwrap();
    finish(start(&config, &killed));
}
