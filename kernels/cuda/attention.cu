// Softmax attention over the paged cache, with the arithmetic of src/cpu/attention bit for bit: splits of 256 positions
// counted from position 0, each with an online softmax over blocks of 16 keys, merged in order of position.
//
// A block of threads takes up to 8 rows (queries by query heads of one kv head) at a time that read the same blocks of the
// cache, computes their scores key by thread, the softmax row by half a warp and the outputs dimension by thread. A row's
// arithmetic is the same whichever rows stand beside it and whether one block of threads walks its splits or each has its
// own and `merge_splits` adds them.
#include "attention.cuh"

constexpr int THREADS = 128;
// Rows at a time: one for each half of a warp.
constexpr int ROWS = THREADS / LANES;
constexpr int MOST_COLUMNS = 2;

// The shared memory of a block of threads.
struct Work {
    // [ROWS][dim], scaled.
    float* q;
    // [ROWS][SPLIT_TOKENS]: scores, then weights.
    float* scores;
    // [ROWS][SPLIT_BLOCKS]: what a block keeps of the output before it.
    float* kept;
    // [ROWS]
    Query* queries;
    // [ROWS][16] and [ROWS]: of the split, and of all splits so far.
    float *sums, *largest, *total_sums, *total_largest;
};

template <class T>
DEVICE void score_keys(const Attention& a, const Work& work, const T* head, int rows, int split, int first_key,
                       int end_key) {
    const Query* queries = work.queries;
    for (int key = threadIdx.x; key < SPLIT_TOKENS; key += THREADS) {
        const int position = split * SPLIT_TOKENS + key, block = position / BLOCK_TOKENS;
        if (block < first_key / BLOCK_TOKENS || position / BLOCK_TOKENS * BLOCK_TOKENS >= end_key) continue;
        const unsigned number = a.tables[queries[0].table + block];
        const T* keys = head + size_t(number) * BLOCK_TOKENS * (a.dim + padded(a.dim)) + key % BLOCK_TOKENS;
        float chains[ROWS][4];
#pragma unroll
        for (int i = 0; i < ROWS * 4; i++) chains[i / 4][i % 4] = 0.0f;
        const int whole = a.dim / 4 * 4;
        for (int d = 0; d < whole; d += 4) {
            float values[4];
#pragma unroll
            for (int chain = 0; chain < 4; chain++) values[chain] = to_float(keys[(d + chain) * BLOCK_TOKENS]);
#pragma unroll
            for (int row = 0; row < ROWS; row++) {
                const float4 q = *reinterpret_cast<const float4*>(work.q + row * (whole + 4) + d);
                chains[row][0] = fmaf(q.x, values[0], chains[row][0]);
                chains[row][1] = fmaf(q.y, values[1], chains[row][1]);
                chains[row][2] = fmaf(q.z, values[2], chains[row][2]);
                chains[row][3] = fmaf(q.w, values[3], chains[row][3]);
            }
        }
#pragma unroll
        for (int chain = 0; chain < 3; chain++) {
            if (whole + chain >= a.dim) break;
            const float value = to_float(keys[(whole + chain) * BLOCK_TOKENS]);
#pragma unroll
            for (int row = 0; row < ROWS; row++) {
                chains[row][chain] = fmaf(work.q[row * (whole + 4) + whole + chain], value, chains[row][chain]);
            }
        }
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            if (row >= rows) break;
            const float sum = (chains[row][0] + chains[row][1]) + (chains[row][2] + chains[row][3]);
            const bool is_seen = position >= queries[row].visible_start && position < queries[row].visible_end;
            work.scores[row * SPLIT_TOKENS + key] = is_seen ? sum : -INFINITY;
        }
    }
}

