//! `lifelong models show`: one model as a page for people or as a JSON object.

use std::path::PathBuf;

use indicatif::DecimalBytes;
use lifelong_kernels::{Gpu, survey_cuda};
use serde::Serialize;

use crate::engine::hub::card::{self, Card};
use crate::engine::hub::preset::Source;
use crate::engine::hub::{self, Digest, ModelFiles, Named, Preset, Sources};
use crate::engine::machine;

/// Everything that is known of a model.
#[derive(Serialize)]
struct Page {
    name: String,
    /// Absent for a path or repository without a preset.
    preset: Option<PresetPage>,
    /// The registry's or the file's word for the architecture; absent when no file is here and no preset says it.
    architecture: Option<String>,
    /// Whether this program can load the architecture.
    runs: bool,
    /// The other program that it runs through, one request at a time; absent when it is our own.
    #[serde(skip_serializing_if = "Option::is_none")]
    through: Option<&'static str>,
    /// All files are here and verified.
    here: bool,
    files: Vec<FilePage>,
    /// What the checkpoint says; absent until its files are here.
    checkpoint: Option<Card>,
    kv_bytes_per_1000_tokens: Option<u64>,
    chat_template_family: Option<&'static str>,
    /// The format that tool calls are read in; absent when the template knows no tools.
    tool_format: Option<&'static str>,
}

#[derive(Serialize)]
struct PresetPage {
    about: String,
    kind: hub::Kind,
    licence: String,
    source: String,
    parameters: u64,
    context: u32,
    /// The hub repository that the files come from, for a preset that lists none.
    repository: Option<String>,
    /// Of the weights, computed from the model's dimensions, for a preset whose files state no sizes.
    computed_weight_bytes: Option<u64>,
}

#[derive(Serialize)]
struct FilePage {
    name: String,
    size: Option<u64>,
    sha256: Option<Digest>,
    /// Where it lies and where it came from, when it is here.
    path: Option<PathBuf>,
    origin: Option<String>,
    sources: Vec<Source>,
}

/// Prints a model's page.
///
/// # Errors
/// Unknown names, and files that are no checkpoint.
pub(super) fn show(name: &str, json: bool) -> anyhow::Result<()> {
    let page = Page::of(name, &Sources::from_env()?)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&page)?);
    } else {
        print!("{}", page.text());
    }
    Ok(())
}

