"""Greedy continuations of SmolLM2-135M-Instruct (Q4_1 GGUF) by llama.cpp, and what a float32 model says on the way.

    python make.py SmolLM2-135M-Instruct.Q4_1.gguf     (llama-cpp-python, gguf, torch, transformers, jinja2)

Two sets of 20 prompts, 10 raw and 10 rendered with the file's chat template:

- open.json: ordinary prompts, taken as written. llama.cpp rounds activations to 8 bits, so on these it is its own noise that
  picks many a token: with flash attention off it repeats 9 of its own 20 continuations.
- decided.json: of a longer list, the prompts whose float32 continuation has the largest smallest margin between first and
  second choice. Chosen by the float32 model alone, before llama.cpp has run: text that arithmetic should not change.

For each prompt: token ids, and llama.cpp's greedy continuation of up to 32 tokens (its default context settings, one thread;
an end token is kept and ends it). For every position of a continuation: the 20 largest logits of the float32 reference, which
runs the dequantised weights in transformers on llama.cpp's own path, and llama.cpp's logits of the same 20 ids. Where another
engine parts from llama.cpp, these say which of the two is closer.
"""

import json
import sys
from pathlib import Path

import gguf
import jinja2
import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[1]))
import greedy

NEW_TOKENS = 32

RAW = [
    "The capital of France is",
    "Water boils at a temperature of",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "Once upon a time, in a village by the sea, there lived",
    "1, 1, 2, 3, 5, 8, 13,",
    "The three primary colours are red,",
    "Question: What is 17 + 25?\nAnswer:",
    "apple -> elppa\nstone -> enots\nriver ->",
    "In 1969, the first humans to walk on the Moon were",
    "SELECT name, COUNT(*) FROM orders WHERE",
]
CHAT = [
    "Write one sentence about the sea.",
    "What is the opposite of hot?",
    "List three uses of a brick.",
    "Sort these numbers from small to large: 9, 4, 17, 2.",
    "Explain in two sentences why the sky is blue.",
    "Translate 'good morning' into Spanish.",
    "Write a Python function that reverses a string.",
    "Is 91 a prime number? Answer yes or no, then explain.",
    "Give me a short recipe for pancakes.",
    "Tom has 3 boxes with 6 pens each. He gives away 5 pens. How many are left?",
]

DECIDED_RAW = [
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
]
DECIDED_CHAT = [
    "Count from 1 to 20.", "Count from 1 to 10.", "List the days of the week.", "List the months of the year.",
    "Write the letters of the alphabet.", "What is your name?", "Who are you?", "Say hello.", "What is the capital of France?",
    "What is the capital of Japan?", "Write a Python function that adds two numbers.", "Repeat this word five times: apple",
    "Continue this list: 1, 2, 3, 4, 5", "Continue: A, B, C, D, E", "List the numbers from 1 to 15, separated by commas.",
    "Write the even numbers from 2 to 20.", "Repeat after me: one two three four five six seven eight nine ten.",
    "Write 'hello' ten times.", "Count by tens to one hundred.", "What are the primary colours?",
    "Write a Python program that prints Hello, World!", "Copy this line: the quick brown fox jumps over the lazy dog",
    "List the planets of the solar system.", "Print the numbers 1 to 10, one on each line.", "What is 2 + 2?",
]


def reference(path):
    """transformers in float32 on the dequantised weights of a llama-architecture GGUF file, and its chat template."""
    reader = gguf.GGUFReader(path)
    field = lambda key: reader.fields[key].contents()
    config = transformers.LlamaConfig(
        vocab_size=field("llama.vocab_size"), hidden_size=field("llama.embedding_length"),
        intermediate_size=field("llama.feed_forward_length"), num_hidden_layers=field("llama.block_count"),
        num_attention_heads=field("llama.attention.head_count"), num_key_value_heads=field("llama.attention.head_count_kv"),
        max_position_embeddings=field("llama.context_length"), rms_norm_eps=field("llama.attention.layer_norm_rms_epsilon"),
        rope_theta=field("llama.rope.freq_base"), tie_word_embeddings=True)
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_norm": "input_layernorm",
             "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    state = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        part = tensor.name.split(".")[-2]
        if part in heads:  # back from pairs side by side to halves
            values = values.reshape(heads[part], -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        layer = f"model.layers.{tensor.name.split('.')[1]}." if tensor.name.startswith("blk.") else ""
        state[f"{layer}{names[part]}.weight"] = torch.from_numpy(np.ascontiguousarray(values))
    model = transformers.LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected, (missing, unexpected)
    model.tie_weights()
    return model.eval(), field("tokenizer.chat_template")


def render(template, text):
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    messages = [{"role": "user", "content": text}]
    return environment.from_string(template).render(messages=messages, add_generation_prompt=True)


def prompts_of(peer, template, raw, chat):
    """(text, is chat, token ids)"""
    asked = [(text, False, peer.tokenize(text)) for text in raw]
    return asked + [(text, True, peer.tokenize(render(template, text), specials=True)) for text in chat]


def decided(peer, model, prompts):
    margins = [greedy.smallest_margin(peer, model, prompt, NEW_TOKENS) for *_, prompt in prompts]
    of = lambda chat: [index for index, prompt in enumerate(prompts) if prompt[1] == chat]
    chosen = sorted(greedy.widest(margins, 10, of(False)) + greedy.widest(margins, 10, of(True)))
    print("margins", [round(margins[i], 2) for i in chosen])
    return [prompts[i] for i in chosen]


def record(peer, model, prompts):
    cases = []
    for text, chat, prompt in prompts:
        continuation, peer_logits = peer.greedy(prompt, NEW_TOKENS)
        with torch.no_grad():
            exact = model(torch.tensor([prompt + continuation[:-1]])).logits[0, len(prompt) - 1 :].numpy()
        steps = greedy.steps(exact, peer_logits)
        same = sum(step["ids"][0] == token for step, token in zip(steps, continuation))
        print(f"{'chat' if chat else 'raw '} {text[:40]!r}: {len(continuation)} tokens, reference agrees on {same}", flush=True)
        cases.append({"text": text, "chat": chat, "prompt": prompt, "continuation": continuation, "steps": steps})
    return cases


def main(path):
    torch.set_num_threads(2)
    peer = greedy.LlamaCpp(path, 1024)
    model, template = reference(path)
    sets = {
        "decided": decided(peer, model, prompts_of(peer, template, DECIDED_RAW, DECIDED_CHAT)),
        "open": prompts_of(peer, template, RAW, CHAT),
    }
    for name, prompts in sets.items():
        text = json.dumps(greedy.made_with(path) | {"cases": record(peer, model, prompts)}, separators=(",", ":"))
        Path(__file__).with_name(f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
