// Kernels that a GPU would run to an undefined result, for the tests of the emulator; and a few right ones.
#include "common.cuh"

KERNEL void exits_before_a_barrier(float* out) {
    if (threadIdx.x < 32) return;
    __syncthreads();
    out[threadIdx.x] = 1.0f;
}
EMULATED(exits_before_a_barrier)

KERNEL void meets_at_two_barriers(float* out) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = 1.0f;
}
EMULATED(meets_at_two_barriers)

KERNEL void names_a_lane_that_has_exited(float* out) {
    if (threadIdx.x % 32 >= 16) return;
    out[threadIdx.x] = __shfl_sync(ALL_LANES, float(threadIdx.x), 0);
}
EMULATED(names_a_lane_that_has_exited)

KERNEL void reads_a_lane_outside_of_its_mask(float* out) {
    if (threadIdx.x % 32 < 16) out[threadIdx.x] = __shfl_sync(0xffffu, float(threadIdx.x), 20);
}
EMULATED(reads_a_lane_outside_of_its_mask)

KERNEL void is_left_out_of_its_own_mask(float* out) { out[threadIdx.x] = __shfl_sync(0xffffu, 1.0f, 0); }
EMULATED(is_left_out_of_its_own_mask)

KERNEL void meets_at_two_shuffles(float* out) {
    float value = 1.0f;
    if (threadIdx.x % 2 == 0) {
        value = __shfl_sync(ALL_LANES, value, 0);
    } else {
        value = __shfl_sync(ALL_LANES, value, 1);
    }
    out[threadIdx.x] = value;
}
EMULATED(meets_at_two_shuffles)

KERNEL void waits_for_those_at_a_barrier(float* out) {
    if (threadIdx.x % 32 < 16) {
        __syncthreads();
    } else {
        out[threadIdx.x] = __shfl_sync(ALL_LANES, 1.0f, 0);
    }
}
EMULATED(waits_for_those_at_a_barrier)

KERNEL void copies_off_a_border(float* out) {
    SHARED(float, memory, 64);
    copy_16(memory + 1, out);
    commit_copies();
    wait_for_copies<0>();
}
EMULATED(copies_off_a_border)

KERNEL void loads_off_a_border(float* out) {
    const float4 four = __ldg(reinterpret_cast<const float4*>(out + 1));
    out[threadIdx.x] = four.x;
}
EMULATED(loads_off_a_border)

KERNEL void leaves_a_copy_behind(float* out) {
    SHARED(float, memory, 128);
    copy_16(memory + threadIdx.x * 4 % 128, out);
    commit_copies();
}
EMULATED(leaves_a_copy_behind)

KERNEL void writes_behind_shared_memory(float* out) {
    SHARED(float, memory, 32);
    memory[threadIdx.x] = out[0];
}
EMULATED(writes_behind_shared_memory)

KERNEL void asks_for_memory_that_the_launch_did_not_give(float* out) {
    DYNAMIC_SHARED(float, memory);
    memory[threadIdx.x] = out[0];
}
EMULATED(asks_for_memory_that_the_launch_did_not_give)

KERNEL void takes_more_shared_memory_than_there_is(float* out) {
    SHARED(float, memory, 30000);
    memory[threadIdx.x] = out[0];
}
EMULATED(takes_more_shared_memory_than_there_is)

// What every thread sees of shared memory before anything is written: no number.
KERNEL void reads_what_nobody_wrote(float* out) {
    SHARED(float, memory, 64);
    out[threadIdx.x] = memory[threadIdx.x];
    __syncthreads();
    // For the next block, which must not see it.
    memory[threadIdx.x] = 5.0f;
}
EMULATED(reads_what_nobody_wrote)

// A race: 1 or no number, as threads come.
KERNEL void reads_its_neighbour_too_early(float* out) {
    SHARED(float, memory, 64);
    memory[threadIdx.x] = 1.0f;
    out[threadIdx.x] = memory[(threadIdx.x + 1) % 64];
}
EMULATED(reads_its_neighbour_too_early)

// Right: each lane's results of shuffles, votes and copies; 8 values a thread.
KERNEL void asks_its_warp(float* out) {
    SHARED(float, memory, 64 * 4);
    const int thread = threadIdx.x, lane = thread % 32;
    float* own = out + thread * 8;
    own[0] = __shfl_sync(ALL_LANES, float(lane), 3);
    own[1] = __shfl_up_sync(ALL_LANES, float(lane), 2);
    own[2] = __shfl_down_sync(ALL_LANES, float(lane), 1, 8);
    own[3] = __shfl_xor_sync(ALL_LANES, float(lane), 5);
    own[4] = float(__popc(__ballot_sync(ALL_LANES, lane % 3 == 0)));
    own[5] = __any_sync(ALL_LANES, lane == 7) && !__all_sync(ALL_LANES, lane == 7) ? 1.0f : 0.0f;
    float given[4] = {1.0f, 2.0f, 3.0f, float(thread)};
    for (int i = 0; i < 4; i++) out[64 * 8 + thread * 4 + i] = given[i];
    __syncthreads();
    copy_16(memory + thread * 4, out + 64 * 8 + thread * 4);
    commit_copies();
    // Not there yet: no number.
    own[6] = memory[thread * 4 + 3] == memory[thread * 4 + 3] ? 1.0f : 0.0f;
    wait_for_copies<0>();
    own[7] = memory[thread * 4 + 3];
}
EMULATED(asks_its_warp)
