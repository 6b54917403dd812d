//! Which of the tasks with headroom make the pool when there are more than are wanted.

use std::collections::BTreeMap;

use crate::seed::Seed;

/// At most `limit` of the tasks, ascending, so that every family keeps its share: families in the order of their first
/// task take seats by largest remainder (the earlier family where remainders are equal), and each family's seats go to
/// tasks drawn with the run's seed. `family` is a task's group; tasks without one are a group of their own.
pub fn stratified(kept: &[u32], limit: Option<u32>, family: impl Fn(u32) -> Option<String>, seed: Seed) -> Vec<u32> {
    let Some(limit) = limit.map(|limit| limit as usize).filter(|limit| *limit < kept.len()) else {
        return kept.to_vec();
    };
    let mut first: BTreeMap<Option<String>, usize> = BTreeMap::new();
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for task in kept {
        let place = *first.entry(family(*task)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(*task);
    }
    let share = |group: &Vec<u32>| group.len() * limit;
    let mut seats: Vec<usize> = groups.iter().map(|group| share(group) / kept.len()).collect();
    let mut by_remainder: Vec<usize> = (0..groups.len()).collect();
    by_remainder.sort_by_key(|place| (std::cmp::Reverse(share(&groups[*place]) % kept.len()), *place));
    let left = limit - seats.iter().sum::<usize>();
    by_remainder.into_iter().take(left).for_each(|place| seats[place] += 1);
    let mut drawn: Vec<u32> = Vec::with_capacity(limit);
    for ((mut group, seats), place) in groups.into_iter().zip(seats).zip(0u32..) {
        seed.derive("stratum", &[place]).stream().shuffle(&mut group);
        drawn.extend(group.into_iter().take(seats));
    }
    drawn.sort_unstable();
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_keeps_the_shares_of_families() {
        let kept: Vec<u32> = (0..30).collect();
        let family = |task: u32| Some(if task < 20 { "large" } else { "small" }.to_string());
        let drawn = stratified(&kept, Some(9), family, Seed(4));
        assert_eq!((drawn.len(), drawn.iter().filter(|task| **task < 20).count()), (9, 6));
        assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]), "{drawn:?}");
        assert_eq!(drawn, stratified(&kept, Some(9), family, Seed(4)));
        assert_ne!(drawn, stratified(&kept, Some(9), family, Seed(5)));
        assert_eq!(stratified(&kept, Some(30), family, Seed(4)), kept);
        assert_eq!(stratified(&kept, None, family, Seed(4)), kept);
    }

    /// 3 of (4, 2, 1): shares 12/7, 6/7, 3/7 take one seat, and two seats go by remainder 6/7, 5/7.
    #[test]
    fn seats_go_by_largest_remainder() {
        let kept: Vec<u32> = (0..7).collect();
        let family = |task: u32| {
            Some(
                match task {
                    0..4 => "a",
                    4..6 => "b",
                    _ => "c",
                }
                .to_string(),
            )
        };
        let drawn = stratified(&kept, Some(3), family, Seed(1));
        let count = |range: std::ops::Range<u32>| drawn.iter().filter(|task| range.contains(task)).count();
        assert_eq!((count(0..4), count(4..6), count(6..7)), (2, 1, 0));
    }
}
