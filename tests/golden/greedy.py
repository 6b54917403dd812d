"""What the scripts of this folder share: llama.cpp's greedy text, and how it is kept beside a float32 model's logits."""

import hashlib
from importlib.metadata import version
from pathlib import Path

import llama_cpp
import numpy as np
import torch

TOP = 20
# Margins that 8-bit activations often turn over; no use in looking further.
UNDECIDED = 0.3


class LlamaCpp:
    """llama.cpp through its C interface on one thread, one request at a time."""

    def __init__(self, path, context_tokens):
        llama_cpp.llama_backend_init()
        self.silence = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.silence, None)
        model = llama_cpp.llama_model_default_params()
        model.n_gpu_layers = 0
        # The repacked buffers of this build crash on some processors; they change speed only.
        model.use_extra_bufts = False
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), model)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.size = llama_cpp.llama_vocab_n_tokens(self.vocab)
        context = llama_cpp.llama_context_default_params()
        context.n_ctx, context.n_batch = context_tokens, max(context_tokens, context.n_batch)
        context.n_threads, context.n_threads_batch = 1, 1
        self.context = llama_cpp.llama_init_from_model(self.model, context)

    def tokenize(self, text, begin=False, specials=False):
        data = text.encode()
        ids = (llama_cpp.llama_token * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, data, len(data), ids, len(ids), begin, specials)
        return list(ids[:count])

    def ends(self, token):
        return llama_cpp.llama_vocab_is_eog(self.vocab, token)

    def clear(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def step(self, tokens):
        ids = (llama_cpp.llama_token * len(tokens))(*tokens)
        assert llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(ids, len(tokens))) == 0
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, -1), (self.size,)).copy()

    def greedy(self, prompt, new_tokens):
        """Tokens, an end token included, and the logits each was chosen from."""
        self.clear()
        tokens, logits, step = [], [], prompt
        while len(tokens) < new_tokens:
            logits.append(self.step(step))
            tokens.append(int(logits[-1].argmax()))
            if self.ends(tokens[-1]):
                break
            step = tokens[-1:]
        return tokens, logits


@torch.no_grad()
def smallest_margin(peer, model, prompt, new_tokens):
    """Between the two largest logits, over the float32 model's own greedy continuation."""
    ids, past, margins = torch.tensor([prompt]), None, []
    for _ in range(new_tokens):
        out = model(ids, past_key_values=past, use_cache=True)
        past, top = out.past_key_values, out.logits[0, -1].topk(2)
        margins.append(float(top.values[0] - top.values[1]))
        ids = top.indices[:1][None]
        if peer.ends(int(ids)) or margins[-1] < UNDECIDED:
            break
    # A continuation that ends at once says little.
    return min(margins) if len(margins) >= 8 else -1.0


def widest(margins, count, among):
    """Of the indices `among`, those of the `count` largest margins."""
    return sorted(among, key=lambda index: -margins[index])[:count]


def step(exact, theirs):
    """The largest float32 logits of one position, and llama.cpp's of the same ids."""
    top = np.argsort(-exact, kind="stable")[:TOP]
    digits = lambda logits: [round(float(logits[i]), 4) for i in top]
    return {"ids": top.tolist(), "reference": digits(exact), "llama_cpp": digits(theirs)}


def steps(exact, theirs):
    return [step(*position) for position in zip(exact, theirs, strict=True)]


def made_with(path):
    return {
        "weights_sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest(),
        "made_with": {name: version(name) for name in ["llama_cpp_python", "torch", "transformers", "gguf"]},
    }
