"""Makes the tiny checkpoints of mixtures of experts in this folder, the way `make.py` makes the others.

    python make_mixtures.py
"""

import shutil

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from make import HERE, LONG, SHARED, logits, seeded, tokens, write

F16, F32 = gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.F32
BF16, Q8_0 = gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.Q8_0
MXFP4 = gguf.GGMLQuantizationType.MXFP4

# The ends, and both sides of windows, of the original length and of a block of the cache.
KEPT = [0, 1, 15, 16, 20, 21, 159, 161, 300, 599]
VOCAB = 24


def lower_number_first(values, count, dim=-1):
    """`torch.topk`, which leaves it open which of equal values it takes."""
    order = torch.sort(values, dim=dim, descending=True, stable=True)
    return torch.return_types.topk([order.values.narrow(dim, 0, count), order.indices.narrow(dim, 0, count)])


torch.topk = lower_number_first


def level_rounded(x, is_fine=False):
    """What a product with quantised weights reads: groups of 32 in steps of their largest magnitude over 127."""
    groups = x.unflatten(-1, (-1, 32))
    largest = groups.abs().amax(-1, keepdim=True)
    scaled = groups * torch.where(largest > 0, 127 / largest, 0)
    levels = torch.round(scaled)
    if is_fine:
        levels += torch.round((scaled - levels) * 256).clamp(max=127) / 256
    return (levels * (largest / 127)).flatten(-2)


def twins(model, router):
    """Two experts that every token likes the same, whatever else tells them apart."""
    for layer in model.model.layers:
        module = getattr(layer.mlp, router, None)
        if module is not None:
            for values in module.parameters(recurse=False):
                values.data[2] = values.data[1]
    return model


def expect(name, model, seed):
    prompt = tokens(LONG, VOCAB, seed)
    write(HERE / name / "expected.json", {"tokens": prompt, "positions": KEPT, "logits": logits(model, prompt, KEPT)})


def folder(name):
    shutil.rmtree(HERE / name, ignore_errors=True)
    (HERE / name).mkdir()
    return HERE / name


def save_tensors(name, config, tensors):
    path = folder(name)
    write(path / "config.json", config)
    save_file({key: value.contiguous() for key, value in tensors.items()}, path / "model.safetensors", metadata={"format": "pt"})


def state(model, config):
    tied = config.get("tie_word_embeddings", False)
    return {key: value for key, value in model.state_dict().items() if not (tied and key == "lm_head.weight")}


def one_by_one(tensors, width):
    """Stacked experts as hub files have them: one tensor an expert and projection."""
    apart = {}
    for name, values in tensors.items():
        stem, part = name.rsplit(".", 1)
        if part == "gate_up_proj":
            for expert, both in enumerate(values):
                apart[f"{stem}.{expert}.gate_proj.weight"] = both[:width]
                apart[f"{stem}.{expert}.up_proj.weight"] = both[width:]
        elif part == "down_proj":
            apart |= {f"{stem}.{expert}.down_proj.weight": one for expert, one in enumerate(values)}
        else:
            apart[name] = values
    return apart


NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def gguf_tensors(name, values, architecture):
    """(name, values, how to bring what the file holds back) of one tensor of the model."""
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
    if name in top:
        return [(top[name], values)]
    layer, part = name.removeprefix("model.layers.").split(".", 1)
    if part == "self_attn.sinks":
        return [(f"blk.{layer}.attn_sinks.weight", values)]
    if part.startswith("mlp.experts."):
        part = part.removeprefix("mlp.experts.")
        is_bias, is_turned = part.endswith("_bias"), architecture == "gpt-oss"
        suffix = "bias" if is_bias else "weight"
        if is_turned and not is_bias:
            values = values.swapaxes(1, 2)
        if part.startswith("down"):
            return [(f"blk.{layer}.ffn_down_exps.{suffix}", values)]
        half = values.shape[1] // 2
        gate, up = (values[:, ::2], values[:, 1::2]) if is_turned else (values[:, :half], values[:, half:])
        return [(f"blk.{layer}.ffn_gate_exps.{suffix}", gate), (f"blk.{layer}.ffn_up_exps.{suffix}", up)]
    base, suffix = part.rsplit(".", 1)
    names = NAMES | ({"post_attention_layernorm": "post_attention_norm"} if architecture == "gpt-oss" else {})
    return [(f"blk.{layer}.{names[base]}.{suffix}", values)]


