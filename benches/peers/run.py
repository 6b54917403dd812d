"""How lifelong compares with what else runs the same models on this machine. README.md says how to run it."""

import argparse
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ours import Failed, Ours
from pairs import HEADER, race
from shapes import FULL, QUICK

ROOT = Path(__file__).resolve().parents[2]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, help="SmolLM2-135M-Instruct as GGUF: for lifelong and for llama.cpp")
    parser.add_argument("--gemma", type=Path, help="Gemma 3 270M as GGUF, the same way; three of the shapes")
    parser.add_argument("--minilm", type=Path, help="folder of all-MiniLM-L6-v2, for sentence-transformers")
    parser.add_argument("--minilm-onnx", type=Path, help="the same model as ONNX, for onnxruntime; needs --minilm")
    parser.add_argument("--lifelong", type=Path, default=ROOT / "target" / "release" / "lifelong")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, help="pairs of runs of each comparison [default: 5, with --quick 2]")
    parser.add_argument("--quick", action="store_true", help="less of everything: does it work?")
    parser.add_argument("--only", default="", metavar="WORD", help="comparisons whose model, workload or peer contains WORD")
    parser.add_argument("--matrix-part", type=int, default=1, metavar="N",
                        help="time 1/N of the matrix's demonstrations on llama.cpp: each is the same work")
    parser.add_argument("--output", type=Path, default=Path("peers.json"), help="every run, as JSON")
    args = parser.parse_args()
    if not (args.gguf or args.gemma or args.minilm):
        parser.error("nothing to compare: give --gguf, --gemma, --minilm or several of them")
    if args.minilm_onnx and not args.minilm:
        parser.error("--minilm-onnx needs the tokenizer in --minilm")
    if not args.lifelong.exists():
        parser.error(f"no program at {args.lifelong}: build it (cargo build --release) or give --lifelong")
    args.pairs = args.pairs or (2 if args.quick else 5)
    return args


@dataclass(frozen=True)
class Backbone:
    """A model in one file, which lifelong and its peers read."""

    name: str
    family: str  # folder of tests/golden whose make.py loads it into transformers
    path: Path
    workloads: tuple | None = None  # None: all that a peer has


GEMMA_WORKLOADS = ("prefill-512", "decode-1-shared", "decode-32-shared")
ENCODER = "MiniLM"


