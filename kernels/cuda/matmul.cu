// Linear layers: out[t][n] = Σ_k x[t][k] · w[n][k] (+ bias[n]).
//
// The rows of W are the rows of the tensor cores' tiles and tokens their columns, for one token as for thousands. What an
// element is does not depend on the kernel that computes it, nor on the other tokens:
//   f32          one chain of fused multiply-adds over k, the processor's bits;
//   f16, bf16    activations rounded to the weights' type (or to two numbers of it); products of 16 of k at a time in order,
//                in slices of 256 of k that are added in order; in a piece of 32 of k, the first product takes values
//                8 t … 8 t + 3 and the second 8 t + 4 … 8 t + 7 (t = 0 … 3), so that a lane reads 16 bytes in a row;
//   quantised    exact integers in a group of 32, groups added in order with fused multiply-adds: the processor's bits.
#include "products.cuh"

// ---- f32, and rows that begin off the borders of 16 bytes: one chain an output.

constexpr int PLAIN_ROWS = 64;
constexpr int PLAIN_TOKENS = 16;
constexpr int PLAIN_DEPTH = 32;

// 256 threads; a block computes 64 rows of W by 16 tokens.
template <class T>
DEVICE void multiply_plain(const Product& product, const Part& part, const float* x, int columns) {
    SHARED(float, weights, PLAIN_DEPTH * (PLAIN_ROWS + 1));
    SHARED(float, inputs, PLAIN_TOKENS * PLAIN_DEPTH);
    const T* w = static_cast<const T*>(product.weights);
    const int first_row = part.row, first_token = part.token, tokens = part.end;
    const int thread = threadIdx.x, row = thread % PLAIN_ROWS, own = thread / PLAIN_ROWS * 4;
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int k = 0; k < columns; k += PLAIN_DEPTH) {
        for (int i = thread; i < PLAIN_ROWS * PLAIN_DEPTH; i += 256) {
            const int place = i / PLAIN_DEPTH, depth = i % PLAIN_DEPTH;
            const bool is_inside = first_row + place < product.rows && k + depth < columns;
            weights[depth * (PLAIN_ROWS + 1) + place] =
                is_inside ? to_float(w[size_t(first_row + place) * columns + k + depth]) : 0.0f;
        }
        for (int i = thread; i < PLAIN_TOKENS * PLAIN_DEPTH; i += 256) {
            const int token = first_token + i / PLAIN_DEPTH, depth = i % PLAIN_DEPTH;
            inputs[i] = token < tokens && k + depth < columns ? x[size_t(token) * columns + k + depth] : 0.0f;
        }
        __syncthreads();
        const int depths = min(PLAIN_DEPTH, columns - k);
        for (int depth = 0; depth < depths; depth++) {
            const float weight = weights[depth * (PLAIN_ROWS + 1) + row];
#pragma unroll
            for (int i = 0; i < 4; i++) sums[i] = fmaf(inputs[(own + i) * PLAIN_DEPTH + depth], weight, sums[i]);
        }
        __syncthreads();
    }
    if (first_row + row >= product.rows) return;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int token = first_token + own + i;
        if (token >= tokens) continue;
        const float sum = product.bias == nullptr ? sums[i] : sums[i] + product.bias[first_row + row];
        product.out[size_t(token) * product.rows + first_row + row] = sum;
    }
}

#define MULTIPLY_PLAIN(name, type)                                                                                     \
    KERNEL void __launch_bounds__(256) name(Products products, const float* x, int tokens, int columns) {              \
        const Product& product = product_of(products, blockIdx.x);                                                     \
        multiply_plain<type>(product, part_of(product, PLAIN_ROWS, PLAIN_TOKENS, tokens), x, columns);                 \
    }                                                                                                                  \
    EMULATED(name)
MULTIPLY_PLAIN(multiply_plain_f32, float)
MULTIPLY_PLAIN(multiply_plain_f16, half_t)
MULTIPLY_PLAIN(multiply_plain_bf16, brain_t)

#define MULTIPLY_PLAIN_EXPERTS(name, type)                                                                             \
    KERNEL void __launch_bounds__(256) name(ExpertProducts products, const float* x, int columns) {                    \
        const Tile tile = products.tiles[blockIdx.y];                                                                  \
        if (tile.first == tile.end) return;                                                                            \
        const Product product = product_of_expert(products, tile.expert);                                              \
        Part part = part_of_tile(product, PLAIN_ROWS, tile);                                                           \
        for (; part.token < part.end; part.token += PLAIN_TOKENS) multiply_plain<type>(product, part, x, columns);     \
    }                                                                                                                  \
    EMULATED(name)
