//! The legal orders of a graph of actions, followed one step at a time (WildToolBench, released evaluator).
//!
//! A state is the set of actions done. From it any non-empty subset of the ready actions is a parallel step, with two
//! exceptions: subsets of equal name lists are one option, and a *run* (ready neighbours of one name) is taken whole,
//! at once or one by one in single steps, never in part. The released evaluator lists every path first, which grows
//! factorially; here the paths that still agree with the agent are kept as their states.

use std::collections::{BTreeSet, HashSet, VecDeque};

use anyhow::bail;

use crate::record::tool::{ToolNode, graph_fault};

/// A turn's graph.
pub struct Graph<'a> {
    nodes: &'a [ToolNode],
}

/// A path up to now: what is done, and single steps that a run taken one by one still owes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Path {
    done: u64,
    owed: VecDeque<usize>,
}

/// The paths that agree with the agent so far.
pub struct Survivors {
    paths: Vec<Path>,
}

impl<'a> Graph<'a> {
    /// # Errors
    /// What [`graph_fault`] says.
    pub fn new(nodes: &'a [ToolNode]) -> anyhow::Result<Graph<'a>> {
        match graph_fault(nodes) {
            Some(fault) => bail!(fault),
            None => Ok(Graph { nodes }),
        }
    }

    fn all(&self) -> u64 {
        u64::MAX >> (64 - self.nodes.len())
    }

    /// Every path, before the first step.
    pub fn start(&self) -> Survivors {
        Survivors { paths: vec![Path { done: 0, owed: VecDeque::new() }] }
    }

    /// The first shortest path: what the reference dialogue does.
    pub fn shortest(&self) -> Vec<Vec<usize>> {
        let mut done = 0;
        let mut steps = Vec::new();
        while done != self.all() {
            let wanted = self.steps_left(done);
            let option = self.options(done).into_iter().find(|option| {
                let after = option.iter().flatten().fold(done, |done, node| done | 1 << node);
                option.len() + self.steps_left(after) == wanted
            });
            // Taking all that is ready is an option and is never longer.
            let option = option.unwrap_or_else(|| vec![self.ready(done)]);
            option.iter().flatten().for_each(|node| done |= 1 << node);
            steps.extend(option);
        }
        steps
    }

    /// Length of the shortest way from a state.
    fn steps_left(&self, mut done: u64) -> usize {
        let mut steps = 0;
        while done != self.all() {
            self.ready(done).iter().for_each(|node| done |= 1 << node);
            steps += 1;
        }
        steps
    }

    fn ready(&self, done: u64) -> Vec<usize> {
        let is_open = |node: &usize| done & 1 << node == 0;
        let is_ready = |node: &usize| self.nodes[*node].waits_for.iter().all(|waited| done & 1 << waited != 0);
        (0..self.nodes.len()).filter(is_open).filter(is_ready).collect()
    }

    /// What can be done from a state, in the evaluator's order: a parallel step, or a run one by one.
    fn options(&self, done: u64) -> Vec<Vec<Vec<usize>>> {
        let ready = self.ready(done);
        let runs = self.runs(&ready);
        let part_of_a_run = |step: &[usize]| {
            runs.iter().any(|run| step.len() < run.len() && step.iter().all(|node| run.contains(node)))
        };
        let mut seen = HashSet::new();
        let mut options = Vec::new();
        for step in subsets(&ready) {
            let names: Vec<&str> = step.iter().map(|node| self.nodes[*node].name.as_str()).collect();
            if !seen.insert(names) {
                continue;
            }
            if let [only] = step.as_slice() {
                let run = runs.iter().find(|run| run.first() == Some(only));
                options
                    .push(run.map_or_else(|| vec![step.clone()], |run| run.iter().map(|node| vec![*node]).collect()));
                continue;
            }
            let mut fronts = (1..=step.len()).map(|length| &step[..length]);
            let starts_in_part = fronts.clone().any(part_of_a_run);
            let starts_whole = fronts.any(|front| runs.iter().any(|run| run.as_slice() == front));
            if starts_whole || !starts_in_part {
                options.push(vec![step]);
            }
        }
        options
    }

    /// Ready neighbours of one name, where there is more than one.
    fn runs(&self, ready: &[usize]) -> Vec<Vec<usize>> {
        ready
            .chunk_by(|one, other| self.nodes[*one].name == self.nodes[*other].name)
            .filter(|run| run.len() > 1)
            .map(<[usize]>::to_vec)
            .collect()
    }

    /// The steps that a path may take next, each with the path after it.
    fn next(&self, path: &Path) -> Vec<(Vec<usize>, Path)> {
        let after = |step: &[usize]| step.iter().fold(path.done, |done, node| done | 1 << node);
        if let Some(owed) = path.owed.front() {
            let mut rest = path.owed.clone();
            rest.pop_front();
            return vec![(vec![*owed], Path { done: after(&[*owed]), owed: rest })];
        }
        let options = self.options(path.done).into_iter();
        let opened = options.filter_map(|option| {
            let (first, owed) = option.split_first()?;
            let owed = owed.iter().flatten().copied().collect();
            Some((first.clone(), Path { done: after(first), owed }))
        });
        opened.collect()
    }

    /// Takes the agent's calls as a step: the actions it stands for, sorted by name, or `None` where no surviving path
    /// goes on with them.
    pub fn call(&self, survivors: &mut Survivors, names: &[&str]) -> Option<Vec<usize>> {
        let mut wanted = names.to_vec();
        wanted.sort_unstable();
        let candidates = self.candidates(survivors);
        let (step, _) = candidates.iter().find(|(step, _)| self.names(step) == wanted)?;
        let step = step.clone();
        survivors.paths = distinct(candidates.into_iter().filter(|(other, _)| *other == step).map(|(_, path)| path));
        let mut sorted = step;
        sorted.sort_by(|one, other| self.nodes[*one].name.cmp(&self.nodes[*other].name));
        Some(sorted)
    }

    /// Takes a text as a step: the first pseudo action that a surviving path has here.
    ///
    /// As released, a text prunes no path: those that had something else here go on too.
    pub fn say(&self, survivors: &mut Survivors) -> Option<usize> {
        let candidates = self.candidates(survivors);
        let mut spoken =
            candidates.iter().filter_map(|(step, _)| step.iter().find(|node| self.nodes[**node].is_pseudo()));
        let said = *spoken.next()?;
        survivors.paths = distinct(candidates.into_iter().map(|(_, path)| path));
        Some(said)
    }

    fn candidates(&self, survivors: &Survivors) -> Vec<(Vec<usize>, Path)> {
        survivors.paths.iter().flat_map(|path| self.next(path)).collect()
    }

    fn names(&self, step: &[usize]) -> Vec<&str> {
        let mut names: Vec<&str> = step.iter().map(|node| self.nodes[*node].name.as_str()).collect();
        names.sort_unstable();
        names
    }
}

/// The first of equal paths, in order.
fn distinct(paths: impl Iterator<Item = Path>) -> Vec<Path> {
    let mut seen: BTreeSet<(u64, Vec<usize>)> = BTreeSet::new();
    paths.filter(|path| seen.insert((path.done, path.owed.iter().copied().collect()))).collect()
}

/// Non-empty subsets by size, each in index order, sizes in the order of their first elements.
fn subsets(items: &[usize]) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = (1..1usize << items.len())
        .map(|bits| {
            items.iter().enumerate().filter(|(index, _)| bits & 1 << index != 0).map(|(_, item)| *item).collect()
        })
        .collect();
    all.sort_by(|one: &Vec<usize>, other| one.len().cmp(&other.len()).then_with(|| one.cmp(other)));
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::record::tool::shortest_path;

