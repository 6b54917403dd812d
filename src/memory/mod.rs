//! What an agent keeps from the past: recall before an attempt, learn after it.
//!
//! [`Memory::recall`] cannot change state; [`Memory::learn`] is the only mutator. A probe of a lifelong sequence
//! recalls and never learns, so the two must be apart in the type. A new method is one file and one line in
//! [`MEMORIES`].

mod autoskill;
mod awm;
mod bm25;
mod bound;
pub mod calibration;
mod clin;
mod form;
pub mod freeze;
mod groups;
mod hipporag;
mod judge;
mod ladder;
mod llm;
mod memrl;
mod none;
mod page_rank;
mod rag;
mod repair;
mod replay;
mod seu;
mod simplemem;
mod simplemem_paper;
mod skillclaw;
mod snapshot;
mod success;
mod template;
mod trajectory;
mod vector;

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::embed::{Embedder, MultiVector, Purpose, SparseVector, TokenVectors};
use crate::record::{Experience, TaskView};
use crate::registry::{self, Registered};
use crate::seed::Seed;

pub use calibration::Similarities;
use llm::Asker;
pub use llm::{Llm, cut, tokens};

/// Where recalled text goes in the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// A text before the question, in the same user turn.
    BeforeQuestion,
    /// Earlier question and reply pairs as turns of their own, oldest first.
    EarlierTurns,
    /// A text after the instructions, in the system turn.
    AfterInstructions,
}

/// Where a method whose memories are texts may put them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TextPlacement {
    BeforeQuestion,
    AfterInstructions,
}

impl From<TextPlacement> for Placement {
    fn from(placement: TextPlacement) -> Placement {
        match placement {
            TextPlacement::BeforeQuestion => Placement::BeforeQuestion,
            TextPlacement::AfterInstructions => Placement::AfterInstructions,
        }
    }
}

/// One remembered thing as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Names the memory item, stable for the life of the instance.
    pub id: String,
    pub content: Content,
    /// Higher is kept longer when the budget is short.
    pub score: f64,
}

/// What a block holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// An earlier question and its reply; the only content that can be shown as turns. Shown whole or not at all.
    Pair { question: String, reply: String },
    /// Any text. The last one left may lose its end to the budget.
    Text(String),
}

impl Content {
    /// The content as it stands in a prompt's text.
    pub fn as_text(&self) -> String {
        match self {
            Content::Pair { question, reply } => format!("Question: {question}\nReply: {reply}"),
            Content::Text(text) => text.clone(),
        }
    }
}

/// One way to show memories: blocks in the order they are shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    pub placement: Placement,
    /// A sentence above the blocks, where they are shown as text.
    pub preamble: String,
    pub blocks: Vec<Block>,
}

impl Context {
    /// The text of some of the context's blocks under its preamble.
    pub fn text(&self, blocks: &[&Block]) -> String {
        let mut text = self.preamble.clone();
        for block in blocks {
            text.push_str("\n\n");
            text.push_str(&block.content.as_text());
        }
        text
    }
}

/// What a memory offers for one task: no context (nothing remembered), one, or several alternatives to vote over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recall {
    pub contexts: Vec<Context>,
    /// What learning from the attempt must know of this recall, kept with the attempt's record: recall itself changes
    /// no state. `null` when there is nothing.
    pub pending: Value,
}

impl Recall {
    /// One context, or none when it has no blocks.
    fn of(context: Context) -> Recall {
        let contexts = if context.blocks.is_empty() { Vec::new() } else { vec![context] };
        Recall { contexts, pending: Value::Null }
    }
}

/// The version of the wording of `configs/prompts/`: raised with any change there, for a prompt moves results. A run is
/// continued only by the wording that it was begun with.
pub const WORDING: u32 = 1;

