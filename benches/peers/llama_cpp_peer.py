"""llama.cpp through its C interface (llama-cpp-python), written as somebody would who knows it well: a prefix is computed
once and given to other sequences by `llama_memory_seq_cp`, and all rows decode in one batch over a unified KV cache.
"""

import ctypes
import os
import subprocess
import sys
import time
from importlib.metadata import version

import llama_cpp as llama

from shapes import DEMONSTRATION_TOKENS, DEPTH, TARGET_TOKENS, TEMPERATURE, TOP_P, tokens

# llama.cpp's own default, less work than lifelong does: its top-p alone, over the whole vocabulary of SmolLM2, takes 3 ms a
# token, most of the time of a batch, and nobody who measures would leave it so.
TOP_K = 40

QUANTISATIONS = {"Q8_0": llama.LLAMA_FTYPE_MOSTLY_Q8_0, "Q4_0": llama.LLAMA_FTYPE_MOSTLY_Q4_0}

# Kept for as long as the library may call it.
_silence = llama.llama_log_callback(lambda *_: None)
llama.llama_log_set(_silence, None)
llama.llama_backend_init()


def describe():
    return f"llama-cpp-python {version('llama-cpp-python')}: {llama.llama_print_system_info().decode().strip(' |')}"


def requantise(source, kind, folder):
    """The same model with its matrices in another type; returns the new file."""
    parameters = llama.llama_model_quantize_default_params()
    parameters.ftype = QUANTISATIONS[kind]
    parameters.allow_requantize = True
    path = os.path.join(folder, f"{kind}.gguf")
    failed = llama.llama_model_quantize(os.fsencode(source), os.fsencode(path), ctypes.byref(parameters))
    if failed:
        raise RuntimeError(f"llama_model_quantize to {kind} failed with {failed}")
    return path


def survives_repacking(path):
    """Whether the fast repacked weights of this build run on this processor: where they do not, the process dies."""
    return subprocess.run([sys.executable, __file__, path], capture_output=True).returncode == 0


class Model:
    """A loaded file."""

    def __init__(self, path, threads, repacked):
        parameters = llama.llama_model_default_params()
        parameters.n_gpu_layers = 0
        parameters.use_extra_bufts = repacked
        self.threads = threads
        self.model = llama.llama_model_load_from_file(os.fsencode(path), parameters)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))

    def close(self):
        llama.llama_model_free(self.model)


