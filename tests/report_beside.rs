//! Numbers reported beside the standard ones, over folders whose truth is known: seeds that were saved, signs that agree,
//! and an experience that is poison.

mod synthetic;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lifelong::metric::{self, Settled};
use lifelong::record::plan::{
    ATTRIBUTION_FILE, AttributionCase, AttributionGroup, AttributionPlan, LOGPROB_FILE, LogprobPlan, Stopping,
};
use lifelong::record::{AttemptRecord, Coord, Score};
use lifelong::report::{self, ReportData};
use lifelong::store::{Machine, Manifest, RunReader, RunStore};
use synthetic::{Run, SMALL, folder, manifest};

const RULE: Stopping = Stopping { error_rate: 0.0, least_seeds: 1 };

fn open(dir: &Path, stops: bool) -> RunStore {
    let mut identity = manifest(SMALL).identity;
    if stops {
        identity.config["matrix"]["stopping"] = serde_json::to_value(RULE).unwrap();
    }
    RunStore::create_or_open(dir, &Manifest::new(identity, "avx2"), Machine::default()).unwrap()
}

fn report(dir: &Path) -> ReportData {
    let data = ReportData::build(&RunReader::open(dir).unwrap()).unwrap();
    report::write_files(&data, &dir.join("report")).unwrap();
    data
}

fn table(dir: &Path, name: &str) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(dir.join(format!("report/{name}.csv"))).unwrap();
    let mut lines = text.lines();
    let header: Vec<String> = lines.next().unwrap().split(',').map(String::from).collect();
    lines.map(|line| header.iter().cloned().zip(line.split(',').map(String::from)).collect()).collect()
}

fn at(record: &AttemptRecord) -> (u32, u32, u32) {
    (record.coord.sequence, record.coord.step, record.coord.attempt)
}

#[test]
fn seeds_that_stop_are_counted_and_their_signs_are_those_of_all_seeds() {
    let run = Run::new(SMALL);
    let scores: BTreeMap<(u32, u32, u32), Option<f64>> =
        run.matrix.iter().map(|record| (at(record), record.score.graded())).collect();
    let side = |sequence: u32, target: u32| -> Vec<Option<f64>> {
        (0..SMALL.seeds).map(|seed| scores[&(sequence, target, seed)]).collect()
    };
    let seeds_of = |sequence: u32, target: u32| match sequence {
        0 => SMALL.seeds as usize,
        _ => (1..=SMALL.seeds as usize)
            .find(|drawn| metric::stop(&side(sequence, target)[..*drawn], &side(0, target), RULE).is_some())
            .unwrap_or(SMALL.seeds as usize),
    };
    let dir = folder();
    let store = open(dir.path(), true);
    store.put_once("pool.json", &serde_json::to_vec(&run.pool).unwrap()).unwrap();
    let is_drawn =
        |record: &&AttemptRecord| (record.coord.attempt as usize) < seeds_of(record.coord.sequence, record.coord.step);
    let drawn: Vec<&AttemptRecord> = run.matrix.iter().filter(is_drawn).collect();
    drawn.iter().for_each(|record| store.append((*record).clone()).unwrap());
    let baseline = run.pool.tasks.len() * SMALL.seeds as usize;
    let (made, all) = (drawn.len() - baseline, run.matrix.len() - baseline);
    assert!(made < all);

    let data = report(dir.path());
    let found = &data.beside.stopping[0];
    assert_eq!((found.made, found.all, found.done), (made, all, found.pairs));
    assert_eq!(found.saved(), Some(1.0 - made as f64 / all as f64));
    assert_eq!(found.tested, (0, 0));
    assert!(data.completeness.iter().find(|part| part.what.starts_with("matrix")).unwrap().is_complete());
    for pair in &data.matrices[0].pairs {
        let (with, without) = (side(pair.source + 1, pair.target), side(0, pair.target));
        if let Some(stop) = pair.stop {
            assert_eq!(stop.settled, Settled::Certain);
            assert_eq!(pair.sign(), metric::full_sign(&with, &without));
            assert_eq!(pair.gain.of, stop.seeds);
        }
    }
    let rows = table(dir.path(), "stopping");
    assert_eq!(rows.iter().map(|row| row["drawn"].parse::<usize>().unwrap()).sum::<usize>(), made);
    let page = fs::read_to_string(dir.path().join("report/index.html")).unwrap();
    assert!(page.contains("Seeds that stopped early") && !page.contains("Ville"), "an error rate of 0 makes no test");

    // One pair short of its stop: the run is not complete.
    let partial = folder();
    let store = open(partial.path(), true);
    store.put_once("pool.json", &serde_json::to_vec(&run.pool).unwrap()).unwrap();
    drawn[..drawn.len() - 1].iter().for_each(|record| store.append((*record).clone()).unwrap());
    let data = report(partial.path());
    assert!(!data.completeness.iter().find(|part| part.what.starts_with("matrix")).unwrap().is_complete());
    assert_eq!(data.beside.stopping[0].done, data.beside.stopping[0].pairs - 1);
}

