//! Taking weights out of a checkpoint: shapes checked, every tensor accounted for, bad values noted.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use lifelong_kernels::{Device, Format, Matrix, Values, quantize};

use crate::architecture::Geometry;
use crate::checkpoint::{Checkpoint, TensorView};
use crate::config::{DecoderConfig, Family};
use crate::drawn::Tensor;
use crate::error::{Error, Result};
use crate::fp8;

/// The tensors of one model while it is being built.
pub(crate) struct Weights<'a> {
    pub checkpoint: &'a Checkpoint,
    /// Where the model will run.
    pub device: &'a Device,
    taken: BTreeSet<&'a str>,
    /// Elements of the tensors taken so far.
    pub parameters: u64,
    /// Their bytes in the file.
    pub bytes: u64,
    pub notes: Vec<String>,
}

impl<'a> Weights<'a> {
    pub fn new(checkpoint: &'a Checkpoint, device: &'a Device, notes: Vec<String>) -> Self {
        Weights { checkpoint, device, taken: BTreeSet::new(), parameters: 0, bytes: 0, notes }
    }

    /// A weight of `n` outputs and `k` inputs.
    pub fn matrix(&mut self, name: &str, n: usize, k: usize) -> Result<Matrix> {
        if let Some(drawn) = self.checkpoint.draws() {
            self.parameters += (n * k) as u64;
            self.bytes += (n * k * drawn.format.block_bytes()) as u64;
            return Ok(Matrix::drawn(self.device, drawn.format, n, k, drawn.draw(name, k))?);
        }
        let (stored, bytes) = self.stored(name, &[n, k])?;
        Ok(Matrix::on(self.device, stored, n, k, &bytes)?)
    }

    /// The weight of a projection: as [`Weights::matrix`], in the format that the checkpoint is to be quantised to.
    pub fn projection(&mut self, name: &str, n: usize, k: usize) -> Result<Matrix> {
        if self.checkpoint.quantize().is_none() && !self.checkpoint.is_rounded() {
            return self.matrix(name, n, k);
        }
        let (stored, bytes) = self.stored(name, &[n, k])?;
        let chosen = self.chosen(name, stored, k);
        self.placed_as(stored, &bytes, n, k, chosen)
    }

    /// A projection that was cut out of a larger tensor: as [`Weights::projection`]. Blocks stay as they are stored.
    pub fn packed(&mut self, name: &str, stored: Format, bytes: &[u8], n: usize, k: usize) -> Result<Matrix> {
        let chosen = self.chosen(name, stored, k);
        self.placed_as(stored, bytes, n, k, chosen)
    }

    /// The format that plain weights of `k` inputs are quantised to; none where they stay as they are.
    pub fn choose(&self, stored: Format, k: usize) -> Option<Format> {
        let format = self.checkpoint.quantize().filter(|_| stored.block_values() == 1)?;
        [format, Format::Q8_0].into_iter().find(|format| k.is_multiple_of(format.block_values()))
    }

    /// As [`Weights::choose`]; notes what is not as asked.
    pub fn chosen(&mut self, name: &str, stored: Format, k: usize) -> Option<Format> {
        let asked = self.checkpoint.quantize().filter(|_| stored.block_values() == 1)?;
        let chosen = self.choose(stored, k);
        match chosen {
            Some(chosen) if chosen == asked => {}
            Some(chosen) => {
                self.note(format!("`{name}` has {k} inputs, no whole number of {asked:?} blocks: {chosen:?}"));
            }
            None => self.note(format!("`{name}` has {k} inputs, no whole number of blocks: it stays in {stored:?}")),
        }
        chosen
    }

    /// Weights where the model runs, in the format that was chosen for them.
    pub fn placed_as(
        &self,
        stored: Format,
        bytes: &[u8],
        n: usize,
        k: usize,
        chosen: Option<Format>,
    ) -> Result<Matrix> {
        match chosen.zip(numbers(stored, bytes)) {
            Some((chosen, values)) => Ok(Matrix::on(self.device, chosen, n, k, &quantize(chosen, n, k, &values)?)?),
            None if self.checkpoint.is_rounded() => Ok(Matrix::rounded_on(self.device, stored, n, k, bytes)?),
            None => Ok(Matrix::on(self.device, stored, n, k, bytes)?),
        }
    }

