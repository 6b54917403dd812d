"""How lifelong compares with what else runs the same models on this machine. README.md says how to run it."""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from ours import Failed, Ours
from pairs import HEADER, race
from shapes import FULL, QUICK

ROOT = Path(__file__).resolve().parents[2]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, help="SmolLM2-135M-Instruct as GGUF: for lifelong and for llama.cpp")
    parser.add_argument("--minilm", type=Path, help="folder of all-MiniLM-L6-v2, for sentence-transformers")
    parser.add_argument("--minilm-onnx", type=Path, help="the same model as ONNX, for onnxruntime; needs --minilm")
    parser.add_argument("--lifelong", type=Path, default=ROOT / "target" / "release" / "lifelong")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, help="pairs of runs of each comparison [default: 5, with --quick 2]")
    parser.add_argument("--quick", action="store_true", help="less of everything: does it work?")
    parser.add_argument("--only", default="", metavar="WORD", help="comparisons whose workload or peer contains WORD")
    parser.add_argument("--matrix-part", type=int, default=1, metavar="N",
                        help="time 1/N of the matrix's demonstrations on llama.cpp: each is the same work")
    parser.add_argument("--output", type=Path, default=Path("peers.json"), help="every run, as JSON")
    args = parser.parse_args()
    if not (args.gguf or args.minilm):
        parser.error("nothing to compare: give --gguf, --minilm or both")
    if args.minilm_onnx and not args.minilm:
        parser.error("--minilm-onnx needs the tokenizer in --minilm")
    if not args.lifelong.exists():
        parser.error(f"no program at {args.lifelong}: build it (cargo build --release) or give --lifelong")
    args.pairs = args.pairs or (2 if args.quick else 5)
    return args


class Comparison:
    """What was asked for, and what has come of it."""

    def __init__(self, args):
        self.args = args
        self.scale = QUICK if args.quick else FULL
        self.ours = Ours(args.lifelong, args.gguf or "smollm2-135m-instruct", args.threads, self.scale)
        self.results, self.notes, self.programs = [], [], {}

    def note(self, text):
        print(text, file=sys.stderr)
        self.notes.append(text)

    def wants(self, peer, workloads):
        return [name for name in workloads if self.args.only in name or self.args.only in peer]

    def compare(self, peer, module, names, load, **options):
        """Races the chosen ones of the named workloads; a peer that cannot is a note, not an end."""
        chosen = self.wants(peer, names)
        if not chosen:
            return
        self.programs[peer] = module.describe()
        try:
            prepared = load()
        except Exception as error:
            self.note(f"{peer} left out: {error}")
            return
        for name in chosen:
            try:
                self.results.append(race(name, peer, self.ours, prepared[name], self.args.pairs, **options.get(name, {})))
            except (Failed, RuntimeError, MemoryError) as error:
                self.note(f"{peer}, {name} left out: {error}")

    def llama_cpp(self, folder):
        try:
            import llama_cpp_peer as llama
        except ImportError as error:
            return self.note(f"llama.cpp left out (llama-cpp-python): {error}")
        part = min(self.args.matrix_part, self.scale.matrix.demonstrations)
        matrix = {"note": f"peer: {1 / part:.3g} of the demonstrations timed, scaled" if part > 1 else ""}
        names = llama.workloads(None, self.scale, part).keys()

        def load(path):
            repacked = llama.survives_repacking(path)
            if not repacked:
                self.note(f"{Path(path).name}: llama.cpp's repacked weights crash on this processor and are off")
            return llama.workloads(llama.Model(path, self.args.threads, repacked), self.scale, part)

        self.compare("llama.cpp, same file", llama, names, lambda: load(str(self.args.gguf)), matrix=matrix)
        for kind in llama.QUANTISATIONS:
            changed = lambda: load(llama.requantise(self.args.gguf, kind, folder))
            self.compare(f"llama.cpp, file changed to {kind}", llama, names, changed, matrix=matrix)

    def transformers(self):
        try:
            import transformers_peer as transformers
        except ImportError as error:
            return self.note(f"transformers left out (transformers, torch, gguf, jinja2, llama-cpp-python): {error}")
        load = lambda: transformers.workloads(transformers.Model(self.args.gguf, self.args.threads))
        self.compare("transformers, float32", transformers, transformers.workloads(None).keys(), load)

    def sentence_transformers(self):
        try:
            import sentence_transformers_peer as sentences
        except ImportError as error:
            return self.note(f"sentence-transformers left out (sentence-transformers, torch): {error}")
        names = sentences.workloads(None).keys()
        load = lambda: sentences.workloads(sentences.Model(self.args.minilm, self.args.threads))
        self.compare("sentence-transformers", sentences, names, load, **{name: PER_SENTENCE for name in names})

    def onnxruntime(self):
        try:
            import onnxruntime_peer as onnx
        except ImportError as error:
            return self.note(f"onnxruntime left out (onnxruntime, tokenizers): {error}")
        names = onnx.workloads(None).keys()
        model = lambda: onnx.Model(self.args.minilm_onnx, self.args.minilm, self.args.threads)
        options = {name: PER_SENTENCE for name in names}
        self.compare("onnxruntime", onnx, names, lambda: onnx.workloads(model()), **options)


PER_SENTENCE = {"unit": "sentences/s"}


def main():
    args = arguments()
    comparison = Comparison(args)
    load_before = os.getloadavg()[0]
    if load_before > 0.5:
        comparison.note(f"the machine was busy (load {load_before:.1f}): programs that wait by spinning suffer most")
    with tempfile.TemporaryDirectory() as folder:
        if args.gguf:
            comparison.llama_cpp(folder)
            comparison.transformers()
        if args.minilm:
            comparison.sentence_transformers()
        if args.minilm_onnx:
            comparison.onnxruntime()
    if not comparison.results:
        sys.exit("nothing was compared")
    print(f"{comparison.ours.device}; {args.threads} threads for each peer\n\n{HEADER}")
    print("\n".join(result.row() for result in comparison.results))
    # One program stands behind several peers.
    print("\n" + "\n".join(f"- {line}" for line in [*dict.fromkeys(comparison.programs.values()), *comparison.notes]))
    write(args, comparison, load_before)


def write(args, comparison, load_before):
    found = {
        "device": comparison.ours.device, "threads": args.threads, "quick": args.quick, "load_before": load_before,
        "programs": comparison.programs, "notes": comparison.notes,
        "comparisons": [result.json() for result in comparison.results],
    }
    args.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
