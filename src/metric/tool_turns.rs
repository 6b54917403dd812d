//! What the turns of tool dialogues add up to (WildToolBench's released metrics).

use std::collections::BTreeMap;

use crate::record::tool::{ToolVerdict, TurnVerdict};

/// `part` of `of`: right turns of turns, or steps of actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Portion {
    pub part: u64,
    pub of: u64,
}

impl Portion {
    fn count(&mut self, is_in: bool) {
        self.part += u64::from(is_in);
        self.of += 1;
    }

    /// `None` of nothing.
    pub fn share(self) -> Option<f64> {
        (self.of > 0).then(|| self.part as f64 / self.of as f64)
    }
}

/// All metrics over some dialogues. Groups that hold no turn are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolTurns {
    /// Right turns.
    pub turns: Portion,
    /// Dialogues whose every turn is right.
    pub sessions: Portion,
    /// Right turns by kind, `Multi-Tool` being the three kinds of several tools together.
    pub kinds: BTreeMap<String, Portion>,
    /// Right turns by place in the dialogue, from 1.
    pub places: BTreeMap<u32, Portion>,
    /// Right turns by how they hang on earlier ones, with `First Turn` and `Subsequent Turn`.
    pub transitions: BTreeMap<String, Portion>,
    /// Parallel and mixed turns that are right in as few steps as the shortest order, by kind and as `Total`.
    pub optimal: BTreeMap<String, Portion>,
    /// Steps of actions in sequential and mixed turns, by kind and as `Total`. The published rules count the step that
    /// failed, so a share may pass 1.
    pub progress: BTreeMap<String, Portion>,
    /// How often each kind of error occurred.
    pub faults: BTreeMap<String, u64>,
    /// Turns that no reply could win under the published rules.
    pub unwinnable: u64,
    /// Turns that are right under one reading of the rules and wrong under the other.
    pub differing: u64,
}

/// The metrics of these dialogues.
pub fn tool_turns<'a>(verdicts: impl Iterator<Item = &'a ToolVerdict>) -> ToolTurns {
    let mut found = ToolTurns::default();
    for verdict in verdicts {
        found.sessions.count(verdict.turns.iter().all(TurnVerdict::is_right));
        for (index, turn) in verdict.turns.iter().enumerate() {
            count(&mut found, index as u32 + 1, turn);
        }
    }
    found
}

fn count(found: &mut ToolTurns, place: u32, turn: &TurnVerdict) {
    const SEVERAL: &str = "Multi-Tool";
    let is_right = turn.is_right();
    found.turns.count(is_right);
    found.places.entry(place).or_default().count(is_right);
    let several = turn.kind.contains(SEVERAL).then_some(SEVERAL);
    for kind in [Some(turn.kind.as_str()), several].into_iter().flatten() {
        found.kinds.entry(kind.into()).or_default().count(is_right);
    }
    let groups: &[&str] = match &turn.transition {
        None => &["First Turn"],
        Some(transition) => &["Subsequent Turn", transition],
    };
    for group in groups {
        found.transitions.entry(group.to_string()).or_default().count(is_right);
    }
    if ["Parallel Multi-Tool", "Mixed Multi-Tool"].contains(&turn.kind.as_str()) {
        for group in ["Total", &turn.kind] {
            found.optimal.entry(group.into()).or_default().count(turn.is_optimal);
        }
    }
    if ["Sequential Multi-Tool", "Mixed Multi-Tool"].contains(&turn.kind.as_str()) {
        for group in ["Total", &turn.kind] {
            let portion = found.progress.entry(group.into()).or_default();
            portion.part += u64::from(turn.steps);
            portion.of += u64::from(turn.nodes);
        }
    }
    if let Some(fault) = &turn.fault {
        *found.faults.entry(fault.clone()).or_default() += 1;
    }
    found.unwinnable += u64::from(!turn.is_winnable);
    found.differing += u64::from(turn.differs);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(kind: &str, transition: Option<&str>, fault: Option<&str>, steps: u32, nodes: u32) -> TurnVerdict {
        TurnVerdict {
            kind: kind.into(),
            transition: transition.map(String::from),
            fault: fault.map(String::from),
            is_optimal: fault.is_none() && steps < nodes,
            steps,
            nodes,
            is_winnable: fault != Some("schema: nested type"),
            differs: fault == Some("schema: nested type"),
        }
    }

    #[test]
    fn turns_are_counted_in_every_group_they_belong_to() {
        let verdicts = [
            ToolVerdict {
                turns: vec![
                    turn("Single-Tool", None, None, 2, 2),
                    turn("Parallel Multi-Tool", Some("Partial Information"), None, 2, 3),
                    turn("Mixed Multi-Tool", Some("Partial Information"), Some("action name"), 2, 4),
                    turn("Chat", Some("Long-Range Dependency"), None, 1, 1),
                ],
            },
            ToolVerdict {
                turns: vec![
                    turn("Chat", None, None, 1, 1),
                    turn("Mixed Multi-Tool", Some("Coreferential Reference"), None, 4, 4),
                    turn("Sequential Multi-Tool", Some("Partial Information"), None, 3, 3),
                    turn("Clarify", Some("Partial Information"), None, 3, 3),
                ],
            },
            ToolVerdict { turns: vec![turn("Single-Tool", None, Some("schema: nested type"), 1, 2)] },
        ];
        let found = tool_turns(verdicts.iter());
        let portion = |part, of| Portion { part, of };
        assert_eq!((found.turns, found.sessions), (portion(7, 9), portion(1, 3)));
        assert_eq!(found.kinds["Multi-Tool"], portion(3, 4));
        assert_eq!(found.kinds["Single-Tool"], portion(1, 2));
        assert_eq!(found.kinds["Chat"], portion(2, 2));
        assert_eq!((found.places[&1], found.places[&3]), (portion(2, 3), portion(1, 2)));
        assert_eq!(found.transitions["First Turn"], portion(2, 3));
        assert_eq!(found.transitions["Subsequent Turn"], portion(5, 6));
        assert_eq!(found.transitions["Partial Information"], portion(3, 4));
        // Right in the fewest steps: the parallel turn; the second mixed one was right, but one by one.
        assert_eq!((found.optimal["Total"], found.optimal["Mixed Multi-Tool"]), (portion(1, 3), portion(0, 2)));
        assert_eq!(found.progress["Total"], portion(9, 11));
        assert_eq!(found.faults, BTreeMap::from([("action name".into(), 1), ("schema: nested type".into(), 1)]));
        assert_eq!((found.unwinnable, found.differing), (1, 1));
        assert_eq!(Portion::default().share(), None);
    }
}