MULTIPLY_PLAIN_EXPERTS(experts_plain_f32, float)
MULTIPLY_PLAIN_EXPERTS(experts_plain_f16, half_t)
MULTIPLY_PLAIN_EXPERTS(experts_plain_bf16, brain_t)

// ---- Plain weights, f16 and bf16: activations first.

// The largest of a block's values, for all its threads; 256 threads.
DEVICE unsigned largest_of_block(unsigned value) {
    SHARED(unsigned, parts, 256 / WARP);
#pragma unroll
    for (int by = WARP / 2; by > 0; by /= 2) value = max(value, __shfl_xor_sync(ALL_LANES, value, by));
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = value;
    __syncthreads();
    value = parts[0];
#pragma unroll
    for (int part = 1; part < 256 / WARP; part++) value = max(value, parts[part]);
    return value;
}

// Rows of W with their true columns, a multiple of 8; rows of activations filled up with zeros to `stride`, a multiple of 32.
struct Extents {
    int tokens, columns, stride;
};

// A block a token: high[t][k] = x[t][k] / unit[t] rounded, low[t][k] (unless null) what that left, rounded; zeros up to
// `stride`. Units are powers of two that keep f16 from overflowing, 1 for bf16.
template <class T, bool HAS_UNITS>
DEVICE void round_rows(T* high, T* low, float* units, const float* x, int columns, int stride) {
    const int token = blockIdx.x;
    const float* row = x + size_t(token) * columns;
    float factor = 1.0f;
    if (HAS_UNITS) {
        unsigned bits = 0;
        for (int k = threadIdx.x; k < columns; k += 256) bits = max(bits, __float_as_uint(row[k]) & 0x7fffffffu);
        bits = largest_of_block(bits);
        // The largest magnitude comes to lie in 2¹⁴ … 2¹⁵; one that is no number keeps its unit and shows in the result.
        const int exponent = int(bits >> 23) - 127 - 14;
        const int used = bits >= 0x7f800000u ? 0 : max(exponent, -100);
        factor = __uint_as_float(unsigned(127 - used) << 23);
        if (threadIdx.x == 0) units[token] = __uint_as_float(unsigned(127 + used) << 23);
    }
    for (int k = threadIdx.x; k < stride; k += 256) {
        const float value = k < columns ? row[k] * factor : 0.0f;
        const T rounded = from_float<T>(value);
        high[size_t(token) * stride + k] = rounded;
        if (low != nullptr) low[size_t(token) * stride + k] = from_float<T>(value - to_float(rounded));
    }
}

KERNEL void __launch_bounds__(256)
    round_rows_f16(half_t* high, half_t* low, float* units, const float* x, int columns, int stride) {
    round_rows<half_t, true>(high, low, units, x, columns, stride);
}
EMULATED(round_rows_f16)

KERNEL void __launch_bounds__(256)
    round_rows_bf16(brain_t* high, brain_t* low, float* units, const float* x, int columns, int stride) {
    round_rows<brain_t, false>(high, low, units, x, columns, stride);
}
EMULATED(round_rows_bf16)

constexpr int PIECE = 32;
constexpr int SLICE = 256;

// One piece of 32 of k of a tile: `top` and `bottom` 16 bytes of rows lane / 4 and lane / 4 + 8, `high` and `low` of token
// lane / 4.
template <class T, bool FINE>
DEVICE void multiply_piece(float (&sums)[4], uint4 top, uint4 bottom, uint4 high, uint4 low) {
    const uint32_t first[4] = {top.x, bottom.x, top.y, bottom.y}, second[4] = {top.z, bottom.z, top.w, bottom.w};
    const uint32_t high_first[2] = {high.x, high.y}, high_second[2] = {high.z, high.w};
    multiply_add<T>(sums, first, high_first);
    if (FINE) {
        const uint32_t low_first[2] = {low.x, low.y};
        multiply_add<T>(sums, first, low_first);
    }
    multiply_add<T>(sums, second, high_second);
    if (FINE) {
        const uint32_t low_second[2] = {low.z, low.w};
        multiply_add<T>(sums, second, low_second);
    }
}

// ---- Few tokens: weights are streamed once, by 8 warps that take the slices of 16 rows in turn.

constexpr int FEW_WARPS = 8;

