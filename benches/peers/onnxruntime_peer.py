"""An ONNX export of all-MiniLM-L6-v2 in onnxruntime, with the tokenizer of the model's folder."""

import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from shapes import SENTENCE_TOKENS, sentences


def describe():
    return f"onnxruntime {version('onnxruntime')}"


class Model:
    def __init__(self, path, folder, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.inputs = {entry.name for entry in self.session.get_inputs()}
        self.tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        # The file pads everything to 128, which would be twice the work.
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()


class Embed:
    def __init__(self, model, count):
        self.model = model
        frame = model.tokenizer.num_special_tokens_to_add(False)
        self.texts = sentences(model.tokenizer.get_vocab(), frame, count)

    def close(self):
        pass

    def rate(self):
        started = time.perf_counter()
        ids = np.array([encoding.ids for encoding in self.model.tokenizer.encode_batch(self.texts)], np.int64)
        assert ids.shape[1] == SENTENCE_TOKENS, ids.shape
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        hidden = self.model.session.run(None, {name: given[name] for name in self.model.inputs})[0]
        # Nothing is padded, so every token counts; an export that pools itself gives two dimensions.
        pooled = hidden.mean(axis=1) if hidden.ndim == 3 else hidden
        pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
        return len(self.texts) / (time.perf_counter() - started)


def workloads(model):
    return {"embed-32": lambda: Embed(model, 32), "embed-128": lambda: Embed(model, 128)}
