//! Which tokens of which requests the next step computes.
//!
//! A step packs one token of every row that is decoding, and prompt tokens of rows that are not, oldest row first, up
//! to the prefill chunk; then waiting requests are admitted in order while there are rows, prompt tokens and blocks
//! left. A request whose next block another row is computing right now waits for it, so that rows behind one prefix
//! prefill it once; others pass it by. When blocks run out, the youngest row gives its own back and is computed again
//! later. Nothing here knows weights or time: which tokens are computed together cannot change what they become.

use std::collections::{HashMap, VecDeque};

use super::block::{BLOCK_TOKENS, BlockId, blocks_for};
use super::cache::{BlockTable, Cache};
use super::prefix::Edge;

/// Names one request for the life of its engine.
pub(crate) type RequestId = u64;

/// How much a step may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Rows at once.
    pub(crate) max_batch: usize,
    /// Prompt tokens a step, over all rows. Tokens of decoding rows come on top.
    pub(crate) prefill_chunk: usize,
}

/// Waiting requests that a step looks at, for each row of the batch.
const LOOK_AHEAD: usize = 4;

impl Limits {
    /// Logits that a step gives to rows with [`Outputs::From`], all together: each is as wide as the vocabulary, and long
    /// continuations in a large chunk would ask for gigabytes of them.
    fn forced_outputs(self) -> usize {
        const MOST: usize = 512;
        (self.prefill_chunk / 2).clamp(1, MOST)
    }
}

/// Whose logits a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outputs {
    /// Those of its last token, each time there is a new one.
    Last,
    /// Those of every token from this position on: they are computed even where the cache holds them.
    From(usize),
}

/// A request with its place in the cache.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: RequestId,
    /// Prompt and generated tokens.
    tokens: Vec<u32>,
    outputs: Outputs,
    /// Leading tokens whose keys and values are in the cache.
    computed: usize,
    table: BlockTable,
    /// Prompt tokens found in the cache at the first admission.
    reused: Option<usize>,
    /// The block this row is computing that others may wait for.
    promise: Option<Edge>,
}

/// Tokens of one row in one step: positions `start .. start + len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Index into [`Scheduler::rows`].
    pub(crate) row: usize,
    pub(crate) start: usize,
    pub(crate) len: usize,
    /// How many of its last tokens have logits that are wanted.
    pub(crate) outputs: usize,
    /// Whether the span reaches the row's last token, so that the next one can be drawn.
    pub(crate) is_last: bool,
}

/// Waiting requests, running rows and the blocks they hold.
///
/// Protocol: [`schedule`](Self::schedule), compute the spans, [`commit`](Self::commit) them, then
/// [`append`](Self::append) a token to or [`finish`](Self::finish) each row whose span was the last.
#[derive(Debug)]
pub(crate) struct Scheduler {
    limits: Limits,
    cache: Cache,
    waiting: VecDeque<Row>,
    /// Oldest first.
    running: Vec<Row>,
    /// Blocks being computed right now, and by whom.
    promises: HashMap<Edge, RequestId>,
    preemptions: u64,
}

