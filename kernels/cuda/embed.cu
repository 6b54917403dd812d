// Rows of a table of weights as floats: kernels/src/ops/embed.rs. One block a token.
#include "lanes.cuh"

namespace {

template <class T>
DEVICE void copy_row(float* out, const T* table, const unsigned* tokens, unsigned width) {
    const T* row = table + Count(tokens[blockIdx.x]) * width;
    out += Count(blockIdx.x) * width;
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x) out[i] = to_float(row[i]);
}

DEVICE float factor_at(const void* factors, Count index, unsigned half_scales) {
    if (half_scales) return to_float(static_cast<const half_t*>(factors)[index]);
    return static_cast<const float*>(factors)[index];
}

}  // namespace

KERNEL void embed_f32(float* out, const float* table, const unsigned* tokens, unsigned width) {
    copy_row(out, table, tokens, width);
}
EMULATED(embed_f32)

KERNEL void embed_f16(float* out, const half_t* table, const unsigned* tokens, unsigned width) {
    copy_row(out, table, tokens, width);
}
EMULATED(embed_f16)

KERNEL void embed_bf16(float* out, const brain_t* table, const unsigned* tokens, unsigned width) {
    copy_row(out, table, tokens, width);
}
EMULATED(embed_bf16)

// The arrays of kernels/src/cuda/matrix.rs; `minima` may be null.
KERNEL void embed_blocks(float* out, const unsigned char* levels, const void* scales, const void* minima,
                         const unsigned* tokens, unsigned width, unsigned bits, unsigned halves, int zero,
                         unsigned half_scales) {
    const Count first = Count(tokens[blockIdx.x]) * (width / 32);
    out += Count(blockIdx.x) * width;
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x) {
        const Count group = first + i / 32;
        const unsigned place = i % 32;
        const int level = bits == 8 ? levels[group * 32 + place] : levels[group * 16 + place % 16] >> (place / 16 * 4) & 15;
        const Count index = group * halves + (halves == 2 ? place / 16 : 0);
        const float minimum = minima ? factor_at(minima, index, half_scales) : 0.0f;
        out[i] = factor_at(scales, index, half_scales) * float(level - zero) + minimum;
    }
}
EMULATED(embed_blocks)
