// The next token of each row, the draws of src/engine/sampler.rs of the program bit for bit: the same weights, every sum in
// the same order, the same cuts, and the same random number.
//
// A block of threads a row. What is kept stands in order of token id; sums over what is kept are taken by one thread, in
// that order, in double precision.
#include "philox.cuh"

constexpr int THREADS = 512;
constexpr int CHUNK = 64;
constexpr int STEPS = 2048;
constexpr unsigned NOTHING = 0xffffffffu;

struct Sampling {
    float temperature;
    // 0: all.
    unsigned top_k;
    double top_p, min_p;
    unsigned long long key, position;
};

struct Drawn {
    // NOTHING when the logits are no numbers or all masked.
    unsigned token;
    // Of the token, less the greatest logit.
    float below;
    // Sum of exp(logit − greatest).
    double total;
};

struct Sample {
    Drawn* drawn;
    const float* logits;
    const Sampling* rows;
    // [rows][vocabulary] working memory: weights, kept token ids, and those of one step of a nucleus, sorted.
    float* weights;
    unsigned *kept, *sorted;
    // [rows][chunks]
    float* sums;
    int vocabulary;
};

// What threads tell each other.
struct Shared {
    int counts[THREADS / WARP];
    float parts[THREADS / WARP];
    unsigned flags[THREADS / WARP];
    unsigned histogram[256];
    double number;
    float limit_logit;
    unsigned limit_token, token, rank;
    int kept;
};

// A 53-bit number in [0, 1): words 0 and 1 of the generator at this position.
DEVICE double uniform_at(unsigned long long key, unsigned long long position) {
    unsigned words[4];
    philox(words, key, position);
    const unsigned long long bits = words[0] | (unsigned long long)words[1] << 32;
    return double(bits >> 11) * (1.0 / 9007199254740992.0);
}

// exp(x) for x <= 0, as src/engine/softmax.rs has it: no product and sum is fused.
DEVICE float exp_nonpositive(float x) {
    const float clamped = x > -87.0f ? x : -87.0f;
    const float rounded = clamped * 1.44269504f + 12582912.0f;
    const float n = rounded - 12582912.0f;
    const float r = clamped - n * 0.693359375f - n * -2.1219444e-4f;
    float polynomial = 1.9875691e-4f;
    polynomial = polynomial * r + 1.3982e-3f;
    polynomial = polynomial * r + 8.333452e-3f;
    polynomial = polynomial * r + 4.1665796e-2f;
    polynomial = polynomial * r + 1.6666665e-1f;
    polynomial = polynomial * r + 5e-1f;
    const float value = polynomial * (r * r) + r + 1.0f;
    const float power_of_two = __uint_as_float((__float_as_uint(rounded) << 23) + 0x3f800000u);
    return x < -87.0f ? 0.0f : value * power_of_two;
}

// Weights of all logits and their sums by chunks of 64: 16 lanes in a chunk, a tree over them. Half a warp a chunk.
DEVICE void weigh_all(float* weights, float* sums, const float* logits, int vocabulary, float greatest, float temperature) {
    const int lane = threadIdx.x % LANES, chunks = (vocabulary + CHUNK - 1) / CHUNK;
    for (int first = 0; first < chunks; first += THREADS / LANES) {
        const int chunk = first + threadIdx.x / LANES;
        float sum = 0.0f;
        for (int part = 0; part < CHUNK / LANES; part++) {
            const int token = chunk * CHUNK + part * LANES + lane;
            const float weight = token < vocabulary ? exp_nonpositive((logits[token] - greatest) / temperature) : 0.0f;
            if (token < vocabulary && weights != nullptr) weights[token] = weight;
            sum = sum + weight;
        }
#pragma unroll
        for (int by = LANES / 2; by > 0; by /= 2) sum = sum + __shfl_xor_sync(ALL_LANES, sum, by);
        if (lane == 0 && chunk < chunks) sums[chunk] = sum;
    }
    __syncthreads();
}

// The sum of all chunks from left to right, the same for all threads.
DEVICE double total_of(Shared& shared, const float* sums, int vocabulary) {
    if (threadIdx.x == 0) {
        double total = 0.0;
        for (int chunk = 0; chunk < (vocabulary + CHUNK - 1) / CHUNK; chunk++) total = total + double(sums[chunk]);
        shared.number = total;
    }
    __syncthreads();
    const double total = shared.number;
    __syncthreads();
    return total;
}

