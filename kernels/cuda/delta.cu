// The gated delta rule over states in the blocks of the cache, with the arithmetic of src/cpu/delta.rs bit for bit:
// a convolution by channels, queries and keys brought to length 1, then the recurrence, each column of a state on its own.
#include "common.cuh"

constexpr int MOST_KERNEL = 8;
constexpr float LENGTH_EPSILON = 1e-6f;

// A request's rows of the step.
struct Span {
    int query_start, query_len, context_len;
    // The first block number of its request in the tables.
    int table;
};

struct Delta {
    // [T][value heads][value dim]
    float* out;
    // [T][channels]: of the convolution.
    float* convolved;
    // The layer's states: [block][state values], first the convolution's last inputs [kernel − 1][channels], then a
    // matrix [key dim][value dim up to 16] a value head.
    float* states;
    const float *mixed, *decay, *strength;
    const float *convolution, *decay_rate, *decay_bias;
    const Span* spans;
    const unsigned* tables;
    long long state_values;
    int key_heads, value_heads, key_dim, value_dim, kernel, channels;
    // 1: key head h mod KH; 0: h · KH / VH.
    int is_tiled;
};

// The state before a segment's first token, or null before position 0.
DEVICE const float* state_before(const Delta& d, const Span& span) {
    if (span.context_len == 0) return nullptr;
    return d.states + d.tables[span.table + (span.context_len - 1) / BLOCK_TOKENS] * d.state_values;
}

// Where the state after a token is kept, or null when a later token of the step stands in the same block.
DEVICE float* state_after(const Delta& d, const Span& span, int token) {
    const int position = span.context_len + token;
    const bool is_last = (position + 1) % BLOCK_TOKENS == 0 || token + 1 == span.query_len;
    return is_last ? d.states + d.tables[span.table + position / BLOCK_TOKENS] * d.state_values : nullptr;
}

// A thread a (segment, channel): blocks of 128 channels along x, segments along y.
KERNEL void __launch_bounds__(128) convolve(Delta d) {
    const int channel = blockIdx.x * 128 + threadIdx.x;
    if (channel >= d.channels) return;
    const Span span = d.spans[blockIdx.y];
    // Inputs and weights, oldest first; unused places in front.
    float seen[MOST_KERNEL], weights[MOST_KERNEL];
    const float* before = state_before(d, span);
#pragma unroll
    for (int i = 0; i < MOST_KERNEL; i++) {
        const int place = i - (MOST_KERNEL - d.kernel);
        weights[i] = place >= 0 ? d.convolution[size_t(place) * d.channels + channel] : 0.0f;
        // The last place is the token's own.
        seen[i] = 0.0f;
        if (i + 1 < MOST_KERNEL && place >= 0 && before != nullptr) seen[i] = before[size_t(place) * d.channels + channel];
    }
    for (int token = 0; token < span.query_len; token++) {
        const size_t at = size_t(span.query_start + token) * d.channels + channel;
        seen[MOST_KERNEL - 1] = d.mixed[at];
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < MOST_KERNEL; i++) {
            if (i >= MOST_KERNEL - d.kernel) sum = fmaf(seen[i], weights[i], sum);
        }
        d.convolved[at] = sum * sigmoid(sum);
#pragma unroll
        for (int i = 0; i + 1 < MOST_KERNEL; i++) seen[i] = seen[i + 1];
        float* after = state_after(d, span, token);
        if (after == nullptr) continue;
#pragma unroll
        for (int i = 0; i + 1 < MOST_KERNEL; i++) {
            const int place = i - (MOST_KERNEL - d.kernel);
            if (place >= 0) after[size_t(place) * d.channels + channel] = seen[i];
        }
    }
}
EMULATED(convolve)

