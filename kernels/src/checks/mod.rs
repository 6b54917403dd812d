//! What a GPU must do, each a check of it against the processor: `lifelong gpu-check` runs them on a GPU, tests on the
//! emulator. They say what they found instead of failing, as some tests run them on kernels that are wrong on purpose.
//!
//! A check makes its own inputs, at shapes where kernels have edges: one row, tails of tiles, empty prefixes, ends inside of
//! blocks. Results begin as no numbers and stand between borders that must stay as they are.

pub mod attention;
pub mod delta;
pub mod draw;
pub mod elementwise;
pub mod experts;
mod inputs;
pub mod products;
pub mod sample;

use crate::device::Device;

/// Nothing, or what is wrong.
pub type Checked = Result<(), String>;

/// A check of a device.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The operations that it looks at, then what they must do.
    pub name: &'static str,
    pub run: fn(&Device) -> Checked,
}

const fn check(name: &'static str, run: fn(&Device) -> Checked) -> Check {
    Check { name, run }
}

/// Every check, cheap ones first.
pub static CHECKS: &[Check] = &[
    check("activations: the processor's bits", elementwise::activations),
    check("exponential and error function: the processor's bits everywhere", elementwise::elementary_functions),
    check("norms: the processor's bits", elementwise::norms),
    check("rotations: the processor's bits", elementwise::rotations),
    check("look-ups: the processor's bits in every format", elementwise::look_ups),
    check("look-ups: what a step says is brought over when it changes", elementwise::steps_that_change),
    check("pooling: the processor's bits", elementwise::pooling),
    check("expert routes: the processor's", experts::routes),
    check("experts: tokens go and come back", experts::experts_and_back),
    check("values: a part is addressed as it stands", elementwise::parts_of_values),
    check("values: large operands are brought over in one piece", elementwise::large_operands),
    check("weights: those of another device are refused", elementwise::weights_elsewhere),
    check("weights: drawn ones are the processor's", draw::drawn_weights_are_the_processors),
    check("products: the processor's bits, quantised", products::quantised_products_have_the_processors_bits),
    check("products: the processor's bits, plain", products::plain_products_have_the_processors_bits),
    check("products: near the definition, f16 and bf16", products::rounded_products_are_near_the_definition),
    check("products: f16 rows have units of their own", products::f16_rows_have_units_of_their_own),
    check("products: rows do not depend on each other", products::rows_do_not_depend_on_each_other),
    check("products: several matrices at once are each alone", products::several_matrices_at_once_are_each_alone),
    check("experts: products of all are those of each", experts::products_of_all_experts_are_those_of_each),
    check("attention: the processor's bits", attention::paged_attention_has_the_processors_bits),
    check("attention: the processor's bits behind 4095 positions", attention::long_contexts_have_the_processors_bits),
    check("attention: near the processor on tensor cores", attention::tensor_cores_are_near_the_processor),
    check("attention: tensor cores change no row", attention::tensor_cores_change_no_row),
    check("attention: windows and sinks", attention::windows_and_sinks_have_the_processors_bits),
    check("attention: shared prefixes change no row", attention::shared_prefixes_change_no_row),
    check("attention: rows of no segment stay", attention::rows_of_no_segment_stay),
    check("attention: a block that was copied is the block", attention::copied_blocks_are_the_blocks),
    check("attention: whole texts", attention::bidirectional_attention_has_the_processors_bits),
    check("attention: whole texts with a bias", attention::biased_attention_has_the_processors_bits),
    check("delta rule: the processor's bits, states included", delta::the_delta_rule_has_the_processors_bits),
    check("draws: the processor's", sample::draws_are_the_processors),
    check("draws: none of rows without numbers", sample::rows_without_numbers_draw_nothing),
];

/// Fails with the first value whose bits differ. Any number that is none equals any other.
pub(crate) fn same_bits(found: &[f32], expected: &[f32], what: &str) -> Checked {
    if found.len() != expected.len() {
        return Err(format!("{what}: {} values, expected {}", found.len(), expected.len()));
    }
    let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
    match found.iter().zip(expected).position(differs) {
        Some(index) => Err(format!("{what}: value {index} is {:?}, expected {:?}", found[index], expected[index])),
        None => Ok(()),
    }
}

/// `values` between borders that must stay as they are; the values themselves are no numbers before something is written.
pub(crate) struct Guarded {
    memory: Vec<f32>,
    length: usize,
}

const BORDER: usize = 64;
const UNTOUCHED: f32 = 1234.5;

impl Guarded {
    pub(crate) fn new(length: usize) -> Self {
        let mut memory = vec![UNTOUCHED; length + 2 * BORDER];
        memory[BORDER..BORDER + length].fill(f32::NAN);
        Self { memory, length }
    }

    pub(crate) fn values(&mut self) -> &mut [f32] {
        &mut self.memory[BORDER..BORDER + self.length]
    }

    /// The values, all written and nothing beside them.
    pub(crate) fn taken(self, what: &str) -> Result<Vec<f32>, String> {
        let borders = self.memory[..BORDER].iter().chain(&self.memory[BORDER + self.length..]);
        if borders.into_iter().any(|value| *value != UNTOUCHED) {
            return Err(format!("{what}: something was written beside the result"));
        }
        let values = self.memory[BORDER..BORDER + self.length].to_vec();
        match values.iter().position(|value| value.is_nan()) {
            Some(index) => Err(format!("{what}: value {index} was not written, or is no number")),
            None => Ok(values),
        }
    }
}
