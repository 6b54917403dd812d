// Which experts a token goes to, and bringing tokens there and back: kernels/src/ops/experts.rs.
#include "lanes.cuh"

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
