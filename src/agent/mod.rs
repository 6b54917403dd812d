//! One agent at one task: recall, build the prompts, ask, act, until the world is done.

pub mod attempt;
pub mod prompt;

pub use attempt::{Agent, Made, Work, attempt, converse};

#[cfg(test)]
mod tests;
