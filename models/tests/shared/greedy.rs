//! Greedy continuations of another engine, and what a float32 model of the same weights says on the way.

use std::path::Path;

use lifelong_kernels::Device;
use lifelong_models::architecture::Decoder;
use serde::Deserialize;

use super::decode::{argmax, logits_from};

/// Prompt rows in a step: attention reads a long prompt in pieces.
const CHUNK: usize = 512;

#[derive(Deserialize)]
pub struct Golden {
    pub cases: Vec<Case>,
}

#[derive(Deserialize)]
pub struct Case {
    pub text: String,
    pub prompt: Vec<u32>,
    pub continuation: Vec<u32>,
    pub steps: Vec<Step>,
}

/// The 20 most likely tokens of one position by the float32 model, and their logits by both references.
#[derive(Deserialize)]
pub struct Step {
    ids: Vec<usize>,
    reference: Vec<f32>,
    llama_cpp: Vec<f32>,
}

impl Step {
    /// Root mean square difference from the float32 logits.
    fn distance(&self, logits: impl Iterator<Item = f32>) -> f64 {
        let squares = logits.zip(&self.reference).map(|(found, exact)| f64::from(found - exact).powi(2));
        (squares.sum::<f64>() / self.reference.len() as f64).sqrt()
    }

    /// The float32 logit of a token, when it is among the 20.
    fn exact(&self, token: usize) -> Option<f32> {
        self.ids.iter().position(|id| *id == token).map(|place| self.reference[place])
    }
}

/// How a model does on the other engine's text.
#[derive(Default)]
pub struct Outcome {
    /// Continuations of which every token is our first choice as well.
    pub equal: usize,
    pub everywhere: Distances,
    /// Where our choice is not the other engine's.
    pub where_parted: Distances,
}

/// Distances from float32 at the same positions.
#[derive(Default)]
pub struct Distances {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Distances {
    pub fn count(&self) -> usize {
        self.ours.len()
    }

    /// Ours, and the other engine's.
    pub fn means(&self) -> (f64, f64) {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        (mean(&self.ours), mean(&self.theirs))
    }

    fn push(&mut self, ours: f64, theirs: f64) {
        self.ours.push(ours);
        self.theirs.push(theirs);
    }
}

impl Golden {
    /// Reads a file of `tests/golden` of the repository.
    pub fn read(name: &str) -> Golden {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name);
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }
}

/// Runs the model on each continuation as given.
///
/// # Panics
/// When it chooses another token where the float32 logits are further apart than `near_tie`.
pub fn follow<'a>(
    model: &dyn Decoder,
    device: &Device,
    cases: impl IntoIterator<Item = &'a Case>,
    near_tie: f32,
) -> Outcome {
    let mut outcome = Outcome::default();
    for case in cases {
        let mut parted = false;
        for ((found, step), token) in forced(model, device, case).iter().zip(&case.steps).zip(&case.continuation) {
            let ours = step.distance(step.ids.iter().map(|id| found[*id]));
            let theirs = step.distance(step.llama_cpp.iter().copied());
            outcome.everywhere.push(ours, theirs);
            let (choice, token) = (argmax(found), *token as usize);
            if choice != token {
                parted = true;
                outcome.where_parted.push(ours, theirs);
                let gap = step.exact(choice).zip(step.exact(token)).map(|(a, b)| (a - b).abs());
                assert!(gap.is_some_and(|gap| gap <= near_tie), "{:?}: {choice} for {token}, {gap:?}", case.text);
            }
        }
        outcome.equal += usize::from(!parted);
    }
    outcome
}

/// Logits of every position of a given continuation: `[steps][V]`.
fn forced(model: &dyn Decoder, device: &Device, case: &Case) -> Vec<Vec<f32>> {
    let given = &case.continuation[..case.continuation.len() - 1];
    let tokens: Vec<u32> = case.prompt.iter().chain(given).copied().collect();
    let logits = logits_from(model, device, &tokens, CHUNK, case.prompt.len() - 1);
    logits.chunks_exact(model.geometry().vocab).map(<[f32]>::to_vec).collect()
}
