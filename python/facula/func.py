"""Functions that make functions: gradients, Jacobians and their products of a function of tensors.

Each takes ``func``, pure and made of Facula's operators, and gives a function or the value asked for.
``argnums`` says for which positional arguments; arguments may be trees (tuples, lists, dicts) of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _C
from .autograd import forward_ad
from .autograd import grad as _grad

__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "vjp"]

Tensor = _C.Tensor


def _map(f: Callable, *trees: Any) -> Any:
    """``f`` at every tensor of trees of one form."""
    head = trees[0]
    if isinstance(head, Tensor):
        return f(*trees)
    if isinstance(head, dict):
        return {k: _map(f, *(t[k] for t in trees)) for k in head}
    if isinstance(head, (tuple, list)):
        items = [_map(f, *x) for x in zip(*trees, strict=True)]
        return type(head)(*items) if hasattr(head, "_fields") else type(head)(items)
    return head


def _leaves(tree: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _map(lambda t: found.append(t) or t, tree)
    return found


def _rebuilt(tree: Any, leaves: list) -> Any:
    it = iter(leaves)
    return _map(lambda _: next(it), tree)


def _chosen(argnums: int | tuple[int, ...], args: tuple) -> tuple[int, ...]:
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    if not numbers or any(not -len(args) <= k < len(args) for k in numbers):
        raise RuntimeError(
            f"argnums: got argnums={argnums}, but the function was called with {len(args)} positional "
            "arguments"
        )
    return tuple(k % len(args) for k in numbers)


def _tracked(args: tuple, numbers: tuple[int, ...]) -> tuple:
    """``args``, the chosen of them as new variables: on the caller's tape, if that is what they are on."""

    def variable(t: Tensor) -> Tensor:
        if not (t.is_floating_point() or t.is_complex()):
            raise RuntimeError(f"only floating-point and complex tensors have gradients, got {t.dtype}")
        if t.requires_grad:
            return t.view_as(t)
        return (t.view_as(t) if _C.forward_level() else t.detach()).requires_grad_()

    return tuple(_map(variable, a) if k in numbers else a for k, a in enumerate(args))


def _zeros_for_none(values: Any, like: list[Tensor]) -> list[Tensor]:
    return [_C.functions.zeros_like(x) if v is None else v for v, x in zip(values, like, strict=True)]


def _taped(trees: Any) -> bool:
    return _C.is_grad_enabled() and any(t.requires_grad for t in _leaves(trees))


def _loose(tree: Any, taped: bool) -> Any:
    """Off the tape, unless the caller is on it; detaching would end tangents."""
    return tree if taped or _C.forward_level() else _map(lambda t: t.detach(), tree)


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> Any:
    """``func(*primals)`` and a function that gives u^T J for a cotangent u of the output."""
    taped = _taped(primals)
    with _C.GradMode(True):
        inputs = _tracked(primals, tuple(range(len(primals))))
        output = func(*inputs)
        output, aux = output if has_aux else (output, None)

    def pull(cotangents: Any) -> Any:
        outputs, given = _leaves(output), _leaves(cotangents)
        if len(outputs) != len(given):
            raise RuntimeError(
                f"vjp: expected {len(outputs)} cotangents, as func gives, but got {len(given)}"
            )
        pairs = [(o, g) for o, g in zip(outputs, given) if o.requires_grad]
        again = _C.is_grad_enabled() and (taped or any(g.requires_grad for g in given))
        wanted = _leaves(inputs)
        found: Any = [None] * len(wanted)
        if pairs:
            os, gs = zip(*pairs)
            found = _grad(os, wanted, gs, retain_graph=True, create_graph=again, allow_unused=True)
        return _rebuilt(inputs, _zeros_for_none(found, wanted))

    value = _loose(output, taped)
    return (value, pull, aux) if has_aux else (value, pull)


