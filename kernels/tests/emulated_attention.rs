//! Attention on a GPU, emulated, against the processor. Needs the feature `emulate`.
#![cfg(feature = "emulate")]

mod checks;

use checks::{attention, holds_in_every_order};

#[test]
fn paged_attention_has_the_processors_bits() {
    holds_in_every_order(attention::paged_attention_has_the_processors_bits);
}

#[test]
fn long_contexts_have_the_processors_bits() {
    holds_in_every_order(attention::long_contexts_have_the_processors_bits);
}

#[test]
fn tensor_cores_are_near_the_processor() {
    holds_in_every_order(attention::tensor_cores_are_near_the_processor);
}

#[test]
fn tensor_cores_change_no_row() {
    holds_in_every_order(attention::tensor_cores_change_no_row);
}

#[test]
fn windows_and_sinks_have_the_processors_bits() {
    holds_in_every_order(attention::windows_and_sinks_have_the_processors_bits);
}

#[test]
fn shared_prefixes_change_no_row() {
    holds_in_every_order(attention::shared_prefixes_change_no_row);
}

#[test]
fn rows_of_no_segment_stay() {
    holds_in_every_order(attention::rows_of_no_segment_stay);
}

#[test]
fn bidirectional_attention_has_the_processors_bits() {
    holds_in_every_order(attention::bidirectional_attention_has_the_processors_bits);
}

#[test]
fn biased_attention_has_the_processors_bits() {
    holds_in_every_order(attention::biased_attention_has_the_processors_bits);
}

#[test]
fn copied_blocks_are_the_blocks() {
    holds_in_every_order(attention::copied_blocks_are_the_blocks);
}
