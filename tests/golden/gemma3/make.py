"""Greedy continuations of Gemma 3 270M (base model, Q4_K_M GGUF) by llama.cpp, and what a float32 model says on the way.

    python make.py gemma-3-270m-q4_k_m.gguf     (llama-cpp-python, gguf, torch, transformers; versions in greedy.json)

Of the candidates below, the 18 prompts whose float32 continuation has the largest smallest margin between first and second
choice: chosen by the float32 model alone, before llama.cpp has run, so text that arithmetic should not change. Two long ones
are taken as they are: one of more tokens than the sliding window (512), one of about 4 000.

For each prompt: its token ids (the beginning token included), and llama.cpp's greedy continuation (its default context settings,
one thread; an end token is kept and ends it). For every position of a continuation: the 20 largest logits of the float32
reference, which runs the dequantised weights in transformers on llama.cpp's own path, and llama.cpp's logits of the same 20 ids.
Where another engine parts from llama.cpp, these say which of the two is closer.
"""

import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import torch
import transformers

NEW_TOKENS = 24
TOP = 20
CHOSEN = 18
# Margins that 8-bit activations often turn over; no use in looking further.
UNDECIDED = 0.3

CANDIDATES = [
    "1 2 3 4 5 6 7 8 9 10 11 12", "1, 2, 3, 4, 5, 6, 7, 8,", "2, 4, 6, 8, 10, 12, 14,", "5, 10, 15, 20, 25, 30,",
    "10, 20, 30, 40, 50,", "100, 200, 300, 400, 500,", "0, 1, 0, 1, 0, 1, 0,", "A, B, C, D, E, F, G,", "a b c d e f g h i j",
    "Monday, Tuesday, Wednesday,", "January, February, March,", "red blue red blue red blue red",
    "north south east west north south east west north",
    "The cat sat on the mat. The cat sat on the mat. The cat sat on the mat. The cat",
    "1 + 1 = 2\n2 + 2 = 4\n3 + 3 = 6\n4 + 4 = 8\n5 + 5 =", "2 x 1 = 2\n2 x 2 = 4\n2 x 3 = 6\n2 x 4 =",
    "line 1\nline 2\nline 3\nline 4\n", "x = 1\nx = 2\nx = 3\nx = 4\n", "<li>one</li>\n<li>two</li>\n<li>three</li>\n",
    '{"id": 1, "ok": true}\n{"id": 2, "ok": true}\n{"id": 3, "ok": true}\n',
    "for i in range(10):\n    print(i)\n\nfor i in range(20):\n    print(i)\n\nfor i in range(30):\n",
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n",
    "Mary had a little lamb,", "To be, or not to be, that is", "Four score and seven years ago our fathers",
    "import numpy as np\nimport pandas as pd\nimport", "yes no yes no yes no yes no", "ha ha ha ha ha ha ha",
    "Step 1: Open.\nStep 2: Close.\nStep 3: Open.\nStep 4: Close.\nStep 5:", "aa bb cc aa bb cc aa bb cc aa",
    "eins zwei drei vier fünf sechs", "un deux trois quatre cinq six", "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n| 5 |",
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is",
]
NAMES = ["Ada", "Ben", "Cleo", "Dov", "Eva", "Finn", "Gus", "Hana"]
THINGS = ["a red lamp", "two keys", "some bread", "an old map", "a green coat"]


def long_text(sentences):
    """Facts one after another, the first of which is asked for again at the end."""
    facts = [f"{NAMES[i % 8]} number {i} has {THINGS[i % 5]} in room {(7 * i) % 100}." for i in range(sentences)]
    return " ".join(facts) + " Once more from the start: " + " ".join(facts[:2]) + " Ada"


class LlamaCpp:
    """llama.cpp through its C interface, one request at a time."""

    def __init__(self, path):
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
        context.n_ctx, context.n_batch, context.n_threads, context.n_threads_batch = 5120, 5120, 1, 1
        self.context = llama_cpp.llama_init_from_model(self.model, context)

    def tokenize(self, text):
        data = text.encode()
        ids = (llama_cpp.llama_token * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, data, len(data), ids, len(ids), True, False)
        return list(ids[:count])

    def ends(self, token):
        return llama_cpp.llama_vocab_is_eog(self.vocab, token)

    def step(self, tokens):
        ids = (llama_cpp.llama_token * len(tokens))(*tokens)
        assert llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(ids, len(tokens))) == 0
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, -1), (self.size,)).copy()

    def greedy(self, prompt):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        tokens, logits, step = [], [], prompt
        while len(tokens) < NEW_TOKENS:
            logits.append(self.step(step))
            tokens.append(int(logits[-1].argmax()))
            if self.ends(tokens[-1]):
                break
            step = tokens[-1:]
        return tokens, logits


