//! Retrieval over past attempts (PATH-Bench's RAG agent).
//!
//! Every observed task is kept, right or wrong; the `k` most similar are shown, most similar first: by cosine, or with
//! BGE-M3 by the weights of shared words, by late interaction of token vectors, or by the weighted mean of all three. The
//! papers name neither `k` nor the rendering: k = 2 and question first, so that truncation by the embedder keeps the
//! question. Where the run reveals reference solutions, the remembered reply is that solution.

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::vector::{Vector, cosine, ranked};
use super::{Block, Content, Context, Handles, Memory, MemoryMethod, Placement, Recall, Resolved, options};
use crate::engine::embed::{HybridWeights, MultiVector, Purpose, SparseVector, TokenVectors};
use crate::record::{Experience, Feedback, Role, TaskView};
use crate::registry::Registered;

pub struct Rag;

/// Options of `[[agents]]` with `memory = "rag"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// How many past attempts are shown.
    k: usize,
    /// How two texts are compared; all but `dense` need an embedding model with BGE-M3's heads.
    mode: Mode,
    /// With `mode = "hybrid"`: the parts of the three scores.
    weights: HybridWeights,
    /// What is embedded on the memory's side: the whole trajectory or the question alone.
    embed: Embedded,
    /// Whether a remembered reply ends with its outcome, as far as the run tells it. PATH-Bench's does not.
    outcome: bool,
    placement: Placement,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Dense,
    Sparse,
    Colbert,
    Hybrid,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Embedded {
    Trajectory,
    Question,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            k: 2,
            mode: Mode::Dense,
            weights: HybridWeights::default(),
            embed: Embedded::Trajectory,
            outcome: false,
            placement: Placement::BeforeQuestion,
        }
    }
}

impl Registered for Rag {
    fn name(&self) -> &str {
        "rag"
    }
    fn about(&self) -> &str {
        "the k most similar past attempts: dense, or BGE-M3's sparse, colbert or hybrid scores"
    }
    fn source(&self) -> &str {
        "PATH-Bench, BGE-M3 RAG agent (dense by default)"
    }
}

impl MemoryMethod for Rag {
    fn create(&self, table: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        Ok(Box::new(Store { options: Options::read(table)?, state: State::default() }))
    }

    fn resolve(&self, table: &toml::Table) -> anyhow::Result<Resolved> {
        Ok(Resolved { needs_embedder: true, ..Resolved::of(&Options::read(table)?)? })
    }
}

impl Options {
    fn read(table: &toml::Table) -> anyhow::Result<Options> {
        let options: Options = options("rag", table)?;
        ensure!(options.k > 0, "memory `rag`: `k` must be at least 1, found 0");
        let HybridWeights { dense, sparse, colbert } = options.weights;
        let are_valid = [dense, sparse, colbert].iter().all(|weight| weight.is_finite() && *weight >= 0.0);
        ensure!(
            are_valid && dense + sparse + colbert > 0.0,
            "memory `rag`: `weights` must be at least 0 and not all 0, found {dense}, {sparse} and {colbert}"
        );
        Ok(options)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct State {
    /// Embedding model of the vectors; set by the first experience.
    embedder: Option<String>,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    id: String,
    question: String,
    reply: String,
    /// Empty where the mode has no part for it, as the others are left out.
    vector: Vec<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sparse: Option<SparseVector>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "stored_tokens")]
    colbert: Option<TokenVectors>,
}

/// Token vectors as their width and hex digits.
mod stored_tokens {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{TokenVectors, Vector};

    pub fn serialize<S: Serializer>(tokens: &Option<TokenVectors>, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = tokens.as_ref().map(|tokens| (tokens.width, Vector(tokens.rows.clone())));
        stored.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TokenVectors>, D::Error> {
        let stored = Option::<(usize, Vector)>::deserialize(deserializer)?;
        Ok(stored.map(|(width, rows)| TokenVectors { width, rows: rows.0 }))
    }
}

/// What a text becomes, as far as the mode needs it.
#[derive(Default)]
struct Parts {
    dense: Vec<f32>,
    sparse: Option<SparseVector>,
    colbert: Option<TokenVectors>,
}

impl Parts {
    /// Of this query and a stored text. Both have the parts of the mode.
    fn score(&self, entry: &Entry, options: &Options) -> f64 {
        let dense = || cosine(&self.dense, &entry.vector);
        let sparse = || self.sparse.as_ref().zip(entry.sparse.as_ref()).map_or(0.0, |(own, other)| own.score(other));
        let colbert = || self.colbert.as_ref().zip(entry.colbert.as_ref()).map_or(0.0, |(own, other)| own.score(other));
        match options.mode {
            Mode::Dense => dense(),
            Mode::Sparse => sparse(),
            Mode::Colbert => colbert(),
            Mode::Hybrid => options.weights.mean(dense(), sparse(), colbert()),
        }
    }
}

impl Mode {
    /// Whether an entry has a dense, a sparse and a token part.
    fn parts(self) -> [bool; 3] {
        [
            matches!(self, Mode::Dense | Mode::Hybrid),
            matches!(self, Mode::Sparse | Mode::Hybrid),
            matches!(self, Mode::Colbert | Mode::Hybrid),
        ]
    }
}

struct Store {
    options: Options,
    state: State,
}

impl Memory for Store {
    fn recall(&self, task: &TaskView, handles: &Handles<'_>) -> anyhow::Result<Recall> {
        if self.state.entries.is_empty() {
            return Ok(Recall::default());
        }
        let query = self.embed(Purpose::Query, &task.question, handles)?;
        let mut ranked = ranked(self.state.entries.iter().map(|entry| query.score(entry, &self.options)));
        ranked.truncate(self.options.k);
        if self.options.placement == Placement::EarlierTurns {
            // As turns, the most similar stands next to the question.
            ranked.reverse();
        }
        let blocks = ranked
            .into_iter()
            .map(|(score, index)| {
                let Entry { id, question, reply, .. } = self.state.entries[index].clone();
                Block { id, content: Content::Pair { question, reply }, score }
            })
            .collect();
        Ok(Recall::of(Context { placement: self.options.placement, preamble: PREAMBLE.into(), blocks }))
    }

