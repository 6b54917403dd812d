//! What a checkpoint says of itself: dimensions, storage formats and chat template, read from its header without
//! loading weights, and therefore also for architectures that are not ported.

use super::{Error, ModelFiles};
use crate::reply::tool_call::{self, Dialect};
use lifelong_kernels::ops::delta::{DeltaShape, HeadOrder};
use lifelong_kernels::{BLOCK_TOKENS, Format, KvGeometry, KvType};
use lifelong_models::checkpoint::{Checkpoint, Metadata};
use lifelong_models::config::HuggingFace;
use lifelong_models::gguf::Header;
use lifelong_models::{Result, registry};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A checkpoint's description. `None` where the file does not say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Card {
    /// As the file names it: `llama`, `LlamaForCausalLM`.
    pub architecture: String,
    pub dimensions: Dimensions,
    /// Weights that are numbers, counted in the file.
    pub parameters: u64,
    /// Bytes of these weights.
    pub weight_bytes: u64,
    /// How many tensors are stored in each format.
    pub formats: BTreeMap<String, usize>,
    pub chat_template: Option<String>,
}

/// The numbers of a model's shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Dimensions {
    pub layers: Option<usize>,
    pub hidden: Option<usize>,
    pub heads: Option<usize>,
    pub kv_heads: Option<usize>,
    pub head_dim: Option<usize>,
    pub feed_forward: Option<usize>,
    pub vocabulary: Option<usize>,
    /// Tokens.
    pub context: Option<usize>,
    /// Layers that keep a state instead of keys and values, and the numbers in one.
    pub states: Option<(usize, usize)>,
}

impl Card {
    /// Reads the description of a model's files.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when the files cannot be read as a checkpoint, [`Error::NotAModel`] when there is none.
    pub fn read(files: &ModelFiles) -> std::result::Result<Card, Error> {
        let path = files.checkpoint()?;
        Card::of(path, &files.folder)
            .map_err(|error| Error::Checkpoint { path: path.to_path_buf(), source: Box::new(error) })
    }

    fn of(path: &Path, folder: &Path) -> Result<Card> {
        let checkpoint = Checkpoint::open(path)?;
        let (architecture, dimensions, chat_template) = match checkpoint.metadata()? {
            Metadata::Gguf(header) => describe_gguf(header)?,
            Metadata::HuggingFace { path, config } => {
                let config = HuggingFace { path, config };
                (config.architecture()?, huggingface_dimensions(&config)?, template_beside(folder))
            }
        };
        let mut card =
            Card { architecture, dimensions, parameters: 0, weight_bytes: 0, formats: BTreeMap::new(), chat_template };
        for (shape, format, bytes) in checkpoint.weights() {
            card.parameters += shape.iter().map(|extent| *extent as u64).product::<u64>();
            card.weight_bytes += bytes as u64;
            *card.formats.entry(format).or_default() += 1;
        }
        card.count_four_bit_floats(&checkpoint);
        Ok(card)
    }

    /// Weights that safetensors hold as bytes: two in each byte of `_blocks`, and `_scales` beside them.
    fn count_four_bit_floats(&mut self, checkpoint: &Checkpoint) {
        for name in checkpoint.names().filter(|name| name.ends_with("_blocks") || name.ends_with("_scales")) {
            let shape = checkpoint.shape(name).unwrap_or_default();
            let Ok((_, bytes)) = checkpoint.bytes(name, shape) else { continue };
            self.weight_bytes += bytes.len() as u64;
            if name.ends_with("_blocks") {
                self.parameters += 2 * bytes.len() as u64;
                *self.formats.entry(format!("{:?}", Format::MXFP4)).or_default() += 1;
            }
        }
    }

    /// Bytes of keys, values and states for 1000 tokens of one request, at two bytes a number, the scales of integers left out; `None` when the
    /// file does not say enough.
    pub fn kv_bytes_per_1000_tokens(&self) -> Option<u64> {
        let Dimensions { layers, kv_heads, head_dim, states, .. } = self.dimensions;
        let (state_layers, state_values) = states.unwrap_or_default();
        let geometry = KvGeometry {
            layers: layers?.checked_sub(state_layers)?,
            blocks: 1,
            block_tokens: BLOCK_TOKENS,
            kv_heads: kv_heads?,
            head_dim: head_dim?,
            kv_type: KvType::F16,
            state_layers,
            state_values,
        };
        Some(geometry.bytes_per_block() as u64 * 1000 / BLOCK_TOKENS as u64)
    }

    /// The family of the chat template, by the marks it writes around a turn.
    pub fn template_family(&self) -> &'static str {
        let Some(template) = &self.chat_template else { return "none" };
        FAMILIES.iter().find(|(mark, _)| template.contains(mark)).map_or("its own", |(_, family)| family)
    }
}