impl Scheduler {
    pub(crate) fn new(limits: Limits, cache: Cache) -> Self {
        let (waiting, running, promises) = (VecDeque::new(), Vec::new(), HashMap::new());
        Scheduler { limits, cache, waiting, running, promises, preemptions: 0 }
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(crate) fn preemptions(&self) -> u64 {
        self.preemptions
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Running rows, oldest first.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.running
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Whether requests should be queued, if there are any, so that what a step looks at does not depend on how many
    /// more there are: it admits a batch at most, and looks no further than [`LOOK_AHEAD`] batches.
    pub(crate) fn wants_requests(&self) -> bool {
        self.waiting.len() < self.limits.max_batch.saturating_mul(2 * LOOK_AHEAD)
    }

    /// Queues a request behind those already waiting. Call only with at least one token, and with a request whose
    /// tokens, generated ones included, never need more than all blocks of the cache.
    pub(crate) fn submit(&mut self, id: RequestId, tokens: Vec<u32>, outputs: Outputs) {
        debug_assert!(!tokens.is_empty());
        let table = BlockTable::default();
        self.waiting.push_back(Row { id, tokens, outputs, computed: 0, table, reused: None, promise: None });
    }

    /// The next step. Empty only when nothing waits or runs.
    pub(crate) fn schedule(&mut self) -> Vec<Span> {
        self.cache.tick();
        let mut spans = Vec::with_capacity(self.limits.max_batch);
        let mut budget = Budget { tokens: self.limits.prefill_chunk, outputs: self.limits.forced_outputs() };
        let preemptions_before = self.preemptions;
        let mut row = 0;
        while row < self.running.len() {
            spans.extend(self.continue_row(row, &mut budget));
            row += 1;
        }
        // Requests before this one wait for blocks in the making, which no admission changes.
        let mut passed_by = 0;
        while self.running.len() < self.limits.max_batch && budget.tokens > 0 && self.preemptions == preemptions_before
        {
            let Some((index, path)) = self.next_to_admit(passed_by) else { break };
            passed_by = index;
            self.admit(index, path);
            spans.extend(self.continue_row(self.running.len() - 1, &mut budget));
        }
        debug_assert!(!spans.is_empty() || self.is_idle(), "a step makes progress");
        spans
    }

    /// The spans' keys and values are written: whole blocks can be found from now on.
    pub(crate) fn commit(&mut self, spans: &[Span]) {
        for span in spans {
            let row = &mut self.running[span.row];
            row.computed = span.start + span.len;
            self.cache.share(&mut row.table, &row.tokens[..row.computed]);
            self.promise_next_block(span.row);
        }
    }

    /// A token was drawn for a running row.
    pub(crate) fn append(&mut self, row: usize, token: u32) {
        self.running[row].tokens.push(token);
    }

    /// Ends running rows and takes their blocks back.
    pub(crate) fn finish(&mut self, is_ended: impl Fn(RequestId) -> bool) {
        let ended: Vec<Row> = self.running.extract_if(.., |row| is_ended(row.id)).collect();
        for mut row in ended {
            forget_promise(&mut self.promises, &mut row);
            self.cache.release(row.table);
        }
    }

    /// Ends requests wherever they are: nobody wants them any more.
    pub(crate) fn cancel(&mut self, is_cancelled: impl Fn(RequestId) -> bool) {
        self.waiting.retain(|row| !is_cancelled(row.id));
        self.finish(is_cancelled);
    }

    /// Schedules the next tokens of a running row, preempting younger rows for blocks; `None` when it has to pause or
    /// was itself preempted.
    fn continue_row(&mut self, index: usize, budget: &mut Budget) -> Option<Span> {
        let row = &self.running[index];
        let (start, left) = (row.computed, row.tokens.len() - row.computed);
        let is_decoding = left == 1;
        let mut len = if is_decoding { 1 } else { left.min(budget.tokens) };
        if let Outputs::From(first) = row.outputs {
            len = len.min(first.saturating_sub(start) + budget.outputs);
        }
        if len == 0 {
            return None;
        }
        while !self.cache.grow(&mut self.running[index].table, blocks_for(start + len)) {
            self.preempt_youngest();
            if index == self.running.len() {
                return None;
            }
        }
        if !is_decoding {
            budget.tokens -= len;
        }
        let is_last = len == left;
        let outputs = match self.running[index].outputs {
            Outputs::Last => usize::from(is_last),
            Outputs::From(first) => (start + len).saturating_sub(first.max(start)),
        };
        if matches!(self.running[index].outputs, Outputs::From(_)) {
            budget.outputs -= outputs;
        }
        Some(Span { row: index, start, len, outputs, is_last })
    }

    /// The first waiting request, from `start` on, that need not wait for a block in the making, with the blocks it will
    /// find; `None` when there is none or it would not fit.
    fn next_to_admit(&self, start: usize) -> Option<(usize, Vec<BlockId>)> {
        // Requests far back in the queue are left alone, so that a step costs the same in front of five thousand.
        let window = self.limits.max_batch.saturating_mul(LOOK_AHEAD);
        for (index, row) in self.waiting.iter().enumerate().take(window).skip(start) {
            let path = self.cache.find(row.up_to_first_output());
            if !self.waits_for_block(row, &path) {
                return self.fits(row, &path).then_some((index, path));
            }
        }
        None
    }

    /// Whether the block after `path` is being computed and the request could use it.
    fn waits_for_block(&self, row: &Row, path: &[BlockId]) -> bool {
        let wanted = row.up_to_first_output();
        let usable = &wanted[..wanted.len() - 1];
        let next = usable.as_chunks().0.get(path.len());
        next.is_some_and(|tokens| self.promises.contains_key(&Edge { parent: path.last().copied(), tokens: *tokens }))
    }

    /// Whether the row's tokens and its next one fit beside what running rows still need for theirs, with a block to
    /// spare for each of them: admitting more than that would only preempt it again.
    fn fits(&self, row: &Row, path: &[BlockId]) -> bool {
        let needed = |row: &Row| blocks_for(row.tokens.len() + 1);
        let reserved: usize =
            self.running.iter().map(|row| needed(row).saturating_sub(row.table.blocks().len()) + 1).sum();
        let available = self.cache.available() - self.cache.not_held_among(path);
        available >= needed(row) - path.len() + reserved || self.running.is_empty()
    }

    fn admit(&mut self, waiting: usize, path: Vec<BlockId>) {
        let mut row = self.waiting.remove(waiting).expect("the request to admit is waiting");
        row.computed = path.len() * BLOCK_TOKENS;
        row.reused.get_or_insert(row.computed);
        row.table = self.cache.acquire(path);
        self.running.push(row);
        self.promise_next_block(self.running.len() - 1);
    }

    /// The youngest row gives its blocks back and waits at the front of the queue.
    fn preempt_youngest(&mut self) {
        let mut row = self.running.pop().expect("one row alone fits: checked before it was submitted");
        forget_promise(&mut self.promises, &mut row);
        self.cache.release(std::mem::take(&mut row.table));
        row.computed = 0;
        self.waiting.push_front(row);
        self.preemptions += 1;
    }

    /// Says which block the row computes next, in place of the one it said before.
    fn promise_next_block(&mut self, index: usize) {
        let row = &mut self.running[index];
        forget_promise(&mut self.promises, row);
        row.promise = self.cache.next_edge(&row.table, &row.tokens);
        if let Some(edge) = row.promise {
            self.promises.entry(edge).or_insert(row.id);
        }
    }
}

fn forget_promise(promises: &mut HashMap<Edge, RequestId>, row: &mut Row) {
    if let Some(edge) = row.promise.take()
        && promises.get(&edge) == Some(&row.id)
    {
        promises.remove(&edge);
    }
}

/// What is left of a step.
struct Budget {
    /// Prompt tokens.
    tokens: usize,
    /// Logits of rows with [`Outputs::From`].
    outputs: usize,
}

impl Row {
    /// The tokens up to the first whose logits are wanted: all before that one may come from the cache.
    fn up_to_first_output(&self) -> &[u32] {
        match self.outputs {
            Outputs::Last => &self.tokens,
            Outputs::From(first) => &self.tokens[..=first],
        }
    }

    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    pub(crate) fn blocks(&self) -> &[BlockId] {
        self.table.blocks()
    }

    /// Prompt tokens that were in the cache when the request was first admitted.
    pub(crate) fn reused(&self) -> usize {
        self.reused.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A model in which everything about a token prefix is one number.
    fn fingerprint(tokens: &[u32]) -> u64 {
        tokens.iter().fold(7, |hash, &token| (hash ^ u64::from(token)).wrapping_mul(0x0100_0000_01b3).rotate_left(23))
    }

    fn next_token(tokens: &[u32]) -> u32 {
        (fingerprint(tokens) % 5) as u32
    }

    /// Drives a scheduler over a fake cache that remembers for each slot which prefix wrote it, and checks every read.
    struct Harness {
        scheduler: Scheduler,
        slots: Vec<[u64; BLOCK_TOKENS]>,
        /// Tokens to generate, by request.
        wanted: BTreeMap<RequestId, usize>,
        prompts: BTreeMap<RequestId, Vec<u32>>,
        finished: BTreeMap<RequestId, Vec<u32>>,
        /// First wanted position of a forced request, and what its wanted positions gave.
        forced: BTreeMap<RequestId, (usize, BTreeMap<usize, u64>)>,
        computed_tokens: usize,
        most_rows: usize,
        most_forced_outputs: usize,
    }

    impl Harness {
        fn new(blocks: usize, reuses_prefixes: bool, max_batch: usize, prefill_chunk: usize) -> Self {
            Harness {
                scheduler: Scheduler::new(Limits { max_batch, prefill_chunk }, Cache::new(blocks, reuses_prefixes)),
                slots: vec![[0; BLOCK_TOKENS]; blocks],
                wanted: BTreeMap::new(),
                prompts: BTreeMap::new(),
                finished: BTreeMap::new(),
                forced: BTreeMap::new(),
                computed_tokens: 0,
                most_rows: 0,
                most_forced_outputs: 0,
            }
        }

        fn submit(&mut self, id: RequestId, prompt: Vec<u32>, wanted: usize) {
            self.wanted.insert(id, wanted);
            self.prompts.insert(id, prompt.clone());
            self.scheduler.submit(id, prompt, Outputs::Last);
        }

        /// A request that generates nothing and wants the logits of every token from `first` on.
        fn submit_forced(&mut self, id: RequestId, tokens: Vec<u32>, first: usize) {
            self.forced.insert(id, (first, BTreeMap::new()));
            self.prompts.insert(id, tokens.clone());
            self.scheduler.submit(id, tokens, Outputs::From(first));
        }

        fn step(&mut self) {
            let spans = self.scheduler.schedule();
            self.most_rows = self.most_rows.max(spans.len());
            for span in &spans {
                let row = &self.scheduler.rows()[span.row];
                for position in span.start..span.start + span.len {
                    self.slots[row.blocks()[position / BLOCK_TOKENS] as usize][position % BLOCK_TOKENS] =
                        fingerprint(&row.tokens()[..=position]);
                }
                self.computed_tokens += span.len;
            }
            for span in &spans {
                let row = &self.scheduler.rows()[span.row];
                for position in 0..span.start + span.len {
                    let slot = self.slots[row.blocks()[position / BLOCK_TOKENS] as usize][position % BLOCK_TOKENS];
                    assert_eq!(
                        slot,
                        fingerprint(&row.tokens()[..=position]),
                        "row {} reads position {position}",
                        row.id
                    );
                }
            }
            self.scheduler.commit(&spans);
            let mut ended = Vec::new();
            let mut forced_outputs = 0;
            for span in &spans {
                let row = &self.scheduler.rows()[span.row];
                let end = span.start + span.len;
                if let Some((_, seen)) = self.forced.get_mut(&row.id) {
                    forced_outputs += span.outputs;
                    seen.extend((end - span.outputs..end).map(|at| (at, fingerprint(&row.tokens()[..=at]))));
                    if span.is_last {
                        self.finished.insert(row.id, Vec::new());
                        ended.push(row.id);
                    }
                } else {
                    assert_eq!(span.outputs, usize::from(span.is_last));
                }
            }
            self.most_forced_outputs = self.most_forced_outputs.max(forced_outputs);
            for span in spans.iter().filter(|span| span.is_last) {
                let row = &self.scheduler.rows()[span.row];
                let (id, token) = (row.id, next_token(row.tokens()));
                if self.forced.contains_key(&id) {
                    continue;
                }
                self.scheduler.append(span.row, token);
                let generated = &self.scheduler.rows()[span.row].tokens()[self.prompts[&id].len()..];
                if generated.len() == self.wanted[&id] {
                    self.finished.insert(id, generated.to_vec());
                    ended.push(id);
                }
            }
            self.scheduler.finish(|id| ended.contains(&id));
        }

        fn run(&mut self) {
            let bound = 10_000;
            for _ in 0..bound {
                if self.scheduler.is_idle() {
                    return;
                }
                self.step();
            }
            panic!("not done after {bound} steps");
        }

        fn check_finished_alone(&self) {
            for (id, generated) in &self.finished {
                let mut tokens = self.prompts[id].clone();
                for &token in generated {
                    assert_eq!(token, next_token(&tokens), "request {id}");
                    tokens.push(token);
                }
            }
            for (id, (first, seen)) in self.forced.iter().filter(|(id, _)| self.finished.contains_key(id)) {
                let tokens = &self.prompts[id];
                let wanted = (*first..tokens.len()).map(|at| (at, fingerprint(&tokens[..=at])));
                assert!(seen.iter().map(|(at, value)| (*at, *value)).eq(wanted), "every wanted position of {id}");
            }
            assert_eq!(self.scheduler.cache().available(), self.slots.len(), "all blocks come back");
            assert!(self.scheduler.promises.is_empty());
        }
    }

    fn shared_prompt(shared: usize, own: u32, own_len: usize) -> Vec<u32> {
        let mut tokens: Vec<u32> = (0..shared as u32).collect();
        tokens.extend(vec![1000 + own; own_len]);
        tokens
    }

    #[test]
    fn five_seeds_of_one_prompt_prefill_it_once() {
        let mut harness = Harness::new(100, true, 8, 256);
        for id in 0..5 {
            harness.submit(id, shared_prompt(550, 0, 0), 1);
        }
        harness.run();
        // 34 whole blocks once; the six tokens after them for each.
        assert_eq!(harness.computed_tokens, 544 + 5 * 6);
        harness.check_finished_alone();
    }

    #[test]
    fn targets_behind_one_demonstration_prefill_it_once_while_others_go_on() {
        let mut harness = Harness::new(400, true, 16, 64);
        for id in 0..8 {
            harness.submit(id, shared_prompt(400, id as u32, 20), 4);
        }
        harness.submit(8, vec![5; 20], 1);
        harness.step();
        assert_eq!(harness.most_rows, 1, "the chunk is spent on the demonstration");
        for _ in 0..6 {
            harness.step();
        }
        assert!(harness.finished.contains_key(&8), "a request with another prefix does not wait");
        assert_eq!(harness.finished.len(), 1);
        harness.run();
        assert_eq!(harness.computed_tokens, 400 + 8 * 20 + 8 * 3 + 20);
        harness.check_finished_alone();
    }

    #[test]
    fn decoding_rows_are_not_held_up_by_a_long_prefill() {
        let mut harness = Harness::new(100, true, 4, 16);
        harness.submit(0, vec![1, 2, 3], 20);
        harness.step();
        harness.submit(1, vec![9; 160], 1);
        for _ in 0..10 {
            let spans = harness.scheduler.schedule();
            assert_eq!(spans.iter().map(|span| span.len).collect::<Vec<_>>(), [1, 16]);
            harness.scheduler.commit(&spans);
            harness.scheduler.append(0, 4);
        }
    }

    #[test]
    fn youngest_row_is_preempted_and_nothing_changes() {
        let mut harness = Harness::new(6, true, 4, 64);
        for id in 0..3 {
            harness.submit(id, vec![id as u32; 14], 40);
        }
        harness.run();
        assert!(harness.scheduler.preemptions() > 0);
        harness.check_finished_alone();
    }

    #[test]
    fn cancelled_requests_give_their_blocks_back() {
        let mut harness = Harness::new(40, true, 3, 16);
        for id in 0..8 {
            harness.submit(id, shared_prompt(40, id as u32, 20), 10);
        }
        for _ in 0..6 {
            harness.step();
        }
        harness.scheduler.cancel(|id| id % 2 == 0);
        harness.run();
        assert_eq!(harness.finished.keys().copied().collect::<Vec<_>>(), [1, 3, 5, 7]);
        harness.check_finished_alone();
    }

    #[test]
    fn batch_limit_is_reached_and_kept() {
        let mut harness = Harness::new(100, true, 3, 100);
        for id in 0..9 {
            harness.submit(id, vec![id as u32; 4], 5);
        }
        harness.run();
        assert_eq!(harness.most_rows, 3);
    }

    #[test]
    fn forced_rows_share_their_prompt_and_compute_every_wanted_position() {
        let mut harness = Harness::new(200, true, 8, 256);
        for id in 0..5 {
            harness.submit_forced(id, shared_prompt(550, id as u32, 30), 549);
        }
        harness.run();
        // 34 whole blocks once; six tokens of the prompt and the thirty wanted ones for each.
        assert_eq!(harness.computed_tokens, 544 + 5 * 36);
        harness.check_finished_alone();
        // The same again: all is in the cache, and what is wanted is computed nevertheless.
        harness.submit_forced(5, shared_prompt(550, 0, 30), 549);
        harness.run();
        assert_eq!(harness.computed_tokens, 544 + 6 * 36);
        harness.check_finished_alone();
    }

    #[test]
    fn logits_of_forced_rows_are_bounded_in_every_step() {
        let mut harness = Harness::new(400, true, 8, 2048);
        for id in 0..4 {
            harness.submit_forced(id, vec![id as u32; 700], 10);
        }
        harness.submit(4, vec![9; 40], 3);
        harness.run();
        assert_eq!(harness.most_forced_outputs, 512);
        harness.check_finished_alone();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn whatever_the_limits_every_row_reads_its_own_prefix(
            prompts in prop::collection::vec((0u32..3, 0usize..40, 0u32..3, 1usize..40, 1usize..30), 1..14),
            blocks in 8usize..24,
            reuses_prefixes in any::<bool>(),
            max_batch in 1usize..6,
            chunk in 1usize..50,
            late in 0usize..14,
            cancelled in prop::collection::vec((0usize..30, 0u64..14), 0..4),
        ) {
            let mut harness = Harness::new(blocks, reuses_prefixes, max_batch, chunk);
            for (id, (first, first_len, second, second_len, wanted)) in prompts.iter().enumerate() {
                if id == late {
                    harness.step();
                    harness.step();
                }
                let mut prompt = vec![*first; *first_len];
                prompt.extend(vec![*second; *second_len]);
                match wanted % 3 {
                    0 => harness.submit_forced(id as RequestId, prompt, *first_len),
                    _ => harness.submit(id as RequestId, prompt, *wanted),
                }
            }
            for step in 0..30 {
                for (at, id) in &cancelled {
                    if *at == step {
                        harness.scheduler.cancel(|other| other == *id);
                    }
                }
                harness.step();
            }
            harness.run();
            let ended = |id: &u64| harness.finished.contains_key(id) || cancelled.iter().any(|(_, other)| other == id);
            prop_assert!((0..prompts.len() as u64).all(|id| ended(&id)));
            harness.check_finished_alone();
        }
    }
}
