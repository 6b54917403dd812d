//! Every architecture that loads, one line each. A new one adds its file and a line here.

use lifelong_kernels::Device;

use crate::architecture::{Decoder, Encoder};
use crate::checkpoint::{Checkpoint, Metadata};
use crate::config::HuggingFace;
use crate::error::{Error, Result};
use crate::split::Split;
use crate::{
    bert, candle_fallback, gemma3, gpt_oss, llama, mistral, mpnet, phi3, qwen2, qwen3, qwen3_5, qwen3_moe, smollm3,
    xlm_roberta,
};

/// One architecture.
pub struct Entry {
    /// The name in messages and lists; also the `model_type` of Hugging Face.
    pub name: &'static str,
    /// Values of `general.architecture` in GGUF files.
    pub gguf: &'static [&'static str],
    /// Class names in `architectures` of a Hugging Face `config.json`.
    pub hugging_face: &'static [&'static str],
    /// Where it comes from.
    pub source: &'static str,
    pub load: Load,
}

/// What an architecture is, and how it is built.
pub enum Load {
    Decoder(fn(&Checkpoint, &Device) -> Result<Box<dyn Decoder>>),
    /// A decoder that a group of devices can share: loaded for one of its members, it is that one's part.
    SharedDecoder(fn(&Checkpoint, &Device) -> Result<Box<dyn Decoder>>),
    Encoder(fn(&Checkpoint, &Device) -> Result<Box<dyn Encoder>>),
    /// A decoder that candle runs, under the entry's name.
    Candle,
}

impl Entry {
    /// `decoder` or `encoder`.
    pub fn kind(&self) -> &'static str {
        match self.load {
            Load::Decoder(_) | Load::SharedDecoder(_) | Load::Candle => "decoder",
            Load::Encoder(_) => "encoder",
        }
    }

    /// The other program that runs it, one request at a time; `None` for those that are our own.
    pub fn through(&self) -> Option<&'static str> {
        match self.load {
            Load::Candle => Some(candle_fallback::PROGRAM),
            Load::Decoder(_) | Load::SharedDecoder(_) | Load::Encoder(_) => None,
        }
    }

    /// Whether a group of devices can hold it in parts.
    pub fn is_shared(&self) -> bool {
        matches!(self.load, Load::SharedDecoder(_))
    }

    /// Whether this build can load it.
    pub fn is_built(&self) -> bool {
        self.through().is_none() || candle_fallback::IS_BUILT
    }
}

