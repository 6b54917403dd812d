//! `lifelong generate`: a prompt, a chat, or a file of requests.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::engine_args::EngineArgs;
use crate::config::{KvType, Quantize};
use crate::engine::grammar::Grammar;
use crate::engine::hub::Sources;
use crate::engine::request::{Completion, Finish, Logprobs, Piece, Request, Usage, system_seed};
use crate::engine::sampling::Sampling;
use crate::engine::session::Session;
use crate::engine::template::{ChatMessage, ChatSettings, RenderOptions};
use crate::engine::tokenizer::Specials;
use crate::reply::tool_call::{Reply, Tool};
use crate::run::start::{BackboneSettings, start_engine};
use crate::seed::Seed;

#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Model: a preset (`lifelong models list`), a hub name, or a path
    #[arg(long)]
    model: String,
    /// Complete this text as it is, without the chat template
    #[arg(long, group = "source")]
    prompt: Option<String>,
    /// Answer this one message through the model's chat template
    #[arg(long, group = "source")]
    chat: Option<String>,
    /// Answer a chat: a JSON file with a list of {"role", "content"}
    #[arg(long, group = "source", value_name = "FILE.json")]
    messages: Option<PathBuf>,
    /// Complete many requests: one JSON object a line with `prompt` or `messages`, and any sampling field
    #[arg(long, group = "source", value_name = "FILE.jsonl")]
    input: Option<PathBuf>,
    /// Where the completions of --input go, in input order [default: stdout]
    #[arg(long, requires = "input", value_name = "FILE.jsonl")]
    output: Option<PathBuf>,
    /// Print the completion as one JSON object with token ids, usage and finish reason instead of streaming text
    #[arg(long)]
    json: bool,
    /// Key of every random draw; the same seed gives the same tokens, whatever the batch [default: drawn and printed]
    #[arg(long)]
    seed: Option<u64>,
    /// The reply is JSON that this JSON schema describes, exactly: tokens that lead out of it cannot be drawn
    #[arg(long, value_name = "FILE.json")]
    json_schema: Option<PathBuf>,
    /// How keys and values of past tokens are kept; each changes results a little [default: i16, f16 on a GPU and of keys with a bias]
    #[arg(long, value_enum)]
    kv_type: Option<KvType>,
    /// Quantise the projections of a checkpoint in plain floats (safetensors bf16, f16, f32 or fp8) when it is loaded: less
    /// memory, other results
    #[arg(long, value_enum)]
    quantize: Option<Quantize>,
    #[command(flatten)]
    chat_template: ChatArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Chat")]
struct ChatArgs {
    /// Tools on offer: a JSON file with a list of {"type": "function", "function": {"name", "parameters"}}; calls in the
    /// reply are read out with --json
    #[arg(long, value_name = "FILE.json")]
    tools: Option<PathBuf>,
    /// Whether a model that can do both reasons before it answers [default: as its template says]
    #[arg(long, value_name = "true|false")]
    enable_thinking: Option<bool>,
    /// How long the model reasons, in its template's words (gpt-oss: low, medium, high)
    #[arg(long, value_name = "EFFORT")]
    reasoning_effort: Option<String>,
    /// Sets another variable of the chat template; the value is JSON, or else text; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    template_variable: Vec<String>,
    /// The format tool calls are read in [default: told from the chat template; see `lifelong models show`]
    #[arg(long, value_name = "NAME")]
    tool_format: Option<String>,
}

impl ChatArgs {
    fn settings(&self) -> anyhow::Result<ChatSettings> {
        let mut variables = serde_json::Map::new();
        for given in &self.template_variable {
            let (name, value) = given
                .split_once('=')
                .with_context(|| format!("--template-variable: expected NAME=VALUE, found `{given}`"))?;
            let text = || serde_json::Value::String(value.to_string());
            variables.insert(name.to_string(), serde_json::from_str(value).unwrap_or_else(|_| text()));
        }
        let (enable_thinking, reasoning_effort) = (self.enable_thinking, self.reasoning_effort.clone());
        Ok(ChatSettings { enable_thinking, reasoning_effort, variables, tool_format: self.tool_format.clone() })
    }

    /// The declarations, for the template, as they stand in the file.
    fn tools(&self) -> anyhow::Result<Option<Vec<serde_json::Value>>> {
        let Some(path) = &self.tools else { return Ok(None) };
        let file = File::open(path).with_context(|| format!("tools file {}", path.display()))?;
        let declared: Vec<serde_json::Value> = serde_json::from_reader(BufReader::new(file))
            .with_context(|| format!("tools file {}: expected a list of tools", path.display()))?;
        check_tools(&declared).with_context(|| format!("tools file {}", path.display()))?;
        Ok(Some(declared))
    }
}

