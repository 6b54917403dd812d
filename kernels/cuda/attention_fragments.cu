// Softmax attention over a cache of f16 or bf16 on tensor cores.
//
// A warp takes 16 rows (queries by query heads of one kv head) over the same splits as `attention.cu`, whose queries, items,
// partial results and merges it shares; within a split it has an online softmax over blocks of 16 keys. Queries count as two
// numbers of the cache's type, weights as one. A row's bits depend neither on the rows beside it nor on who walks its splits.
//
// The cache's layout, keys [dim][16] and values [16][dim], gives a lane two keys of a dimension, or two dimensions of a key,
// with each load of 4 bytes; tensor cores want two of the dimension that is summed over. So a lane loads four words and puts
// halves of them together: the lower halves become the columns of one tile, the upper ones those of another. Which lane
// holds which dimension or key is for us to choose as long as both factors agree.
#include "attention.cuh"

constexpr int TILE_ROWS = 16;

DEVICE unsigned bits_of(half_t x) { return __half_as_ushort(x); }
DEVICE unsigned bits_of(brain_t x) { return __bfloat16_as_ushort(x); }
template <class T>
DEVICE uint32_t pair(float first, float second) {
    return bits_of(from_float<T>(first)) | bits_of(from_float<T>(second)) << 16;
}
DEVICE uint32_t lower_halves(uint32_t first, uint32_t second) { return (first & 0xffffu) | second << 16; }
DEVICE uint32_t upper_halves(uint32_t first, uint32_t second) { return first >> 16 | (second & 0xffff0000u); }

// Four words as two tiles' columns: (0, 1) and (2, 3) of k.
DEVICE void split_halves(uint32_t (&lower)[2], uint32_t (&upper)[2], uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    lower[0] = lower_halves(a, b);
    lower[1] = lower_halves(c, d);
    upper[0] = upper_halves(a, b);
    upper[1] = upper_halves(c, d);
}

// What a lane knows of its two rows, lane / 4 and lane / 4 + 8.
struct Own {
    int start[2], end[2], first_split[2], end_split[2];
};

