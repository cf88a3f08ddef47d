"""Pruning: masks set parts of parameters to zero; the product is recomputed before each call of their
module.

A pruned ``weight`` is stored as the parameter ``weight_orig`` and the buffer ``weight_mask``;
``module.weight`` is their product. Pruning again prunes among the elements that are left.

>>> m = nn.Linear(2, 2)
>>> _ = nn.utils.prune.l1_unstructured(m, "weight", amount=1)
>>> int(m.weight_mask.sum())
3
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from ... import _C

Tensor = _C.Tensor
_f = _C.functions


class BasePruningMethod(ABC):
    """A pruning method: subclasses define ``compute_mask(t, default_mask)``, and PRUNING_TYPE
    ("unstructured", "structured" or "global") says what their masks select among.
    """

    _tensor_name: str
    PRUNING_TYPE: ClassVar[str]

    def __call__(self, module: Any, inputs: Any) -> None:
        """Computes the masked parameter before each call of the module."""
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns the mask of ``t``: zero where ``default_mask`` is zero and where this method prunes."""

    def apply_mask(self, module: Any) -> Tensor:
        """Returns the original parameter times its mask."""
        if not hasattr(self, "_tensor_name"):
            raise AssertionError(f"Module {module} has to be pruned")
        name = self._tensor_name
        mask, original = getattr(module, name + "_mask"), getattr(module, name + "_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> Any:
        """Prunes the parameter ``name`` of ``module``, in addition to earlier pruning."""
        earlier = _hooks_of(module, name)
        if len(earlier) > 1:
            raise AssertionError(
                f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. Use a "
                "PruningContainer."
            )
        before = module._forward_pre_hooks.pop(earlier[0]) if earlier else None
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        if before is not None:
            container = before if isinstance(before, PruningContainer) else PruningContainer(before)
            container.add_pruning_method(method)
            method = container
        original = getattr(module, name)
        if importance_scores is None:
            scores = original
        elif importance_scores.shape != original.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}"
            )
        else:
            scores = importance_scores
        if before is None:
            del module._parameters[name]
            default = _f.ones_like(original)
        else:
            default = getattr(module, name + "_mask").detach().clone()
        try:
            mask = method.compute_mask(scores, default)
        except Exception:
            if before is None:
                module.register_parameter(name, original)
            raise
        if before is None:
            module.register_parameter(name + "_orig", original)
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None
    ) -> Tensor:
        """Returns ``t`` with the pruned elements set to zero; no module is involved."""
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        scores = t if importance_scores is None else importance_scores
        return t * self.compute_mask(scores, _f.ones_like(t) if default_mask is None else default_mask)

    def remove(self, module: Any) -> None:
        """Makes the pruning permanent: the parameter becomes its masked value, and the mask is removed."""
        if not hasattr(self, "_tensor_name"):
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        name = self._tensor_name
        value = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters.pop(name + "_orig")
        original.data = value.data
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


def _hooks_of(module: Any, name: str) -> list:
    return [
        k
        for k, h in module._forward_pre_hooks.items()
        if isinstance(h, BasePruningMethod) and h._tensor_name == name
    ]


class PruningContainer(BasePruningMethod):
    """Several methods that prune one parameter in turn."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        first = args[0] if args else None
        if isinstance(first, Iterable):
            args = tuple(first)
        if args:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        if method is not None and not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> BasePruningMethod:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Applies the newest method to the part that the others left: elements, slices along its ``dim``,
        or all.
        """
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        kind = method.PRUNING_TYPE
        if kind not in ("unstructured", "structured", "global"):
            raise ValueError(f"Unrecognized PRUNING_TYPE {kind}")
        if kind == "unstructured":
            chosen: Any = mask == 1
        elif kind == "structured":
            dim = method.dim  # type: ignore[attr-defined]
            others = [d for d in range(t.dim()) if d != dim % t.dim()]
            remaining = mask.sum(others) != 0 if others else mask != 0
            chosen = tuple([slice(None)] * (dim % t.dim()) + [remaining])
        else:
            chosen = (slice(None),) * t.dim()
        new_mask = mask.clone()
        new_mask[chosen] = method.compute_mask(t[chosen], default_mask=mask[chosen]).to(new_mask.dtype)
        return new_mask


