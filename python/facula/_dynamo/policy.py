"""How a capture treats calls of C functions and of functions of this package.

The interpreter of ``compile`` enters functions of Python. A C function runs on the real objects, which
later calls can repeat only if its result follows from what guards check. :func:`classify` answers once for
each function.
"""

from __future__ import annotations

import bisect
import collections
import copy
import functools
import inspect
import itertools
import json
import logging
import math
import operator
import sys
import types
import warnings
from typing import Any

from .. import _C
from . import polyfills

# The values of C++'s `Policy` (python/bind/capture/interpreter.h).
(
    UNKNOWN,
    RECORDED,
    STRUCTURAL,
    VALUES,
    MODE,
    BREAKS,
    REPLACED,
    CONSTANT,
    INLINED,
    OBSERVED,
    FOLDED,
    CALLS,
    HOOKS,
    WARNS,
) = range(14)

# Modules whose functions compute on tensors alone: they are called while operators are recorded.
_OPERATOR_MODULES = frozenset(
    """
    facula facula.functional facula._composed facula._rearrange facula.nn.functional facula.nn._f
    facula.fft facula.linalg facula.special facula.signal facula.masked facula._checks facula._queries
    facula._tensor
    """.split()
)
# Methods and functions of tensors that read elements, or share memory with others.
_READS = frozenset(
    """
    item tolist numpy __bool__ __float__ __int__ __index__ __complex__ __array__ __repr__ __str__ __format__
    __dlpack__
    data_ptr storage untyped_storage __reduce_ex__ __setstate__ __deepcopy__ is_nonzero equal allclose
    from_numpy frombuffer from_dlpack __hash__ __iter__ __contains__ cpu_data share_memory_ pin_memory
    """.split()
)
# Methods that tell where the elements are in memory, which handles do not know.
_PLACES = frozenset("_storage_info is_set_to storage_offset _is_view".split())
# Functions and methods that make sparse tensors, which no program contains.
_SPARSE = frozenset(
    """
    sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_compressed_tensor to_sparse to_sparse_coo
    to_sparse_csr to_sparse_csc sparse_mask
    """.split()
)
# Functions that draw until all numbers are accepted, so that the numbers decide how far the generator moves.
_DRAWS = frozenset("_standard_gamma _standard_log_gamma _sample_dirichlet binomial".split())
# Methods that change gradients, hooks, memory or generators.
_CHANGES = frozenset(
    """
    module_load requires_grad_ retain_grad register_post_accumulate_grad_hook
    set_ resize_
    resize_as_
    set_data swap_tensors seed manual_seed set_rng_state get_rng_state initial_seed
    is_leaf_ sparse_resize_ apply_ map_ is_inference
    unsafe_chunk unsafe_split unsafe_split_with_sizes
    """.split()
)

# Modules of Python and of this package whose functions are called as a whole.
_WHOLE_MODULES = frozenset("random threading pickle importlib re warnings".split())
# Functions of `logging` that write records or take locks; others decide whether there is something to write.
_LOGGING = frozenset("_log handle basicConfig _acquireLock _releaseLock captureWarnings shutdown".split())
_OWN_WHOLE_MODULES = (
    "facula.fx", "facula.export", "facula.onnx", "facula.autograd.profiler_util", "facula.serialization",
)  # fmt: skip

_STRUCTURAL = [
    len,
    getattr,
    hasattr,
    setattr,
    next,
    iter,
    isinstance,
    issubclass,
    callable,
    id,
    globals,
]
_FOLDED = [inspect.signature, inspect.getfullargspec, inspect.isfunction, inspect.isclass, inspect.ismethod]
_VALUES: dict[Any, Any] = {
    any: polyfills.any_,
    all: polyfills.all_,
    sum: polyfills.sum_,
    min: polyfills.min_,
    max: polyfills.max_,
    sorted: None,
    abs: polyfills.abs_,
    round: None,
    divmod: None,
    pow: polyfills.pow_,
    hash: None,
    repr: None,
    format: None,
    ord: None,
    chr: None,
    bin: None,
    hex: None,
}
_TYPES: dict[Any, Any] = {
    list: polyfills.list_,
    tuple: polyfills.tuple_,
    set: polyfills.set_,
    frozenset: None,
    dict: polyfills.dict_,
    zip: polyfills.zip_,
    enumerate: polyfills.enumerate_,
    reversed: polyfills.reversed_,
    collections.OrderedDict: polyfills.ordered_dict_,
    collections.deque: polyfills.deque_,
    collections.defaultdict: polyfills.defaultdict_,
}
_OBSERVED_METHODS = ("step", "_step_groups", "zero_grad", "_step_traced", "_before_step", "_keep")
_DATA_TYPES = [range, slice, int, float, bool, str, complex, bytes]
_MODE_NAMES = """
    is_grad_enabled set_grad_enabled autocast_state set_autocast get_default_dtype is_inference_mode_enabled
    is_anomaly_enabled promote_types can_cast finfo_of iinfo_of vmap_level forward_level profile_enabled
    enter_autocast exit_autocast enter_checkpoint leave_checkpoint set_break_errors
    package_name saved_tensors_hooks_disabled
""".split()