// Scores into weights, block by block; half a warp a row, a lane a slot.
DEVICE void weigh_scores(const Work& work, int rows, int split) {
    const int slot = threadIdx.x % LANES, row = threadIdx.x / LANES;
    // Half warps without a row take part in the shuffles only.
    const int start = row < rows ? work.queries[row].visible_start : 0, end = row < rows ? work.queries[row].visible_end : 0;
    float largest = -INFINITY, sum = 0.0f;
    for (int block = 0; block < SPLIT_BLOCKS; block++) {
        const int first = split * SPLIT_TOKENS + block * BLOCK_TOKENS;
        const bool is_seen = first < end && first + BLOCK_TOKENS > start;
        float* place = work.scores + row * SPLIT_TOKENS + block * BLOCK_TOKENS + slot;
        const float score = is_seen ? *place : -INFINITY;
        float now = score;
#pragma unroll
        for (int by = LANES / 2; by > 0; by /= 2) {
            const float other = __shfl_xor_sync(ALL_LANES, now, by);
            now = now > other ? now : other;
        }
        float kept = 1.0f;
        if (is_seen) {
            if (largest < now) {
                kept = exponential(largest - now);
                largest = now;
            }
            const float weight = exponential(score - largest);
            *place = weight;
            sum = fmaf(sum, kept, weight);
        }
        if (slot == 0 && row < rows) work.kept[row * SPLIT_BLOCKS + block] = kept;
    }
    if (row >= rows) return;
    work.sums[row * LANES + slot] = sum;
    if (slot == 0) work.largest[row] = largest;
}

// output = output · kept + Σ weight · value, blocks and their slots in order.
template <class T>
DEVICE void add_values(float (&outputs)[ROWS], const Attention& a, const Work& work, const T* head, int rows, int split,
                       int first_key, int end_key, int column) {
    const Query* queries = work.queries;
#pragma unroll
    for (int row = 0; row < ROWS; row++) outputs[row] = 0.0f;
    const int width = padded(a.dim);
    // Positions that all rows see.
    int all_start = queries[0].visible_start, all_end = queries[0].visible_end;
    for (int row = 1; row < rows; row++) {
        all_start = max(all_start, queries[row].visible_start);
        all_end = min(all_end, queries[row].visible_end);
    }
    for (int block = 0; block < SPLIT_BLOCKS; block++) {
        const int first = split * SPLIT_TOKENS + block * BLOCK_TOKENS, end = first + BLOCK_TOKENS;
        if (first >= end_key || end <= first_key) continue;
        const unsigned number = a.tables[queries[0].table + first / BLOCK_TOKENS];
        const T* values = head + size_t(number) * BLOCK_TOKENS * (a.dim + width) + BLOCK_TOKENS * a.dim + column;
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            if (row < rows) outputs[row] = outputs[row] * work.kept[row * SPLIT_BLOCKS + block];
        }
        const bool is_whole = first >= all_start && end <= all_end;
#pragma unroll 4
        for (int slot = 0; slot < BLOCK_TOKENS; slot++) {
            const int position = first + slot;
            if (position >= end_key || position < first_key) continue;
            const float value = to_float(values[slot * width]);
#pragma unroll
            for (int row = 0; row < ROWS; row++) {
                if (row >= rows) break;
                const bool is_seen =
                    is_whole || (position >= queries[row].visible_start && position < queries[row].visible_end);
                const float weight = work.scores[row * SPLIT_TOKENS + block * BLOCK_TOKENS + slot];
                if (is_seen) outputs[row] = fmaf(weight, value, outputs[row]);
            }
        }
    }
}

// Adds the sink of a head to a row's sums; what the outputs keep.
DEVICE float merge_sink(float* sums, float& largest, float sink) {
    const Weights weights = weigh(largest, sink);
    for (int lane = 0; lane < LANES; lane++) sums[lane] = sums[lane] * weights.kept;
    sums[0] = sums[0] + weights.added;
    largest = weights.largest;
    return weights.kept;
}

