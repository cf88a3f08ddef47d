"""Calls of modules with other parameters: ``func.functional_call`` under its former name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ... import _C, func
from ..modules.module import Module
from ._named_member_accessor import NamedMemberAccessor

__all__ = ["functional_call"]

Tensor = _C.Tensor


@contextmanager
def _reparametrize_module(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    tie_weights: bool = False,
    strict: bool = False,
    stack_weights: bool = False,
) -> Iterator[None]:
    """Gives the module these parameters and buffers until the end of a ``with`` block. Tensors that the block
    puts in their place are in the dictionary afterwards.
    """
    accessor = NamedMemberAccessor(module)
    replaced = parameters_and_buffers
    if tie_weights:
        replaced = func._tied(replaced, dict(accessor.named_tensors(remove_duplicate=False)))
    if strict:
        missing, unexpected = accessor.check_keys(replaced)
        reasons = [
            f"{what} key(s): {', '.join(map(repr, names))}."
            for what, names in (("Unexpected", unexpected), ("Missing", missing))
            if names
        ]
        if reasons:
            raise RuntimeError(
                "\n\t".join([f"Error(s) in reparametrizing for {module._get_name()}:", *reasons])
            )
    before: dict[str, Any] = {}
    try:
        before, _ = accessor.swap_tensors_dict(replaced, allow_missing=True)
        yield
    finally:
        # Nested blocks may replace one tensor twice: the outermost is restored last.
        order = reversed(before.items()) if stack_weights else before.items()
        after, _ = accessor.swap_tensors_dict(dict(order), allow_missing=True)
        parameters_and_buffers.update({k: after[k] for k in parameters_and_buffers if k in after})


def functional_call(
    module: Any,
    parameters_and_buffers: dict[str, Any],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """``func.functional_call`` with one dictionary."""
    return func.functional_call(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )
