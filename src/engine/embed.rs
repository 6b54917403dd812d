//! Texts into unit vectors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use lifelong_kernels::{Device, ops};
use lifelong_models::{Checkpoint, Encoder, Scratch, load_encoder};
use serde_json::Value;

use super::error::{Error, Result};
use super::hub::ModelFiles;
use super::model::{json_beside, load_error, load_tokenizer};
use super::tokenizer::{Specials, Tokenizer};

/// Tokens of one packed batch. Long enough to keep the matrix products busy; the vectors do not depend on it.
const BATCH_TOKENS: usize = 2048;

/// How the vectors of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    Mean,
    /// The first token's.
    Cls,
    /// The last token's.
    Last,
}

/// An embedding model. Shared by threads: one batch runs at a time.
pub struct Embedder {
    name: String,
    digest: String,
    encoder: Box<dyn Encoder>,
    device: Device,
    tokenizer: Tokenizer,
    pooling: Pooling,
    max_tokens: usize,
    truncated: AtomicU64,
    buffers: Mutex<Buffers>,
}

/// Memory kept between batches.
#[derive(Default)]
struct Buffers {
    scratch: Scratch,
    /// `[T, H]`
    hidden: Vec<f32>,
}

/// Loads an embedding model with its pooling (`1_Pooling/config.json`; mean without it) and its limit on tokens
/// (`sentence_bert_config.json`; the model's context without it).
///
/// # Errors
/// [`Error::Load`] naming the part.
pub fn load_embedder(files: &ModelFiles, device: &Device) -> Result<Embedder> {
    let fault = |part: &str, error: &dyn std::fmt::Display| load_error(files, part, error);
    let path = files.checkpoint().map_err(|error| fault("checkpoint", &error))?;
    let checkpoint = Checkpoint::open(path).map_err(|error| fault("checkpoint", &error))?;
    let encoder = load_encoder(&checkpoint, device).map_err(|error| fault("weights", &error))?;
    let pooling = pooling_of(&json_beside(files, "1_Pooling/config.json")).map_err(|error| fault("pooling", &error))?;
    let context = encoder.geometry().context;
    let said = json_beside(files, "sentence_bert_config.json")["max_seq_length"].as_u64();
    Ok(Embedder {
        name: files.name.clone(),
        digest: files.digest().map_err(|error| fault("digest", &error))?.to_string(),
        tokenizer: load_tokenizer(files, &checkpoint)?,
        pooling,
        max_tokens: said.map_or(context, |most| context.min(most as usize)),
        encoder,
        device: device.clone(),
        truncated: AtomicU64::new(0),
        buffers: Mutex::default(),
    })
}

