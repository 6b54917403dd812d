//! The same shapes through PyTorch and transformers, where Python has them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Scale;
use super::throughput::Rate;
use crate::bench::{Kind, Prompts};

const SCRIPT: &str = include_str!("transformers.py");

/// Rows of a batch of the matrix, all seeds of so many targets: what a user without prefix sharing would choose.
const MATRIX_ROWS: usize = 160;

/// Fills in the peer's rates. Says who it was, or why there was none.
pub(super) fn measure(python: &str, scale: &Scale, rates: &mut [Rate], limit: Duration) -> String {
    let until = Instant::now() + limit;
    let child = Command::new(python)
        .args(["-c", SCRIPT, &shapes(scale).to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return format!("no peer: {python} cannot be started ({error})"),
    };
    let (sender, lines) = channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
    }
    // Read beside stdout, so that neither pipe fills up.
    let stderr = child.stderr.take();
    let last_words = std::thread::spawn(move || {
        let lines = stderr.map(|stderr| BufReader::new(stderr).lines().map_while(Result::ok));
        lines.and_then(|lines| lines.filter(|line| !line.trim().is_empty()).last()).unwrap_or_default()
    });
    let (mut about, mut ran_out) = (None, false);
    loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => read(&line, rates, &mut about),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                ran_out = true;
                // It may have ended in between.
                let _ = child.kill();
                break;
            }
        }
    }
    let ended = child.wait().is_ok_and(|status| status.success());
    let last_words = last_words.join().unwrap_or_default();
    match (about, ended, ran_out) {
        (Some(about), true, _) => about,
        (Some(about), _, true) => format!("{about}; stopped after {:.0} s", limit.as_secs_f64()),
        (Some(about), ..) => format!("{about}; it failed: {last_words}"),
        (None, ..) => format!("no peer: {python} has no transformers to run ({last_words})"),
    }
}

/// A line of the script: who it is, a rate, or a note.
fn read(line: &str, rates: &mut [Rate], about: &mut Option<String>) {
    let value: Value = serde_json::from_str(line).unwrap_or(Value::Null);
    if let Some(text) = value["about"].as_str() {
        *about = Some(text.to_string());
    }
    if let Some(note) = value["note"].as_str() {
        eprintln!("note: transformers: {note}");
    }
    if let (Some(name), Some(found)) = (value["name"].as_str(), value["rate"].as_f64()) {
        rates.iter_mut().filter(|rate| rate.name == name).for_each(|rate| rate.peer = Some(found));
    }
    // A shared prefix is nothing to it: the same rate stands beside both.
    share_own(rates);
}

fn share_own(rates: &mut [Rate]) {
    let of_own = |rate: &Rate| Some((format!("{}-shared", rate.name.strip_suffix("-own")?), rate.peer));
    let own: BTreeMap<String, Option<f64>> = rates.iter().filter_map(of_own).collect();
    for rate in rates.iter_mut().filter(|rate| rate.name.ends_with("-shared")) {
        rate.peer = own.get(rate.name).copied().flatten();
    }
}

fn shapes(scale: &Scale) -> Value {
    let workload = |workload: &crate::bench::Workload| match workload.kind {
        Kind::Prefill { tokens } => Some(json!({ "name": workload.name, "kind": "prefill", "tokens": tokens })),
        Kind::Decode { batch, prompts: Prompts::Own } => {
            Some(json!({ "name": workload.name, "kind": "decode", "batch": batch }))
        }
        Kind::Matrix { .. } => Some(json!({ "name": workload.name, "kind": "matrix", "rows": MATRIX_ROWS })),
        _ => None,
    };
    let matrix = scale.bench.matrix;
    json!({
        "ordinal": scale.ordinal, "decoder": scale.decoder, "encoder": scale.encoder, "sentences": scale.sentences,
        "depth": scale.bench.depth, "decode_tokens": scale.bench.decode_tokens,
        "matrix": {
            "demonstration_tokens": matrix.demonstration_tokens, "target_tokens": matrix.target_tokens,
            "new_tokens": matrix.new_tokens,
        },
        "workloads": scale.workloads.iter().filter_map(workload).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(name: &'static str) -> Rate {
        let (about, unit) = (String::new(), "tok/s");
        Rate { name, about, unit, rate: 30.0, of_read: None, of_floats: None, peer: None }
    }

    #[test]
    fn rates_go_to_their_workloads_and_to_those_that_share() {
        let mut rates = [rate("decode-8-own"), rate("decode-8-shared"), rate("matrix")];
        let mut about = None;
        for line in ["{\"about\": \"a peer\"}", "no JSON", "{\"name\": \"decode-8-own\", \"rate\": 10.0}"] {
            read(line, &mut rates, &mut about);
        }
        assert_eq!(about.as_deref(), Some("a peer"));
        assert_eq!(rates.each_ref().map(|rate| rate.peer), [Some(10.0), Some(10.0), None]);
        assert!(rates[0].line().contains("3.00×"));
    }

    #[test]
    fn without_python_there_is_no_peer_and_that_is_said() {
        let scale = Scale::tiny();
        let said = measure("no-such-python", &scale, &mut [], Duration::from_secs(1));
        assert!(said.starts_with("no peer: no-such-python cannot be started"), "{said}");
    }
}
