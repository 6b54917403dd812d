// Which experts a token goes to, and bringing tokens there and back: kernels/src/ops/experts.rs.
#include "lanes.cuh"
#include "products.cuh"

namespace {

// An expert in the order of choice: larger logits first, lower numbers first among equals, what is no number last.
struct Candidate {
    float logit;
    unsigned expert;
};

constexpr unsigned NONE = 0xffffffffu;

DEVICE bool is_before(Candidate a, Candidate b) {
    if (a.expert == NONE || b.expert == NONE) return a.expert != NONE && b.expert == NONE;
    const bool a_is_number = a.logit == a.logit;
    const bool b_is_number = b.logit == b.logit;
    if (a_is_number != b_is_number) return a_is_number;
    if (a_is_number && a.logit != b.logit) return a.logit > b.logit;
    return a.expert < b.expert;
}

// The best expert behind `last`, the same in all lanes of the warp.
DEVICE Candidate next_best(const float* logits, unsigned experts, Candidate last) {
    Candidate best = {0.0f, NONE};
    for (unsigned expert = threadIdx.x; expert < experts; expert += 32) {
        const Candidate candidate = {logits[expert], expert};
        const bool is_left = last.expert == NONE || is_before(last, candidate);
        if (is_left && is_before(candidate, best)) best = candidate;
    }
    for (unsigned offset = 16; offset > 0; offset /= 2) {
        const float logit = __shfl_xor_sync(ALL_LANES, best.logit, offset);
        const unsigned expert = __shfl_xor_sync(ALL_LANES, best.expert, offset);
        const Candidate other = {logit, expert};
        if (is_before(other, best)) best = other;
    }
    return best;
}

// The sum of exp(x - largest) in the processor's order: lanes modulo 16, then a tree. `places` may be null.
DEVICE float sum_of_powers(const float* x, const unsigned* places, unsigned count, float largest) {
    const unsigned lane = threadIdx.x % LANES;
    float sum = 0.0f;
    for (unsigned start = 0; start < count; start += LANES) {
        const unsigned i = start + lane;
        sum = sum + (i < count ? exponential(x[places ? places[i] : i] - largest) : 0.0f);
    }
    return lane_tree(sum);
}

}  // namespace

// One warp a token.
KERNEL void route(unsigned* chosen, float* share, const float* logits, unsigned experts, unsigned count,
                  unsigned of_all) {
    logits += Count(blockIdx.x) * experts;
    chosen += Count(blockIdx.x) * count;
    share += Count(blockIdx.x) * count;
    Candidate last = {0.0f, NONE};
    float largest = 0.0f;
    for (unsigned place = 0; place < count; place++) {
        last = next_best(logits, experts, last);
        if (place == 0) largest = last.logit;
        if (threadIdx.x == 0) chosen[place] = last.expert;
    }
    __syncwarp();
    const float sum = sum_of_powers(logits, of_all ? nullptr : chosen, of_all ? experts : count, largest);
    for (unsigned place = threadIdx.x; place < count; place += 32)
        share[place] = exponential(logits[chosen[place]] - largest) / sum;
}
EMULATED(route)

namespace {

constexpr unsigned GROUP_THREADS = 256;

// The sum over the block's threads up to and without this one, and over all of them.
struct Running {
    unsigned before, all;
};

DEVICE Running running_sum(unsigned value) {
    SHARED(unsigned, parts, GROUP_THREADS / WARP);
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    unsigned sum = value;
#pragma unroll
    for (unsigned by = 1; by < WARP; by *= 2) {
        const unsigned other = __shfl_up_sync(ALL_LANES, sum, by);
        if (lane >= by) sum += other;
    }
    // Those of the sum before have been read.
    __syncthreads();
    if (lane == WARP - 1) parts[warp] = sum;
    __syncthreads();
    Running running = {sum - value, 0};
#pragma unroll
    for (unsigned part = 0; part < GROUP_THREADS / WARP; part++) {
        if (part < warp) running.before += parts[part];
        running.all += parts[part];
    }
    return running;
}

}  // namespace

