"""Makes the golden files of the tokenizer tests.

    python3 make.py SMOLLM2.gguf GEMMA3.gguf MINILM/tokenizer.json

SMOLLM2.gguf: SmolLM2-135M-Instruct, GEMMA3.gguf: Gemma 3 270M (any quantisation; only the vocabularies are read). Needs the packages tokenizers
(0.23), gguf and llama-cpp-python. Two references: the tokenizers library (Python build, whose pattern matcher is another
one than ours), given the pipeline that the model's own tokenizer.json has; and llama.cpp on the same GGUF file.

    texts.json           the texts of corpus.py
    smollm2.json         ids of every text under SmolLM2's whole vocabulary
    gemma3.json          the same for Gemma 3 (SentencePiece), by llama.cpp
    minilm.json          for all-MiniLM-L6-v2, a digest of the ids of each text with [CLS] and [SEP]
    pretokenizers.json   for each pre-tokenizer, a digest of the ids of each text under a vocabulary of byte pairs
"""

import hashlib
import json
import os
import sys
import tempfile

import gguf
import llama_cpp
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

import corpus

HERE = os.path.dirname(os.path.abspath(__file__))

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = QWEN2.replace(r"]?\p{L}+", r"]?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD = r"[^\r\n\p{L}\p{N}]?"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
TEKKEN = f"{LEAD}{UPPER}*{LOWER}+|{LEAD}{UPPER}+{LOWER}*" + r"|\p{N}" + REST
GPT4O = f"{LEAD}{UPPER}*{LOWER}+{SHORT}|{LEAD}{UPPER}+{LOWER}*{SHORT}" + r"|\p{N}{1,3}" + REST
DEEPSEEK3 = [
    r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]
DEEPSEEK_CODER = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}"]
FALCON = r"[\p{P}\$\+<=>\^~\|`]+"
BLOOM = " ?[^(\\s|.,!?…。，、।۔،)]+"
SEED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"

# name: (patterns, ignore_merges, NFC)
PRE = {
    "smollm": ([r"\p{N}", GPT2], False, False),
    "gpt-2": ([GPT2], False, False),
    "llama-bpe": ([LLAMA3], True, False),
    "dbrx": ([LLAMA3], False, False),
    "qwen2": ([QWEN2], False, True),
    "deepseek-r1-qwen": ([QWEN2], False, False),
    "qwen35": ([QWEN35], False, True),
    "tekken": ([TEKKEN], True, False),
    "gpt-4o": ([GPT4O], False, False),
    "deepseek-v3": (DEEPSEEK3, False, False),
    "deepseek-coder": (DEEPSEEK_CODER, False, False),
    "falcon": ([FALCON, GPT2, "[0-9][0-9][0-9]"], False, False),
    "default": ([FALCON.replace("`", ""), GPT2, r"\p{N}+", "[0-9][0-9][0-9]"], False, False),
    "seed-coder": ([SEED], False, False),
    "bailingmoe": ([BAILING], False, False),
    "bloom": ([BLOOM], False, False),
    "viking": ([BLOOM, r"\p{N}"], False, False),
}


def reference(tokens, types, merges, patterns, ignore_merges, compose):
    """The library's tokenizer for a byte-level vocabulary."""
    vocabulary = {text: index for index, text in reversed(list(enumerate(tokens)))}
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=ignore_merges))
    if compose:
        tokenizer.normalizer = normalizers.NFC()
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts + [byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    control = [text for text, kind in zip(tokens, types) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in control])
    return tokenizer


def smollm2_reference(tokens, types, merges):
    """The pipeline of SmolLM2's tokenizer.json: single digits, then GPT-2's byte-level splitter."""
    tokenizer = reference(tokens, types, merges, [], False, False)
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return tokenizer


class Llama:
    """llama.cpp's tokenizer of a GGUF file."""

    def __init__(self, path):
        self.model = llama_cpp.Llama(path, vocab_only=True, verbose=False)

    def ids(self, text, parse):
        return self.model.tokenize(text.encode(), add_bos=False, special=parse)


def read(path):
    fields = gguf.GGUFReader(path).fields
    keys = ["tokens", "token_type", "merges"]
    return [fields[f"tokenizer.ggml.{key}"].contents() if f"tokenizer.ggml.{key}" in fields else [] for key in keys]