    /// Says what holds for all experts of a stack once.
    fn note(&mut self, note: String) {
        if self.notes.last() != Some(&note) {
            self.notes.push(note);
        }
    }

    /// Weights `[.., n, k]` as they are multiplied: as they are stored, 8-bit floats in bfloat16.
    pub fn stored(&mut self, name: &str, shape: &[usize]) -> Result<(Format, Cow<'a, [u8]>)> {
        if self.checkpoint.type_name(name) == Some(fp8::TYPE) {
            return Ok((Format::BF16, self.eight_bit_floats(name, shape)?.into()));
        }
        let view = self.take(name, shape)?;
        Ok((view.format, view.bytes.into()))
    }

    /// Weights `[.., n, k]` of 8-bit floats and their scales, in bfloat16.
    fn eight_bit_floats(&mut self, name: &str, expected: &[usize]) -> Result<Vec<u8>> {
        let block = fp8::block(self.checkpoint)?;
        let scale_name = fp8::check_scales(self.checkpoint, name)?;
        let &[ref before @ .., n, k] = expected else { unreachable!("a weight has rows and columns: our bug") };
        let blocks = [n.div_ceil(block[0]), k.div_ceil(block[1])];
        let scales = numbers_of(self.checkpoint, &scale_name, &[before, &blocks[..]].concat())?;
        let Some((name, shape, bytes)) = self.checkpoint.stored(name) else { return Ok(Vec::new()) };
        if shape != expected {
            let (path, tensor) = (self.checkpoint.path().to_path_buf(), name.to_string());
            return Err(Error::ShapeMismatch { path, tensor, expected: expected.to_vec(), found: shape.to_vec() });
        }
        let matrices = bytes.chunks_exact(n * k).zip(scales.chunks_exact(blocks[0] * blocks[1]));
        let numbers: Vec<u8> = matrices.flat_map(|(bytes, scales)| fp8::to_bf16(bytes, k, scales, block)).collect();
        if has_non_finite(Format::BF16, &numbers) {
            self.notes.push(format!("non-finite weight in `{name}`"));
        }
        self.taken.insert(name);
        self.parameters += bytes.len() as u64;
        self.bytes += bytes.len() as u64;
        Ok(numbers)
    }

    /// One weight of `n` outputs and `k` inputs an expert, as they stand in the file: `[experts, n, k]`; 8-bit floats in
    /// bfloat16.
    pub fn stack(&mut self, name: &str, shape: [usize; 3]) -> Result<(Format, Cow<'a, [u8]>)> {
        self.stored(name, &shape)
    }

