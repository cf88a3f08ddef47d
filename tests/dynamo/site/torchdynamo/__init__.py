"""Names of the archived package torchdynamo, by public names of what it became: ``torch.compile`` and
``torch.compiler``. Its suite imports them.
"""

import torch

from . import config, exc, utils
from .testing import backend_of


def optimize(backend="inductor", *, nopython=False, guard_export_fn=None, guard_fail_fn=None, dynamic=None):
    def wrap(f):
        return torch.compile(f, backend=backend_of(backend), fullgraph=nopython)

    return wrap


def optimize_assert(backend, **options):
    return optimize(backend, nopython=True)


def run(f=None):
    return torch.compiler.set_stance("eager_on_recompile")(f) if f is not None else run


def reset():
    torch.compiler.reset()


disable = torch.compiler.disable
skip = torch.compiler.disable
allow_in_graph = torch.compiler.allow_in_graph
assume_constant_result = torch.compiler.assume_constant_result


def disallow_in_graph(f):
    return torch._dynamo.disallow_in_graph(f)


def graph_break():
    torch._dynamo.graph_break()


def export(f, *args, aten_graph=False, **kwargs):
    exported = torch._dynamo.export(f, aten_graph=aten_graph)(*args, **kwargs)
    return exported[0], exported[1]


def list_backends():
    return torch.compiler.list_backends()


__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "disable",
    "disallow_in_graph",
    "exc",
    "export",
    "graph_break",
    "list_backends",
    "optimize",
    "optimize_assert",
    "reset",
    "run",
    "skip",
    "utils",
]