// TILES · 8 tokens a block.
template <class T, int TILES, bool FINE>
DEVICE void multiply_few(const Product& product, const Part& part, const T* high, const T* low, const float* units,
                         Extents extents) {
    constexpr int ELEMENTS = TILES * 8 * TILE_ROWS;
    constexpr int OWN = (ELEMENTS + FEW_WARPS * WARP - 1) / (FEW_WARPS * WARP);
    SHARED(float, parts, FEW_WARPS * ELEMENTS);
    const int first_row = part.row, first_token = part.token, tokens = part.end;
    const int thread = threadIdx.x, warp = thread / WARP, lane = thread % WARP, row = lane / 4, eight = lane % 4 * 8;
    const int columns = extents.columns, stride = extents.stride;
    // Rows behind the last are computed as the last and not written.
    const T* w = static_cast<const T*>(product.weights);
    const T* top = w + size_t(min(first_row + row, product.rows - 1)) * columns;
    const T* bottom = w + size_t(min(first_row + row + 8, product.rows - 1)) * columns;
    const int slices = (stride + SLICE - 1) / SLICE;
    float totals[OWN];
#pragma unroll
    for (int i = 0; i < OWN; i++) totals[i] = 0.0f;
    for (int first_slice = 0; first_slice < slices; first_slice += FEW_WARPS) {
        const int slice = first_slice + warp;
        if (slice < slices) {
            float sums[TILES][4];
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
#pragma unroll
                for (int i = 0; i < 4; i++) sums[tile][i] = 0.0f;
            }
            const int begin = slice * SLICE, pieces = min(SLICE, stride - begin) / PIECE;
            // All of the slice's weights are asked for before the first is used.
            uint4 tops[SLICE / PIECE], bottoms[SLICE / PIECE];
#pragma unroll
            for (int piece = 0; piece < SLICE / PIECE; piece++) {
                if (piece >= pieces) break;
                const int k = begin + piece * PIECE + eight;
                tops[piece] = bottoms[piece] = make_uint4(0, 0, 0, 0);
                if (k >= columns) continue;
                tops[piece] = __ldcs(reinterpret_cast<const uint4*>(top + k));
                bottoms[piece] = __ldcs(reinterpret_cast<const uint4*>(bottom + k));
            }
#pragma unroll
            for (int piece = 0; piece < SLICE / PIECE; piece++) {
                if (piece >= pieces) break;
#pragma unroll
                for (int tile = 0; tile < TILES; tile++) {
                    const int token = first_token + tile * 8 + row;
                    const size_t at = size_t(token) * stride + begin + piece * PIECE + eight;
                    uint4 coarse = make_uint4(0, 0, 0, 0), rest = coarse;
                    if (token < tokens) coarse = __ldg(reinterpret_cast<const uint4*>(high + at));
                    if (FINE && token < tokens) rest = __ldg(reinterpret_cast<const uint4*>(low + at));
                    multiply_piece<T, FINE>(sums[tile], tops[piece], bottoms[piece], coarse, rest);
                }
            }
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int place = (tile * 8 + lane % 4 * 2 + i % 2) * TILE_ROWS + row + i / 2 * 8;
                    parts[warp * ELEMENTS + place] = sums[tile][i];
                }
            }
        }
        __syncthreads();
        const int count = min(FEW_WARPS, slices - first_slice);
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const int place = thread + i * FEW_WARPS * WARP;
            if (place >= ELEMENTS) break;
            for (int part = 0; part < count; part++) totals[i] += parts[part * ELEMENTS + place];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const int place = thread + i * FEW_WARPS * WARP;
        const int token = first_token + place / TILE_ROWS, at = first_row + place % TILE_ROWS;
        if (place >= ELEMENTS || token >= tokens || at >= product.rows) break;
        const float total = units == nullptr ? totals[i] : totals[i] * units[token];
        product.out[size_t(token) * product.rows + at] = product.bias == nullptr ? total : total + product.bias[at];
    }
}

#define MULTIPLY_FEW(name, type, tiles, fine)                                                                          \
    KERNEL void __launch_bounds__(256)                                                                                 \
        name(Products products, const type* high, const type* low, const float* units, Extents extents) {              \
        const Product& product = product_of(products, blockIdx.x);                                                     \
        const Part part = part_of(product, TILE_ROWS, (tiles) * 8, extents.tokens);                                    \
        multiply_few<type, tiles, fine>(product, part, high, low, units, extents);                                     \
    }                                                                                                                  \
    EMULATED(name)
