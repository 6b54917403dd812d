// Arithmetic on sixteen lanes, operation for operation that of kernels/src/cpu: the same polynomials and the same order of
// every sum, so that results have the same bits.
#pragma once

#include "common.cuh"

namespace {

using Count = unsigned long long;

// The error function to 2 units in the last place (src/cpu/math.rs).
DEVICE float error_function(float x) {
    const float near_coefficients[6] = {0.12837915f, -0.37612507f, 0.11281955f, -0.026771283f, 0.0049996013f, -0.0006021806f};
    const float far_coefficients[6] = {1.1285166f, 0.63571125f, 0.105270535f, -0.022895146f, 0.0032164585f, -0.00021415476f};
    const float magnitude = fabsf(x);
    const float near = fmaf(x, polynomial(x * x, near_coefficients), x);
    const float clamped = magnitude < 4.0f ? magnitude : 4.0f;
    float far = clamped * polynomial(clamped, far_coefficients);
    far = 1.0f - exponential(0.0f - far);
    // What is no number fails the comparison with 4 above; the sum brings it back.
    far = copysignf(far, x) + x * 0.0f;
    return magnitude < 0.92f ? near : far;
}

// The sum of sixteen lanes as a tree, the same in all of them; every lane of the warp takes part.
DEVICE float lane_tree(float value) {
    value = value + __shfl_xor_sync(ALL_LANES, value, 8);
    value = value + __shfl_xor_sync(ALL_LANES, value, 4);
    value = value + __shfl_xor_sync(ALL_LANES, value, 2);
    return value + __shfl_xor_sync(ALL_LANES, value, 1);
}

// The value of a thread in a grid that has one for each.
DEVICE Count own_index() { return (Count)blockIdx.x * blockDim.x + threadIdx.x; }

}  // namespace
