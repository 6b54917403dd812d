// What a device does at most: kernels/src/limits.rs.
#include "lanes.cuh"

namespace {

// Sums kept at once, so that one product does not wait for another.
constexpr int CHAINS = 8;

}  // namespace

// `rounds` times CHAINS products of 16 by 8 by 16 bf16 numbers a warp. `inputs` may hold anything; what is written keeps the
// compiler from leaving products out.
KERNEL void __launch_bounds__(256) limit_floats(float* out, const uint32_t* inputs, int rounds) {
    const uint32_t word = inputs[threadIdx.x];
    const uint32_t a[4] = {word, word ^ 1, word ^ 2, word ^ 3}, b[2] = {word ^ 4, word ^ 5};
    float sums[CHAINS][4] = {};
    for (int round = 0; round < rounds; round++) {
#pragma unroll
        for (int chain = 0; chain < CHAINS; chain++) multiply_add<brain_t>(sums[chain], a, b);
    }
    float total = 0.0f;
#pragma unroll
    for (int chain = 0; chain < CHAINS; chain++) total += sums[chain][0] + sums[chain][1] + sums[chain][2] + sums[chain][3];
    out[own_index()] = total;
}
EMULATED(limit_floats)

// The same of 16 by 8 by 32 bytes.
KERNEL void __launch_bounds__(256) limit_integers(float* out, const uint32_t* inputs, int rounds) {
    const uint32_t word = inputs[threadIdx.x];
    const uint32_t a[4] = {word, word ^ 1, word ^ 2, word ^ 3}, b[2] = {word ^ 4, word ^ 5};
    int sums[CHAINS][4] = {};
    for (int round = 0; round < rounds; round++) {
#pragma unroll
        for (int chain = 0; chain < CHAINS; chain++) multiply_add_32(sums[chain], a, b);
    }
    int total = 0;
#pragma unroll
    for (int chain = 0; chain < CHAINS; chain++) total ^= sums[chain][0] ^ sums[chain][1] ^ sums[chain][2] ^ sums[chain][3];
    out[own_index()] = float(total);
}
EMULATED(limit_integers)

// Reads `count` times 16 bytes, each once.
KERNEL void __launch_bounds__(256) limit_read(float* out, const float4* values, Count count) {
    const Count step = Count(gridDim.x) * blockDim.x;
    float total = 0.0f;
#pragma unroll 4
    for (Count i = own_index(); i < count; i += step) {
        const float4 four = __ldcs(values + i);
        total += (four.x + four.y) + (four.z + four.w);
    }
    out[own_index()] = total;
}
EMULATED(limit_read)