template <class T>
DEVICE void attend(const Attention& a) {
    DYNAMIC_SHARED(float, memory);
    const int q_width = a.dim / 4 * 4 + 4;
    Work work;
    work.scores = memory;
    work.q = work.scores + ROWS * SPLIT_TOKENS;
    work.kept = work.q + ROWS * q_width;
    work.sums = work.kept + ROWS * SPLIT_BLOCKS;
    work.total_sums = work.sums + ROWS * LANES;
    work.largest = work.total_sums + ROWS * LANES;
    work.total_largest = work.largest + ROWS;
    // [ROWS][2]: what a row keeps and adds when a split is merged, then [ROWS] its whole sum.
    float* factors = work.total_largest + ROWS;
    work.queries = reinterpret_cast<Query*>(factors + ROWS * 2);
    const Query* queries = work.queries;

    const Item item = a.items[blockIdx.x];
    const int kv_head = blockIdx.y, group = a.heads / a.kv_heads, width = padded(a.dim), thread = threadIdx.x;
    const T* head = static_cast<const T*>(a.cache) +
                    size_t(kv_head) * a.cache_blocks * BLOCK_TOKENS * (a.dim + width);
    for (int first = 0; first < item.queries * group; first += ROWS) {
        const int rows = min(ROWS, item.queries * group - first);
        if (thread < rows) work.queries[thread] = a.queries[item.first_query + (first + thread) / group];
        __syncthreads();
        int first_key = 0x7fffffff, end_key = 0;
        for (int row = 0; row < rows; row++) {
            first_key = min(first_key, queries[row].visible_start);
            end_key = max(end_key, queries[row].visible_end);
        }
        for (int i = thread; i < ROWS * q_width; i += THREADS) {
            const int row = i / q_width, d = i % q_width;
            float value = 0.0f;
            if (row < rows && d < a.dim) {
                const size_t at = size_t(queries[row].row) * a.heads + kv_head * group + (first + row) % group;
                value = a.q[at * a.dim + d] * a.scale;
            }
            work.q[i] = value;
        }
        float totals[MOST_COLUMNS][ROWS];
#pragma unroll
        for (int i = 0; i < MOST_COLUMNS * ROWS; i++) totals[i / ROWS][i % ROWS] = 0.0f;
        for (int split = item.first_split; split < item.first_split + item.splits; split++) {
            __syncthreads();
            score_keys(a, work, head, rows, split, first_key, end_key);
            __syncthreads();
            const int own = thread / LANES;
            weigh_scores(work, rows, split);
            __syncthreads();
            if (thread < rows) {
                const Query& query = queries[thread];
                const bool is_own = split >= first_split(query) && split < end_split(query);
                float kept = 1.0f, added = 0.0f;
                if (is_own && is_first_split(query, split, item.first_split)) {
                    kept = 0.0f;
                    added = 1.0f;
                } else if (is_own) {
                    const Weights weights = weigh(work.total_largest[thread], work.largest[thread]);
                    kept = weights.kept;
                    added = weights.added;
                    work.total_largest[thread] = weights.largest;
                }
                factors[thread * 2] = kept;
                factors[thread * 2 + 1] = added;
            }
            __syncthreads();
            {
                const Query& query = queries[min(own, rows - 1)];
                const bool is_own = own < rows && split >= first_split(query) && split < end_split(query);
                const int place = own * LANES + thread % LANES;
                if (is_own && is_first_split(query, split, item.first_split)) {
                    work.total_sums[place] = work.sums[place];
                    if (thread % LANES == 0) work.total_largest[own] = work.largest[own];
                } else if (is_own) {
                    const float part = work.sums[place] * factors[own * 2 + 1];
                    work.total_sums[place] = fmaf(work.total_sums[place], factors[own * 2], part);
                }
            }
#pragma unroll
            for (int i = 0; i < MOST_COLUMNS; i++) {
                const int column = thread + i * THREADS;
                if (column >= width) break;
                float outputs[ROWS];
                add_values(outputs, a, work, head, rows, split, first_key, end_key, column);
#pragma unroll
                for (int row = 0; row < ROWS; row++) {
                    if (row >= rows || split < first_split(queries[row]) || split >= end_split(queries[row])) continue;
                    const float part = outputs[row] * factors[row * 2 + 1];
                    const bool is_first = is_first_split(queries[row], split, item.first_split);
                    totals[i][row] = is_first ? outputs[row] : fmaf(totals[i][row], factors[row * 2], part);
                }
            }
        }
        __syncthreads();
        if (thread < rows) {
            float kept = 1.0f;
            if (queries[thread].partial < 0) {
                float largest = work.total_largest[thread];
                if (a.sinks != nullptr) {
                    const float sink = a.sinks[kv_head * group + (first + thread) % group];
                    kept = merge_sink(work.total_sums + thread * LANES, largest, sink);
                }
                factors[thread * 2 + 1] = tree_sum(work.total_sums + thread * LANES);
            }
            factors[thread * 2] = kept;
        }
        __syncthreads();
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            if (row >= rows) break;
            const Query& query = queries[row];
            const int query_head = kv_head * group + (first + row) % group;
            if (query.partial >= 0) {
                const size_t place = size_t(query.partial + item.first_split - first_split(query)) * a.heads + query_head;
                float* to = a.partial + place * partial_values(a.dim);
                for (int i = 0; i < MOST_COLUMNS && thread + i * THREADS < width; i++) to[thread + i * THREADS] = totals[i][row];
                if (thread < LANES) to[width + thread] = work.total_sums[row * LANES + thread];
                if (thread == 0) to[width + LANES] = work.total_largest[row];
            } else {
                float* to = a.out + (size_t(query.row) * a.heads + query_head) * a.dim;
                for (int i = 0; i < MOST_COLUMNS && thread + i * THREADS < a.dim; i++) {
                    const float total = a.sinks == nullptr ? totals[i][row] : totals[i][row] * factors[row * 2];
                    to[thread + i * THREADS] = total / factors[row * 2 + 1];
                }
            }
        }
        __syncthreads();
    }
}

