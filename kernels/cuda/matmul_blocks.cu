// Linear layers with quantised weights: exact 8-bit products in a group of 32, groups added in order, the bits of
// src/cpu/matmul/blocks.rs.
//
// Weights stand as src/cuda/matrix.rs says: levels [n][group][16 or 32 bytes], of 4 bits the low nibbles columns 0 to 15 of
// the group and the high ones 16 to 31; factors [n][group][half].
#include "products.cuh"

constexpr int GROUP = 32;

// Activations as quantize_rows leaves them.
struct Activations {
    // [tokens][k]; `lows` of 16-bit rows only.
    const signed char *levels, *lows;
    // [tokens][groups]
    const float* scales;
    // [tokens][groups][2]: what the integers of each half add up to.
    const int* sums;
};

// How the weights of a launch are stored.
struct Form {
    int groups;
    // The level that stands for zero; none when there are minima.
    int zero;
    // Bytes of a factor: 2 (f16) or 4.
    int factor_bytes;
};

DEVICE float factor_at(const void* factors, size_t at, int bytes) {
    return bytes == 2 ? to_float(static_cast<const half_t*>(factors)[at]) : static_cast<const float*>(factors)[at];
}

// A warp a group of 32 values of a row; the groups of all rows behind one another. 256 threads.
KERNEL void __launch_bounds__(256)
    quantize_rows(signed char* levels, signed char* lows, float* scales, int* sums, const float* x, int groups) {
    const int group = blockIdx.x * (256 / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (group >= groups) return;
    const float value = x[size_t(group) * GROUP + lane];
    // As bits: infinity above all numbers, NaN above infinity.
    unsigned bits = __float_as_uint(value) & 0x7fffffffu;
#pragma unroll
    for (int by = WARP / 2; by > 0; by /= 2) bits = max(bits, __shfl_xor_sync(ALL_LANES, bits, by));
    const float largest = __uint_as_float(bits);
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    const float scaled = value * inverse;
    float scale = largest / 127.0f;
    const int level = __float2int_rn(scaled);
    levels[size_t(group) * GROUP + lane] = static_cast<signed char>(level);
    int sum = level;
    if (lows != nullptr) {
        scale /= 256.0f;
        // Half a step is 128 of these, which an 8-bit integer does not hold.
        const float rest = (scaled - rintf(scaled)) * 256.0f;
        const int low = __float2int_rn(rest < 127.0f ? rest : 127.0f);
        lows[size_t(group) * GROUP + lane] = static_cast<signed char>(low);
        sum = sum * 256 + low;
    }
#pragma unroll
    for (int by = LANES / 2; by > 0; by /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, by);
    if (lane == 0) scales[group] = scale;
    if (lane % LANES == 0) sums[size_t(group) * 2 + lane / LANES] = sum;
}
EMULATED(quantize_rows)

// The weights of a group in two rows as a lane of the tensor cores holds them: of each row four columns from 4 (lane % 4) on,
// and the four that stand 16 behind.
template <int BITS>
DEVICE void read_levels(uint32_t (&a)[4], const uint32_t* top, const uint32_t* bottom, int four) {
    if (BITS == 4) {
        const uint32_t above = top[four], below = bottom[four];
        a[0] = above & 0x0f0f0f0fu;
        a[1] = below & 0x0f0f0f0fu;
        a[2] = above >> 4 & 0x0f0f0f0fu;
        a[3] = below >> 4 & 0x0f0f0f0fu;
    } else {
        a[0] = top[four];
        a[1] = bottom[four];
        a[2] = top[four + 4];
        a[3] = bottom[four + 4];
    }
}

// The integer products of a group by halves, activations as [token lane / 4][32 bytes].
template <int HALVES>
DEVICE void multiply_group(int (&dots)[HALVES][4], const uint32_t (&a)[4], uint32_t first, uint32_t second) {
    if (HALVES == 1) {
        const uint32_t b[2] = {first, second};
        multiply_add_32(dots[0], a, b);
    } else {
        const uint32_t low[2] = {a[0], a[1]}, high[2] = {a[2], a[3]};
        multiply_add_16(dots[0], low, first);
        multiply_add_16(dots[HALVES - 1], high, second);
    }
}

// Adds a group's products to an output.
template <int HALVES>
DEVICE float add_group(float sum, const int (&dots)[HALVES], const Product& product, const Form& form, const Activations& x,
                       int row, int group, int token) {
    const float x_scale = x.scales[size_t(token) * form.groups + group];
    const int2 sums = *reinterpret_cast<const int2*>(x.sums + (size_t(token) * form.groups + group) * 2);
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        const size_t at = (size_t(row) * form.groups + group) * HALVES + half;
        const int integers = HALVES == 1 ? sums.x + sums.y : (half == 0 ? sums.x : sums.y);
        const float scale = factor_at(product.scales, at, form.factor_bytes);
        if (product.minima == nullptr) {
            sum = fmaf(scale * x_scale, float(dots[half] - form.zero * integers), sum);
        } else {
            const float minimum = factor_at(product.minima, at, form.factor_bytes);
            sum = fmaf(scale * x_scale, float(dots[half]), sum);
            sum = fmaf(minimum, x_scale * float(integers), sum);
        }
    }
    return sum;
}