impl Page {
    fn of(name: &str, sources: &Sources) -> anyhow::Result<Page> {
        let named = Named::find(name)?;
        let local = hub::find_local(&named, sources)?;
        let checkpoint = local.as_ref().map(Card::read).transpose()?;
        let preset = match &named {
            Named::Preset(preset) => Some(preset.as_ref()),
            Named::Path(_) | Named::Repository(_) => None,
        };
        let of_file = checkpoint.as_ref().map(|card| card.architecture.clone());
        let architecture = preset.map(|preset| preset.architecture.clone()).or(of_file);
        Ok(Page {
            name: preset.map_or_else(|| name.to_string(), |preset| preset.name.clone()),
            runs: architecture.as_deref().is_some_and(card::is_ported),
            through: architecture.as_deref().and_then(card::through),
            architecture,
            here: local.is_some(),
            files: files(preset, local.as_ref()),
            preset: preset.map(PresetPage::of),
            kv_bytes_per_1000_tokens: checkpoint
                .as_ref()
                .filter(|_| is_decoder(preset))
                .and_then(Card::kv_bytes_per_1000_tokens),
            tool_format: checkpoint.as_ref().and_then(Card::dialect).map(|dialect| dialect.name()),
            chat_template_family: checkpoint.as_ref().map(Card::template_family),
            checkpoint,
        })
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.name);
        let mut line = |label: &str, value: String| text.push_str(&format!("  {label:14}{value}\n"));
        if let Some(preset) = &self.preset {
            line("about", preset.about.clone());
            line("kind", preset.kind.to_string());
            line("licence", preset.licence.clone());
            line("source", preset.source.clone());
            line("parameters", preset.parameters.to_string());
            line("context", format!("{} tokens", preset.context));
            if let Some(repository) = &preset.repository {
                line("repository", repository.clone());
            }
            if let (Some(bytes), None) = (preset.computed_weight_bytes, &self.checkpoint) {
                line("weights", format!("≈{} (computed)", DecimalBytes(bytes)));
            }
        }
        if let (Some(bytes), Some(memory)) = (self.weight_bytes(), machine::memory_bytes()) {
            let word = if machine::fits(bytes, memory) { "fit" } else { "do not fit" };
            line("memory", format!("the weights {word} into this machine's {}", DecimalBytes(memory)));
        }
        let is_shared = self.architecture.as_deref().is_some_and(card::is_shared);
        if let Some(gpus) = self.weight_bytes().and_then(|bytes| gpu_line(bytes, &survey_cuda().gpus, is_shared)) {
            line("GPU", gpus);
        }
        line("architecture", self.architecture_line());
        match &self.checkpoint {
            Some(card) => self.checkpoint_lines(card, &mut line),
            None => line("here", format!("no; `lifelong models pull {}` fetches it", self.name)),
        }
        for file in &self.files {
            text.push_str(&file.text());
        }
        text
    }

    fn weight_bytes(&self) -> Option<u64> {
        let here = self.checkpoint.as_ref().map(|card| card.weight_bytes);
        here.or_else(|| self.preset.as_ref()?.computed_weight_bytes)
    }

    fn architecture_line(&self) -> String {
        match &self.architecture {
            Some(name) if self.runs => match self.through {
                None => format!("{name} (runs)"),
                Some(program) => {
                    format!("{name} (runs through {program}, one request at a time, without reusing prefixes)")
                }
            },
            Some(name) if self.through.is_some() => {
                format!("{name}: runs only in a build with the cargo feature `candle`, which this one has not")
            }
            Some(name) => format!(
                "{name}: not ported yet, so the model can be pulled but not run (ported: {})",
                card::ported().join(", ")
            ),
            None => "not known until the files are here".into(),
        }
    }

    fn checkpoint_lines(&self, card: &Card, line: &mut impl FnMut(&str, String)) {
        let said = |number: Option<usize>| number.map_or_else(|| "not said".to_string(), |number| number.to_string());
        let shape = card.dimensions;
        line("layers", said(shape.layers));
        line(
            "heads",
            format!("{} (key-value {}) of {}", said(shape.heads), said(shape.kv_heads), said(shape.head_dim)),
        );
        line("hidden", format!("{}, feed-forward {}", said(shape.hidden), said(shape.feed_forward)));
        line("vocabulary", said(shape.vocabulary));
        if self.preset.is_none() {
            line("parameters", card.parameters.to_string());
            line("context", format!("{} tokens", said(shape.context)));
        }
        let mut formats: Vec<(&String, &usize)> = card.formats.iter().collect();
        formats.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let formats: Vec<String> = formats.iter().map(|(format, count)| format!("{count} × {format}")).collect();
        line("weights", format!("{} ({})", DecimalBytes(card.weight_bytes), formats.join(", ")));
        if let Some(bytes) = self.kv_bytes_per_1000_tokens {
            line("KV cache", format!("{} per 1000 tokens", DecimalBytes(bytes)));
        }
        line("chat template", card.template_family().into());
        if card.chat_template.is_some() {
            let calls = card.dialect().map(|dialect| format!("{}: {}", dialect.name(), dialect.about()));
            line("tool calls", calls.unwrap_or_else(|| "the template knows no tools".into()));
        }
    }
}

impl PresetPage {
    fn of(preset: &Preset) -> PresetPage {
        PresetPage {
            about: preset.about.clone(),
            kind: preset.kind,
            licence: preset.licence.clone(),
            source: preset.source.clone(),
            parameters: preset.parameters,
            context: preset.context,
            repository: preset.repository.clone(),
            computed_weight_bytes: preset.weight_bytes,
        }
    }
}

impl FilePage {
    fn text(&self) -> String {
        let size = self.size.map_or_else(|| "size unknown".into(), |size| DecimalBytes(size).to_string());
        let digest =
            self.sha256.map_or_else(|| "sha256 learned at the first pull".into(), |sha256| format!("sha256 {sha256}"));
        let mut text = format!("  file {}, {size}, {digest}\n", self.name);
        if let (Some(path), Some(origin)) = (&self.path, &self.origin) {
            text.push_str(&format!("    here: {} (from {origin})\n", path.display()));
        }
        for source in &self.sources {
            text.push_str(&format!("    from: {source}\n"));
        }
        text
    }
}

