// One vector a text: kernels/src/ops/pool.rs.
#include "lanes.cuh"

// Texts are rows starts[text] to starts[text + 1] of x. One block a text and 256 columns; rows are added in order.
KERNEL void pool_mean(float* out, const float* x, const unsigned* starts, unsigned width) {
    const unsigned text = blockIdx.x;
    const unsigned column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= width) return;
    float sum = 0.0f;
    for (unsigned row = starts[text]; row < starts[text + 1]; row++) sum = sum + x[Count(row) * width + column];
    out[Count(text) * width + column] = sum / float(starts[text + 1] - starts[text]);
}
EMULATED(pool_mean)

// One block a row; the sum of squares in double precision, in order, as the processor adds it.
KERNEL void l2_normalize(float* x, unsigned width) {
    SHARED(float, norm, 1);
    float* row = x + Count(blockIdx.x) * width;
    if (threadIdx.x == 0) {
        double sum = 0.0;
        for (unsigned i = 0; i < width; i++) sum = sum + double(row[i]) * double(row[i]);
        const double root = sqrt(sum);
        // As the maximum on the processor, this takes the constant for a root that is not a number.
        norm[0] = float(root > 1e-12 ? root : 1e-12);
    }
    __syncthreads();
    const float length = norm[0];
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x) row[i] = row[i] / length;
}
EMULATED(l2_normalize)
