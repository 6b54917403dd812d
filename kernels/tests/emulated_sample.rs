//! Draws on a GPU, emulated, against the processor. Needs the feature `emulate`.
#![cfg(feature = "emulate")]

mod checks;

use checks::{holds_in_every_order, sample};

#[test]
fn draws_are_the_processors() {
    holds_in_every_order(sample::draws_are_the_processors);
}

#[test]
fn rows_without_numbers_draw_nothing() {
    holds_in_every_order(sample::rows_without_numbers_draw_nothing);
}