class Context:
    """Cells and sequences for one shape, and a sampler for each row."""

    def __init__(self, model, cells, sequences, flash_attention):
        self.vocabulary = model.vocabulary
        parameters = llama.llama_context_default_params()
        parameters.n_ctx = -(-cells // 256) * 256
        parameters.n_batch = 2048
        parameters.n_seq_max = sequences
        parameters.n_threads = parameters.n_threads_batch = model.threads
        parameters.kv_unified = True
        parameters.flash_attn_type = (
            llama.LLAMA_FLASH_ATTN_TYPE_AUTO if flash_attention else llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        self.context = llama.llama_init_from_model(model.model, parameters)
        if not self.context:
            raise RuntimeError("llama.cpp cannot make the context")
        self.memory = llama.llama_get_memory(self.context)
        self.batch = llama.llama_batch_init(2048, 0, 1)
        self.samplers = [sampler(row) for row in range(sequences)]

    def close(self):
        for chain in self.samplers:
            llama.llama_sampler_free(chain)
        llama.llama_batch_free(self.batch)
        llama.llama_free(self.context)

    def clear(self):
        llama.llama_memory_clear(self.memory, True)

    def copy(self, source, target):
        """`target` gets the cells of `source`, without a copy of their numbers."""
        llama.llama_memory_seq_cp(self.memory, source, target, -1, -1)

    def forget(self, sequence, position):
        """Cells of a sequence from a position on."""
        llama.llama_memory_seq_rm(self.memory, sequence, position, -1)

    def forward(self, rows):
        """Rows of (token, position, sequence, whether its logits are asked for)."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for index, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = wanted
        failed = llama.llama_decode(self.context, batch)
        if failed:
            raise RuntimeError(f"llama_decode failed with {failed}")

    def prompt(self, sequence, prompt, position=0):
        last = len(prompt) - 1
        self.forward([(token, position + at, sequence, at == last) for at, token in enumerate(prompt)])

    def sample(self, row, output):
        """A token for a row from the logits of the batch's entry `output`."""
        return llama.llama_sampler_sample(self.samplers[row], self.context, output)



def sampler(seed):
    chain = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
    for part in [
        llama.llama_sampler_init_top_k(TOP_K),
        llama.llama_sampler_init_top_p(TOP_P, 1),
        llama.llama_sampler_init_temp(TEMPERATURE),
        llama.llama_sampler_init_dist(seed),
    ]:
        llama.llama_sampler_chain_add(chain, part)
    return chain


class Prefill:
    """One prompt of which nothing is cached, and one new token."""

    def __init__(self, model, length):
        self.length = length
        self.context = Context(model, length + 1, 1, flash_attention=True)
        self.close = self.context.close
        self.prompt = tokens(1, length, model.vocabulary)

    def rate(self):
        self.context.clear()
        started = time.perf_counter()
        self.context.prompt(0, self.prompt)
        self.context.sample(0, self.length - 1)
        return self.length / (time.perf_counter() - started)


class Decode:
    """Rows that share a prefix of DEPTH tokens; every step is one token a row."""

    def __init__(self, model, batch, new_tokens):
        self.batch, self.new_tokens = batch, new_tokens
        self.context = Context(model, DEPTH + batch * (new_tokens + 1), batch + 1, flash_attention=True)
        self.close = self.context.close
        self.first = tokens(2, batch, model.vocabulary)
        self.context.prompt(0, tokens(1, DEPTH, model.vocabulary))
        for row in range(batch):
            self.context.copy(0, 1 + row)

    def rate(self):
        for row in range(self.batch):
            self.context.forget(1 + row, DEPTH)
        started = time.perf_counter()
        current = self.first
        for step in range(self.new_tokens):
            self.context.forward([(token, DEPTH + step, 1 + row, True) for row, token in enumerate(current)])
            current = [self.context.sample(row, row) for row in range(self.batch)]
        return self.batch * self.new_tokens / (time.perf_counter() - started)


class MatrixProgram:
    """Each demonstration and each pair is computed once; all seeds of all targets of a demonstration decode together.

    `part` times that share of the demonstrations: each one is the same work, so the rate is that of the whole.
    """

    def __init__(self, model, matrix, part):
        self.matrix = matrix
        self.demonstrations = max(1, matrix.demonstrations // part)
        rows = matrix.targets * matrix.seeds
        cells = DEMONSTRATION_TOKENS + matrix.targets * TARGET_TOKENS + rows * matrix.new_tokens
        self.context = Context(model, cells, rows + 1, flash_attention=False)
        self.close = self.context.close
        self.vocabulary = model.vocabulary
        self.targets = [tokens(100 + target, TARGET_TOKENS, model.vocabulary) for target in range(matrix.targets)]

    def rate(self):
        started = time.perf_counter()
        for demonstration in range(self.demonstrations):
            self.run(tokens(demonstration, DEMONSTRATION_TOKENS, self.vocabulary))
        return self.matrix.tokens(self.demonstrations) / (time.perf_counter() - started)

    def run(self, demonstration):
        context, seeds = self.context, self.matrix.seeds
        context.clear()
        context.prompt(0, demonstration)
        current = []
        for target, prompt in enumerate(self.targets):
            first = 1 + target * seeds
            context.copy(0, first)
            context.prompt(first, prompt, len(demonstration))
            current += [context.sample(target * seeds + seed, len(prompt) - 1) for seed in range(seeds)]
            for seed in range(1, seeds):
                context.copy(first, first + seed)
        position = len(demonstration) + TARGET_TOKENS
        for step in range(self.matrix.new_tokens - 1):
            context.forward([(token, position + step, 1 + row, True) for row, token in enumerate(current)])
            current = [context.sample(row, row) for row in range(len(current))]


def workloads(model, scale, matrix_part):
    """Name of the program's workload → what makes the peer ready for it."""
    return {
        "prefill-512": lambda: Prefill(model, 512),
        "prefill-2048": lambda: Prefill(model, 2048),
        "decode-1-shared": lambda: Decode(model, 1, scale.decode_tokens),
        "decode-8-shared": lambda: Decode(model, 8, scale.decode_tokens),
        "decode-32-shared": lambda: Decode(model, 32, scale.decode_tokens),
        "matrix": lambda: MatrixProgram(model, scale.matrix, matrix_part),
    }


if __name__ == "__main__":
    Prefill(Model(sys.argv[1], 2, repacked=True), 512).rate()