fn check_tools(declared: &[serde_json::Value]) -> anyhow::Result<()> {
    match declared.iter().position(|tool| Tool::from_json(tool).is_none()) {
        Some(index) => bail!("tool {index}: expected an object that names a function, found {}", declared[index]),
        None => Ok(()),
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
struct SamplingArgs {
    /// 0 takes the likeliest token every time; higher draws more freely [default: 0]
    #[arg(long)]
    temperature: Option<f64>,
    /// Draw among the k likeliest tokens only; 0 is off [default: 0]
    #[arg(long, allow_negative_numbers = true)]
    top_k: Option<i64>,
    /// Draw among the likeliest tokens that together reach this probability; 1 is off [default: 1]
    #[arg(long)]
    top_p: Option<f64>,
    /// Drop tokens less likely than this share of the likeliest one; 0 is off [default: 0]
    #[arg(long)]
    min_p: Option<f64>,
    /// Most tokens to generate [default: 256]
    #[arg(long)]
    max_tokens: Option<usize>,
    /// End before this text; may be given several times
    #[arg(long)]
    stop: Vec<String>,
    /// Log-probabilities of this many likeliest tokens at each step (with --json) [default: 0]
    #[arg(long)]
    logprobs: Option<usize>,
}

impl SamplingArgs {
    fn sampling(&self) -> anyhow::Result<Sampling> {
        let default = Sampling::default();
        let sampling = Sampling {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_k: self.top_k.unwrap_or(default.top_k),
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            max_tokens: self.max_tokens.unwrap_or(default.max_tokens),
            stop: self.stop.clone(),
            logprobs: self.logprobs.unwrap_or(default.logprobs),
            ..default
        };
        sampling.validate()?;
        Ok(sampling)
    }
}

/// One line of the input file: what to complete, the tools on offer, then any field of [`Sampling`], and `seed`.
#[derive(Deserialize)]
struct Line {
    prompt: Option<String>,
    messages: Option<Vec<ChatMessage>>,
    /// In place of the command line's.
    tools: Option<Vec<serde_json::Value>>,
    seed: Option<u64>,
    #[serde(flatten)]
    sampling: serde_json::Map<String, serde_json::Value>,
}

/// One completion as it is written.
#[derive(Serialize)]
struct Written {
    text: String,
    tokens: Vec<u32>,
    finish: Finish,
    usage: Usage,
    seed: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logprobs: Vec<Logprobs>,
    /// The reply to a chat taken apart, for models whose form of tool calls is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<Reply>,
}

impl Written {
    fn of(completion: Completion, reply: Option<Reply>) -> Written {
        Written {
            text: completion.text,
            tokens: completion.tokens,
            finish: completion.finish,
            usage: completion.usage,
            seed: completion.seed,
            logprobs: completion.logprobs,
            reply,
        }
    }
}

/// What a chat was asked with, to read its reply by.
struct Asked {
    tokens: Vec<u32>,
    tools: Vec<Tool>,
}

impl Asked {
    fn read(&self, session: &Session, completion: &Completion) -> Option<Reply> {
        session.read_reply(&self.tokens, completion, &self.tools)
    }
}

pub fn run(args: &GenerateArgs) -> anyhow::Result<()> {
    let mut sampling = args.sampling.sampling()?;
    if let Some(path) = &args.json_schema {
        let file = File::open(path).with_context(|| format!("schema file {}", path.display()))?;
        let schema = serde_json::from_reader(BufReader::new(file))
            .with_context(|| format!("schema file {}: expected a JSON schema", path.display()))?;
        sampling.grammar = Some(Grammar::JsonSchema(schema));
    }
    let tools = args.chat_template.tools()?;
    let settings =
        BackboneSettings { kv_type: args.kv_type, quantize: args.quantize, chat: args.chat_template.settings()? };
    let lines = args.input.as_ref().map(|path| read_lines(path, &sampling)).transpose()?;
    let seed = args.seed.unwrap_or_else(system_seed);
    if args.seed.is_none() {
        eprintln!("seed {seed}");
    }
    let engine = start_engine(&args.model, &args.engine.config(), &settings, &Sources::from_env()?)?;
    let session = engine.session();
    match (lines, &args.input) {
        (Some(lines), Some(path)) => complete_file(args, path, lines, tools, seed, &session),
        _ => complete_one(args, sampling, tools, seed, &session),
    }
}

/// The prompt of a chat, and what its reply is read by.
fn ask(session: &Session, messages: &[ChatMessage], tools: Option<&Vec<serde_json::Value>>) -> anyhow::Result<Asked> {
    let options = RenderOptions { tools: tools.cloned(), ..RenderOptions::default() };
    let tokens = session.render(messages, &options)?;
    Ok(Asked { tokens, tools: tools.into_iter().flatten().filter_map(Tool::from_json).collect() })
}

fn complete_one(
    args: &GenerateArgs,
    sampling: Sampling,
    tools: Option<Vec<serde_json::Value>>,
    seed: u64,
    session: &Session,
) -> anyhow::Result<()> {
    let messages: Vec<ChatMessage> = match (&args.prompt, &args.chat, &args.messages) {
        (Some(_), _, _) => Vec::new(),
        (_, Some(text), _) => vec![ChatMessage::new("user", text)],
        (_, _, Some(path)) => {
            let file = File::open(path).with_context(|| format!("chat file {}", path.display()))?;
            serde_json::from_reader(BufReader::new(file)).with_context(|| {
                format!("chat file {}: expected a list of {{\"role\", \"content\"}}", path.display())
            })?
        }
        _ => bail!("nothing to complete: give --prompt, --chat, --messages or --input"),
    };
    let asked = args.prompt.is_none().then(|| ask(session, &messages, tools.as_ref())).transpose()?;
    let tokens = match (&asked, &args.prompt) {
        (Some(asked), _) => asked.tokens.clone(),
        (None, prompt) => session.tokenizer().encode_prompt(prompt.as_deref().unwrap_or_default(), Specials::Parse),
    };
    let request = Request { tokens, sampling, seed };
    if args.json {
        let completion = session.complete(request)?;
        let reply = asked.and_then(|asked| asked.read(session, &completion));
        println!("{}", serde_json::to_string(&Written::of(completion, reply))?);
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    for piece in session.stream(request)? {
        match piece? {
            Piece::Text(text) => {
                out.write_all(text.as_bytes())?;
                out.flush()?;
            }
            Piece::End(completion) => {
                writeln!(out)?;
                let usage = completion.usage;
                eprintln!(
                    "{} prompt tokens ({} reused), {} generated, ended by {:?}",
                    usage.prompt, usage.reused, usage.generated, completion.finish
                );
            }
        }
    }
    Ok(())
}

fn complete_file(
    args: &GenerateArgs,
    path: &std::path::Path,
    lines: Vec<(Line, Sampling)>,
    tools: Option<Vec<serde_json::Value>>,
    seed: u64,
    session: &Session,
) -> anyhow::Result<()> {
    let mut requests = Vec::with_capacity(lines.len());
    let mut chats: Vec<Option<Asked>> = Vec::with_capacity(lines.len());
    for (index, (line, sampling)) in lines.into_iter().enumerate() {
        let (tokens, asked) = match (&line.prompt, &line.messages) {
            (Some(prompt), None) => (session.tokenizer().encode_prompt(prompt, Specials::Parse), None),
            (None, Some(messages)) => {
                let asked = ask(session, messages, line.tools.as_ref().or(tools.as_ref()))
                    .with_context(|| format!("{}:{}", path.display(), index + 1))?;
                (asked.tokens.clone(), Some(asked))
            }
            _ => bail!("{}:{}: expected exactly one of `prompt` and `messages`", path.display(), index + 1),
        };
        let seed = line.seed.unwrap_or_else(|| Seed(seed).derive("line", &[index as u32]).0);
        requests.push(Request { tokens, sampling, seed });
        chats.push(asked);
    }

    let total = requests.len();
    let mut written: Vec<Option<Written>> = (0..total).map(|_| None).collect();
    let bar = indicatif::ProgressBar::new(total as u64);
    for (index, completion) in session.complete_all(requests) {
        let completion = completion.with_context(|| format!("{}:{}", path.display(), index + 1))?;
        let reply = chats[index].as_ref().and_then(|asked| asked.read(session, &completion));
        written[index] = Some(Written::of(completion, reply));
        bar.inc(1);
    }
    bar.finish_and_clear();

    let mut out: Box<dyn Write> = match &args.output {
        Some(path) => {
            Box::new(BufWriter::new(File::create(path).with_context(|| format!("output file {}", path.display()))?))
        }
        None => Box::new(BufWriter::new(std::io::stdout().lock())),
    };
    for line in written {
        let line = line.context("the engine left out a completion: this is a bug in lifelong")?;
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
    }
    out.flush()?;
    let stats = session.stats();
    eprintln!(
        "{total} completions: {} prompt tokens ({} reused), {} generated",
        stats.prompt_tokens, stats.reused_tokens, stats.generated_tokens
    );
    Ok(())
}

/// Reads and checks every line before a model is loaded.
fn read_lines(path: &std::path::Path, default: &Sampling) -> anyhow::Result<Vec<(Line, Sampling)>> {
    let file = File::open(path).with_context(|| format!("request file {}", path.display()))?;
    let mut lines = Vec::new();
    for (index, text) in BufReader::new(file).lines().enumerate() {
        let text = text?;
        if text.trim().is_empty() {
            continue;
        }
        let place = || format!("{}:{}", path.display(), index + 1);
        let line: Line = serde_json::from_str(&text).with_context(place)?;
        check_tools(line.tools.as_deref().unwrap_or_default()).with_context(place)?;
        let sampling = merged(default, &line.sampling).with_context(place)?;
        lines.push((line, sampling));
    }
    ensure!(!lines.is_empty(), "request file {} holds no request", path.display());
    Ok(lines)
}

/// The command line's sampling with a line's own fields over it; unknown fields are errors.
fn merged(default: &Sampling, fields: &serde_json::Map<String, serde_json::Value>) -> anyhow::Result<Sampling> {
    let mut value = serde_json::to_value(default)?;
    if let Some(object) = value.as_object_mut() {
        object.extend(fields.clone());
    }
    let sampling: Sampling = serde_json::from_value(value)?;
    sampling.validate()?;
    Ok(sampling)
}
