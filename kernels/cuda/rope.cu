// Rotation of head vectors by the angles of their positions: kernels/src/ops/rope.rs. One block a token.
#include "lanes.cuh"

// `table` [positions][pairs cosines, pairs sines]; `interleaved` 0: pairs are (i, i + pairs), else (2i, 2i + 1).
KERNEL void rope(float* x, const unsigned* positions, const float* table, unsigned heads, unsigned head_dim, unsigned pairs,
                 unsigned interleaved) {
    const float* angles = table + Count(positions[blockIdx.x]) * 2 * pairs;
    float* row = x + Count(blockIdx.x) * heads * head_dim;
    for (unsigned i = threadIdx.x; i < heads * pairs; i += blockDim.x) {
        const unsigned pair = i % pairs;
        float* first = row + i / pairs * head_dim + (interleaved ? 2 * pair : pair);
        float* second = first + (interleaved ? 1 : pairs);
        const float a = *first;
        const float b = *second;
        const float cosine = angles[pair];
        const float sine = angles[pairs + pair];
        *first = fmaf(-b, sine, a * cosine);
        *second = fmaf(a, sine, b * cosine);
    }
}
EMULATED(rope)
