//! A step cut in pieces: a thread takes some of its rows through a whole layer.
//!
//! ```text
//! piece 0   embed, norm, qkv ─┐       ┌─ attention, output, mlp, the next qkv ─┐       ┌─ …
//! piece 1   embed, norm, qkv ─┴─ k, v ┴─ attention, output, mlp, the next qkv ─┴─ k, v ┴─ …
//! ```
//!
//! Cut by columns, as operations do by themselves, the threads meet behind each of the ten operations of a layer, and what one
//! wrote the others fetch from its core. Cut by rows they meet twice a layer, and activations stay where they are. Each piece
//! reads all weights, so it has to hold enough rows. Rows do not depend on the rows beside them, so cuts change no bit.

use std::ops::Range;

use lifelong_kernels::ops::kv::{self, NewRows};
use lifelong_kernels::{BLOCK_TOKENS, Device, KvCache, Segment};

use crate::architecture::{Batch, Geometry, Scratch};
use crate::error::Result;
use crate::layers::attention::Attention;
use crate::layers::rope::Rotary;

/// Rows of a piece at least, with weights of a byte or less.
const ROWS: usize = 4;
/// Rows of a piece from which on there is one more for each thread, so that a thread that is done early takes another.
const MANY_ROWS: usize = 128;

/// The layers of a decoder whose operations each keep to the rows they are given.
pub(crate) trait Stack: Sync {
    fn layers(&self) -> usize;

    /// Leaves the rows' states in `scratch.residual` and their first norm in `scratch.normed`.
    fn begin(&self, device: &Device, tokens: &[u32], scratch: &mut Scratch) -> Result<()>;

    fn attention(&self, layer: usize) -> (&Attention, Option<&Rotary>);

    /// Goes on from attention's output in `scratch.projected` to the norm before the next layer, in `scratch.normed`.
    fn finish(&self, device: &Device, layer: usize, rows: usize, scratch: &mut Scratch) -> Result<()>;
}

/// Some rows of a step, and what of them is between the layers.
#[derive(Debug)]
pub(crate) struct Piece {
    rows: Range<usize>,
    segments: Vec<Segment>,
    scratch: Scratch,
    outcome: Result<()>,
}

impl Default for Piece {
    fn default() -> Self {
        Piece { rows: 0..0, segments: Vec::new(), scratch: Scratch::default(), outcome: Ok(()) }
    }
}

/// Cuts a step for the threads of the device and takes it through the layers: leaves their last norm `[T, H]` in
/// `scratch.normed`. `false` when it is not worth a cut; then nothing has been done. A layer's keys and values lie in layer
/// `place(layer)` of the cache.
pub(crate) fn forward(
    stack: &impl Stack,
    geometry: &Geometry,
    device: &Device,
    batch: &Batch,
    cache: &mut KvCache,
    place: impl Fn(usize) -> usize + Sync,
    scratch: &mut Scratch,
) -> Result<bool> {
    let count = pieces(device, geometry, batch.tokens.len());
    if count < 2 || !are_in_order(batch) {
        return Ok(false);
    }
    let mut own = std::mem::take(&mut scratch.pieces);
    own.resize_with(count.max(own.len()), Piece::default);
    let pieces = &mut own[..count];
    cut(batch, pieces);
    if !is_even(geometry, pieces) {
        scratch.pieces = own;
        return Ok(false);
    }
    let outcome = run(stack, device, batch, cache, place, pieces);
    if outcome.is_ok() {
        let normed = scratch.normed.take(device, batch.tokens.len() * geometry.hidden)?;
        for Piece { rows, scratch, .. } in pieces {
            normed[rows.start * geometry.hidden..rows.end * geometry.hidden].copy_from_slice(&scratch.normed);
        }
    }
    scratch.pieces = own;
    outcome.map(|()| true)
}

