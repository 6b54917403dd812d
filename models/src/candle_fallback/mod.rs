//! Architectures that have no file of their own here and that candle-transformers runs: on the processor, in 32-bit floats, one
//! request at a time.
//!
//! candle keeps the keys and values of the one sequence it is in and picks its kernels by the number of rows, so these
//! models say [`Batching::OneAtATime`]: every request is computed in the same calls, whatever else waits, and its numbers
//! stay its own. The program's cache only counts their memory. What candle leaves out of a family is refused or, where
//! factors can be multiplied into the weights, made good in the family's file.
//!
//! A family is one file, a line in [`build`] and one in the registry.

mod config;
mod families;
mod weights;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use candle_core::{DType, Tensor};
use lifelong_kernels::{Device, KvCache, Values};

use crate::architecture::{Batch, Batching, Decoder, Geometry, Scratch, check_batch};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use config::Described;
use weights::Source;

/// Whether this build has candle.
pub const IS_BUILT: bool = true;
/// The version is a part of the numbers: another one may add in another order.
pub const PROGRAM: &str = "candle 0.11.1";

/// Builds the model of a family, by its name in the registry.
///
/// # Errors
/// A configuration that candle does not honour as a whole, a tensor that is missing, of another shape or of no use.
pub fn load(family: &'static str, checkpoint: &Checkpoint, device: &Device) -> Result<Box<dyn Decoder>> {
    let mut described = Described::read(family, checkpoint)?;
    let source = Source::new(checkpoint, device, described.is_tied);
    let threads = device.threads();
    let threads = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|_| "candle".into()).build();
    let refuse = |reason: String| Error::Candle { path: checkpoint.path().to_path_buf(), reason };
    let threads = threads.map_err(|error| refuse(error.to_string()))?;
    let built = guarded(|| threads.install(|| build(family, &mut described, &source)));
    let network = match built {
        Ok(network) => network,
        Err(Fault::Ours(error)) => return Err(error),
        // A tensor that candle could not get is told in our words.
        Err(Fault::Candle(reason)) => return Err(source.fault().unwrap_or_else(|| refuse(reason))),
    };
    let (geometry, notes) = source.finish(described)?;
    let state = Mutex::new(State { network, seen: Some(0) });
    Ok(Box::new(Fallback { geometry, notes, threads, state }))
}

fn build(family: &str, described: &mut Described, source: &Source) -> Built {
    match family {
        "gemma" => families::gemma::load(described, source),
        "gemma2" => families::gemma2::load(described, source),
        "glm4" => families::glm4::load(described, source),
        "granite" => families::granite::load(described, source),
        "olmo" => families::olmo::load(described, source),
        "olmo2" => families::olmo2::load(described, source),
        "phi" => families::phi::load(described, source),
        "starcoder2" => families::starcoder2::load(described, source),
        other => unreachable!("`{other}` is registered and no family here: our bug"),
    }
}

/// A network, or why there is none.
type Built = std::result::Result<Box<dyn Network>, Fault>;

/// Whose words an error is in.
enum Fault {
    Ours(Error),
    Candle(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Ours(error)
    }
}

impl From<candle_core::Error> for Fault {
    fn from(error: candle_core::Error) -> Self {
        Fault::Candle(error.to_string())
    }
}

/// A model of candle, in the one sequence that it remembers.
trait Network: Send {
    /// The logits `[.., V]` behind the last of the tokens `[1, T]`, the first of which stands at `position`.
    fn forward(&mut self, tokens: &Tensor, position: usize) -> candle_core::Result<Tensor>;

    /// Forgets the sequence.
    fn clear(&mut self);
}

/// A decoder over candle's model.
struct Fallback {
    geometry: Geometry,
    notes: Vec<String>,
    /// As many as the device has: candle would take all there are.
    threads: rayon::ThreadPool,
    state: Mutex<State>,
}

struct State {
    network: Box<dyn Network>,
    /// Tokens of the sequence it is in; `None` after an error, when only a new one may begin.
    seen: Option<usize>,
}

impl Decoder for Fallback {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn batching(&self) -> Batching {
        Batching::OneAtATime
    }

    fn forward(
        &self,
        device: &Device,
        batch: &Batch,
        _: &mut KvCache,
        _: &mut Scratch,
        logits: &mut Values,
    ) -> Result<()> {
        check_batch(batch, &self.geometry)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let position = position_of(batch, state.seen)?;
        let State { network, seen } = &mut *state;
        *seen = None;
        let last = guarded(|| self.threads.install(|| last_logits(network.as_mut(), batch.tokens, position)));
        let last = last.map_err(|fault| match fault {
            Fault::Ours(error) => error,
            Fault::Candle(reason) => Error::Batch(format!("candle: {reason}")),
        })?;
        let vocab = self.geometry.vocab;
        if last.len() != vocab {
            return Err(Error::Batch(format!("candle gave {} logits for a vocabulary of {vocab}", last.len())));
        }
        *seen = Some(position + batch.tokens.len());
        let logits = logits.take(device, batch.outputs.len() * vocab)?;
        logits.chunks_exact_mut(vocab).for_each(|row| row.copy_from_slice(&last));
        Ok(())
    }
}

/// Where the step stands in its sequence: at the start, or one token behind what has been seen.
fn position_of(batch: &Batch, seen: Option<usize>) -> Result<usize> {
    let refuse = |text: String| Err(Error::Batch(format!("this model runs through candle: {text}")));
    let [segment] = batch.segments else {
        return refuse(format!("a step holds one request, given are {}", batch.segments.len()));
    };
    let (tokens, position) = (batch.tokens.len(), segment.context_len);
    if tokens == 0 || segment.query_len != tokens {
        return refuse(format!("a step is one request, this one has {} of its {tokens} tokens", segment.query_len));
    }
    if position > 0 && (seen != Some(position) || tokens > 1) {
        let seen = seen.map_or_else(|| "an unknown number of".to_string(), |seen| seen.to_string());
        let text =
            format!("{tokens} tokens behind {position} cannot be computed after {seen}: one at a time, in order");
        return refuse(text);
    }
    match batch.outputs.iter().find(|output| **output + 1 != tokens) {
        Some(output) => refuse(format!("only the last of {tokens} tokens has logits, asked for is row {output}")),
        None => Ok(position),
    }
}

fn last_logits(network: &mut dyn Network, tokens: &[u32], position: usize) -> std::result::Result<Vec<f32>, Fault> {
    if position == 0 {
        network.clear();
    }
    let tokens = Tensor::from_slice(tokens, (1, tokens.len()), &candle_core::Device::Cpu)?;
    let logits = network.forward(&tokens, position)?;
    Ok(logits.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?)
}

/// candle panics on some dimensions that do not fit; a file must not end the program.
fn guarded<T>(run: impl FnOnce() -> std::result::Result<T, Fault>) -> std::result::Result<T, Fault> {
    let text = |panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
    };
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|panic| Err(Fault::Candle(format!("it panicked: {}", text(panic)))))
}
