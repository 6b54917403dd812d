//! The gated delta rule on a GPU, emulated, against the processor. Needs the feature `emulate`.
#![cfg(feature = "emulate")]

mod checks;

use checks::{delta, holds_in_every_order};

#[test]
fn the_delta_rule_has_the_processors_bits() {
    holds_in_every_order(delta::the_delta_rule_has_the_processors_bits);
}
