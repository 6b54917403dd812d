//! The pairs of the stage `matrix` when their seeds may stop: each pair draws one seed after the other until the sign of
//! its gain is settled.
//!
//! A pair is a thread that asks, waits and looks, as a chain of a lifelong sequence is: its next seed is asked for while
//! its prompt is still in the cache, other pairs fill the batch meanwhile, and what is drawn depends on the pair's own
//! scores alone. Waves over all pairs would decide the same and compute every prompt once a seed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;

use super::matrix::{self, Stage, Unit};
use crate::metric;
use crate::record::plan::Stopping;
use crate::store::RunStore;

/// The pairs whose sign is not settled by what is stored.
///
/// # Errors
/// When the store cannot be read, or lacks a score of a baseline.
pub fn open_pairs(
    store: &RunStore,
    model: &str,
    kept: &[u32],
    seeds: u32,
    rule: Stopping,
) -> anyhow::Result<Vec<(u32, u32)>> {
    let mut open = Vec::new();
    for pair in matrix::pairs(kept) {
        let stored = Scores::stored(store, model, pair, seeds)?;
        if !stored.is_done(rule) {
            open.push(pair);
        }
    }
    Ok(open)
}

/// Draws seeds of these pairs on up to `threads` threads, until each is settled or has all of them.
///
/// # Errors
/// When the engine or the store fails; what was stored stays.
pub fn run(stage: &Stage<'_>, pairs: &[(u32, u32)], seeds: u32, rule: Stopping, threads: usize) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let has_failed = || failure.lock().map_or(true, |failure| failure.is_some());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(pairs.len()) {
            scope.spawn(|| {
                while let Some(pair) = pairs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if has_failed() {
                        return;
                    }
                    if let Err(error) = settle(stage, *pair, seeds, rule)
                        && let Ok(mut failure) = failure.lock()
                    {
                        failure.get_or_insert(error);
                    }
                }
            });
        }
    });
    match failure.into_inner() {
        Ok(None) => Ok(()),
        Ok(Some(error)) => Err(error),
        Err(_) => anyhow::bail!("a thread of the matrix panicked: this is a bug in lifelong"),
    }
}

/// Scores of a pair, as far as they are drawn, and of its baseline.
struct Scores {
    with: Vec<Option<f64>>,
    without: Vec<Option<f64>>,
}

impl Scores {
    fn stored(store: &RunStore, model: &str, (source, target): (u32, u32), seeds: u32) -> anyhow::Result<Scores> {
        let score = |demonstration, seed| -> anyhow::Result<Option<Option<f64>>> {
            let record = store.get(&Unit { demonstration, target, seed }.coord(model))?;
            Ok(record.map(|record| record.score.graded()))
        };
        let mut scores = Scores { with: Vec::new(), without: Vec::new() };
        for seed in 0..seeds {
            scores.without.push(score(None, seed)?.with_context(|| format!("task {target} has no baseline yet"))?);
        }
        for seed in 0..seeds {
            let Some(drawn) = score(Some(source), seed)? else { break };
            scores.with.push(drawn);
        }
        Ok(scores)
    }

    fn is_done(&self, rule: Stopping) -> bool {
        self.with.len() == self.without.len() || metric::stop(&self.with, &self.without, rule).is_some()
    }
}

fn settle(stage: &Stage<'_>, pair: (u32, u32), seeds: u32, rule: Stopping) -> anyhow::Result<()> {
    let mut scores = Scores::stored(stage.store, stage.model, pair, seeds)?;
    while !scores.is_done(rule) {
        let unit = Unit { demonstration: Some(pair.0), target: pair.1, seed: scores.with.len() as u32 };
        scores.with.push(matrix::attempt_one(stage, unit)?.score.graded());
    }
    Ok(())
}