    /// Names and what each waits for.
    fn nodes(given: &[(&str, &[usize])]) -> Vec<ToolNode> {
        given
            .iter()
            .map(|(name, waits_for)| ToolNode {
                name: name.to_string(),
                arguments: json!({}),
                observation: json!(""),
                user_input: None,
                waits_for: waits_for.to_vec(),
            })
            .collect()
    }

    /// Every path in full, by following all options.
    fn all_paths(graph: &Graph<'_>) -> Vec<Vec<Vec<usize>>> {
        let mut open = vec![(Vec::new(), Path { done: 0, owed: VecDeque::new() })];
        let mut found = Vec::new();
        while let Some((steps, path)) = open.pop() {
            if path.done == graph.all() {
                found.push(steps);
                continue;
            }
            for (step, next) in graph.next(&path) {
                let mut steps: Vec<Vec<usize>> = steps.clone();
                steps.push(step);
                open.push((steps, next));
            }
        }
        found
    }

    #[test]
    fn as_many_paths_as_the_released_generator_lists() {
        for (given, paths, shortest) in [
            (nodes(&[("A", &[]), ("B", &[])]), 3, 1),
            (nodes(&[("A", &[]), ("A", &[]), ("A", &[])]), 2, 1),
            (nodes(&[("A", &[]), ("A", &[]), ("B", &[])]), 5, 1),
            (nodes(&[("A", &[]), ("B", &[]), ("A", &[])]), 9, 1),
            (nodes(&[("A", &[]), ("B", &[]), ("C", &[]), ("P", &[0, 1, 2])]), 13, 2),
            (nodes(&[("A", &[]), ("A", &[]), ("P", &[0, 1])]), 2, 2),
            (nodes(&[("A", &[]), ("A", &[]), ("B", &[0]), ("P", &[1, 2])]), 2, 3),
        ] {
            let graph = Graph::new(&given).unwrap();
            let found = all_paths(&graph);
            assert_eq!(found.len(), paths, "{found:?}");
            assert_eq!(found.iter().map(Vec::len).min(), Some(shortest), "{found:?}");
            assert_eq!(graph.shortest().len(), shortest);
            assert_eq!(shortest_path(&given), shortest);
            assert!(found.contains(&graph.shortest()), "{:?}", graph.shortest());
        }
    }

