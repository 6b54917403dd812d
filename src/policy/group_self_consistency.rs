//! Group self-consistency: one reply without experience and one from each group of experiences, then a plurality vote
//! on the canonical action (LifelongAgentBench §4.4 and its released callback).
//!
//! Ties as released: candidate 0's action leaves the tied set; if several are still tied the first in order of
//! appearance wins. (The released code means to ask the model there, but discards the answer, which resolves to the
//! same rule.)

use anyhow::ensure;

use super::{Chosen, Policy, Turn, request};
use crate::engine::generate::Generate;
use crate::record::{Usage, Vote};
use crate::registry::Registered;

pub struct GroupSelfConsistency;

impl Registered for GroupSelfConsistency {
    fn name(&self) -> &str {
        "group_self_consistency"
    }
    fn about(&self) -> &str {
        "plurality vote over one reply without experience and one for each group of experiences"
    }
    fn source(&self) -> &str {
        "LifelongAgentBench §4.4, group self-consistency"
    }
}

impl Policy for GroupSelfConsistency {
    fn reply(&self, turn: Turn<'_>, backbone: &dyn Generate) -> anyhow::Result<Chosen> {
        let prompts: Vec<Vec<u32>> = std::iter::once(turn.bare).chain(turn.recalled).collect();
        let expected = prompts.len();
        let requests = prompts
            .into_iter()
            .enumerate()
            .map(|(index, tokens)| request(tokens, turn.sampling, turn.seed, index))
            .collect();
        let mut completions = backbone.complete_all(requests)?;
        ensure!(completions.len() == expected, "asked for {expected} completions, got {}", completions.len());
        let canonical: Vec<Option<String>> =
            completions.iter().map(|completion| (turn.canonical)(&completion.text)).collect();
        let winner = elect(&canonical);
        let mut usage = Usage::default();
        let mut reused_tokens = 0;
        for completion in &completions {
            usage += completion.usage.into();
            reused_tokens += completion.usage.reused as u64;
        }
        let votes = completions
            .iter()
            .zip(canonical)
            .enumerate()
            .map(|(index, (completion, canonical))| Vote {
                reply: completion.text.clone(),
                canonical,
                is_chosen: index == winner,
            })
            .collect();
        Ok(Chosen { completion: completions.swap_remove(winner), usage, reused_tokens, votes })
    }
}

/// Index of the winning candidate. Candidates that propose nothing abstain; with none left candidate 0 stands.
///
/// The winner is the first candidate that proposed the winning action, groups before candidate 0 as in the released
/// code (which looks the reply up among the groups), so candidate 0 is returned only when no group proposed it.
fn elect(canonical: &[Option<String>]) -> usize {
    let mut tally: Vec<(&str, usize)> = Vec::new();
    for action in canonical.iter().flatten() {
        match tally.iter_mut().find(|(known, _)| known == action) {
            Some((_, count)) => *count += 1,
            None => tally.push((action, 1)),
        }
    }
    let Some(most) = tally.iter().map(|(_, count)| *count).max() else {
        return 0;
    };
    let mut tied: Vec<&str> = tally.iter().filter(|(_, count)| *count == most).map(|(action, _)| *action).collect();
    if tied.len() > 1
        && let Some(Some(own)) = canonical.first()
    {
        tied.retain(|action| action != own);
    }
    let action = tied[0];
    let proposes = |candidate: &Option<String>| candidate.as_deref() == Some(action);
    canonical.iter().skip(1).position(proposes).map_or(0, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::elect;

    fn vote(candidates: &[&str]) -> usize {
        let canonical: Vec<Option<String>> =
            candidates.iter().map(|text| Some(text.to_string()).filter(|text| !text.is_empty())).collect();
        elect(&canonical)
    }

    #[test]
    fn plurality_wins_and_its_first_group_speaks() {
        assert_eq!(vote(&["a", "b", "c", "b"]), 1);
        assert_eq!(vote(&["b", "c", "b", "b"]), 2);
    }

    #[test]
    fn unreadable_candidates_abstain() {
        assert_eq!(vote(&["", "", "x"]), 2);
        assert_eq!(vote(&["a", "", ""]), 0);
        assert_eq!(vote(&["", "", ""]), 0);
    }

    #[test]
    fn a_tie_drops_the_candidate_without_experience_then_takes_the_first() {
        assert_eq!(vote(&["a", "b"]), 1);
        assert_eq!(vote(&["a", "b", "c"]), 1);
        assert_eq!(vote(&["", "c", "b"]), 1);
        assert_eq!(vote(&["a", "a", "b", "b"]), 2);
    }

    #[test]
    fn candidate_zero_takes_part_in_the_count() {
        assert_eq!(vote(&["a", "b", "a"]), 2);
    }
}
