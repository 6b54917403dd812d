// Linear layers with quantised weights: exact 8-bit products in a group of 32, groups added in order, the bits of
// src/cpu/matmul/blocks.rs.
//
// Weights stand as the processor packs them: a tile is 16 rows by the groups of 32 columns, one group
//   8 bits: [quad 0..8][16 rows][4]     4 bits: [quad 0..4][16 rows][4], low nibble quad q, high quad q + 4
// with factors [group][half][16 rows]; so four rows of a quad are what a lane of the tensor cores holds.
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

// The weights of a group as lane (row lane / 4, quad lane % 4) of the tensor cores holds them: rows r and r + 8 of quads q
// and q + 4.
template <int BITS>
DEVICE void read_levels(uint32_t (&a)[4], const uint32_t* group, int lane) {
    const int at = lane % 4 * TILE_ROWS + lane / 4;
    if (BITS == 4) {
        const uint32_t top = group[at], bottom = group[at + 8];
        a[0] = top & 0x0f0f0f0fu;
        a[1] = bottom & 0x0f0f0f0fu;
        a[2] = top >> 4 & 0x0f0f0f0fu;
        a[3] = bottom >> 4 & 0x0f0f0f0fu;
    } else {
        a[0] = group[at];
        a[1] = group[at + 8];
        a[2] = group[at + 4 * TILE_ROWS];
        a[3] = group[at + 4 * TILE_ROWS + 8];
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
                       int tile, int row, int group, int token) {
    const float x_scale = x.scales[size_t(token) * form.groups + group];
    const int2 sums = *reinterpret_cast<const int2*>(x.sums + (size_t(token) * form.groups + group) * 2);
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        const size_t at = ((size_t(tile) * form.groups + group) * HALVES + half) * TILE_ROWS + row;
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
DEVICE void multiply_few(const Products& products, const Activations& x, const Form& form, int tokens) {
    constexpr int ELEMENTS = FEW_TOKENS * TILE_ROWS;
    SHARED(int, integers, SLAB * HALVES * ELEMENTS);
    const Product& product = product_of(products, blockIdx.x);
    const int tile = blockIdx.x - product.first_block, first_token = blockIdx.y * FEW_TOKENS;
    const int thread = threadIdx.x, warp = thread / WARP, lane = thread % WARP;
    const uint32_t* levels = static_cast<const uint32_t*>(product.weights) + size_t(tile) * form.groups * BITS * TILE_ROWS;
    const int token = first_token + lane / 4;
    const size_t x_row = size_t(token) * form.groups * GROUP + lane % 4 * 4;
    // What this thread adds up: the first half of the block has an output each.
    const int own_row = thread % TILE_ROWS, own_token = first_token + thread / TILE_ROWS;
    const bool has_output = thread < ELEMENTS && own_token < tokens && tile * TILE_ROWS + own_row < product.rows;
    float sum = 0.0f;
    for (int first = 0; first < form.groups; first += SLAB) {
        const int count = min(SLAB, form.groups - first);
        for (int group = warp; group < count; group += FEW_WARPS) {
            uint32_t a[4];
            read_levels<BITS>(a, levels + size_t(first + group) * BITS * TILE_ROWS, lane);
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
                sum = add_group<HALVES>(sum, dots, product, form, x, tile, own_row, first + group, own_token);
            }
        }
        __syncthreads();
    }
    if (has_output) write_sum(product, own_token, tile * TILE_ROWS + own_row, sum);
}

// ---- Many tokens: 128 rows by 64 tokens a block, 8 warps of 32 by 32; levels go through shared memory, four groups a
// stage.

// As many as leave two blocks, or one, the shared memory they need.
constexpr int stages_of(int bits, bool is_fine) { return bits == 8 && is_fine ? 2 : 3; }
constexpr int STAGE_GROUPS = 4;
constexpr int MANY_TILES = 8;
constexpr int MANY_TOKENS = 64;
// Bytes of a token in a stage, filled up so that the lanes of a warp read from different banks.
constexpr int TOKEN_BYTES = STAGE_GROUPS * GROUP + 16;

template <int BITS, int HALVES, bool FINE>
DEVICE void multiply_many(const Products& products, const Activations& x, const Form& form, int tokens) {
    constexpr int STAGES = stages_of(BITS, FINE), GROUP_BYTES = BITS * 64, TILE_BYTES = STAGE_GROUPS * GROUP_BYTES;
    constexpr int X_BYTES = MANY_TOKENS * TOKEN_BYTES;
    constexpr int STAGE = MANY_TILES * TILE_BYTES + X_BYTES * (FINE ? 2 : 1);
    DYNAMIC_SHARED(unsigned char, memory);
    const Product& product = product_of(products, blockIdx.x);
    const int first_tile = (blockIdx.x - product.first_block) * MANY_TILES, first_token = blockIdx.y * MANY_TOKENS;
    const int last_tile = (product.rows + TILE_ROWS - 1) / TILE_ROWS - 1;
    const int thread = threadIdx.x, warp = thread / WARP, lane = thread % WARP;
    const unsigned char* levels = static_cast<const unsigned char*>(product.weights);
    const int stages = (form.groups + STAGE_GROUPS - 1) / STAGE_GROUPS;
    const int own_tile = warp / 2 * 2, own_token = warp % 2 * 32;

    const auto fetch = [&](int stage) {
        unsigned char* to = memory + stage % STAGES * STAGE;
        const int groups = min(STAGE_GROUPS, form.groups - stage * STAGE_GROUPS);
        for (int i = thread; i < MANY_TILES * TILE_BYTES / 16; i += 256) {
            const int place = i * 16 / TILE_BYTES, at = i * 16 % TILE_BYTES;
            if (at >= groups * GROUP_BYTES) continue;
            const int tile = min(first_tile + place, last_tile);
            copy_16(to + i * 16, levels + (size_t(tile) * form.groups + stage * STAGE_GROUPS) * GROUP_BYTES + at);
        }
        unsigned char* x_to = to + MANY_TILES * TILE_BYTES;
        for (int i = thread; i < MANY_TOKENS * STAGE_GROUPS * 2; i += 256) {
            const int place = i / (STAGE_GROUPS * 2), at = i % (STAGE_GROUPS * 2) * 16;
            if (at >= groups * GROUP) continue;
            const int token = min(first_token + place, tokens - 1);
            const size_t from = (size_t(token) * form.groups + stage * STAGE_GROUPS) * GROUP + at;
            copy_16(x_to + place * TOKEN_BYTES + at, x.levels + from);
            if (FINE) copy_16(x_to + X_BYTES + place * TOKEN_BYTES + at, x.lows + from);
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
        const unsigned char* x_from = from + MANY_TILES * TILE_BYTES;
        const int groups = min(STAGE_GROUPS, form.groups - stage * STAGE_GROUPS);
        for (int group = 0; group < groups; group++) {
            uint32_t a[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const unsigned char* tile = from + (own_tile + i) * TILE_BYTES + group * GROUP_BYTES;
                read_levels<BITS>(a[i], reinterpret_cast<const uint32_t*>(tile), lane);
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const unsigned char* at =
                    x_from + (own_token + j * 8 + lane / 4) * TOKEN_BYTES + group * GROUP + lane % 4 * 4;
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
                    const int tile = min(first_tile + own_tile + i, last_tile);
#pragma unroll
                    for (int part = 0; part < 4; part++) {
                        const int token = min(first_token + own_token + j * 8 + lane % 4 * 2 + part % 2, tokens - 1);
                        int both[HALVES];
#pragma unroll
                        for (int half = 0; half < HALVES; half++) both[half] = dots[half][part];
                        sums[i][j][part] = add_group<HALVES>(sums[i][j][part], both, product, form, x, tile,
                                                             lane / 4 + part / 2 * 8, stage * STAGE_GROUPS + group, token);
                    }
                }
            }
        }
    }
    wait_for_copies<0>();
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const int part = i % 4, token = first_token + own_token + i / 4 % 4 * 8 + lane % 4 * 2 + part % 2;
        const int row = (first_tile + own_tile + i / 16) * TILE_ROWS + lane / 4 + part / 2 * 8;
        if (token < tokens && row < product.rows) write_sum(product, token, row, sums[i / 16][i / 4 % 4][part]);
    }
}