/// Turns texts into unit vectors. Implemented by the engine's embedder and by test doubles.
pub trait Embed: Send + Sync {
    /// One L2-normalised vector a text, in order.
    fn embed(&self, texts: &[String]) -> anyhow::Result<Vec<Vec<f32>>>;
    /// The same for texts that ask: models with an instruction for queries put it before these.
    fn embed_queries(&self, texts: &[String]) -> anyhow::Result<Vec<Vec<f32>>> {
        self.embed(texts)
    }
    /// As [`Embed::embed_queries`], of models that are told what to find in words of their own; the same for all others.
    fn embed_queries_with(&self, _task: &str, texts: &[String]) -> anyhow::Result<Vec<Vec<f32>>> {
        self.embed_queries(texts)
    }
    /// A weight for each of a text's words, in order of the texts.
    ///
    /// # Errors
    /// A model without this head; most have none.
    fn sparse(&self, _purpose: Purpose, _texts: &[String]) -> anyhow::Result<Vec<SparseVector>> {
        anyhow::bail!("embedding model {} has no sparse weights: BGE-M3 has", self.id())
    }
    /// A vector for each of a text's tokens, in order of the texts.
    ///
    /// # Errors
    /// A model without this head; most have none.
    fn colbert(&self, _purpose: Purpose, _texts: &[String]) -> anyhow::Result<Vec<TokenVectors>> {
        anyhow::bail!("embedding model {} has no vectors of tokens: BGE-M3 has", self.id())
    }
    /// All three of one pass.
    ///
    /// # Errors
    /// A model without one of the heads.
    fn multi(&self, purpose: Purpose, texts: &[String]) -> anyhow::Result<Vec<MultiVector>> {
        let dense = match purpose {
            Purpose::Query => self.embed_queries(texts)?,
            Purpose::Document => self.embed(texts)?,
        };
        let others = self.sparse(purpose, texts)?.into_iter().zip(self.colbert(purpose, texts)?);
        Ok(dense
            .into_iter()
            .zip(others)
            .map(|(dense, (sparse, colbert))| MultiVector { dense, sparse, colbert })
            .collect())
    }
    /// Identity of the embedding model: vectors of different models are never compared.
    fn id(&self) -> String;
}

impl Embed for Embedder {
    fn embed(&self, texts: &[String]) -> anyhow::Result<Vec<Vec<f32>>> {
        Ok(Embedder::embed(self, texts)?)
    }

    fn embed_queries(&self, texts: &[String]) -> anyhow::Result<Vec<Vec<f32>>> {
        Ok(self.embed_for(Purpose::Query, texts)?)
    }

    fn embed_queries_with(&self, task: &str, texts: &[String]) -> anyhow::Result<Vec<Vec<f32>>> {
        Ok(Embedder::embed_queries_with(self, task, texts)?)
    }

    fn sparse(&self, purpose: Purpose, texts: &[String]) -> anyhow::Result<Vec<SparseVector>> {
        Ok(Embedder::sparse(self, purpose, texts)?)
    }

    fn colbert(&self, purpose: Purpose, texts: &[String]) -> anyhow::Result<Vec<TokenVectors>> {
        Ok(Embedder::colbert(self, purpose, texts)?)
    }

    fn multi(&self, purpose: Purpose, texts: &[String]) -> anyhow::Result<Vec<MultiVector>> {
        Ok(Embedder::multi(self, purpose, texts)?)
    }

    fn id(&self) -> String {
        self.descriptor()
    }
}

/// What a memory may use; handed in by each call, never owned.
#[derive(Clone, Copy)]
pub struct Handles<'a> {
    pub embedder: Option<&'a dyn Embed>,
    pub llm: Option<&'a Llm<'a>>,
    /// How similar random tasks of the run are, where the run measured it.
    pub similarities: Option<&'a Similarities>,
    /// Key of the draws of this phase (recall or learn) at this place: a probe never shifts a later draw.
    pub seed: Seed,
}

