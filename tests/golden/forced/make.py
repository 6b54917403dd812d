"""Log-probabilities of given continuations under SmolLM2-135M-Instruct (Q4_1 GGUF), by a float32 model and by llama.cpp.

    python make.py SmolLM2-135M-Instruct.Q4_1.gguf     (llama-cpp-python, gguf, torch, transformers, jinja2)

smollm2.json: text of the prompt (control tokens written out), the continuation and its tokens, and ln p of each of them: by
transformers in float32 on the dequantised weights, and by llama.cpp with its default settings on one thread. Likely and
unlikely continuations, one after a demonstration, and one longer than a step's share of logits.
"""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import greedy

spec = importlib.util.spec_from_file_location("smollm2_make", HERE.parent / "smollm2" / "make.py")
smollm2 = importlib.util.module_from_spec(spec)
spec.loader.exec_module(smollm2)

ask = lambda text: f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
tell = lambda text: f"{text}<|im_end|>\n"
COUNT = ", ".join(str(number) for number in range(1, 60))
CASES = [
    (ask("What is the capital of France?"), "The capital of France is Paris."),
    (ask("What is the capital of France?"), "Green ideas sleep furiously."),
    (ask("Reverse the word: stone"), "enots"),
    (ask("Reverse the word: apple") + tell("elppa") + ask("Reverse the word: stone"), "enots"),
    (ask("Write a Python function that adds two numbers."), "```python\ndef add(a, b):\n    return a + b\n```"),
    (ask("Count from 1 to 60."), COUNT),
]


def logprobs(rows, targets):
    rows = torch.from_numpy(np.stack(rows)).double()
    chosen = rows[torch.arange(len(targets)), torch.tensor(targets)]
    return [round(value, 5) for value in (chosen - rows.logsumexp(dim=1)).tolist()]


@torch.no_grad()
def main(path):
    torch.set_num_threads(2)
    peer = greedy.LlamaCpp(path, 1024)
    model, _ = smollm2.reference(path)
    cases = []
    for prompt, continuation in CASES:
        before, after = peer.tokenize(prompt, specials=True), peer.tokenize(continuation)
        exact = model(torch.tensor([before + after[:-1]])).logits[0, len(before) - 1 :].numpy()
        peer.clear()
        theirs = [peer.step(part) for part in [before] + [[token] for token in after[:-1]]]
        case = {"prompt": prompt, "continuation": continuation, "tokens": after}
        case |= {"reference": logprobs(list(exact), after), "llama_cpp": logprobs(theirs, after)}
        mean = lambda key: round(sum(case[key]) / len(after), 4)
        print(len(after), mean("reference"), mean("llama_cpp"), repr(continuation[:40]), flush=True)
        cases.append(case)
    made = greedy.made_with(path) | {"cases": cases}
    (HERE / "smollm2.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