MULTIPLY_FEW(multiply_8_f16, half_t, 1, false)
MULTIPLY_FEW(multiply_16_f16, half_t, 2, false)
MULTIPLY_FEW(multiply_32_f16, half_t, 4, false)
MULTIPLY_FEW(multiply_8_fine_f16, half_t, 1, true)
MULTIPLY_FEW(multiply_16_fine_f16, half_t, 2, true)
MULTIPLY_FEW(multiply_32_fine_f16, half_t, 4, true)
MULTIPLY_FEW(multiply_8_bf16, brain_t, 1, false)
MULTIPLY_FEW(multiply_16_bf16, brain_t, 2, false)
MULTIPLY_FEW(multiply_32_bf16, brain_t, 4, false)
MULTIPLY_FEW(multiply_8_fine_bf16, brain_t, 1, true)
MULTIPLY_FEW(multiply_16_fine_bf16, brain_t, 2, true)
MULTIPLY_FEW(multiply_32_fine_bf16, brain_t, 4, true)

#define MULTIPLY_FEW_EXPERTS(name, type)                                                                               \
    KERNEL void __launch_bounds__(256)                                                                                 \
        name(ExpertProducts products, const type* x, const float* units, Extents extents) {                            \
        const Tile tile = products.tiles[blockIdx.y];                                                                  \
        if (tile.first == tile.end) return;                                                                            \
        const Product product = product_of_expert(products, tile.expert);                                              \
        multiply_few<type, 1, false>(product, part_of_tile(product, TILE_ROWS, tile), x, x, units, extents);           \
    }                                                                                                                  \
    EMULATED(name)
MULTIPLY_FEW_EXPERTS(experts_8_f16, half_t)
MULTIPLY_FEW_EXPERTS(experts_8_bf16, brain_t)

// ---- Many tokens: tiles of both go through shared memory, three pieces ahead.

constexpr int STAGES = 3;

// The warps share the block's tile out among them, DOWN tiles of 16 rows by ACROSS of 8 tokens each.
template <class T, int ROWS, int TOKENS, int WARPS_DOWN, int WARPS_ACROSS, bool FINE>
DEVICE void multiply_many(const Product& product, const Part& part, const T* high, const T* low, const float* units,
                          Extents extents) {
    constexpr int THREADS = WARPS_DOWN * WARPS_ACROSS * WARP;
    constexpr int DOWN = ROWS / WARPS_DOWN / TILE_ROWS, ACROSS = TOKENS / WARPS_ACROSS / 8;
    constexpr int STAGE = (ROWS + TOKENS * (FINE ? 2 : 1)) * PIECE;
    DYNAMIC_SHARED(T, memory);
    const T* w = static_cast<const T*>(product.weights);
    const int first_row = part.row, first_token = part.token, tokens = part.end;
    const int columns = extents.columns, stride = extents.stride;
    const int thread = threadIdx.x, warp = thread / WARP, lane = thread % WARP, row = lane / 4, eight = lane % 4 * 8;
    const int down = warp / WARPS_ACROSS * DOWN * TILE_ROWS, across = warp % WARPS_ACROSS * ACROSS * 8;
    const int pieces = stride / PIECE;

    const auto fetch = [&](int piece) {
        T* stage = memory + piece % STAGES * STAGE;
        for (int i = thread; i < ROWS * 4; i += THREADS) {
            // Rows behind the last are computed as the last and not written.
            const int at = min(first_row + i / 4, product.rows - 1), k = piece * PIECE + i % 4 * 8;
            if (k < columns) {
                copy_16(stage + i * 8, w + size_t(at) * columns + k);
            } else {
                *reinterpret_cast<uint4*>(stage + i * 8) = make_uint4(0, 0, 0, 0);
            }
        }
        for (int i = thread; i < TOKENS * 4; i += THREADS) {
            const int token = min(first_token + i / 4, tokens - 1);
            const size_t from = size_t(token) * stride + piece * PIECE + i % 4 * 8;
            copy_16(stage + ROWS * PIECE + i * 8, high + from);
            if (FINE) copy_16(stage + (ROWS + TOKENS) * PIECE + i * 8, low + from);
        }
    };

    float sums[DOWN][ACROSS][4], totals[DOWN][ACROSS][4];
#pragma unroll
    for (int i = 0; i < DOWN * ACROSS * 4; i++) {
        sums[i / 4 / ACROSS][i / 4 % ACROSS][i % 4] = 0.0f;
        totals[i / 4 / ACROSS][i / 4 % ACROSS][i % 4] = 0.0f;
    }
    for (int piece = 0; piece < STAGES - 1; piece++) {
        if (piece < pieces) fetch(piece);
        commit_copies();
    }
    for (int piece = 0; piece < pieces; piece++) {
        wait_for_copies<STAGES - 2>();
        // The piece has come for all threads, and all have used the one whose place the next takes.
        __syncthreads();
        if (piece + STAGES - 1 < pieces) fetch(piece + STAGES - 1);
        commit_copies();
        const T* stage = memory + piece % STAGES * STAGE;
        uint4 tops[DOWN], bottoms[DOWN];
#pragma unroll
        for (int i = 0; i < DOWN; i++) {
            const T* from = stage + (down + i * TILE_ROWS + row) * PIECE + eight;
            tops[i] = *reinterpret_cast<const uint4*>(from);
            bottoms[i] = *reinterpret_cast<const uint4*>(from + 8 * PIECE);
        }
#pragma unroll
        for (int j = 0; j < ACROSS; j++) {
            const T* from = stage + (ROWS + across + j * 8 + row) * PIECE + eight;
            const uint4 coarse = *reinterpret_cast<const uint4*>(from);
            uint4 rest = coarse;
            if (FINE) rest = *reinterpret_cast<const uint4*>(from + TOKENS * PIECE);
#pragma unroll
            for (int i = 0; i < DOWN; i++) multiply_piece<T, FINE>(sums[i][j], tops[i], bottoms[i], coarse, rest);
        }
        if ((piece + 1) % (SLICE / PIECE) == 0 || piece + 1 == pieces) {
#pragma unroll
            for (int i = 0; i < DOWN * ACROSS * 4; i++) {
                totals[i / 4 / ACROSS][i / 4 % ACROSS][i % 4] += sums[i / 4 / ACROSS][i / 4 % ACROSS][i % 4];
                sums[i / 4 / ACROSS][i / 4 % ACROSS][i % 4] = 0.0f;
            }
        }
    }
    wait_for_copies<0>();
#pragma unroll
    for (int j = 0; j < ACROSS; j++) {
#pragma unroll
        for (int i = 0; i < DOWN * 4; i++) {
            const int token = first_token + across + j * 8 + lane % 4 * 2 + i % 2;
            const int at = first_row + down + i / 4 * TILE_ROWS + row + i / 2 % 2 * 8;
            if (token >= tokens || at >= product.rows) continue;
            float total = totals[i / 4][j][i % 4];
            total = units == nullptr ? total : total * units[token];
            product.out[size_t(token) * product.rows + at] = product.bias == nullptr ? total : total + product.bias[at];
        }
    }
}