DEVICE void write_sum(const Product& product, int token, int row, float sum) {
    product.out[size_t(token) * product.rows + row] = product.bias == nullptr ? sum : sum + product.bias[row];
}

// ---- Few tokens: 8 warps take the groups of 16 rows in turn; their integers meet in shared memory, where each output
// adds them in order.

constexpr int FEW_WARPS = 8;
constexpr int FEW_TOKENS = 8;
constexpr int SLAB = 32;

template <int BITS, int HALVES, bool FINE>
DEVICE void multiply_few(const Product& product, const Part& part, const Activations& x, const Form& form) {
    constexpr int ELEMENTS = FEW_TOKENS * TILE_ROWS;
    SHARED(int, integers, SLAB * HALVES * ELEMENTS);
    const int first_row = part.row, first_token = part.token, tokens = part.end;
    const int thread = threadIdx.x, warp = thread / WARP, lane = thread % WARP;
    // Rows behind the last are computed as the last and not written.
    const uint32_t* levels = static_cast<const uint32_t*>(product.weights);
    const uint32_t* top = levels + size_t(min(first_row + lane / 4, product.rows - 1)) * form.groups * BITS;
    const uint32_t* bottom = levels + size_t(min(first_row + lane / 4 + 8, product.rows - 1)) * form.groups * BITS;
    const int token = first_token + lane / 4;
    const size_t x_row = size_t(token) * form.groups * GROUP + lane % 4 * 4;
    // What this thread adds up: the first half of the block has an output each.
    const int own_row = first_row + thread % TILE_ROWS, own_token = first_token + thread / TILE_ROWS;
    const bool has_output = thread < ELEMENTS && own_token < tokens && own_row < product.rows;
    float sum = 0.0f;
    for (int first = 0; first < form.groups; first += SLAB) {
        const int count = min(SLAB, form.groups - first);
        // Four groups in a row to a warp: whole sectors of memory.
        for (int group = warp * SLAB / FEW_WARPS; group < min(count, (warp + 1) * SLAB / FEW_WARPS); group++) {
            uint32_t a[4];
            read_levels<BITS>(a, top + (first + group) * BITS, bottom + (first + group) * BITS, lane % 4);
            const size_t at = x_row + size_t(first + group) * GROUP;
            uint32_t high[2] = {0, 0}, low[2] = {0, 0};
            if (token < tokens) {
                high[0] = *reinterpret_cast<const uint32_t*>(x.levels + at);
                high[1] = *reinterpret_cast<const uint32_t*>(x.levels + at + 16);
                if (FINE) {
                    low[0] = *reinterpret_cast<const uint32_t*>(x.lows + at);
                    low[1] = *reinterpret_cast<const uint32_t*>(x.lows + at + 16);
                }
            }
            int dots[HALVES][4] = {};
            multiply_group<HALVES>(dots, a, high[0], high[1]);
            if (FINE) {
#pragma unroll
                for (int i = 0; i < HALVES * 4; i++) dots[i / 4][i % 4] *= 256;
                multiply_group<HALVES>(dots, a, low[0], low[1]);
            }
#pragma unroll
            for (int i = 0; i < HALVES * 4; i++) {
                const int place = (lane % 4 * 2 + i % 2) * TILE_ROWS + lane / 4 + i / 2 % 2 * 8;
                integers[(group * HALVES + i / 4) * ELEMENTS + place] = dots[i / 4][i % 4];
            }
        }
        __syncthreads();
        if (has_output) {
#pragma unroll 4
            for (int group = 0; group < count; group++) {
                int dots[HALVES];
#pragma unroll
                for (int half = 0; half < HALVES; half++) dots[half] = integers[(group * HALVES + half) * ELEMENTS + thread];
                sum = add_group<HALVES>(sum, dots, product, form, x, own_row, first + group, own_token);
            }
        }
        __syncthreads();
    }
    if (has_output) write_sum(product, own_token, own_row, sum);
}