/// Takes the texts of an encoder through it: pieces of them side by side where they are enough and even, else all at once. `pass`
/// leaves the states of texts (tokens, lengths) in its part of `hidden`.
pub(crate) fn texts(
    device: &Device,
    geometry: &Geometry,
    (tokens, lengths): (&[u32], &[usize]),
    hidden: &mut [f32],
    scratch: &mut Scratch,
    pass: impl Fn((&[u32], &[usize]), &mut [f32], &mut Scratch) -> Result<()> + Sync,
) -> Result<()> {
    let count = pieces(device, geometry, tokens.len());
    let runs = if count > 1 { runs(lengths, count) } else { None };
    let Some(runs) = runs else { return pass((tokens, lengths), hidden, scratch) };
    scratch.pieces.resize_with(runs.len().max(scratch.pieces.len()), Piece::default);
    let (mut tokens, mut hidden) = (tokens, hidden);
    let mut shares: Vec<_> = (runs.into_iter().zip(&mut scratch.pieces))
        .map(|(run, piece)| {
            let lengths = &lengths[run];
            let (own, states) = (lengths.iter().sum(), lengths.iter().sum::<usize>() * geometry.hidden);
            let texts = (tokens.split_off(..own).unwrap_or_default(), lengths);
            (texts, hidden.split_off_mut(..states).unwrap_or_default(), piece)
        })
        .collect();
    device.run_each(&mut shares, |_, (texts, hidden, piece)| piece.outcome = pass(*texts, hidden, &mut piece.scratch));
    shares.into_iter().try_for_each(|(_, _, piece)| std::mem::replace(&mut piece.outcome, Ok(())))
}

/// Cuts texts into at most so many runs of about as many tokens; `None` where one would be a quarter longer than the mean, with
/// which a thread would be left alone.
fn runs(lengths: &[usize], count: usize) -> Option<Vec<Range<usize>>> {
    let total: usize = lengths.iter().sum();
    let (mut runs, mut start, mut tokens, mut before) = (Vec::with_capacity(count), 0, 0, 0);
    for (text, length) in lengths.iter().enumerate() {
        tokens += length;
        if tokens * count >= total * (runs.len() + 1) {
            if (tokens - before) * count * 4 > total * 5 {
                return None;
            }
            runs.push(start..text + 1);
            (start, before) = (text + 1, tokens);
        }
    }
    Some(runs)
}

/// The pieces that so many rows are worth: 1 where threads had better share the columns of each operation.
///
/// More threads share what memory gives, so each wants more rows for the weights that it reads, and more for wider weights; how
/// wide they are in the file says about enough. A member of a group exchanges parts of sums inside of an operation, so its
/// operations may not run side by side.
fn pieces(device: &Device, geometry: &Geometry, rows: usize) -> usize {
    let threads = device.threads();
    if device.is_gpu() || threads == 1 || !device.is_alone() {
        return 1;
    }
    let bytes = geometry.weight_bytes as f64 / geometry.parameters.max(1) as f64;
    let least = (threads.max(ROWS) as f64 * bytes.max(1.0)).round() as usize;
    if rows < least * threads {
        return 1;
    }
    rows.div_ceil(MANY_ROWS).next_multiple_of(threads).min(rows / least)
}

/// Whether segments follow each other inside of the rows; operations over all rows refuse others by name.
fn are_in_order(batch: &Batch) -> bool {
    let end = |segment: &Segment| segment.query_start + segment.query_len;
    batch.segments.is_sorted_by(|a, b| end(a) <= b.query_start)
        && batch.segments.last().is_none_or(|last| end(last) <= batch.tokens.len())
}

/// Gives every piece its rows: as many as the others, but that a request's tokens for one block of the cache stay together.
fn cut(batch: &Batch, pieces: &mut [Piece]) {
    let (rows, count) = (batch.tokens.len(), pieces.len());
    let mut start = 0;
    for (index, piece) in pieces.iter_mut().enumerate() {
        let end = at_block(batch.segments, rows * (index + 1) / count).max(start);
        piece.rows = start..end;
        piece.segments.clear();
        piece.segments.extend(batch.segments.iter().filter_map(|segment| part(segment, &piece.rows)));
        start = end;
    }
}

/// Whether no piece takes a quarter longer than the mean: a thread would be left alone with it, where the threads could have
/// shared its columns, heads and splits.
fn is_even(geometry: &Geometry, pieces: &[Piece]) -> bool {
    // Multiply-adds of a row with all weights, and with one position that it sees; these at half the rate.
    let (row, position) = (geometry.parameters, 2 * 2 * geometry.layers * geometry.heads * geometry.head_dim);
    let costs = pieces.iter().map(|piece| {
        let seen = |segment: &Segment| segment.query_len * (2 * segment.context_len + segment.query_len + 1) / 2;
        let seen: usize = piece.segments.iter().map(seen).sum();
        piece.rows.len() as u64 * row + (seen * position) as u64
    });
    let (longest, all) = costs.fold((0, 0), |(longest, all), cost| (cost.max(longest), all + cost));
    longest * pieces.len() as u64 * 4 <= all * 5
}

