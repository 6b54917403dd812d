//! How alike two texts are, by the matching blocks that Ratcliff and Obershelp's pattern matching finds.
//!
//! The same number as `ratio()` of Python's `difflib.SequenceMatcher` for texts of fewer than 200 characters, where that
//! one ignores nothing as too popular: `tests/golden/tools` holds values from it.

/// Twice the characters in matching blocks over the characters of both texts, 0..=1; 1 for two empty texts.
///
/// Not symmetric: among equally long blocks the first in `left` is taken, then the first in `right`.
pub fn ratio(left: &str, right: &str) -> f64 {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let total = left.len() + right.len();
    if total == 0 {
        return 1.0;
    }
    2.0 * matched(&left, &right) as f64 / total as f64
}

/// Characters in matching blocks: the longest block, then the same on both sides of it.
fn matched(left: &[char], right: &[char]) -> usize {
    let mut open = vec![(left, right)];
    let mut sum = 0;
    while let Some((left, right)) = open.pop() {
        let (at_left, at_right, length) = longest_block(left, right);
        if length > 0 {
            sum += length;
            open.push((&left[..at_left], &right[..at_right]));
            open.push((&left[at_left + length..], &right[at_right + length..]));
        }
    }
    sum
}

fn longest_block(left: &[char], right: &[char]) -> (usize, usize, usize) {
    let mut best = (0, 0, 0);
    // ending[j]: length of the block that ends at the current character of `left` and before `right[j]`.
    let mut ending = vec![0usize; right.len() + 1];
    for (i, a) in left.iter().enumerate() {
        for j in (0..right.len()).rev() {
            ending[j + 1] = if *a == right[j] { ending[j] + 1 } else { 0 };
        }
        for j in 0..right.len() {
            let length = ending[j + 1];
            if length > best.2 {
                best = (i + 1 - length, j + 1 - length, length);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::ratio;

    #[test]
    fn equal_texts_are_1_and_strangers_0() {
        assert_eq!((ratio("abc", "abc"), ratio("", ""), ratio("abc", "xyz"), ratio("", "a")), (1.0, 1.0, 0.0, 0.0));
    }

    #[test]
    fn the_same_numbers_as_difflib() {
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/golden/tools/values.json")).unwrap();
        let texts = golden["texts"].as_array().unwrap();
        assert_eq!(texts.len(), 40);
        for row in texts {
            let found = ratio(row[0].as_str().unwrap(), row[1].as_str().unwrap());
            assert!((found - row[2].as_f64().unwrap()).abs() < 1e-8, "{row}: {found}");
        }
    }

    #[test]
    fn blocks_keep_their_order() {
        // "LasVegas" is in "Las Vegas" as two blocks of 3 and 5.
        assert_eq!(ratio("Las Vegas", "LasVegas"), 16.0 / 17.0);
        // One of the two letters only: they stand the other way round.
        assert_eq!(ratio("ab", "ba"), 0.5);
    }
}
