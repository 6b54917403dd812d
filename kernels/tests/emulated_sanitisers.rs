//! Kernels under the compiler's sanitisers: every stray access and every race is named with its line. Slow, so it runs when
//! asked for: `cargo test -p lifelong-kernels --features emulate --test emulated_sanitisers -- --ignored`.
#![cfg(feature = "emulate")]

mod checks;

use std::path::PathBuf;
use std::process::{Command, Output};

use checks::workshop::{Sanitiser, Workshop, overlay};
use checks::{Check, Checked, attention, delta, draw, elementwise, experts, products, sample};
use lifelong_kernels::limits::Limits;
use lifelong_kernels::ops::exchange;
use lifelong_kernels::{Device, Error, Values};

/// Every file of kernels, and checks that run them.
const FILES: &[(&str, &[Check])] = &[
    ("activation.cu", &[elementwise::activations]),
    (
        "attention.cu",
        &[
            attention::paged_attention_has_the_processors_bits,
            attention::windows_and_sinks_have_the_processors_bits,
            attention::shared_prefixes_change_no_row,
            attention::biased_attention_has_the_processors_bits,
        ],
    ),
    ("attention_fragments.cu", &[attention::tensor_cores_are_near_the_processor]),
    ("delta.cu", &[delta::the_delta_rule_has_the_processors_bits]),
    ("draw.cu", &[draw::drawn_weights_are_the_processors]),
    ("embed.cu", &[elementwise::look_ups]),
    ("exchange.cu", &[exchanges]),
    ("experts.cu", &[experts::routes, experts::experts_and_back, experts::products_of_all_experts_are_those_of_each]),
    ("kv.cu", &[attention::copied_blocks_are_the_blocks]),
    ("limits.cu", &[limits]),
    (
        "matmul.cu",
        &[
            products::plain_products_have_the_processors_bits,
            products::rounded_products_are_near_the_definition,
            experts::products_of_all_experts_are_those_of_each,
        ],
    ),
    (
        "matmul_blocks.cu",
        &[products::several_matrices_at_once_are_each_alone, experts::products_of_all_experts_are_those_of_each],
    ),
    ("norm.cu", &[elementwise::norms]),
    ("pool.cu", &[elementwise::pooling]),
    ("residual.cu", &[elementwise::activations]),
    ("rope.cu", &[elementwise::rotations]),
    ("sample.cu", &[sample::draws_are_the_processors, sample::rows_without_numbers_draw_nothing]),
];

/// Both exchanges, between two GPUs.
fn exchanges(_: &Device) -> Checked {
    let both = || -> Result<(), Error> {
        let group = Device::group(vec![Device::emulated(0)?, Device::emulated(1)?])?;
        group.together(vec![(), ()], |device, ()| {
            let mut sum = Values::copied(device, &[0.5; 300])?;
            exchange::sum(device, &mut sum)?;
            let (rank, rows, width) = (device.rank(), 3, 9);
            let own = Values::copied(device, &vec![1.5; rows * rank.share(width).len()])?;
            let mut all = Values::zeros(device, if rank.is_first() { rows * width } else { 0 })?;
            exchange::columns(device, &mut all, &own, width)?;
            device.synchronize()
        })
    };
    both().map_err(|error| error.to_string())
}

fn limits(device: &Device) -> Checked {
    Limits::measure(device, 1 << 16).map(drop).map_err(|error| error.to_string())
}

/// What a started copy of this test finds its library by, and which of [`FILES`] it is of.
const LIBRARY: &str = "LIFELONG_TEST_WATCHED_LIBRARY";
const FILE: &str = "LIFELONG_TEST_WATCHED_FILE";

/// Runs the checks of a file on a library, in a process that has the sanitiser.
fn watched(sanitiser: Sanitiser, library: PathBuf, file: usize) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kernels_are_clean_and_faults_are_named", "--ignored", "--nocapture"])
        .env(LIBRARY, library)
        .env(FILE, file.to_string())
        .env("LD_PRELOAD", sanitiser.library())
        .env("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=0")
        .env("TSAN_OPTIONS", "halt_on_error=0:exitcode=66")
        .output()
        .unwrap()
}

#[test]
fn every_file_of_kernels_is_watched() {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".cu")).collect();
    names.sort_unstable();
    assert_eq!(names, FILES.iter().map(|(file, _)| *file).collect::<Vec<_>>());
}

#[test]
#[ignore = "minutes"]
fn kernels_are_clean_and_faults_are_named() {
    if let (Some(library), Ok(file)) = (std::env::var_os(LIBRARY), std::env::var(FILE)) {
        overlay(Some(&PathBuf::from(library)));
        let device = Device::emulated(1).unwrap();
        for check in FILES[file.parse::<usize>().unwrap()].1 {
            // The check may fail where the fault is planted: the report is what counts.
            let _ = check(&device);
        }
        return;
    }
    for sanitiser in [Sanitiser::Address, Sanitiser::Thread] {
        let workshop = Workshop::with(sanitiser.name(), Some(sanitiser));
        for (index, (file, _)) in FILES.iter().enumerate() {
            let library = workshop.library(file, &workshop.source(file));
            let output = watched(sanitiser, library, index);
            let report = String::from_utf8_lossy(&output.stderr);
            // The thread sanitiser takes the test's own threads for races, as they are not compiled for it; those name no
            // line of a kernel.
            let is_over = sanitiser == Sanitiser::Thread || output.status.success();
            assert!(is_over && !report.contains(&format!("/{file}:")), "{file}, {sanitiser:?}: {report}");
            println!("{file} is clean under the {} sanitiser", sanitiser.name());
        }
        let (from, to, expected) = match sanitiser {
            Sanitiser::Address => (
                "work.kept[row * SPLIT_BLOCKS + block] = kept",
                "work.kept[row * SPLIT_BLOCKS + block + 600] = kept",
                "heap-buffer-overflow",
            ),
            Sanitiser::Thread => {
                ("            __syncthreads();\n            const int own", "            const int own", "data race")
            }
        };
        let source = workshop.source("attention.cu");
        assert!(source.contains(from), "the fault must be written anew");
        let library = workshop.library("fault.cu", &source.replacen(from, to, 1));
        let attention = FILES.iter().position(|(file, _)| *file == "attention.cu").unwrap();
        let output = watched(sanitiser, library, attention);
        let report = String::from_utf8_lossy(&output.stderr);
        assert!(report.contains(expected) && report.contains("fault.cu:"), "{sanitiser:?}: {report}");
    }
}
