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
    torch.autograd.graph torch.autograd.forward_ad torch.backends torch.backends.cpu torch.backends.cuda
    torch.backends.cudnn torch.backends.mkl torch.backends.mkldnn torch.backends.mps torch.backends.openmp
    torch.backends.opt_einsum torch.compiler torch.cpu torch.cuda torch.cuda.amp torch.distributed
    torch.export torch.functional torch.fx.passes.shape_prop torch.fx.subgraph_rewriter
    torch.jit torch.mps torch.nested torch.nn.attention.bias torch.nn.attention.flex_attention
    torch.nn.modules.utils torch.nn.parameter torch.nn.utils.parametrizations torch.nn.utils.stateless
    torch.nn.utils.fusion torch.nn.utils.convert_parameters torch.onnx torch.optim.swa_utils torch.package
    torch.quasirandom torch.serialization torch.sparse torch.types torch.torch_version torch.utils
    torch.utils.benchmark torch.utils.collect_env torch.utils.cpp_extension torch.utils.dlpack
    torch.utils.flop_counter torch.utils.hooks torch.utils.model_zoo
    torch.utils._pytree torch.utils._python_dispatch torch.ao.quantization torch.nn.quantized torch.xpu
    torch.monitor torch.distributed.tensor torch.distributed.tensor.parallel
    torch.utils.data.datapipes.iter torch.utils.data.datapipes.map
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