// A stretch of `count` things that belongs to this thread.
DEVICE int begin_of(int count, int thread) { return int((long long)count * thread / THREADS); }

// Of the counts of all threads those before this one; `shared.kept` becomes the sum.
DEVICE int count_before(Shared& shared, int count) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int until = count;
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
        const int other = __shfl_up_sync(ALL_LANES, until, by);
        if (lane >= by) until += other;
    }
    __syncthreads();
    if (lane == WARP - 1) shared.counts[warp] = until;
    __syncthreads();
    int before = until - count, all = 0;
    for (int i = 0; i < THREADS / WARP; i++) {
        if (i < warp) before += shared.counts[i];
        all += shared.counts[i];
    }
    if (threadIdx.x == 0) shared.kept = all;
    __syncthreads();
    return before;
}

// Writes the tokens that pass, of all or of those kept so far, in order. In place: what is written never overtakes what is
// read, as every thread has read its stretch before any writes.
template <class Passes>
DEVICE int keep(Shared& shared, unsigned* kept, int count, bool is_of_all, const Passes& passes) {
    const int begin = begin_of(count, threadIdx.x), end = begin_of(count, threadIdx.x + 1);
    int own = 0;
    for (int i = begin; i < end; i++) own += passes(is_of_all ? unsigned(i) : kept[i]);
    const int to = count_before(shared, own);
    if (is_of_all) {
        int at = to;
        for (int i = begin; i < end; i++) {
            if (passes(unsigned(i))) kept[at++] = unsigned(i);
        }
    } else {
        // One thread moves them, from left to right.
        if (threadIdx.x == 0) {
            int at = 0;
            for (int i = 0; i < count; i++) {
                const unsigned token = kept[i];
                if (passes(token)) kept[at++] = token;
            }
        }
    }
    __syncthreads();
    return shared.kept;
}

