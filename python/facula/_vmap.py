"""``vmap``: turns a function of one example into a function of a batch.

Inside of the function, a batched tensor represents one example; each operator called on it processes the
entire batch (facula/batch/level.h). This file handles arguments and results: which dimension of which
leaf is the batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _C
from .autograd.function import leave
from .utils import _pytree

__all__ = ["vmap"]

Tensor = _C.Tensor


class _Invalid(Exception):
    """Raised if the tree of dimensions is not a prefix of the other tree."""


def _name(func: Callable) -> str:
    return getattr(func, "__name__", None) or repr(func)


def _spread(dims: Any, tree: Any, is_dim: Callable) -> list:
    """Returns a dimension for each leaf of ``tree``; ``dims`` is a prefix of it."""
    if is_dim(dims):
        return [dims] * len(_pytree.tree_leaves(tree))
    prefix, of = _pytree._children(dims), _pytree._children(tree)
    same = prefix and of and type(dims) is type(tree) and len(prefix[0]) == len(of[0])
    if not same or (isinstance(dims, dict) and dims.keys() != tree.keys()):
        raise _Invalid
    if isinstance(dims, dict):
        return [d for k in tree for d in _spread(dims[k], tree[k], is_dim)]
    return [d for a, b in zip(prefix[0], of[0]) for d in _spread(a, b, is_dim)]


def _structure(tree: Any) -> str:
    """Describes the structure of a tree, with stars as leaves."""
    children = _pytree._children(tree)
    if children is None:
        return "*"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{k!r}: {_structure(v)}" for k, v in tree.items()) + "}"
    inner = ", ".join(map(_structure, children[0]))
    return f"[{inner}]" if isinstance(tree, list) else f"({inner})"


def _is_dim(d: Any) -> bool:
    return d is None or (isinstance(d, int) and not isinstance(d, bool))


class _Inputs:
    """The flattened arguments, and the batch dimension of each leaf."""

    def __init__(self, func: Callable, in_dims: Any, args: tuple) -> None:
        call = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
        if not (isinstance(in_dims, int) or isinstance(in_dims, tuple)):
            raise ValueError(
                f"{call}: expected `in_dims` to be int or a (potentially nested) tuple matching the "
                f"structure of inputs, got: {type(in_dims)}."
            )
        if not args:
            raise ValueError(
                f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are "
                "trying to vmap over a function with no inputs. The latter is unsupported."
            )
        self.leaves, self.tree = _pytree.tree_flatten(args)
        try:
            dims = _spread(in_dims, args, _is_dim)
        except _Invalid:
            raise ValueError(
                f"{call}: in_dims is not compatible with the structure of `inputs`. in_dims has structure "
                f"{_structure(in_dims)} but inputs has structure {_structure(args)}."
            ) from None
        self.dims: list[int | None] = []
        for x, d in zip(self.leaves, dims):
            if d is not None and not isinstance(x, Tensor):
                raise ValueError(
                    f"{call}: Got in_dim={d} for an input but the input is of type {type(x)}. We cannot vmap "
                    "over non-Tensor arguments, please use None as the respective in_dim"
                )
            if d is not None and not -x.dim() <= d < x.dim():
                raise ValueError(
                    f"{call}: Got in_dim={d} for some input, but that input is a Tensor of dimensionality "
                    f"{x.dim()} so expected in_dim to satisfy -{x.dim()} <= in_dim < {x.dim()}."
                )
            self.dims.append(None if d is None else d % x.dim())
        sizes = [x.shape[d] for x, d in zip(self.leaves, self.dims) if d is not None]
        if not sizes:
            raise ValueError(
                f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>): at least one input must have a "
                "dimension to map over; in_dims is None for all of them"
            )
        if any(s != sizes[0] for s in sizes):
            raise ValueError(
                "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
                f"{sizes} for the mapped dimension"
            )
        self.size = sizes[0]


def _out_dims(func: Callable, out_dims: Any, outputs: Any) -> list:
    call = f"vmap({_name(func)}, ..., out_dims={out_dims})"
    if not all(_is_dim(d) for d in _pytree.tree_leaves(out_dims)):
        raise ValueError(
            f"{call}: `out_dims` must be an int, None or a python collection of ints representing where in "
            "the outputs the vmapped dimension should appear."
        )
    single = _pytree._children(outputs) is None
    if single and isinstance(out_dims, tuple) and len(out_dims) == 1:
        out_dims = out_dims[0]
    try:
        return _spread(out_dims, outputs, _is_dim)
    except _Invalid:
        raise ValueError(
            f"{call}(<inputs>): out_dims is not compatible with the structure of `outputs`. out_dims has "
            f"structure {_structure(out_dims)} but outputs has structure {_structure(outputs)}."
        ) from None


def _left(func: Callable, level: Any, out_dims: Any, outputs: Any) -> tuple[list, list]:
    """Returns the leaves of ``outputs`` outside of the level, and the batch dimension of each."""
    leaves, dims, results = _pytree.tree_leaves(outputs), _out_dims(func, out_dims, outputs), []
    for k, (x, d) in enumerate(zip(leaves, dims)):
        if d is None:
            if level.has(x):
                raise ValueError(
                    f"vmap({_name(func)}, ...): `{_name(func)}` can not return a BatchedTensor "
                    "when out_dim is None"
                )
            results.append(x)
            continue
        if not isinstance(x, Tensor):
            raise ValueError(
                f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type {type(x)}. "
                "Did you mean to set out_dims= to None for output?"
            )
        rank = x.dim() + 1
        if not -rank <= d < rank:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {d})"
            )
        dims[k] = d % rank
        results.append(level.leave(x, dims[k]))
    return results, dims


def _mapped(
    func: Callable, size: int, leaves: list, dims: list, tree: Any, out_dims: Any, randomness: str,
    kwargs: dict, same_variables: bool = False,
) -> tuple[Any, list, list]:  # fmt: skip
    leave()
    level = _C.enter_vmap(size, randomness, same_variables)
    try:
        entered = [x if d is None else level.enter(x, d) for x, d in zip(leaves, dims)]
        outputs = func(*_pytree.tree_unflatten(entered, tree), **kwargs)
        return _pytree.tree_structure(outputs), *_left(func, level, out_dims, outputs)
    finally:
        level.end()


def _call(
    func: Callable, in_dims: Any, out_dims: Any, randomness: str, chunk_size: int | None, args: tuple, kwargs:
    dict, same_variables: bool = False,
) -> Any:  # fmt: skip
    inputs = _Inputs(func, in_dims, args)
    step = inputs.size if chunk_size is None else min(chunk_size, inputs.size)
    if step == inputs.size:
        tree, outputs, _ = _mapped(
            func,
            inputs.size,
            inputs.leaves,
            inputs.dims,
            inputs.tree,
            out_dims,
            randomness,
            kwargs,
            same_variables,
        )
        return _pytree.tree_unflatten(outputs, tree)
    state = _C.default_generator.get_state() if randomness == "same" else None
    parts: list[list] = []
    for start in range(0, inputs.size, step):
        n = min(step, inputs.size - start)
        if state is not None:
            _C.default_generator.set_state(state)
        leaves = [x if d is None else x.narrow(d, start, n) for x, d in zip(inputs.leaves, inputs.dims)]
        tree, outputs, dims = _mapped(
            func, n, leaves, inputs.dims, inputs.tree, out_dims, randomness, kwargs, same_variables
        )
        parts.append(outputs)
    joined = [x[0] if d is None else _C.functions.cat(list(x), d) for x, d in zip(zip(*parts), dims)]
    return _pytree.tree_unflatten(joined, tree)


def vmap(
    func: Callable,
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable:
    """Returns a function that maps ``func`` over a dimension of its arguments: ``func`` is written for
    one example and runs once, for all.

    ``in_dims`` is the batch dimension of each argument: a number, or a tree of numbers and None (not
    batched) with the arguments' structure; ``out_dims`` is the batch dimension in the results.
    ``randomness`` decides about random numbers: an "error", "different" or the "same" for each example.
    ``chunk_size`` limits how many examples are processed at once.

    >>> dot = facula.vmap(facula.dot)
    >>> dot(facula.ones(2, 3), facula.ones(2, 3))
    tensor([3., 3.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}"
        )
    if chunk_size is not None and not chunk_size > 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        return _call(func, in_dims, out_dims, randomness, chunk_size, args, kwargs)

    return mapped


