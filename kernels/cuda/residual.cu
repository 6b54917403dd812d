// Sums, factors and copies of whole activations: kernels/src/ops/residual.rs. One thread a value.
#include "lanes.cuh"

KERNEL void residual_add(float* x, const float* y, Count count) {
    const Count i = own_index();
    if (i < count) x[i] = x[i] + y[i];
}
EMULATED(residual_add)

KERNEL void residual_scale(float* x, float factor, Count count) {
    const Count i = own_index();
    if (i < count) x[i] = x[i] * factor;
}
EMULATED(residual_scale)

KERNEL void residual_copy(float* out, const float* x, Count count) {
    const Count i = own_index();
    if (i < count) out[i] = x[i];
}
EMULATED(residual_copy)