def model_tensor(name, parts, architecture):
    """The model's tensor out of what `gguf_tensors` made of it."""
    if ".mlp.experts." not in name:
        return parts[0]
    is_turned = architecture == "gpt-oss"
    if len(parts) == 2:
        parts = [np.stack(parts, axis=2).reshape(parts[0].shape[0], -1, *parts[0].shape[2:])] if is_turned else [np.concatenate(parts, axis=1)]
    return parts[0].swapaxes(1, 2) if is_turned and not name.endswith("_bias") else parts[0]


def save_gguf(model, name, config, architecture, kinds, extra):
    """Writes one GGUF file, experts as `kinds[0]` and other matrices as `kinds[1]`; gives the model the file's weights."""
    writer = gguf.GGUFWriter(folder(name) / "model.gguf", architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_expert_feed_forward_length(config.get("moe_intermediate_size", config["intermediate_size"]))
    writer.add_expert_count(config.get("num_experts") or config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    extra(writer)
    stored = {}
    for key, tensor in state(model, config).items():
        parts = []
        for target, values in gguf_tensors(key, tensor.numpy(), architecture):
            is_plain = values.ndim == 1 or target.endswith(".bias") or "ffn_gate_inp" in target
            kind = F32 if is_plain else kinds[0] if "_exps" in target else kinds[1]
            data = gguf.quants.quantize(np.ascontiguousarray(values), kind)
            writer.add_tensor(target, data, raw_dtype=kind)
            parts.append(gguf.quants.dequantize(data, kind))
        stored[key] = torch.from_numpy(np.ascontiguousarray(model_tensor(key, parts, architecture)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model.load_state_dict(stored, strict=False)
    return model


def qwen3_moe():
    """Four experts of which two are chosen and two always tie, before a layer without any."""
    config = SHARED | {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": VOCAB, "hidden_size": 16,
        "intermediate_size": 20, "moe_intermediate_size": 12, "num_experts": 4, "num_experts_per_tok": 2,
        "norm_topk_prob": True, "mlp_only_layers": [1], "decoder_sparse_step": 1, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rope_theta": 1000000.0,
        "attention_bias": False, "use_sliding_window": False, "sliding_window": None, "tie_word_embeddings": True,
    }

    def build(changes={}):
        settings = transformers.Qwen3MoeConfig(**config | changes)
        return twins(seeded(transformers.Qwen3MoeForCausalLM(settings), 30), "gate")

    model = build()
    save_tensors("qwen3moe", config, one_by_one({k: v.bfloat16() for k, v in state(model, config).items()}, 12))
    expect("qwen3moe", model, 30)
    # Experts stacked as transformers 5 keeps them, shares of all experts, a window, an untied head.
    changes = {
        "norm_topk_prob": False, "mlp_only_layers": [], "decoder_sparse_step": 2, "num_hidden_layers": 2, "num_experts": 5,
        "use_sliding_window": True, "sliding_window": 20, "tie_word_embeddings": False,
    }
    model = build(changes)
    save_tensors("qwen3moe-stacked", config | changes, {k: v.bfloat16() for k, v in state(model, config | changes).items()})
    expect("qwen3moe-stacked", model, 30)
    # Files of this kind have no layer without experts.
    changes = {"mlp_only_layers": [], "num_hidden_layers": 1, "num_experts": 5, "num_experts_per_tok": 3}
    model = save_gguf(build(changes), "qwen3moe-gguf-f16", config | changes, "qwen3moe", [F16, F16], lambda _: None)
    expect("qwen3moe-gguf-f16", model, 7)
    changes = {"mlp_only_layers": [], "num_hidden_layers": 1, "hidden_size": 32, "moe_intermediate_size": 32, "num_experts": 3}
    model = save_gguf(build(changes), "qwen3moe-gguf-q8_0", config | changes, "qwen3moe", [Q8_0, Q8_0], lambda _: None)
    expect("qwen3moe-gguf-q8_0", rounded_inputs(model, rounded_silu_experts), 7)


def rounded_inputs(model, experts_forward):
    """Rounds what products with quantised weights read; the router's weights are plain."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            is_fine = name.endswith(("q_proj", "k_proj", "v_proj"))
            module.register_forward_pre_hook(lambda _, inputs, is_fine=is_fine: (level_rounded(inputs[0], is_fine),))
        if name.endswith("mlp.experts"):
            module.forward = lambda x, chosen, share, module=module: experts_forward(module, x, chosen, share)
    return model


def rounded_silu_experts(module, x, chosen, share):
    out = torch.zeros_like(x)
    for token, visit in [(token, visit) for token in range(chosen.shape[0]) for visit in range(chosen.shape[1])]:
        expert = chosen[token, visit]
        gate, up = (module.gate_up_proj[expert] @ level_rounded(x[token])).chunk(2)
        inner = torch.nn.functional.silu(gate) * up
        out[token] += share[token, visit] * (module.down_proj[expert] @ level_rounded(inner))
    return out


def rounded_clamped_experts(module, x, chosen, share):
    out = torch.zeros_like(x)
    for token, visit in [(token, visit) for token in range(chosen.shape[0]) for visit in range(chosen.shape[1])]:
        expert = chosen[token, visit]
        both = level_rounded(x[token]) @ module.gate_up_proj[expert] + module.gate_up_proj_bias[expert]
        inner = level_rounded(module._apply_gate(both))
        out[token] += share[token, visit] * (inner @ module.down_proj[expert] + module.down_proj_bias[expert])
    return out


def four_bit(tensors):
    """Experts as gpt-oss files hold them: nibbles of two neighbours in a byte, and scales."""
    held = {}
    for key, values in tensors.items():
        if not key.endswith(("gate_up_proj", "down_proj")):
            held[key] = values.bfloat16()
            continue
        rows = np.ascontiguousarray(values.float().numpy().swapaxes(1, 2))
        data = gguf.quants.quantize(rows, MXFP4).reshape(*rows.shape[:2], -1, 17)
        low, high = data[..., 1:] & 15, data[..., 1:] >> 4
        nibbles = np.concatenate([low, high], axis=-1)
        held[f"{key}_blocks"] = torch.from_numpy(nibbles[..., ::2] | nibbles[..., 1::2] << 4)
        held[f"{key}_scales"] = torch.from_numpy(data[..., 0].copy())
        read = convert_moe_packed_tensors(held[f"{key}_blocks"], held[f"{key}_scales"], dtype=torch.float32)
        assert np.array_equal(read.numpy().swapaxes(1, 2).ravel(), gguf.quants.dequantize(data.reshape(-1, 17), MXFP4).ravel())
    return held


def gpt_oss():
    """Sinks, a window in every second layer, a YaRN ramp between pairs, a clamped gate; two experts that always tie."""
    config = SHARED | {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": VOCAB, "hidden_size": 32,
        "intermediate_size": 64, "num_local_experts": 3, "num_experts_per_tok": 2, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "rope_theta": 150000.0, "rms_norm_eps": 1e-05,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                         "original_max_position_embeddings": 160},
        "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 20, "swiglu_limit": 7.0,
        "attention_bias": True, "tie_word_embeddings": False,
    }

    def build(changes={}, gain=1):
        model = seeded(transformers.GptOssForCausalLM(transformers.GptOssConfig(**config | changes)), 31)
        for layer in model.model.layers:
            layer.self_attn.sinks.data *= 16
            # Far enough for the clamps to matter.
            layer.mlp.experts.gate_up_proj.data *= gain
        return twins(model, "router")

    # Plain numbers, which have other names for nothing but the experts.
    changes = {"hidden_size": 16, "intermediate_size": 12, "num_local_experts": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "swiglu_limit": 1.5, "swiglu_alpha": 1.25}
    model = build(changes)
    save_tensors("gpt-oss-bf16", config | changes, {k: v.bfloat16() for k, v in state(model, config).items()})
    expect("gpt-oss-bf16", model, 31)

    def keys(writer):
        writer.add_sliding_window(20)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(160)

    model = save_gguf(build(gain=8), "gpt-oss-gguf-mxfp4", config, "gpt-oss", [MXFP4, BF16], keys)
    quantised = config | {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}
    save_tensors("gpt-oss", quantised, four_bit(state(build(gain=8), config)))
    model = rounded_inputs(model, rounded_clamped_experts)
    for module in model.modules():
        module._forward_pre_hooks.clear()  # all but the experts are plain
    expect("gpt-oss", model, 31)


def qwen3_5():
    """Layers of linear attention, one whose softmax attention is gated, an expert for every token; inside a larger model."""
    config = {
        "hidden_act": "silu", "rms_norm_eps": 1e-06, "vocab_size": VOCAB, "max_position_embeddings": 640, "hidden_size": 16,
        "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"],
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "attention_bias": False,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 10, "num_experts": 3,
        "num_experts_per_tok": 2, "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
                            "mrope_section": [1, 1, 0], "mrope_interleaved": True},
    }

    def filled(model, seed):
        model = seeded(model, seed, norm_centre=0)
        for layer in model.model.layers:
            if hasattr(layer, "linear_attn"):
                weight = layer.linear_attn.norm.weight
                weight.data = (weight.data + 1).bfloat16().float()
        return model

    model = filled(transformers.Qwen3_5MoeForCausalLM(transformers.Qwen3_5MoeTextConfig(**config)), 32)
    tensors = {k.replace("model.", "model.language_model."): v.bfloat16() for k, v in state(model, config).items()}
    others = {"model.visual.pos_embed.weight": torch.ones(4), "mtp.norm.weight": torch.ones(4)}
    whole = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "text_config": config}
    save_tensors("qwen3_5-moe", whole, tensors | others)
    expect("qwen3_5-moe", model, 32)
    save_qwen3_5_gguf(model, "qwen3_5-gguf-f16", config)
    expect("qwen3_5-gguf-f16", model, 7)
    # Without experts; every second layer attends by softmax, and a quarter of its heads is rotated by default.
    changes = {"num_hidden_layers": 3, "full_attention_interval": 2, "intermediate_size": 20, "tie_word_embeddings": True}
    dropped = ["layer_types", "moe_intermediate_size", "shared_expert_intermediate_size", "num_experts", "num_experts_per_tok"]
    config = {key: value for key, value in config.items() if key not in dropped} | changes
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000000}
    model = filled(transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(**config)), 33)
    config |= {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text"}
    save_tensors("qwen3_5-dense", config, {k: v.bfloat16() for k, v in state(model, config).items()})
    expect("qwen3_5-dense", model, 33)


QWEN3_5_NAMES = {
    "input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight", "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight", "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight", "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight", "linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias",
    "mlp.gate.weight": "ffn_gate_inp.weight", "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight", "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight", "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
}


def save_qwen3_5_gguf(model, name, config):
    """Value heads stand in turns: the first of every key head, then the second of every key head."""
    key_heads, value_heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    order = np.arange(value_heads).reshape(key_heads, -1).T.ravel()
    size = config["linear_value_head_dim"]
    elements = (order[:, None] * size + np.arange(size)).ravel()
    keys = 2 * key_heads * config["linear_key_head_dim"]
    rows = np.concatenate([np.arange(keys), keys + elements])
    writer = gguf.GGUFWriter(folder(name) / "model.gguf", "qwen35moe")
    # With a block behind the layers, which predicts a further token.
    writer.add_block_count(config["num_hidden_layers"] + 1)
    writer.add_uint32("qwen35moe.nextn_predict_layers", 1)
    writer.add_tensor(f"blk.{config['num_hidden_layers']}.nextn.enorm.weight", np.ones(4, dtype=np.float32))
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    writer.add_expert_count(config["num_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"] // 4)
    writer.add_rope_dimension_sections([1, 1, 0, 0])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(key_heads)
    writer.add_ssm_time_step_rank(value_heads)
    writer.add_ssm_inner_size(value_heads * size)
    writer.add_full_attention_interval(2)
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
    for key, tensor in state(model, config).items():
        values = tensor.numpy()
        layer, part = ("", key) if key in top else key.removeprefix("model.layers.").split(".", 1)
        if key.endswith("norm.weight") and part != "linear_attn.norm.weight":
            values = values + 1
        if part in ["linear_attn.in_proj_qkv.weight", "linear_attn.conv1d.weight"]:
            values = values[rows].squeeze()
        if part == "linear_attn.in_proj_z.weight":
            values = values[elements]
        if part == "linear_attn.out_proj.weight":
            values = values[:, elements]
        if part in ["linear_attn.in_proj_a.weight", "linear_attn.in_proj_b.weight", "linear_attn.A_log", "linear_attn.dt_bias"]:
            values = values[order]
        if part == "linear_attn.A_log":
            values = -np.exp(values)
        if part == "mlp.shared_expert_gate.weight":
            values = values[0]
        tensors = [(top.get(key) or f"blk.{layer}.{QWEN3_5_NAMES.get(part)}", values)]
        if part == "mlp.experts.gate_up_proj":
            half = values.shape[1] // 2
            tensors = [(f"blk.{layer}.ffn_gate_exps.weight", values[:, :half]), (f"blk.{layer}.ffn_up_exps.weight", values[:, half:])]
        for target, part_values in tensors:
            is_plain = part_values.ndim == 1 or "ffn_gate_inp" in target or "conv1d" in target
            kind = F32 if is_plain else F16
            writer.add_tensor(target, gguf.quants.quantize(np.ascontiguousarray(part_values), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    qwen3_moe()
    gpt_oss()
    qwen3_5()


if __name__ == "__main__":
    main()
