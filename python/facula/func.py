"""Function transforms: batching, gradients, Jacobians and products with them.

Each takes ``func``, a pure function composed of Facula's operators, and returns a function or a value.
``argnums`` selects positional arguments; arguments may be trees (tuples, lists, dicts) of tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import _C
from ._rearrange import rearrange
from ._vmap import _call as _vmap_call
from ._vmap import vmap
from .autograd import forward_ad
from .autograd import grad as _grad

__all__ = [
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "rearrange",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]

Tensor = _C.Tensor


def _map(f: Callable, *trees: Any) -> Any:
    """Applies ``f`` to every tensor of trees with the same structure."""
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
    tensors: list[Tensor] = []
    _map(lambda t: tensors.append(t) or t, tree)
    return tensors


def _rebuilt(tree: Any, leaves: list) -> Any:
    """Returns the tree with ``leaves``, which may be trees, in place of its tensors."""
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
    """Returns ``args`` with the selected ones as new variables: on the caller's tape, if the originals
    are. Inside of vmap each call has separate variables and gradients.
    """

    def variable(t: Tensor) -> Tensor:
        if not (t.is_floating_point() or t.is_complex()):
            raise RuntimeError(f"only floating-point and complex tensors have gradients, got {t.dtype}")
        if t.requires_grad:
            return _C.in_every_level(t.view_as(t))
        return _C.in_every_level(t.view_as(t) if _C.forward_level() else t.detach()).requires_grad_()

    return tuple(_map(variable, a) if k in numbers else a for k, a in enumerate(args))


def _zeros_for_none(values: Any, like: list[Tensor]) -> list[Tensor]:
    return [_C.functions.zeros_like(x) if v is None else v for v, x in zip(values, like, strict=True)]


def _taped(trees: Any) -> bool:
    return _C.is_grad_enabled() and any(t.requires_grad for t in _leaves(trees))


def _loose(tree: Any, taped: bool) -> Any:
    """Detaches the tensors, unless the caller records them on its tape; detaching would end tangents."""
    if taped:
        return tree
    with _C.GradMode(False):
        return _map(lambda t: t.view_as(t) if _C.forward_level() else t.detach(), tree)


def _apart(output: Any, has_aux: bool) -> tuple[Any, Any]:
    """Splits the output in the differentiated part and auxiliary results."""
    if not has_aux:
        return output, None
    if not isinstance(output, tuple) or len(output) != 2:
        raise RuntimeError("has_aux=True: output of function f should be a tuple: (output, aux)")
    return output


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> Any:
    """Returns ``func(*primals)`` and a function that computes u^T J for a cotangent u of the output."""
    taped = _taped(primals)
    with _C.GradMode(True):
        inputs = _tracked(primals, tuple(range(len(primals))))
        output = func(*inputs)
        output, aux = _apart(output, has_aux)

    def pull(cotangents: Any) -> Any:
        outputs, cotangent_leaves = _leaves(output), _leaves(cotangents)
        if len(outputs) != len(cotangent_leaves):
            raise RuntimeError(
                f"vjp: expected {len(outputs)} cotangents, as func gives, but got {len(cotangent_leaves)}"
            )
        pairs = [(o, g) for o, g in zip(outputs, cotangent_leaves) if o.requires_grad]
        again = _C.is_grad_enabled() and (taped or any(g.requires_grad for g in cotangent_leaves))
        wanted = _leaves(inputs)
        gradients: Any = [None] * len(wanted)
        if pairs:
            os, gs = zip(*pairs)
            gradients = _grad(os, wanted, gs, retain_graph=True, create_graph=again, allow_unused=True)
        return _rebuilt(inputs, _zeros_for_none(gradients, wanted))

    value = _loose(output, taped)
    return (value, pull, _loose(aux, taped)) if has_aux else (value, pull)


def grad_and_value(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """Returns a function that computes the gradient of ``func``, which returns a scalar, and its value."""

    @functools.wraps(func)
    def f(*args: Any, **kwargs: Any) -> Any:
        numbers = _chosen(argnums, args)
        taped = _taped(args)
        with _C.GradMode(True):
            inputs = _tracked(args, numbers)
            output = func(*inputs, **kwargs)
            output, aux = _apart(output, has_aux)
            if isinstance(output, Tensor) and output.is_complex():
                raise RuntimeError(
                    f"grad can be implicitly created only for real scalar outputs but got {output.dtype}"
                )
            if not isinstance(output, Tensor) or output.numel() != 1 or output.dim() != 0:
                what = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
                raise RuntimeError(f"Expected f(*args) to return a scalar tensor, got {what}")
            wanted = [t for k in numbers for t in _leaves(inputs[k])]
            gradients: Any = [None] * len(wanted)
            if output.requires_grad:
                gradients = _grad(output, wanted, create_graph=taped, allow_unused=True)
            flat = iter(_zeros_for_none(gradients, wanted))
        grads = tuple(_map(lambda _: next(flat), inputs[k]) for k in numbers)
        result = _loose(grads if isinstance(argnums, tuple) else grads[0], taped)
        value = _loose(output, taped)
        return (result, (value, _loose(aux, taped))) if has_aux else (result, value)

    return f


def grad(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """Returns a function that computes the gradient of ``func``, which returns a scalar."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def f(*args: Any, **kwargs: Any) -> Any:
        g, rest = both(*args, **kwargs)
        return (g, rest[1]) if has_aux else g

    return f


