"""The small models of bench/models.py, exported with a dynamic batch, give eager's outputs in C++."""

import sys
from pathlib import Path

import pytest
from facula.export import Dim, export, save

import facula
from facula import _C

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from models import MODELS

NO_BATCH = ("graph",)  # its rows are nodes, which other arguments number


def model_and_arguments(text):
    """The model of a program of bench/models.py, and the arguments of its first call."""
    facula.manual_seed(0)
    scope = {"torch": facula, "nn": facula.nn, "F": facula.nn.functional, "values": facula.randn}
    exec("import math\n" + text, scope)
    calls = []
    handle = scope["model"].register_forward_pre_hook(lambda m, args: calls.append(args))
    scope["step"]()
    handle.remove()
    return scope["model"].eval(), calls[0]


def tensors(x):
    return [x] if isinstance(x, facula.Tensor) else [t for t in x if isinstance(t, facula.Tensor)]


@pytest.mark.parametrize("name", MODELS)
def test_cpp_gives_the_outputs_of_eager_for_every_batch(name, tmp_path):
    model, args = model_and_arguments(MODELS[name])
    rows, batch = args[0].size(0), Dim("batch")
    shapes = tuple({0: batch} if x.dim() and x.size(0) == rows else None for x in args)
    with facula.no_grad():
        save(export(model, args, dynamic_shapes=shapes), tmp_path / "m.fpt")
        program, _ = _C.load_program(str(tmp_path / "m.fpt"))
        for n in (rows, 1, 3) if name not in NO_BATCH else (rows,):
            inputs = [x[:n] if s else x for x, s in zip(args, shapes)]
            facula.manual_seed(n)
            results = tensors(program.run(inputs))
            facula.manual_seed(n)
            for a, b in zip(results, tensors(model(*inputs)), strict=True):
                assert a.shape == b.shape
                assert float((a - b).abs().max()) <= 1e-5 * float(b.abs().max())