#define MULTIPLY_BLOCKS(name, function, bits, halves, fine)                                                            \
    KERNEL void __launch_bounds__(256) name(Products products, Activations x, Form form, int tokens) {                 \
        function<bits, halves, fine>(products, x, form, tokens);                                                       \
    }                                                                                                                  \
    EMULATED(name)
MULTIPLY_BLOCKS(multiply_8_q4, multiply_few, 4, 1, false)
MULTIPLY_BLOCKS(multiply_8_q8, multiply_few, 8, 1, false)
MULTIPLY_BLOCKS(multiply_8_q8h, multiply_few, 8, 2, false)
MULTIPLY_BLOCKS(multiply_8_fine_q4, multiply_few, 4, 1, true)
MULTIPLY_BLOCKS(multiply_8_fine_q8, multiply_few, 8, 1, true)
MULTIPLY_BLOCKS(multiply_8_fine_q8h, multiply_few, 8, 2, true)
MULTIPLY_BLOCKS(multiply_64_q4, multiply_many, 4, 1, false)
MULTIPLY_BLOCKS(multiply_64_q8, multiply_many, 8, 1, false)
MULTIPLY_BLOCKS(multiply_64_q8h, multiply_many, 8, 2, false)
MULTIPLY_BLOCKS(multiply_64_fine_q4, multiply_many, 4, 1, true)
MULTIPLY_BLOCKS(multiply_64_fine_q8, multiply_many, 8, 1, true)
MULTIPLY_BLOCKS(multiply_64_fine_q8h, multiply_many, 8, 2, true)
