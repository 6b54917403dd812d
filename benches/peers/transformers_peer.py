"""transformers in float32 on the dequantised weights of a GGUF file: plain PyTorch, the fastest of many a CPU's prefills."""

import contextlib
import importlib.util
import sys
import time
from importlib.metadata import version
from pathlib import Path

import torch

from shapes import tokens

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"


def describe():
    return f"transformers {version('transformers')}, torch {version('torch')}"


def reference(family, path):
    """The model by the loader that its golden vectors are made with."""
    spec = importlib.util.spec_from_file_location(f"{family}_make", GOLDEN / family / "make.py")
    module = importlib.util.module_from_spec(spec)
    # stdout is the table's.
    with contextlib.redirect_stdout(sys.stderr):
        spec.loader.exec_module(module)
        loaded = module.reference(str(path))
    return loaded[0] if isinstance(loaded, tuple) else loaded


class Model:
    def __init__(self, family, path, threads):
        torch.set_num_threads(threads)
        self.model = reference(family, path)


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