# ---- autograd.Function inside of vmap


class _Info(NamedTuple):
    """The first argument of a Function's static method ``vmap``."""

    batch_size: int
    randomness: str


class _Context:
    """The ctx of one example's call; tensors that it saves are saved for the entire batch."""

    def __init__(self, needs: tuple) -> None:
        self.needs_input_grad = needs
        self.saved_tensors: tuple = ()
        self.saved_for_forward: tuple = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        self.saved_for_forward = tensors

    mark_non_differentiable = mark_dirty = set_materialize_grads = lambda self, *_: None


def _physical(x: Any) -> tuple[Any, bool]:
    """Returns (batch, True) for a tensor of the innermost level, (x, False) for anything else."""
    batch = _C.batch_of(x) if isinstance(x, Tensor) else None
    inside = batch is not None and batch[0] == _C.vmap_level()
    return (batch[1], True) if inside else (x, False)


def apply_function(cls: Any, args: tuple) -> Any:
    """Runs ``cls.apply(*args)`` inside of vmap, with arguments of the innermost level."""
    args = tuple(_C.with_its_tangent(x) if isinstance(x, Tensor) else x for x in args)
    physical, batched = zip(*map(_physical, args))
    size = next(t.shape[0] for t, b in zip(physical, batched) if b)
    outputs = _C.beneath_vmap(_mapped_function(cls, batched, size).apply, *physical)
    leaves, tree = _pytree.tree_flatten(outputs)
    return _pytree.tree_unflatten([_C.into_vmap(x, 0) for x in leaves], tree)


