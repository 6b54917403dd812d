// Random numbers that are functions of where they are drawn: Philox 4x32-10 (Salmon et al. 2011, section 3), as
// kernels/src/cpu/philox.rs has it.
#pragma once

#include "common.cuh"

DEVICE void philox(unsigned (&words)[4], unsigned long long key, unsigned long long position) {
    words[0] = unsigned(position);
    words[1] = unsigned(position >> 32);
    words[2] = words[3] = 0;
    unsigned keys[2] = {unsigned(key), unsigned(key >> 32)};
    for (int round = 0; round < 10; round++) {
        if (round > 0) {
            keys[0] += 0x9E3779B9u;
            keys[1] += 0xBB67AE85u;
        }
        const unsigned long long first = 0xD2511F53ull * words[0], second = 0xCD9E8D57ull * words[2];
        const unsigned next[4] = {unsigned(second >> 32) ^ words[1] ^ keys[0], unsigned(second),
                                  unsigned(first >> 32) ^ words[3] ^ keys[1], unsigned(first)};
        for (int i = 0; i < 4; i++) words[i] = next[i];
    }
}