/// All architectures, in the order of lists.
#[rustfmt::skip]
pub static ARCHITECTURES: &[Entry] = &[
    Entry { name: "llama", gguf: &["llama"], hugging_face: &["LlamaForCausalLM"], source: "Touvron et al. 2023, LLaMA, §2.2; Llama 3.1 long contexts", load: Load::SharedDecoder(llama::load) },
    Entry { name: "mistral", gguf: &[], hugging_face: &["MistralForCausalLM"], source: "Jiang et al. 2023, Mistral 7B, §2", load: Load::SharedDecoder(mistral::load) },
    Entry { name: "qwen2", gguf: &["qwen2"], hugging_face: &["Qwen2ForCausalLM"], source: "Yang et al. 2024, Qwen2 Technical Report, §2.2", load: Load::SharedDecoder(qwen2::load) },
    Entry { name: "qwen3", gguf: &["qwen3"], hugging_face: &["Qwen3ForCausalLM"], source: "Yang et al. 2025, Qwen3 Technical Report, §2", load: Load::SharedDecoder(qwen3::load) },
    Entry { name: "qwen3moe", gguf: &["qwen3moe"], hugging_face: &["Qwen3MoeForCausalLM", "qwen3_moe"], source: "Yang et al. 2025, Qwen3 Technical Report, §2", load: Load::Decoder(qwen3_moe::load) },
    Entry { name: "qwen35", gguf: &["qwen35", "qwen35moe"], hugging_face: &["Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM", "qwen3_5", "qwen3_5_text", "Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM", "qwen3_5_moe", "qwen3_5_moe_text"], source: "Qwen Team 2026, Qwen3.5; Yang et al. 2025, Gated Delta Networks, §3", load: Load::Decoder(qwen3_5::load) },
    Entry { name: "gpt-oss", gguf: &["gpt-oss"], hugging_face: &["GptOssForCausalLM", "gpt_oss"], source: "OpenAI 2025, gpt-oss-120b & gpt-oss-20b Model Card, §2", load: Load::Decoder(gpt_oss::load) },
    Entry { name: "gemma3", gguf: &["gemma3"], hugging_face: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "gemma3_text"], source: "Gemma Team 2025, Gemma 3 Technical Report, §2", load: Load::Decoder(gemma3::load) },
    Entry { name: "smollm3", gguf: &["smollm3"], hugging_face: &["SmolLM3ForCausalLM"], source: "Bakouch et al. 2025, SmolLM3; layers without positions: Yang et al. 2025, Rope to Nope and Back Again, §4", load: Load::SharedDecoder(smollm3::load) },
    Entry { name: "phi3", gguf: &["phi3"], hugging_face: &["Phi3ForCausalLM"], source: "Abdin et al. 2024, Phi-3 Technical Report, §2; Phi-4-Mini Technical Report 2025, §2", load: Load::SharedDecoder(phi3::load) },
    Entry { name: "bert", gguf: &[], hugging_face: &["BertModel", "BertForMaskedLM"], source: "Devlin et al. 2019, BERT, §3", load: Load::Encoder(bert::load) },
    Entry { name: "xlm-roberta", gguf: &[], hugging_face: &["XLMRobertaModel", "XLMRobertaForMaskedLM", "RobertaModel", "RobertaForMaskedLM", "roberta"], source: "Conneau et al. 2020, XLM-R, §3; Liu et al. 2019, RoBERTa, §3", load: Load::Encoder(xlm_roberta::load) },
    Entry { name: "mpnet", gguf: &[], hugging_face: &["MPNetModel", "MPNetForMaskedLM"], source: "Song et al. 2020, MPNet, §2; relative positions: Raffel et al. 2020, T5, §2.1", load: Load::Encoder(mpnet::load) },
    Entry { name: "qwen3-embedding", gguf: &[], hugging_face: &["Qwen3Model"], source: "Zhang et al. 2025, Qwen3 Embedding, §2", load: Load::Encoder(qwen3::load_encoder) },
    Entry { name: "gemma", gguf: &[], hugging_face: &["GemmaForCausalLM"], source: "Gemma Team 2024, Gemma, §2; through candle", load: Load::Candle },
    Entry { name: "gemma2", gguf: &[], hugging_face: &["Gemma2ForCausalLM"], source: "Gemma Team 2024, Gemma 2, §2; through candle", load: Load::Candle },
    Entry { name: "glm4", gguf: &[], hugging_face: &["Glm4ForCausalLM"], source: "Team GLM 2024, ChatGLM, §2; through candle", load: Load::Candle },
    Entry { name: "granite", gguf: &[], hugging_face: &["GraniteForCausalLM"], source: "Granite Team 2024, Granite 3.0, §2; through candle", load: Load::Candle },
    Entry { name: "olmo", gguf: &[], hugging_face: &["OlmoForCausalLM"], source: "Groeneveld et al. 2024, OLMo, §2.1; through candle", load: Load::Candle },
    Entry { name: "olmo2", gguf: &[], hugging_face: &["Olmo2ForCausalLM"], source: "OLMo Team 2025, 2 OLMo 2 Furious, §2.1; through candle", load: Load::Candle },
    Entry { name: "phi", gguf: &[], hugging_face: &["PhiForCausalLM"], source: "Li et al. 2023, Textbooks Are All You Need II, §2.1; through candle", load: Load::Candle },
    Entry { name: "starcoder2", gguf: &[], hugging_face: &["Starcoder2ForCausalLM"], source: "Lozhkov et al. 2024, StarCoder 2, §6; through candle", load: Load::Candle },
];

