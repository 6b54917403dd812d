//! The order in which a whole set of requests is handed to the engine.

use super::block::BLOCK_TOKENS;
use super::request::Request;

/// The order that keeps shared prefixes hot: by tokens, so that requests with a common prefix are neighbours and those
/// with the same prompt (the seeds of one sample set) adjoin; ties keep the given order.
///
/// Gives indices into `requests`.
pub fn by_shared_prefix(requests: &[Request]) -> Vec<usize> {
    in_token_order(requests, |request| &request.tokens)
}

/// The same for anything that begins with tokens.
pub(crate) fn in_token_order<T>(requests: &[T], tokens: impl Fn(&T) -> &[u32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by(|&left, &right| tokens(&requests[left]).cmp(tokens(&requests[right])));
    order
}

/// What prefix sharing saves over a set of prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefillEstimate {
    /// Tokens of all prompts together.
    pub prompt_tokens: u64,
    /// Tokens that have to be computed when each prefix in whole blocks is computed once and nothing is evicted.
    pub computed_tokens: u64,
}

/// Estimates a plan before any device work.
pub fn estimate_prefill(requests: &[Request]) -> PrefillEstimate {
    let mut estimate = PrefillEstimate::default();
    let mut before: &[u32] = &[];
    // In lexicographic order the longest prefix shared with any earlier prompt is shared with the one just before.
    for index in by_shared_prefix(requests) {
        let tokens = requests[index].tokens.as_slice();
        let shared = tokens.iter().zip(before).take_while(|(left, right)| left == right).count();
        let usable = shared.min(tokens.len().saturating_sub(1));
        estimate.prompt_tokens += tokens.len() as u64;
        estimate.computed_tokens += (tokens.len() - usable / BLOCK_TOKENS * BLOCK_TOKENS) as u64;
        before = tokens;
    }
    estimate
}

/// Tokens at the beginning of every prompt, in whole blocks: what is surely shared whatever else the prompts hold.
pub fn common_prefix(prompts: &[Vec<u32>]) -> usize {
    let Some((first, rest)) = prompts.split_first() else { return 0 };
    let shared = |other: &Vec<u32>| first.iter().zip(other).take_while(|(left, right)| left == right).count();
    rest.iter().map(shared).min().unwrap_or(first.len()) / BLOCK_TOKENS * BLOCK_TOKENS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::sampling::Sampling;

    fn request(tokens: Vec<u32>, seed: u64) -> Request {
        Request { tokens, sampling: Sampling::default(), seed }
    }

    #[test]
    fn order_groups_prefixes_and_keeps_seeds_in_the_given_order() {
        let requests = [vec![2, 1], vec![1, 2], vec![1, 1, 9], vec![2, 1], vec![1, 2]].map(|tokens| request(tokens, 0));
        assert_eq!(by_shared_prefix(&requests), [2, 1, 4, 0, 3]);
    }

    #[test]
    fn a_common_prefix_ends_where_any_prompt_differs() {
        let prompt = |same: usize, last: u32| [vec![7; same], vec![last; 40]].concat();
        assert_eq!(common_prefix(&[prompt(40, 1), prompt(35, 2), prompt(50, 3)]), 32);
        assert_eq!(common_prefix(&[prompt(3, 1), prompt(9, 2)]), 0);
        assert_eq!((common_prefix(&[vec![1; 20]]), common_prefix(&[])), (16, 0));
    }

    #[test]
    fn matrix_of_eight_by_eight_by_five_computes_what_the_tree_holds() {
        let mut requests = Vec::new();
        for seed in 0..5 {
            for demonstration in 0..8u32 {
                for target in 0..8u32 {
                    let mut tokens = vec![demonstration; 400];
                    tokens.extend(vec![100 + target; 150]);
                    requests.push(request(tokens, seed));
                }
            }
        }
        let estimate = estimate_prefill(&requests);
        assert_eq!(estimate.prompt_tokens, 176_000);
        // 400 is 25 whole blocks; of a target's 150 tokens nine blocks are shared by its seeds and six tokens are not.
        assert_eq!(estimate.computed_tokens, 8 * 400 + 64 * 150 + 64 * 4 * 6);
    }
}
