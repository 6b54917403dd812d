"""Embeddings of 50 texts by sentence-transformers with all-MiniLM-L6-v2 in float32.

    python make.py FOLDER_OF_ALL_MINILM_L6_V2      (sentence-transformers, torch)

Each text alone, and all in one batch (padded and masked there); the file holds the vectors of the texts alone and the
smallest cosine between the two ways. Texts cover one word to beyond the model's 256 tokens, code, digits, other scripts,
accents, emoji, control and white-space characters. Token ids are stored too, so that an encoder can be tested without a
tokenizer.
"""

import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

TEXTS = [
    "cat", "A cat sat on the mat.", "The feline rested upon the rug.", "Stock markets fell sharply on Monday.",
    "def add(a, b):\n    return a + b", "SELECT COUNT(*) FROM users WHERE age > 30;", "", " ", "?", "!!!",
    "3.14159265358979", "2 + 2 = 4", "The quick brown fox jumps over the lazy dog.",
    "How do I reverse a linked list in Python?", "Reverse a singly linked list.", "Paris is the capital of France.",
    "Paris est la capitale de la France.", "巴黎是法国的首都。", "パリはフランスの首都です。", "파리는 프랑스의 수도이다.",
    "Париж — столица Франции.", "باريس هي عاصمة فرنسا.", "פריז היא בירת צרפת.", "पेरिस फ्रांस की राजधानी है।",
    "naïve café déjà vu Ångström", "STRASSE Straße ß İstanbul", "😀 😃 emoji and text 🚀", "a\tb\nc\r\nd", "zero\u200bwidth\u00a0space",
    "null\u0000byte and \u0007 bell", "[CLS] special [SEP] tokens [MASK]", "http://example.com/path?query=1&x=%20",
    "user@example.com", "C:\\Windows\\System32", "{\"key\": [1, 2, {\"nested\": true}]}", "<div class=\"x\">text</div>",
    "pneumonoultramicroscopicsilicovolcanoconiosis", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "x" * 150, "one two three " * 20, "An agent learns from experience and forgets what it does not use. " * 12,
    "long text beyond the limit of the model, cut there by its tokenizer; " * 40,
    "To be, or not to be, that is the question.", "Cosine similarity compares directions.",
    "The mitochondrion is the powerhouse of the cell.", "What year did the war end?", "It ended in 1945.",
    "don't can't won't it's", "e = mc²; ∑ᵢ xᵢ ≤ ∞", "word-with-hyphens under_scores CamelCase",
]


def main(folder):
    assert len(TEXTS) == len(set(TEXTS)) == 50
    model = SentenceTransformer(folder, device="cpu")
    alone = np.stack([model.encode([text])[0] for text in TEXTS])
    batch = model.encode(TEXTS, batch_size=len(TEXTS))
    made = {
        "weights_sha256": hashlib.sha256((Path(folder) / "model.safetensors").read_bytes()).hexdigest(),
        "made_with": {name: version(name) for name in ["sentence-transformers", "transformers", "torch", "tokenizers"]},
        "max_tokens": model.max_seq_length,
        "smallest_cosine_alone_to_batch": round(float((alone * batch).sum(1).min()), 7),
        "texts": TEXTS,
        "tokens": [model.tokenize([text])["input_ids"][0].tolist() for text in TEXTS],
        "embeddings": [[round(float(x), 6) for x in row] for row in alone],
    }
    print(made["max_tokens"], made["smallest_cosine_alone_to_batch"], [len(t) for t in made["tokens"]])
    Path(__file__).with_name("embeddings.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
