//! RoBERTa and XLM-RoBERTa encoders, among them BGE-M3's dense vectors: a BERT whose positions start behind the padding
//! token's number.
//!
//! Source: Liu et al. 2019, "RoBERTa", §3; Conneau et al. 2020, "Unsupervised Cross-lingual Representation Learning at
//! Scale", §3. Texts are packed without padding, so the padding row itself is never read.

use lifelong_kernels::Device;

use crate::architecture::Encoder;
use crate::bert::{self, Bert, Variant};
use crate::checkpoint::{Checkpoint, Metadata};
use crate::config::{self, BertConfig, HuggingFace};
use crate::error::Result;

/// `pad_token_id` of `XLMRobertaConfig` in transformers.
const PADDING: usize = 1;

static VARIANT: Variant =
    Variant { architecture: "xlm-roberta", prefix: "roberta.", attention: bert::ATTENTION, bias: bert::no_bias };

/// Builds an XLM-RoBERTa, with or without the prefix `roberta.` on its tensors.
///
/// # Errors
/// As [`crate::bert::load`]; a padding token beyond the position table.
pub fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Box<dyn Encoder>> {
    Ok(Box::new(Bert::load(&VARIANT, &config(checkpoint)?, checkpoint, device)?))
}

/// # Errors
/// As [`load`].
pub fn config(checkpoint: &Checkpoint) -> Result<BertConfig> {
    let mut config = BertConfig::from_checkpoint(checkpoint)?;
    start_behind_padding(checkpoint, &mut config)?;
    Ok(config)
}

/// Moves the first position behind the row of the padding token.
pub(crate) fn start_behind_padding(checkpoint: &Checkpoint, config: &mut BertConfig) -> Result<()> {
    if let Metadata::HuggingFace { path, config: json } = checkpoint.metadata()? {
        const KEY: &str = "pad_token_id";
        let rows = config.context;
        let padding = HuggingFace { path, config: json }.or_default(KEY, PADDING, &mut config.notes)?;
        if padding + 1 >= rows {
            let text = format!("found {padding}, expected a number below the {rows} rows of positions less one");
            return Err(config::problem(path, KEY, text));
        }
        config.first_position = padding + 1;
        config.context = rows - config.first_position;
    }
    Ok(())
}