template <class T, int DIM>
DEVICE void attend_fragments(const Attention& a) {
    constexpr int STEPS = DIM / 16;
    DYNAMIC_SHARED(float, totals);
    T* high = reinterpret_cast<T*>(totals + TILE_ROWS * DIM);
    T* low = high + TILE_ROWS * DIM;

    const Item item = a.items[blockIdx.x];
    const int kv_head = blockIdx.y, group = a.heads / a.kv_heads, lane = threadIdx.x, row = lane / 4, t = lane % 4;
    const T* head = static_cast<const T*>(a.cache) + size_t(kv_head) * a.cache_blocks * BLOCK_TOKENS * 2 * DIM;
    for (int first = 0; first < item.queries * group; first += TILE_ROWS) {
        const int rows = min(TILE_ROWS, item.queries * group - first);
        const Query* queries = a.queries + item.first_query;
        __syncwarp();
        for (int i = lane; i < TILE_ROWS * DIM; i += WARP) {
            const int at = first + i / DIM;
            float value = 0.0f;
            if (i / DIM < rows) {
                const size_t place = size_t(queries[at / group].row) * a.heads + kv_head * group + at % group;
                value = a.q[place * DIM + i % DIM] * a.scale;
            }
            high[i] = from_float<T>(value);
            low[i] = from_float<T>(value - to_float(high[i]));
        }
        __syncwarp();
        Own own;
        int first_key = 0x7fffffff, end_key = 0;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const bool has_row = row + r * 8 < rows;
            const Query query = queries[(first + (has_row ? row + r * 8 : 0)) / group];
            own.start[r] = has_row ? query.visible_start : 0;
            own.end[r] = has_row ? query.visible_end : 0;
            own.first_split[r] = max(first_split(query), item.first_split);
            own.end_split[r] = has_row ? end_split(query) : 0;
            first_key = min(first_key, query.visible_start);
            end_key = max(end_key, query.visible_end);
        }
#pragma unroll
        for (int by = WARP / 2; by > 0; by /= 2) {
            first_key = min(first_key, __shfl_xor_sync(ALL_LANES, first_key, by));
            end_key = max(end_key, __shfl_xor_sync(ALL_LANES, end_key, by));
        }
        float total_largest[2] = {0.0f, 0.0f}, total_sum[2] = {0.0f, 0.0f};
        for (int split = item.first_split; split < item.first_split + item.splits; split++) {
            float outputs[STEPS][2][4];
#pragma unroll
            for (int i = 0; i < STEPS * 8; i++) outputs[i / 8][i / 4 % 2][i % 4] = 0.0f;
            float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
            for (int block = split * SPLIT_BLOCKS; block < (split + 1) * SPLIT_BLOCKS; block++) {
                const int position = block * BLOCK_TOKENS;
                if (position >= end_key || position + BLOCK_TOKENS <= first_key) continue;
                const T* keys = head + size_t(a.tables[queries[0].table + block]) * BLOCK_TOKENS * 2 * DIM;
                const T* values = keys + BLOCK_TOKENS * DIM;
                // Even and odd keys: column n of tile e is key 2 n + e, so that this lane has keys 4 t + 2 (i % 2) + e.
                float scores[2][4] = {};
#pragma unroll
                for (int step = 0; step < STEPS; step++) {
                    const uint32_t* words = reinterpret_cast<const uint32_t*>(keys + (step * 16 + t * 4) * BLOCK_TOKENS) + row;
                    uint32_t even[2], odd[2];
                    split_halves(even, odd, words[0], words[8], words[16], words[24]);
                    const uint2 top = *reinterpret_cast<const uint2*>(high + row * DIM + step * 16 + t * 4);
                    const uint2 bottom = *reinterpret_cast<const uint2*>(high + (row + 8) * DIM + step * 16 + t * 4);
                    const uint2 low_top = *reinterpret_cast<const uint2*>(low + row * DIM + step * 16 + t * 4);
                    const uint2 low_bottom = *reinterpret_cast<const uint2*>(low + (row + 8) * DIM + step * 16 + t * 4);
                    const uint32_t coarse[4] = {top.x, bottom.x, top.y, bottom.y};
                    const uint32_t rest[4] = {low_top.x, low_bottom.x, low_top.y, low_bottom.y};
                    multiply_add<T>(scores[0], coarse, even);
                    multiply_add<T>(scores[1], coarse, odd);
                    multiply_add<T>(scores[0], rest, even);
                    multiply_add<T>(scores[1], rest, odd);
                }
                float kept[2];
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float now = largest[r];
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        float& score = scores[i % 2][r * 2 + i / 2];
                        const int key = position + t * 4 + i;
                        score = key >= own.start[r] && key < own.end[r] ? score : -INFINITY;
                        now = score > now ? score : now;
                    }
                    for (int by = 2; by > 0; by /= 2) {
                        const float other = __shfl_xor_sync(ALL_LANES, now, by);
                        now = other > now ? other : now;
                    }
                    // A row that has seen nothing yet stays as it is.
                    const bool has_seen = now > -INFINITY;
                    kept[r] = has_seen ? exponential(largest[r] - now) : 1.0f;
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        float& score = scores[i % 2][r * 2 + i / 2];
                        score = has_seen ? exponential(score - now) : 0.0f;
                    }
                    const float added = (scores[0][r * 2] + scores[1][r * 2]) + (scores[0][r * 2 + 1] + scores[1][r * 2 + 1]);
                    sum[r] = fmaf(sum[r], kept[r], added);
                    largest[r] = now;
                }
                const uint32_t weights[4] = {pair<T>(scores[0][0], scores[0][1]), pair<T>(scores[0][2], scores[0][3]),
                                             pair<T>(scores[1][0], scores[1][1]), pair<T>(scores[1][2], scores[1][3])};
#pragma unroll
                for (int step = 0; step < STEPS; step++) {
                    uint32_t words[4];
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        // What nobody sees may be no number, which a weight of zero does not take away.
                        const int key = position + t * 4 + i;
                        const T* from = values + (t * 4 + i) * DIM + step * 16 + row * 2;
                        words[i] = key >= first_key && key < end_key ? *reinterpret_cast<const uint32_t*>(from) : 0;
                    }
                    uint32_t even[2], odd[2];
                    split_halves(even, odd, words[0], words[2], words[1], words[3]);