    #[test]
    fn random_graphs_have_the_released_generators_paths() {
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../../../tests/golden/tools/values.json")).unwrap();
        let graphs = golden["graphs"].as_array().unwrap();
        assert_eq!(graphs.len(), 60);
        for row in graphs {
            let (names, waits): (String, Vec<Vec<usize>>) =
                serde_json::from_value(json!([row[0].clone(), row[1].clone()])).unwrap();
            let names: Vec<String> = names.chars().map(String::from).collect();
            let given: Vec<(&str, &[usize])> =
                names.iter().zip(&waits).map(|(name, waits)| (name.as_str(), waits.as_slice())).collect();
            let given = nodes(&given);
            let graph = Graph::new(&given).unwrap();
            assert_eq!(all_paths(&graph).len() as u64, row[2].as_u64().unwrap(), "{row}");
            assert_eq!(json!(graph.shortest()), row[3], "{row}");
        }
    }

    fn follow(given: &[ToolNode], steps: &[&[&str]]) -> Vec<Option<Vec<usize>>> {
        let graph = Graph::new(given).unwrap();
        let mut survivors = graph.start();
        steps.iter().map(|names| graph.call(&mut survivors, names)).collect()
    }

    #[test]
    fn calls_of_a_parallel_step_come_in_any_order() {
        let given = nodes(&[("B", &[]), ("A", &[]), ("P", &[0, 1])]);
        assert_eq!(follow(&given, &[&["B", "A"]]), [Some(vec![1, 0])]);
        assert_eq!(follow(&given, &[&["A", "B"]]), [Some(vec![1, 0])]);
        assert_eq!(follow(&given, &[&["B"], &["A"]]), [Some(vec![0]), Some(vec![1])]);
        assert_eq!(follow(&given, &[&["A"], &["A"]]), [Some(vec![1]), None]);
    }

    #[test]
    fn a_run_is_taken_whole_or_one_by_one_and_never_in_part() {
        let given = nodes(&[("A", &[]), ("A", &[]), ("A", &[]), ("B", &[])]);
        assert_eq!(follow(&given, &[&["A", "A"]]), [None]);
        assert_eq!(follow(&given, &[&["A", "A", "A"]]), [Some(vec![0, 1, 2])]);
        assert_eq!(follow(&given, &[&["A"], &["A"], &["B"]]), [Some(vec![0]), Some(vec![1]), None]);
        assert_eq!(follow(&given, &[&["A"], &["A"], &["A"], &["B"]])[3], Some(vec![3]));
        assert_eq!(follow(&given, &[&["B"], &["A"], &["A"], &["A"]])[3], Some(vec![2]));
        assert_eq!(follow(&given, &[&["A", "B"]]), [None], "the front of the larger step is a part of the run");
    }

    #[test]
    fn a_text_is_a_question_where_the_graph_asks_and_else_an_answer() {
        let given = nodes(&[("ask_user_for_required_parameters", &[]), ("A", &[0]), ("prepare_to_answer", &[1])]);
        let graph = Graph::new(&given).unwrap();
        let mut survivors = graph.start();
        assert_eq!(graph.say(&mut survivors), Some(0));
        assert_eq!(graph.say(&mut survivors), None, "a call is due");
        assert_eq!(graph.call(&mut survivors, &["A"]), Some(vec![1]));
        assert_eq!(graph.say(&mut survivors), Some(2));
    }

    #[test]
    fn graphs_that_cannot_be_played_are_refused() {
        let message = |given: &[ToolNode]| Graph::new(given).err().unwrap().to_string();
        assert!(message(&nodes(&[("A", &[1]), ("B", &[0])])).contains("circle"));
        assert!(message(&nodes(&[("A", &[3])])).contains("waits for action 3"));
        assert!(message(&[]).contains("1 to 64"));
        let many: Vec<(&str, &[usize])> = vec![("A", &[]); 19];
        assert!(message(&nodes(&many)).contains("19 actions"));
    }

    #[test]
    fn sixteen_parallel_calls_are_followed_at_once() {
        let names: Vec<String> = (0..16).map(|index| format!("f{index:02}")).collect();
        let given: Vec<(&str, &[usize])> = names.iter().map(|name| (name.as_str(), [].as_slice())).collect();
        let given = nodes(&given);
        let names: Vec<&str> = names.iter().rev().map(String::as_str).collect();
        assert_eq!(follow(&given, &[&names])[0].as_ref().map(Vec::len), Some(16));
    }
}
