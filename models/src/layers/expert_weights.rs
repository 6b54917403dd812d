//! How the containers hold experts: one by one, stacked, gate and up apart or together, and as 4-bit floats.

use lifelong_kernels::{ExpertWeights, Format, Matrix};

use super::linear::{Bias, Linear};
use super::mlp::GatedMlp;
use crate::config::{ExpertGate, Mixture};
use crate::error::Result;
use crate::names::Names;
use crate::weights::Weights;

/// `down(f(gate(x), up(x)))` of every expert.
pub(crate) struct Projections {
    pub gate: ExpertWeights,
    pub up: ExpertWeights,
    pub down: ExpertWeights,
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
) -> Result<Projections> {
    let Mixture { experts, feed_forward, biases, .. } = *mixture;
    let bias = Bias::from(biases);
    let together = format!("{}.weight", names.layer(layer, "ffn_gate_up_exps"));
    if weights.checkpoint.contains(&together) {
        let (gate, up) = halves(weights, &together, [experts, feed_forward, hidden])?;
        let down = stack(weights, &names.layer(layer, "ffn_down_exps"), [experts, hidden, feed_forward], bias)?;
        return Ok(Projections { gate, up, down });
    }
    if weights.checkpoint.gguf().is_some() {
        let mut stack = |part: &str, n, k| stack(weights, &names.layer(layer, part), [experts, n, k], bias);
        let gate = stack("ffn_gate_exps", feed_forward, hidden)?;
        let up = stack("ffn_up_exps", feed_forward, hidden)?;
        return Ok(Projections { gate, up, down: stack("ffn_down_exps", hidden, feed_forward)? });
    }
    let stem = names.layer(layer, "mlp.experts");
    let [gate_up, down] = ["gate_up_proj", "down_proj"].map(|part| format!("{stem}.{part}"));
    let holds = |name: &str| weights.checkpoint.contains(name);
    if holds(&format!("{gate_up}_blocks")) {
        let (gate, up) = in_turns(weights, &gate_up, [experts, feed_forward, hidden], bias, four_bit_rows)?;
        let rows = four_bit_rows(weights, &down, [experts, hidden, feed_forward])?;
        let down = stack_of(weights, &down, rows, [experts, hidden, feed_forward], bias)?;
        return Ok(Projections { gate, up, down });
    }
    if !holds(&gate_up) {
        return one_by_one(weights, &stem, hidden, mixture);
    }
    if let ExpertGate::Clamped { .. } = mixture.gate {
        let (gate, up) = in_turns(weights, &gate_up, [experts, feed_forward, hidden], bias, transposed_rows)?;
        let rows = transposed_rows(weights, &down, [experts, hidden, feed_forward])?;
        let down = stack_of(weights, &down, rows, [experts, hidden, feed_forward], bias)?;
        return Ok(Projections { gate, up, down });
    }
    let (gate, up) = halves(weights, &gate_up, [experts, feed_forward, hidden])?;
    let rows = plain_rows(weights, &down, [experts, hidden, feed_forward])?;
    let down = stack_of(weights, &down, rows, [experts, hidden, feed_forward], bias)?;
    Ok(Projections { gate, up, down })
}

/// Gate and up out of `[E, 2n, k]` rows, those of up behind those of gate, without biases.
fn halves(weights: &mut Weights, name: &str, [experts, n, k]: [usize; 3]) -> Result<(ExpertWeights, ExpertWeights)> {
    let rows = plain_rows(weights, name, [experts, 2 * n, k])?;
    let mut half =
        |first: usize| rows.stacked(weights, name, [experts, n, k], None, |expert, row| expert * 2 * n + first + row);
    Ok((half(0)?, half(n)?))
}

