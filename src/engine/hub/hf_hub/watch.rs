//! Work of hf-hub on a thread of its own, given up when it falls silent: hf-hub has no time limits of its own.

use hf_hub::api::Progress;
use hf_hub::api::sync::ApiError;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// What happens during a download.
#[derive(Clone, Copy)]
pub(super) enum Event {
    /// The answer begins; so many bytes are here from an earlier try.
    Start(u64),
    /// So many more bytes came.
    Bytes(u64),
}

/// Work that ended early.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) reason: Reason,
    /// Bytes that came before.
    pub(super) received: u64,
}

#[derive(Debug)]
pub(super) enum Reason {
    Api(ApiError),
    /// Nothing was heard for this long.
    Silent(Duration),
    /// The thread ended without a word.
    Died,
}

impl From<ApiError> for Cut {
    fn from(error: ApiError) -> Cut {
        Cut { reason: Reason::Api(error), received: 0 }
    }
}

/// What the thread has to say.
enum Message<T> {
    Event(Event),
    Done(Result<T, ApiError>),
}

/// Runs `work` on a thread and passes its events to `told`. Silence of more than `answer` before the first event, or
/// of more than `stall` after it, ends the wait; the thread then ends itself at its next event.
pub(super) fn watch<T: Send + 'static>(
    answer: Duration,
    stall: Duration,
    mut told: impl FnMut(Event),
    work: impl FnOnce(Events<T>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, Cut> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let outcome = work(Events { sender: sender.clone(), started: false });
        // Nobody may be waiting any more.
        let _ = sender.send(Message::Done(outcome));
    });
    let (mut limit, mut received) = (answer, 0);
    let reason = loop {
        match receiver.recv_timeout(limit) {
            Ok(Message::Event(event)) => {
                limit = stall;
                if let Event::Bytes(bytes) = event {
                    received += bytes;
                }
                told(event);
            }
            Ok(Message::Done(Ok(value))) => return Ok(value),
            Ok(Message::Done(Err(error))) => break Reason::Api(error),
            Err(RecvTimeoutError::Timeout) => break Reason::Silent(limit),
            Err(RecvTimeoutError::Disconnected) => break Reason::Died,
        }
    };
    Err(Cut { reason, received })
}

/// The thread's end of the line: hf-hub's progress as events.
pub(super) struct Events<T> {
    sender: Sender<Message<T>>,
    started: bool,
}

impl<T> Progress for Events<T> {
    /// hf-hub calls this before it asks and again when the answer begins.
    fn init(&mut self, _size: usize, _filename: &str) {
        self.started = false;
    }

    /// The first call after `init` tells how much an earlier try left.
    fn update(&mut self, size: usize) {
        let event = if self.started { Event::Bytes(size as u64) } else { Event::Start(size as u64) };
        self.started = true;
        if self.sender.send(Message::Event(event)).is_err() {
            // Given up: unwind without a message, which closes connection, file and lock. Going on would write to a
            // file that is no longer this thread's.
            resume_unwind(Box::new("given up"));
        }
    }

    fn finish(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn silence_before_and_after_the_first_event_is_told_apart() {
        let (keep_waiting, wait) = mpsc::channel::<()>();
        let silent = watch(
            SHORT,
            LONG,
            |_| {},
            move |_: Events<()>| {
                let _ = wait.recv();
                Ok(())
            },
        );
        assert!(matches!(silent, Err(Cut { reason: Reason::Silent(SHORT), received: 0 })));
        drop(keep_waiting);

        let (keep_waiting, wait) = mpsc::channel::<()>();
        let stalled = watch(
            LONG,
            SHORT,
            |_| {},
            move |mut events: Events<()>| {
                events.update(100);
                events.update(7);
                let _ = wait.recv();
                Ok(())
            },
        );
        assert!(matches!(stalled, Err(Cut { reason: Reason::Silent(SHORT), received: 7 })));
        drop(keep_waiting);
    }

    #[test]
    fn a_thread_that_was_given_up_unwinds_at_its_next_event() {
        struct Ended(Sender<&'static str>);
        impl Drop for Ended {
            fn drop(&mut self) {
                let _ = self.0.send("unwound");
            }
        }
        let (keep_waiting, wait) = mpsc::channel::<()>();
        let (sender, ended) = mpsc::channel();
        let outcome = watch(
            SHORT,
            SHORT,
            |_| {},
            move |mut events: Events<()>| {
                let ended = Ended(sender);
                let _ = wait.recv();
                events.update(1);
                let _ = ended.0.send("went on");
                Ok(())
            },
        );
        assert!(outcome.is_err());
        drop(keep_waiting);
        assert_eq!(ended.recv().unwrap(), "unwound");
    }

    #[test]
    fn a_panic_and_a_result_come_through() {
        assert!(matches!(watch(LONG, LONG, |_| {}, |_| Ok(5)), Ok(5)));
        let died = watch(LONG, LONG, |_| {}, |_: Events<()>| resume_unwind(Box::new("test")));
        assert!(matches!(died, Err(Cut { reason: Reason::Died, received: 0 })));
    }
}