def _by_its_rule(cls: Any, size: int, batched: tuple, physical: tuple) -> Any:
    """Returns the results of the static method ``vmap`` of ``cls``, with the batch as first dimension."""
    in_dims = tuple(0 if b else None for b in batched)
    outputs, out_dims = cls.vmap(_Info(size, "error"), in_dims, *physical)
    leaves, tree = _pytree.tree_flatten(outputs)
    dims = _spread(out_dims, outputs, _is_dim)
    batched_outputs = [
        x.expand(size, *x.shape) if d is None else x.movedim(d, 0) for x, d in zip(leaves, dims)
    ]
    return _pytree.tree_unflatten(batched_outputs, tree)


def _mapped_function(cls: Any, batched: tuple, size: int) -> Any:
    """Returns a Function of batches: its forward is the method ``vmap`` of ``cls``, or maps forward over the
    batch; its backward and jvp map those of ``cls``.
    """
    from .autograd.function import Function

    separate = cls.setup_context is not Function.setup_context
    ruled = hasattr(cls, "vmap")
    if ruled and not separate:
        raise RuntimeError(
            f"{cls.__name__} has a static method vmap, but forward and setup_context in one\n  hint: move "
            "what forward does to ctx into a static method setup_context(ctx, inputs, output)"
        )

    def inside(f: Callable) -> Any:
        level = _C.enter_vmap(size, "error", False)
        try:
            return f(level)
        finally:
            level.end()

    class Mapped(Function):
        @staticmethod
        def forward(ctx: Any, *physical: Any) -> Any:
            ctx.inner = inner = _Context(ctx.needs_input_grad)
            rule_output = _by_its_rule(cls, size, batched, physical) if ruled else None

            def one(level: Any) -> Any:
                args = [level.enter(x, 0) if b else x for x, b in zip(physical, batched)]
                if ruled:
                    output = _pytree.tree_map(lambda t: level.enter(t, 0), rule_output)
                else:
                    output = cls.forward(*args) if separate else cls.forward(inner, *args)
                if separate:
                    cls.setup_context(inner, tuple(args), output)
                # A saved argument is saved as the physical tensor that came in, because that has a history.
                outer = {id(a): (x, b) for a, x, b in zip(args, physical, batched)}
                for_backward = [outer.get(id(t)) or _physical(t) for t in inner.saved_tensors]
                for_forward = [outer.get(id(t)) or _physical(t) for t in inner.saved_for_forward]
                inner.saved_tensors = inner.saved_for_forward = ()
                ctx.which = [b for _, b in for_backward], [b for _, b in for_forward]
                ctx.save_for_backward(*(t for t, _ in for_backward))
                ctx.save_for_forward(*(t for t, _ in for_forward))
                if isinstance(output, tuple):
                    return tuple(level.leave(t, 0) for t in output)
                return level.leave(output, 0)

            return inside(one)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            def one(level: Any) -> Any:
                ctx.inner.saved_tensors = tuple(
                    level.enter(t, 0) if b else t for t, b in zip(ctx.saved_tensors, ctx.which[1])
                )
                entered = [t if t is None or not b else level.enter(t, 0) for t, b in zip(tangents, batched)]
                results = cls.jvp(ctx.inner, *entered)
                results = results if isinstance(results, tuple) else (results,)
                return tuple(None if t is None else level.leave(t, 0) for t in results)

            return inside(one)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            def one(level: Any) -> Any:
                ctx.inner.saved_tensors = tuple(
                    level.enter(t, 0) if b else t for t, b in zip(ctx.saved_tensors, ctx.which[0])
                )
                entered_grads = [None if g is None else level.enter(g, 0) for g in grads]
                grads_out = cls.backward(ctx.inner, *entered_grads)
                grads_out = grads_out if isinstance(grads_out, tuple) else (grads_out,)
                return [None if g is None else level.leave(g, 0) for g in grads_out]

            grads_out = inside(one)
            return tuple(g if g is None or b else g.sum(0) for g, b in zip(grads_out, batched))

    Mapped.__name__, Mapped.__qualname__ = cls.__name__, cls.__qualname__
    return Mapped