class Comparison:
    """What was asked for, and what has come of it."""

    def __init__(self, args):
        self.args = args
        self.scale = QUICK if args.quick else FULL
        self.results, self.notes, self.programs, self.device = [], [], {}, None

    def note(self, text):
        print(text, file=sys.stderr)
        self.notes.append(text)

    def wants(self, *words):
        return any(self.args.only in word for word in words)

    def compare(self, model, path, peer, module, names, load, **options):
        """Races the chosen ones of the named workloads; a peer that cannot is a note, not an end."""
        chosen = [name for name in names if self.wants(model, name, peer)]
        if not chosen:
            return
        self.programs[peer] = module.describe()
        try:
            prepared = load()
        except Exception as error:
            self.note(f"{model}, {peer} left out: {error}")
            return
        ours = Ours(self.args.lifelong, path, self.args.threads, self.scale)
        for name in chosen:
            try:
                result = race(model, name, peer, ours, prepared[name], self.args.pairs, **options.get(name, {}))
                self.results.append(result)
            except (Failed, RuntimeError, MemoryError) as error:
                self.note(f"{model}, {peer}, {name} left out: {error}")
        self.device = ours.device or self.device

    def llama_cpp(self, backbone, folder):
        try:
            import llama_cpp_peer as llama
        except Exception as error:  # also a package that is there and does not load
            return self.note(f"llama.cpp left out (llama-cpp-python): {error}")
        part = min(self.args.matrix_part, self.scale.matrix.demonstrations)
        matrix = {"note": f"peer: {1 / part:.3g} of the demonstrations timed, scaled" if part > 1 else ""}
        names = backbone.workloads or llama.workloads(None, self.scale, part).keys()

        def load(path):
            repacked = llama.survives_repacking(path)
            if not repacked:
                self.note(f"{Path(path).name}: llama.cpp's repacked weights crash on this processor and are off")
            return llama.workloads(llama.Model(path, self.args.threads, repacked), self.scale, part)

        def compare(peer, load):
            self.compare(backbone.name, backbone.path, peer, llama, names, load, matrix=matrix)

        compare("llama.cpp, same file", lambda: load(str(backbone.path)))
        for kind in llama.QUANTISATIONS:
            compare(f"llama.cpp, file changed to {kind}", lambda: load(llama.requantise(backbone.path, kind, folder)))

    def transformers(self, backbone):
        try:
            import transformers_peer as transformers
        except Exception as error:  # also a package that is there and does not load
            return self.note(f"transformers left out (transformers, torch, gguf, jinja2, llama-cpp-python): {error}")
        names = [name for name in transformers.workloads(None) if name in (backbone.workloads or [name])]
        model = lambda: transformers.Model(backbone.family, backbone.path, self.args.threads)
        load = lambda: transformers.workloads(model())
        self.compare(backbone.name, backbone.path, "transformers, float32", transformers, names, load)

    def sentence_transformers(self):
        try:
            import sentence_transformers_peer as sentences
        except Exception as error:  # also a package that is there and does not load
            return self.note(f"sentence-transformers left out (sentence-transformers, torch): {error}")
        names = sentences.workloads(None).keys()
        load = lambda: sentences.workloads(sentences.Model(self.args.minilm, self.args.threads))
        options = {name: PER_SENTENCE for name in names}
        self.compare(ENCODER, None, "sentence-transformers", sentences, names, load, **options)

    def onnxruntime(self):
        try:
            import onnxruntime_peer as onnx
        except Exception as error:  # also a package that is there and does not load
            return self.note(f"onnxruntime left out (onnxruntime, tokenizers): {error}")
        names = onnx.workloads(None).keys()
        model = lambda: onnx.Model(self.args.minilm_onnx, self.args.minilm, self.args.threads)
        options = {name: PER_SENTENCE for name in names}
        self.compare(ENCODER, None, "onnxruntime", onnx, names, lambda: onnx.workloads(model()), **options)


PER_SENTENCE = {"unit": "sentences/s"}


def backbones(args):
    if args.gguf:
        yield Backbone("SmolLM2", "smollm2", args.gguf)
    if args.gemma:
        yield Backbone("Gemma 3 270M", "gemma3", args.gemma, GEMMA_WORKLOADS)


def main():
    args = arguments()
    comparison = Comparison(args)
    load_before = os.getloadavg()[0]
    if load_before > 0.5:
        comparison.note(f"the machine was busy (load {load_before:.1f}): programs that wait by spinning suffer most")
    with tempfile.TemporaryDirectory() as folder:
        for backbone in backbones(args):
            comparison.llama_cpp(backbone, folder)
            comparison.transformers(backbone)
        if args.minilm:
            comparison.sentence_transformers()
        if args.minilm_onnx:
            comparison.onnxruntime()
    if not comparison.results:
        sys.exit("nothing was compared")
    print(f"{comparison.device}; {args.threads} threads for each peer\n\n{HEADER}")
    print("\n".join(result.row() for result in comparison.results))
    # One program stands behind several peers.
    print("\n" + "\n".join(f"- {line}" for line in [*dict.fromkeys(comparison.programs.values()), *comparison.notes]))
    write(args, comparison, load_before)


def write(args, comparison, load_before):
    found = {
        "device": comparison.device, "threads": args.threads, "quick": args.quick, "load_before": load_before,
        "programs": comparison.programs, "notes": comparison.notes,
        "comparisons": [result.json() for result in comparison.results],
    }
    args.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