    /// As [`Weights::stack`], of plain numbers.
    pub fn plain_stack(&mut self, name: &str, shape: [usize; 3]) -> Result<TensorView<'a>> {
        let view = self.take(name, &shape)?;
        check_plain(self.checkpoint, &view)?;
        Ok(view)
    }

    /// A tensor of bytes that mean something only to the caller, each of them `elements` weights.
    pub fn bytes(&mut self, name: &str, shape: &[usize], elements: u64) -> Result<&'a [u8]> {
        let (name, bytes) = self.checkpoint.bytes(name, shape)?;
        self.taken.insert(name);
        self.parameters += bytes.len() as u64 * elements;
        self.bytes += bytes.len() as u64;
        Ok(bytes)
    }

    /// A bias or a norm.
    pub fn vector(&mut self, name: &str, n: usize) -> Result<Vec<f32>> {
        let view = self.take(name, &[n])?;
        floats(self.checkpoint, &view)
    }

    /// A bias or a norm, where operations read it.
    pub fn values(&mut self, name: &str, n: usize) -> Result<Values> {
        let values = self.vector(name, n)?;
        self.placed(&values)
    }

    /// Numbers at hand, where operations read them.
    pub fn placed(&self, values: &[f32]) -> Result<Values> {
        Ok(Values::copied(self.device, values)?)
    }

    /// A matrix as plain numbers, row-major.
    pub fn table(&mut self, name: &str, n: usize, k: usize) -> Result<Vec<f32>> {
        let view = self.take(name, &[n, k])?;
        floats(self.checkpoint, &view)
    }

    /// Plain numbers of any shape, row-major.
    pub fn numbers(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let view = self.take(name, shape)?;
        floats(self.checkpoint, &view)
    }

    /// Two projections of `n` outputs whose rows take turns in one tensor, `turn` rows at a time.
    pub fn in_turns(&mut self, name: &str, n: usize, turn: usize, k: usize) -> Result<[Matrix; 2]> {
        let (stored, bytes) = self.stored(name, &[2 * n, k])?;
        let turn_bytes = bytes.len() / (2 * n) * turn;
        let mut every_second = |first: usize| -> Result<Matrix> {
            let bytes: Vec<u8> = bytes.chunks(turn_bytes).skip(first).step_by(2).flatten().copied().collect();
            self.packed(name, stored, &bytes, n, k)
        };
        Ok([every_second(0)?, every_second(1)?])
    }

    /// Marks a tensor that has been read elsewhere, or that does not take part.
    pub fn skip(&mut self, name: &str) {
        if let Some(name) = self.checkpoint.names().find(|known| *known == name) {
            self.taken.insert(name);
        }
    }

    /// Builds `count` layers on several threads: packing weights is most of the time of loading. The result, and which
    /// error is reported, do not depend on the threads.
    pub fn layers<T: Send>(
        &mut self,
        threads: usize,
        count: usize,
        build: impl Fn(&mut Weights<'a>, usize) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let (next, built) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let (checkpoint, device) = (self.checkpoint, self.device);
        let work = || {
            loop {
                let layer = next.fetch_add(1, Ordering::Relaxed);
                if layer >= count {
                    return;
                }
                let mut weights = Weights::new(checkpoint, device, Vec::new());
                let outcome = build(&mut weights, layer);
                if outcome.is_err() {
                    // Lower layers are all taken already; higher ones would only repeat the error.
                    next.store(count, Ordering::Relaxed);
                }
                built.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((layer, outcome, weights));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.min(count) {
                scope.spawn(work);
            }
            work();
        });
        let mut built = built.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        built.sort_by_key(|(layer, ..)| *layer);
        built
            .into_iter()
            .map(|(_, outcome, weights)| {
                self.absorb(weights);
                outcome
            })
            .collect()
    }

    fn absorb(&mut self, part: Weights<'a>) {
        self.taken.extend(part.taken);
        self.parameters += part.parameters;
        self.bytes += part.bytes;
        self.notes.extend(part.notes);
    }

    fn take(&mut self, name: &str, shape: &[usize]) -> Result<TensorView<'a>> {
        let view = checked(self.checkpoint, name, shape)?;
        // Of a model in parts the first looks.
        if self.device.rank().is_first() && has_non_finite(view.format, view.bytes) {
            self.notes.push(format!("non-finite weight in `{name}`"));
        }
        self.taken.insert(view.name);
        self.parameters += shape.iter().product::<usize>() as u64;
        self.bytes += view.bytes.len() as u64;
        Ok(view)
    }

    /// The dimensions of a decoder all of whose tensors have been taken.
    pub fn geometry(&self, family: &Family, config: &DecoderConfig) -> Geometry {
        let recurrence = config.recurrence.as_ref();
        Geometry {
            architecture: family.name.to_string(),
            layers: config.layers,
            hidden: config.hidden,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            key_bias: config.biases.qkv,
            feed_forward: config.feed_forward,
            vocab: config.vocab,
            context: config.context,
            state_layers: recurrence.map_or(0, |recurrence| recurrence.layers.iter().filter(|is| **is).count()),
            state_values: recurrence.map_or(0, |recurrence| recurrence.shape.state_values()),
            parameters: self.parameters,
            weight_bytes: self.bytes,
        }
    }

    /// A tensor that nothing asked for means a computation we did not do.
    ///
    /// # Errors
    /// [`Error::UnknownTensors`] with the names of the rest, except those `harmless` accepts.
    pub fn finish(&self, harmless: impl Fn(&str) -> bool) -> Result<()> {
        let accounted =
            |name: &str| self.taken.contains(name) || fp8::is_scale(self.checkpoint, name) || harmless(name);
        let left = self.checkpoint.names().filter(|name| !accounted(name));
        let tensors: Vec<String> = left.map(str::to_string).collect();
        if tensors.is_empty() {
            return Ok(());
        }
        Err(Error::UnknownTensors { path: self.checkpoint.path().to_path_buf(), tensors })
    }
}