    fn learn(&mut self, experience: &Experience, handles: &Handles<'_>) -> anyhow::Result<()> {
        let reply = match &experience.feedback {
            Feedback::Revealed { solution, .. } => solution.clone(),
            _ => experience
                .turns
                .iter()
                .filter(|turn| turn.role == Role::Assistant)
                .map(|turn| turn.content.as_str())
                .collect::<Vec<_>>()
                .join("\n"),
        };
        let outcome = experience.feedback.is_correct().filter(|_| self.options.outcome);
        let reply = outcome.map_or(reply.clone(), |is_correct| {
            format!("{reply}\nOutcome: {}", if is_correct { "success" } else { "failure" })
        });
        let text = match self.options.embed {
            Embedded::Trajectory => format!("{}\n{reply}", experience.task.question),
            Embedded::Question => experience.task.question.clone(),
        };
        let Parts { dense: vector, sparse, colbert } = self.embed(Purpose::Document, &text, handles)?;
        self.state.embedder = handles.embedder.map(|embedder| embedder.id());
        self.state.entries.push(Entry {
            id: format!("{}@{}", experience.task.id, experience.position),
            question: experience.task.question.clone(),
            reply,
            vector,
            sparse,
            colbert,
        });
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        serde_json::to_vec(&self.state).expect("plain data always encodes")
    }

    fn load(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let state: State = serde_json::from_slice(bytes).context("saved state of memory `rag`")?;
        let parts = |entry: &Entry| [!entry.vector.is_empty(), entry.sparse.is_some(), entry.colbert.is_some()];
        let expected = self.options.mode.parts();
        let is_fit = state.entries.iter().all(|entry| parts(entry) == expected);
        ensure!(is_fit, "saved state of memory `rag`: its entries are not of mode {:?}", self.options.mode);
        self.state = state;
        Ok(())
    }
}

impl Store {
    fn embed(&self, purpose: Purpose, text: &str, handles: &Handles<'_>) -> anyhow::Result<Parts> {
        let embedder = handles.embedder.context("memory `rag` needs an embedding model: set `embedder` in [models]")?;
        if let Some(expected) = &self.state.embedder {
            let found = embedder.id();
            ensure!(*expected == found, "memory `rag` holds vectors of {expected}, the run's embedder is {found}");
        }
        let texts = [text.to_string()];
        let parts = match self.options.mode {
            Mode::Dense => {
                let vectors = match purpose {
                    Purpose::Query => embedder.embed_queries(&texts),
                    Purpose::Document => embedder.embed(&texts),
                };
                vectors.map(|mut vectors| vectors.pop().map(|dense| Parts { dense, ..Parts::default() }))
            }
            Mode::Sparse => embedder
                .sparse(purpose, &texts)
                .map(|mut vectors| vectors.pop().map(|sparse| Parts { sparse: Some(sparse), ..Parts::default() })),
            Mode::Colbert => embedder
                .colbert(purpose, &texts)
                .map(|mut vectors| vectors.pop().map(|colbert| Parts { colbert: Some(colbert), ..Parts::default() })),
            Mode::Hybrid => embedder.multi(purpose, &texts).map(|mut vectors| {
                vectors.pop().map(|MultiVector { dense, sparse, colbert }| Parts {
                    dense,
                    sparse: Some(sparse),
                    colbert: Some(colbert),
                })
            }),
        };
        let parts = parts.with_context(|| format!("memory `rag` with mode {:?}", self.options.mode))?;
        parts.context("the embedder returned no vector")
    }
}

const PREAMBLE: &str = include_str!("../../configs/prompts/rag_preamble.txt");
