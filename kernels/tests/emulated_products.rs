//! Products on a GPU, emulated, against the processor. Needs the feature `emulate`.
#![cfg(feature = "emulate")]

mod checks;

use checks::{holds_in_every_order, products};

#[test]
fn quantised_products_have_the_processors_bits() {
    holds_in_every_order(products::quantised_products_have_the_processors_bits);
}

#[test]
fn plain_products_have_the_processors_bits() {
    holds_in_every_order(products::plain_products_have_the_processors_bits);
}

#[test]
fn rounded_products_are_near_the_definition() {
    holds_in_every_order(products::rounded_products_are_near_the_definition);
}

#[test]
fn f16_rows_have_units_of_their_own() {
    holds_in_every_order(products::f16_rows_have_units_of_their_own);
}

#[test]
fn rows_do_not_depend_on_each_other() {
    holds_in_every_order(products::rows_do_not_depend_on_each_other);
}

#[test]
fn several_matrices_at_once_are_each_alone() {
    holds_in_every_order(products::several_matrices_at_once_are_each_alone);
}
