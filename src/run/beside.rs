//! Work on finished items on threads of its own while the source of the items goes on.

use std::sync::Mutex;
use std::sync::mpsc;
use std::thread::available_parallelism;

/// Passes each item to `work`, on as many threads as there are cores. The first error of the source ends the source; the
/// items before it are worked on.
///
/// # Errors
/// The source's first error, else that of a worker.
pub fn beside<T: Send>(
    mut source: impl Iterator<Item = anyhow::Result<T>>,
    work: impl Fn(T) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let (finished, waiting) = mpsc::channel::<T>();
    let waiting = Mutex::new(waiting);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..available_parallelism().map_or(1, usize::from))
            .map(|_| {
                scope.spawn(|| -> anyhow::Result<()> {
                    loop {
                        let next = waiting.lock().ok().and_then(|queue| queue.recv().ok());
                        let Some(item) = next else { return Ok(()) };
                        work(item)?;
                    }
                })
            })
            .collect();
        // Sending fails when every worker is gone; its own error says why.
        let mut outcome = source.try_for_each(|item| match finished.send(item?) {
            Ok(()) => Ok(()),
            Err(_) => Err(anyhow::anyhow!("nobody is left to work on what is finished")),
        });
        drop(finished);
        for worker in workers {
            let worked =
                worker.join().unwrap_or_else(|_| anyhow::bail!("a worker panicked: this is a bug in lifelong"));
            if worked.is_err() {
                outcome = worked;
            }
        }
        outcome
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn every_item_is_worked_on_and_the_first_error_says_what_happened() {
        let sum = AtomicU32::new(0);
        let add = |item: u32| {
            sum.fetch_add(item, Ordering::Relaxed);
            Ok(())
        };
        beside((1..=100).map(Ok), add).unwrap();
        assert_eq!(sum.load(Ordering::Relaxed), 5050);
        let source = (1..).map(|item| if item < 4 { Ok(item) } else { anyhow::bail!("the source broke") });
        assert_eq!(beside(source, add).unwrap_err().to_string(), "the source broke");
        assert_eq!(sum.load(Ordering::Relaxed), 5056);
        assert!(
            beside((1..1000).map(Ok), |item: u32| anyhow::bail!("item {item}"))
                .unwrap_err()
                .to_string()
                .starts_with("item ")
        );
    }
}
