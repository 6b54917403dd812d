//! Texts into vectors: one a text, and where a model has the heads for it a weight a word and a vector a token.

mod files;
mod heads;
mod replica;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use lifelong_kernels::Device;
use lifelong_models::token_head::TokenHead;
use lifelong_models::{Checkpoint, load_encoder};

pub use files::{Pooling, Prompts};
pub use heads::{Head, HybridWeights, MultiVector, SparseVector, TokenVectors};

use replica::{Encoded, Replica};

use super::error::{Error, Result};
use super::hub::ModelFiles;
use super::model::{load_error, load_tokenizer};
use super::tokenizer::{Specials, Tokenizer};

/// Tokens of one packed batch. Long enough to keep the matrix products busy; the vectors do not depend on it.
const BATCH_TOKENS: usize = 2048;

/// What a text is for. Models with prompts put one before queries alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To find others.
    Query,
    /// To be found.
    Document,
}

/// What the user says where a model's files do not.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmbedderOptions {
    /// Stands above what the files say.
    pub pooling: Option<Pooling>,
}

/// An embedding model, whole on each of its devices. Shared by threads: a device runs one batch at a time.
pub struct Embedder {
    name: String,
    digest: String,
    /// At least one.
    replicas: Vec<Replica>,
    tokenizer: Tokenizer,
    pooling: Pooling,
    prompts: Prompts,
    max_tokens: usize,
    truncated: AtomicU64,
}

/// Loads an embedding model by what its files say: see [`load_embedder_with`].
///
/// # Errors
/// As [`load_embedder_with`].
pub fn load_embedder(files: &ModelFiles, device: &Device) -> Result<Embedder> {
    load_embedder_with(files, device, EmbedderOptions::default())
}

/// As [`load_embedder_on`], for one device.
///
/// # Errors
/// As there.
pub fn load_embedder_with(files: &ModelFiles, device: &Device, options: EmbedderOptions) -> Result<Embedder> {
    load_embedder_on(files, std::slice::from_ref(device), options)
}

/// Loads an embedding model with its pooling (`modules.json` and the pooling module it names; `pooling_type` in GGUF), its
/// prompts (`config_sentence_transformers.json`), its limit on tokens (`sentence_bert_config.json`; the model's context
/// without it) and the heads that lie beside it (`sparse_linear`, `colbert_linear`). Several devices, at least one, share
/// the batches of a call; no vector shows how many there are. A processor holds projections in plain floats as integers of 16
/// bits ([`Checkpoint::rounded`]).
///
/// # Errors
/// [`Error::Load`] naming the part; among them a pooling that neither the files nor the options state.
pub fn load_embedder_on(files: &ModelFiles, devices: &[Device], options: EmbedderOptions) -> Result<Embedder> {
    let fault = |part: &str, error: &dyn std::fmt::Display| load_error(files, part, error);
    let path = files.checkpoint().map_err(|error| fault("checkpoint", &error))?;
    let checkpoint = Checkpoint::open(path).map_err(|error| fault("checkpoint", &error))?.rounded();
    let said = files::read(files, &checkpoint).map_err(|error| fault("sentence-transformers files", &error))?;
    let Some(pooling) = options.pooling.or(said.pooling) else {
        let reason = "its files do not say how the vectors of tokens become one of a text (there is no modules.json, no \
                      1_Pooling/config.json and no `pooling_type`): say it with `--pooling mean|cls|last`, or with \
                      `embedder_pooling` under [models]";
        return Err(fault("pooling", &reason));
    };
    let replica = |device: &Device| -> Result<Replica> {
        let encoder = load_encoder(&checkpoint, device).map_err(|error| fault("weights", &error))?;
        let hidden = encoder.geometry().hidden;
        let head = |name: &str| match head_file(files, name) {
            Some(path) => TokenHead::open(&path, hidden, device).map(Some).map_err(|error| fault(name, &error)),
            None => Ok(None),
        };
        let (sparse, colbert) = (head("sparse_linear")?, head("colbert_linear")?);
        if let Some(found) = sparse.as_ref().map(TokenHead::outputs).filter(|outputs| *outputs != 1) {
            return Err(fault("sparse_linear", &format!("expected one weight a token, found {found}")));
        }
        Ok(Replica::new(device.clone(), encoder, sparse, colbert))
    };
    let replicas: Vec<Replica> = devices.iter().map(replica).collect::<Result<_>>()?;
    let Some(first) = replicas.first() else {
        return Err(fault("devices", &"expected at least one, found none"));
    };
    let context = first.encoder.geometry().context;
    Ok(Embedder {
        name: files.name.clone(),
        digest: files.digest().map_err(|error| fault("digest", &error))?.to_string(),
        tokenizer: load_tokenizer(files, &checkpoint)?,
        pooling,
        prompts: said.prompts,
        max_tokens: said.max_tokens.map_or(context, |most| context.min(most)),
        replicas,
        truncated: AtomicU64::new(0),
    })
}

