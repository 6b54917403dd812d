// Weights drawn where they lie: kernels/src/matrix/draw.rs. Four values a thread, one call of the generator.
#include "lanes.cuh"
#include "philox.cuh"

namespace {

template <class T>
DEVICE void draw(T* out, unsigned long long key, float reach, Count count) {
    const Count own = own_index();
    if (own * 4 >= count) return;
    unsigned words[4];
    philox(words, key, own);
    for (int i = 0; i < 4 && own * 4 + i < count; i++) {
        // Exact but for the last product: 24 bits over [−1, 1).
        const float unit = float(words[i] >> 8) * 0x1p-23f - 1.0f;
        out[own * 4 + i] = from_float<T>(unit * reach);
    }
}

}  // namespace

KERNEL void draw_f32(float* out, unsigned long long key, float reach, Count count) { draw(out, key, reach, count); }
EMULATED(draw_f32)
KERNEL void draw_f16(half_t* out, unsigned long long key, float reach, Count count) { draw(out, key, reach, count); }
EMULATED(draw_f16)
KERNEL void draw_bf16(brain_t* out, unsigned long long key, float reach, Count count) { draw(out, key, reach, count); }
EMULATED(draw_bf16)
