//! The emulator itself: what it must refuse, and what threads of a warp tell each other. Needs the feature `emulate`.
#![cfg(feature = "emulate")]

mod checks;
mod reference;

use checks::ORDERS;
use checks::workshop::{Workshop, launch, overlay};

/// Kernels of `misuse.cu`, and a part of what must be said about them.
const MISUSES: [(&str, &str); 13] = [
    ("exits_before_a_barrier", "a barrier in divergent code: 32 threads reach misuse.cu:"),
    ("meets_at_two_barriers", "a barrier in divergent code: some threads are at misuse.cu:"),
    ("names_a_lane_that_has_exited", "which has exited"),
    ("reads_a_lane_outside_of_its_mask", "reads lane 20, which its mask leaves out"),
    ("is_left_out_of_its_own_mask", "whose mask leaves out lane"),
    ("meets_at_two_shuffles", "lanes of one warp meet at different places: a shuffle at misuse.cu:"),
    ("waits_for_those_at_a_barrier", "no thread can go on: thread"),
    ("copies_off_a_border", "an asynchronous copy of 16 bytes at"),
    ("loads_off_a_border", "__ldg of 16 bytes at"),
    ("leaves_a_copy_behind", "without waiting for the copy it began at"),
    ("writes_behind_shared_memory", "a write outside of the 128 bytes of shared memory declared at misuse.cu:"),
    ("asks_for_memory_that_the_launch_did_not_give", "the launch gave no shared memory to the array at misuse.cu:"),
    ("takes_more_shared_memory_than_there_is", "120000 bytes of shared memory for a block at misuse.cu:"),
];

/// Launches that no GPU takes.
const LAUNCHES: [([u32; 3], [u32; 3], usize, &str); 6] = [
    ([1, 1, 1], [1025, 1, 1], 0, "a block of (1025, 1, 1) threads"),
    ([1, 1, 1], [1, 1, 128], 0, "a block of (1, 1, 128) threads"),
    ([1, 1, 1], [48, 1, 1], 0, "no whole number of warps"),
    ([1, 0, 1], [32, 1, 1], 0, "a grid of (1, 0, 1) blocks"),
    ([1, 70_000, 1], [32, 1, 1], 0, "a grid of (1, 70000, 1) blocks"),
    ([1, 1, 1], [32, 1, 1], 200_000, "200000 bytes of shared memory for a block"),
];

/// One test, as there is one emulator.
#[test]
fn what_a_gpu_leaves_undefined_is_an_error_and_the_rest_is_right() {
    let workshop = Workshop::open("emulator");
    let library = workshop.library("misuse.cu", include_str!("misuse.cu"));
    overlay(Some(&library));
    let mut values = vec![0.0; 1024];
    for order in ORDERS {
        let mut run = |kernel: &str| launch(kernel, [1, 1, 1], [64, 1, 1], 0, order, &mut values);
        for (kernel, expected) in MISUSES {
            let problem = run(kernel).expect_err(kernel);
            assert!(problem.contains(expected) && problem.starts_with(kernel), "order {order}: {problem}");
            assert!(problem.contains("block (0, 0, 0)"), "{problem}");
        }
        // It is whole again after every failure.
        run("asks_its_warp").unwrap();
        for (grid, block, shared_bytes, expected) in LAUNCHES {
            let problem = launch("asks_its_warp", grid, block, shared_bytes, order, &mut values).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
        let problem = launch("no_such_kernel", [1, 1, 1], [32, 1, 1], 0, order, &mut values).unwrap_err();
        assert_eq!(problem, "no_such_kernel: there is no such kernel");
        check_warps(order);
        check_poison(order);
    }
    let early = |order: u64| {
        let mut seen = vec![0.0; 64];
        launch("reads_its_neighbour_too_early", [1, 1, 1], [64, 1, 1], 0, order, &mut seen).unwrap();
        seen.iter().map(|value| value.is_nan()).collect::<Vec<bool>>()
    };
    assert_eq!(early(5), early(5), "an order is drawn from its seed alone");
    assert_ne!(early(5), early(6), "another seed is another order");
    assert_ne!(early(0), early(5));
    overlay(None);
}

fn check_warps(order: u64) {
    let mut values = vec![0.0; 64 * 12];
    launch("asks_its_warp", [1, 1, 1], [64, 1, 1], 0, order, &mut values).unwrap();
    for (thread, found) in values[..64 * 8].chunks_exact(8).enumerate() {
        let lane = thread % 32;
        let up = if lane < 2 { lane } else { lane - 2 };
        let down = if lane % 8 == 7 { lane } else { lane + 1 };
        let expected = [3, up, down, lane ^ 5, 11, 1, 0, thread].map(|value| value as f32);
        assert_eq!(found, expected, "thread {thread}, order {order}");
    }
}

fn check_poison(order: u64) {
    let mut values = vec![0.0; 64];
    launch("reads_what_nobody_wrote", [3, 1, 1], [64, 1, 1], 0, order, &mut values).unwrap();
    assert!(values.iter().all(|value| value.is_nan()), "order {order}");
}