/// The file of a head: safetensors before the file of `torch.save`.
fn head_file(files: &ModelFiles, name: &str) -> Option<PathBuf> {
    let find = |file: String| files.files.iter().find(|known| known.name == file).map(|known| known.path.clone());
    find(format!("{name}.safetensors")).or_else(|| find(format!("{name}.pt")))
}

impl Embedder {
    /// One vector of length 1 a text, in order, for documents; the zero vector stays zero. A text's vector does not depend
    /// on the others. Texts beyond the model's limit are cut at the end, and counted.
    ///
    /// # Errors
    /// [`Error::Forward`] when the encoder fails.
    pub fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        self.embed_for(Purpose::Document, texts)
    }

    /// As [`Embedder::embed`], with the prompt that the model has for this purpose before each text.
    ///
    /// # Errors
    /// As [`Embedder::embed`].
    pub fn embed_for(&self, purpose: Purpose, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        self.encode_all(purpose, texts, |replica, text| replica.dense(self.pooling, text))
    }

    /// One vector a query, in order, of a model that is told the task it embeds for; the same as
    /// [`Embedder::embed_for`] of queries where it is told none.
    ///
    /// # Errors
    /// As [`Embedder::embed`].
    pub fn embed_queries_with(&self, task: &str, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        let prompt = self.prompts.query_with(task);
        let prompt = prompt.as_deref().unwrap_or(&self.prompts.query);
        self.encode_behind(prompt, texts, |replica, text| replica.dense(self.pooling, text))
    }

    /// The learned weights of each text's tokens, in order.
    ///
    /// # Errors
    /// As [`Embedder::embed`]; a model without this head.
    pub fn sparse(&self, purpose: Purpose, texts: &[String]) -> Result<Vec<SparseVector>> {
        self.sparse_head(self.first())?;
        let special = self.special();
        self.encode_all(purpose, texts, |replica, text| replica.sparse(self.sparse_head(replica)?, &special, text))
    }

    /// A vector for each token of each text, in order.
    ///
    /// # Errors
    /// As [`Embedder::embed`]; a model without this head.
    pub fn colbert(&self, purpose: Purpose, texts: &[String]) -> Result<Vec<TokenVectors>> {
        self.colbert_head(self.first())?;
        self.encode_all(purpose, texts, |replica, text| replica.colbert(self.colbert_head(replica)?, text))
    }

    /// All three, of one pass through the model.
    ///
    /// # Errors
    /// As [`Embedder::embed`]; a model without these heads.
    pub fn multi(&self, purpose: Purpose, texts: &[String]) -> Result<Vec<MultiVector>> {
        self.sparse_head(self.first())?;
        self.colbert_head(self.first())?;
        let special = self.special();
        self.encode_all(purpose, texts, |replica, text| {
            Ok(MultiVector {
                dense: replica.dense(self.pooling, text)?,
                sparse: replica.sparse(self.sparse_head(replica)?, &special, text)?,
                colbert: replica.colbert(self.colbert_head(replica)?, text)?,
            })
        })
    }

    /// What this model can make of a text.
    pub fn heads(&self) -> Vec<Head> {
        let sparse = self.first().sparse.as_ref().map(|_| Head::Sparse);
        let colbert = self.first().colbert.as_ref().map(|_| Head::Colbert);
        [Some(Head::Dense), sparse, colbert].into_iter().flatten().collect()
    }

    /// Names what decides the vectors: model, weights and pooling. Vectors under different names are never compared.
    pub fn descriptor(&self) -> String {
        format!("{} {} {:?} {}", self.name, self.digest, self.pooling, self.max_tokens)
    }

    /// Numbers in a text's vector.
    pub fn dimensions(&self) -> usize {
        self.first().encoder.geometry().hidden
    }

    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// What stands before queries and documents.
    pub fn prompts(&self) -> &Prompts {
        &self.prompts
    }

    /// The most tokens of a text that are looked at, those of the model's frame (`[CLS]`, `[SEP]`) included.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// How many texts were cut so far.
    pub fn truncated_texts(&self) -> u64 {
        self.truncated.load(Ordering::Relaxed)
    }

    /// Where it computes; of several devices the first.
    pub fn device(&self) -> &Device {
        &self.first().device
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// All devices have the same.
    fn first(&self) -> &Replica {
        &self.replicas[0]
    }

    /// As [`Embedder::encode_behind`], with the prompt that the model has for the purpose.
    fn encode_all<T: Send>(
        &self,
        purpose: Purpose,
        texts: &[String],
        finish: impl Fn(&Replica, &Encoded<'_>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let prompt = match purpose {
            Purpose::Query => &self.prompts.query,
            Purpose::Document => &self.prompts.document,
        };
        self.encode_behind(prompt, texts, finish)
    }

    /// Runs every text through the encoder, short ones first and many at once, and `finish` over each, in the order of
    /// `texts`.
    fn encode_behind<T: Send>(
        &self,
        prompt: &str,
        texts: &[String],
        finish: impl Fn(&Replica, &Encoded<'_>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let documents: Vec<Vec<u32>> = texts.iter().map(|text| self.tokens(prompt, text)).collect();
        let mut by_length: Vec<usize> = (0..texts.len()).collect();
        by_length.sort_by_key(|&text| documents[text].len());
        let mut batches = Vec::new();
        let mut rest = by_length.as_slice();
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(batch_size(rest, &documents));
            batches.push(batch);
            rest = later;
        }
        let mut done = replica::share_out(&self.replicas, &batches, &documents, &finish)?;
        done.sort_by_key(|(text, _)| *text);
        Ok(done.into_iter().map(|(_, value)| value).collect())
    }

    /// A text in the model's frame, behind a prompt, cut inside the frame when it is too long.
    fn tokens(&self, prompt: &str, text: &str) -> Vec<u32> {
        let tokens = match prompt {
            "" => self.tokenizer.encode_document(text, Specials::Literal),
            prompt => self.tokenizer.encode_document(&format!("{prompt}{text}"), Specials::Literal),
        };
        if tokens.len() > self.max_tokens {
            self.truncated.fetch_add(1, Ordering::Relaxed);
        }
        let suffix = self.tokenizer.encode_document("", Specials::Literal).len()
            - self.tokenizer.encode_prompt("", Specials::Literal).len();
        cut_inside_frame(tokens, suffix, self.max_tokens)
    }

    fn sparse_head<'a>(&self, replica: &'a Replica) -> Result<&'a TokenHead> {
        replica.sparse.as_ref().ok_or_else(|| self.no_head("sparse", "sparse_linear"))
    }

    fn colbert_head<'a>(&self, replica: &'a Replica) -> Result<&'a TokenHead> {
        replica.colbert.as_ref().ok_or_else(|| self.no_head("colbert", "colbert_linear"))
    }

    fn no_head(&self, head: &str, file: &str) -> Error {
        let what = format!("head `{head}` of model `{}`", self.name);
        Error::Load { what, reason: format!("the model has no {file}.safetensors and no {file}.pt: BGE-M3 has both") }
    }

    /// Tokens that are no words of a text: its frame, padding, and what stands for bytes that have no token.
    fn special(&self) -> Vec<u32> {
        let tokenizer = &self.tokenizer;
        let others = [tokenizer.bos_id(), tokenizer.eos_id(), tokenizer.padding_id(), tokenizer.unknown_id()];
        let frame = tokenizer.encode_document("", Specials::Literal);
        frame.into_iter().chain(others.into_iter().flatten()).collect()
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

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use lifelong_kernels::ops;
    use serde_json::Value;

    use super::replica::unit;
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
            let pooling = files::pooling_of(&case["given"]["files"]["1_Pooling/config.json"]).unwrap().unwrap();
            assert_eq!(format!("{pooling:?}").to_lowercase(), case["expect"]["pooling"], "{}", case["id"]);
        }
    }

    #[test]
    fn sparse_weight_cases() {
        for case in cases("bge_m3_sparse") {
            let given = &case["given"];
            let ids = |key: &str| -> Vec<u32> {
                given[key].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
            };
            let sparse = SparseVector::of(&ids("ids"), &floats(&given["weights"]), &ids("special_ids"));
            let found: Value = sparse.weights.iter().map(|(id, w)| (id.to_string(), f64::from(*w))).collect();
            let close = |(id, w): (&String, &Value)| (found[id].as_f64().unwrap() - w.as_f64().unwrap()).abs() < 1e-6;
            let expected = case["expect"]["weights"].as_object().unwrap();
            assert!(expected.len() == sparse.weights.len() && expected.iter().all(close), "{}", case["id"]);
        }
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
