"""Callables take the same as PyTorch's: arguments by the same names, attributes, types in brackets.
tests/golden/callables.txt.gz has the facts of PyTorch's.

python tests/python/test_callables.py     prints what is missing, by callable
"""

from __future__ import annotations

import importlib
import inspect
import re
import types
import warnings
from functools import cache

from support import recording

import facula

RECORDED = recording.read("callables.txt").splitlines()
CALLABLES = {path: (flags, names) for path, flags, *names in map(str.split, RECORDED)}
_NO_KERNELS = "PyTorch has no kernels for it on the CPU"
_INSIDE = "a detail of PyTorch's implementation"
_METHOD = "a method of an object that stands for the module"
_CUDA = "a choice of CUDA's kernels"
# The names that are missing on purpose, and the reasons.
_MADE_BY_EXPORT = "objects that export() creates"
_NOT_YET = "not there yet"
_OF_BASE = "a base class; the name is that of its subclasses"
ACCEPTED = {
    "torch.compile": ("name recompile_limit isolate_recompiles shapes_spec", _NOT_YET),
    "torch.quantize_per_tensor": ("tensors scales zero_points", _NOT_YET),
    "torch.export.ExportedProgram": ("range_constraints verifiers", _MADE_BY_EXPORT),
    "torch.onnx.ONNXProgram": ("model", _MADE_BY_EXPORT),
    "torch.ao.quantization.AffineQuantizedObserverBase": (
        "mapping_type target_dtype granularity quant_min quant_max eps scale_dtype zero_point_dtype "
        "preserve_zero zero_point_domain",
        _NOT_YET,
    ),
    "torch.ao.quantization.AffineQuantizedObserverBase.forward": ("input", _OF_BASE),
    "torch.ao.quantization.FakeQuantizeBase.forward": ("x", _OF_BASE),
    "torch.ao.quantization.FixedQParamsObserver.forward": ("X", _OF_BASE),
    "torch.nn.quantized.ConvTranspose1d.from_reference": ("ref_qconvt", _NOT_YET),
    "torch.nn.quantized.ConvTranspose2d.from_reference": ("ref_qconvt", _NOT_YET),
    "torch.nn.quantized.ConvTranspose3d.from_reference": ("ref_qconvt", _NOT_YET),
    "torch.SymInt": ("node", _INSIDE),
    "torch.SymBool": ("node", _INSIDE),
    "torch.SymFloat": ("node", _INSIDE),
    "torch.addmm": ("out_dtype", _NO_KERNELS),
    "torch.baddbmm": ("out_dtype", _NO_KERNELS),
    "torch.bmm": ("out_dtype", _NO_KERNELS),
    "torch.mm": ("out_dtype", _NO_KERNELS),
    "torch.Tensor.bmm": ("out_dtype", _NO_KERNELS),
    "torch.Tensor.mm": ("out_dtype", _NO_KERNELS),
    "torch.Tensor.to_sparse_csr": ("dense_dim", "matrices of this layout have no dense dimensions"),
    "torch.Tensor.to_sparse_csc": ("dense_dim", "matrices of this layout have no dense dimensions"),
    "torch.dequantize": ("tensors", _NO_KERNELS),
    "torch.sparse_coo_tensor": ("layout", "PyTorch lists it and refuses it"),
    "torch.sparse_csr_tensor": ("layout", "the function's name says it"),
    "torch.sparse_csc_tensor": ("layout", "the function's name says it"),
    "torch.rand_like": ("generator", "not there yet"),
    "torch.randn_like": ("generator", "not there yet"),
    "torch.view_copy": ("dtype", "not there yet"),
    "torch.nn.functional.elu_": ("scale input_scale", _INSIDE),
    "torch.nn.functional.handle_torch_function": ("attributes", _INSIDE),
    "torch.utils.checkpoint.SelectiveCheckpointContext": ("op_output", "not there yet"),
    "torch.profiler.profile": ("post_processing_timeout_s", "nothing is processed afterwards"),
    "torch.profiler.tensorboard_trace_handler": ("use_python_export", "there is one way to export"),
    "torch.autograd.graph.GradientEdge": ("ownership_token", _INSIDE),
    "torch.backends.cuda.is_built": ("attributes", _METHOD),
    "torch.backends.mkl.is_available": ("attributes", _METHOD),
    "torch.backends.mps.is_available": ("attributes", _METHOD),
    "torch.backends.mps.is_built": ("attributes", _METHOD),
    "torch.backends.openmp.is_available": ("attributes", _METHOD),
    "torch.nn.attention.flex_attention.BlockMask": (
        "dq_write_order dq_write_order_full dq_kv_order dq_kv_order_spt",
        _CUDA,
    ),
    "torch.nn.attention.flex_attention.BlockMask.from_kv_blocks": (
        "dq_write_order dq_write_order_full dq_kv_order",
        _CUDA,
    ),
    "torch.package.PackagingError": ("dependency_graph debug", _INSIDE),
    "torch.sparse.log_softmax": ("half_to_float", _CUDA),
    "torch.sparse.softmax": ("half_to_float", _CUDA),
    "torch.utils.benchmark.timer": ("attributes", "it is Python's own function"),
    "torch.utils._python_dispatch.SchemaInfo": ("outs_write_aliases read_only_alias_match_indexes", _INSIDE),
    "torch.utils.data.datapipes.iter.Collator": ("conversion", "not there yet"),
}
# Facts of a machine, by the name of each: other libraries are looked for there.
SKIPPED = {"torch.utils.collect_env.SystemEnv"}


