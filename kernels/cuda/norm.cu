// Norms of rows: kernels/src/ops/norm.rs.
//
// One block a row. All threads bring the row into shared memory; one warp adds up sixteen lanes, each a chain over every
// sixteenth value, and the lanes as a tree, which is the order of the processor; all threads write the result. A row that
// does not fit into shared memory (`staged` 0) is read again where it stands.
#include "lanes.cuh"

namespace {

// The sum of `row`, by one warp.
DEVICE float row_sum(const float* row, unsigned width) {
    const unsigned lane = threadIdx.x % LANES;
    float sum = 0.0f;
    for (unsigned start = 0; start < width; start += LANES) {
        const unsigned i = start + lane;
        sum = sum + (i < width ? row[i] : 0.0f);
    }
    return lane_tree(sum);
}

// The sum of the squares of `row` - `mean`, by one warp.
DEVICE float row_squares(const float* row, unsigned width, float mean) {
    const unsigned lane = threadIdx.x % LANES;
    float sum = 0.0f;
    for (unsigned start = 0; start < width; start += LANES) {
        const unsigned i = start + lane;
        const float x = (i < width ? row[i] : mean) - mean;
        sum = fmaf(x, x, sum);
    }
    return lane_tree(sum);
}

// `residual` may be null; where it is not, `x` is added to it first and the norm is that of the sum. `out` may be `x` or
// `residual`. `bias` is null for norms without one, `staging` for rows that are not staged.
template <bool CENTRED>
DEVICE void norm_row(float* staging, float* residual, float* out, const float* x, const float* weight, const float* bias,
                     unsigned width, float eps) {
    SHARED(float, found, 2);
    const Count first = Count(blockIdx.x) * width;
    x += first;
    out += first;
    if (residual) residual += first;
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x) {
        float value = x[i];
        if (residual) {
            value = residual[i] + value;
            residual[i] = value;
        }
        if (staging) staging[i] = value;
    }
    const float* row = staging ? staging : residual ? residual : x;
    __syncthreads();
    if (threadIdx.x < 32) {
        const float mean = CENTRED ? row_sum(row, width) / float(width) : 0.0f;
        const float squares = row_squares(row, width, mean);
        if (threadIdx.x == 0) {
            found[0] = mean;
            found[1] = 1.0f / sqrtf(squares / float(width) + eps);
        }
    }
    __syncthreads();
    const float mean = found[0];
    const float scale = found[1];
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x) {
        const float value = ((row[i] - mean) * scale) * weight[i];
        out[i] = bias ? value + bias[i] : value;
    }
}

// The dynamic shared memory of a launch that stages rows.
DEVICE float* staging_area(unsigned staged) {
    if (!staged) return nullptr;
    DYNAMIC_SHARED(float, area);
    return area;
}

}  // namespace

KERNEL void rms_norm(float* out, const float* x, const float* weight, unsigned width, float eps, unsigned staged) {
    norm_row<false>(staging_area(staged), nullptr, out, x, weight, nullptr, width, eps);
}
EMULATED(rms_norm)

KERNEL void rms_norm_residual(float* residual, float* out, const float* x, const float* weight, unsigned width, float eps,
                              unsigned staged) {
    norm_row<false>(staging_area(staged), residual, out, x, weight, nullptr, width, eps);
}
EMULATED(rms_norm_residual)

KERNEL void layer_norm(float* out, const float* x, const float* weight, const float* bias, unsigned width, float eps,
                       unsigned staged) {
    norm_row<true>(staging_area(staged), nullptr, out, x, weight, bias, width, eps);
}
EMULATED(layer_norm)

KERNEL void layer_norm_residual(float* residual, const float* x, const float* weight, const float* bias, unsigned width,
                                float eps, unsigned staged) {
    norm_row<true>(staging_area(staged), residual, residual, x, weight, bias, width, eps);
}
EMULATED(layer_norm_residual)