@functools.cache
def _table() -> dict[int, tuple[int, Any]]:
    """Returns rules by the id of a function; the functions are immortal."""
    from .. import compiler

    rules: dict[int, tuple[int, Any]] = {}
    for f in (*_STRUCTURAL, _C.has_torch_function):
        rules[id(f)] = (STRUCTURAL, None)
    for f, replacement in _VALUES.items():
        rules[id(f)] = (VALUES, replacement)
    for t, replacement in _TYPES.items():
        rules[id(t)] = (STRUCTURAL, replacement)
    for t in _DATA_TYPES:
        rules[id(t)] = (VALUES, None)
    for t, replacement in ((map, polyfills.map_), (filter, polyfills.filter_)):
        rules[id(t)] = (REPLACED, replacement)
    for f in _FOLDED:
        rules[id(f)] = (FOLDED, None)
    rules[id(functools.reduce)] = (REPLACED, polyfills.reduce_)
    rules[id(bisect.bisect_left)] = (REPLACED, polyfills.bisect_left_)
    rules[id(bisect.bisect_right)] = (REPLACED, polyfills.bisect_right_)
    rules[id(print)] = (BREAKS, "a call of print")
    rules[id(warnings.warn)] = (WARNS, None)
    for module in (math, operator):
        for f in vars(module).values():
            if isinstance(f, types.BuiltinFunctionType):
                rules.setdefault(id(f), (VALUES, getattr(polyfills, f"operator_{f.__name__}", None)))
    for name, f in vars(itertools).items():
        if isinstance(f, type) and hasattr(polyfills, f"{name}_"):
            rules[id(f)] = (REPLACED, getattr(polyfills, f"{name}_"))
    for name in _MODE_NAMES:
        if hasattr(_C, name):
            rules[id(getattr(_C, name))] = (MODE, None)
    for name in ("__enter__", "__exit__", "__init__"):
        if name in vars(_C.GradMode):
            rules[id(vars(_C.GradMode)[name])] = (MODE, None)
    for f in (sys.exc_info, sys.exception):
        rules[id(f)] = (MODE, None)
    rules[id(_C.is_tracing)] = (CONSTANT, False)
    rules[id(_C.is_capturing)] = (CONSTANT, True)
    for f in (_C.apply_function, _C.push_saved_tensors_hooks, _C.pop_saved_tensors_hooks):
        rules[id(f)] = (CALLS, None)
    for f in (compiler.is_compiling, compiler.is_dynamo_compiling):
        rules[id(f)] = (CONSTANT, True)
    return rules


@functools.cache
def _operators() -> frozenset[int]:
    ids = set()
    for module in (_C.functions, _C.nn_functional, _C.fft, _C.linalg, _C.special, _C.ops):
        for name, f in vars(module).items():
            if _by_name(name)[0] == RECORDED and isinstance(f, types.BuiltinFunctionType):
                ids.add(id(f))
    for name in (
        "tensor", "as_tensor", "asarray", "scalar_tensor", "backward", "grad",
    ):  # fmt: skip
        if hasattr(_C, name):
            ids.add(id(getattr(_C, name)))
    return frozenset(ids)


def _may_warn(f: Any, depth: int = 3) -> bool:
    """Whether a function of this package calls ``warnings.warn``, itself or by another one."""
    if not isinstance(f, types.FunctionType) or not _module_of(f).startswith("facula"):
        return False
    names = f.__code__.co_names
    used = [f.__globals__[n] for n in names if n in f.__globals__]
    if any(x is warnings for x in used):
        return True
    used += [vars(x)[n] for x in used if isinstance(x, types.ModuleType) for n in names if n in vars(x)]
    return depth > 0 and any(_may_warn(getattr(x, "__wrapped__", x), depth - 1) for x in used)


