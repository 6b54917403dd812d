//! From a model's files to something the engine can run.

use std::path::Path;
use std::sync::Arc;

use lifelong_kernels::{Device, Format};
use lifelong_models::{Batching, Checkpoint, Decoder, load_decoder, registry};
use serde_json::Value;

use super::error::{Error, Result};
use super::generate::Prompter;
use super::generation::declared_eos;
use super::hub::ModelFiles;
use super::template::{ChatMessage, ChatSettings, ChatTemplate, RenderOptions, TemplateError, TemplateTokens};
use super::thought::{Channels, Tagged, TextStream};
use super::tokenizer::{Specials, Tokenizer};

/// A language model with everything needed to talk to it.
#[derive(Clone)]
pub struct LoadedModel {
    /// Preset name, or the file or folder it was named by.
    pub name: String,
    /// Over the names and contents of all files.
    pub digest: String,
    pub decoder: Arc<dyn Decoder>,
    /// Where it runs.
    pub device: Device,
    pub tokenizer: Tokenizer,
    /// `None` for base models.
    pub template: Option<ChatTemplate>,
    /// Every token that ends a generation, ascending: the union of what the files declare.
    pub eos: Vec<u32>,
}

/// What of a language model turns dialogues into tokens: no weights, no device.
pub struct TextModel {
    name: String,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
}

/// Loads the tokenizer and the chat template of a language model alone. Its weights may be absent where these lie beside
/// them.
///
/// # Errors
/// As [`load`], for these parts.
pub fn load_text(files: &ModelFiles) -> Result<TextModel> {
    let fault = |error: &dyn std::fmt::Display| load_error(files, "checkpoint", error);
    if !files.has_weights() {
        let tokenizer = Tokenizer::load(None, &files.folder).map_err(|error| fault(&error))?;
        let template = ChatTemplate::load(None, &files.folder, TemplateTokens::of(&tokenizer));
        let template = template.map_err(|error| load_error(files, "chat template", &error))?;
        return Ok(TextModel { name: files.name.clone(), tokenizer, template });
    }
    let path = files.checkpoint().map_err(|error| fault(&error))?;
    let checkpoint = Checkpoint::open(path).map_err(|error| fault(&error))?;
    let tokenizer = load_tokenizer(files, &checkpoint)?;
    let template = load_template(files, &checkpoint, &tokenizer)?;
    Ok(TextModel { name: files.name.clone(), tokenizer, template })
}

impl TextModel {
    /// As [`LoadedModel::with_settings`].
    ///
    /// # Errors
    /// As there.
    pub fn with_settings(mut self, settings: &ChatSettings) -> Result<Self> {
        self.template = set_up(&self.name, self.template, settings)?;
        Ok(self)
    }
}

/// The other program, with its version, that a language model's files run through; `None` when this one runs them itself.
///
/// # Errors
/// As [`load`], for the header alone.
pub fn runs_through(files: &ModelFiles) -> Result<Option<&'static str>> {
    let fault = |error: &dyn std::fmt::Display| load_error(files, "checkpoint", error);
    let path = files.checkpoint().map_err(|error| fault(&error))?;
    let checkpoint = Checkpoint::open(path).map_err(|error| fault(&error))?;
    Ok(registry::find(&checkpoint).map_err(|error| fault(&error))?.through())
}

fn set_up(name: &str, template: Option<ChatTemplate>, settings: &ChatSettings) -> Result<Option<ChatTemplate>> {
    if *settings == ChatSettings::default() {
        return Ok(template);
    }
    let template = template.ok_or_else(|| TemplateError::Absent { model: name.to_string() });
    let set_up = template.and_then(|template| template.with_settings(settings));
    set_up
        .map(Some)
        .map_err(|error| Error::Load { what: format!("chat settings of model `{name}`"), reason: error.to_string() })
}

impl Prompter for TextModel {
    fn render(&self, messages: &[ChatMessage]) -> anyhow::Result<Vec<u32>> {
        let options = RenderOptions::default();
        Ok(render(&self.name, &self.tokenizer, self.template.as_ref(), messages, &options)?)
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode_prompt(text, Specials::Literal)
    }

    fn encode_reply(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode(text, Specials::Literal)
    }

    fn has_template(&self) -> bool {
        self.template.is_some()
    }
}

/// The tokens of a dialogue. Control tokens that the template writes are tokens; those written inside a message stay
/// plain text, so that no task, reply or memory can end a turn.
pub(super) fn render(
    name: &str,
    tokenizer: &Tokenizer,
    template: Option<&ChatTemplate>,
    messages: &[ChatMessage],
    options: &RenderOptions,
) -> Result<Vec<u32>> {
    let Some(template) = template else {
        let reason = format!("model `{name}` has no chat template: it is a base model, give it a plain prompt");
        return Err(Error::Render { reason });
    };
    let apart: Vec<ChatMessage>;
    let messages = match template.has_channels() {
        true => {
            apart = messages.iter().map(ChatMessage::with_thought_apart).collect();
            &apart
        }
        false => messages,
    };
    template.encode(tokenizer, messages, options).map_err(|error| Error::Render { reason: error.to_string() })
}

