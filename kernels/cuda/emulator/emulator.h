// Runs CUDA kernels on a processor: one fiber a thread, the blocks of a grid one after another.
//
// A kernel file is compiled as plain C++20 with LIFELONG_EMULATED and NVIDIA's headers for half and bfloat16 (no compiler
// or driver of theirs). Shared memory comes poisoned and between guard zones; threads run in order or in a seeded random
// one; what a GPU leaves undefined (a barrier that some threads miss, a shuffle from a lane that is not there, a copy
// nobody waits for) is an error with its line. Memory is sequentially consistent, so that weak ordering is out of reach.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_functions.h>
#include <vector_types.h>

#undef __shared__
#undef __global__
#undef __device__
#undef __forceinline__
#undef __launch_bounds__
#undef __restrict__
#define __shared__ static
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__

namespace emulate {

// What a GPU leaves undefined, or a launch that no GPU takes.
struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The place of a call in a kernel file.
struct Place {
    const char* file;
    int line;
    bool operator==(const Place&) const = default;
};
std::string name_of(Place place);

// What kernel code sees of its thread.
struct Thread {
    uint3 index;
    unsigned linear, lane, warp;
};
extern Thread* current;
extern dim3 grid, block;
extern uint3 block_index;

void barrier(Place place);

// The lanes of `mask` meet; the last one runs `act` over their operands, which lie on the stacks of the others.
using Act = void (*)(unsigned mask, void* const* operands);
void meet(unsigned mask, const char* what, Place place, Act act, void* operand);

// Shared memory of the block: the same address for every thread that names the same place.
void* shared(Place place, size_t bytes);
void* dynamic_shared(Place place);

// Copies that stay pending, their target poisoned, until the thread waits for their group.
void copy_later(void* to, const void* from, size_t bytes, Place place);
void commit_copies();
void wait_for_copies(int groups_left);

// The table of kernels.
using Invoke = void (*)(void (*)(), void** arguments);
struct Entry {
    Entry(const char* name, void (*kernel)(), Invoke invoke);
};
template <class... A, size_t... I>
void invoke(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cvref_t<A>*>(arguments[I])...);
}
template <class... A>
Entry entry(const char* name, void (*kernel)(A...)) {
    return Entry(name, reinterpret_cast<void (*)()>(kernel), [](void (*kernel)(), void** arguments) {
        invoke(reinterpret_cast<void (*)(A...)>(kernel), arguments, std::index_sequence_for<A...>{});
    });
}

enum class Shuffle { From, Up, Down, Across };
struct ShuffleOperand {
    uint64_t value, result;
    Shuffle kind;
    int by, width;
    Place place;
};
void shuffle(unsigned mask, void* const* operands);

template <class T>
T shuffle(unsigned mask, T value, int by, int width, Shuffle kind, Place place) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
    ShuffleOperand operand{0, 0, kind, by, width, place};
    memcpy(&operand.value, &value, sizeof(T));
    meet(mask, "a shuffle", place, &shuffle, &operand);
    memcpy(&value, &operand.result, sizeof(T));
    return value;
}

struct VoteOperand {
    bool vote;
    unsigned result;
};
void ballot(unsigned mask, void* const* operands);
unsigned ballot(unsigned mask, bool vote, Place place);

// Products of matrix fragments as the tensor cores lay them out (PTX ISA, "Matrix Fragments for mma.m16n8k16" and
// "mma.m16n8k32"); sums run in order of k.
enum class Numbers { Half, Brain };
struct FloatProduct {
    float* sums;
    const uint32_t *a, *b;
    Numbers numbers;
};
struct IntegerProduct {
    int* sums;
    const uint32_t *a, *b;
    int depth;
};
void multiply_floats(unsigned mask, void* const* operands);
void multiply_integers(unsigned mask, void* const* operands);

void check_aligned(const void* address, size_t bytes, const char* what, Place place);

}  // namespace emulate

#define EMULATED_HERE (emulate::Place{__FILE__, __LINE__})

