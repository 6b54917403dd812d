// What the attention kernels are told, and how splits of a row are put together.
#pragma once
#include "common.cuh"

constexpr int SPLIT_BLOCKS = 16;
constexpr int SPLIT_TOKENS = SPLIT_BLOCKS * BLOCK_TOKENS;

// One token that asks, and the positions it sees.
struct Query {
    int row;
    // The first block number of its request in the tables.
    int table;
    int visible_start, visible_end;
    // Where its first split stands among the partial results; none when one block of threads walks all of its splits.
    int partial;
};

// What one block of threads does for one kv head: queries that see the same blocks in these splits.
struct Item {
    int first_query, queries;
    int first_split, splits;
};

struct Attention {
    // [T][heads][dim]
    float* out;
    // [partial results][heads][PARTIAL]: outputs [dim up to 16], sums [16], largest, of each split.
    float* partial;
    const float* q;
    // The layer's blocks: [kv head][block], keys [dim][16], values [16][dim up to 16].
    const void* cache;
    const Query* queries;
    const Item* items;
    const unsigned* tables;
    // [heads], or null.
    const float* sinks;
    int heads, kv_heads, dim, cache_blocks;
    float scale;
};

DEVICE int padded(int dim) { return (dim + LANES - 1) / LANES * LANES; }
DEVICE int partial_values(int dim) { return padded(dim) + LANES + 1; }

DEVICE int first_split(const Query& query) { return query.visible_start / SPLIT_TOKENS; }
// Whether nothing of the query comes before this split in the block of threads that walks from `first` on.
DEVICE bool is_first_split(const Query& query, int split, int first) { return split == max(first, first_split(query)); }
DEVICE int end_split(const Query& query) { return (query.visible_end + SPLIT_TOKENS - 1) / SPLIT_TOKENS; }

// The sum of a half warp's lanes as the processor adds them: 8 + 8, 4 + 4, 2 + 2, 1 + 1.
DEVICE float tree_sum(const float* lanes) {
    float sums[LANES / 2];
#pragma unroll
    for (int lane = 0; lane < LANES / 2; lane++) sums[lane] = lanes[lane] + lanes[lane + LANES / 2];
#pragma unroll
    for (int half = LANES / 4; half > 0; half /= 2) {
#pragma unroll
        for (int lane = 0; lane < half; lane++) sums[lane] = sums[lane] + sums[lane + half];
    }
    return sums[0];
}

// What a row keeps of what came before a split, and takes of the split.
struct Weights {
    float kept, added, largest;
};
DEVICE Weights weigh(float before, float now) {
    const float largest = now > before ? now : before;
    return {exponential(before - largest), exponential(now - largest), largest};
}
