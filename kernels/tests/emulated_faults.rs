//! Tests of the tests: kernels with one fault each, compiled here, are caught by the checks that the right ones pass.
#![cfg(feature = "emulate")]

mod checks;
mod reference;

use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;

use checks::{Check, Checked, ORDERS, attention, delta, products};
use lifelong_kernels::Device;

// `kernels/cuda/emulator/emulator.cpp` says what it does.
unsafe extern "C" {
    fn emulate_overlay(path: *const c_char, message: *mut c_char, message_bytes: usize) -> c_int;
}

/// A change of one file, and the check that must see it.
struct Fault {
    name: &'static str,
    file: &'static str,
    /// What stands there and what comes in its place; the first of several such places.
    edits: &'static [(&'static str, &'static str)],
    check: Check,
}

const FAULTS: [Fault; 18] = [
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
            "a.tables[queries[0].table + (first / BLOCK_TOKENS ^ 1)]",
        )],
        check: attention::paged_attention_has_the_processors_bits,
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
        name: "a state is left out of the block that it completes",
        file: "delta.cu",
        edits: &[("(position + 1) % BLOCK_TOKENS == 0 || ", "")],
        check: delta::the_delta_rule_has_the_processors_bits,
    },
];

/// Compiles the emulator and changed kernels.
struct Workshop {
    folder: PathBuf,
    sources: PathBuf,
    emulator: PathBuf,
}

impl Workshop {
    fn open() -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("faults");
        std::fs::create_dir_all(&folder).unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda");
        let workshop = Self { emulator: folder.join("emulator.o"), folder, sources };
        let source = workshop.sources.join("emulator/emulator.cpp");
        workshop.compile(&["-c".as_ref(), source.as_ref(), "-o".as_ref(), workshop.emulator.as_ref()]);
        workshop
    }

    fn compile(&self, arguments: &[&std::ffi::OsStr]) {
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let done = Command::new(compiler)
            .args([
                "-std=c++20",
                "-O1",
                "-fPIC",
                "-w",
                "-ffp-contract=off",
                "-fvisibility=hidden",
                "-DLIFELONG_EMULATED",
            ])
            .arg(concat!("-isystem", env!("LIFELONG_EMULATOR_HEADERS")))
            .arg("-I")
            .arg(&self.sources)
            .args(arguments)
            .output()
            .expect("the compiler that built the emulator");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// A library with one file changed.
    fn library(&self, index: usize, file: &str, edits: &[(&str, &str)]) -> PathBuf {
        let mut text = std::fs::read_to_string(self.sources.join(file)).unwrap();
        for (from, to) in edits {
            assert!(text.contains(from), "{file} has no `{from}` any more: the fault must be written anew");
            text = text.replacen(from, to, 1);
        }
        let source = self.folder.join(format!("{index}_{file}"));
        std::fs::write(&source, text).unwrap();
        let library = self.folder.join(format!("{index}_{file}.so"));
        let (shared, language, none) = ("-shared".as_ref(), "-xc++".as_ref(), "-xnone".as_ref());
        let symbolic = "-Wl,-Bsymbolic".as_ref();
        let arguments = [
            shared,
            symbolic,
            language,
            source.as_ref(),
            none,
            self.emulator.as_ref(),
            "-o".as_ref(),
            library.as_ref(),
        ];
        self.compile(&arguments);
        library
    }
}

/// Puts a library before the kernels, or none.
fn overlay(library: Option<&Path>) {
    let path = library.map(|path| CString::new(path.to_str().unwrap()).unwrap());
    let mut message = [0 as c_char; 512];
    let pointer = path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr());
    // SAFETY: a terminated path or null; the message is terminated within its length. No kernel runs: there is one test.
    let failed = unsafe { emulate_overlay(pointer, message.as_mut_ptr(), message.len()) };
    // SAFETY: as above.
    assert_eq!(failed, 0, "{}", unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy());
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
    let workshop = Workshop::open();
    // Without a fault nothing is found, so that what is found below is the fault.
    for (index, (file, check)) in [
        ("attention.cu", attention::paged_attention_has_the_processors_bits as Check),
        ("matmul.cu", products::rounded_products_are_near_the_definition),
        ("matmul_blocks.cu", products::several_matrices_at_once_are_each_alone),
        ("delta.cu", delta::the_delta_rule_has_the_processors_bits),
    ]
    .into_iter()
    .enumerate()
    {
        overlay(Some(&workshop.library(100 + index, file, &[])));
        found_by(check).unwrap_or_else(|problem| panic!("{file} without a fault: {problem}"));
    }
    let mut missed = Vec::new();
    for (index, fault) in FAULTS.iter().enumerate() {
        overlay(Some(&workshop.library(index, fault.file, fault.edits)));
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
