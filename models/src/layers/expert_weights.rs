//! How the containers hold experts: one by one, stacked, gate and up apart or together, and as 4-bit floats.

use lifelong_kernels::{Format, Matrix, Values};

use super::linear::{Bias, Linear};
use super::mlp::GatedMlp;
use crate::config::{ExpertGate, Mixture};
use crate::error::Result;
use crate::names::Names;
use crate::weights::Weights;

/// `down(f(gate(x), up(x)))`
pub(crate) struct Expert {
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
}

/// An expert that every token goes to, and its gate.
pub(crate) struct SharedExpert {
    pub mlp: GatedMlp,
    pub gate: Linear,
}

/// The shared expert of a layer.
pub(crate) fn shared(
    weights: &mut Weights,
    names: &Names,
    layer: usize,
    hidden: usize,
    width: usize,
) -> Result<SharedExpert> {
    let is_gguf = weights.checkpoint.gguf().is_some();
    let (parts, gate) = match is_gguf {
        true => (["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"], "ffn_gate_inp_shexp"),
        false => {
            let parts = ["mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj", "mlp.shared_expert.down_proj"];
            (parts, "mlp.shared_expert_gate")
        }
    };
    let mlp = GatedMlp::load_named(weights, parts.map(|part| names.layer(layer, part)), hidden, width)?;
    let gate = format!("{}.weight", names.layer(layer, gate));
    // GGUF files leave out the one row's dimension.
    let is_vector = weights.checkpoint.shape(&gate).is_some_and(|shape| shape.len() == 1);
    let gate = match is_vector {
        true => Matrix::f32_on(weights.device, 1, hidden, &weights.vector(&gate, hidden)?)?,
        false => weights.matrix(&gate, 1, hidden)?,
    };
    Ok(SharedExpert { mlp, gate: Linear::new(gate, None) })
}

/// A tensor of three dimensions as one weight an expert, and biases `[n]` of each.
struct Stack {
    weights: Vec<Matrix>,
    biases: Option<Vec<Values>>,
}

impl Stack {
    fn into_linears(self) -> impl Iterator<Item = Linear> {
        let Stack { weights, biases } = self;
        let mut biases = biases.map(Vec::into_iter);
        weights.into_iter().map(move |weight| Linear::new(weight, biases.as_mut().and_then(Iterator::next)))
    }
}

/// The name of a layer's router.
pub(crate) fn router(weights: &Weights, names: &Names, layer: usize) -> String {
    let named = |part: &str| names.layer(layer, part);
    if weights.checkpoint.gguf().is_some() {
        return named("ffn_gate_inp");
    }
    let other = named("mlp.router");
    if weights.checkpoint.contains(&format!("{other}.weight")) { other } else { named("mlp.gate") }
}

/// The experts of one layer, by number.
pub(crate) fn load(
    weights: &mut Weights,
    names: &Names,
    layer: usize,
    hidden: usize,
    mixture: &Mixture,
) -> Result<Vec<Expert>> {
    let Mixture { experts, feed_forward, biases, .. } = *mixture;
    let bias = Bias::from(biases);
    let together = format!("{}.weight", names.layer(layer, "ffn_gate_up_exps"));
    if weights.checkpoint.contains(&together) {
        let (gate, up) = halves(weights, &together, [experts, feed_forward, hidden])?;
        let down = stack(weights, &names.layer(layer, "ffn_down_exps"), [experts, hidden, feed_forward], bias)?;
        return Ok(zipped(gate, up, down));
    }
    if weights.checkpoint.gguf().is_some() {
        let mut stack = |part: &str, n, k| stack(weights, &names.layer(layer, part), [experts, n, k], bias);
        let gate = stack("ffn_gate_exps", feed_forward, hidden)?;
        let up = stack("ffn_up_exps", feed_forward, hidden)?;
        return Ok(zipped(gate, up, stack("ffn_down_exps", hidden, feed_forward)?));
    }
    let stem = names.layer(layer, "mlp.experts");
    let [gate_up, down] = ["gate_up_proj", "down_proj"].map(|part| format!("{stem}.{part}"));
    let holds = |name: &str| weights.checkpoint.contains(name);
    if holds(&format!("{gate_up}_blocks")) {
        let (gate, up) = in_turns(weights, &gate_up, [experts, feed_forward, hidden], bias, four_bit_rows)?;
        let rows = four_bit_rows(weights, &down, [experts, hidden, feed_forward])?;
        return Ok(zipped(gate, up, stack_of(weights, &down, rows, [experts, hidden, feed_forward], bias)?));
    }
    if !holds(&gate_up) {
        return one_by_one(weights, &stem, hidden, mixture);
    }
    if let ExpertGate::Clamped { .. } = mixture.gate {
        let (gate, up) = in_turns(weights, &gate_up, [experts, feed_forward, hidden], bias, transposed_rows)?;
        let rows = transposed_rows(weights, &down, [experts, hidden, feed_forward])?;
        return Ok(zipped(gate, up, stack_of(weights, &down, rows, [experts, hidden, feed_forward], bias)?));
    }
    let (gate, up) = halves(weights, &gate_up, [experts, feed_forward, hidden])?;
    let rows = plain_rows(weights, &down, [experts, hidden, feed_forward])?;
    Ok(zipped(gate, up, stack_of(weights, &down, rows, [experts, hidden, feed_forward], bias)?))
}