def _by_name(name: str) -> tuple[int, Any]:
    if name in _READS:
        return BREAKS, f"`{name}` reads the elements of a tensor"
    if name == "register_hook":
        return HOOKS, "`register_hook` of a tensor"
    if name in _SPARSE:
        return BREAKS, f"`{name}` makes a sparse tensor"
    if name in _DRAWS:
        return BREAKS, f"`{name}` draws until all numbers are accepted"
    if name in _CHANGES or name in _PLACES:
        return BREAKS, f"`{name}` of a tensor"
    return RECORDED, None


def _module_of(f: Any) -> str:
    """Returns the name of the module of a callable; programs may use the package by another name."""
    module, package = getattr(f, "__module__", None) or "", _C.package_name()
    if package != "facula" and (module == package or module.startswith(package + ".")):
        return "facula" + module[len(package) :]
    return module


def classify(f: Any) -> tuple[int, Any]:
    """Returns the policy of a callable, and its replacement, its constant, or the reason of the break."""
    if id(f) in _table():
        return _table()[id(f)]
    if id(f) in _operators():
        return RECORDED, None
    if getattr(f, "__name__", "") in _SPARSE | _DRAWS and isinstance(f, types.BuiltinFunctionType):
        return _by_name(f.__name__)
    kind = type(f)
    name = getattr(f, "__name__", "")
    if kind in (types.MethodDescriptorType, types.WrapperDescriptorType):
        if issubclass(f.__objclass__, _C.Tensor):
            return _by_name(name)
        if f.__objclass__ is _C.GradMode:
            return MODE, None
        if f.__objclass__ is _C.FunctionCtx:
            return RECORDED, None
        if f.__objclass__.__name__ == "HookHandle":
            return HOOKS, f"`{name}` of a hook"
        return UNKNOWN, None
    module = _module_of(f)
    if kind.__name__ == "Overridable":
        if getattr(f, "__wrapped__", None) is None or module not in _OPERATOR_MODULES:
            return INLINED, f.__wrapped__
        rule = _by_name(name)
        return (INLINED, f.__wrapped__) if rule[0] == RECORDED and _may_warn(f.__wrapped__) else rule
    if isinstance(f, types.FunctionType):
        is_of_python = module.partition(".")[0] in _WHOLE_MODULES or f is copy.deepcopy
        is_own = module.startswith(_OWN_WHOLE_MODULES) and not name.startswith("is_")
        if is_of_python or is_own or (module == "logging" and name in _LOGGING):
            return BREAKS, f"a call of {module}.{f.__qualname__}"
        if f in (json.dumps, json.loads):
            return VALUES, None
        if f is logging.getLogger:
            return FOLDED, None
        if name == "graph_break" and module == "facula._dynamo":
            return BREAKS, "graph_break()"
        if "_dynamo_disable" in vars(f):
            return BREAKS, vars(f)["_dynamo_disable"]
        if module == "facula.utils.checkpoint" and name == "checkpoint":
            from .checkpoints import checkpoint

            return REPLACED, checkpoint
        if module == "facula.optim.lbfgs" and name == "step":
            return BREAKS, "a step of LBFGS, whose search looks at losses"
        if module == "facula.nn.modules.module" and name == "_through_node":
            return HOOKS, "the backward hooks of a module"
        if module.startswith("facula.optim.") and name in _OBSERVED_METHODS:
            return OBSERVED, None
        if module == "facula.compiler" or module.startswith("facula._dynamo"):
            captures = name in ("explain", "explained", "minify")
            return (BREAKS, f"{name}(), which captures by itself") if captures else (UNKNOWN, None)
        if module not in _OPERATOR_MODULES or name.startswith("__"):
            return UNKNOWN, None
        rule = _by_name(name)
        return (UNKNOWN, None) if rule[0] == RECORDED and _may_warn(f) else rule
    if isinstance(f, type) and issubclass(f, _C.Tensor):
        return BREAKS, f"an instance of {name}, which may share the memory of a tensor"
    if isinstance(f, type) and module == "facula._modes":
        if f.__name__ in ("no_grad", "enable_grad", "set_grad_enabled"):
            return MODE, None
        return BREAKS, f"the mode {f.__name__}"
    return UNKNOWN, None