impl Card {
    /// How the model writes tool calls, told from its template.
    pub fn dialect(&self) -> Option<&'static dyn Dialect> {
        tool_call::of_template(self.chat_template.as_deref()?)
    }
}

/// Whether an architecture of that name (the registry's, or a file's) runs in this program.
pub fn is_ported(architecture: &str) -> bool {
    entry(architecture).is_some_and(registry::Entry::is_built)
}

/// The other program that an architecture runs through; `None` for those that are our own, and unknown ones.
pub fn through(architecture: &str) -> Option<&'static str> {
    entry(architecture)?.through()
}

/// Whether a model of an architecture can be split over several GPUs.
pub fn is_shared(architecture: &str) -> bool {
    entry(architecture).is_some_and(registry::Entry::is_shared)
}

fn entry(architecture: &str) -> Option<&'static registry::Entry> {
    registry::ARCHITECTURES.iter().find(|entry| {
        entry.name == architecture || entry.gguf.contains(&architecture) || entry.hugging_face.contains(&architecture)
    })
}

/// Names of all architectures that run.
pub fn ported() -> Vec<&'static str> {
    registry::ARCHITECTURES.iter().filter(|entry| entry.is_built()).map(|entry| entry.name).collect()
}

/// Marks of published chat templates; the first that occurs decides.
const FAMILIES: &[(&str, &str)] = &[
    ("<|channel|>", "harmony"),
    ("<|im_start|>", "chatml"),
    ("<|start_header_id|>", "llama-3"),
    ("<start_of_turn>", "gemma"),
    ("[INST]", "mistral"),
    ("<｜Assistant｜>", "deepseek"),
    ("<|assistant|>", "zephyr"),
];

fn describe_gguf(header: &Header) -> Result<(String, Dimensions, Option<String>)> {
    let architecture: &str = header.require("general.architecture")?;
    // Some architectures state a number a layer; that is no single dimension, so it counts as not said.
    let number = |key: &str| header.get::<usize>(&format!("{architecture}.{key}")).ok().flatten();
    let (hidden, heads) = (number("embedding_length"), number("attention.head_count"));
    let layers = number("block_count").map(|layers| layers - number("nextn_predict_layers").unwrap_or(0).min(layers));
    let dimensions = Dimensions {
        layers,
        hidden,
        heads,
        kv_heads: number("attention.head_count_kv").or(heads),
        head_dim: number("attention.key_length").or(divide(hidden, heads)),
        feed_forward: number("feed_forward_length"),
        vocabulary: header.get::<Vec<&str>>("tokenizer.ggml.tokens").ok().flatten().map(|tokens| tokens.len()),
        context: number("context_length"),
        states: states_of_gguf(layers, number),
    };
    let template = header.get::<&str>("tokenizer.chat_template")?.map(String::from);
    Ok((architecture.to_string(), dimensions, template))
}

fn huggingface_dimensions(config: &HuggingFace<'_>) -> Result<Dimensions> {
    let number = |key: &str| config.get::<usize>(key);
    let (hidden, heads) = (number("hidden_size")?, number("num_attention_heads")?);
    Ok(Dimensions {
        layers: number("num_hidden_layers")?,
        hidden,
        heads,
        kv_heads: number("num_key_value_heads")?.or(heads),
        head_dim: number("head_dim")?.or(divide(hidden, heads)),
        feed_forward: number("intermediate_size")?,
        vocabulary: number("vocab_size")?,
        context: number("max_position_embeddings")?,
        states: states(config)?,
    })
}

/// Linear attention by the gated delta rule, as `layer_types` or the interval of the other layers place it.
fn states(config: &HuggingFace<'_>) -> Result<Option<(usize, usize)>> {
    let number = |key: &str| config.get::<usize>(key);
    let Some(key_heads) = number("linear_num_key_heads")? else { return Ok(None) };
    let shape = DeltaShape {
        key_heads,
        value_heads: number("linear_num_value_heads")?.unwrap_or_default(),
        key_dim: number("linear_key_head_dim")?.unwrap_or_default(),
        value_dim: number("linear_value_head_dim")?.unwrap_or_default(),
        kernel: number("linear_conv_kernel_dim")?.unwrap_or_default().max(1),
        order: HeadOrder::default(),
    };
    let layers = match config.get::<Vec<String>>("layer_types")? {
        Some(kinds) => kinds.iter().filter(|kind| *kind == "linear_attention").count(),
        None => {
            let (layers, interval) = (number("num_hidden_layers")?, number("full_attention_interval")?);
            let layers = layers.unwrap_or_default();
            layers - layers / interval.unwrap_or(4).max(1)
        }
    };
    Ok(Some((layers, shape.state_values())))
}

