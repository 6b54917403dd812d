// What all kernel files share: how a kernel is declared, shared memory, instructions that need inline assembly, each with
// a twin for the emulator, and arithmetic that gives the bits of the processor's kernels.
//
// Files are compiled without contraction (-fmad=false, -ffp-contract=off): a fused multiply-add is written fmaf.
#pragma once

#ifdef LIFELONG_EMULATED
#include "emulator/emulator.h"

#define KERNEL extern "C"
// Behind each kernel: puts it into the emulator's table.
#define EMULATED(name) static const emulate::Entry entry_of_##name = emulate::entry(#name, &name);
#define SHARED(type, name, count) \
    type* const name = static_cast<type*>(emulate::shared({__FILE__, __LINE__}, sizeof(type) * (count)))
#define DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(emulate::dynamic_shared({__FILE__, __LINE__}))
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#define KERNEL extern "C" __global__
#define EMULATED(name)
#define SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define DYNAMIC_SHARED(type, name) type* const name = reinterpret_cast<type*>(dynamic_memory)
extern __shared__ __align__(128) unsigned char dynamic_memory[];
#endif

#define DEVICE __device__ __forceinline__

// Tokens in a block of the cache, and lanes of the processor's vectors.
constexpr int BLOCK_TOKENS = 16;
constexpr int LANES = 16;
constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

using half_t = __half;
using brain_t = __nv_bfloat16;

DEVICE float to_float(float x) { return x; }
DEVICE float to_float(half_t x) { return __half2float(x); }
DEVICE float to_float(brain_t x) { return __bfloat162float(x); }

template <class T>
DEVICE T from_float(float x);
template <>
DEVICE float from_float<float>(float x) {
    return x;
}
template <>
DEVICE half_t from_float<half_t>(float x) {
    return __float2half_rn(x);
}
template <>
DEVICE brain_t from_float<brain_t>(float x) {
    return __float2bfloat16_rn(x);
}

// Sums of four values a lane: rows lane / 4 and lane / 4 + 8, columns 2 (lane % 4) and the next. `a` 16 rows by 16 of k,
// `b` 16 of k by 8 columns: of a pair of registers the first holds k = 2 (lane % 4) and the next, the second those + 8.
template <class T>
DEVICE void multiply_add(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

#ifdef LIFELONG_EMULATED
template <>
DEVICE void multiply_add<half_t>(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    emulate::FloatProduct product{sums, a, b, emulate::Numbers::Half};
    emulate::meet(ALL_LANES, "a matrix product", {__FILE__, __LINE__}, &emulate::multiply_floats, &product);
}
template <>
DEVICE void multiply_add<brain_t>(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    emulate::FloatProduct product{sums, a, b, emulate::Numbers::Brain};
    emulate::meet(ALL_LANES, "a matrix product", {__FILE__, __LINE__}, &emulate::multiply_floats, &product);
}
// 16 rows of 32 unsigned bytes by 8 columns of signed ones, exact.
DEVICE void multiply_add_32(int (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    emulate::IntegerProduct product{sums, a, b, 32};
    emulate::meet(ALL_LANES, "a matrix product", {__FILE__, __LINE__}, &emulate::multiply_integers, &product);
}
// The same of 16 bytes.
DEVICE void multiply_add_16(int (&sums)[4], const uint32_t (&a)[2], uint32_t b) {
    emulate::IntegerProduct product{sums, a, &b, 16};
    emulate::meet(ALL_LANES, "a matrix product", {__FILE__, __LINE__}, &emulate::multiply_integers, &product);
}
// Starts a copy of 16 bytes into shared memory.
DEVICE void copy_16(void* to, const void* from) { emulate::copy_later(to, from, 16, {__FILE__, __LINE__}); }
DEVICE void commit_copies() { emulate::commit_copies(); }
template <int GROUPS_LEFT>
DEVICE void wait_for_copies() {
    emulate::wait_for_copies(GROUPS_LEFT);
}
#else
template <>
DEVICE void multiply_add<half_t>(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
DEVICE void multiply_add<brain_t>(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void multiply_add_32(int (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void multiply_add_16(int (&sums)[4], const uint32_t (&a)[2], uint32_t b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}
DEVICE void copy_16(void* to, const void* from) {
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}
DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int GROUPS_LEFT>
DEVICE void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS_LEFT) : "memory");
}
#endif

// Horner's rule, lowest coefficient first.
template <int N>
DEVICE float polynomial(float x, const float (&coefficients)[N]) {
    float value = coefficients[N - 1];
#pragma unroll
    for (int index = N - 2; index >= 0; index--) value = fmaf(value, x, coefficients[index]);
    return value;
}

// The processor's exponential (src/cpu/math.rs), bit for bit: 0 below −87.3, infinity above 88.3.
DEVICE float exponential(float x) {
    const float n = rintf(x * 1.44269504f);
    float r = fmaf(-n, 0.693359375f, x);
    r = fmaf(-n, -2.1219444e-4f, r);
    const float coefficients[5] = {0.49999994f, 0.16666521f, 0.04166839f, 0.008368718f, 0.0013814596f};
    const float tail = polynomial(r, coefficients);
    const float power = fmaf(r * r, tail, r) + 1.0f;
    // Outside of the range the value is replaced below, whatever it is.
    const float inside = n >= -200.0f && n <= 200.0f ? n : 0.0f;
    float value = power * __uint_as_float((unsigned(int(inside)) + 127u) << 23);
    value = x < -87.3f ? 0.0f : value;
    return 88.3f < x ? __uint_as_float(0x7f800000u) : value;
}

DEVICE float sigmoid(float x) { return 1.0f / (1.0f + exponential(0.0f - x)); }