def found(path: str):
    """The object at a dotted path of PyTorch, or None, and whether it is an attribute of a class."""
    parts = ["facula", *path.split(".")[1:]]
    for k in range(len(parts) - 1, 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            continue
        method = False
        for name in parts[k:]:
            method = isinstance(value, type)
            value = getattr(value, name, None)
        return value, method
    return None, False


def accepts(f, method: bool, name: str) -> bool:
    """Does a builtin take an argument of this name? A call with a senseless value tells."""
    try:
        f(*((facula.ones(2),) if method else ()), **{name: object()})
    except Exception as e:
        refused = rf"unexpected keyword argument '{name}'|no keyword arguments"
        texts = str(e).split("\n * ")[1:] or [str(e)]
        return not all(re.search(refused, text) for text in texts)
    return True


def refused_names(f, method: bool, names: list[str]) -> list[str]:
    builtin = isinstance(f, (types.BuiltinFunctionType, types.MethodDescriptorType))
    try:
        parameters = None if builtin else inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        parameters = None
    if parameters is None:
        return [n for n in names if not accepts(f, method, n)]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return []
    own = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return [n for n in names if n not in own]


def orders(f) -> list[list[str]]:
    """The names of the positional parameters, by signature: builtins tell theirs in their documentation."""
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        lines = re.findall(r"^\w+\((.*)\)$", getattr(f, "__doc__", None) or "", re.MULTILINE)
        each = [re.split(r", (?![^\[(]*[\])])", line.partition("*")[0]) for line in lines]
        names = [[p.partition("=")[0].split()[-1] for p in several if p.strip()] for several in each]
    else:
        names = [[p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]]
    return [["input" if n == "self" else n for n in several] for several in names]


def missing(path: str, flags: str, names: list[str]) -> list[str]:
    f, method = found(path)
    if f is None or not callable(f):
        return []  # test_names.py tells what is not there
    absent = refused_names(f, method, names)
    if flags == "g":
        try:
            f[int]
        except TypeError:
            absent.append("[]")
    elif flags == "a":
        try:
            f.probe = 1
            del f.probe
        except (AttributeError, TypeError):
            absent.append("attributes")
    return absent


@cache
def all_missing() -> dict[str, list[str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        each = {path: missing(path, *facts) for path, facts in CALLABLES.items() if path not in SKIPPED}
    return {path: absent for path, absent in each.items() if absent}


def test_callables_take_what_those_of_pytorch_take():
    accepted = {path: names.split() for path, (names, _) in ACCEPTED.items()}
    unknown = {
        path: [n for n in absent if n not in accepted.get(path, ())] for path, absent in all_missing().items()
    }
    assert {path: absent for path, absent in unknown.items() if absent} == {}


def test_what_is_missing_on_purpose_is_missing():
    stale = [path for path, (names, _) in ACCEPTED.items() if names.split() != all_missing().get(path)]
    assert stale == []


# PyTorch's overloads of the first two have orders of their own, which are recorded one after the other.
# Only export() creates the third, with arguments of ours.
OVERLOADED = {"torch.sparse_coo_tensor", "torch.nuclear_norm", "torch.export.ExportedProgram"}


def test_positional_arguments_come_in_the_order_of_pytorch():
    wrong = {}
    for path, (_, names) in CALLABLES.items():
        f, method = found(path)
        if not callable(f) or path in OVERLOADED | SKIPPED:
            continue
        ours = orders(f)
        if method:
            ours = [several[1:] if several[:1] in (["input"], ["cls"]) else several for several in ours]
        same = [[n for n in names if n in several] == [n for n in several if n in names] for several in ours]
        if same and not any(same):
            wrong[path] = ours
    assert wrong == {}


if __name__ == "__main__":
    for path, absent in all_missing().items():
        print(path, *absent)