def jvp(func: Callable, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """Returns ``func(*primals)`` and the product of its Jacobian with ``tangents``, by forward mode."""
    for name, x in (("primals", primals), ("tangents", tangents)):
        if not isinstance(x, tuple) or not x:
            raise RuntimeError(
                f"jvp(f, primals, tangents): Expected {name} to be a non-empty tuple, got {type(x).__name__}"
            )
    if len(_leaves(primals)) != len(_leaves(tangents)):
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same structure"
        )
    if _C.forward_level():  # there is only one forward level: a nested product differentiates the gradient
        aux_results: list = []

        def without_aux(*inputs: Any) -> Any:
            output = func(*inputs)
            output, aux = _apart(output, has_aux)
            aux_results[:] = [aux]
            return output

        taped = _taped((primals, tangents))
        value, push = _linearized(without_aux, primals, taped)
        result = push(*tangents)
        return (value, result, _loose(aux_results[0], taped)) if has_aux else (value, result)
    with forward_ad.dual_level():
        output = func(*_map(forward_ad.make_dual, primals, tangents))
        output, aux = _apart(output, has_aux)

        def tangent(t: Tensor) -> Tensor:
            unpacked = forward_ad.unpack_dual(t).tangent
            if unpacked is None and strict:
                raise RuntimeError(
                    "jvp(f, primals, tangents, strict=True): the output of f is independent of the inputs"
                )
            return _C.functions.zeros_like(t) if unpacked is None else unpacked

        result = _map(tangent, output)
        value = _map(lambda t: forward_ad.unpack_dual(t).primal, output)
    return (value, result, aux) if has_aux else (value, result)


def _basis(leaves: list[Tensor]) -> list[Tensor]:
    """Returns the stacked unit vectors of all elements, split by leaves."""
    total, start, parts = sum(t.numel() for t in leaves), 0, []
    for t in leaves:
        part = _C.functions.zeros(total, t.numel(), dtype=t.dtype, device=t.device)
        part.diagonal(-start).fill_(1)
        parts.append(part.reshape(total, *t.shape))
        start += t.numel()
    return parts


def _check_real(name: str, what: str, leaves: list[Tensor]) -> None:
    """Checks that inputs or outputs are real: a complex derivative would be incomplete."""
    for k, t in enumerate(leaves):
        if t.is_complex():
            raise RuntimeError(
                f"{name}: Expected all {what} to be real but received complex tensor at flattened index: {k}"
            )