/// Angles that the configuration has read already, and a buffer of early Hugging Face checkpoints.
pub(crate) fn is_angles(name: &str) -> bool {
    matches!(name, "rope_freqs.weight" | "rope_factors_short.weight" | "rope_factors_long.weight")
        || name.ends_with("rotary_emb.inv_freq")
}

/// A vector outside of the accounting, for configuration that is stored as a tensor.
pub(crate) fn vector(checkpoint: &Checkpoint, name: &str, n: usize) -> Result<Vec<f32>> {
    floats(checkpoint, &checked(checkpoint, name, &[n])?)
}

fn checked<'a>(checkpoint: &'a Checkpoint, name: &str, shape: &[usize]) -> Result<TensorView<'a>> {
    if let Some(drawn) = checkpoint.draws() {
        let Tensor { name, shape, format, bytes, .. } = drawn.tensor(name, shape);
        return Ok(TensorView { name, shape, format: *format, bytes });
    }
    let view = checkpoint.tensor(name)?;
    if view.shape != shape {
        return Err(Error::ShapeMismatch {
            path: checkpoint.path().to_path_buf(),
            tensor: name.to_string(),
            expected: shape.to_vec(),
            found: view.shape.to_vec(),
        });
    }
    Ok(view)
}

/// As [`vector`], of any shape.
pub(crate) fn numbers_of(checkpoint: &Checkpoint, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
    floats(checkpoint, &checked(checkpoint, name, shape)?)
}

fn floats(checkpoint: &Checkpoint, view: &TensorView) -> Result<Vec<f32>> {
    numbers(view.format, view.bytes).ok_or_else(|| not_plain(checkpoint, view))
}

fn check_plain(checkpoint: &Checkpoint, view: &TensorView) -> Result<()> {
    match view.format {
        Format::F32 | Format::F16 | Format::BF16 => Ok(()),
        _ => Err(not_plain(checkpoint, view)),
    }
}

fn not_plain(checkpoint: &Checkpoint, view: &TensorView) -> Error {
    Error::UnusableType {
        path: checkpoint.path().to_path_buf(),
        tensor: view.name.to_string(),
        found: format!("{:?} where plain numbers are expected", view.format),
        usable: ["F32", "F16", "BF16"].map(String::from).to_vec(),
    }
}

/// Plain numbers; `None` of a format of blocks.
fn numbers(format: Format, bytes: &[u8]) -> Option<Vec<f32>> {
    match format {
        Format::F32 => Some(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()),
        Format::F16 => Some(halves(bytes).map(|bits| half::f16::from_bits(bits).to_f32()).collect()),
        Format::BF16 => Some(halves(bytes).map(|bits| half::bf16::from_bits(bits).to_f32()).collect()),
        _ => None,
    }
}

fn halves(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]))
}

