//! Several engine threads behind one session: whole models on devices of their own, fed from one plan.
//!
//! A call's requests, in the order that keeps shared prefixes together, are cut into one run a replica, so that neighbours stay
//! neighbours and a prefix is computed twice at most where a cut goes through it. What a request comes to depends on nothing
//! but itself, so no result shows how many replicas there are.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use super::scheduler::RequestId;
use super::serve::Message;
use super::submission::Submissions;

/// The ways to the engine threads.
#[derive(Clone)]
pub(super) struct Replicas {
    outboxes: Vec<Sender<Message>>,
    /// The replica that the next call's first run goes to: calls of one request take turns.
    next: Arc<AtomicUsize>,
}

/// What a request asks of the replica that takes it.
pub(super) struct Share<'a> {
    /// Its prompt, whose beginning is computed once for neighbours that share it.
    pub(super) prompt: &'a [u32],
    /// Tokens behind it, which are its own.
    pub(super) behind: usize,
}

impl Replicas {
    /// At least one.
    pub(super) fn new(outboxes: Vec<Sender<Message>>) -> Self {
        Replicas { outboxes, next: Arc::default() }
    }

    /// The runs of a call, each with the replica that it goes to.
    pub(super) fn runs<'a>(&self, order: Vec<usize>, share: impl Fn(usize) -> Share<'a>) -> Vec<(usize, Vec<usize>)> {
        let count = self.outboxes.len();
        if count == 1 {
            return vec![(0, order)];
        }
        let runs =
            cut(&work(order.iter().map(|index| share(*index))), count).into_iter().map(|run| order[run].to_vec());
        let runs: Vec<Vec<usize>> = runs.filter(|run| !run.is_empty()).collect();
        let first = self.next.fetch_add(runs.len(), Ordering::Relaxed);
        runs.into_iter().enumerate().map(|(index, run)| ((first + index) % count, run)).collect()
    }

    /// Hands requests over; when the replica has stopped they are dropped, and whoever waits hears of it.
    pub(super) fn submit(&self, replica: usize, submissions: Submissions) {
        let _ = self.outboxes[replica].send(Message::Submit(submissions));
    }

    /// Fails only where an engine has stopped, and then there is nothing to cancel.
    pub(super) fn cancel(&self, ids: &Range<RequestId>) {
        self.outboxes.iter().for_each(|outbox| drop(outbox.send(Message::Cancel(ids.clone()))));
    }

    /// As [`Replicas::cancel`].
    pub(super) fn stop(&self) {
        self.outboxes.iter().for_each(|outbox| drop(outbox.send(Message::Stop)));
    }
}

/// Tokens that each request has to be computed for: those of its prompt that the one before it does not share, and those
/// behind it.
fn work<'a>(shares: impl Iterator<Item = Share<'a>>) -> Vec<usize> {
    let mut before: &[u32] = &[];
    let work = |Share { prompt, behind }: Share<'a>| {
        let shared = prompt.iter().zip(before).take_while(|(left, right)| left == right).count();
        before = prompt;
        prompt.len() - shared + behind
    };
    shares.map(work).collect()
}

/// Cuts a sequence into `count` runs of about the same sum.
fn cut(work: &[usize], count: usize) -> Vec<Range<usize>> {
    let total: usize = work.iter().sum();
    let (mut runs, mut begin, mut sum) = (Vec::with_capacity(count), 0, 0);
    for (index, work) in work.iter().enumerate() {
        // A request goes to the run in which most of it lies.
        while runs.len() + 1 < count && (2 * sum + work) * count > 2 * total * (runs.len() + 1) {
            runs.push(begin..index);
            begin = index;
        }
        sum += work;
    }
    runs.push(begin..work.len());
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_one_before_shares_is_no_work() {
        let prompts: [&[u32]; 4] = [&[1, 2, 3], &[1, 2, 3], &[1, 2, 4, 5], &[2]];
        let shares = prompts.iter().map(|prompt| Share { prompt, behind: 10 });
        assert_eq!(work(shares), [13, 10, 12, 11]);
    }

    #[test]
    fn runs_are_about_equal_and_hold_everything_once() {
        assert_eq!(cut(&[1; 10], 2), [0..5, 5..10]);
        assert_eq!(cut(&[1, 1, 1, 1, 4], 2), [0..4, 4..5]);
        assert_eq!(cut(&[10, 1, 1], 3), [0..0, 0..1, 1..3]);
        assert_eq!(cut(&[5], 4).into_iter().flatten().collect::<Vec<_>>(), [0]);
        assert!(cut(&[], 3).into_iter().flatten().next().is_none());
        for count in 1..6 {
            let work: Vec<usize> = (0..37).map(|index| index * 7 % 13 + 1).collect();
            let runs = cut(&work, count);
            assert_eq!(runs.iter().cloned().flatten().collect::<Vec<_>>(), (0..37).collect::<Vec<_>>());
            let share = work.iter().sum::<usize>() as f64 / count as f64;
            for run in runs {
                assert!((work[run].iter().sum::<usize>() as f64 - share).abs() <= 13.0);
            }
        }
    }
}