#define threadIdx (emulate::current->index)
#define blockIdx (emulate::block_index)
#define blockDim (emulate::block)
#define gridDim (emulate::grid)
#define warpSize 32

#define __syncthreads() emulate::barrier(EMULATED_HERE)
#define __syncwarp(...) \
    emulate::meet(0xffffffffu __VA_OPT__(&(__VA_ARGS__)), "a warp barrier", EMULATED_HERE, [](unsigned, void* const*) {}, nullptr)
#define __threadfence()
#define __threadfence_block()

#define EMULATED_SHUFFLE(kind, mask, value, by, ...) \
    emulate::shuffle((mask), (value), int(by), EMULATED_FIRST(__VA_ARGS__ __VA_OPT__(,) 32), emulate::Shuffle::kind, EMULATED_HERE)
#define EMULATED_FIRST(a, ...) (a)
#define __shfl_sync(...) EMULATED_SHUFFLE(From, __VA_ARGS__)
#define __shfl_up_sync(...) EMULATED_SHUFFLE(Up, __VA_ARGS__)
#define __shfl_down_sync(...) EMULATED_SHUFFLE(Down, __VA_ARGS__)
#define __shfl_xor_sync(...) EMULATED_SHUFFLE(Across, __VA_ARGS__)
#define __ballot_sync(mask, vote) emulate::ballot((mask), (vote), EMULATED_HERE)
#define __any_sync(mask, vote) (emulate::ballot((mask), (vote), EMULATED_HERE) != 0)
#define __all_sync(mask, vote) (emulate::ballot((mask), (vote), EMULATED_HERE) == unsigned(mask))

// Arithmetic that CUDA has as functions. The file is compiled without contraction, so that plain operators round once.
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
template <class To, class From>
inline To emulated_bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof(To));
    return to;
}
inline float __int_as_float(int x) { return emulated_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }
inline int __float_as_int(float x) { return emulated_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
inline long long __double_as_longlong(double x) { return emulated_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emulated_bits<double>(x); }
// To the nearest integer, ties to even; saturates, and 0 of NaN, as the instruction does.
inline int __float2int_rn(float x) {
    if (std::isnan(x)) return 0;
    if (x >= 2147483648.0f) return INT32_MAX;
    if (x <= -2147483648.0f) return INT32_MIN;
    return int(rintf(x));
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
template <class T>
inline T __ldg(const T* from) {
    emulate::check_aligned(from, sizeof(T), "__ldg", {__FILE__, __LINE__});
    return *from;
}
template <class T>
inline T __ldcs(const T* from) {
    emulate::check_aligned(from, sizeof(T), "__ldcs", {__FILE__, __LINE__});
    return *from;
}

template <class A, class B>
inline std::common_type_t<A, B> min(A a, B b) {
    return b < a ? b : a;
}
template <class A, class B>
inline std::common_type_t<A, B> max(A a, B b) {
    return a < b ? b : a;
}

namespace emulate {

// One step for all threads that orders nothing else, so that a sanitiser takes it for no race.
template <class T, class Next>
T replace(T* at, Next next) {
    T before, after;
    __atomic_load(at, &before, __ATOMIC_RELAXED);
    do {
        after = next(before);
    } while (!__atomic_compare_exchange(at, &before, &after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return before;
}

}  // namespace emulate

template <class T>
inline T atomicAdd(T* to, T value) {
    return emulate::replace(to, [&](T before) { return T(before + value); });
}
template <class T>
inline T atomicMax(T* to, T value) {
    return emulate::replace(to, [&](T before) { return before < value ? value : before; });
}
template <class T>
inline T atomicMin(T* to, T value) {
    return emulate::replace(to, [&](T before) { return value < before ? value : before; });
}
template <class T>
inline T atomicOr(T* to, T value) {
    return emulate::replace(to, [&](T before) { return T(before | value); });
}
template <class T>
inline T atomicExch(T* to, T value) {
    return emulate::replace(to, [&](T) { return value; });
}
template <class T>
inline T atomicCAS(T* to, T expected, T value) {
    return emulate::replace(to, [&](T before) { return before == expected ? value : before; });
}
