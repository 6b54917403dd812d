//! Mixtures of experts on a GPU, emulated, against the processor. Needs the feature `emulate`.
#![cfg(feature = "emulate")]

mod checks;

use checks::{experts, holds_in_every_order};

#[test]
fn routes() {
    holds_in_every_order(experts::routes);
}

#[test]
fn tokens_go_to_experts_and_come_back() {
    holds_in_every_order(experts::experts_and_back);
}

#[test]
fn products_of_all_experts_are_those_of_each() {
    holds_in_every_order(experts::products_of_all_experts_are_those_of_each);
}
