//! Plans a run and executes it, stage by stage, into a run folder.
//!
//! [`resolve`](resolve::resolve) turns names into things, [`plan`] says what will be done before any device work,
//! [`execute`](execute::execute) does what the store does not hold yet. A stage is a file: `matrix` (with `stopping`, where
//! seeds may stop, and `dialogue`, whose attempts take many replies), `logprob`, `vote`, `multi_task`, `sequence` (planned by
//! `order` and `transition`), `orders`, `attribution`. `headroom` and `pool` choose the tasks.

mod attribution;
mod beside;
pub mod call_rates;
mod dialogue;
mod estimate;
pub mod execute;
mod grade;
pub mod headroom;
mod logprob;
mod matrix;
mod multi_task;
mod order;
mod orders;
pub mod plan;
mod pool;
pub mod progress;
pub mod rates;
pub mod resolve;
mod sequence;
pub mod start;
mod stopping;
mod take_over;
#[cfg(test)]
mod tests;
mod transition;
mod vote;

pub use execute::{execute, similarities};
pub use resolve::{Resolved, find, resolve};