impl Embedder {
    /// One vector of length 1 a text, in order; the zero vector stays zero. A text's vector does not depend on the
    /// others. Texts beyond the model's limit are cut at the end, and counted.
    ///
    /// # Errors
    /// [`Error::Forward`] when the encoder fails.
    pub fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        let documents: Vec<Vec<u32>> = texts.iter().map(|text| self.encode(text)).collect();
        let mut vectors = vec![Vec::new(); texts.len()];
        let mut by_length: Vec<usize> = (0..texts.len()).collect();
        by_length.sort_by_key(|&text| documents[text].len());
        let mut rest = by_length.as_slice();
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(batch_size(rest, &documents));
            for (&text, vector) in batch.iter().zip(self.embed_batch(batch, &documents)?) {
                vectors[text] = vector;
            }
            rest = later;
        }
        Ok(vectors)
    }

    /// Names what decides the vectors: model, weights and pooling. Vectors under different names are never compared.
    pub fn descriptor(&self) -> String {
        format!("{} {} {:?} {}", self.name, self.digest, self.pooling, self.max_tokens)
    }

    /// Numbers in a vector.
    pub fn dimensions(&self) -> usize {
        self.encoder.geometry().hidden
    }

    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// The most tokens of a text that are looked at, those of the model's frame (`[CLS]`, `[SEP]`) included.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// How many texts were cut so far.
    pub fn truncated_texts(&self) -> u64 {
        self.truncated.load(Ordering::Relaxed)
    }

    /// Where it computes.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// A text in the model's frame, cut inside the frame when it is too long.
    fn encode(&self, text: &str) -> Vec<u32> {
        let tokens = self.tokenizer.encode_document(text, Specials::Literal);
        if tokens.len() > self.max_tokens {
            self.truncated.fetch_add(1, Ordering::Relaxed);
        }
        let suffix = self.tokenizer.encode_document("", Specials::Literal).len()
            - self.tokenizer.encode_prompt("", Specials::Literal).len();
        cut_inside_frame(tokens, suffix, self.max_tokens)
    }

    fn embed_batch(&self, batch: &[usize], documents: &[Vec<u32>]) -> Result<Vec<Vec<f32>>> {
        let tokens: Vec<u32> = batch.iter().flat_map(|&text| documents[text].iter().copied()).collect();
        let lengths: Vec<usize> = batch.iter().map(|&text| documents[text].len()).collect();
        let fault = |error: &dyn std::fmt::Display| Error::Forward { reason: error.to_string() };
        // A batch that panicked left only memory behind, which the next one overwrites.
        let mut buffers = self.buffers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Buffers { scratch, hidden } = &mut *buffers;
        self.encoder.forward(&self.device, &tokens, &lengths, scratch, hidden).map_err(|error| fault(&error))?;
        let width = self.dimensions();
        let mut pooled = vec![0.0; lengths.len() * width];
        match self.pooling {
            Pooling::Mean => ops::pool::mean(&self.device, &mut pooled, hidden, &lengths),
            Pooling::Cls => ops::pool::cls(&self.device, &mut pooled, hidden, &lengths),
            Pooling::Last => ops::pool::last(&self.device, &mut pooled, hidden, &lengths),
        }
        .map_err(|error| fault(&error))?;
        Ok(pooled.chunks_exact(width).map(unit).collect())
    }
}

/// How many of the next texts make one batch: at least one.
fn batch_size(texts: &[usize], documents: &[Vec<u32>]) -> usize {
    let mut tokens = 0;
    let fits = texts.iter().take_while(|&&text| {
        tokens += documents[text].len();
        tokens <= BATCH_TOKENS
    });
    fits.count().max(1)
}

/// Drops tokens before the frame's last `suffix` ones.
fn cut_inside_frame(mut tokens: Vec<u32>, suffix: usize, max_tokens: usize) -> Vec<u32> {
    if tokens.len() > max_tokens {
        let kept = max_tokens.saturating_sub(suffix);
        tokens.drain(kept..tokens.len() - suffix);
    }
    tokens
}

/// The vector divided by its length, computed in 64 bits so that no vector but zero is too short to have one.
fn unit(vector: &[f32]) -> Vec<f32> {
    let length = vector.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt();
    if length == 0.0 {
        return vector.to_vec();
    }
    vector.iter().map(|&value| (f64::from(value) / length) as f32).collect()
}

