//! The name of one unit of work.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Names one unit of work for ever. Its order is the order of every report; its numbers are seed coordinates.
///
/// | stage | sequence | step | attempt |
/// |---|---|---|---|
/// | `matrix/MODEL` | demonstration: 0 = none, i + 1 = task i of the pool | target task j of the pool | seed index |
/// | `logprob/MODEL` | as the matrix | target task j of the pool | 0 |
/// | `multi_task/KIND/N` | target index × prefixes of a target + prefix index | target task of the pool | seed index |
/// | `sequence/HISTORY/AGENT` | sequence index | position in the sequence | run index |
/// | `attribution/HISTORY/AGENT` | case of the plan | left out: 0 = nothing, i + 1 = its i-th experience | draw |
/// | `attribution-logprob/HISTORY/AGENT` | as above | as above | 0 |
/// | `transition/CONDITION/AGENT` | sequence index | position in the sequence | run index |
/// | `orders/PATH/AGENT` | tasks learned before | attempted task of the pool | run index |
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coord {
    pub stage: String,
    pub sequence: u32,
    pub step: u32,
    pub attempt: u32,
}

impl fmt::Display for Coord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} sequence {} step {} attempt {}", self.stage, self.sequence, self.step, self.attempt)
    }
}
