//! The one thread that writes: many attempts wait, one flush to the disk serves all of them.
//!
//! A disk flush takes about a millisecond however much it covers, so the writer takes everything that is waiting,
//! writes it in one piece, flushes once and only then answers. An answered attempt is on the disk.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::record::Coord;

use super::error::{Error, Result};
use super::line::Check;
use super::log::Location;

/// At most this many bytes are gathered for one flush, so that an answer never waits for an endless queue.
const GATHERED_BYTES: usize = 4 << 20;

/// Where the durable record of each unit lies.
pub(crate) type Index = Arc<Mutex<BTreeMap<Coord, Location>>>;

/// A log file open for appending, and its length.
pub(crate) struct Tail {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) length: u64,
}

/// A record on its way to the disk.
struct Pending {
    coord: Coord,
    line: Vec<u8>,
    check: Check,
    answer: SyncSender<Result<Outcome>>,
}

/// What became of an appended record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    /// On the disk, or was there already with the same content.
    Durable,
    /// The unit already has another result, which stays.
    Contradicts(Location),
}

enum Message {
    Record(Pending),
    Timing(Vec<u8>),
}

/// The handle producers share. Dropping it ends the thread after everything sent was written.
pub(crate) struct Writer {
    sender: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn start(records: Tail, timing: Tail, index: Index) -> Result<Self> {
        let (sender, receiver) = channel();
        let path = records.path.clone();
        let worker = Worker { records, timing, index, failure: None };
        let thread = std::thread::Builder::new()
            .name("store writer".into())
            .spawn(move || worker.serve(&receiver))
            .map_err(|source| Error::io("start the writer of", &path, source))?;
        Ok(Writer { sender: Some(sender), thread: Some(thread) })
    }

    /// Returns when the record is on the disk.
    pub(crate) fn append(&self, coord: Coord, line: Vec<u8>, check: Check) -> Result<Outcome> {
        let (answer, answered) = sync_channel(1);
        self.send(Message::Record(Pending { coord, line, check, answer }));
        answered.recv().expect("the writer answers every record before it ends: this is our bug")
    }

    /// Returns at once: timing is not part of the results.
    pub(crate) fn note(&self, line: Vec<u8>) {
        self.send(Message::Timing(line));
    }

    fn send(&self, message: Message) {
        let sender = self.sender.as_ref().expect("the sender lives until drop");
        sender.send(message).expect("the writer lives as long as its handle: this is our bug");
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    records: Tail,
    timing: Tail,
    index: Index,
    /// Why nothing more is written. After a failed write or flush the state of the file is not known to this process;
    /// reading it again at the next start is the only safe way on.
    failure: Option<String>,
}

impl Worker {
    fn serve(mut self, receiver: &Receiver<Message>) {
        while let Ok(first) = receiver.recv() {
            let (mut batch, mut timing, mut gathered) = (Vec::new(), Vec::new(), 0);
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Record(pending) => {
                        gathered += pending.line.len();
                        batch.push(pending);
                    }
                    Message::Timing(line) => timing.extend_from_slice(&line),
                }
                next = if gathered < GATHERED_BYTES { receiver.try_recv().ok() } else { None };
            }
            self.commit(batch);
            self.note(&timing);
        }
        let _ = self.timing.file.sync_data();
    }

    /// Writes a batch, flushes, then tells each producer.
    fn commit(&mut self, batch: Vec<Pending>) {
        let mut fresh: BTreeMap<Coord, Location> = BTreeMap::new();
        let mut bytes = Vec::new();
        let mut outcomes = Vec::with_capacity(batch.len());
        for pending in &batch {
            let stored = lock(&self.index).get(&pending.coord).copied();
            outcomes.push(match (stored, fresh.entry(pending.coord.clone())) {
                (Some(location), _) => judge(location, pending.check),
                (None, Entry::Occupied(entry)) => judge(*entry.get(), pending.check),
                (None, Entry::Vacant(entry)) => {
                    let offset = self.records.length + bytes.len() as u64;
                    entry.insert(Location { offset, length: pending.line.len() - 1, check: pending.check });
                    bytes.extend_from_slice(&pending.line);
                    Outcome::Durable
                }
            });
        }
        let written = self.write_records(&bytes);
        if written.is_ok() {
            lock(&self.index).extend(fresh);
        }
        for (pending, outcome) in batch.into_iter().zip(outcomes) {
            let answer = match &written {
                Ok(()) => Ok(outcome),
                Err(reason) => Err(Error::Stopped { path: self.records.path.clone(), reason: reason.clone() }),
            };
            let _ = pending.answer.send(answer);
        }
    }

    fn write_records(&mut self, bytes: &[u8]) -> std::result::Result<(), String> {
        if let Some(reason) = &self.failure {
            return Err(reason.clone());
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let written = self.records.file.write_all(bytes).and_then(|()| self.records.file.sync_data());
        if let Err(error) = written {
            // Half a line must not stay where the next start would have to cut it; if even this fails, it will be cut.
            let _ = self.records.file.set_len(self.records.length);
            self.failure = Some(error.to_string());
            return Err(error.to_string());
        }
        self.records.length += bytes.len() as u64;
        Ok(())
    }

    fn note(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || self.failure.is_some() {
            return;
        }
        match self.timing.file.write_all(bytes) {
            Ok(()) => self.timing.length += bytes.len() as u64,
            Err(error) => {
                let _ = self.timing.file.set_len(self.timing.length);
                self.failure = Some(format!("{}: {error}", self.timing.path.display()));
            }
        }
    }
}

fn judge(stored: Location, check: Check) -> Outcome {
    if stored.check == check { Outcome::Durable } else { Outcome::Contradicts(stored) }
}

/// The index stays usable when a thread that held it panicked: every change to it is a single insertion.
pub(crate) fn lock(index: &Index) -> MutexGuard<'_, BTreeMap<Coord, Location>> {
    index.lock().unwrap_or_else(PoisonError::into_inner)
}