KERNEL void __launch_bounds__(THREADS) attend_f32(Attention attention) { attend<float>(attention); }
EMULATED(attend_f32)
KERNEL void __launch_bounds__(THREADS) attend_f16(Attention attention) { attend<half_t>(attention); }
EMULATED(attend_f16)
KERNEL void __launch_bounds__(THREADS) attend_bf16(Attention attention) { attend<brain_t>(attention); }
EMULATED(attend_bf16)

// A block a (query, head): its splits in order, the sink last. `queries` holds those with partial results only.
KERNEL void __launch_bounds__(THREADS) merge_splits(Attention a) {
    SHARED(float, sums, LANES);
    const Query query = a.queries[blockIdx.x];
    const int head = blockIdx.y, width = padded(a.dim), thread = threadIdx.x, values = partial_values(a.dim);
    const int splits = end_split(query) - first_split(query);
    const float* from = a.partial + (size_t(query.partial) * a.heads + head) * values;
    const size_t next = size_t(a.heads) * values;
    float totals[MOST_COLUMNS] = {0.0f, 0.0f};
    float sum = 0.0f, largest = from[width + LANES];
    for (int i = 0; i < MOST_COLUMNS && thread + i * THREADS < width; i++) totals[i] = from[thread + i * THREADS];
    if (thread < LANES) sum = from[width + thread];
    for (int split = 1; split < splits; split++) {
        from += next;
        const Weights weights = weigh(largest, from[width + LANES]);
        largest = weights.largest;
        for (int i = 0; i < MOST_COLUMNS && thread + i * THREADS < width; i++) {
            totals[i] = fmaf(totals[i], weights.kept, from[thread + i * THREADS] * weights.added);
        }
        if (thread < LANES) sum = fmaf(sum, weights.kept, from[width + thread] * weights.added);
    }
    if (thread < LANES) sums[thread] = sum;
    __syncthreads();
    float lanes[LANES], kept = 1.0f;
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) lanes[lane] = sums[lane];
    if (a.sinks != nullptr) kept = merge_sink(lanes, largest, a.sinks[head]);
    const float whole = tree_sum(lanes);
    float* to = a.out + (size_t(query.row) * a.heads + head) * a.dim;
    for (int i = 0; i < MOST_COLUMNS && thread + i * THREADS < a.dim; i++) {
        const float total = a.sinks == nullptr ? totals[i] : totals[i] * kept;
        to[thread + i * THREADS] = total / whole;
    }
}
EMULATED(merge_splits)

