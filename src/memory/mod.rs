//! What an agent keeps from the past: recall before an attempt, learn after it.
//!
//! [`Memory::recall`] cannot change state; [`Memory::learn`] is the only mutator. A probe of a lifelong sequence
//! recalls and never learns, so the two must be apart in the type. A new method is one file and one line in
//! [`MEMORIES`].

mod groups;
mod none;
mod rag;
mod replay;
mod success;

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::embed::{Embedder, Purpose};
use crate::record::{Experience, TaskView};
use crate::registry::{self, Registered};

/// Where recalled text goes in the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// A text before the question, in the same user turn.
    BeforeQuestion,
    /// Earlier question and reply pairs as turns of their own, oldest first.
    EarlierTurns,
}

/// One remembered thing as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Names the memory item, stable for the life of the instance.
    pub id: String,
    pub question: String,
    pub reply: String,
    /// Higher is kept longer when the budget is short.
    pub score: f64,
}

/// One way to show memories: blocks in the order they are shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    pub placement: Placement,
    /// A sentence above the blocks, used with [`Placement::BeforeQuestion`].
    pub preamble: String,
    pub blocks: Vec<Block>,
}

/// What a memory offers for one task: no context (nothing remembered), one, or several alternatives to vote over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recall {
    pub contexts: Vec<Context>,
}

/// Turns texts into unit vectors. Implemented by the engine's embedder and by test doubles.
pub trait Embed: Send + Sync {
    /// One L2-normalised vector a text, in order.
    fn embed(&self, texts: &[String]) -> anyhow::Result<Vec<Vec<f32>>>;
    /// The same for texts that ask: models with an instruction for queries put it before these.
    fn embed_queries(&self, texts: &[String]) -> anyhow::Result<Vec<Vec<f32>>> {
        self.embed(texts)
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

    fn id(&self) -> String {
        self.descriptor()
    }
}

/// What a memory may use; handed in by each call, never owned.
pub struct Handles<'a> {
    pub embedder: Option<&'a dyn Embed>,
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

    /// Whether it needs an embedder.
    fn needs_embedder(&self) -> bool {
        false
    }

    /// Whether it needs to be told what was right.
    fn needs_feedback(&self) -> bool {
        false
    }
}

/// Every memory method, by name.
pub static MEMORIES: &[&dyn MemoryMethod] = &[&none::None, &rag::Rag, &replay::Replay, &groups::Groups];

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