def reference(path):
    """transformers in float32 on the dequantised weights of a gemma3 GGUF file."""
    reader = gguf.GGUFReader(path)
    field = lambda key: reader.fields[f"gemma3.{key}"].contents()
    shape = {tensor.name: tensor.shape for tensor in reader.tensors}
    config = transformers.Gemma3TextConfig(
        vocab_size=int(shape["token_embd.weight"][1]), hidden_size=field("embedding_length"),
        intermediate_size=field("feed_forward_length"), num_hidden_layers=field("block_count"),
        num_attention_heads=field("attention.head_count"), num_key_value_heads=field("attention.head_count_kv"),
        head_dim=field("attention.key_length"), query_pre_attn_scalar=field("attention.key_length"),
        sliding_window=field("attention.sliding_window"), max_position_embeddings=field("context_length"),
        rms_norm_eps=field("attention.layer_norm_rms_epsilon"), rope_theta=field("rope.freq_base"),
        rope_local_base_freq=10000.0, tie_word_embeddings=True)
    print(config)
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_norm": "input_layernorm",
             "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_output": "self_attn.o_proj",
             "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
             "post_ffw_norm": "post_feedforward_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj"}
    state = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        part = tensor.name.split(".")[-2]
        layer = f"model.layers.{tensor.name.split('.')[1]}." if tensor.name.startswith("blk.") else ""
        # GGUF holds 1 + w of every norm.
        state[f"{layer}{names[part]}.weight"] = torch.from_numpy(values - 1 if part.endswith("norm") else values)
    model = transformers.Gemma3ForCausalLM(config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected, (missing, unexpected)
    model.tie_weights()
    return model.eval()


@torch.no_grad()
def smallest_margin(peer, model, prompt):
    """Between the two largest logits, over the model's own greedy continuation."""
    ids, past, margins = torch.tensor([prompt]), None, []
    for _ in range(NEW_TOKENS):
        out = model(ids, past_key_values=past, use_cache=True, logits_to_keep=1)
        past, top = out.past_key_values, out.logits[0, -1].topk(2)
        margins.append(float(top.values[0] - top.values[1]))
        ids = top.indices[:1][None]
        if peer.ends(int(ids)) or margins[-1] < UNDECIDED:
            break
    # A continuation that ends at once says little.
    return min(margins) if len(margins) >= 8 else -1.0


def digits(value):
    return round(float(value), 4)


@torch.no_grad()
def record(peer, model, text, prompt):
    continuation, peer_logits = peer.greedy(prompt)
    ids = torch.tensor([prompt + continuation[:-1]])
    exact = model(ids, logits_to_keep=len(continuation)).logits[0].numpy()
    steps = []
    for ours, theirs in zip(exact, peer_logits, strict=True):
        top = np.argsort(-ours, kind="stable")[:TOP]
        steps.append({"ids": top.tolist(), "reference": [digits(ours[i]) for i in top],
                      "llama_cpp": [digits(theirs[i]) for i in top]})
    same = sum(step["ids"][0] == token for step, token in zip(steps, continuation))
    distance = np.mean([np.sqrt(np.mean((np.array(s["reference"]) - s["llama_cpp"]) ** 2)) for s in steps])
    print(f"{text[:40]!r}: {len(prompt)} + {len(continuation)} tokens, reference agrees on {same}, distance {distance:.4f}", flush=True)
    return {"text": text, "prompt": prompt, "continuation": continuation, "steps": steps}


def main(path):
    torch.set_num_threads(2)
    peer = LlamaCpp(path)
    model = reference(path)
    prompts = [(text, peer.tokenize(text)) for text in CANDIDATES]
    margins = [smallest_margin(peer, model, prompt) for _, prompt in prompts]
    chosen = sorted(sorted(range(len(prompts)), key=lambda i: -margins[i])[:CHOSEN])
    print("margins", [round(margins[i], 2) for i in chosen], flush=True)
    long = [(text, peer.tokenize(text)) for text in [long_text(50), long_text(270)]]
    made = {
        "weights_sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest(),
        "made_with": {name: version(name) for name in ["llama_cpp_python", "torch", "transformers", "gguf"]},
        "cases": [record(peer, model, text, prompt) for text, prompt in [prompts[i] for i in chosen] + long],
    }
    Path(__file__).with_name("greedy.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
