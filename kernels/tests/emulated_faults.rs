//! Tests of the tests: kernels with one fault each, compiled here, are caught by the checks that the right ones pass.
#![cfg(feature = "emulate")]

mod checks;

use std::panic::AssertUnwindSafe;

use checks::workshop::{Workshop, overlay};
use checks::{Check, Checked, ORDERS, attention, delta, experts, products};
use lifelong_kernels::Device;

/// A change of one file, and the check that must see it.
struct Fault {
    name: &'static str,
    file: &'static str,
    /// What stands there and what comes in its place; the first of several such places.
    edits: &'static [(&'static str, &'static str)],
    check: Check,
}

const FAULTS: [Fault; 23] = [
    Fault {
        name: "a barrier is dropped between scores and softmax",
        file: "attention.cu",
        edits: &[("            __syncthreads();\n            const int own", "            const int own")],
        check: attention::paged_attention_has_the_processors_bits,
    },
    Fault {
        name: "a barrier is dropped before a stage of tiles is overwritten",
        file: "matmul.cu",
        edits: &[("next takes.\n        __syncthreads();", "next takes.")],
        check: products::rounded_products_are_near_the_definition,
    },
    Fault {
        name: "a barrier stands in divergent code",
        file: "matmul.cu",
        edits: &[(
            "        __syncthreads();\n        const int count",
            "        if (slice < slices) __syncthreads();\n        const int count",
        )],
        check: products::rounded_products_are_near_the_definition,
    },
    Fault {
        name: "the last tile of rows is one row too long",
        file: "matmul_blocks.cu",
        edits: &[("own_token < tokens && own_row < product.rows", "own_token < tokens && own_row <= product.rows")],
        check: products::quantised_products_have_the_processors_bits,
    },
    Fault {
        name: "rows of weights are walked with the stride of the activations",
        file: "matmul.cu",
        edits: &[("row + 8, product.rows - 1)) * columns", "row + 8, product.rows - 1)) * stride")],
        check: products::rounded_products_are_near_the_definition,
    },
    Fault {
        name: "scores outside of what a row sees are not masked",
        file: "attention.cu",
        edits: &[("= is_seen ? sum : -INFINITY;", "= sum;")],
        check: attention::paged_attention_has_the_processors_bits,
    },
    Fault {
        name: "values outside of what a row sees are added",
        file: "attention.cu",
        edits: &[("if (is_seen) outputs[row]", "outputs[row]")],
        check: attention::paged_attention_has_the_processors_bits,
    },
    Fault {
        name: "an asynchronous copy is used one stage before it is waited for",
        file: "matmul.cu",
        edits: &[("wait_for_copies<STAGES - 2>();", "wait_for_copies<STAGES - 1>();")],
        check: products::rounded_products_are_near_the_definition,
    },
    Fault {
        name: "the copies of quantised weights are never waited for",
        file: "matmul_blocks.cu",
        edits: &[("wait_for_copies<STAGES - 2>();", ""), ("wait_for_copies<0>();", "")],
        check: products::quantised_products_have_the_processors_bits,
    },
    Fault {
        name: "a shuffle's mask leaves out half of the warp",
        file: "matmul_blocks.cu",
        edits: &[("__shfl_xor_sync(ALL_LANES, bits, by)", "__shfl_xor_sync(0xffffu, bits, by)")],
        check: products::quantised_products_have_the_processors_bits,
    },
    Fault {
        name: "shared memory is read that nothing was written to",
        file: "matmul.cu",
        edits: &[("i < PLAIN_ROWS * PLAIN_DEPTH; i += 256", "i + 256 < PLAIN_ROWS * PLAIN_DEPTH; i += 256")],
        check: products::plain_products_have_the_processors_bits,
    },
    Fault {
        name: "shared memory is written behind its end",
        file: "matmul.cu",
        edits: &[(
            "SHARED(float, inputs, PLAIN_TOKENS * PLAIN_DEPTH);",
            "SHARED(float, inputs, PLAIN_TOKENS * PLAIN_DEPTH - 1);",
        )],
        check: products::plain_products_have_the_processors_bits,
    },
    Fault {
        name: "a window is one position short",
        file: "attention.cu",
        edits: &[("position >= queries[row].visible_start", "position > queries[row].visible_start")],
        check: attention::windows_and_sinks_have_the_processors_bits,
    },
    Fault {
        name: "splits are merged from the last to the first",
        file: "attention.cu",
        edits: &[
            (
                "* a.heads + head) * values;\n    const size_t next = size_t(a.heads) * values;",
                "* a.heads + head) * values;\n    const size_t next = size_t(a.heads) * values;\n    from += (splits - 1) * next;",
            ),
            ("        from += next;", "        from -= next;"),
        ],
        check: attention::long_contexts_have_the_processors_bits,
    },
    Fault {
        name: "values are read from the neighbour's block",
        file: "attention.cu",
        edits: &[(
            "a.tables[queries[0].table + first / BLOCK_TOKENS]",
            "a.tables[queries[0].table + max(first / BLOCK_TOKENS, 1) - 1]",
        )],
        check: attention::paged_attention_has_the_processors_bits,
    },
    Fault {
        name: "a row on tensor cores sees what comes after it",
        file: "attention_fragments.cu",
        edits: &[("key >= own.start[r] && key < own.end[r] ? score", "key >= own.start[r] ? score")],
        check: attention::tensor_cores_are_near_the_processor,
    },
    Fault {
        name: "one of the kernels adds the whole of k in one chain",
        file: "matmul.cu",
        edits: &[("(piece + 1) % (SLICE / PIECE) == 0 ||", "")],
        check: products::rows_do_not_depend_on_each_other,
    },
    Fault {
        name: "groups are added from the last of a slab",
        file: "matmul_blocks.cu",
        edits: &[(
            "for (int group = 0; group < count; group++) {",
            "for (int group = count - 1; group >= 0; group--) {",
        )],
        check: products::quantised_products_have_the_processors_bits,
    },
    Fault {
        name: "an expert's last tile runs into the next expert",
        file: "experts.cu",
        edits: &[("first + min(at + tile_tokens, length)", "first + at + tile_tokens")],
        check: experts::products_of_all_experts_are_those_of_each,
    },
    Fault {
        name: "experts without rows are given a tile each",
        file: "experts.cu",
        edits: &[(
            "tiles_before += (lengths[i] + tile_tokens - 1) / tile_tokens",
            "tiles_before += lengths[i] / tile_tokens + 1",
        )],
        check: experts::products_of_all_experts_are_those_of_each,
    },
    Fault {
        name: "a barrier is dropped between counting visits and reading the counts",
        file: "experts.cu",
        edits: &[("    __syncthreads();\n    unsigned visits_before", "    unsigned visits_before")],
        check: experts::routes,
    },
    Fault {
        name: "all experts are multiplied by the first one's weights",
        file: "matmul_blocks.cu",
        edits: &[("product_of_expert(products, tile.expert)", "product_of_expert(products, 0)")],
        check: experts::products_of_all_experts_are_those_of_each,
    },
    Fault {
        name: "a state is left out of the block that it completes",
        file: "delta.cu",
        edits: &[("(position + 1) % BLOCK_TOKENS == 0 || ", "")],
        check: delta::the_delta_rule_has_the_processors_bits,
    },
];

