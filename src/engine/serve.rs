//! The engine thread: takes messages in between steps, and steps while there is work.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use super::error::Error;
use super::scheduler::RequestId;
use super::step::Core;
use super::submission::Submissions;

pub(crate) enum Message {
    Submit(Submissions),
    Cancel(Range<RequestId>),
    Stop,
}

/// An idle engine that has just been asked for something waits this long for more: many threads tend to ask within
/// microseconds of each other, and a step that began with the first alone would keep the others out until it ends.
const GATHER: Duration = Duration::from_micros(100);
const MOST_GATHERS: usize = 256;

/// Whether to go on.
#[derive(PartialEq)]
enum Going {
    On,
    Stop,
}

/// Runs until told to stop or until every sender is gone. A panic ends it too: `stopped` then says why, to those who
/// wait and to those who come later.
pub(crate) fn serve(mut core: Core, inbox: Receiver<Message>, stopped: &OnceLock<String>) {
    let outcome = catch_unwind(AssertUnwindSafe(|| while turn(&mut core, &inbox) == Going::On {}));
    let reason = match outcome {
        Ok(()) => "the engine was dropped while requests were waiting".to_string(),
        Err(panic) => format!("it panicked, which is a bug in lifelong: {}", panic_text(panic.as_ref())),
    };
    let reason = stopped.get_or_init(|| reason).clone();
    core.fail_all(&Error::Stopped { reason });
}

/// Takes in what has arrived, waiting for it when there is nothing else to do, and makes one step.
fn turn(core: &mut Core, inbox: &Receiver<Message>) -> Going {
    if core.is_idle() && gather(core, inbox) == Going::Stop {
        return Going::Stop;
    }
    loop {
        match inbox.try_recv() {
            Ok(message) => {
                if take(core, message) == Going::Stop {
                    return Going::Stop;
                }
            }
            Err(TryRecvError::Empty) => break,
            Err(TryRecvError::Disconnected) if core.is_idle() => return Going::Stop,
            Err(TryRecvError::Disconnected) => break,
        }
    }
    if !core.is_idle() {
        core.step();
    }
    Going::On
}

/// Waits for a message, and a moment longer for those that come with it.
fn gather(core: &mut Core, inbox: &Receiver<Message>) -> Going {
    let Ok(first) = inbox.recv() else { return Going::Stop };
    if take(core, first) == Going::Stop {
        return Going::Stop;
    }
    for _ in 0..MOST_GATHERS {
        match inbox.recv_timeout(GATHER) {
            Ok(message) => {
                if take(core, message) == Going::Stop {
                    return Going::Stop;
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    Going::On
}

fn take(core: &mut Core, message: Message) -> Going {
    match message {
        Message::Submit(submissions) => core.submit(submissions),
        Message::Cancel(ids) => core.cancel(ids),
        Message::Stop => return Going::Stop,
    }
    Going::On
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
