"""The shapes of `lifelong bench` (src/bench/workload.rs), for programs that are asked to do the same."""

import random
from dataclasses import dataclass

DEPTH = 512
DEMONSTRATION_TOKENS = 400
TARGET_TOKENS = 150
SENTENCE_TOKENS = 63
TEMPERATURE = 0.8
TOP_P = 0.95


@dataclass(frozen=True)
class Matrix:
    demonstrations: int
    targets: int
    seeds: int
    new_tokens: int

    def tokens(self, demonstrations):
        """Generated tokens of that many demonstrations."""
        return demonstrations * self.targets * self.seeds * self.new_tokens


@dataclass(frozen=True)
class Scale:
    """How much of each workload; the same two as in the program."""

    is_quick: bool
    decode_tokens: int
    matrix: Matrix


FULL = Scale(False, 64, Matrix(8, 8, 5, 48))
QUICK = Scale(True, 16, Matrix(2, 4, 5, 16))


def tokens(seed, count, vocabulary):
    """Random but fixed token ids, above the control tokens."""
    draw = random.Random(seed)
    return [draw.randrange(vocabulary // 50, vocabulary) for _ in range(count)]


def sentences(vocabulary, frame, count):
    """Different sentences of whole words, each of SENTENCE_TOKENS tokens with a frame of `frame` tokens."""
    words = sorted(word for word in vocabulary if len(word) > 2 and word.isascii() and word.isalpha() and word.islower())
    draw = random.Random(7)
    return [" ".join(draw.choice(words) for _ in range(SENTENCE_TOKENS - frame)) for _ in range(count)]