// 64 by 64 with 4 warps, 128 by 128 with 8.
#define MULTIPLY_MANY(name, type, rows, tokens_each, down, across, fine)                                               \
    KERNEL void __launch_bounds__((down) * (across) * 32)                                                              \
        name(Products products, const type* high, const type* low, const float* units, Extents extents) {              \
        const Product& product = product_of(products, blockIdx.x);                                                     \
        const Part part = part_of(product, rows, tokens_each, extents.tokens);                                         \
        multiply_many<type, rows, tokens_each, down, across, fine>(product, part, high, low, units, extents);          \
    }                                                                                                                  \
    EMULATED(name)
MULTIPLY_MANY(multiply_64_f16, half_t, 64, 64, 2, 2, false)
MULTIPLY_MANY(multiply_128_f16, half_t, 128, 128, 2, 4, false)
MULTIPLY_MANY(multiply_64_fine_f16, half_t, 64, 64, 2, 2, true)
MULTIPLY_MANY(multiply_128_fine_f16, half_t, 128, 128, 2, 4, true)
MULTIPLY_MANY(multiply_64_bf16, brain_t, 64, 64, 2, 2, false)
MULTIPLY_MANY(multiply_128_bf16, brain_t, 128, 128, 2, 4, false)
MULTIPLY_MANY(multiply_64_fine_bf16, brain_t, 64, 64, 2, 2, true)
MULTIPLY_MANY(multiply_128_fine_bf16, brain_t, 128, 128, 2, 4, true)

#define MULTIPLY_MANY_EXPERTS(name, type)                                                                              \
    KERNEL void __launch_bounds__(128)                                                                                 \
        name(ExpertProducts products, const type* x, const float* units, Extents extents) {                            \
        const Tile tile = products.tiles[blockIdx.y];                                                                  \
        if (tile.first == tile.end) return;                                                                            \
        const Product product = product_of_expert(products, tile.expert);                                              \
        multiply_many<type, 64, 64, 2, 2, false>(product, part_of_tile(product, 64, tile), x, x, units, extents);      \
    }                                                                                                                  \
    EMULATED(name)
MULTIPLY_MANY_EXPERTS(experts_64_f16, half_t)
MULTIPLY_MANY_EXPERTS(experts_64_bf16, brain_t)