/// As [`states`].
fn states_of_gguf(layers: Option<usize>, number: impl Fn(&str) -> Option<usize>) -> Option<(usize, usize)> {
    let (layers, interval) = (layers?, number("full_attention_interval")?.max(1));
    let value_heads = number("ssm.time_step_rank")?;
    let shape = DeltaShape {
        key_heads: number("ssm.group_count")?,
        value_heads,
        key_dim: number("ssm.state_size")?,
        value_dim: number("ssm.inner_size")?.checked_div(value_heads)?,
        kernel: number("ssm.conv_kernel")?.max(1),
        order: HeadOrder::Tiled,
    };
    Some((layers - layers / interval, shape.state_values()))
}

fn divide(hidden: Option<usize>, heads: Option<usize>) -> Option<usize> {
    hidden?.checked_div(heads?)
}

/// The template beside safetensors: its own file, or the text in `tokenizer_config.json`.
fn template_beside(folder: &Path) -> Option<String> {
    if let Ok(template) = fs::read_to_string(folder.join("chat_template.jinja")) {
        return Some(template);
    }
    let config = fs::read(folder.join("tokenizer_config.json")).ok()?;
    let config: serde_json::Value = serde_json::from_slice(&config).ok()?;
    Some(config.get("chat_template")?.as_str()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_template(template: Option<&str>) -> Card {
        Card {
            architecture: "llama".into(),
            dimensions: Dimensions { layers: Some(30), kv_heads: Some(3), head_dim: Some(64), ..Dimensions::default() },
            parameters: 0,
            weight_bytes: 0,
            formats: BTreeMap::new(),
            chat_template: template.map(String::from),
        }
    }

    #[test]
    fn kv_memory_is_keys_and_values_of_every_layer_in_f16() {
        // 2 × 30 layers × 3 heads × 64 numbers × 2 bytes × 1000 tokens.
        assert_eq!(with_template(None).kv_bytes_per_1000_tokens(), Some(23_040_000));
        let unknown = Card { dimensions: Dimensions::default(), ..with_template(None) };
        assert_eq!(unknown.kv_bytes_per_1000_tokens(), None);
    }

    #[test]
    fn states_are_counted_in_place_of_keys_and_values() {
        let config = serde_json::json!({
            "num_hidden_layers": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
            "hidden_size": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
            "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4
        });
        let dimensions = huggingface_dimensions(&HuggingFace { path: Path::new(""), config: &config }).unwrap();
        // Three inputs of 2 × 2 × 8 + 4 × 16 channels, and 4 matrices of 8 × 16.
        assert_eq!(dimensions.states, Some((6, 3 * 96 + 512)));
        let card = Card { dimensions, ..with_template(None) };
        // A block of 16 tokens: two layers of keys and values, six states.
        assert_eq!(card.kv_bytes_per_1000_tokens(), Some((2 * 2 * 16 * 16 * 2 + 6 * 800 * 4) * 1000 / 16));
    }

    #[test]
    fn template_families_are_told_by_their_marks() {
        assert_eq!(with_template(None).template_family(), "none");
        assert_eq!(with_template(Some("{{ '<|im_start|>' + role }}")).template_family(), "chatml");
        assert_eq!(with_template(Some("{{ text }}")).template_family(), "its own");
    }

    #[test]
    fn architectures_are_known_by_registry_and_file_names() {
        assert!(is_ported("llama") && is_ported("LlamaForCausalLM") && is_ported("bert"));
        assert!(!is_ported("no-such-architecture"));
        assert_eq!((through("llama"), through("none")), (None, None));
        assert!(through("Olmo2ForCausalLM").is_some_and(|program| program.starts_with("candle")));
    }

    #[test]
    fn a_folder_of_safetensors_is_described_by_its_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let config = r#"{"architectures": ["BertModel"], "hidden_size": 8, "num_attention_heads": 2,
                         "num_hidden_layers": 3, "intermediate_size": 16, "vocab_size": 5, "max_position_embeddings": 9}"#;
        fs::write(path("config.json"), config).unwrap();
        fs::write(path("tokenizer_config.json"), r#"{"chat_template": "[INST] x"}"#).unwrap();
        // One F32 matrix [5, 8] and one I64 table [9], as the format lays them out.
        let header = r#"{"w":{"dtype":"F32","shape":[5,8],"data_offsets":[0,160]},"p":{"dtype":"I64","shape":[9],"data_offsets":[160,232]}}"#;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(bytes.len() + 232, 0);
        fs::write(path("model.safetensors"), bytes).unwrap();

        let files = super::super::local::open(folder.path()).unwrap();
        let card = Card::read(&files).unwrap();
        assert_eq!(card.architecture, "BertModel");
        assert_eq!((card.parameters, card.weight_bytes), (40, 160));
        assert_eq!(card.formats, BTreeMap::from([("F32".to_string(), 1)]));
        assert_eq!(card.dimensions.head_dim, Some(4));
        assert_eq!(card.template_family(), "mistral");
    }
}
