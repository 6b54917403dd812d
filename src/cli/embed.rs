//! `lifelong embed`: texts in, vectors out, order kept.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;

use crate::config::EngineConfig;
use crate::engine::embed::{Embedder, EmbedderOptions, Head, Pooling, Purpose, TokenVectors};
use crate::engine::hub::Sources;
use crate::report;
use crate::run::start::start_embedder;

/// Texts embedded between two updates of the progress line.
const CHUNK: usize = 256;

#[derive(Debug, Args)]
pub struct EmbedArgs {
    /// Embedding model: a preset (`lifelong models list`), a hub name, or a path
    #[arg(long, default_value = "all-minilm-l6-v2")]
    model: String,
    /// Texts: one a line, or JSON lines with --field; `-` reads stdin
    #[arg(long, default_value = "-")]
    input: PathBuf,
    /// Read this text field of each JSON line
    #[arg(long)]
    field: Option<String>,
    /// Vectors: a name ending in `.parquet` or `.jsonl`; `-` writes JSON lines to stdout
    #[arg(long, default_value = "-")]
    output: PathBuf,
    /// What a text becomes: `dense` one vector; with BGE-M3 also `sparse`, a weight for each of its tokens, or `colbert`,
    /// a vector for each of its tokens (both as JSON lines)
    #[arg(long, default_value = "dense")]
    head: Head,
    /// The texts are queries: put the model's instruction for queries before each, where it has one
    #[arg(long)]
    query: bool,
    /// How token vectors become one, where the model's files do not say: `mean`, `cls` or `last`
    #[arg(long)]
    pooling: Option<Pooling>,
    /// Compute threads [default: all cores]
    #[arg(long)]
    threads: Option<usize>,
}

pub fn run(args: &EmbedArgs) -> anyhow::Result<()> {
    let format = Format::of(&args.output)?;
    ensure!(
        args.head == Head::Dense || matches!(format, Format::JsonLines),
        "--head sparse and --head colbert write JSON lines: let --output end in `.jsonl`"
    );
    let texts = read_texts(&args.input, args.field.as_deref())?;
    let config = EngineConfig { threads: args.threads, ..EngineConfig::default() };
    let options = EmbedderOptions { pooling: args.pooling };
    let embedder = start_embedder(&args.model, &config, options, &Sources::from_env()?)?;
    let purpose = if args.query { Purpose::Query } else { Purpose::Document };
    match args.head {
        Head::Dense => write_dense(args, format, &embedder, purpose, &texts)?,
        Head::Sparse => write_lines(args, &texts, |chunk| {
            let vectors = embedder.sparse(purpose, chunk)?;
            Ok(vectors.into_iter().map(|vector| ("weights", serde_json::json!(vector.weights))).collect())
        })?,
        Head::Colbert => write_lines(args, &texts, |chunk| {
            let vectors = embedder.colbert(purpose, chunk)?;
            let rows = |vectors: &TokenVectors| vectors.rows.chunks(vectors.width).map(Vec::from).collect::<Vec<_>>();
            Ok(vectors.iter().map(|vectors| ("vectors", serde_json::json!(rows(vectors)))).collect())
        })?,
    }
    eprintln!("{} texts by {}", texts.len(), embedder.descriptor());
    Ok(())
}

fn write_dense(
    args: &EmbedArgs,
    format: Format,
    embedder: &Embedder,
    purpose: Purpose,
    texts: &[String],
) -> anyhow::Result<()> {
    let bar = indicatif::ProgressBar::new(texts.len() as u64);
    let mut vectors = Vec::with_capacity(texts.len());
    for chunk in texts.chunks(CHUNK) {
        vectors.extend(embedder.embed_for(purpose, chunk)?);
        bar.inc(chunk.len() as u64);
    }
    bar.finish_and_clear();
    write(&args.output, format, texts, &vectors)?;
    eprintln!("{} vectors of {} dimensions", vectors.len(), embedder.dimensions());
    Ok(())
}

/// One object a text, with what `embed` makes of it beside it.
fn write_lines(
    args: &EmbedArgs,
    texts: &[String],
    embed: impl Fn(&[String]) -> anyhow::Result<Vec<(&'static str, serde_json::Value)>>,
) -> anyhow::Result<()> {
    let bar = indicatif::ProgressBar::new(texts.len() as u64);
    let mut out = open_output(&args.output)?;
    for chunk in texts.chunks(CHUNK) {
        for (text, (name, value)) in chunk.iter().zip(embed(chunk)?) {
            writeln!(out, "{}", serde_json::json!({ "text": text, name: value }))?;
        }
        bar.inc(chunk.len() as u64);
    }
    bar.finish_and_clear();
    out.flush()?;
    Ok(())
}

#[derive(Clone, Copy)]
enum Format {
    Parquet,
    JsonLines,
}

impl Format {
    fn of(path: &Path) -> anyhow::Result<Format> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("parquet") => Ok(Format::Parquet),
            Some("jsonl") => Ok(Format::JsonLines),
            None if path == Path::new("-") => Ok(Format::JsonLines),
            _ => bail!("--output must end in `.parquet` or `.jsonl`, or be `-`; found {}", path.display()),
        }
    }
}

fn read_texts(path: &Path, field: Option<&str>) -> anyhow::Result<Vec<String>> {
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(|| format!("input file {}", path.display()))?)
    };
    let mut texts = Vec::new();
    for (index, line) in BufReader::new(source).lines().enumerate() {
        let line = line.with_context(|| format!("{}:{}", path.display(), index + 1))?;
        texts.push(match field {
            None => line,
            Some(field) => text_field(&line, field).with_context(|| format!("{}:{}", path.display(), index + 1))?,
        });
    }
    ensure!(!texts.is_empty(), "{} holds no text", path.display());
    Ok(texts)
}

fn text_field(line: &str, field: &str) -> anyhow::Result<String> {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line)?;
    match object.get(field) {
        Some(serde_json::Value::String(text)) => Ok(text.clone()),
        Some(other) => bail!("field `{field}`: expected text, found {other}"),
        None => {
            let known: Vec<&str> = object.keys().map(String::as_str).collect();
            bail!("no field `{field}` (found: {})", known.join(", "))
        }
    }
}

fn write(path: &Path, format: Format, texts: &[String], vectors: &[Vec<f32>]) -> anyhow::Result<()> {
    if let Format::Parquet = format {
        return report::write_vectors(path, texts, vectors);
    }
    let mut out = open_output(path)?;
    for (text, vector) in texts.iter().zip(vectors) {
        writeln!(out, "{}", serde_json::json!({ "text": text, "embedding": vector }))?;
    }
    out.flush()?;
    Ok(())
}

fn open_output(path: &Path) -> anyhow::Result<Box<dyn Write>> {
    if path == Path::new("-") {
        return Ok(Box::new(BufWriter::new(std::io::stdout().lock())));
    }
    let file = File::create(path).with_context(|| format!("output file {}", path.display()))?;
    Ok(Box::new(BufWriter::new(file)))
}