// Keys and values of whole texts into the layout of the cache, so that both kinds of attention are one kernel. A block of
// threads a (block of 16 tokens, kv head); `starts` the packed row of each block's first token, `counts` its tokens.
KERNEL void __launch_bounds__(THREADS)
    pack_texts(float* blocks, const float* k, const float* v, const int* starts, const int* counts, int kv_heads, int dim) {
    const int block = blockIdx.x, kv_head = blockIdx.y, width = padded(dim);
    float* to = blocks + (size_t(kv_head) * gridDim.x + block) * BLOCK_TOKENS * (dim + width);
    const int start = starts[block], count = counts[block];
    for (int i = threadIdx.x; i < BLOCK_TOKENS * dim; i += THREADS) {
        const int slot = i / dim, d = i % dim;
        const size_t from = (size_t(start + slot) * kv_heads + kv_head) * dim + d;
        to[d * BLOCK_TOKENS + slot] = slot < count ? k[from] : 0.0f;
        to[BLOCK_TOKENS * dim + slot * width + d] = slot < count ? v[from] : 0.0f;
    }
    for (int i = threadIdx.x; i < BLOCK_TOKENS * (width - dim); i += THREADS) {
        to[BLOCK_TOKENS * dim + i / (width - dim) * width + dim + i % (width - dim)] = 0.0f;
    }
}
EMULATED(pack_texts)

// Attention of whole texts with a bias of every score by head and distance: one query of one head a block of threads, all
// scores of its text in shared memory, as in src/cpu/attention/distance.rs.
struct Biased {
    float* out;
    const float *q, *k, *v;
    // [heads][2 reach − 1]: at key − query = 1 − reach … reach − 1.
    const float* bias;
    // [T]: of each packed row its text's first row and tokens.
    const int *starts, *lengths;
    int heads, dim, reach;
    float scale;
};

KERNEL void __launch_bounds__(THREADS) attend_biased(Biased a) {
    DYNAMIC_SHARED(float, scores);
    SHARED(float, parts, THREADS / WARP);
    SHARED(float, sums, LANES);
    const int token = blockIdx.x, head = blockIdx.y, thread = threadIdx.x;
    const int start = a.starts[token], tokens = a.lengths[token];
    const float* q = a.q + (size_t(token) * a.heads + head) * a.dim;
    const float* bias = a.bias + size_t(head) * (2 * a.reach - 1) + a.reach - 1 - (token - start);
    float largest = -INFINITY;
    for (int key = thread; key < tokens; key += THREADS) {
        const float* k = a.k + (size_t(start + key) * a.heads + head) * a.dim;
        float chains[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int d = 0; d < a.dim; d += 4) {
#pragma unroll
            for (int chain = 0; chain < 4; chain++) {
                if (d + chain < a.dim) chains[chain] = fmaf(q[d + chain] * a.scale, k[d + chain], chains[chain]);
            }
        }
        const float score = (chains[0] + chains[1]) + (chains[2] + chains[3]) + bias[key];
        scores[key] = score;
        largest = score > largest ? score : largest;
    }
#pragma unroll
    for (int by = WARP / 2; by > 0; by /= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, by));
    if (thread % WARP == 0) parts[thread / WARP] = largest;
    __syncthreads();
#pragma unroll
    for (int part = 0; part < THREADS / WARP; part++) largest = fmaxf(largest, parts[part]);
    for (int key = thread; key < tokens; key += THREADS) scores[key] = exponential(scores[key] - largest);
    __syncthreads();
    if (thread < LANES) {
        float sum = 0.0f;
        for (int key = thread; key < tokens; key += LANES) sum = sum + scores[key];
        sums[thread] = sum;
    }
    __syncthreads();
    const float whole = tree_sum(sums);
    for (int d = thread; d < a.dim; d += THREADS) {
        float total = 0.0f;
        for (int key = 0; key < tokens; key++) {
            total = fmaf(scores[key], a.v[(size_t(start + key) * a.heads + head) * a.dim + d], total);
        }
        a.out[(size_t(token) * a.heads + head) * a.dim + d] = total / whole;
    }
}
EMULATED(attend_biased)