fn unit(stage: &str, (sequence, step, attempt): (u32, u32, u32), score: f64, model: &AttemptRecord) -> AttemptRecord {
    let coord = Coord { stage: stage.into(), sequence, step, attempt };
    AttemptRecord { coord, score: Score::Graded(score), ..model.clone() }
}

#[test]
fn signs_by_log_probability_are_compared_with_the_sampled_ones() {
    let run = Run::new(SMALL);
    let dir = folder();
    let full = dir.path();
    assert!(run.execute(full, usize::MAX));
    let sampled = report(full);
    let store = open(full, false);
    let plan = LogprobPlan { models: run.pool.models.clone(), tasks: run.pool.kept.clone() };
    store.put_once(LOGPROB_FILE, &serde_json::to_vec(&plan).unwrap()).unwrap();
    let model = &run.matrix[0];
    // Alone every token has one chance in e; a demonstration moves it by half the sampled gain, the other way for the pairs
    // of the first target.
    for target in &run.pool.kept {
        store.append(unit("logprob/model-a", (0, *target, 0), (-1.0f64).exp(), model)).unwrap();
    }
    let turned = run.pool.kept[0];
    let mut signed = (0, 0);
    for pair in &sampled.matrices[0].pairs {
        let gain = pair.gain.value.unwrap_or(0.0) * if pair.target == turned { -0.5 } else { 0.5 };
        if pair.gain.value.is_some_and(|value| value != 0.0) {
            signed = (signed.0 + usize::from(pair.target != turned), signed.1 + 1);
        }
        store.append(unit("logprob/model-a", (pair.source + 1, pair.target, 0), (-1.0 + gain).exp(), model)).unwrap();
    }
    let data = report(full);
    let found = &data.beside.logprob[0];
    assert_eq!((found.stored, found.planned), (23 + 23 * 22, 23 + 23 * 22));
    assert_eq!(found.concordance.signed_pairs, signed.1);
    let (share, interval) = found.concordance.same_sign;
    assert_eq!(share, Some(signed.0 as f64 / signed.1 as f64));
    let interval = interval.unwrap();
    assert!(interval.low < share.unwrap() && interval.high <= 1.0 && interval.high > share.unwrap(), "{interval:?}");
    assert!(found.concordance.pearson.0.unwrap() > 0.8);
    let rows = table(full, "logprob_gains");
    let unlike = rows.iter().filter(|row| row["same_sign"] == "false").count();
    assert_eq!(unlike, signed.1 - signed.0);
    for (row, pair) in rows.iter().zip(&sampled.matrices[0].pairs) {
        let expected = pair.gain.value.unwrap_or(0.0) * if pair.target == turned { -0.5 } else { 0.5 };
        assert!((row["gain_nats"].parse::<f64>().unwrap() - expected).abs() < 1e-12, "{row:?}");
    }
    let page = fs::read_to_string(full.join("report/index.html")).unwrap();
    for part in ["id=\"logprobs-0\"", "nats a token", "against the sampled gain", "sampled gain (points)"] {
        assert!(page.contains(part), "{part}");
    }
    // The same records give the same bytes.
    report(full);
    assert!(
        page.split("times:begin").next()
            == fs::read_to_string(full.join("report/index.html")).unwrap().split("times:begin").next()
    );
}

