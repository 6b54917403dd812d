// Element-wise functions of feed-forward layers: kernels/src/ops/activation.rs. One thread a value.
#include "lanes.cuh"

namespace {

DEVICE float silu(float x) { return x * sigmoid(x); }

DEVICE float gelu_of(float x) {
    const float halved = x * 0.5f;
    return fmaf(halved, error_function(x * 0.70710678f), halved);
}

DEVICE float gelu_tanh_of(float x) {
    const float cubic = fmaf(x * x, 0.044715f, 1.0f);
    return x * sigmoid((x * 1.595769f) * cubic);
}

}  // namespace

KERNEL void swiglu(float* out, const float* gate, const float* up, Count count) {
    const Count i = own_index();
    if (i < count) out[i] = silu(gate[i]) * up[i];
}
EMULATED(swiglu)

KERNEL void swiglu_clamped(float* out, const float* gate, const float* up, Count count, float alpha, float limit) {
    const Count i = own_index();
    if (i >= count) return;
    float g = gate[i];
    float u = up[i];
    g = limit < g ? limit : g;
    u = limit < u ? limit : u;
    u = u < -limit ? -limit : u;
    out[i] = (u + 1.0f) * (g * sigmoid(g * alpha));
}
EMULATED(swiglu_clamped)

KERNEL void sigmoid_gate(float* x, const float* gate, Count count) {
    const Count i = own_index();
    if (i < count) x[i] = x[i] * sigmoid(gate[i]);
}
EMULATED(sigmoid_gate)

KERNEL void geglu(float* out, const float* gate, const float* up, Count count) {
    const Count i = own_index();
    if (i < count) out[i] = gelu_tanh_of(gate[i]) * up[i];
}
EMULATED(geglu)

KERNEL void gelu(float* x, Count count) {
    const Count i = own_index();
    if (i < count) x[i] = gelu_of(x[i]);
}
EMULATED(gelu)

KERNEL void gelu_tanh(float* x, Count count) {
    const Count i = own_index();
    if (i < count) x[i] = gelu_tanh_of(x[i]);
}
EMULATED(gelu_tanh)
