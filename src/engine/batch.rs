//! The packed arrays of one step.

use lifelong_kernels::Segment;
use lifelong_models::architecture::Batch;

use super::scheduler::{Row, Span};

/// All spans of a step one after the other, without padding. Kept between steps for its memory.
///
/// ```text
/// spans      row 0: position 41          row 1: positions 0..4
/// tokens     [ t41                       t0 t1 t2 t3 ]
/// positions  [ 41                        0  1  2  3  ]
/// tables     [ blocks of row 0 …         blocks of row 1 … ]
/// outputs    [ 0                                  4  ]          tokens whose logits are wanted: the last, or more
/// ```
#[derive(Debug, Default)]
pub(crate) struct PackedBatch {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    segments: Vec<Segment>,
    tables: Vec<u32>,
    outputs: Vec<usize>,
}

impl PackedBatch {
    /// Replaces the contents by these spans of these rows.
    pub(crate) fn pack(&mut self, spans: &[Span], rows: &[Row]) {
        let PackedBatch { tokens, positions, segments, tables, outputs } = self;
        tokens.clear();
        positions.clear();
        segments.clear();
        tables.clear();
        outputs.clear();
        for span in spans {
            let (row, end) = (&rows[span.row], span.start + span.len);
            let (query_start, table_start) = (tokens.len(), tables.len());
            tokens.extend_from_slice(&row.tokens()[span.start..end]);
            positions.extend((span.start..end).map(|position| position as u32));
            tables.extend_from_slice(row.blocks());
            segments.push(Segment {
                query_start,
                query_len: span.len,
                context_len: span.start,
                table: table_start..tables.len(),
            });
            outputs.extend(tokens.len() - span.outputs..tokens.len());
        }
    }

    /// Tokens of the step.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens.len()
    }

    pub(crate) fn view(&self) -> Batch<'_> {
        let PackedBatch { tokens, positions, segments, tables, outputs } = self;
        Batch { tokens, positions, segments, tables, outputs }
    }
}