def grad_and_value(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """A function that gives the gradient of ``func``, which gives one number, and its value."""

    def f(*args: Any, **kwargs: Any) -> Any:
        numbers = _chosen(argnums, args)
        taped = _taped(args)
        with _C.GradMode(True):
            inputs = _tracked(args, numbers)
            output = func(*inputs, **kwargs)
            output, aux = output if has_aux else (output, None)
            if not isinstance(output, Tensor) or output.numel() != 1 or output.dim() != 0:
                what = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
                raise RuntimeError(f"Expected f(*args) to return a scalar tensor, got {what}")
            wanted = [t for k in numbers for t in _leaves(inputs[k])]
            found: Any = [None] * len(wanted)
            if output.requires_grad:
                found = _grad(output, wanted, create_graph=taped, allow_unused=True)
            flat = iter(_zeros_for_none(found, wanted))
        grads = tuple(_map(lambda _: next(flat), inputs[k]) for k in numbers)
        result = _loose(grads if isinstance(argnums, tuple) else grads[0], taped)
        value = _loose(output, taped)
        return (result, (value, aux)) if has_aux else (result, value)

    return f


def grad(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """A function that gives the gradient of ``func``, which gives one number."""
    both = grad_and_value(func, argnums, has_aux)

    def f(*args: Any, **kwargs: Any) -> Any:
        g, rest = both(*args, **kwargs)
        return (g, rest[1]) if has_aux else g

    return f


def jvp(func: Callable, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """``func(*primals)`` and the product of its Jacobian with ``tangents``, by forward mode."""
    for name, x in (("primals", primals), ("tangents", tangents)):
        if not isinstance(x, tuple) or not x:
            raise RuntimeError(
                f"jvp(f, primals, tangents): Expected {name} to be a non-empty tuple, got {type(x).__name__}"
            )
    if len(_leaves(primals)) != len(_leaves(tangents)):
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same structure"
        )
    with forward_ad.dual_level():
        output = func(*_map(forward_ad.make_dual, primals, tangents))
        output, aux = output if has_aux else (output, None)

        def tangent(t: Tensor) -> Tensor:
            found = forward_ad.unpack_dual(t).tangent
            if found is None and strict:
                raise RuntimeError(
                    "jvp(f, primals, tangents, strict=True): the output of f is independent of the inputs"
                )
            return _C.functions.zeros_like(t) if found is None else found

        result = _map(tangent, output)
        value = _map(lambda t: forward_ad.unpack_dual(t).primal, output)
    return (value, result, aux) if has_aux else (value, result)


def _basis(tree: Any) -> list[tuple[int, int]]:
    """(leaf, element) of every element."""
    return [(k, i) for k, t in enumerate(_leaves(tree)) for i in range(t.numel())]


def _unit(leaves: list[Tensor], leaf: int, element: int) -> list[Tensor]:
    units = [_C.functions.zeros(t.shape, dtype=t.dtype) for t in leaves]
    units[leaf].view(-1)[element] = 1
    return units


def jacrev(
    func: Callable, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False, **_: Any
) -> Callable:
    """A function that gives the Jacobian of ``func`` by reverse mode: one pull for each element of the
    output.
    """

    def f(*args: Any, **kwargs: Any) -> Any:
        numbers = _chosen(argnums, args)

        def partial(*chosen: Any) -> Any:
            full = list(args)
            for k, a in zip(numbers, chosen):
                full[k] = a
            return func(*full, **kwargs)

        got = vjp(partial, *(args[k] for k in numbers), has_aux=has_aux)
        output, pull = got[0], got[1]
        outputs = _leaves(output)
        rows = [pull(_rebuilt(output, _unit(outputs, *at))) for at in _basis(output)]
        start, jacobians = 0, []
        for o in outputs:
            mine, start = rows[start : start + o.numel()], start + o.numel()
            jacobians.append(
                _map(lambda *r, o=o: _C.functions.stack(r).reshape(*o.shape, *r[0].shape), *mine)
                if mine
                else _map(lambda t, o=o: t.new_zeros((*o.shape, *t.shape)), tuple(args[k] for k in numbers))
            )
        chosen = [j if isinstance(argnums, tuple) else j[0] for j in jacobians]
        result = _place(output, chosen)
        return (result, got[2]) if has_aux else result

    return f


def jacfwd(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, **_: Any) -> Callable:
    """A function that gives the Jacobian of ``func`` by forward mode: one push for each element of the
    input.
    """

    def f(*args: Any, **kwargs: Any) -> Any:
        numbers = _chosen(argnums, args)
        chosen = tuple(args[k] for k in numbers)
        inputs = _leaves(chosen)

        def partial(*given: Any) -> Any:
            full = list(args)
            for k, a in zip(numbers, given):
                full[k] = a
            return func(*full, **kwargs)

        columns, got = [], None
        for at in _basis(chosen):
            got = jvp(partial, chosen, _rebuilt(chosen, _unit(inputs, *at)), has_aux=has_aux)
            columns.append(_leaves(got[1]))
        if got is None:
            raise RuntimeError("jacfwd: the chosen arguments have no elements")
        jacobians = []
        for o, out in enumerate(_leaves(got[0])):
            start, mine = 0, []
            for x in inputs:
                part = [c[o] for c in columns[start : start + x.numel()]]
                start += x.numel()
                shape = (*out.shape, *x.shape)
                mine.append(_C.functions.stack(part, -1).reshape(shape) if part else out.new_zeros(shape))
            tree = _rebuilt(chosen, mine)
            jacobians.append(tree if isinstance(argnums, tuple) else tree[0])
        result = _place(got[0], jacobians)
        return (result, got[2]) if has_aux else result

    return f


def _place(tree: Any, values: list) -> Any:
    """Values, which may be trees, where the tensors of ``tree`` are."""
    it = iter(values)

    def walk(t: Any) -> Any:
        if isinstance(t, Tensor):
            return next(it)
        if isinstance(t, dict):
            return {k: walk(v) for k, v in t.items()}
        if isinstance(t, (tuple, list)):
            return type(t)(walk(v) for v in t)
        return t

    return walk(tree)


def hessian(func: Callable, argnums: int | tuple[int, ...] = 0) -> Callable:
    """A function that gives the Hessian of ``func``: forward mode over reverse mode."""
    return jacfwd(jacrev(func, argnums), argnums)


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """``module(*args, **kwargs)`` with parameters and buffers replaced by those given by name, for this
    call.
    """
    given: dict[str, Tensor] = {}
    for d in (
        parameter_and_buffer_dicts
        if isinstance(parameter_and_buffer_dicts, (tuple, list))
        else (parameter_and_buffer_dicts,)
    ):
        for name in d:
            if name in given:
                raise ValueError(f"functional_call: {name} appears in more than one of the dictionaries")
        given.update(d)
    own = dict(module.named_parameters(remove_duplicate=False)) | dict(
        module.named_buffers(remove_duplicate=False)
    )
    unexpected, missing = [n for n in given if n not in own], [n for n in own if n not in given]
    if strict and (unexpected or missing):
        raise RuntimeError(f"functional_call: unexpected keys {unexpected}, missing keys {missing}")
    if unexpected:
        raise KeyError(f"functional_call: the module has no parameter or buffer {unexpected[0]!r}")
    if tie_weights:
        same = {id(own[n]): t for n, t in given.items()}
        given = {n: given.get(n, same.get(id(x))) for n, x in own.items() if n in given or id(x) in same}
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    kept = []
    try:
        for name, value in given.items():
            path, _, leaf = name.rpartition(".")
            owner = module.get_submodule(path) if path else module
            store = owner._parameters if leaf in owner._parameters else owner._buffers
            kept.append((store, leaf, store[leaf]))
            store[leaf] = value
        return module(*args, **(kwargs or {}))
    finally:
        for store, leaf, value in reversed(kept):
            store[leaf] = value