// ---- Many tokens: 128 rows by 64 tokens a block, 8 warps of 32 by 32; levels go through shared memory, four groups a
// stage.

// As many as leave two blocks, or one, the shared memory they need.
template <int BITS, bool FINE>
constexpr int STAGES_OF = BITS == 8 && FINE ? 2 : 3;
constexpr int STAGE_GROUPS = 4;
constexpr int MANY_ROWS = 128;
constexpr int MANY_TOKENS = 64;
// Bytes of a row in a stage, filled up so that the lanes of a warp read from different banks.
template <int BITS>
constexpr int ROW_BYTES = STAGE_GROUPS * BITS * 4 + 16;

template <int BITS, int HALVES, bool FINE>
DEVICE void multiply_many(const Product& product, const Part& part, const Activations& x, const Form& form) {
    constexpr int STAGES = STAGES_OF<BITS, FINE>;
    constexpr int W_ROW = ROW_BYTES<BITS>, X_ROW = ROW_BYTES<8>, X_BYTES = MANY_TOKENS * X_ROW;
    constexpr int STAGE = MANY_ROWS * W_ROW + X_BYTES * (FINE ? 2 : 1);
    DYNAMIC_SHARED(unsigned char, memory);
    const int first_row = part.row, first_token = part.token, tokens = part.end;
    const int thread = threadIdx.x, warp = thread / WARP, lane = thread % WARP;
    const unsigned char* levels = static_cast<const unsigned char*>(product.weights);
    const int stages = (form.groups + STAGE_GROUPS - 1) / STAGE_GROUPS;
    const int own_row = warp / 2 * 2 * TILE_ROWS, own_token = warp % 2 * 32;

    const auto fetch = [&](int stage) {
        unsigned char* to = memory + stage % STAGES * STAGE;
        const int groups = min(STAGE_GROUPS, form.groups - stage * STAGE_GROUPS);
        for (int i = thread; i < MANY_ROWS * BITS; i += 256) {
            const int place = i / BITS, at = i % BITS * 16;
            if (at >= groups * BITS * 4) continue;
            // Rows behind the last are computed as the last and not written.
            const int row = min(first_row + place, product.rows - 1);
            copy_16(to + place * W_ROW + at, levels + (size_t(row) * form.groups + stage * STAGE_GROUPS) * BITS * 4 + at);
        }
        unsigned char* x_to = to + MANY_ROWS * W_ROW;
        for (int i = thread; i < MANY_TOKENS * 8; i += 256) {
            const int place = i / 8, at = i % 8 * 16;
            if (at >= groups * GROUP) continue;
            const int token = min(first_token + place, tokens - 1);
            const size_t from = (size_t(token) * form.groups + stage * STAGE_GROUPS) * GROUP + at;
            copy_16(x_to + place * X_ROW + at, x.levels + from);
            if (FINE) copy_16(x_to + X_BYTES + place * X_ROW + at, x.lows + from);
        }
    };

    float sums[2][4][4];
#pragma unroll
    for (int i = 0; i < 32; i++) sums[i / 16][i / 4 % 4][i % 4] = 0.0f;
    for (int stage = 0; stage < STAGES - 1; stage++) {
        if (stage < stages) fetch(stage);
        commit_copies();
    }
    for (int stage = 0; stage < stages; stage++) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        if (stage + STAGES - 1 < stages) fetch(stage + STAGES - 1);
        commit_copies();
        const unsigned char* from = memory + stage % STAGES * STAGE;
        const unsigned char* x_from = from + MANY_ROWS * W_ROW;
        const int groups = min(STAGE_GROUPS, form.groups - stage * STAGE_GROUPS);
        for (int group = 0; group < groups; group++) {
            uint32_t a[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const unsigned char* top = from + (own_row + i * TILE_ROWS + lane / 4) * W_ROW + group * BITS * 4;
                read_levels<BITS>(a[i], reinterpret_cast<const uint32_t*>(top),
                                  reinterpret_cast<const uint32_t*>(top + 8 * W_ROW), lane % 4);
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const unsigned char* at =
                    x_from + (own_token + j * 8 + lane / 4) * X_ROW + group * GROUP + lane % 4 * 4;
                const uint32_t first = *reinterpret_cast<const uint32_t*>(at);
                const uint32_t second = *reinterpret_cast<const uint32_t*>(at + 16);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    int dots[HALVES][4] = {};
                    multiply_group<HALVES>(dots, a[i], first, second);
                    if (FINE) {
#pragma unroll
                        for (int part = 0; part < HALVES * 4; part++) dots[part / 4][part % 4] *= 256;
                        multiply_group<HALVES>(dots, a[i], *reinterpret_cast<const uint32_t*>(at + X_BYTES),
                                               *reinterpret_cast<const uint32_t*>(at + X_BYTES + 16));
                    }
#pragma unroll
                    for (int part = 0; part < 4; part++) {
                        const int row = min(first_row + own_row + i * TILE_ROWS + lane / 4 + part / 2 * 8, product.rows - 1);
                        const int token = min(first_token + own_token + j * 8 + lane % 4 * 2 + part % 2, tokens - 1);
                        int both[HALVES];
#pragma unroll
                        for (int half = 0; half < HALVES; half++) both[half] = dots[half][part];
                        sums[i][j][part] = add_group<HALVES>(sums[i][j][part], both, product, form, x, row,
                                                             stage * STAGE_GROUPS + group, token);
                    }
                }
            }
        }
    }
    wait_for_copies<0>();
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const int part = i % 4, token = first_token + own_token + i / 4 % 4 * 8 + lane % 4 * 2 + part % 2;
        const int row = first_row + own_row + i / 16 * TILE_ROWS + lane / 4 + part / 2 * 8;
        if (token < tokens && row < product.rows) write_sum(product, token, row, sums[i / 16][i / 4 % 4][part]);
    }
}

