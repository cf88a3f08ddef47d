"""Exports a published model with a dynamic batch, saves, loads and runs it, by whatever `import torch` gives.

    python export_model.py LIBRARY NAME FOLDER

LIBRARY is timm, transformers, or program, for those of bench/programs.py. Prints a line of JSON: the seconds
of export, the number of nodes, the largest error of the loaded program for several batches, as a share of the
largest element, and whether a batch of one is accepted; or the error, its line and the stage. Behind the
alias, C++ loads and runs the file too, and its results are compared as well.
"""

import inspect
import json
import os
import sys
import time
import traceback
from pathlib import Path

import model as zoo
import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

BATCHES = (2, 1, 3)
is_ours = "facula" in sys.modules


class Logits(torch.nn.Module):
    """A model of transformers as a function of tensors."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        given = {"input_ids": input_ids}
        if self.model.config.is_encoder_decoder:
            given["decoder_input_ids"] = input_ids
        out = self.model(**given)
        return out.logits if hasattr(out, "logits") else (out.start_logits, out.end_logits)


def program_of(name):
    """A model of bench/programs.py, and a function that returns the inputs of a batch: rows of its own."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
    from programs import PROGRAMS
    from rows import PROLOGUE

    names = {"torch": torch, "__name__": "program"}
    exec(compile(PROLOGUE + PROGRAMS[name], name, "exec"), names)
    dimension = 1 if name == "LSTM" else 0
    rows = names["inputs"][0].size(dimension)

    def inputs(n):
        def some(x):
            count = x.size(dimension) // rows * n
            return x.index_select(dimension, torch.arange(count) % x.size(dimension))

        return tree_map(some, tuple(names["inputs"]))

    return names["model"], inputs, dimension


def build(library, name):
    """The model, a function that returns the inputs of a batch, and their dimension of the batch."""
    if library == "program":
        return program_of(name)
    random = np.random.RandomState(0)
    net, inputs, _, _ = getattr(zoo, library + "_model")(name, random)
    if library == "timm":
        size = inputs[0].shape[1:]
        return net, lambda n: (torch.from_numpy(random.standard_normal((n, *size)).astype(np.float32)),), 0
    length, vocabulary = 32, net.config.vocab_size
    return Logits(net), lambda n: (torch.from_numpy(random.randint(5, vocabulary, (n, length))),), 0


def tensors(out):
    return [x for x in tree_leaves(out) if isinstance(x, torch.Tensor)]


def dims_of(example, dimension):
    """Dims of the batch, by tensor; a tensor may have a multiple of the batch's rows."""
    rows = tensors(example)[0].size(dimension)
    dims = {}

    def dim(x):
        factor = x.size(dimension) // rows
        return {
            dimension: dims.setdefault(factor, torch.export.Dim(f"batch{factor}" if factor > 1 else "batch"))
        }

    return tree_map(dim, example)


def error(ours, theirs):
    """The largest difference, as a share of the largest element."""
    if len(ours) != len(theirs) or any(a.shape != b.shape for a, b in zip(ours, theirs)):
        return float("inf")
    pairs = [(a.double(), b.double()) for a, b in zip(ours, theirs)]
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in pairs)


def seeded(f, x):
    """The tensors of a call, with the same random numbers each time."""
    torch.manual_seed(0)
    return tensors(f(*x))


def run(net, inputs, dimension, folder, row):
    example = inputs(BATCHES[0])
    row["stage"] = "export"
    start = time.perf_counter()
    shapes = dims_of(example, dimension)
    star = any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(net.forward).parameters.values())
    program = torch.export.export(net, example, dynamic_shapes=(shapes,) if star else shapes)
    row["export"], row["nodes"] = time.perf_counter() - start, len(list(program.graph.nodes))
    path = os.path.join(folder, "model.pt2")
    row["stage"] = "save"
    torch.export.save(program, path)
    row["stage"] = "load"
    loaded = [torch.export.load(path).module()]
    if is_ours:
        from facula import _C

        native, _ = _C.load_program(path)
        loaded.append(lambda *x: native.run(tensors(x)))
    worst = 0.0
    for n in BATCHES:
        x = example if n == BATCHES[0] else inputs(n)
        row["stage"] = f"a batch of {n}"
        expected = seeded(net, x)
        for f in loaded:
            try:
                got = seeded(f, x)
            except (RuntimeError, AssertionError, ValueError):
                if n != 1:
                    raise
                row["one"] = False
                continue
            worst = max(worst, error(got[: len(expected)], expected))
    row["error"] = worst
    row.setdefault("one", True)
    del row["stage"]


def main():
    library, name, folder = sys.argv[1:]
    torch.set_num_threads(zoo.THREADS)
    torch.manual_seed(0)
    row = {}
    try:
        net, inputs, dimension = build(library, name)
        net.eval()
        with torch.no_grad():
            run(net, inputs, dimension, folder, row)
    except Exception as e:
        own = [f for f in traceback.extract_tb(e.__traceback__) if ".zoo" in f.filename]
        line = f"{own[-1].filename.rpartition('.zoo/')[2]}:{own[-1].lineno}" if own else ""
        row["failure"] = f"{type(e).__name__}: {e}".replace("\n", " ")[:300] + (f" ({line})" if line else "")
    print(json.dumps(row))


if __name__ == "__main__":
    main()
