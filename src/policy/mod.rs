//! How the prompts of one turn become one reply. A new policy is one file and one line in [`POLICIES`].

mod group_self_consistency;
mod single;

use crate::engine::generate::Generate;
use crate::engine::request::{Completion, Request};
use crate::engine::sampling::Sampling;
use crate::record::{TaskView, Usage, Vote};
use crate::registry::{self, Registered};
use crate::seed::Seed;

/// Everything one turn can be answered from.
pub struct Turn<'a> {
    pub task: &'a TaskView,
    /// The prompt without any memory.
    pub bare: Vec<u32>,
    /// One prompt for each recalled context, in the memory's order.
    pub recalled: Vec<Vec<u32>>,
    pub sampling: &'a Sampling,
    pub seed: Seed,
    /// When two replies are the same proposal; `None` for a reply that proposes nothing.
    pub canonical: &'a dyn Fn(&str) -> Option<String>,
}

/// The reply of one turn and what it cost.
pub struct Chosen {
    pub completion: Completion,
    /// All generations of the turn together.
    pub usage: Usage,
    /// Prompt tokens of these generations that were found in the cache.
    pub reused_tokens: u64,
    pub votes: Vec<Vote>,
}

pub trait Policy: Registered + Sync {
    fn reply(&self, turn: Turn<'_>, backbone: &dyn Generate) -> anyhow::Result<Chosen>;
}

/// Every policy, by name.
pub static POLICIES: &[&dyn Policy] = &[&single::Single, &group_self_consistency::GroupSelfConsistency];

/// The policy with this name.
///
/// # Errors
/// Lists the known names and the nearest one.
pub fn find(name: &str) -> Result<&'static dyn Policy, registry::UnknownName> {
    registry::find("policy", POLICIES, name)
}

/// The request of candidate `index`: candidate 0 draws as the single policy would, the others apart from it.
fn request(tokens: Vec<u32>, turn_sampling: &Sampling, seed: Seed, index: usize) -> Request {
    let seed = if index == 0 { seed } else { seed.derive("candidate", &[index as u32]) };
    Request { tokens, sampling: turn_sampling.clone(), seed: seed.0 }
}

impl From<crate::engine::request::Usage> for Usage {
    fn from(usage: crate::engine::request::Usage) -> Usage {
        Usage { prompt_tokens: usage.prompt as u64, generated_tokens: usage.generated as u64 }
    }
}
