"""Makes what transformers computes from tiny models of the families that run through candle: one file a family.

    python make.py            (torch, transformers; versions in versions.json one folder up)

The weights are no files: each number is drawn from its tensor's name and its place, here and in candle_fallback.rs alike.
Expected are float32 logits behind prompts of 1, 17 and 600 tokens, and the 12 tokens that greedy decoding adds.
"""

import json
import math
from pathlib import Path

import numpy as np
import torch
import transformers

HERE = Path(__file__).parent
VOCAB = 48
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()

BASE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
PLAIN = {"rope_theta": 10000.0}
NEWER = {"rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"}}
# Half in the spelling of older files, half in that of newer ones; windows that end before the positions do.
FAMILIES = {
    "phi": ("PhiForCausalLM", 1, BASE | {
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.5},
        "hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "qk_layernorm": False, "tie_word_embeddings": False}),
    "olmo": ("OlmoForCausalLM", 1, BASE | PLAIN | {
        "hidden_act": "silu", "attention_bias": False, "clip_qkv": 0.75, "tie_word_embeddings": False}),
    "olmo2": ("Olmo2ForCausalLM", 1, BASE | NEWER | {
        "hidden_act": "silu", "attention_bias": False, "rms_norm_eps": 1e-6, "tie_word_embeddings": False}),
    "starcoder2": ("Starcoder2ForCausalLM", 1, BASE | PLAIN | {
        "hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "use_bias": True, "sliding_window": 640,
        "tie_word_embeddings": True}),
    "gemma": ("GemmaForCausalLM", 0, BASE | NEWER | {
        "hidden_act": "gelu_pytorch_tanh", "head_dim": 16, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
        "attention_bias": False}),
    "gemma2": ("Gemma2ForCausalLM", 0, BASE | PLAIN | {
        "hidden_activation": "gelu_pytorch_tanh", "head_dim": 16, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0, "sliding_window": 640, "attention_bias": False,
        "tie_word_embeddings": True}),
    "granite": ("GraniteForCausalLM", 1, BASE | NEWER | {
        "hidden_act": "silu", "rms_norm_eps": 1e-5, "attention_bias": False, "mlp_bias": False,
        "tie_word_embeddings": True, "embedding_multiplier": 3.0, "attention_multiplier": 0.25,
        "residual_multiplier": 0.75, "logits_scaling": 2.0}),
    "glm4": ("Glm4ForCausalLM", 1, BASE | {
        "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "head_dim": 16, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "attention_bias": True, "tie_word_embeddings": False}),
}


def drawn(name, count):
    """Numbers in [-1, 1): eleven bits of SplitMix64 behind the FNV-1a hash of the name."""
    mask = (1 << 64) - 1
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) & mask
    with np.errstate(over="ignore"):
        x = np.uint64(state) + np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(53)).astype(np.float64) / 1024 - 1


def weight(name, shape, norm_centre, salt):
    numbers = drawn(f"{salt}{name}", math.prod(shape))
    if "norm" in name and name.endswith("weight"):
        numbers = norm_centre + 0.25 * numbers
    else:
        numbers = numbers * (0.25 if len(shape) == 1 else 2.5 / math.sqrt(shape[-1]))
    return torch.from_numpy(numbers.astype(np.float32).reshape(shape))


def tokens(length):
    return [(7 * i * i + 3 * i + 5) % VOCAB for i in range(length)]


def run(family, architecture, norm_centre, keys, salt):
    """What is written of a family; `None` where two tokens are so close that another order of sums could swap them."""
    config = transformers.AutoConfig.for_model(family, **{k: v for k, v in keys.items() if k != "model_type"})
    theta = keys.get("rope_theta") or keys["rope_parameters"]["rope_theta"]
    assert config.rope_parameters["rope_theta"] == theta, config.rope_parameters
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    shapes = {}
    for name, parameter in model.named_parameters():
        shapes[name] = list(parameter.shape)
        parameter.data = weight(name, shapes[name], norm_centre, salt)
    prompts = []
    for length in (1, 17, 600):
        ids, greedy, first = tokens(length), [], None
        with torch.no_grad():
            for _ in range(12):
                row = model(torch.tensor([ids])).logits[0, -1]
                first = row if first is None else first
                best = torch.topk(row, 2)
                if (best.values[0] - best.values[1]) / row.abs().max() < 1e-3:
                    return None
                ids = ids + [best.indices[0].item()]
                greedy.append(ids[-1])
        prompts.append({"length": length, "logits": [float(f"{x:.6g}") for x in first.tolist()], "greedy": greedy})
    layer = {name.removeprefix("model.layers.0."): shape for name, shape in shapes.items() if ".layers.0." in name}
    rest = {name: shape for name, shape in shapes.items() if ".layers." not in name}
    assert len(layer) * keys["num_hidden_layers"] + len(rest) == len(shapes)
    return {"config": keys, "norm_centre": norm_centre, "salt": salt, "layer": layer, "rest": rest, "prompts": prompts}


for family, (architecture, norm_centre, keys) in FAMILIES.items():
    keys = {"architectures": [architecture], "model_type": family} | keys
    tries = (run(family, architecture, norm_centre, keys, f"{salt} ") for salt in range(50))
    file = next(file for file in tries if file)
    print(family, "salt", file["salt"], "distinct", len({t for p in file["prompts"] for t in p["greedy"]}))
    (HERE / f"{family}.json").write_text(json.dumps(file, separators=(",", ":")) + "\n")
