"""Makes the tiny checkpoints of this folder and what transformers computes from them.

    python make.py            (torch, transformers, safetensors, gguf; versions in versions.json)

Every weight is rounded to a number that both bfloat16 and float16 hold, so that safetensors in any float type and GGUF
F16 hold the same weights. The expected values are float32 results of transformers on one thread. Those of Q8_0 are computed
from the dequantised weights with the input of every matmul rounded in groups of 32 as the kernels do: to 16 bits for query,
key and value, to 8 bits for the rest.
"""

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = Path(__file__).parent
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()


def seeded(model, seed, norm_centre=1):
    """Weights of a size that keeps logits around 1; norms near 1, or near 0 where the model adds 1 itself."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        drawn = torch.randn(weight.shape, generator=generator)
        norm = "norm" in name.lower() and name.endswith("weight")
        scale = 0.1 if weight.dim() == 1 else 1.5 / weight.shape[-1] ** 0.5
        weight.data = ((norm_centre + 0.1 * drawn) if norm else scale * drawn).bfloat16().half().float()
    return model.eval()


def write(path, value):
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n")


def rounded(tensor):
    """Nine significant digits: exact for float32."""
    return [float(f"{x:.9g}") for x in tensor.flatten().tolist()]


def logits(model, tokens, positions=None):
    with torch.no_grad():
        all_rows = model(torch.tensor([tokens])).logits[0]
        return rounded(all_rows if positions is None else all_rows[positions])


def round_inputs(model):
    """Rounds what every linear layer reads in groups of 32, scaled by the group's largest magnitude."""

    def rounded_input(inputs, is_fine):
        groups = inputs[0].unflatten(-1, (-1, 32))
        largest = groups.abs().amax(-1, keepdim=True)
        scaled = groups * torch.where(largest > 0, 127 / largest, 0)
        levels = torch.round(scaled)
        if is_fine:
            levels += torch.round((scaled - levels) * 256).clamp(max=127) / 256
        return ((levels * (largest / 127)).flatten(-2),)

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            is_fine = name.endswith(("q_proj", "k_proj", "v_proj"))
            module.register_forward_pre_hook(lambda _, inputs, is_fine=is_fine: rounded_input(inputs, is_fine))
    return model


def save(model, folder, config, dtype, shards):
    """A Hugging Face folder; `config` is written as given, the way hub files have it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write(folder / "config.json", config)
    tied = config.get("tie_word_embeddings", False)
    state = {k: v.to(dtype).contiguous() for k, v in model.state_dict().items() if not (tied and k == "lm_head.weight")}
    names = sorted(state)
    if shards == 1:
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: state[name] for name in names[shard::shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= {name: file for name in part}
    write(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
}
GEMMA3_GGUF_NAMES = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_name(name, names):
    base, suffix = name.rsplit(".", 1)
    if base in names:
        return f"{names[base]}.{suffix}"
    layer, part = base.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{names[part]}.{suffix}"


def interleaved(weight, heads):
    """Rows of each head from (first halves, second halves) to pairs side by side."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def divisors(config):
    """The divisor of each pair's angle by the llama3 rule."""
    scaling, dim = config["rope_scaling"], config["head_dim"]
    turns = scaling["original_max_position_embeddings"] * config["rope_theta"] ** (-np.arange(0, dim, 2) / dim) / (2 * np.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - kept) / scaling["factor"] + kept)).astype(np.float32)