/// Whether weights of so many bytes fit into the GPUs of a machine, and how; none where there is no GPU.
fn gpu_line(weight_bytes: u64, gpus: &[Gpu], is_shared: bool) -> Option<String> {
    let first = gpus.first()?.memory_bytes as u64;
    if machine::fits(weight_bytes, first) {
        return Some(format!("the weights fit into cuda:0's {}", DecimalBytes(first)));
    }
    let found = format!("the weights do not fit into cuda:0's {}", DecimalBytes(first));
    if !is_shared {
        return Some(format!("{found}, and the architecture cannot be split over several"));
    }
    // The smallest has to hold a part, and parts are a power of two of most models' heads.
    let holds = |count: &usize| {
        let smallest = gpus[..*count].iter().map(|gpu| gpu.memory_bytes as u64).min().unwrap_or(0);
        machine::fits(weight_bytes.div_ceil(*count as u64), smallest)
    };
    let counts = std::iter::successors(Some(2), |count| Some(count * 2)).take_while(|count| *count <= gpus.len());
    Some(match counts.into_iter().find(holds) {
        Some(count) => {
            let numbers: Vec<String> = (0..count).map(|number| number.to_string()).collect();
            format!("{found}; `--device cuda:{}` splits them over {count}", numbers.join("+"))
        }
        None => format!("{found}; `--device cuda:0+1` would split them over several that hold a part each"),
    })
}

/// A model without a preset may be either; then the KV cache of what it would be as a decoder is worth showing.
fn is_decoder(preset: Option<&Preset>) -> bool {
    preset.is_none_or(|preset| preset.kind == hub::Kind::Decoder)
}

/// The preset's files, or else the files that are here.
fn files(preset: Option<&Preset>, local: Option<&ModelFiles>) -> Vec<FilePage> {
    let here = |name: &str| local?.files.iter().find(|file| file.name == name);
    let Some(preset) = preset.filter(|preset| !preset.files.is_empty()) else {
        let files = local.into_iter().flat_map(|local| &local.files);
        return files
            .map(|file| FilePage {
                name: file.name.clone(),
                size: Some(file.size),
                sha256: file.sha256,
                path: Some(file.path.clone()),
                origin: Some(file.origin.clone()),
                sources: Vec::new(),
            })
            .collect();
    };
    let page = |file: &hub::preset::PresetFile| {
        let here = here(&file.name);
        FilePage {
            name: file.name.clone(),
            size: file.size.or(here.map(|file| file.size)),
            sha256: file.sha256.or(here.and_then(|file| file.sha256)),
            path: here.map(|file| file.path.clone()),
            origin: here.map(|file| file.origin.clone()),
            sources: file.sources.clone(),
        }
    };
    preset.files.iter().map(page).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_too_large_for_a_gpu_comes_with_how_to_split_it() {
        const GB: u64 = 1_000_000_000;
        let gpus = |count: usize| -> Vec<Gpu> {
            let gpu = |ordinal| Gpu {
                ordinal,
                name: "a GPU".to_string(),
                compute_capability: (9, 0),
                memory_bytes: 80 * GB as usize,
            };
            (0..count).map(gpu).collect()
        };
        assert_eq!(gpu_line(16 * GB, &[], true), None);
        assert_eq!(gpu_line(16 * GB, &gpus(1), true).unwrap(), "the weights fit into cuda:0's 80.00 GB");
        let split = gpu_line(141 * GB, &gpus(8), true).unwrap();
        assert!(split.ends_with("; `--device cuda:0+1` splits them over 2"), "{split}");
        let split = gpu_line(300 * GB, &gpus(8), true).unwrap();
        assert!(split.ends_with("; `--device cuda:0+1+2+3` splits them over 4"), "{split}");
        assert!(gpu_line(300 * GB, &gpus(2), true).unwrap().contains("would split them"));
        assert!(gpu_line(300 * GB, &gpus(8), false).unwrap().contains("cannot be split"));
    }
}
