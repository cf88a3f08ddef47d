"""Exports a published model with a dynamic batch, saves, loads and runs it, by whatever `import torch` gives.

    python export_model.py LIBRARY NAME FOLDER

Prints a line of JSON: the seconds of export, the number of nodes, the largest error of the loaded program for
several batches, as a share of the largest element, and whether a batch of one is accepted; or the error, its
line and the stage. Behind the alias, C++ loads and runs the file too, and its results are compared as well.
"""

import json
import os
import sys
import time
import traceback

import model as zoo
import numpy as np
import torch

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


def build(library, name):
    """The model, and a function that returns an input of a batch."""
    random = np.random.RandomState(0)
    net, inputs, _, _ = getattr(zoo, library + "_model")(name, random)
    if library == "timm":
        size = inputs[0].shape[1:]
        return net, lambda n: torch.from_numpy(random.standard_normal((n, *size)).astype(np.float32))
    length, vocabulary = 32, net.config.vocab_size
    return Logits(net), lambda n: torch.from_numpy(random.randint(5, vocabulary, (n, length)))


def tensors(out):
    return [out] if isinstance(out, torch.Tensor) else [x for x in out if isinstance(x, torch.Tensor)]


def error(ours, theirs):
    """The largest difference, as a share of the largest element."""
    if len(ours) != len(theirs) or any(a.shape != b.shape for a, b in zip(ours, theirs)):
        return float("inf")
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in zip(ours, theirs))


def run(net, inputs, folder, row):
    example = inputs(BATCHES[0])
    row["stage"] = "export"
    start = time.perf_counter()
    shapes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(net, (example,), dynamic_shapes=shapes)
    row["export"], row["nodes"] = time.perf_counter() - start, len(list(program.graph.nodes))
    path = os.path.join(folder, "model.pt2")
    row["stage"] = "save"
    torch.export.save(program, path)
    row["stage"] = "load"
    loaded = [torch.export.load(path).module()]
    if is_ours:
        from facula import _C

        native, _ = _C.load_program(path)
        loaded.append(lambda x: native.run([x]))
    worst = 0.0
    for n in BATCHES:
        x = example if n == BATCHES[0] else inputs(n)
        row["stage"] = f"a batch of {n}"
        expected = tensors(net(x))
        for f in loaded:
            try:
                got = tensors(f(x))
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
        net, inputs = build(library, name)
        net.eval()
        with torch.no_grad():
            run(net, inputs, folder, row)
    except Exception as e:
        own = [f for f in traceback.extract_tb(e.__traceback__) if ".zoo" in f.filename]
        line = f"{own[-1].filename.rpartition('.zoo/')[2]}:{own[-1].lineno}" if own else ""
        row["failure"] = f"{type(e).__name__}: {e}".replace("\n", " ")[:300] + (f" ({line})" if line else "")
    print(json.dumps(row))


if __name__ == "__main__":
    main()
