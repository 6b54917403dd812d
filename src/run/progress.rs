//! What a person sees of long work: one line on stderr with done of total, tokens per second and time left.
//!
//! A bar where stderr is a terminal; elsewhere a plain line at the start, at the end and twice a minute. It is never the
//! only record: the store holds every finished unit.

use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::record::Usage;

const PLAIN_INTERVAL: Duration = Duration::from_secs(30);

/// Progress of one stage.
pub struct Progress {
    stage: String,
    total: u64,
    already_done: u64,
    done: AtomicU64,
    tokens: AtomicU64,
    started: Instant,
    bar: Option<ProgressBar>,
    last_line: Mutex<Instant>,
}

impl Progress {
    /// Starts the line of a stage of `total` units, `already_done` of which a former run has stored.
    pub fn start(stage: &str, total: u64, already_done: u64) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total).with_position(already_done);
            let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len}  {msg}  {eta} left");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(stage.to_string());
            bar.reset_eta();
            bar
        });
        let progress = Progress {
            stage: stage.into(),
            total,
            already_done,
            done: AtomicU64::new(already_done),
            tokens: AtomicU64::new(0),
            started: Instant::now(),
            bar,
            last_line: Mutex::new(Instant::now()),
        };
        if already_done > 0 {
            progress.say(&format!("{stage}: {already_done} of {total} attempts are stored already"));
        }
        progress
    }

    /// One unit more.
    pub fn done(&self, usage: Usage) {
        let tokens = usage.prompt_tokens + usage.generated_tokens;
        let tokens = self.tokens.fetch_add(tokens, Ordering::Relaxed) + tokens;
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let seconds = self.started.elapsed().as_secs_f64().max(1e-3);
        let rate = tokens as f64 / seconds;
        match &self.bar {
            Some(bar) => {
                bar.set_message(format!("{rate:.0} tokens/s"));
                bar.inc(1);
            }
            None => self.plain_line(done, rate, seconds),
        }
    }

    /// Ends the line.
    pub fn finish(self) -> Duration {
        let elapsed = self.started.elapsed();
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let new = self.done.load(Ordering::Relaxed) - self.already_done;
        let tokens = self.tokens.load(Ordering::Relaxed);
        let seconds = elapsed.as_secs_f64();
        eprintln!(
            "{}: {new} attempts, {tokens} prompt and generated tokens in {seconds:.1} s ({:.0} tokens/s)",
            self.stage,
            tokens as f64 / seconds.max(1e-3)
        );
        elapsed
    }

    fn plain_line(&self, done: u64, rate: f64, seconds: f64) {
        let Ok(mut last_line) = self.last_line.try_lock() else { return };
        if last_line.elapsed() < PLAIN_INTERVAL {
            return;
        }
        *last_line = Instant::now();
        let per_unit = seconds / (done - self.already_done).max(1) as f64;
        let left = per_unit * self.total.saturating_sub(done) as f64;
        eprintln!("{}: {done}/{} attempts, {rate:.0} tokens/s, about {left:.0} s left", self.stage, self.total);
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }
}