/// Whether any weight is infinite or not a number. In block formats only the scales can be.
fn has_non_finite(format: Format, bytes: &[u8]) -> bool {
    const F16_EXPONENT: u16 = 0x7c00;
    const BF16_EXPONENT: u16 = 0x7f80;
    const F32_EXPONENT: u32 = 0x7f80_0000;
    let f32_at = |chunk: &[u8]| u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
    // Folded without an early exit, so that the scan of gigabytes stays vectorised.
    let any_f32 = |size: usize| {
        let bad = |chunk| f32_at(chunk) & F32_EXPONENT == F32_EXPONENT;
        bytes.chunks(1 << 16).any(|part| part.chunks_exact(size).fold(false, |seen, chunk| seen | bad(chunk)))
    };
    let any_half = |exponent: u16| {
        let bad = |bits: u16| bits & exponent == exponent;
        bytes.chunks(1 << 16).any(|part| halves(part).fold(false, |seen, bits| seen | bad(bits)))
    };
    let any_scale = |block: usize, offsets: &[usize]| {
        let bad =
            |chunk: &[u8], at: usize| u16::from_le_bytes([chunk[at], chunk[at + 1]]) & F16_EXPONENT == F16_EXPONENT;
        bytes.chunks_exact(block).any(|chunk| offsets.iter().any(|at| bad(chunk, *at)))
    };
    match format {
        Format::F32 => any_f32(4),
        Format::F16 => any_half(F16_EXPONENT),
        Format::BF16 => any_half(BF16_EXPONENT),
        Format::Q4_0 => any_scale(18, &[0]),
        Format::Q4_1 => any_scale(20, &[0, 2]),
        Format::Q5_0 => any_scale(22, &[0]),
        Format::Q5_1 => any_scale(24, &[0, 2]),
        Format::Q8_0 => any_scale(34, &[0]),
        Format::Q2K => any_scale(84, &[80, 82]),
        Format::Q3K => any_scale(110, &[108]),
        Format::Q4K => any_scale(144, &[0, 2]),
        Format::Q5K => any_scale(176, &[0, 2]),
        Format::Q6K => any_scale(210, &[208]),
        // Of its scales, one stands for no number.
        Format::MXFP4 => bytes.chunks_exact(17).fold(false, |seen, chunk| seen | (chunk[0] == u8::MAX)),
        Format::IQ4_NL => any_scale(18, &[0]),
        Format::IQ4_XS => any_scale(136, &[0]),
        // Its scale is an f32 at the start of 292 bytes.
        Format::Q8K => bytes.chunks_exact(292).any(|chunk| f32_at(chunk) & F32_EXPONENT == F32_EXPONENT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_finite_weights_are_seen_in_every_format() {
        let blocks = [
            (Format::F32, 4, 2, 0x7f80u16),
            (Format::F16, 2, 0, 0xfe00),
            (Format::BF16, 2, 0, 0xff80),
            (Format::Q4_0, 18, 0, 0x7c00),
            (Format::Q4_1, 20, 2, 0x7c00),
            (Format::Q5_0, 22, 0, 0x7e00),
            (Format::Q5_1, 24, 2, 0xfc00),
            (Format::Q8_0, 34, 0, 0x7c00),
            (Format::Q2K, 84, 82, 0x7c00),
            (Format::Q3K, 110, 108, 0x7c00),
            (Format::Q4K, 144, 2, 0x7c00),
            (Format::Q5K, 176, 0, 0x7c00),
            (Format::Q6K, 210, 208, 0x7c00),
            (Format::Q8K, 292, 2, 0x7f80),
            (Format::MXFP4, 17, 0, 0x11ff),
            (Format::IQ4_NL, 18, 0, 0x7c00),
            (Format::IQ4_XS, 136, 0, 0x7c00),
        ];
        for (format, block, at, bits) in blocks {
            let mut bytes = vec![0x11u8; block * 100];
            assert!(!has_non_finite(format, &bytes), "{format:?}");
            let place = 99 * block + at;
            bytes[place..place + 2].copy_from_slice(&bits.to_le_bytes());
            assert!(has_non_finite(format, &bytes), "{format:?}");
        }
    }
}
