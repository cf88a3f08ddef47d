"""Records the public names of PyTorch's namespaces: run by an interpreter that has PyTorch.

    python tests/golden/record_names.py > tests/golden/names.txt

A line for each namespace: its name, then the names in it. Left out are modules, what modules import for
themselves, classes of the inner torch._C, and names that are Python's or typing's.
"""

import importlib
import inspect
import types

import torch

NAMESPACES = """
    torch torch.Tensor torch.nn torch.nn.functional torch.linalg torch.fft torch.special torch.optim
    torch.optim.lr_scheduler torch.nn.init torch.nn.utils torch.nn.utils.parametrize torch.nn.utils.prune
    torch.nn.utils.rnn torch.nn.attention torch.nn.parallel torch.autograd torch.autograd.functional
    torch.func
    torch.library torch.futures torch.utils.data torch.utils.checkpoint torch.testing torch.distributions
    torch.signal.windows torch.masked torch.overrides torch.storage torch.random torch.amp torch.hub
    torch.profiler
    torch.multiprocessing torch.fx torch.return_types
""".split()


def found(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        owner, _, last = name.rpartition(".")
        return getattr(importlib.import_module(owner), last)


def public(space, name):
    if name.startswith("_"):
        return False
    if space is torch.Tensor:
        return True
    try:
        value = getattr(space, name)
    except AttributeError:
        return False
    if isinstance(value, types.ModuleType):
        return False
    home = getattr(value, "__module__", None) or ""
    if inspect.isclass(value) or inspect.isfunction(value):
        return home.startswith("torch") and not (
            inspect.isclass(value) and home in ("torch._C", "torch._ops")
        )
    return not type(value).__module__.startswith(("typing", "__future__"))


def main():
    for name in NAMESPACES:
        space = found(name)
        listed = getattr(space, "__all__", None) if name != "torch.Tensor" else None
        names = [n for n in (listed or dir(space)) if public(space, n)]
        print(name, *sorted(set(names)))


main()
