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

import json
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[1]))
import greedy

NEW_TOKENS = 24
CHOSEN = 18

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
def record(peer, model, text, prompt):
    continuation, peer_logits = peer.greedy(prompt, NEW_TOKENS)
    ids = torch.tensor([prompt + continuation[:-1]])
    exact = model(ids, logits_to_keep=len(continuation)).logits[0].numpy()
    steps = greedy.steps(exact, peer_logits)
    same = sum(step["ids"][0] == token for step, token in zip(steps, continuation))
    print(f"{text[:40]!r}: {len(prompt)} + {len(continuation)} tokens, reference agrees on {same}", flush=True)
    return {"text": text, "prompt": prompt, "continuation": continuation, "steps": steps}


def main(path):
    torch.set_num_threads(2)
    peer = greedy.LlamaCpp(path, 5120)
    model = reference(path)
    prompts = [(text, peer.tokenize(text, begin=True)) for text in CANDIDATES]
    margins = [greedy.smallest_margin(peer, model, prompt, NEW_TOKENS) for _, prompt in prompts]
    chosen = sorted(greedy.widest(margins, CHOSEN, range(len(prompts))))
    print("margins", [round(margins[i], 2) for i in chosen], flush=True)
    long = [(text, peer.tokenize(text, begin=True)) for text in [long_text(50), long_text(270)]]
    cases = [record(peer, model, text, prompt) for text, prompt in [prompts[i] for i in chosen] + long]
    text = json.dumps(greedy.made_with(path) | {"cases": cases}, separators=(",", ":"))
    Path(__file__).with_name("greedy.json").write_text(text + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