/// The entry for the architecture that a checkpoint names.
///
/// # Errors
/// [`Error::UnsupportedArchitecture`] with the name found and all that are supported; [`Error::Config`] when the
/// checkpoint names none.
pub fn find(checkpoint: &Checkpoint) -> Result<&'static Entry> {
    let (found, entry) = match checkpoint.metadata()? {
        Metadata::Gguf(header) => {
            let found = header.require::<&str>("general.architecture")?.to_string();
            let entry = ARCHITECTURES.iter().find(|entry| entry.gguf.contains(&found.as_str()));
            (found, entry)
        }
        Metadata::HuggingFace { path, config } => {
            let found = HuggingFace { path, config }.architecture()?;
            let matches = |entry: &&Entry| entry.name == found || entry.hugging_face.contains(&found.as_str());
            let entry = ARCHITECTURES.iter().find(matches);
            (found, entry)
        }
    };
    entry.ok_or_else(|| unsupported(checkpoint, found, |_| true))
}

/// Loads a language model, for a group of devices ([`Device::group`]) in as many parts.
///
/// # Errors
/// As [`find`] and the architecture's own; an encoder is not a decoder; [`Error::Split`] for a model that a group cannot share.
pub fn load_decoder(checkpoint: &Checkpoint, device: &Device) -> Result<Box<dyn Decoder>> {
    let entry = find(checkpoint)?;
    let devices = device.members().len();
    match entry.load {
        Load::SharedDecoder(load) if devices > 0 => {
            Ok(Box::new(Split::load(device, |member| load(checkpoint, member))?))
        }
        Load::Decoder(_) | Load::Candle if devices > 0 => {
            let shared: Vec<&str> =
                ARCHITECTURES.iter().filter(|entry| entry.is_shared()).map(|entry| entry.name).collect();
            let problem = format!("architecture `{}` is not among those that are: {}", entry.name, shared.join(", "));
            Err(Error::Split { path: checkpoint.path().to_path_buf(), devices, problem })
        }
        Load::Decoder(load) | Load::SharedDecoder(load) => load(checkpoint, device),
        Load::Candle => candle_fallback::load(entry.name, checkpoint, device),
        Load::Encoder(_) => {
            let found = format!("{} (an encoder, it generates no text)", entry.name);
            Err(unsupported(checkpoint, found, |entry| entry.kind() == "decoder"))
        }
    }
}

/// Loads an embedding model. Embedding models that are a decoder's body name the decoder in their files: then the encoder
/// called `{decoder}-embedding` is taken. That the vectors of such a body mean anything is for the caller to know, from
/// the files of sentence-transformers.
///
/// # Errors
/// As [`find`] and the architecture's own; a decoder without such an encoder.
pub fn load_encoder(checkpoint: &Checkpoint, device: &Device) -> Result<Box<dyn Encoder>> {
    let entry = find(checkpoint)?;
    let body = format!("{}-embedding", entry.name);
    let entry = ARCHITECTURES.iter().find(|other| other.name == body).unwrap_or(entry);
    match entry.load {
        Load::Encoder(load) => load(checkpoint, device),
        Load::Decoder(_) | Load::SharedDecoder(_) | Load::Candle => {
            let found = format!("{} (a decoder, not an embedding model)", entry.name);
            Err(unsupported(checkpoint, found, |entry| matches!(entry.load, Load::Encoder(_))))
        }
    }
}

fn unsupported(checkpoint: &Checkpoint, found: String, offer: impl Fn(&Entry) -> bool) -> Error {
    let names = |entry: &Entry| match entry.hugging_face {
        [] => entry.name.to_string(),
        classes => format!("{} ({})", entry.name, classes.join(", ")),
    };
    let supported = ARCHITECTURES.iter().filter(|entry| offer(entry)).map(names).collect();
    Error::UnsupportedArchitecture { path: checkpoint.path().to_path_buf(), found, supported }
}