/// The first row from `row` on that is the first of its segment or of a block.
fn at_block(segments: &[Segment], row: usize) -> usize {
    let inside = |segment: &&Segment| (segment.query_start + 1..segment.query_start + segment.query_len).contains(&row);
    match segments.iter().find(inside) {
        Some(Segment { query_start, query_len, context_len, .. }) => {
            let position = (context_len + row - query_start).next_multiple_of(BLOCK_TOKENS);
            query_start + (position - context_len).min(*query_len)
        }
        None => row,
    }
}

/// What of a segment lies in these rows, counted from their first.
fn part(segment: &Segment, rows: &Range<usize>) -> Option<Segment> {
    let start = segment.query_start.max(rows.start);
    let end = (segment.query_start + segment.query_len).min(rows.end);
    (start < end).then(|| Segment {
        query_start: start - rows.start,
        query_len: end - start,
        context_len: segment.context_len + start - segment.query_start,
        table: segment.table.clone(),
    })
}

fn run(
    stack: &impl Stack,
    device: &Device,
    batch: &Batch,
    cache: &mut KvCache,
    place: impl Fn(usize) -> usize + Sync,
    pieces: &mut [Piece],
) -> Result<()> {
    for layer in 0..=stack.layers() {
        let written = &*cache;
        device.run_each(pieces, |_, Piece { rows, segments, scratch, outcome }| {
            let (tokens, positions) = (&batch.tokens[rows.clone()], &batch.positions[rows.clone()]);
            let batch = Batch { tokens, positions, segments, tables: batch.tables, outputs: &[] };
            *outcome = pass(stack, device, &batch, written, layer, &place, scratch);
        });
        pieces.iter_mut().try_for_each(|piece| std::mem::replace(&mut piece.outcome, Ok(())))?;
        if layer < stack.layers() {
            let new: Vec<NewRows<'_>> = (pieces.iter())
                .map(|Piece { segments, scratch, .. }| NewRows { k: &scratch.key, v: &scratch.value, segments })
                .collect();
            kv::write_pieces(device, cache, place(layer), &new, batch.tables)?;
        }
    }
    Ok(())
}

