"""The same shapes in PyTorch and transformers: random weights made on the GPU, one JSON line a rate.

Argument: a JSON object with the shapes. Nothing is read from or written to disk."""

import json
import sys
import time

shapes = json.loads(sys.argv[1])

import torch
import transformers
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

if not torch.cuda.is_available():
    sys.exit("torch finds no GPU")
device = torch.device("cuda", shapes["ordinal"])
torch.manual_seed(0)
transformers.logging.set_verbosity_error()


def say(name, rate):
    print(json.dumps({"name": name, "rate": rate}), flush=True)


def seconds(run):
    torch.cuda.synchronize(device)
    started = time.perf_counter()
    run()
    torch.cuda.synchronize(device)
    return time.perf_counter() - started


def build(kind, config):
    config._attn_implementation = "sdpa"
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            return kind(config).eval()
    finally:
        torch.set_default_dtype(before)


def tokens(rows, length, vocabulary):
    return torch.randint(10, vocabulary, (rows, length), device=device)


print(json.dumps({"about": f"transformers {transformers.__version__}, torch {torch.__version__}"}), flush=True)
config = {key: value for key, value in shapes["decoder"].items() if key not in ("architectures", "model_type")}
model = build(LlamaForCausalLM, LlamaConfig(**config))
vocabulary = model.config.vocab_size


def prefill(ids):
    # The head for the last token alone, as generation needs it.
    out = model.model(input_ids=ids, use_cache=True)
    return out.past_key_values, model.lm_head(out.last_hidden_state[:, -1:]).argmax(-1)


def measure_prefill(workload):
    ids = tokens(1, workload["tokens"], vocabulary)
    prefill(ids)
    say(workload["name"], workload["tokens"] / min(seconds(lambda: prefill(ids)) for _ in range(3)))


def measure_decode(workload):
    batch, steps = workload["batch"], shapes["decode_tokens"]
    cache, token = prefill(tokens(batch, shapes["depth"], vocabulary))

    def run(count):
        nonlocal token
        for _ in range(count):
            out = model(input_ids=token, past_key_values=cache, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)

    run(3)
    say(workload["name"], batch * steps / seconds(lambda: run(steps)))


def measure_matrix(workload):
    matrix = shapes["matrix"]
    rows, new = workload["rows"], matrix["new_tokens"]
    ids = tokens(rows, matrix["demonstration_tokens"] + matrix["target_tokens"], vocabulary)

    def run(count):
        model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count, do_sample=True,
            temperature=0.8, top_p=0.95, top_k=0, pad_token_id=0,
        )

    run(2)
    say(workload["name"], rows * new / seconds(lambda: run(new)))


kinds = {"prefill": measure_prefill, "decode": measure_decode, "matrix": measure_matrix}
with torch.inference_mode():
    for workload in shapes["workloads"]:
        try:
            kinds[workload["kind"]](workload)
        except torch.OutOfMemoryError:
            print(json.dumps({"note": f"{workload['name']} does not fit"}), flush=True)
        torch.cuda.empty_cache()
    del model
    torch.cuda.empty_cache()
    encoder = {key: value for key, value in shapes["encoder"].items() if key not in ("architectures", "model_type")}
    encoder = build(BertModel, BertConfig(**encoder))
    count, length = shapes["sentences"]
    ids = tokens(count, length, encoder.config.vocab_size)
    encoder(input_ids=ids).last_hidden_state.mean(1)
    taken = min(seconds(lambda: encoder(input_ids=ids).last_hidden_state.mean(1)) for _ in range(3))
    say("embeddings", count / taken)