/// Gate and up out of `[E, 2n, k]` rows, those of up behind those of gate, without biases.
fn halves(weights: &mut Weights, name: &str, [experts, n, k]: [usize; 3]) -> Result<(Stack, Stack)> {
    let rows = plain_rows(weights, name, [experts, 2 * n, k])?;
    let mut half = |first: usize| -> Result<Stack> {
        let weights = rows.matrices(weights, name, [experts, n, k], |expert, row| expert * 2 * n + first + row)?;
        Ok(Stack { weights, biases: None })
    };
    Ok((half(0)?, half(n)?))
}

fn zipped(gate: Stack, up: Stack, down: Stack) -> Vec<Expert> {
    let parts = gate.into_linears().zip(up.into_linears()).zip(down.into_linears());
    parts.map(|((gate, up), down)| Expert { gate, up, down }).collect()
}

/// `{stem}.{expert}.gate_proj.weight` and so on.
fn one_by_one(weights: &mut Weights, stem: &str, hidden: usize, mixture: &Mixture) -> Result<Vec<Expert>> {
    let Mixture { experts, feed_forward, biases, .. } = *mixture;
    let mut linear = |expert: usize, part: &str, n, k| {
        Linear::load(weights, &format!("{stem}.{expert}.{part}"), n, k, Bias::from(biases))
    };
    let expert = |expert| {
        Ok(Expert {
            gate: linear(expert, "gate_proj", feed_forward, hidden)?,
            up: linear(expert, "up_proj", feed_forward, hidden)?,
            down: linear(expert, "down_proj", hidden, feed_forward)?,
        })
    };
    (0..experts).map(expert).collect()
}

/// `{name}.weight` `[E, n, k]` and `{name}.bias` `[E, n]`, as GGUF files hold them.
fn stack(weights: &mut Weights, name: &str, shape: [usize; 3], bias: Bias) -> Result<Stack> {
    let rows = plain_rows(weights, &format!("{name}.weight"), shape)?;
    let [experts, n, _] = shape;
    let biases = match bias {
        Bias::Present => Some(biases_of(weights, &format!("{name}.bias"), experts, n)?),
        Bias::Absent => None,
    };
    Ok(Stack { weights: rows.matrices(weights, name, shape, |expert, row| expert * n + row)?, biases })
}

/// One weight an expert out of rows that follow each other, with `{name}_bias` `[E, n]`.
fn stack_of(weights: &mut Weights, name: &str, rows: Rows, shape: [usize; 3], bias: Bias) -> Result<Stack> {
    let [experts, n, _] = shape;
    let biases = match bias {
        Bias::Present => Some(biases_of(weights, &format!("{name}_bias"), experts, n)?),
        Bias::Absent => None,
    };
    Ok(Stack { weights: rows.matrices(weights, name, shape, |expert, row| expert * n + row)?, biases })
}

