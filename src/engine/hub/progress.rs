//! Progress of downloads on stderr: a bar on a terminal, one line a file elsewhere, nothing when silent.

use indicatif::{DecimalBytes, ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Instant;

/// How to tell people what is being fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A bar per file, for terminals.
    Bars,
    /// A line per file.
    Lines,
    Silent,
}

impl Progress {
    /// Bars when stderr is a terminal, lines otherwise.
    pub fn stderr() -> Progress {
        if std::io::stderr().is_terminal() { Progress::Bars } else { Progress::Lines }
    }

    /// Something a person wants to know: a source that failed, a lock that is waited for.
    pub(super) fn note(self, text: &str) {
        if self != Progress::Silent {
            eprintln!("note: {text}");
        }
    }

    /// Starts telling about one file from one source. `size` in bytes, when known.
    pub(super) fn file(self, name: &str, source: &str, size: Option<u64>) -> FileProgress {
        let bar = (self == Progress::Bars).then(|| bar(name, size));
        FileProgress { mode: self, bar, name: name.into(), source: source.into(), start: Instant::now() }
    }
}

fn bar(name: &str, size: Option<u64>) -> ProgressBar {
    let (bar, template) = match size {
        Some(size) => (ProgressBar::new(size), "{msg} [{wide_bar}] {decimal_bytes}/{decimal_total_bytes} {eta}"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg} {decimal_bytes}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(name.to_string());
    bar
}

/// Progress of one file from one source; the bar is cleared when dropped.
pub(super) struct FileProgress {
    mode: Progress,
    bar: Option<ProgressBar>,
    name: String,
    source: String,
    start: Instant,
}

impl FileProgress {
    /// The number of bytes that are already here.
    #[cfg_attr(not(feature = "hub"), expect(dead_code))]
    pub(super) fn set(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        }
    }

    /// Something that takes time and cannot be counted, before the bytes come.
    pub(super) fn stage(&self, text: &str) {
        match (&self.bar, self.mode) {
            (Some(bar), _) => bar.set_message(format!("{} ({text})", self.name)),
            (None, Progress::Silent) => {}
            (None, _) => eprintln!("{text}"),
        }
    }

    pub(super) fn advance(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }

    /// The file is verified and in place.
    pub(super) fn done(self, size: u64) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if self.mode != Progress::Silent {
            let seconds = self.start.elapsed().as_secs_f64();
            eprintln!("{} ({}) from {} in {seconds:.1} s", self.name, DecimalBytes(size), self.source);
        }
    }
}

impl Drop for FileProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