/// Loads a language model. Weights are repacked for the device here, once.
///
/// # Errors
/// [`Error::Load`] naming the part: an unsupported architecture or storage type, a damaged file, a tokenizer that cannot
/// be rebuilt, a chat template that does not parse.
pub fn load(files: &ModelFiles, device: &Device) -> Result<LoadedModel> {
    load_as(files, device, None)
}

/// As [`load`], with the projections of a checkpoint in plain floats quantised to a format.
///
/// # Errors
/// As [`load`]; a format that cannot be written, and a GGUF file.
pub fn load_as(files: &ModelFiles, device: &Device, quantize: Option<Format>) -> Result<LoadedModel> {
    let fault = |part: &str, error: &dyn std::fmt::Display| load_error(files, part, error);
    let path = files.checkpoint().map_err(|error| fault("checkpoint", &error))?;
    let mut checkpoint = Checkpoint::open(path).map_err(|error| fault("checkpoint", &error))?;
    if let Some(format) = quantize {
        checkpoint = checkpoint.quantized(format).map_err(|error| fault("weights", &error))?;
    }
    let tokenizer = load_tokenizer(files, &checkpoint)?;
    let template = load_template(files, &checkpoint, &tokenizer)?;
    let decoder: Arc<dyn Decoder> = load_decoder(&checkpoint, device).map_err(|error| fault("weights", &error))?.into();
    for note in decoder.notes() {
        tracing::info!(model = files.name, "{note}");
    }
    if decoder.batching() == Batching::OneAtATime {
        tracing::warn!(model = files.name, "computes one request at a time: a long run takes its time");
    }
    let (tokens, width) = (tokenizer.vocab_size(), decoder.geometry().vocab);
    if tokens > width {
        let reason = format!("it has {tokens} tokens and the model {width}: they belong to different models");
        return Err(fault("tokenizer", &reason));
    }
    let configs = [json_beside(files, "config.json"), json_beside(files, "generation_config.json")];
    let own: Vec<u32> = tokenizer.eos_ids().iter().copied().chain(tokenizer.eos_id()).collect();
    Ok(LoadedModel {
        name: files.name.clone(),
        digest: files.digest().map_err(|error| fault("digest", &error))?.to_string(),
        eos: declared_eos(&configs.iter().collect::<Vec<_>>(), &own),
        decoder,
        device: device.clone(),
        tokenizer,
        template,
    })
}

/// The tokenizer of a checkpoint: from the files beside it, or rebuilt from its GGUF metadata.
pub(crate) fn load_tokenizer(files: &ModelFiles, checkpoint: &Checkpoint) -> Result<Tokenizer> {
    Tokenizer::from_checkpoint(checkpoint, small_files(files, checkpoint))
        .map_err(|error| load_error(files, "tokenizer", &error))
}

fn load_template(files: &ModelFiles, checkpoint: &Checkpoint, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>> {
    ChatTemplate::from_checkpoint(checkpoint, small_files(files, checkpoint), TemplateTokens::of(tokenizer))
        .map_err(|error| load_error(files, "chat template", &error))
}

/// The folder of the tokenizer's and the template's files. A GGUF file named by itself carries both, and what lies in its
/// folder is not part of the model: its own path then stands for a folder that holds nothing.
fn small_files<'a>(files: &'a ModelFiles, checkpoint: &'a Checkpoint) -> &'a Path {
    let is_alone = files.files.len() == 1 && checkpoint.gguf().is_some();
    if is_alone { checkpoint.path() } else { &files.folder }
}

pub(crate) fn load_error(files: &ModelFiles, part: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Load { what: format!("{part} of model `{}`", files.name), reason: error.to_string() }
}

/// A JSON file of the model; null when the model has none, or when it is no JSON (its readers have complained then).
pub(crate) fn json_beside(files: &ModelFiles, name: &str) -> Value {
    let file = files.files.iter().find(|file| file.name == name);
    let text = file.and_then(|file| std::fs::read_to_string(&file.path).ok());
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null)
}

impl LoadedModel {
    /// The model with a user's settings applied to every chat.
    ///
    /// # Errors
    /// [`Error::Load`] when there are settings and the model has no template, or its template cannot follow them.
    pub fn with_settings(mut self, settings: &ChatSettings) -> Result<Self> {
        self.template = set_up(&self.name, self.template, settings)?;
        Ok(self)
    }

    /// A decoder of the text of the reply to a prompt.
    pub(crate) fn text_stream(&self, prompt: &[u32]) -> Box<dyn TextStream> {
        let tokenizer = &self.tokenizer;
        let channels = self.template.as_ref().is_some_and(ChatTemplate::has_channels);
        if let Some(stream) = channels.then(|| Channels::behind(prompt, tokenizer)).flatten() {
            return Box::new(stream);
        }
        let template = self.template.as_ref().map_or("", ChatTemplate::source);
        match Tagged::behind(prompt, template, tokenizer) {
            Some(stream) => Box::new(stream),
            None => Box::new(tokenizer.decode_stream()),
        }
    }
}
