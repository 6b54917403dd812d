//! What is measured, by name, and how much of it.

use std::fmt;

use lifelong_kernels::KvType;

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    pub name: &'static str,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One prompt of which nothing is cached, and one new token.
    Prefill { tokens: usize },
    /// A batch of requests behind [`Scale::depth`] cached tokens: every step is one token a row.
    Decode { batch: usize, prompts: Prompts },
    /// Demonstrations × targets × seeds, handed over at once.
    Matrix { prefix_cache: bool },
    /// Sentences into vectors, in one call.
    Embed { sentences: usize },
}

/// Whether the rows of a batch have their prefix in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompts {
    Own,
    Shared,
}

/// Cached tokens before a decoded one, of every scale but that of tests.
pub const DEPTH: usize = 512;

/// Everything `lifelong bench` measures, in order.
pub static WORKLOADS: &[Workload] = &[
    Workload { name: "prefill-512", kind: Kind::Prefill { tokens: 512 } },
    Workload { name: "prefill-2048", kind: Kind::Prefill { tokens: 2048 } },
    Workload { name: "decode-1-own", kind: Kind::Decode { batch: 1, prompts: Prompts::Own } },
    Workload { name: "decode-1-shared", kind: Kind::Decode { batch: 1, prompts: Prompts::Shared } },
    Workload { name: "decode-8-own", kind: Kind::Decode { batch: 8, prompts: Prompts::Own } },
    Workload { name: "decode-8-shared", kind: Kind::Decode { batch: 8, prompts: Prompts::Shared } },
    Workload { name: "decode-32-own", kind: Kind::Decode { batch: 32, prompts: Prompts::Own } },
    Workload { name: "decode-32-shared", kind: Kind::Decode { batch: 32, prompts: Prompts::Shared } },
    Workload { name: "matrix", kind: Kind::Matrix { prefix_cache: true } },
    Workload { name: "embed-1", kind: Kind::Embed { sentences: 1 } },
    Workload { name: "embed-32", kind: Kind::Embed { sentences: 32 } },
    Workload { name: "embed-128", kind: Kind::Embed { sentences: 128 } },
];

/// What prefix sharing saves, by its absence. Not one of [`WORKLOADS`]: at full size it takes minutes.
pub const MATRIX_WITHOUT_SHARING: Workload =
    Workload { name: "matrix-without-sharing", kind: Kind::Matrix { prefix_cache: false } };

/// How much of each workload to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Timed runs after the warm-up.
    pub runs: usize,
    pub matrix_runs: usize,
    /// New tokens a decoding row.
    pub decode_tokens: usize,
    pub matrix: MatrixShape,
    /// Cached tokens before a decoded one.
    pub depth: usize,
    pub engine: EngineShape,
}

/// How the engine that is measured is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineShape {
    /// Rows of a step at most.
    pub max_batch: usize,
    pub prefill_chunk: usize,
    /// `None`: what the program takes on the device.
    pub kv_type: Option<KvType>,
    /// Requests whose tokens the cache of a matrix holds: with a shared prefix that is enough for a larger batch.
    pub matrix_requests: usize,
}

impl EngineShape {
    /// The defaults of the program.
    pub const PROCESSOR: EngineShape =
        EngineShape { max_batch: 64, prefill_chunk: 256, kv_type: None, matrix_requests: 16 };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixShape {
    pub demonstration_tokens: usize,
    pub target_tokens: usize,
    pub demonstrations: usize,
    pub targets: usize,
    pub seeds: usize,
    /// New tokens a completion.
    pub new_tokens: usize,
}

impl MatrixShape {
    pub const SMALL: MatrixShape = MatrixShape {
        demonstration_tokens: 400,
        target_tokens: 150,
        demonstrations: 2,
        targets: 4,
        seeds: 5,
        new_tokens: 16,
    };

    /// Tokens of a request at its end.
    pub fn request_tokens(self) -> usize {
        self.demonstration_tokens + self.target_tokens + self.new_tokens
    }

    pub fn completions(self) -> usize {
        self.demonstrations * self.targets * self.seeds
    }
}

impl Scale {
    pub const FULL: Scale = Scale {
        runs: 5,
        matrix_runs: 1,
        decode_tokens: 64,
        matrix: MatrixShape { demonstrations: 8, targets: 8, new_tokens: 48, ..MatrixShape::SMALL },
        depth: DEPTH,
        engine: EngineShape::PROCESSOR,
    };
    pub const QUICK: Scale = Scale { runs: 2, decode_tokens: 16, matrix: MatrixShape::SMALL, ..Scale::FULL };
}

impl Workload {
    /// Tokens that its longest request holds at the end; 0 where no backbone is asked.
    pub fn context(&self, scale: &Scale) -> usize {
        match self.kind {
            Kind::Prefill { tokens } => tokens + 1,
            Kind::Decode { .. } => scale.depth + 1 + scale.decode_tokens,
            Kind::Matrix { .. } => scale.matrix.request_tokens(),
            Kind::Embed { .. } => 0,
        }
    }

    /// Its shape in words, at this scale.
    pub fn about(&self, scale: &Scale) -> String {
        let Scale { decode_tokens, matrix, depth, .. } = scale;
        match self.kind {
            Kind::Prefill { tokens } => format!("one prompt of {tokens} tokens, 1 new token"),
            Kind::Decode { batch, prompts } => {
                let kind = if prompts == Prompts::Own { "own" } else { "shared" };
                format!("batch of {batch} behind {kind} {depth} cached tokens, {decode_tokens} new tokens a row")
            }
            Kind::Matrix { .. } => format!(
                "{} demonstrations ({} tokens) x {} targets ({}) x {} seeds, {} new tokens each",
                matrix.demonstrations,
                matrix.demonstration_tokens,
                matrix.targets,
                matrix.target_tokens,
                matrix.seeds,
                matrix.new_tokens
            ),
            Kind::Embed { sentences } => {
                format!("one call of {sentences} x {} tokens", super::embeddings::SENTENCE_TOKENS)
            }
        }
    }
}

/// No workload's name holds the word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWorkload {
    pub found: String,
    pub known: Vec<&'static str>,
}

impl fmt::Display for UnknownWorkload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "no workload's name contains `{}` (known: {})", self.found, self.known.join(", "))
    }
}

impl std::error::Error for UnknownWorkload {}

/// The workload of that name alone, else those whose name contains the word; all of them without a word.
///
/// # Errors
/// [`UnknownWorkload`] with every name.
pub fn chosen(list: &[Workload], word: Option<&str>) -> Result<Vec<Workload>, UnknownWorkload> {
    let Some(word) = word else { return Ok(list.to_vec()) };
    if let Some(exact) = list.iter().find(|workload| workload.name == word) {
        return Ok(vec![*exact]);
    }
    let found: Vec<Workload> = list.iter().filter(|workload| workload.name.contains(word)).copied().collect();
    if found.is_empty() {
        let known = list.iter().map(|workload| workload.name).collect();
        return Err(UnknownWorkload { found: word.to_string(), known });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(word: Option<&str>) -> Vec<&'static str> {
        chosen(WORKLOADS, word).unwrap().iter().map(|workload| workload.name).collect()
    }

    #[test]
    fn a_name_chooses_itself_and_a_word_all_that_contain_it() {
        assert_eq!(names(Some("embed-1")), ["embed-1"]);
        assert_eq!(names(Some("embed")), ["embed-1", "embed-32", "embed-128"]);
        assert_eq!(names(None).len(), WORKLOADS.len());
    }
}
