"""all-MiniLM-L6-v2 from its folder to ONNX, for `run.py --minilm-onnx`: the encoder alone, batch and length left open.

    pip install torch transformers onnx onnxruntime
    python benches/peers/export_onnx.py all-MiniLM-L6-v2/ minilm.onnx
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModel

INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


class Encoder(torch.nn.Module):
    """Named inputs to last hidden states `[batch, tokens, hidden]`, and nothing else."""

    def __init__(self, folder):
        super().__init__()
        self.model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    def forward(self, input_ids, attention_mask, token_type_ids):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return out.last_hidden_state


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="config.json and model.safetensors of all-MiniLM-L6-v2")
    parser.add_argument("output", type=Path, help="the ONNX file to write")
    args = parser.parse_args()
    ids = torch.arange(1000, 1000 + 2 * 8).reshape(2, 8)
    example = (ids, torch.ones_like(ids), torch.zeros_like(ids))
    # The tracing exporter: the other one needs packages more, and writes the same operations.
    torch.onnx.export(
        Encoder(args.folder), example, str(args.output), input_names=INPUTS, output_names=["last_hidden_state"],
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in [*INPUTS, "last_hidden_state"]}, opset_version=17,
        dynamo=False,
    )
    check(args.folder, args.output)


def check(folder, path):
    """Another batch and length than the traced one, against torch."""
    import onnxruntime

    ids = torch.arange(2000, 2000 + 3 * 21).reshape(3, 21)
    given = dict(zip(INPUTS, (ids, torch.ones_like(ids), torch.zeros_like(ids))))
    with torch.inference_mode():
        expected = Encoder(folder)(**given)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(None, {name: value.numpy() for name, value in given.items()})[0])
    difference = (found - expected).abs().max().item()
    assert found.shape == expected.shape and difference < 1e-3, (found.shape, difference)
    print(f"{path}: largest difference from torch {difference:.1e}")


if __name__ == "__main__":
    main()