def _partial(func: Callable, args: tuple, kwargs: dict, numbers: tuple[int, ...]) -> Callable:
    """Returns ``func`` as a function of the selected arguments."""

    def f(*chosen: Any) -> Any:
        full = list(args)
        for k, a in zip(numbers, chosen):
            full[k] = a
        return func(*full, **kwargs)

    return f


def _check_chunk(name: str, chunk_size: int | None) -> None:
    if chunk_size is not None and not chunk_size > 0:
        raise ValueError(f"{name}: `chunk_size` should be greater than 0.")


def jacrev(
    func: Callable,
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable:
    """Returns a function that computes the Jacobian of ``func`` by reverse mode, for all elements of the
    output at once, or in chunks of ``chunk_size``.
    """
    _check_chunk("jacrev", chunk_size)

    def f(*args: Any, **kwargs: Any) -> Any:
        numbers = _chosen(argnums, args)
        chosen = tuple(args[k] for k in numbers)
        _check_real("jacrev", "inputs", _leaves(chosen))
        got = vjp(_partial(func, args, kwargs, numbers), *chosen, has_aux=has_aux)
        output, pull = got[0], got[1]
        outputs = _leaves(output)
        if not outputs:
            raise RuntimeError(
                f"jacrev(f, ...)(*args): Expected f to return Tensors, got {type(output).__name__}"
            )
        _check_real("jacrev", "outputs", outputs)

        def rows_of(*cotangents: Tensor) -> list[Tensor]:
            return _leaves(pull(_rebuilt(output, list(cotangents))))

        basis = tuple(_basis(outputs))
        if basis[0].shape[0]:
            rows = _vmap_call(rows_of, 0, 0, "same", chunk_size, basis, {}, True)
        else:
            rows = [x.new_zeros((0, *x.shape)) for x in _leaves(chosen)]
        start, jacobians = 0, []
        for o in outputs:
            stop = start + o.numel()
            parts = [r[start:stop].reshape((*o.shape, *r.shape[1:])) for r in rows]
            tree = _rebuilt(chosen, parts)
            jacobians.append(tree if isinstance(argnums, tuple) else tree[0])
            start = stop
        result = _rebuilt(output, jacobians)
        return (result, got[2]) if has_aux else result

    return f


def jacfwd(
    func: Callable,
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
    chunk_size: int | None = None,
) -> Callable:
    """Returns a function that computes the Jacobian of ``func`` by forward mode, for all elements of the
    input at once, or in chunks of ``chunk_size``.
    """
    _check_chunk("jacfwd", chunk_size)

    def f(*args: Any, **kwargs: Any) -> Any:
        numbers = _chosen(argnums, args)
        chosen = tuple(args[k] for k in numbers)
        inputs, partial = _leaves(chosen), _partial(func, args, kwargs, numbers)
        _check_real("jacfwd", "inputs", inputs)
        basis = tuple(_basis(inputs))
        if not basis:
            raise RuntimeError("jacfwd: the chosen arguments are no tensors")
        last: list = []

        def columns_of(*tangents: Tensor) -> list[Tensor]:
            got = jvp(partial, chosen, _rebuilt(chosen, list(tangents)), has_aux=has_aux)
            last[:] = [got[0], _map(_first, got[2]) if has_aux else None]
            _check_real("jacfwd", "outputs", _leaves(got[0]))
            return _leaves(got[1])

        if basis[0].shape[0]:
            columns = _vmap_call(columns_of, 0, 0, randomness, chunk_size, basis, {}, True)
        else:  # one call tells the shapes
            pushed = columns_of(*(_C.functions.zeros_like(x) for x in inputs))
            columns = [t.new_zeros((0, *t.shape)) for t in pushed]
        jacobians = []
        for out in columns:
            start, parts = 0, []
            for x in inputs:
                stop = start + x.numel()
                part = out[start:stop].movedim(0, -1)
                parts.append(part.reshape((*part.shape[:-1], *x.shape)))
                start = stop
            tree = _rebuilt(chosen, parts)
            jacobians.append(tree if isinstance(argnums, tuple) else tree[0])
        result = _rebuilt(last[0], jacobians)
        return (result, last[1]) if has_aux else result

    return f


def _first(t: Tensor) -> Tensor:
    """Returns the first element of a batch, for a value that is the same in all calls."""
    batch = _C.batch_of(t)
    return t if batch is None else batch[1][0]


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """Returns ``func(*primals)``, and a function that computes the product of its Jacobian at that point
    with tangents.

    ``func`` is called once, and the returned function may be called many times: it differentiates the
    gradient, which is linear in the cotangent.
    """
    output, push = _linearized(func, primals)
    return output, lambda *tangents: _map(lambda t: t.detach(), push(*tangents))


def _linearized(func: Callable, primals: tuple, taped: bool = False) -> tuple[Any, Callable]:
    """Implements linearize; ``taped``: products are differentiable too."""
    with _C.GradMode(True):
        inputs = _tracked(primals, tuple(range(len(primals))))
        output = func(*inputs)
        outputs, wanted = [t for t in _leaves(output) if t.requires_grad], _leaves(inputs)
        arriving = [_C.functions.zeros_like(t).requires_grad_() for t in outputs]
        pulled: Any = [None] * len(wanted)
        if outputs:
            pulled = _grad(outputs, wanted, arriving, create_graph=True, allow_unused=True)

    def push(*tangents: Any) -> Any:
        tangent_leaves = _leaves(tangents)
        if len(tangent_leaves) != len(wanted) or any(
            a.shape != b.shape for a, b in zip(tangent_leaves, wanted)
        ):
            raise RuntimeError(
                "linearize: expected tangents of the primals' structure and shapes, "
                f"{[tuple(t.shape) for t in wanted]}, got {[tuple(t.shape) for t in tangent_leaves]}"
            )
        pairs = [(p, t) for p, t in zip(pulled, tangent_leaves) if p is not None and p.requires_grad]
        products: Any = [None] * len(arriving)
        if pairs:
            ps, ts = zip(*pairs)
            products = _grad(ps, arriving, ts, retain_graph=True, create_graph=taped, allow_unused=True)
        rest = iter(products)

        def tangent(t: Tensor) -> Tensor:
            v = next(rest) if t.requires_grad else None
            return _C.functions.zeros_like(t) if v is None else v

        return _map(tangent, output)

    return _loose(output, taped or _taped(primals)), push


def stack_module_state(models: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Stacks the parameters and the buffers of modules of one kind, for ``vmap`` over an ensemble.

    Each result is a new leaf that requires gradients if those of the modules do.
    """
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or not any(m.training for m in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(states: list[dict]) -> dict[str, Any]:
        tensors = {}
        for name, first in states[0].items():
            all_of = [s[name] for s in states]
            joined = _C.functions.stack([t.detach() for t in all_of])
            flags = {t.requires_grad for t in all_of}
            if len(flags) > 1:
                raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
            tensors[name] = joined.requires_grad_() if first.requires_grad else joined
        return tensors

    return (
        stacked([dict(m.named_parameters()) for m in models]),
        stacked([dict(m.named_buffers()) for m in models]),
    )


def functionalize(func: Callable, *, remove: str = "mutations") -> Callable:
    """Returns ``func``: graphs here contain no mutation, so a trace of it has none (docs/programs.md)."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='mutations'): the remove argument must be 'mutations' or "
            f"'mutations_and_views', got {remove!r}"
        )
    return func


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """Returns the batch behind ``tensor`` inside of vmap; for inspection, not for computing."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"Expected a tensor, got {type(tensor)}")
    batch = _C.batch_of(tensor)
    if batch is None:
        return tensor
    return debug_unwrap(batch[1]) if recurse else batch[1]


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Removes the running statistics of every batch norm in ``root``, in place: inside of vmap all calls
    of the batch would write them.
    """
    for module in root.modules():
        if hasattr(module, "track_running_stats") and "BatchNorm" in type(module).__name__:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def hessian(func: Callable, argnums: int | tuple[int, ...] = 0) -> Callable:
    """Returns a function that computes the Hessian of ``func``: forward mode over reverse mode."""
    return jacfwd(jacrev(func, argnums), argnums)


def _merged(dicts: Any) -> dict[str, Tensor]:
    """The parameters and buffers of one dictionary, or of several that have no key in common."""
    if not isinstance(dicts, (dict, list, tuple)):
        raise ValueError(
            "functional_call: expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, "
            f"but got {type(dicts)}"
        )
    merged: dict[str, Tensor] = {}
    for d in [dicts] if isinstance(dicts, dict) else dicts:
        twice = [name for name in d if name in merged]
        if twice:
            raise ValueError(
                f"functional_call: {twice} appeared in multiple dictionaries; behavior of functional call is "
                "ambiguous"
            )
        merged.update(d)
    return merged


def _tied(given: dict[str, Tensor], own: dict[str, Tensor]) -> dict[str, Tensor]:
    """The values of ``given``, also under all further names that the module has for the same tensors."""
    names: dict[int, list[str]] = {}
    for name, x in own.items():
        names.setdefault(id(x), []).append(name)
    everywhere = dict(given)
    for same in names.values():
        replaced = [name for name in same if name in given]
        if any(given[name] is not given[replaced[0]] for name in replaced):
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(replaced)}, which are tied. Consider "
                "using tie_weights=False"
            )
        if replaced:
            everywhere.update(dict.fromkeys(same, given[replaced[0]]))
    return everywhere


