// Keys and values into their blocks: kernels/src/ops/kv.rs, in the layout of kernels/src/kv.rs.
#include "lanes.cuh"

namespace {

// Rows of no segment.
constexpr unsigned NOWHERE = 0xffffffffu;

template <class T>
DEVICE T rounded(float value) {
    return from_float<T>(value);
}

// Magnitudes above the largest become it.
template <>
DEVICE half_t rounded<half_t>(float value) {
    value = value > 65504.0f ? 65504.0f : value;
    return from_float<half_t>(value < -65504.0f ? -65504.0f : value);
}

// `layer` begins at the layer's first block; `slots[t]` is block * 16 + slot of row t. One block a (row, head).
template <class T>
DEVICE void write(T* layer, const float* k, const float* v, const unsigned* slots, unsigned blocks, unsigned kv_heads,
                  unsigned dim, unsigned padded) {
    const unsigned slot = slots[blockIdx.x];
    if (slot == NOWHERE) return;
    const Count source = (Count(blockIdx.x) * kv_heads + blockIdx.y) * dim;
    const Count head_block = Count(BLOCK_TOKENS) * (dim + padded);
    T* keys = layer + (Count(blockIdx.y) * blocks + slot / BLOCK_TOKENS) * head_block;
    T* values = keys + Count(dim) * BLOCK_TOKENS + Count(slot % BLOCK_TOKENS) * padded;
    for (unsigned i = threadIdx.x; i < dim; i += blockDim.x) {
        keys[i * BLOCK_TOKENS + slot % BLOCK_TOKENS] = rounded<T>(k[source + i]);
        values[i] = rounded<T>(v[source + i]);
    }
}

}  // namespace

KERNEL void kv_write_f32(float* layer, const float* k, const float* v, const unsigned* slots, unsigned blocks,
                         unsigned kv_heads, unsigned dim, unsigned padded) {
    write(layer, k, v, slots, blocks, kv_heads, dim, padded);
}
EMULATED(kv_write_f32)

KERNEL void kv_write_f16(half_t* layer, const float* k, const float* v, const unsigned* slots, unsigned blocks,
                         unsigned kv_heads, unsigned dim, unsigned padded) {
    write(layer, k, v, slots, blocks, kv_heads, dim, padded);
}
EMULATED(kv_write_f16)

KERNEL void kv_write_bf16(brain_t* layer, const float* k, const float* v, const unsigned* slots, unsigned blocks,
                          unsigned kv_heads, unsigned dim, unsigned padded) {
    write(layer, k, v, slots, blocks, kv_heads, dim, padded);
}
EMULATED(kv_write_bf16)

// Copies block `from` to block `to` in each of gridDim.y runs of `blocks` blocks of `words` 32-bit words.
KERNEL void kv_copy_block(unsigned* storage, Count words, Count blocks, unsigned from, unsigned to) {
    unsigned* run = storage + Count(blockIdx.y) * blocks * words;
    const Count i = own_index();
    if (i < words) run[to * words + i] = run[from * words + i];
}
EMULATED(kv_copy_block)