def save_gguf(model, path, config, kind, architecture="llama", extra=lambda writer: None):
    """Writes one GGUF file; returns the model with the weights as the file holds them."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    writer.add_rope_dimension_count(int(head_dim * config.get("partial_rotary_factor", 1)))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    extra(writer)
    names = GGUF_NAMES | (GEMMA3_GGUF_NAMES if architecture == "gemma3" else {})
    stored = {}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        values = weight.numpy()
        heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}.get(name.split(".")[-2])
        heads = heads if architecture in ["llama", "smollm3"] else None
        permuted = interleaved(values, heads) if heads else values
        if values.ndim == 1:
            writer.add_tensor(gguf_name(name, names), permuted + (architecture == "gemma3"))
            continue
        data = gguf.quants.quantize(permuted, kind)
        writer.add_tensor(gguf_name(name, names), data, raw_dtype=kind)
        back = gguf.quants.dequantize(data, kind)
        if heads:
            back = back.reshape(heads, -1, 2, back.shape[1]).swapaxes(1, 2).reshape(back.shape)
        stored[name] = torch.from_numpy(np.ascontiguousarray(back))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model.load_state_dict(stored, strict=False)
    return model


def tokens(count, vocab, seed):
    return torch.randint(0, vocab, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def llama(name, seed, length, dtype, shards, **changes):
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0, "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
    } | changes
    build = lambda: seeded(transformers.LlamaForCausalLM(transformers.LlamaConfig(**config)), seed)
    prompt = tokens(length, config["vocab_size"], seed)
    folder = HERE / name
    save(build(), folder, config, dtype, shards)
    write(folder / "expected.json", {"tokens": prompt, "logits": logits(build(), prompt)})
    return build, config, prompt


# Tokens of a long prompt, and the positions whose logits are kept: the ends, and both sides of the windows and block
# borders below.
LONG = 600
KEPT = [0, 1, 6, 15, 16, 19, 20, 21, 23, 24, 25, 63, 159, 160, 161, 255, 256, 299, 300, 301, 407, 511, 512, 598, 599]


def long_prompt(name, build, config, dtype, seed):
    """Safetensors of a model, and some logits of one long prompt."""
    prompt = tokens(LONG, config["vocab_size"], seed)
    save(build(), HERE / name, config, dtype, 1)
    write(HERE / name / "expected.json", {"tokens": prompt, "positions": KEPT, "logits": logits(build(), prompt, KEPT)})


def long_prompt_gguf(name, build, config, kind, architecture, extra):
    """The same from a GGUF file."""
    shutil.rmtree(HERE / name, ignore_errors=True)
    (HERE / name).mkdir()
    stored = save_gguf(build(), HERE / name / "model.gguf", config, kind, architecture, extra)
    if kind == gguf.GGMLQuantizationType.Q8_0:
        round_inputs(stored)
    prompt = tokens(LONG, config["vocab_size"], 7)
    write(HERE / name / "expected.json", {"tokens": prompt, "positions": KEPT, "logits": logits(stored, prompt, KEPT)})


SHARED = {"hidden_act": "silu", "rms_norm_eps": 1e-06, "vocab_size": 40, "max_position_embeddings": 640}


def mistral():
    """A window longer than a split of the attention kernel, in every layer."""
    config = SHARED | {
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 48, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "rope_theta": 10000.0,
        "sliding_window": 300, "tie_word_embeddings": False,
    }
    build = lambda: seeded(transformers.MistralForCausalLM(transformers.MistralConfig(**config)), 20)
    long_prompt("mistral-window", build, config, torch.bfloat16, 20)


def qwen2():
    """Angles scaled by YaRN and read past the original length; a window from the second layer on; the same without in GGUF."""
    config = SHARED | {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 48, "intermediate_size": 64,
        "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1, "rope_theta": 10000.0,
        "max_position_embeddings": 160, "tie_word_embeddings": False,
        "use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 160},
    }
    build = lambda changes={}: seeded(transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**config | changes)), 21)
    long_prompt("qwen2-yarn-window", build, config, torch.float16, 21)

    def keys(writer):
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(160)

    full = {"use_sliding_window": False}
    stated = config | {"max_position_embeddings": 640}
    long_prompt_gguf("qwen2-gguf-f16", lambda: build(full), stated, gguf.GGMLQuantizationType.F16, "qwen2", keys)


def qwen3():
    """Heads of another size than hidden / heads, normalised, a shared output projection."""
    config = SHARED | {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 40, "intermediate_size": 56,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "rope_theta": 1000000.0,
        "attention_bias": False, "use_sliding_window": False, "sliding_window": None, "tie_word_embeddings": True,
    }
    build = lambda: seeded(transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**config)), 22)
    long_prompt("qwen3", build, config, torch.bfloat16, 22)

    def keys(writer):
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])

    long_prompt_gguf("qwen3-gguf-f16", build, config, gguf.GGMLQuantizationType.F16, "qwen3", keys)


def gemma3():
    """Every third layer sees everything, with divided angles; a divisor of scores that is not the head size."""
    config = {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-06, "vocab_size": 40, "max_position_embeddings": 640, "hidden_size": 40, "intermediate_size": 64,
        "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
        "query_pre_attn_scalar": 24, "sliding_window": 20, "sliding_window_pattern": 3, "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "attn_logit_softcapping": None, "final_logit_softcapping": None, "tie_word_embeddings": True,
    }

    def build(changes={}, dtype=torch.float32):
        model = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**config | changes))
        # The root of the hidden size, rounded as a model in half precision rounds it.
        embedding = model.model.embed_tokens
        embedding.embed_scale = embedding.embed_scale.to(dtype).float()
        return seeded(model, 23, norm_centre=0)

    long_prompt("gemma3", lambda: build(dtype=torch.bfloat16), config, torch.bfloat16, 23)
    nested("gemma3-nested", "gemma3", config)

    def keys(writer):
        writer.add_key_length(16)
        writer.add_value_length(16)
        writer.add_sliding_window(20)
        writer.add_uint32("gemma3.attention.sliding_window_pattern", 3)
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(8.0)

    # No key of GGUF holds the divisor: it is the head size.
    changes = {"hidden_size": 96, "query_pre_attn_scalar": 16}
    for kind in [gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.Q8_0]:
        name = f"gemma3-gguf-{kind.name.lower()}"
        long_prompt_gguf(name, lambda: build(changes), config | changes, kind, "gemma3", keys)


def smollm3():
    """Layers that are not rotated; every fourth of them in GGUF, which has no key for it."""
    config = SHARED | {
        "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 1, "rope_theta": 5000000.0,
        "no_rope_layers": [0, 1, 1, 0], "no_rope_layer_interval": 4, "attention_bias": False, "mlp_bias": False,
        "use_sliding_window": False, "sliding_window": None, "tie_word_embeddings": True,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }
    build = lambda changes={}: seeded(transformers.SmolLM3ForCausalLM(transformers.SmolLM3Config(**config | changes)), 24)
    long_prompt("smollm3", build, config, torch.bfloat16, 24)
    fourth = {"no_rope_layers": [1, 1, 1, 0]}
    long_prompt_gguf("smollm3-gguf-f16", lambda: build(fourth), config, gguf.GGMLQuantizationType.F16, "smollm3", lambda _: None)


def phi3():
    """One matrix for q, k and v, one for gate and up; three quarters of a head rotated by LongRoPE's angles; a window."""
    factors = [1.0, 1.1, 1.25, 1.5, 2.0, 3.0]
    config = SHARED | {
        "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_size": 48, "intermediate_size": 56,
        "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "rope_theta": 10000.0,
        "max_position_embeddings": 2560, "original_max_position_embeddings": 640, "partial_rotary_factor": 0.75,
        "rope_scaling": {"type": "longrope", "short_factor": factors, "long_factor": [4 * factor for factor in factors]},
        "sliding_window": 20, "tie_word_embeddings": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }
    build = lambda: seeded(transformers.Phi3ForCausalLM(transformers.Phi3Config(**config)), 25)
    long_prompt("phi3-longrope", build, config, torch.float16, 25)

    def keys(writer):
        writer.add_sliding_window(20)
        writer.add_rope_scaling_orig_ctx_len(640)
        writer.add_rope_scaling_attn_factors((1 + np.log(4) / np.log(640)) ** 0.5)
        writer.add_tensor("rope_factors_long.weight", 4 * np.array(factors, dtype=np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array(factors, dtype=np.float32))

    long_prompt_gguf("phi3-gguf-f16", build, config, gguf.GGMLQuantizationType.F16, "phi3", keys)


def nested(name, plain, config):
    """A multimodal checkpoint around a text model: its keys and tensors one level down, beside a vision part."""
    tensors = {f"language_model.{name}": tensor for name, tensor in load_file(HERE / plain / "model.safetensors").items()}
    tensors["vision_tower.vision_model.post_layernorm.weight"] = torch.ones(4)
    shutil.rmtree(HERE / name, ignore_errors=True)
    (HERE / name).mkdir()
    save_file(tensors, HERE / name / "model.safetensors", metadata={"format": "pt"})
    text = {key: value for key, value in config.items() if key not in ["architectures", "tie_word_embeddings"]}
    write(HERE / name / "config.json", {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text})


def main():
    # Odd head counts, three query heads a group, a head of its own.
    llama("llama-untied", 1, 40, torch.float16, 1, vocab_size=61, hidden_size=72, intermediate_size=100,
          num_hidden_layers=2, num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=64)
    # Heads of another size than hidden / heads, biases everywhere, angles divided by 4.
    llama("llama-bias-linear", 2, 24, torch.bfloat16, 1, vocab_size=40, hidden_size=32, intermediate_size=48,
          num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=20, max_position_embeddings=64,
          attention_bias=True, mlp_bias=True, rope_scaling={"type": "linear", "factor": 4.0})
    # A shared head and angles scaled by the llama3 rule, read past the original length; also as GGUF.
    build, config, prompt = llama(
        "llama-tied-llama3", 3, 48, torch.float16, 2, vocab_size=64, hidden_size=96, intermediate_size=128,
        num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=32, max_position_embeddings=128,
        tie_word_embeddings=True,
        rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 16})
    for kind in [gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.Q8_0]:
        folder = HERE / f"llama-gguf-{kind.name.lower()}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        stored = save_gguf(build(), folder / "model.gguf", config, kind, extra=lambda writer: writer.add_tensor("rope_freqs.weight", divisors(config)))
        if kind == gguf.GGMLQuantizationType.Q8_0:
            round_inputs(stored)
        write(folder / "expected.json", {"tokens": prompt, "logits": logits(stored, prompt)})
    mistral()
    qwen2()
    qwen3()
    gemma3()
    smollm3()
    phi3()
    bert()
    xlm_roberta()
    mpnet()
    qwen3_embedding()
    bge_m3()
    qwen3_fp8()
    versions = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, "numpy": np.__version__}
    write(HERE / "versions.json", versions)