// Puts visits in order of their experts, within one in order of rows, and cuts the visits of each expert into tiles. One
// block an expert: all count all visits, so that none waits for another.
KERNEL void __launch_bounds__(GROUP_THREADS)
    group_visits(unsigned* rows, unsigned* places, Tile* tiles, const unsigned* chosen, unsigned visits, unsigned count,
                 unsigned tile_tokens, unsigned most_tiles) {
    DYNAMIC_SHARED(unsigned, lengths);
    const unsigned expert = blockIdx.x, experts = gridDim.x;
    for (unsigned i = threadIdx.x; i < experts; i += GROUP_THREADS) lengths[i] = 0;
    __syncthreads();
    // Every thread has a run of visits.
    const unsigned run = (visits + GROUP_THREADS - 1) / GROUP_THREADS;
    const unsigned begin = min(threadIdx.x * run, visits), end = min(begin + run, visits);
    unsigned own = 0;
    for (unsigned visit = begin; visit < end; visit++) {
        const unsigned to = chosen[visit];
        atomicAdd(&lengths[to], 1u);
        own += to == expert;
    }
    __syncthreads();
    unsigned visits_before = 0, tiles_before = 0;
    for (unsigned i = threadIdx.x; i < expert; i += GROUP_THREADS) {
        visits_before += lengths[i];
        tiles_before += (lengths[i] + tile_tokens - 1) / tile_tokens;
    }
    const unsigned first = running_sum(visits_before).all, first_tile = running_sum(tiles_before).all;
    unsigned place = first + running_sum(own).before;
    for (unsigned visit = begin; visit < end; visit++) {
        if (chosen[visit] != expert) continue;
        rows[place] = visit / count;
        places[visit] = place;
        place++;
    }
    const unsigned length = lengths[expert], own_tiles = (length + tile_tokens - 1) / tile_tokens;
    for (unsigned i = threadIdx.x; i < own_tiles; i += GROUP_THREADS) {
        const unsigned at = i * tile_tokens;
        tiles[first_tile + i] = {expert, first + at, first + min(at + tile_tokens, length)};
    }
    if (expert + 1 < experts) return;
    for (unsigned i = first_tile + own_tiles + threadIdx.x; i < most_tiles; i += GROUP_THREADS) tiles[i] = {0, 0, 0};
}
EMULATED(group_visits)

// One block a row.
KERNEL void gather(float* out, const float* x, const unsigned* rows, unsigned hidden) {
    const float* row = x + Count(rows[blockIdx.x]) * hidden;
    for (unsigned i = threadIdx.x; i < hidden; i += blockDim.x) out[Count(blockIdx.x) * hidden + i] = row[i];
}
EMULATED(gather)

// One block a token; experts are added in order of the token's choice.
KERNEL void combine(float* out, const float* y, const unsigned* places, const float* share, unsigned hidden,
                    unsigned count) {
    places += Count(blockIdx.x) * count;
    share += Count(blockIdx.x) * count;
    for (unsigned i = threadIdx.x; i < hidden; i += blockDim.x) {
        float sum = 0.0f;
        for (unsigned place = 0; place < count; place++)
            sum = fmaf(share[place], y[Count(places[place]) * hidden + i], sum);
        out[Count(blockIdx.x) * hidden + i] = sum;
    }
}
EMULATED(combine)

// One block a token.
KERNEL void add_shared(float* out, const float* y, const float* gate, unsigned hidden) {
    const float share = sigmoid(gate[blockIdx.x]);
    for (unsigned i = threadIdx.x; i < hidden; i += blockDim.x) {
        const Count at = Count(blockIdx.x) * hidden + i;
        out[at] = fmaf(share, y[at], out[at]);
    }
}
EMULATED(add_shared)