def write_vocabulary(path, pre, tokens, types, merges):
    """A GGUF file with a vocabulary and no tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    for add, value in [
        (writer.add_block_count, 1), (writer.add_context_length, 64), (writer.add_embedding_length, 32),
        (writer.add_feed_forward_length, 32), (writer.add_head_count, 1), (writer.add_layer_norm_rms_eps, 1e-5),
    ]:
        add(value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def save(name, value):
    path = os.path.join(HERE, name)
    with open(path, "w") as file:
        json.dump(value, file, ensure_ascii=True, separators=(",", ":"))
        file.write("\n")
    print(f"{name}: {os.path.getsize(path)} bytes")


def both(theirs, llama, texts, parse):
    """Reference ids, and the indices where llama.cpp differs."""
    theirs.encode_special_tokens = not parse
    ids = [theirs.encode(text, add_special_tokens=False).ids for text in texts]
    differs = [index for index, text in enumerate(texts) if llama.ids(text, parse) != ids[index]]
    for index in differs:
        print(f"  llama.cpp differs on {texts[index]!r}")
    return ids, differs


def make_smollm2(path, texts):
    tokens, types, merges = read(path)
    theirs, llama = smollm2_reference(tokens, types, merges), Llama(path)
    parsed, parsed_differs = both(theirs, llama, texts, True)
    literal, literal_differs = both(theirs, llama, texts, False)
    save("smollm2.json", {
        "about": "made by make.py from the vocabulary of SmolLM2-135M-Instruct (Apache-2.0)",
        "parsed": parsed, "literal": {i: ids for i, ids in enumerate(literal) if ids != parsed[i]},
        "llama_cpp_differs": sorted(set(parsed_differs + literal_differs)),
    })


def make_gemma3(path, texts):
    llama = Llama(path)
    save("gemma3.json", {
        "about": "made by make.py: llama.cpp on the vocabulary of Gemma 3",
        "parsed": [llama.ids(text, True) for text in texts],
    })


def make_minilm(path, texts):
    theirs = Tokenizer.from_file(path)
    theirs.no_padding()
    theirs.no_truncation()
    save("minilm.json", {
        "about": "made by make.py: the tokenizers library on all-MiniLM-L6-v2's tokenizer.json",
        "digests": " ".join(digest(theirs.encode(text).ids) for text in texts),
    })


def pair_vocabulary():
    """Two control tokens, all bytes, all pairs of bytes, and two words that no merge makes.

    The order of the merges is drawn, so that which bytes pair up depends on where words end: a word border inside a
    would-be pair shows in the ids. `tests/golden_tokenizer.rs` draws the same order.
    """
    letters = [character_of(byte) for byte in range(256)]
    pairs = [(left, right) for left in letters for right in letters]
    generator = corpus.Generator(1)
    for last in range(len(pairs) - 1, 0, -1):
        other = generator.below(last + 1)
        pairs[last], pairs[other] = pairs[other], pairs[last]
    tokens = ["<|start|>", "<|end|>"] + letters + [left + right for left, right in pairs] + ["Hello", "Ġquick"]
    return tokens, [3, 3] + [1] * (len(tokens) - 2), [f"{left} {right}" for left, right in pairs]


def character_of(byte):
    """GPT-2's table of printable characters for bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [other for other in range(256) if other not in printable]
    return chr(byte) if byte in printable else chr(0x100 + others.index(byte))


def digest(ids):
    return hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()[:8]


def make_pretokenizers(texts):
    tokens, types, merges = pair_vocabulary()
    golden = {}
    for name, (patterns, ignore_merges, compose) in PRE.items():
        theirs = reference(tokens, types, merges, patterns, ignore_merges, compose)
        with tempfile.TemporaryDirectory() as folder:
            small = os.path.join(folder, "small.gguf")
            write_vocabulary(small, name, tokens, types, merges)
            print(name)
            ids, differs = both(theirs, Llama(small), texts, True)
        print(f"{name}: llama.cpp differs on {len(differs)} of {len(texts)}")
        golden[name] = {"digests": " ".join(digest(row) for row in ids), "llama_cpp_differs": differs}
    save("pretokenizers.json", {
        "about": "made by make.py", "pre": golden,
    })


def main():
    smollm2, gemma3, minilm = sys.argv[1:]
    texts = corpus.texts()
    save("texts.json", texts)
    make_smollm2(smollm2, texts)
    make_gemma3(gemma3, texts)
    make_minilm(minilm, texts)
    make_pretokenizers(texts)


if __name__ == "__main__":
    main()