impl Handles<'_> {
    /// Nothing but draws: enough for methods that neither ask nor embed.
    pub fn none() -> Handles<'static> {
        Handles { embedder: None, llm: None, similarities: None, seed: Seed(0) }
    }

    /// The backbone.
    ///
    /// # Errors
    /// When the caller gave none, with the method named.
    fn llm(&self, method: &str) -> anyhow::Result<&Llm<'_>> {
        self.llm.with_context(|| format!("memory `{method}` asks a backbone, and none was given"))
    }

    /// The backbone, with or without the forms of the method's calls.
    ///
    /// # Errors
    /// As [`Handles::llm`].
    fn asker(&self, method: &str, is_constrained: bool) -> anyhow::Result<Asker<'_>> {
        Ok(Asker::new(self.llm(method)?, is_constrained))
    }
}

/// One memory method's state.
pub trait Memory: Send {
    /// What is remembered that may help with `task`. Same state and task, same recall.
    fn recall(&self, task: &TaskView, handles: &Handles<'_>) -> anyhow::Result<Recall>;

    /// Takes in one experience.
    fn learn(&mut self, experience: &Experience, handles: &Handles<'_>) -> anyhow::Result<()>;

    /// The whole state, in a canonical encoding: equal states give equal bytes.
    fn save(&self) -> Vec<u8>;

    /// Replaces the state by saved bytes.
    ///
    /// # Errors
    /// When the bytes are not a state of this method and configuration.
    fn load(&mut self, bytes: &[u8]) -> anyhow::Result<()>;

    /// Texts that end a reply of an agent with this memory, besides the run's own.
    fn stop_strings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A registered memory method.
pub trait MemoryMethod: Registered + Sync {
    /// An empty memory with the given options (the method's own table of the config).
    ///
    /// # Errors
    /// Unknown or ill-typed options, named with their key.
    fn create(&self, options: &toml::Table) -> anyhow::Result<Box<dyn Memory>>;

    /// The options with every default filled in, and what a run must give a memory with them.
    ///
    /// # Errors
    /// As [`MemoryMethod::create`].
    fn resolve(&self, options: &toml::Table) -> anyhow::Result<Resolved>;
}

/// A method's options as they are stored with a run, and what follows from them.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    pub options: toml::Table,
    pub needs_embedder: bool,
    /// Whether it must be told what was right.
    pub needs_feedback: bool,
    /// Limit on recalled tokens where the run sets none.
    pub max_memory_tokens: usize,
}

impl Resolved {
    /// Limit of most methods.
    pub const MEMORY_TOKENS: usize = 2048;
    /// Limit of methods that show a whole library or handbook.
    pub const LIBRARY_TOKENS: usize = 4096;

    /// Options of a method that needs nothing.
    fn of<T: Serialize>(options: &T) -> anyhow::Result<Resolved> {
        let options = toml::Table::try_from(options).context("options as TOML")?;
        Ok(Resolved {
            options,
            needs_embedder: false,
            needs_feedback: false,
            max_memory_tokens: Resolved::MEMORY_TOKENS,
        })
    }
}

/// Every memory method, by name.
pub static MEMORIES: &[&dyn MemoryMethod] = &[
    &none::None,
    &rag::Rag,
    &hipporag::HippoRag,
    &clin::Clin,
    &awm::Awm,
    &simplemem::SimpleMem,
    &simplemem_paper::SimpleMemPaper,
    &memrl::MemRl,
    &autoskill::AutoSkill,
    &skillclaw::SkillClaw,
    &seu::Seu,
    &replay::Replay,
    &groups::Groups,
];

/// The method with this name.
///
/// # Errors
/// Lists the known names and the nearest one.
pub fn find(name: &str) -> Result<&'static dyn MemoryMethod, registry::UnknownName> {
    registry::find("memory", MEMORIES, name)
}

/// Reads a method's own options, naming the method in the error.
fn options<T: DeserializeOwned>(method: &str, table: &toml::Table) -> anyhow::Result<T> {
    T::deserialize(toml::Value::Table(table.clone())).with_context(|| format!("options of memory `{method}`"))
}

#[cfg(test)]
mod tests;