def bert():
    config = {
        "architectures": ["BertModel"], "model_type": "bert", "vocab_size": 70, "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 3, "intermediate_size": 80, "max_position_embeddings": 40, "type_vocab_size": 2,
        "hidden_act": "gelu", "layer_norm_eps": 1e-12, "position_embedding_type": "absolute",
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02, "pad_token_id": 0,
    }
    model = seeded(transformers.BertModel(transformers.BertConfig(**config)), 4)
    save(model, HERE / "bert", config, torch.float32, 1)
    texts = [tokens(length, config["vocab_size"], 10 + length) for length in [1, 7, 40, 18]]
    with torch.no_grad():
        hidden = [rounded(model(torch.tensor([text])).last_hidden_state[0]) for text in texts]
    write(HERE / "bert" / "expected.json", {"texts": texts, "hidden": hidden})


def xlm_roberta():
    """Positions that start behind the padding token's number, one token type, the prefix of a larger model."""
    config = {
        "architectures": ["XLMRobertaForMaskedLM"], "model_type": "xlm-roberta", "vocab_size": 70, "hidden_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "max_position_embeddings": 43,
        "type_vocab_size": 1, "hidden_act": "gelu", "layer_norm_eps": 1e-05, "pad_token_id": 2, "bos_token_id": 0,
        "eos_token_id": 1,
    }
    model = seeded(transformers.XLMRobertaForMaskedLM(transformers.XLMRobertaConfig(**config)), 26)
    save(model, HERE / "xlm-roberta", config | {"tie_word_embeddings": True}, torch.float16, 1)
    write(HERE / "xlm-roberta" / "config.json", config)
    draw = lambda length: [3 + token % 67 for token in tokens(length, 1000, 10 + length)]
    texts = [draw(length) for length in [1, 7, 40, 18]]
    with torch.no_grad():
        hidden = [rounded(model.roberta(torch.tensor([text])).last_hidden_state[0]) for text in texts]
    write(HERE / "xlm-roberta" / "expected.json", {"texts": texts, "hidden": hidden})


