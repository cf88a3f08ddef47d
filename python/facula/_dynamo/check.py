"""``FACULA_COMPILE_CHECK=n``: every n-th call of a compiled function also runs plainly, on copies.

Arguments and the variables of the function's closure are copied together; globals are not, so effects on
them happen
twice. Results, arguments and closures (with the parameters, gradients and buffers of modules) must be
equal afterwards. A call whose arguments cannot be copied is not checked.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable
from typing import Any

from .. import _C


def _copied(function: Any, args: tuple, kwargs: dict) -> tuple[Any, tuple, dict] | None:
    cells = function.__closure__ or ()
    try:
        contents, args, kwargs = copy.deepcopy(([c.cell_contents for c in cells], args, kwargs))
    except Exception:  # a tensor with history, an empty cell, an object without copies
        return None
    closure = tuple(types.CellType(x) for x in contents)
    copied_function = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, closure
    )
    copied_function.__kwdefaults__ = function.__kwdefaults__
    return copied_function, args, kwargs


def _differences(a: Any, b: Any, path: str, seen: set[int]) -> list[str]:
    """Returns the paths at which two objects differ."""
    if id(a) in seen:
        return []
    seen.add(id(a))
    if isinstance(a, _C.Tensor):
        if not isinstance(b, _C.Tensor) or a.dtype != b.dtype or a.shape != b.shape:
            return [f"{path} is a {b!r}"]
        if a.requires_grad != b.requires_grad:
            return [f"{path}.requires_grad is {b.requires_grad}"]
        x, y = a.detach(), b.detach()
        exact = not (a.is_floating_point() or a.is_complex())
        equal = bool((x == y).all()) if exact else _close(x, y)
        differences = [] if equal else [f"the elements of {path}"]
        grads = (a.grad, b.grad) if a.is_leaf else (None, None)
        return differences + ([] if grads == (None, None) else _differences(*grads, f"{path}.grad", seen))
    if type(a) is not type(b):
        return [f"{path} is a {type(b).__name__}, not a {type(a).__name__}"]
    if isinstance(a, dict):
        if list(a) != list(b):
            return [f"the keys of {path}"]
        pairs = [(a[k], b[k], f"{path}[{k!r}]") for k in a]
    elif isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return [f"the length of {path}"]
        pairs = [(x, y, f"{path}[{k}]") for k, (x, y) in enumerate(zip(a, b))]
    elif hasattr(a, "__dict__") and not isinstance(a, (type, types.FunctionType, types.ModuleType)):
        pairs = [(vars(a), vars(b), path)]
    else:
        plain = isinstance(a, (bool, int, float, complex, str, bytes, type(None)))
        return [f"{path} is {b!r}, not {a!r}"] if plain and a != b and a == a else []
    return [d for x, y, where in pairs for d in _differences(x, y, where, seen)]


def _close(x: Any, y: Any) -> bool:
    tolerance = 1e-10 if x.dtype in (_C.float64, _C.complex128) else 1e-4
    if x.dtype in (_C.float16, _C.bfloat16):
        tolerance = 5e-2
    return bool(_C.functions.isclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True).all())


def checked(run: Any, every: int) -> Callable:
    """Returns a function that calls the compiled function ``run`` and checks each call number ``every``."""
    calls = 0

    @functools.wraps(run)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        copies = _copied(run.function, args, kwargs) if calls % every == 0 else None
        if copies is None:
            return run(*args, **kwargs)
        plain, plain_args, plain_kwargs = copies
        before = _C.default_generator.get_state()
        want = plain(*plain_args, **plain_kwargs)
        after = _C.default_generator.get_state()
        _C.default_generator.set_state(before)
        got = run(*args, **kwargs)
        cells = [[c.cell_contents for c in f.__closure__ or ()] for f in (plain, run.function)]
        all = (
            (want, got, "the result"),
            (plain_args, args, "the arguments"),
            (plain_kwargs, kwargs, "the arguments"),
            (*cells, "the closure"),
        )
        differences = [d for a, b, path in all for d in _differences(a, b, path, set())]
        if not bool((after == _C.default_generator.get_state()).all()):
            differences.append("the state of the generator")
        if differences:
            raise RuntimeError(
                f"compile: call {calls} of {run.__name__} differs from the plain function in "
                + "; ".join(differences[:5])
            )
        return got

    return call