def _replace(module: Any, name: str, value: Any) -> Callable[[], None]:
    """Puts ``value`` in the place of a parameter, buffer or other attribute; returns what undoes it."""
    path, _, leaf = name.rpartition(".")
    owner = module.get_submodule(path)
    if value is not None and not isinstance(value, Tensor):
        raise TypeError(f"functional_call: {value} is not an instance of {_C.package_name()}.Tensor")
    if not leaf:
        raise KeyError("functional_call: tensor name can't be empty string")
    for members in (owner._parameters, owner._buffers):
        if leaf in members:
            before = members[leaf]
            members[leaf] = value
            return lambda: members.__setitem__(leaf, before)
    if not hasattr(owner, leaf):
        setattr(owner, leaf, value)
        return lambda: delattr(owner, leaf)
    before = getattr(owner, leaf)
    if before is not None and not isinstance(before, Tensor):
        raise TypeError(
            f"functional_call: attribute `{leaf}`: {before} is not an instance of {_C.package_name()}.Tensor"
        )
    setattr(owner, leaf, value)
    return lambda: setattr(owner, leaf, before)


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
    call. A name that the module does not know is an attribute for the call; with ``strict`` it is an error,
    as one that is missing is. Tied weights are replaced together, unless ``tie_weights`` is False.
    """
    replacements = _merged(parameter_and_buffer_dicts)
    own = dict(module.named_parameters(remove_duplicate=False)) | dict(
        module.named_buffers(remove_duplicate=False)
    )
    if tie_weights:
        replacements = _tied(replacements, own)
    unexpected, missing = [n for n in replacements if n not in own], [n for n in own if n not in replacements]
    if strict and (unexpected or missing):
        raise RuntimeError(f"functional_call: unexpected keys {unexpected}, missing keys {missing}")

    args = () if args is None else args if isinstance(args, tuple) else (args,)
    undo: list[Callable[[], None]] = []
    try:
        for name, value in replacements.items():
            undo.append(_replace(module, name, value))
        return module(*args, **(kwargs or {}))
    finally:
        for back in reversed(undo):
            back()