def mpnet():
    """Biases of scores by distance, among them those that share a bucket; positions behind the padding token's number."""
    config = {
        "architectures": ["MPNetForMaskedLM"], "model_type": "mpnet", "vocab_size": 50, "hidden_size": 16,
        "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 162,
        "hidden_act": "gelu", "layer_norm_eps": 1e-05, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
        "relative_attention_num_buckets": 32,
    }
    model = seeded(transformers.MPNetForMaskedLM(transformers.MPNetConfig(**config)), 27)
    # Biases that change the attention: scores of these sizes differ by about 1.
    model.mpnet.encoder.relative_attention_bias.weight.data *= 3
    save(model, HERE / "mpnet", config | {"tie_word_embeddings": True}, torch.float16, 1)
    write(HERE / "mpnet" / "config.json", config)
    draw = lambda length: [3 + token % 47 for token in tokens(length, 1000, 10 + length)]
    texts = [draw(length) for length in [1, 7, 160, 18]]
    with torch.no_grad():
        hidden = [model.mpnet(torch.tensor([text])).last_hidden_state[0] for text in texts]
    # Six digits are a hundred times finer than what is allowed to differ.
    hidden = [[float(f"{x:.6g}") for x in rows.flatten().tolist()] for rows in hidden]
    write(HERE / "mpnet" / "expected.json", {"texts": texts, "hidden": hidden})


def qwen3_embedding():
    """A decoder's body without the language model's names around it: normalised states of every token, causal."""
    config = SHARED | {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rope_theta": 1000000.0,
        "attention_bias": False, "use_sliding_window": False, "sliding_window": None, "tie_word_embeddings": True,
    }
    model = seeded(transformers.Qwen3Model(transformers.Qwen3Config(**config)), 28)
    save(model, HERE / "qwen3-embedding", config, torch.bfloat16, 1)
    texts = [tokens(length, config["vocab_size"], 10 + length) for length in [1, 7, 33, 18]]
    with torch.no_grad():
        hidden = [rounded(model(torch.tensor([text])).last_hidden_state[0]) for text in texts]
    write(HERE / "qwen3-embedding" / "expected.json", {"texts": texts, "hidden": hidden})


