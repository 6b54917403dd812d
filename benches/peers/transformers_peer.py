"""transformers in float32 on the dequantised weights of a GGUF file: plain PyTorch, the fastest of many a CPU's prefills."""

import sys
import time
from importlib.metadata import version
from pathlib import Path

import torch

from shapes import tokens

# The loader that the golden vectors are made with.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "golden" / "smollm2"))
from make import reference


def describe():
    return f"transformers {version('transformers')}, torch {version('torch')}"


class Model:
    def __init__(self, path, threads):
        torch.set_num_threads(threads)
        self.model, _ = reference(str(path))


class Prefill:
    def __init__(self, model, length):
        self.model = model.model
        self.prompt = torch.tensor([tokens(1, length, self.model.config.vocab_size)])

    def close(self):
        pass

    @torch.inference_mode()
    def rate(self):
        started = time.perf_counter()
        hidden = self.model.model(self.prompt, use_cache=True).last_hidden_state
        # The head for the last token alone, as generation needs it.
        self.model.lm_head(hidden[:, -1]).argmax().item()
        return self.prompt.shape[1] / (time.perf_counter() - started)


def workloads(model):
    return {"prefill-512": lambda: Prefill(model, 512), "prefill-2048": lambda: Prefill(model, 2048)}
