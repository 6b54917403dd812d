//! Measures how the path of past experience changes what a language agent can do.
//!
//! The library is the program: `main.rs` only parses arguments and calls [`cli`]. Read it in the order of the data:
//! [`config`] says what to run, [`run`] plans it, [`agent`] attempts a task with an [`engine`] session and a [`memory`],
//! a [`scorer`] grades the attempt, [`store`] keeps it, [`metric`] turns records into numbers and [`report`] draws them.
//! Which module may import which is written in ARCHITECTURE.md and enforced by `tests/layering.rs`.

pub mod agent;
pub mod bench;
pub mod benchmark;
pub mod cli;
pub mod config;
pub mod engine;
pub mod environment;
pub mod gpu_check;
pub mod memory;
pub mod metric;
pub mod policy;
pub mod record;
pub mod registry;
pub mod reply;
pub mod report;
pub mod run;
pub mod sandbox;
pub mod scorer;
pub mod seed;
pub mod store;