// Half a warp a query or key of a row: 8 heads a block of 128 threads along x, rows along y.
KERNEL void __launch_bounds__(128) normalise_heads(Delta d) {
    const int head = blockIdx.x * 8 + threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const bool has_head = head < 2 * d.key_heads;
    float* values = d.convolved + size_t(blockIdx.y) * d.channels + size_t(has_head ? head : 0) * d.key_dim;
    float sum = 0.0f;
    for (int i = lane; has_head && i < d.key_dim; i += LANES) sum = fmaf(values[i], values[i], sum);
    // 8 + 8, 4 + 4, 2 + 2, 1 + 1: the lower lanes' order of every pair, which addition does not tell from the other.
#pragma unroll
    for (int by = LANES / 2; by > 0; by /= 2) sum = sum + __shfl_xor_sync(ALL_LANES, sum, by);
    const float length = head < d.key_heads ? 1.0f / sqrtf(float(d.key_dim)) : 1.0f;
    const float factor = length / sqrtf(sum + LENGTH_EPSILON);
    for (int i = lane; has_head && i < d.key_dim; i += LANES) values[i] = values[i] * factor;
}
EMULATED(normalise_heads)

constexpr int COLUMNS = 32;

// 32 columns of a head's state a block: parts of a head along x, value heads along y, segments along z; a thread a column.
// The state [key dim][32] lies in shared memory, behind it a query and a key.
KERNEL void __launch_bounds__(COLUMNS) recur(Delta d) {
    DYNAMIC_SHARED(float, state);
    const int width = (d.value_dim + LANES - 1) / LANES * LANES;
    const int column = blockIdx.x * COLUMNS + threadIdx.x, lane = threadIdx.x, head = blockIdx.y;
    const bool has_column = column < width;
    const Span span = d.spans[blockIdx.z];
    float *query = state + d.key_dim * COLUMNS, *key = query + d.key_dim;
    const int key_head = d.is_tiled ? head % d.key_heads : head * d.key_heads / d.value_heads;
    const size_t own = size_t(d.kernel - 1) * d.channels + size_t(head) * d.key_dim * width + column;
    const float* before = state_before(d, span);
    for (int k = 0; k < d.key_dim; k++) {
        state[k * COLUMNS + lane] = before != nullptr && has_column ? before[own + size_t(k) * width] : 0.0f;
    }
    for (int token = 0; token < span.query_len; token++) {
        const int row = span.query_start + token;
        const float* mixed = d.convolved + size_t(row) * d.channels;
        __syncwarp();
        for (int k = lane; k < d.key_dim; k += COLUMNS) {
            query[k] = mixed[key_head * d.key_dim + k];
            key[k] = mixed[(d.key_heads + key_head) * d.key_dim + k];
        }
        __syncwarp();
        // In double precision, as the decay of thousands of tokens multiplies.
        const size_t gate = size_t(row) * d.value_heads + head;
        const double decay = double(d.decay[gate]) + double(d.decay_bias[head]);
        const double softplus = (decay > 0.0 ? decay : 0.0) + log1p(exp(-fabs(decay)));
        const float kept = float(exp(-double(d.decay_rate[head]) * softplus));
        const float strength = float(1.0 / (1.0 + exp(-double(d.strength[gate]))));
        float sum = 0.0f;
        for (int k = 0; k < d.key_dim; k++) {
            const float value = state[k * COLUMNS + lane] * kept;
            state[k * COLUMNS + lane] = value;
            sum = fmaf(value, key[k], sum);
        }
        // What the state does not say about the value yet; nothing in columns that only fill up.
        const bool has_value = column < d.value_dim;
        const float value = has_value ? mixed[2 * d.key_heads * d.key_dim + head * d.value_dim + column] : 0.0f;
        const float change = has_value ? (value - sum) * strength : 0.0f;
        float recalled = 0.0f;
        for (int k = 0; k < d.key_dim; k++) {
            const float learnt = fmaf(key[k], change, state[k * COLUMNS + lane]);
            state[k * COLUMNS + lane] = learnt;
            recalled = fmaf(learnt, query[k], recalled);
        }
        if (has_value) d.out[gate * d.value_dim + column] = recalled;
        float* after = state_after(d, span, token);
        if (after == nullptr || !has_column) continue;
        for (int k = 0; k < d.key_dim; k++) after[own + size_t(k) * width] = state[k * COLUMNS + lane];
    }
}
EMULATED(recur)