#define MULTIPLY_BLOCKS(name, function, rows, tokens_each, bits, halves, fine)                                         \
    KERNEL void __launch_bounds__(256) name(Products products, Activations x, Form form, int tokens) {                 \
        const Product& product = product_of(products, blockIdx.x);                                                     \
        function<bits, halves, fine>(product, part_of(product, rows, tokens_each, tokens), x, form);                   \
    }                                                                                                                  \
    EMULATED(name)
#define MULTIPLY_8(name, bits, halves, fine) \
    MULTIPLY_BLOCKS(name, multiply_few, TILE_ROWS, FEW_TOKENS, bits, halves, fine)
MULTIPLY_8(multiply_8_q4, 4, 1, false)
MULTIPLY_8(multiply_8_q8, 8, 1, false)
MULTIPLY_8(multiply_8_q8h, 8, 2, false)
MULTIPLY_8(multiply_8_fine_q4, 4, 1, true)
MULTIPLY_8(multiply_8_fine_q8, 8, 1, true)
MULTIPLY_8(multiply_8_fine_q8h, 8, 2, true)
#define MULTIPLY_64(name, bits, halves, fine) \
    MULTIPLY_BLOCKS(name, multiply_many, MANY_ROWS, MANY_TOKENS, bits, halves, fine)
MULTIPLY_64(multiply_64_q4, 4, 1, false)
MULTIPLY_64(multiply_64_q8, 8, 1, false)
MULTIPLY_64(multiply_64_q8h, 8, 2, false)
MULTIPLY_64(multiply_64_fine_q4, 4, 1, true)
MULTIPLY_64(multiply_64_fine_q8, 8, 1, true)
MULTIPLY_64(multiply_64_fine_q8h, 8, 2, true)

#define MULTIPLY_EXPERTS(name, function, rows, bits, halves)                                                           \
    KERNEL void __launch_bounds__(256) name(ExpertProducts products, Activations x, Form form) {                       \
        const Tile tile = products.tiles[blockIdx.y];                                                                  \
        if (tile.first == tile.end) return;                                                                            \
        const Product product = product_of_expert(products, tile.expert);                                              \
        function<bits, halves, false>(product, part_of_tile(product, rows, tile), x, form);                            \
    }                                                                                                                  \
    EMULATED(name)
MULTIPLY_EXPERTS(experts_8_q4, multiply_few, TILE_ROWS, 4, 1)
MULTIPLY_EXPERTS(experts_8_q8, multiply_few, TILE_ROWS, 8, 1)
MULTIPLY_EXPERTS(experts_8_q8h, multiply_few, TILE_ROWS, 8, 2)
MULTIPLY_EXPERTS(experts_64_q4, multiply_many, MANY_ROWS, 4, 1)
MULTIPLY_EXPERTS(experts_64_q8, multiply_many, MANY_ROWS, 8, 1)
MULTIPLY_EXPERTS(experts_64_q8h, multiply_many, MANY_ROWS, 8, 2)