/// A file of kernels with changes.
fn changed(workshop: &Workshop, file: &str, edits: &[(&str, &str)]) -> String {
    let mut text = workshop.source(file);
    for (from, to) in edits {
        assert!(text.contains(from), "{file} has no `{from}` any more: the fault must be written anew");
        text = text.replacen(from, to, 1);
    }
    text
}

/// What the check finds in the first order of threads that shows something.
fn found_by(check: Check) -> Checked {
    ORDERS.iter().try_for_each(|order| {
        let device = Device::emulated(*order).unwrap();
        // An operation that fails on the way to a check is found as well.
        let checked = std::panic::catch_unwind(AssertUnwindSafe(|| check(&device)));
        checked.unwrap_or_else(|_| Err("the check could not be set up".into()))
    })
}

#[test]
fn every_fault_is_caught() {
    let workshop = Workshop::open("faults");
    // Without a fault nothing is found, so that what is found below is the fault.
    for (index, (file, check)) in [
        ("attention.cu", attention::paged_attention_has_the_processors_bits as Check),
        ("matmul.cu", products::rounded_products_are_near_the_definition),
        ("matmul_blocks.cu", products::several_matrices_at_once_are_each_alone),
        ("delta.cu", delta::the_delta_rule_has_the_processors_bits),
        ("experts.cu", experts::products_of_all_experts_are_those_of_each),
    ]
    .into_iter()
    .enumerate()
    {
        overlay(Some(&workshop.library(&format!("right_{index}.cu"), &workshop.source(file))));
        found_by(check).unwrap_or_else(|problem| panic!("{file} without a fault: {problem}"));
    }
    let mut missed = Vec::new();
    for (index, fault) in FAULTS.iter().enumerate() {
        let text = changed(&workshop, fault.file, fault.edits);
        overlay(Some(&workshop.library(&format!("fault_{index}.cu"), &text)));
        match found_by(fault.check) {
            Err(problem) => println!("caught: {} ({}): {}", fault.name, fault.file, shortened(&problem)),
            Ok(()) => missed.push(fault.name),
        }
    }
    overlay(None);
    assert!(missed.is_empty(), "not caught: {missed:#?}");
}

fn shortened(text: &str) -> String {
    text.chars().take(150).collect()
}