// Numbers in the order of their bits; both zeros are one.
DEVICE unsigned ordered(float x) {
    const unsigned bits = __float_as_uint(x + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The tokens of the k greatest logits, of equal ones the lower ids; none that is masked.
DEVICE int keep_top_k(Shared& shared, unsigned* kept, const float* logits, int vocabulary, unsigned k) {
    // The k-th greatest by its bytes from the highest on: `rank` of those that begin with `prefix` are among the k.
    unsigned prefix = 0, rank = k;
    for (int byte = 3; byte >= 0; byte--) {
        for (int i = threadIdx.x; i < 256; i += THREADS) shared.histogram[i] = 0;
        __syncthreads();
        for (int token = threadIdx.x; token < vocabulary; token += THREADS) {
            const unsigned bits = ordered(logits[token]);
            if (byte == 3 || bits >> (8 * byte + 8) == prefix) atomicAdd(&shared.histogram[bits >> 8 * byte & 255], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int digit = 255;
            while (digit > 0 && shared.histogram[digit] < rank) rank -= shared.histogram[digit--];
            shared.token = unsigned(digit);
            shared.rank = rank;
        }
        __syncthreads();
        prefix = prefix << 8 | shared.token;
        rank = shared.rank;
        __syncthreads();
    }
    const int begin = begin_of(vocabulary, threadIdx.x), end = begin_of(vocabulary, threadIdx.x + 1);
    int equal = 0;
    for (int token = begin; token < end; token++) equal += ordered(logits[token]) == prefix;
    const int equal_before = count_before(shared, equal);
    const auto pass = [&](auto&& with) {
        unsigned seen = unsigned(equal_before);
        for (int token = begin; token < end; token++) {
            const unsigned bits = ordered(logits[token]);
            const bool is_kept = bits > prefix || (bits == prefix && seen++ < rank);
            if (is_kept && logits[token] > -INFINITY) with(unsigned(token));
        }
    };
    int own = 0;
    pass([&](unsigned) { own++; });
    int to = count_before(shared, own);
    pass([&](unsigned token) { kept[to++] = token; });
    __syncthreads();
    return shared.kept;
}

DEVICE bool is_likelier(const float* logits, unsigned a, unsigned b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

// The token that crosses the limit, likeliest first: sums by how far a logit is below the greatest, in steps of 1/64 of the
// temperature, and order only in the step in which the sum crosses.
DEVICE void find_boundary(Shared& shared, double* masses, const unsigned* kept, int count, unsigned* sorted, const float* logits,
                          const float* weights, float greatest, float temperature, double target) {
    const float steps_each = 64.0f / temperature;
    const auto step_of = [&](unsigned token) {
        const float step = (greatest - logits[token]) * steps_each;
        return step >= float(STEPS - 1) ? STEPS - 1 : int(step);
    };
    for (int step = threadIdx.x; step < STEPS; step += THREADS) masses[step] = 0.0;
    __syncthreads();
    // A thread adds the weights of its own steps, in order of token.
    for (int i = 0; i < count; i++) {
        const int step = step_of(kept[i]);
        if (step % THREADS == int(threadIdx.x)) masses[step] = masses[step] + double(weights[kept[i]]);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double before = 0.0;
        int crossing = 0;
        for (int step = 0; step < STEPS; step++) {
            if (!(masses[step] > 0.0)) continue;
            crossing = step;
            if (before + masses[step] >= target) break;
            before = before + masses[step];
        }
        shared.number = before;
        shared.rank = unsigned(crossing);
    }
    __syncthreads();
    const int crossing = int(shared.rank);
    int of_step = 0;
    for (int i = 0; i < count; i++) of_step += step_of(kept[i]) == crossing;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        if (step_of(kept[i]) != crossing) continue;
        int rank = 0;
        for (int j = 0; j < count; j++) rank += step_of(kept[j]) == crossing && is_likelier(logits, kept[j], kept[i]);
        sorted[rank] = kept[i];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double before = shared.number;
        int at = 0;
        for (; at < of_step - 1; at++) {
            before = before + double(weights[sorted[at]]);
            if (before >= target) break;
        }
        shared.limit_token = sorted[at];
        shared.limit_logit = logits[sorted[at]];
    }
    __syncthreads();
}

DEVICE double mass_of(const unsigned* kept, int count, const float* weights) {
    double mass = 0.0;
    for (int i = 0; i < count; i++) mass = mass + double(weights[kept[i]]);
    return mass;
}

// One thread: the token at which the running sum passes the target, the last with any weight when rounding keeps it below.
DEVICE unsigned pass_kept(const unsigned* kept, int count, const float* weights, double target) {
    double sum = 0.0;
    unsigned last = 0;
    for (int i = 0; i < count; i++) {
        if (!(weights[kept[i]] > 0.0f)) continue;
        last = kept[i];
        sum = sum + double(weights[kept[i]]);
        if (sum > target) break;
    }
    return last;
}

// The same over all tokens, by chunks first.
DEVICE unsigned pass_all(const float* weights, const float* sums, int vocabulary, double target) {
    double before = 0.0;
    int heavy = 0;
    for (int chunk = 0; chunk < (vocabulary + CHUNK - 1) / CHUNK; chunk++) {
        if (!(sums[chunk] > 0.0f)) continue;
        heavy = chunk;
        if (before + double(sums[chunk]) > target) break;
        before = before + double(sums[chunk]);
    }
    double sum = 0.0;
    unsigned last = 0;
    for (int token = heavy * CHUNK; token < min(vocabulary, (heavy + 1) * CHUNK); token++) {
        if (!(weights[token] > 0.0f)) continue;
        last = unsigned(token);
        sum = sum + double(weights[token]);
        if (sum > target - before) break;
    }
    return last;
}

// The greatest logit, or NaN when nothing may be drawn: one is no number or +infinity, or all are masked.
DEVICE float survey(Shared& shared, const float* logits, int vocabulary) {
    float greatest = -INFINITY;
    unsigned is_wrong = 0;
    for (int token = threadIdx.x; token < vocabulary; token += THREADS) {
        greatest = logits[token] > greatest ? logits[token] : greatest;
        is_wrong |= logits[token] != logits[token];
    }
#pragma unroll
    for (int by = WARP / 2; by > 0; by /= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, greatest, by);
        greatest = other > greatest ? other : greatest;
        is_wrong |= __shfl_xor_sync(ALL_LANES, is_wrong, by);
    }
    if (threadIdx.x % WARP == 0) {
        shared.parts[threadIdx.x / WARP] = greatest;
        shared.flags[threadIdx.x / WARP] = is_wrong;
    }
    __syncthreads();
    for (int i = 0; i < THREADS / WARP; i++) {
        greatest = shared.parts[i] > greatest ? shared.parts[i] : greatest;
        is_wrong |= shared.flags[i];
    }
    __syncthreads();
    return is_wrong || greatest == INFINITY || greatest == -INFINITY ? NAN : greatest;
}

KERNEL void __launch_bounds__(THREADS) sample_rows(Sample s) {
    SHARED(Shared, shared_memory, 1);
    SHARED(double, masses, STEPS);
    Shared& shared = shared_memory[0];
    const int vocabulary = s.vocabulary, chunks = (vocabulary + CHUNK - 1) / CHUNK;
    const size_t row = blockIdx.x;
    const float* logits = s.logits + row * vocabulary;
    float *weights = s.weights + row * vocabulary, *sums = s.sums + row * chunks;
    unsigned *kept = s.kept + row * vocabulary, *sorted = s.sorted + row * vocabulary;
    const Sampling sampling = s.rows[row];
    const float greatest = survey(shared, logits, vocabulary);
    if (greatest != greatest) {
        if (threadIdx.x == 0) s.drawn[row] = Drawn{NOTHING, 0.0f, 0.0};
        return;
    }
    weigh_all(nullptr, sums, logits, vocabulary, greatest, 1.0f);
    const double own_total = total_of(shared, sums, vocabulary);
    if (threadIdx.x == 0) shared.token = NOTHING;
    __syncthreads();
    if (sampling.temperature == 0.0f) {
        for (int token = threadIdx.x; token < vocabulary; token += THREADS) {
            if (logits[token] == greatest) atomicMin(&shared.token, unsigned(token));
        }
    } else {
        const float temperature = sampling.temperature;
        weigh_all(weights, sums, logits, vocabulary, greatest, temperature);
        double total = total_of(shared, sums, vocabulary);
        bool is_all = false;
        int count = 0;
        if (sampling.top_k > 0 && sampling.top_k < unsigned(vocabulary)) {
            count = keep_top_k(shared, kept, logits, vocabulary, sampling.top_k);
            if (threadIdx.x == 0) shared.number = mass_of(kept, count, weights);
            __syncthreads();
            total = shared.number;
            __syncthreads();
        } else {
            // What weighs less than this sums to less than 1 − p of the total, so the p likeliest are all above it.
            float least = float((1.0 - sampling.top_p) * total / double(vocabulary)) * 0.999f;
            least = fmaxf(least, sampling.top_p == 1.0 ? float(sampling.min_p) : 0.0f);
            is_all = least == 0.0f && sampling.top_p == 1.0;
            least = fmaxf(least, 1.17549435e-38f);
            if (!is_all) {
                count = keep(shared, kept, vocabulary, true, [&](unsigned token) { return weights[token] >= least; });
            }
        }
        if (!is_all && sampling.top_p < 1.0) {
            find_boundary(shared, masses, kept, count, sorted, logits, weights, greatest, temperature, sampling.top_p * total);
            const float limit = shared.limit_logit;
            const unsigned limit_token = shared.limit_token;
            count = keep(shared, kept, count, false, [&](unsigned token) {
                return logits[token] > limit || (logits[token] == limit && token <= limit_token);
            });
        }
        if (!is_all && sampling.min_p > 0.0) {
            count = keep(shared, kept, count, false, [&](unsigned token) { return double(weights[token]) >= sampling.min_p; });
        }
        if (threadIdx.x == 0) {
            const double uniform = uniform_at(sampling.key, sampling.position);
            if (is_all) {
                shared.token = pass_all(weights, sums, vocabulary, uniform * total);
            } else {
                shared.token = pass_kept(kept, count, weights, uniform * mass_of(kept, count, weights));
            }
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) s.drawn[row] = Drawn{shared.token, logits[shared.token] - greatest, own_total};
}
EMULATED(sample_rows)
