//! Plans a run and executes it, stage by stage, into a run folder.
//!
//! [`resolve`](resolve::resolve) turns names into things, [`plan`] says what will be done before any device work,
//! [`execute`](execute::execute) does what the store does not hold yet. A stage is a file: `matrix`, `vote`, `sequence`;
//! `dialogue` is the part of the matrix whose attempts take many replies.

mod dialogue;
pub mod execute;
mod grade;
mod matrix;
mod order;
pub mod plan;
pub mod progress;
pub mod resolve;
mod sequence;
pub mod start;
mod vote;

pub use execute::{execute, similarities};
pub use resolve::{Resolved, resolve};
