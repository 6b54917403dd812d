//! Kinds of things that can be named in a config: a static list a kind, one line a thing, and a helpful error.

use std::fmt;

/// What every registered thing says of itself.
pub trait Registered {
    /// The name users write in a config.
    fn name(&self) -> &str;
    /// One line for `lifelong list`: what it is.
    fn about(&self) -> &str;
    /// Where it comes from: paper section, dataset, licence, or "own".
    fn source(&self) -> &str;
}

/// The named thing is not registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    pub kind: &'static str,
    pub found: String,
    pub nearest: Option<String>,
    pub known: Vec<String>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "no {} named `{}`", self.kind, self.found)?;
        if let Some(nearest) = &self.nearest {
            write!(formatter, "; did you mean `{nearest}`?")?;
        }
        write!(formatter, " (known: {})", self.known.join(", "))
    }
}

impl std::error::Error for UnknownName {}

/// Finds a thing by its exact name.
///
/// # Errors
/// [`UnknownName`] with the nearest known name by edit distance.
pub fn find<'a, T: Registered + ?Sized>(kind: &'static str, list: &[&'a T], name: &str) -> Result<&'a T, UnknownName> {
    list.iter().copied().find(|entry| entry.name() == name).ok_or_else(|| {
        let known: Vec<String> = list.iter().map(|entry| entry.name().to_string()).collect();
        UnknownName { kind, found: name.to_string(), nearest: nearest(name, &known), known }
    })
}

/// The known name closest to `found`, when it is close enough to be a typing error: at most a third of its length
/// (rounded up) in single-character edits. Ties go to the first listed.
pub fn nearest(found: &str, known: &[String]) -> Option<String> {
    let limit = found.chars().count().div_ceil(3).max(1);
    known
        .iter()
        .map(|name| (edit_distance(found, name), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name.clone())
}

fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_offers_a_typo_and_nothing_far() {
        let known: Vec<String> = ["temperature", "top_p"].map(String::from).to_vec();
        assert_eq!(nearest("temprature", &known).as_deref(), Some("temperature"));
        assert_eq!(nearest("zebra", &known), None);
    }

    #[test]
    fn edit_distance_counts_single_edits() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("same", "same"), 0);
    }
}
