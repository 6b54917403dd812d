"""Perplexity of SmolLM2-135M-Instruct (Q4_1 GGUF) on text.txt, by llama.cpp and by a float32 model of the same weights.

    python make.py SmolLM2-135M-Instruct.Q4_1.gguf     (llama-cpp-python, gguf, torch, transformers, jinja2)

text.txt is prose and code of this project, frozen. Its first 20 480 tokens are cut into 20 windows of 1024, each read from
nothing; every token but a window's first is predicted. Kept for each window: the sum of −ln p by both. Kept for every 64th
position: the 20 largest float32 logits and llama.cpp's logits of the same ids.
"""

import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np
import torch

HERE = Path(__file__).parent
WINDOWS, WINDOW, EVERY = 20, 1024, 64

sys.path[:0] = [str(HERE.parent), str(HERE.parent / "smollm2")]
import greedy
from make import reference


def nats(logits, targets):
    """Sum of −ln p, in float64."""
    logits = logits.astype(np.float64)
    largest = logits.max(axis=1, keepdims=True)
    norms = np.log(np.exp(logits - largest).sum(axis=1)) + largest[:, 0]
    return float((norms - logits[np.arange(len(targets)), targets]).sum())


def peer_logits(peer, tokens):
    """All logits of one window, read in one batch of the default size."""
    peer.clear()
    rows = []
    for start in range(0, len(tokens), 512):
        part = tokens[start : start + 512]
        batch = llama_cpp.llama_batch_init(len(part), 0, 1)
        batch.n_tokens = len(part)
        for index, token in enumerate(part):
            batch.token[index], batch.pos[index] = token, start + index
            batch.n_seq_id[index], batch.seq_id[index][0], batch.logits[index] = 1, 0, True
        assert llama_cpp.llama_decode(peer.context, batch) == 0
        for index in range(len(part)):
            row = llama_cpp.llama_get_logits_ith(peer.context, index)
            rows.append(np.ctypeslib.as_array(row, (peer.size,)).copy())
        llama_cpp.llama_batch_free(batch)
    return np.stack(rows)


def main(path):
    torch.set_num_threads(2)
    peer = greedy.LlamaCpp(path, WINDOW)
    model, _ = reference(path)
    tokens = peer.tokenize((HERE / "text.txt").read_text())[: WINDOWS * WINDOW]
    assert len(tokens) == WINDOWS * WINDOW, len(tokens)
    windows = []
    for start in range(0, len(tokens), WINDOW):
        window = tokens[start : start + WINDOW]
        with torch.no_grad():
            exact = model(torch.tensor([window])).logits[0].numpy()
        theirs = peer_logits(peer, window)
        kept = range(EVERY - 1, WINDOW, EVERY)
        steps = [{"position": position} | greedy.step(exact[position], theirs[position]) for position in kept]
        targets = window[1:]
        sums = {"reference": nats(exact[:-1], targets), "llama_cpp": nats(theirs[:-1], targets)}
        print(start // WINDOW, {name: round(float(np.exp(value / len(targets))), 4) for name, value in sums.items()}, flush=True)
        windows.append({"tokens": window, "nats": sums, "steps": steps})
    made = greedy.made_with(path) | {"windows": windows}
    (HERE / "smollm2.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
