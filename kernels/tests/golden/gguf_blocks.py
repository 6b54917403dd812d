"""Digests of what the gguf package reads from drawn blocks of every format, and of what it writes for drawn numbers.

    python gguf_blocks.py     (gguf 0.19.0, numpy; prints the tables of tests/gguf_blocks.rs)
"""

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

MASK = (1 << 64) - 1
HALVES = [0x3000, 0x8C00, 0x0001, 0x7BFF, 0x0000]
# Where a block keeps its f16 factors.
FACTORS = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
           T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: []}


def mixed(seed, index):
    bits = (seed * 0x9E3779B97F4A7C15 + index * 0xD1B54A32D192ED03) & MASK
    for shift in [30, 27, 31]:
        bits = ((bits ^ (bits >> shift)) * 0x94D049BB133111EB) & MASK
    return bits


def digest(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def main():
    for seed, (kind, places) in enumerate(FACTORS.items()):
        _, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = np.array([mixed(seed, index) >> 56 for index in range(5 * size)], dtype=np.uint8).reshape(5, size)
        for block, half in zip(blocks, HALVES):
            for place in places:
                block[place : place + 2] = [half & 255, half >> 8]
        values = gguf.quants.dequantize(blocks.reshape(1, -1), kind).astype(np.float32).flatten() + np.float32(0)
        print(f"    (Format::{kind.name.replace('_K', 'K')}, &{places}, {digest(values.tobytes()):#018x}),")
    numbers = np.array([(mixed(90, index) >> 11) / (1 << 53) * 2 - 1 for index in range(4096)]).astype(np.float32)
    numbers[:32] = 0
    numbers[32:64] = 1e-9
    numbers[64:96] = np.linspace(-3, 3, 32)
    for kind in [T.Q8_0, T.Q4_0]:
        print(f"    (Format::{kind.name}, {digest(gguf.quants.quantize(numbers.reshape(1, -1), kind).tobytes()):#018x}),")


main()