/// Three draws: without the poison the probe is right each time, without the best helper never; the others do nothing,
/// two of them to the log-probability either.
#[test]
fn the_poison_leads_the_harms_and_the_helper_the_helps() {
    let run = Run::new(SMALL);
    let dir = folder();
    assert!(run.execute(dir.path(), usize::MAX));
    let store = open(dir.path(), false);
    let steps = &run.sequences.histories[0].sequences[1].steps;
    let learned: Vec<u32> =
        (7u32..).zip(&steps[7..]).filter(|(_, step)| step.kind.updates_memory()).map(|(at, _)| at).take(4).collect();
    let case = AttributionCase {
        sequence: 1,
        run: 0,
        probe: 11,
        earlier: 6,
        score: 0.0,
        earlier_score: 1.0,
        left_out: learned.clone(),
    };
    let group = AttributionGroup { history: "positive".into(), agent: "rag".into(), cases: vec![case] };
    let plan = AttributionPlan { draws: 3, groups: vec![group] };
    store.put_once(ATTRIBUTION_FILE, &serde_json::to_vec(&plan).unwrap()).unwrap();
    let model = &run.matrix[0];
    // Scores of three draws and the log-probability, by what is left out: nothing, poison, neutral, helper, slight.
    let truth: [([f64; 3], f64); 5] = [
        ([0.0, 0.0, 1.0], -1.0),
        ([1.0, 1.0, 1.0], -0.2),
        ([0.0, 0.0, 1.0], -1.0),
        ([0.0, 0.0, 0.0], -1.5),
        ([0.0, 0.0, 1.0], -1.1),
    ];
    for (left_out, (scores, logprob)) in (0u32..).zip(truth) {
        for (draw, score) in (0u32..).zip(scores) {
            store.append(unit("attribution/positive/rag", (0, left_out, draw), score, model)).unwrap();
        }
        store.append(unit("attribution-logprob/positive/rag", (0, left_out, 0), f64::exp(logprob), model)).unwrap();
    }
    let data = report(dir.path());
    let attribution = data.beside.attribution.as_ref().unwrap();
    assert_eq!((attribution.stored, attribution.planned), (5 * 4, 5 * 4));
    assert!(data.is_complete);
    let found: Vec<(u32, Option<f64>)> = attribution.effects.iter().map(|effect| (effect.step, effect.value)).collect();
    let expected = [(learned[0], -2.0 / 3.0), (learned[1], 0.0), (learned[2], 1.0 / 3.0), (learned[3], 0.0)];
    assert_eq!(found, expected.map(|(step, value)| (step, Some(value))));
    let nats: Vec<f64> =
        attribution.effects.iter().map(|effect| (effect.logprob.unwrap() * 10.0).round() / 10.0).collect();
    assert_eq!(nats, [-0.8, 0.0, 0.5, 0.1]);

    let rows = table(dir.path(), "attribution");
    assert_eq!(rows.len(), 4);
    assert_eq!((rows[0]["effect"].as_str(), rows[0]["draws"].as_str()), ("-66.666666667", "3"));
    let page = fs::read_to_string(dir.path().join("report/index.html")).unwrap();
    let section = &page[page.find("id=\"attribution\"").unwrap()..];
    let section = &section[..section.find("</section>").unwrap()];
    // The poison first, then the helper, then what only moved the log-probability; nothing else.
    let rows: Vec<&str> =
        section.split("<tr>").filter(|row| row.contains(">harms<") || row.contains(">helps<")).collect();
    assert_eq!(rows.len(), 3, "{section}");
    assert!(rows[0].contains("harms") && rows[0].contains("−66.7"), "{}", rows[0]);
    assert!(rows[1].contains("helps") && rows[1].contains("+33.3"), "{}", rows[1]);
    assert!(rows[2].contains("helps") && rows[2].contains("+0.100"), "{}", rows[2]);
    assert!(section.contains("<svg"), "the strongest effects are drawn");
}
