"""all-MiniLM-L6-v2 in sentence-transformers: tokenising, encoding, mean pooling, normalising."""

import time
from importlib.metadata import version

import torch
from sentence_transformers import SentenceTransformer

from shapes import SENTENCE_TOKENS, sentences


def describe():
    return f"sentence-transformers {version('sentence-transformers')}, torch {version('torch')}"


class Model:
    def __init__(self, folder, threads):
        torch.set_num_threads(threads)
        self.model = SentenceTransformer(str(folder), device="cpu")


class Embed:
    def __init__(self, model, count):
        self.model = model.model
        tokenizer = self.model.tokenizer
        self.texts = sentences(tokenizer.get_vocab(), tokenizer.num_special_tokens_to_add(), count)
        lengths = {len(tokenizer(text)["input_ids"]) for text in self.texts}
        assert lengths == {SENTENCE_TOKENS}, lengths

    def close(self):
        pass

    def rate(self):
        started = time.perf_counter()
        self.model.encode(
            self.texts, batch_size=len(self.texts), normalize_embeddings=True, show_progress_bar=False
        )
        return len(self.texts) / (time.perf_counter() - started)


def workloads(model):
    return {"embed-32": lambda: Embed(model, 32), "embed-128": lambda: Embed(model, 128)}