/// The pooling that sentence-transformers' `1_Pooling/config.json` switches on; mean when there is no such file.
fn pooling_of(config: &Value) -> Result<Pooling, String> {
    const KNOWN: [(&str, Pooling); 3] = [
        ("pooling_mode_mean_tokens", Pooling::Mean),
        ("pooling_mode_cls_token", Pooling::Cls),
        ("pooling_mode_lasttoken", Pooling::Last),
    ];
    let Value::Object(keys) = config else { return Ok(Pooling::Mean) };
    let is_on = |(key, value): &(&String, &Value)| key.starts_with("pooling_mode_") && **value == Value::Bool(true);
    let switched_on: Vec<&str> = keys.iter().filter(is_on).map(|(key, _)| key.as_str()).collect();
    let [only] = switched_on.as_slice() else {
        return Err(format!("expected one pooling mode switched on in 1_Pooling/config.json, found {switched_on:?}"));
    };
    let known = KNOWN.iter().find(|(key, _)| key == only).map(|(_, pooling)| *pooling);
    known.ok_or_else(|| format!("`{only}` is not supported; supported: {:?}", KNOWN.map(|(key, _)| key)))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    /// The published `retrieval_embedding` cases with this operation; none, and one line, when the folder is absent.
    fn cases(operation: &str) -> Vec<Value> {
        let shared = std::env::var_os("LIFELONG_SHARED")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
        let path = shared.join("cases/retrieval_embedding.json");
        let Ok(text) = std::fs::read_to_string(&path) else {
            println!("skipped: {} is absent", path.display());
            return Vec::new();
        };
        let family: Value = serde_json::from_str(&text).unwrap();
        let cases = family["cases"].as_array().unwrap();
        cases.iter().filter(|case| case["given"]["op"] == operation).cloned().collect()
    }

    fn floats(value: &Value) -> Vec<f32> {
        value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
    }

    fn assert_close(found: &[f32], expected: &[f32], case: &Value) {
        assert_eq!(found.len(), expected.len(), "{}", case["id"]);
        let is_close = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-5);
        assert!(is_close, "{}: {found:?}", case["id"]);
    }

    #[test]
    fn pooling_cases() {
        let device = Device::cpu(1);
        for case in cases("pool") {
            let given = &case["given"];
            // Masked rows never enter a packed batch.
            let rows = given["hidden"].as_array().unwrap().iter().zip(given["mask"].as_array().unwrap());
            let real: Vec<f32> = rows.filter(|(_, mask)| **mask == 1).flat_map(|(row, _)| floats(row)).collect();
            let lengths = [real.len() / 2];
            let mut pooled = vec![0.0; 2];
            match given["pooling"].as_str().unwrap() {
                "mean" => ops::pool::mean(&device, &mut pooled, &real, &lengths),
                "cls" => ops::pool::cls(&device, &mut pooled, &real, &lengths),
                "last" => ops::pool::last(&device, &mut pooled, &real, &lengths),
                other => panic!("pooling {other}"),
            }
            .unwrap();
            assert_close(&pooled, &floats(&case["expect"]["vector"]), &case);
            assert_close(&unit(&pooled), &floats(&case["expect"]["unit"]), &case);
        }
    }

    #[test]
    fn pooling_choice_cases() {
        for case in cases("pool_choice") {
            let pooling = pooling_of(&case["given"]["files"]["1_Pooling/config.json"]).unwrap();
            assert_eq!(format!("{pooling:?}").to_lowercase(), case["expect"]["pooling"], "{}", case["id"]);
        }
    }

    #[test]
    fn pooling_that_is_unknown_or_combined_is_refused_by_name() {
        let both = serde_json::json!({ "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true });
        assert!(pooling_of(&both).unwrap_err().contains("pooling_mode_cls_token"));
        let unknown = serde_json::json!({ "pooling_mode_max_tokens": true });
        assert!(pooling_of(&unknown).unwrap_err().contains("pooling_mode_max_tokens"));
        assert_eq!(pooling_of(&Value::Null), Ok(Pooling::Mean));
    }

    #[test]
    fn normalising_cases() {
        for case in cases("normalise") {
            assert_close(&unit(&floats(&case["given"]["vector"])), &floats(&case["expect"]["vector"]), &case);
        }
    }

    #[test]
    fn a_long_text_is_cut_inside_its_frame() {
        assert_eq!(cut_inside_frame(vec![0, 9, 8, 7, 6, 2], 1, 4), [0, 9, 8, 2]);
        assert_eq!(cut_inside_frame(vec![0, 9, 8, 2], 1, 4), [0, 9, 8, 2]);
        assert_eq!(cut_inside_frame(vec![5, 6, 7], 0, 2), [5, 6]);
    }

    #[test]
    fn batches_hold_whole_texts_up_to_the_limit() {
        let documents = [vec![0; 1000], vec![0; 1000], vec![0; 100], vec![0; 5000]];
        assert_eq!(batch_size(&[0, 1, 2, 3], &documents), 2);
        assert_eq!(batch_size(&[3, 0], &documents), 1);
    }
}
