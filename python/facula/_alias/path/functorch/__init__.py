"""functorch, now ``torch.func``: the names that PyTorch 2 still provides under the former name.

Each name warns that it is deprecated, as in PyTorch. Absent: ``compile``, ``dim``, ``einops``.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx as make_fx

__version__ = torch.__version__

_TEXT = (
    "We've integrated functorch into PyTorch. As the final step of the integration, `functorch.{}` is "
    "deprecated as of PyTorch 2.0 and will be deleted in a future version of PyTorch >= 2.3. Please use `{}` "
    "instead; see the PyTorch 2.0 release notes and/or the `torch.func` migration guide for more details "
    "https://pytorch.org/docs/main/func.migrating.html"
)


def _deprecated(function: Callable[..., Any], instead: str) -> Callable[..., Any]:
    """Wraps ``function`` to warn at each call and name the replacement."""

    @wraps(function)
    def warned(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(_TEXT.format(function.__name__, instead), FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    return warned


vmap = _deprecated(torch.func.vmap, "torch.vmap")
grad = _deprecated(torch.func.grad, "torch.func.grad")
grad_and_value = _deprecated(torch.func.grad_and_value, "torch.func.grad_and_value")
vjp = _deprecated(torch.func.vjp, "torch.func.vjp")
jvp = _deprecated(torch.func.jvp, "torch.func.jvp")
jacrev = _deprecated(torch.func.jacrev, "torch.func.jacrev")
jacfwd = _deprecated(torch.func.jacfwd, "torch.func.jacfwd")
hessian = _deprecated(torch.func.hessian, "torch.func.hessian")
functionalize = _deprecated(torch.func.functionalize, "torch.func.functionalize")


def _names_of_each(named: Iterable[tuple[str, Tensor]]) -> dict[str, list[str]]:
    """Returns all names of each tensor, by its first name."""
    first: dict[int, str] = {}
    names: dict[str, list[str]] = {}
    for name, tensor in named:
        names.setdefault(first.setdefault(id(tensor), name), []).append(name)
    return names


class _Functional(nn.Module):
    """A module without state."""

    def __init__(self, stateless_model: nn.Module, names: dict[str, list[str]]) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.names_map = names

    def _call(self, state: Sequence[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(state) != len(self.names_map):
            wanted = len(self.names_map)
            raise RuntimeError(f"{type(self).__name__}: expected {wanted} tensors, got {len(state)}")
        tensors = {name: t for names, t in zip(self.names_map.values(), state) for name in names}
        return torch.func.functional_call(self.stateless_model, tensors, args, kwargs, tie_weights=False)


class FunctionalModule(_Functional):
    """``f(params, *args)``: a module that receives its parameters at each call."""

    def __init__(
        self, stateless_model: nn.Module, param_names: tuple[str, ...], names_map: dict[str, list[str]]
    ) -> None:
        super().__init__(stateless_model, names_map)
        self.param_names = param_names

    def forward(self, params: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        return self._call(params, args, kwargs)


class FunctionalModuleWithBuffers(_Functional):
    """``f(params, buffers, *args)``: a module that receives its state at each call; it may write buffers."""

    def __init__(
        self,
        stateless_model: nn.Module,
        param_names: tuple[str, ...],
        buffer_names: tuple[str, ...],
        param_names_map: dict[str, list[str]],
        buffer_names_map: dict[str, list[str]],
    ) -> None:
        super().__init__(stateless_model, {**param_names_map, **buffer_names_map})
        self.param_names, self.buffer_names = param_names, buffer_names

    def forward(self, params: Sequence[Tensor], buffers: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        return self._call([*params, *buffers], args, kwargs)


def _taken_apart(model: nn.Module) -> tuple[nn.Module, list[dict[str, list[str]]], list[tuple[Tensor, ...]]]:
    """Returns a copy of ``model`` without data, and the names and tensors of its parameters and buffers."""
    model = copy.deepcopy(model)
    names, tensors = [], []
    for named in (model.named_parameters, model.named_buffers):
        entries = dict(named(remove_duplicate=False))
        names.append(_names_of_each(entries.items()))
        tensors.append(tuple(entries[name] for name in names[-1]))
    return model.to("meta"), names, tensors


def _untracked(params: tuple[Tensor, ...], disable_autograd_tracking: bool) -> tuple[Tensor, ...]:
    for p in params if disable_autograd_tracking else ():
        p.requires_grad_(False)
    return params


def make_functional(
    model: nn.Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModule, tuple[Tensor, ...]]:
    """Returns ``func, params`` for a module without buffers: ``func(params, *args)`` equals
    ``model(*args)``.
    """
    if len(list(model.buffers())) > 0:
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) "
            "instead."
        )
    stateless, (names, _), (params, _) = _taken_apart(model)
    return FunctionalModule(stateless, tuple(names), names), _untracked(params, disable_autograd_tracking)


def make_functional_with_buffers(
    model: nn.Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Returns ``func, params, buffers``: ``func(params, buffers, *args)`` equals ``model(*args)``."""
    stateless, (names, buffer_names), (params, buffers) = _taken_apart(model)
    func = FunctionalModuleWithBuffers(stateless, tuple(names), tuple(buffer_names), names, buffer_names)
    return func, _untracked(params, disable_autograd_tracking), buffers


def _stacked(states: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(torch.stack(of_all).detach() for of_all in zip(*states))


def combine_state_for_ensemble(
    models: Sequence[nn.Module],
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Returns ``func, params, buffers`` for modules of one class, with stacked states, for ``vmap``."""
    if len(models) == 0:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError(
            "combine_state_for_ensemble: Expected all models to have the same training/eval mode."
        )
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("combine_state_for_ensemble: Expected all models to be of the same class.")
    functions, params, buffers = zip(*(_with_buffers(m) for m in models))
    return functions[0], _stacked(params), _stacked(buffers)


_with_buffers = make_functional_with_buffers
make_functional = _deprecated(make_functional, "torch.func.functional_call")
make_functional_with_buffers = _deprecated(make_functional_with_buffers, "torch.func.functional_call")
combine_state_for_ensemble = _deprecated(combine_state_for_ensemble, "torch.func.stack_module_state")