def bge_m3():
    """BGE-M3's layout: weights and heads as `torch.save` writes them, texts of the letters a to z."""
    config = {
        "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "vocab_size": 56, "hidden_size": 16,
        "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 26,
        "type_vocab_size": 1, "hidden_act": "gelu", "layer_norm_eps": 1e-05, "pad_token_id": 1, "bos_token_id": 0,
        "eos_token_id": 2,
    }
    model = seeded(transformers.XLMRobertaModel(transformers.XLMRobertaConfig(**config), add_pooling_layer=False), 29)
    sparse, colbert = [seeded(torch.nn.Linear(16, width), 30 + width) for width in [1, 12]]
    folder = HERE / "bge-m3"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "1_Pooling").mkdir(parents=True)
    write(folder / "config.json", config)
    write(folder / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 16, "pooling_mode_cls_token": True,
                                                 "pooling_mode_mean_tokens": False})
    half = lambda module: {name: tensor.half() for name, tensor in module.state_dict().items()}
    torch.save(half(model), folder / "pytorch_model.bin")
    torch.save(sparse.state_dict(), folder / "sparse_linear.pt")
    torch.save(half(colbert), folder / "colbert_linear.pt")
    texts = ["abcab", "zzy", "hellohellohello", "b"]
    letter = lambda at, char: (4 if at == 0 else 30) + ord(char) - ord("a")
    made = []
    for text in texts:
        ids = [0] + [letter(at, char) for at, char in enumerate(text)] + [2]
        with torch.no_grad():
            hidden = model(torch.tensor([ids])).last_hidden_state[0]
            weights = torch.relu(sparse(hidden))[:, 0]
            vectors = torch.nn.functional.normalize(colbert(hidden[1:]), dim=-1)
        kept = {}
        for token, weight in zip(ids, weights.tolist()):
            if token > 3 and weight > kept.get(token, 0):
                kept[token] = weight
        dense = torch.nn.functional.normalize(hidden[0], dim=-1)
        made.append({"ids": ids, "dense": dense, "sparse": kept, "colbert": vectors})
    score = lambda q, d: [
        float(q["dense"] @ d["dense"]),
        sum(weight * d["sparse"][token] for token, weight in q["sparse"].items() if token in d["sparse"]),
        float((q["colbert"] @ d["colbert"].T).max(-1).values.mean())]
    for text in made:
        text["scores"] = [score(text, other) for other in made]
    plain = lambda text: text | {"dense": rounded(text["dense"]), "colbert": rounded(text["colbert"])}
    write(folder / "expected.json", {"texts": texts, "made": [plain(text) for text in made]})


def qwen3_fp8():
    """Projections in 8-bit floats with a scale for each block of 16 rows and 16 columns, the last blocks cut."""
    config = SHARED | {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 24, "intermediate_size": 40,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "rope_theta": 10000.0,
        "attention_bias": False, "use_sliding_window": False, "sliding_window": None, "tie_word_embeddings": True,
    }
    model = seeded(transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**config)), 32)
    state = {name: tensor.bfloat16() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    back = {}
    for name in [name for name in state if "proj" in name]:
        weight = state[name].float()
        rows, columns = [torch.arange(extent) // 16 for extent in weight.shape]
        scales = torch.zeros(rows.max() + 1, columns.max() + 1)
        for row in range(scales.shape[0]):
            for column in range(scales.shape[1]):
                part = weight[row * 16 : row * 16 + 16, column * 16 : column * 16 + 16]
                scales[row, column] = (part.abs().max() / 448).bfloat16().float() * (1.02 if row else 1.05)
        scales = scales.bfloat16()
        spread = scales.float()[rows][:, columns]
        state[name] = (weight / spread).to(torch.float8_e4m3fn)
        state[name + "_scale_inv"] = scales
        back[name] = (state[name].float() * spread).bfloat16().float()
    folder = HERE / "qwen3-fp8"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    quantization = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [16, 16]}
    write(folder / "config.json", config | {"quantization_config": quantization})
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    model.load_state_dict(back, strict=False)
    prompt = tokens(20, config["vocab_size"], 32)
    write(folder / "expected.json", {"tokens": prompt, "logits": logits(model, prompt)})


if __name__ == "__main__":
    main()
