"""Perplexity of real weights on text.txt, by llama.cpp and by a float32 model of the same weights.

    python make.py smollm2 SmolLM2-135M-Instruct.Q4_1.gguf     (llama-cpp-python, gguf, torch, transformers, jinja2)
    python make.py gemma3 gemma-3-270m-q4_k_m.gguf

text.txt is prose and code of this project, frozen. SmolLM2 reads its first 20 480 tokens in 20 windows of 1024, each read from
nothing. Gemma 3 reads as many whole windows as there are, each a beginning token and the next 1023 of the text: without a
beginning it was never trained. Every token but a window's first is predicted. Kept for each window: the sum of −ln p by both.
Kept for some positions: the 20 largest float32 logits and llama.cpp's logits of the same ids. SmolLM2's tokens are kept too; of
Gemma 3's only their sum, to check who cuts the text into tokens again.
"""

import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import llama_cpp
import numpy as np
import torch

HERE = Path(__file__).parent
WINDOW = 1024
# Rows of logits at once: of Gemma 3 a whole window would be a gigabyte.
ROWS = 64

sys.path.insert(0, str(HERE.parent))
import greedy


@dataclass
class Kind:
    begins: bool
    windows: int | None  # None: all there are
    every: int  # one position of so many is kept
    keeps_tokens: bool


KINDS = {"smollm2": Kind(False, 20, 256, True), "gemma3": Kind(True, None, 256, False)}


def load_reference(name, path):
    """The loader that the model's own golden vectors are made with."""
    spec = importlib.util.spec_from_file_location(f"{name}_make", HERE.parent / name / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    loaded = module.reference(path)
    return loaded[0] if isinstance(loaded, tuple) else loaded


def nats(logits, targets):
    """Sum of −ln p, in float64."""
    logits = torch.from_numpy(logits).double()
    chosen = logits[torch.arange(len(targets)), torch.tensor(targets)]
    return float((logits.logsumexp(dim=1) - chosen).sum())


@torch.no_grad()
def reference_logits(model, tokens):
    hidden = model.model(torch.tensor([tokens])).last_hidden_state[0]
    for start in range(0, len(tokens), ROWS):
        yield model.lm_head(hidden[start : start + ROWS]).numpy()


def peer_logits(peer, tokens):
    """All logits of one window, read in batches of the default size."""
    peer.clear()
    for start in range(0, len(tokens), 512):
        part = tokens[start : start + 512]
        batch = llama_cpp.llama_batch_init(len(part), 0, 1)
        batch.n_tokens = len(part)
        for index, token in enumerate(part):
            batch.token[index], batch.pos[index] = token, start + index
            batch.n_seq_id[index], batch.seq_id[index][0], batch.logits[index] = 1, 0, True
        assert llama_cpp.llama_decode(peer.context, batch) == 0
        row = lambda index: np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(peer.context, index), (peer.size,))
        for first in range(0, len(part), ROWS):
            yield np.stack([row(index) for index in range(first, min(first + ROWS, len(part)))])
        llama_cpp.llama_batch_free(batch)


def read(parts, tokens, every):
    """The window's −ln p, and its logits at the kept positions."""
    total, kept, position = 0.0, {}, 0
    for logits in parts:
        targets = tokens[position + 1 : position + 1 + len(logits)]
        total += nats(logits[: len(targets)], targets)
        kept |= {position + row: logits[row].copy() for row in range(len(logits)) if (position + row) % every == every - 1}
        position += len(logits)
    return total, kept


def cut(peer, kind):
    tokens = peer.tokenize((HERE / "text.txt").read_text())
    begin = peer.tokenize("", begin=True) if kind.begins else []
    length = WINDOW - len(begin)
    windows = [begin + tokens[start : start + length] for start in range(0, len(tokens) - length + 1, length)]
    assert kind.windows is None or len(windows) >= kind.windows, len(windows)
    return windows[: kind.windows]


def main(name, path):
    torch.set_num_threads(2)
    kind = KINDS[name]
    peer = greedy.LlamaCpp(path, WINDOW)
    model = load_reference(name, path)
    windows = []
    for tokens in cut(peer, kind):
        exact_nats, exact = read(reference_logits(model, tokens), tokens, kind.every)
        their_nats, theirs = read(peer_logits(peer, tokens), tokens, kind.every)
        steps = [{"position": position} | greedy.step(exact[position], theirs[position]) for position in exact]
        sums = {"reference": exact_nats, "llama_cpp": their_nats}
        print(len(windows), {peer: round(float(np.exp(sum / (len(tokens) - 1))), 4) for peer, sum in sums.items()}, flush=True)
        shown = {"tokens": tokens} if kind.keeps_tokens else {"token_sum": sum(tokens)}
        windows.append(shown | {"nats": sums, "steps": steps})
    made = greedy.made_with(path) | {"windows": windows}
    (HERE / f"{name}.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