/// `{stem}.{expert}.gate_proj.weight` and so on.
fn one_by_one(weights: &mut Weights, stem: &str, hidden: usize, mixture: &Mixture) -> Result<Projections> {
    let Mixture { experts, feed_forward, biases, .. } = *mixture;
    let mut projection = |part: &str, n: usize, k: usize| -> Result<ExpertWeights> {
        let (mut matrices, mut vectors) = (Vec::with_capacity(experts), Vec::new());
        for expert in 0..experts {
            let name = format!("{stem}.{expert}.{part}");
            matrices.push(weights.projection(&format!("{name}.weight"), n, k)?);
            if biases {
                vectors.extend(weights.vector(&format!("{name}.bias"), n)?);
            }
        }
        Ok(ExpertWeights::new(weights.device, matrices, biases.then_some(vectors))?)
    };
    Ok(Projections {
        gate: projection("gate_proj", feed_forward, hidden)?,
        up: projection("up_proj", feed_forward, hidden)?,
        down: projection("down_proj", hidden, feed_forward)?,
    })
}

/// `{name}.weight` `[E, n, k]` and `{name}.bias` `[E, n]`, as GGUF files hold them.
fn stack(weights: &mut Weights, name: &str, shape: [usize; 3], bias: Bias) -> Result<ExpertWeights> {
    let rows = plain_rows(weights, &format!("{name}.weight"), shape)?;
    let [experts, n, _] = shape;
    let biases = biases_of(weights, &format!("{name}.bias"), experts, n, bias)?;
    rows.stacked(weights, name, shape, biases, |expert, row| expert * n + row)
}

/// Rows that follow each other, with `{name}_bias` `[E, n]`.
fn stack_of(weights: &mut Weights, name: &str, rows: Rows, shape: [usize; 3], bias: Bias) -> Result<ExpertWeights> {
    let [experts, n, _] = shape;
    let biases = biases_of(weights, &format!("{name}_bias"), experts, n, bias)?;
    rows.stacked(weights, name, shape, biases, |expert, row| expert * n + row)
}

/// Gate and up out of `[E, 2n, k]` rows and `{name}_bias` `[E, 2n]` that belong to them in turns.
fn in_turns<'a>(
    weights: &mut Weights<'a>,
    name: &str,
    [experts, n, k]: [usize; 3],
    bias: Bias,
    read: impl Fn(&mut Weights<'a>, &str, [usize; 3]) -> Result<Rows<'a>>,
) -> Result<(ExpertWeights, ExpertWeights)> {
    let rows = read(weights, name, [experts, 2 * n, k])?;
    let table = biases_of(weights, &format!("{name}_bias"), experts, 2 * n, bias)?;
    let mut every_second = |first: usize| {
        let biases = table.as_ref().map(|table| table.iter().skip(first).step_by(2).copied().collect());
        rows.stacked(weights, name, [experts, n, k], biases, |expert, row| expert * 2 * n + 2 * row + first)
    };
    Ok((every_second(0)?, every_second(1)?))
}

/// `{name}` `[E, n]`, where experts add vectors.
fn biases_of(weights: &mut Weights, name: &str, experts: usize, n: usize, bias: Bias) -> Result<Option<Vec<f32>>> {
    match bias {
        Bias::Present => Ok(Some(weights.table(name, experts, n)?)),
        Bias::Absent => Ok(None),
    }
}

/// Rows of weights as a file of `format` holds them, one behind another.
struct Rows<'a> {
    format: Format,
    bytes: std::borrow::Cow<'a, [u8]>,
    row_bytes: usize,
}

impl Rows<'_> {
    /// One matrix `[n, k]` an expert, of the rows that `pick` numbers.
    fn stacked(
        &self,
        weights: &mut Weights,
        name: &str,
        [experts, n, k]: [usize; 3],
        biases: Option<Vec<f32>>,
        pick: impl Fn(usize, usize) -> usize,
    ) -> Result<ExpertWeights> {
        let device = weights.device;
        let mut bytes = Vec::with_capacity(n * self.row_bytes);
        let matrix = |expert| {
            bytes.clear();
            for row in 0..n {
                bytes.extend_from_slice(&self.bytes[pick(expert, row) * self.row_bytes..][..self.row_bytes]);
            }
            weights.packed(name, self.format, &bytes, n, k)
        };
        let matrices = (0..experts).map(matrix).collect::<Result<Vec<Matrix>>>()?;
        Ok(ExpertWeights::new(device, matrices, biases)?)
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