class Identity(BasePruningMethod):
    """Prunes nothing; the parameter is stored like pruned ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask

    @classmethod
    def apply(cls, module: Any, name: str) -> Any:  # type: ignore[override]
        return super().apply(module, name)


def _check_amount(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    good = amount >= 0 if isinstance(amount, numbers.Integral) else 0.0 <= float(amount) <= 1.0
    if not good:
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer"
        )


def _count(amount: Any, of: int) -> int:
    """Returns how many of ``of`` elements to prune: ``amount``, or for a float that fraction."""
    if not isinstance(amount, numbers.Integral):
        return round(amount * of)
    if amount > of:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={of}")
    return int(amount)


def _check_structured(t: Tensor, dim: int) -> None:
    if t.dim() <= 1:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
            f"{t.shape} with {t.dim()} dims"
        )
    if dim >= t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


class RandomUnstructured(BasePruningMethod):
    """Prunes elements at random."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        _check_amount(amount)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        n = _count(self.amount, t.nelement())
        mask = default_mask.clone(memory_format=_C.contiguous_format)
        if n:
            mask.view(-1)[_f.topk(_f.rand_like(t).view(-1), n).indices] = 0
        return mask

    @classmethod
    def apply(cls, module: Any, name: str, amount: float) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount)


class L1Unstructured(BasePruningMethod):
    """Prunes the elements of the smallest magnitude."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        _check_amount(amount)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        n = _count(self.amount, t.nelement())
        mask = default_mask.clone(memory_format=_C.contiguous_format)
        if n:
            mask.view(-1)[_f.topk(t.abs().reshape(-1), n, largest=False).indices] = 0
        return mask

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: float, importance_scores: Tensor | None = None
    ) -> Any:
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class _Structured(BasePruningMethod):
    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount, self.dim = amount, dim

    def scores(self, t: Tensor) -> Tensor:
        """Returns one number for each slice along ``dim``; the slices with the smallest are pruned."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        _check_structured(t, self.dim)
        size = t.shape[self.dim]
        n = _count(self.amount, size)
        if n == 0:
            return default_mask
        remaining = _f.topk(self.scores(t), size - n, largest=True).indices
        mask = _f.zeros_like(t)
        mask[tuple([slice(None)] * (self.dim % t.dim()) + [remaining])] = 1
        return mask * default_mask.to(dtype=mask.dtype)


class RandomStructured(_Structured):
    """Prunes slices along ``dim`` at random."""

    def scores(self, t: Tensor) -> Tensor:
        return _f.rand(t.shape[self.dim])

    @classmethod
    def apply(cls, module: Any, name: str, amount: float, dim: int = -1) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(_Structured):
    """Prunes the slices along ``dim`` of the smallest n-norm."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def scores(self, t: Tensor) -> Tensor:
        return _f.norm(t, p=self.n, dim=[d for d in range(t.dim()) if d != self.dim % t.dim()])

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
    ) -> Any:
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prunes according to a mask that the caller passes."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {tuple(default_mask.shape)} must match mask shape "
                f"{tuple(self.mask.shape)}"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, mask: Tensor) -> Any:  # type: ignore[override]
        return super().apply(module, name, mask=mask)


def identity(module: Any, name: str) -> Any:
    """Stores the parameter like pruned ones, with a mask of ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: float) -> Any:
    """Prunes ``amount`` elements (a float is a fraction) at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: float, importance_scores: Tensor | None = None) -> Any:
    """Prunes the ``amount`` elements (a float is a fraction) with the smallest magnitude."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: float, dim: int) -> Any:
    """Prunes ``amount`` slices along ``dim`` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Any, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Any:
    """Prunes the ``amount`` slices along ``dim`` with the smallest n-norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Any, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict | None = None,
    **kwargs: Any,
) -> None:
    """Prunes many parameters, pairs of a module and a name, as if they were one vector."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    parameters = list(parameters)
    importance_scores = {} if importance_scores is None else importance_scores
    if not isinstance(importance_scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")

    def flat(tensors: Any) -> Tensor:
        return _f.cat([t.reshape(-1) for t in tensors])

    scores = flat(importance_scores.get((m, n), getattr(m, n)) for m, n in parameters)
    default = flat(getattr(m, n + "_mask", _f.ones_like(getattr(m, n))) for m, n in parameters)
    container = PruningContainer()
    container._tensor_name = "temp"
    method: Any = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    mask, start = container.compute_mask(scores, default), 0
    for module, name in parameters:
        p = getattr(module, name)
        custom_from_mask(module, name, mask=mask[start : start + p.numel()].view_as(p))
        start += p.numel()


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prunes where ``mask`` is zero."""
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: Any, name: str) -> Any:
    """Makes the pruning of a parameter permanent."""
    for k in _hooks_of(module, name):
        module._forward_pre_hooks.pop(k).remove(module)
        return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Any) -> bool:
    """Returns whether a parameter of the module, or of one of its submodules, is pruned."""
    return any(
        isinstance(hook, BasePruningMethod)
        for m in module.modules()
        for hook in m._forward_pre_hooks.values()
    )
