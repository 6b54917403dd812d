// What the lanes of a warp get when they meet: shuffles, votes and products of matrix fragments. Part of emulator.cpp.
#pragma once
#include "emulator.h"

namespace emulate {

void shuffle(unsigned mask, void* const* operands) {
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        auto& own = *static_cast<ShuffleOperand*>(operands[lane]);
        const int first = lane & ~(own.width - 1), place = lane & (own.width - 1);
        int source = lane;
        switch (own.kind) {
            case Shuffle::From: source = first + (own.by & (own.width - 1)); break;
            case Shuffle::Up: source = place < own.by ? lane : lane - own.by; break;
            case Shuffle::Down: source = place + own.by >= own.width ? lane : lane + own.by; break;
            case Shuffle::Across: source = (place ^ own.by) >= own.width ? lane : first + (place ^ own.by); break;
        }
        if (!(mask >> source & 1)) {
            throw Failure("a shuffle at " + name_of(own.place) + " reads lane " + std::to_string(source) +
                          ", which its mask leaves out");
        }
        own.result = static_cast<ShuffleOperand*>(operands[source])->value;
    }
}

void ballot(unsigned mask, void* const* operands) {
    unsigned votes = 0;
    for (int lane = 0; lane < 32; lane++) {
        if (mask >> lane & 1) votes |= unsigned(static_cast<VoteOperand*>(operands[lane])->vote) << lane;
    }
    for (int lane = 0; lane < 32; lane++) {
        if (mask >> lane & 1) static_cast<VoteOperand*>(operands[lane])->result = votes;
    }
}

unsigned ballot(unsigned mask, bool vote, Place place) {
    VoteOperand operand{vote, 0};
    meet(mask, "a vote", place, &ballot, &operand);
    return operand.result;
}

namespace {

float number(uint16_t bits, Numbers numbers) {
    if (numbers == Numbers::Brain) return emulated_bits<float>(uint32_t(bits) << 16);
    __half_raw raw;
    raw.x = bits;
    return __half2float(__half(raw));
}

void check_all(unsigned mask) {
    if (mask != 0xffffffffu) throw Failure("a matrix product by some lanes of a warp only");
}

}  // namespace

void multiply_floats(unsigned mask, void* const* operands) {
    check_all(mask);
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const auto& operand = *static_cast<FloatProduct*>(operands[lane]);
        const int row = lane / 4, pair = lane % 4 * 2;
        for (int part = 0; part < 4; part++) {
            for (int i = 0; i < 2; i++) {
                a[row + part % 2 * 8][pair + part / 2 * 8 + i] = number(uint16_t(operand.a[part] >> 16 * i), operand.numbers);
            }
        }
        for (int part = 0; part < 2; part++) {
            for (int i = 0; i < 2; i++) b[pair + part * 8 + i][row] = number(uint16_t(operand.b[part] >> 16 * i), operand.numbers);
        }
    }
    float sums[16][8] = {};
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < 16; k++) {
            for (int column = 0; column < 8; column++) sums[row][column] += a[row][k] * b[k][column];
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        float* own = static_cast<FloatProduct*>(operands[lane])->sums;
        for (int i = 0; i < 4; i++) own[i] += sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    }
}

void multiply_integers(unsigned mask, void* const* operands) {
    check_all(mask);
    const int depth = static_cast<IntegerProduct*>(operands[0])->depth, words = depth / 16;
    int a[16][32], b[32][8];
    for (int lane = 0; lane < 32; lane++) {
        const auto& operand = *static_cast<IntegerProduct*>(operands[lane]);
        const int row = lane / 4, four = lane % 4 * 4;
        for (int word = 0; word < words; word++) {
            for (int i = 0; i < 4; i++) {
                a[row][four + word * 16 + i] = uint8_t(operand.a[word * 2] >> 8 * i);
                a[row + 8][four + word * 16 + i] = uint8_t(operand.a[word * 2 + 1] >> 8 * i);
                b[four + word * 16 + i][row] = int8_t(operand.b[word] >> 8 * i);
            }
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        int* own = static_cast<IntegerProduct*>(operands[lane])->sums;
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            for (int k = 0; k < depth; k++) own[i] += a[row][k] * b[k][column];
        }
    }
}

}  // namespace emulate