/// Gate and up out of `[E, 2n, k]` rows and `{name}_bias` `[E, 2n]` that belong to them in turns.
fn in_turns<'a>(
    weights: &mut Weights<'a>,
    name: &str,
    [experts, n, k]: [usize; 3],
    bias: Bias,
    read: impl Fn(&mut Weights<'a>, &str, [usize; 3]) -> Result<Rows<'a>>,
) -> Result<(Stack, Stack)> {
    let rows = read(weights, name, [experts, 2 * n, k])?;
    let table = match bias {
        Bias::Present => Some(weights.table(&format!("{name}_bias"), experts, 2 * n)?),
        Bias::Absent => None,
    };
    let mut every_second = |first: usize| -> Result<Stack> {
        let biases = match &table {
            Some(table) => {
                let own: Vec<f32> = table.iter().skip(first).step_by(2).copied().collect();
                Some(own.chunks_exact(n).map(|biases| weights.placed(biases)).collect::<Result<_>>()?)
            }
            None => None,
        };
        let weights = rows.matrices(weights, name, [experts, n, k], |expert, row| expert * 2 * n + 2 * row + first)?;
        Ok(Stack { weights, biases })
    };
    Ok((every_second(0)?, every_second(1)?))
}

/// The biases of each expert out of `{name}` `[E, n]`.
fn biases_of(weights: &mut Weights, name: &str, experts: usize, n: usize) -> Result<Vec<Values>> {
    let table = weights.table(name, experts, n)?;
    table.chunks_exact(n).map(|biases| weights.placed(biases)).collect()
}

/// Rows of weights as a file of `format` holds them, one behind another.
struct Rows<'a> {
    format: Format,
    bytes: std::borrow::Cow<'a, [u8]>,
    row_bytes: usize,
}

impl Rows<'_> {
    /// One matrix `[n, k]` an expert, of the rows that `pick` numbers.
    fn matrices(
        &self,
        weights: &mut Weights,
        name: &str,
        [experts, n, k]: [usize; 3],
        pick: impl Fn(usize, usize) -> usize,
    ) -> Result<Vec<Matrix>> {
        let mut bytes = Vec::with_capacity(n * self.row_bytes);
        let matrix = |expert| {
            bytes.clear();
            for row in 0..n {
                bytes.extend_from_slice(&self.bytes[pick(expert, row) * self.row_bytes..][..self.row_bytes]);
            }
            weights.packed(name, self.format, &bytes, n, k)
        };
        (0..experts).map(matrix).collect()
    }
}

/// `{name}` `[E, n, k]` as it stands.
fn plain_rows<'a>(weights: &mut Weights<'a>, name: &str, shape: [usize; 3]) -> Result<Rows<'a>> {
    let (format, bytes) = weights.stack(name, shape)?;
    let row_bytes = bytes.len() / (shape[0] * shape[1]);
    Ok(Rows { format, bytes, row_bytes })
}

/// `{name}` `[E, k, n]`, turned to `[E, n, k]`.
fn transposed_rows<'a>(weights: &mut Weights<'a>, name: &str, [experts, n, k]: [usize; 3]) -> Result<Rows<'a>> {
    let view = weights.plain_stack(name, [experts, k, n])?;
    let size = view.format.block_bytes();
    let mut bytes = Vec::with_capacity(view.bytes.len());
    for expert in view.bytes.chunks_exact(k * n * size) {
        for (row, column) in (0..n).flat_map(|row| (0..k).map(move |column| (row, column))) {
            bytes.extend_from_slice(&expert[(column * n + row) * size..][..size]);
        }
    }
    Ok(Rows { format: view.format, bytes: bytes.into(), row_bytes: k * size })
}

/// `{name}_blocks` `[E, n, k / 32, 16]` and `{name}_scales` `[E, n, k / 32]`, written as ggml's blocks: a scale, then
/// the nibbles of values 0–15 low and 16–31 high, where these tensors have two neighbours in a byte.
fn four_bit_rows<'a>(weights: &mut Weights<'a>, name: &str, [experts, n, k]: [usize; 3]) -> Result<Rows<'a>> {
    let groups = k / 32;
    let blocks = weights.bytes(&format!("{name}_blocks"), &[experts, n, groups, 16], 2)?;
    let scales = weights.bytes(&format!("{name}_scales"), &[experts, n, groups], 0)?;
    if scales.contains(&u8::MAX) {
        weights.notes.push(format!("non-finite weight in `{name}_scales`"));
    }
    let mut bytes = Vec::with_capacity(blocks.len() + scales.len());
    for (block, scale) in blocks.chunks_exact(16).zip(scales) {
        let value = |index: usize| block[index / 2] >> (index % 2 * 4) & 15;
        bytes.push(*scale);
        bytes.extend((0..16).map(|index| value(index) | value(index + 16) << 4));
    }
    Ok(Rows { format: Format::MXFP4, bytes: bytes.into(), row_bytes: groups * 17 })
}