#pragma unroll
                    for (int i = 0; i < 8; i++) outputs[step][i / 4][i % 4] *= kept[i / 2 % 2];
                    multiply_add<T>(outputs[step][0], weights, even);
                    multiply_add<T>(outputs[step][1], weights, odd);
                }
            }
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const bool is_first = split == own.first_split[r], is_own = split >= own.first_split[r] && split < own.end_split[r];
                if (!is_own) continue;
                Weights with = {0.0f, 1.0f, largest[r]};
                if (!is_first) with = weigh(total_largest[r], largest[r]);
                total_largest[r] = with.largest;
                total_sum[r] = is_first ? sum[r] : fmaf(total_sum[r], with.kept, sum[r] * with.added);
#pragma unroll
                for (int i = 0; i < STEPS * 4; i++) {
                    // Dimensions 16 step + 4 t + 0 … 3 of the row.
                    const float part = outputs[i / 4][i % 2][r * 2 + i / 2 % 2];
                    float& total = totals[(row + r * 8) * DIM + i / 4 * 16 + t * 4 + i % 4];
                    total = is_first ? part : fmaf(total, with.kept, part * with.added);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const bool has_row = row + r * 8 < rows;
            const int at = first + (has_row ? row + r * 8 : 0), query_head = kv_head * group + at % group;
            const Query query = queries[at / group];
            float kept = 1.0f, sum = total_sum[r];
            if (query.partial < 0 && a.sinks != nullptr) {
                const Weights with = weigh(total_largest[r], a.sinks[query_head]);
                kept = with.kept;
                sum = sum * kept;
                if (t == 0) sum = sum + with.added;
            }
            // As `tree_sum` adds four lanes beside twelve empty ones.
            float whole = sum + __shfl_xor_sync(ALL_LANES, sum, 2);
            whole = whole + __shfl_xor_sync(ALL_LANES, whole, 1);
            if (!has_row) continue;
            const float* from = totals + (row + r * 8) * DIM;
            if (query.partial < 0) {
                float* to = a.out + (size_t(query.row) * a.heads + query_head) * DIM;
                for (int i = 0; i < STEPS * 4; i++) {
                    const int d = i / 4 * 16 + t * 4 + i % 4;
                    const float total = a.sinks == nullptr ? from[d] : from[d] * kept;
                    to[d] = total / whole;
                }
            } else {
                const size_t place = size_t(query.partial + item.first_split - first_split(query)) * a.heads + query_head;
                float* to = a.partial + place * partial_values(DIM);
                for (int i = 0; i < STEPS * 4; i++) to[i / 4 * 16 + t * 4 + i % 4] = from[i / 4 * 16 + t * 4 + i % 4];
                for (int i = 0; i < LANES / 4; i++) to[DIM + i * 4 + t] = i == 0 ? sum : 0.0f;
                if (t == 0) to[DIM + LANES] = total_largest[r];
            }
        }
    }
}

#define ATTEND_FRAGMENTS(name, type, dim)                                                                              \
    KERNEL void __launch_bounds__(WARP, 8) name(Attention attention) { attend_fragments<type, dim>(attention); }       \
    EMULATED(name)
ATTEND_FRAGMENTS(attend_64_f16, half_t, 64)
ATTEND_FRAGMENTS(attend_80_f16, half_t, 80)
ATTEND_FRAGMENTS(attend_96_f16, half_t, 96)
ATTEND_FRAGMENTS(attend_128_f16, half_t, 128)
ATTEND_FRAGMENTS(attend_256_f16, half_t, 256)
ATTEND_FRAGMENTS(attend_64_bf16, brain_t, 64)
ATTEND_FRAGMENTS(attend_80_bf16, brain_t, 80)
ATTEND_FRAGMENTS(attend_96_bf16, brain_t, 96)
ATTEND_FRAGMENTS(attend_128_bf16, brain_t, 128)
ATTEND_FRAGMENTS(attend_256_bf16, brain_t, 256)
