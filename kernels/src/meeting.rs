//! Where the threads of a group wait for each other: a barrier that a thread which fails breaks for the others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

/// Looks at whether all have come before a thread goes to sleep: they come within microseconds of each other, and being
/// woken takes tens of them.
const LOOKS: usize = 4096;

pub(crate) struct Meeting {
    count: usize,
    state: Mutex<State>,
    /// Meetings that were held; changed under the lock.
    held: AtomicUsize,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    arrived: usize,
    /// Who failed first.
    failed: Option<usize>,
}

impl Meeting {
    /// Of so many threads, at least one.
    pub(crate) fn new(count: usize) -> Self {
        Self { count, state: Mutex::default(), held: AtomicUsize::new(0), changed: Condvar::new() }
    }

    /// Waits for all.
    ///
    /// # Errors
    /// [`Error::Left`] once one of them has failed.
    pub(crate) fn meet(&self) -> Result<()> {
        let before = {
            let mut state = self.state();
            check(&state)?;
            let before = self.held.load(Ordering::Relaxed);
            state.arrived += 1;
            if state.arrived == self.count {
                state.arrived = 0;
                self.held.store(before.wrapping_add(1), Ordering::Release);
                self.changed.notify_all();
                return Ok(());
            }
            before
        };
        let is_held = || self.held.load(Ordering::Acquire) != before;
        if (0..LOOKS).any(|_| {
            is_held() || {
                std::hint::spin_loop();
                false
            }
        }) {
            return Ok(());
        }
        let mut state = self.state();
        while !is_held() {
            check(&state)?;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Tells all who wait, and who will, that this thread does not come any more.
    pub(crate) fn fail(&self, rank: usize) {
        self.state().failed.get_or_insert(rank);
        self.changed.notify_all();
    }

    /// Who failed first.
    pub(crate) fn failed(&self) -> Option<usize> {
        self.state().failed
    }

    /// Forgets who failed. Nobody waits.
    pub(crate) fn begin(&self) {
        *self.state() = State::default();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check(state: &State) -> Result<()> {
    state.failed.map_or(Ok(()), |rank| Err(Error::Left { rank }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn nobody_goes_on_before_all_have_come() {
        const ROUNDS: usize = 200;
        let (meeting, arrivals) = (Meeting::new(3), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (meeting, arrivals) = (&meeting, &arrivals);
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        if (round + thread) % 50 == 0 {
                            std::thread::yield_now();
                        }
                        arrivals.fetch_add(1, Ordering::SeqCst);
                        meeting.meet().unwrap();
                        assert!(arrivals.load(Ordering::SeqCst) >= 3 * round);
                    }
                });
            }
        });
        assert_eq!(arrivals.load(Ordering::SeqCst), 3 * ROUNDS);
    }

    #[test]
    fn one_that_fails_lets_the_others_go_with_its_number() {
        let meeting = Meeting::new(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| meeting.meet());
            meeting.fail(1);
            assert_eq!(waiting.join().unwrap(), Err(Error::Left { rank: 1 }));
        });
        assert_eq!((meeting.meet(), meeting.failed()), (Err(Error::Left { rank: 1 }), Some(1)));
        meeting.begin();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| meeting.meet());
            meeting.meet().unwrap();
            other.join().unwrap().unwrap();
        });
    }
}