/// Ends the layer before `layer` and begins this one, as far as its keys and values.
fn pass(
    stack: &impl Stack,
    device: &Device,
    batch: &Batch,
    cache: &KvCache,
    layer: usize,
    place: &impl Fn(usize) -> usize,
    scratch: &mut Scratch,
) -> Result<()> {
    match layer.checked_sub(1) {
        Some(last) => {
            stack.attention(last).0.attend(device, batch, cache, place(last), scratch)?;
            stack.finish(device, last, batch.tokens.len(), scratch)?;
        }
        None => stack.begin(device, batch.tokens, scratch)?,
    }
    if layer == stack.layers() {
        return Ok(());
    }
    let (attention, rotary) = stack.attention(layer);
    attention.query_key_value(device, batch.positions, rotary, scratch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(query_start: usize, query_len: usize, context_len: usize) -> Segment {
        Segment { query_start, query_len, context_len, table: 0..0 }
    }

    #[test]
    fn pieces_cover_all_rows_and_keep_the_tokens_of_a_block_together() {
        // A prompt from position 5 on, three rows that decode, and another prompt.
        let segments =
            [segment(0, 40, 5), segment(40, 1, 7), segment(41, 1, 90), segment(42, 1, 0), segment(43, 20, 0)];
        let tokens = [0; 63];
        let batch = Batch { tokens: &tokens, positions: &tokens, segments: &segments, tables: &[], outputs: &[] };
        for count in [2, 3, 4, 7, 15] {
            let mut pieces: Vec<Piece> = std::iter::repeat_with(Piece::default).take(count).collect();
            cut(&batch, &mut pieces);
            let mut row = 0;
            for Piece { rows, segments: own, .. } in &pieces {
                assert_eq!(rows.start, row);
                row = rows.end;
                assert_eq!(own.iter().map(|segment| segment.query_len).sum::<usize>(), rows.len());
                for own in own {
                    let at = rows.start + own.query_start;
                    let of = segments.iter().rfind(|segment| segment.query_start <= at).unwrap();
                    assert_eq!(own.context_len - of.context_len, at - of.query_start);
                    let is_first = at == of.query_start || own.context_len.is_multiple_of(BLOCK_TOKENS);
                    assert!(is_first, "{count} pieces: row {at} is inside of a block");
                }
            }
            assert_eq!(row, 63);
        }
    }

    /// A model's step is cut indeed, and what its segments get wrong is said as on one thread.
    #[test]
    fn steps_are_cut_and_segments_out_of_place_are_refused() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama-gguf-q8_0");
        let rows: [u32; 16] = std::array::from_fn(|row| row as u32);
        let fresh = || (0..16).map(|row| Segment { table: row..row + 1, ..segment(row, 1, 0) }).collect::<Vec<_>>();
        let step = |threads, segments: &[Segment]| {
            let device = Device::cpu(threads);
            let model = crate::load_decoder(&crate::Checkpoint::open(&path).unwrap(), &device).unwrap();
            let mut cache = KvCache::new(&device, model.geometry().kv(16)).unwrap();
            let mut scratch = Scratch::default();
            let batch = Batch { tokens: &rows, positions: &[0; 16], segments, tables: &rows, outputs: &[15] };
            let outcome = model.forward(&device, &batch, &mut cache, &mut scratch, &mut Default::default());
            let cut: Vec<Range<usize>> = scratch.pieces.iter().map(|piece| piece.rows.clone()).collect();
            (cut, outcome.map_err(|error| error.to_string()))
        };
        assert_eq!(step(2, &fresh()), (vec![0..8, 8..16], Ok(())));
        assert_eq!(step(1, &fresh()), (vec![], Ok(())));
        let (mut swapped, mut beyond) = (fresh(), fresh());
        swapped.swap(2, 12);
        beyond[15].query_len = 2;
        for segments in [swapped, beyond] {
            let (cut, outcome) = step(2, &segments);
            assert!(cut.is_empty() && outcome.is_err(), "{outcome:?}");
            assert_eq!(outcome, step(1, &segments).1);
        }
    }

    #[test]
    fn uneven_pieces_are_left_whole() {
        let geometry = Geometry { parameters: 100_000, head_dim: 4, ..geometry_of_nothing() };
        let is_even = |segments: &[Segment], count: usize| {
            let tokens = vec![0; segments.iter().map(|segment| segment.query_len).sum()];
            let batch = Batch { tokens: &tokens, positions: &tokens, segments, tables: &[], outputs: &[] };
            let mut pieces: Vec<Piece> = std::iter::repeat_with(Piece::default).take(count).collect();
            cut(&batch, &mut pieces);
            is_even(&geometry, &pieces)
        };
        let decoding = |context: [usize; 8]| std::array::from_fn::<_, 8, _>(|row| segment(row, 1, context[row]));
        assert!(
            is_even(&decoding([50; 8]), 2) && is_even(&[segment(0, 128, 0)], 2) && is_even(&[segment(0, 64, 0)], 2)
        );
        // All tokens of a block in one piece, and one row that sees far more than the others.
        assert!(
            !is_even(&[segment(0, 16, 0)], 2) && !is_even(&[segment(0, 40, 0)], 2) && !is_even(&[segment(0, 64, 0)], 8)
        );
        assert!(!is_even(&decoding([50, 50, 50, 50, 50, 50, 50, 50_000]), 2));
    }

    #[test]
    fn runs_of_texts_are_even_and_leave_none_out() {
        assert_eq!(runs(&[63; 8], 4), Some(vec![0..2, 2..4, 4..6, 6..8]));
        assert_eq!(runs(&[9, 9, 9, 9, 9], 2), Some(vec![0..3, 3..5]));
        assert_eq!(runs(&[100, 40, 30, 30, 20, 16, 12], 2), Some(vec![0..2, 2..7]));
        assert_eq!((runs(&[100, 1, 1], 2), runs(&[1, 1, 1, 100], 3), runs(&[5], 4)), (None, None, None));
    }

    #[test]
    fn few_rows_wide_weights_and_many_threads_are_not_cut() {
        let geometry = |bytes| Geometry { parameters: 1_000, weight_bytes: bytes, ..geometry_of_nothing() };
        let count = |threads, bytes, rows| pieces(&Device::cpu(threads), &geometry(bytes), rows);
        assert_eq!((count(1, 625, 512), count(2, 625, 7), count(2, 625, 8), count(2, 625, 9)), (1, 1, 2, 2));
        assert_eq!((count(2, 1_063, 8), count(2, 2_000, 15), count(2, 2_000, 16), count(2, 4_000, 31)), (2, 1, 2, 1));
        assert_eq!((count(2, 625, 512), count(3, 625, 512), count(8, 625, 63), count(8, 625, 64)), (4, 6, 1, 8));
    }

    fn geometry_of_nothing() -> Geometry {
        Geometry {
            architecture: String::new(),
            layers: 1,
            hidden: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 1,
            key_bias: false,
            feed_forward: 1,
            vocab: 1,
            context: 1,
            state_layers: 0,
            state_values: 0,
            parameters: 1,
            weight_bytes: 1,
        }
    }
}
