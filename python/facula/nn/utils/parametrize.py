"""Parameters that modules compute from other ones: ``module.weight`` is then the result of these modules."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ... import _C
from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

Tensor = _C.Tensor

_depth = 0  # nesting depth of cached()
_cache: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Within the ``with`` block every parametrized tensor is computed once, at its first use.

    >>> with nn.utils.parametrize.cached():
    ...     pass
    """
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if not _depth:
            _cache.clear()


def _facts(t: Tensor) -> tuple:
    return t.shape, t.dtype, t.device


class ParametrizationList(ModuleList):
    """The modules that compute a tensor one after the other, and their inputs: ``original``, or
    ``original0``, ``original1``, ... if the first module takes several.
    """

    original: Tensor
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Tensor | Parameter, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        with _C.GradMode(False):
            value = self._inverted(original, strict=False)
        self.is_tensor = isinstance(value, Tensor)
        if self.is_tensor:
            if _facts(value) != _facts(original) and (value.dtype != original.dtype or not unsafe):
                self._refuse("right_inverse", value, original)
            with _C.GradMode(False):
                original.data = value
            self._keep("original", original)
            self.ntensors = 1
        else:
            if not isinstance(value, Sequence) or not all(isinstance(v, Tensor) for v in value):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of Tensors (list, tuple...). Got "
                    f"{type(value).__name__}"
                )
            self.ntensors = len(value)
            for k, v in enumerate(value):
                if v.dtype != original.dtype:
                    raise ValueError(
                        f"Tensor {k} returned by 'right_inverse' has dtype {v.dtype} while 'original' has "
                        f"dtype {original.dtype}"
                    )
                stored = Parameter(v, original.requires_grad) if isinstance(original, Parameter) else v
                self._keep(f"original{k}", stored)
        if not unsafe:
            result = self()
            if not isinstance(result, Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(result).__name__}.")
            self._check(result, original)

    def _keep(self, name: str, t: Tensor) -> None:
        if isinstance(t, Parameter):
            self.register_parameter(name, t)
        else:
            self.register_buffer(name, t)

    @staticmethod
    def _check(result: Tensor, original: Tensor) -> None:
        for name in ("dtype", "shape"):
            before, after = getattr(original, name), getattr(result, name)
            if before != after:
                raise ValueError(
                    f"Registering a parametrization may not change the {name} of the tensor, unless `unsafe` "
                    f"flag is enabled.\nunparametrized {name}: {before}\nparametrized {name}: {after}"
                )

    @staticmethod
    def _refuse(what: str, value: Tensor, original: Tensor) -> None:
        gave, was = (f"{t.dtype}, {list(t.shape)}" for t in (value, original))
        raise ValueError(
            f"When {what} outputs one tensor, it may not change the dtype or, unless `unsafe` flag is "
            f"enabled, the shape: it gave {gave} for {was}"
        )

    def _inverted(self, value: Any, strict: bool = True) -> Any:
        """Returns the originals that lead to ``value``, by the modules' right_inverse from the last to
        the first.
        """
        for module in reversed(self):
            inverse = getattr(module, "right_inverse", None)
            if inverse is None:
                if strict:
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                return value  # the value itself is taken as the original
            value = inverse(value)
        return value

    @property
    def _originals(self) -> list[Tensor]:
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{k}") for k in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Sets the originals so that the result is ``value``, as far as the modules can invert it."""
        with _C.GradMode(False):
            inverted = self._inverted(value)
            originals = [inverted] if self.is_tensor else list(inverted)
            if len(originals) != self.ntensors:
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a "
                    f"sequence of length {len(originals)}."
                )
            for original, v in zip(self._originals, originals):
                if v.dtype != original.dtype or (v.shape != original.shape and not self.unsafe):
                    self._refuse("right_inverse", v, original)
                original.data = v

    def forward(self) -> Tensor:
        first, *rest = self
        x = first(*self._originals)
        for module in rest:
            x = module(x)
        return x


def _value(module: Module, name: str) -> Tensor:
    if not _depth:
        return module.parametrizations[name]()
    key = id(module), name
    if key not in _cache:
        _cache[key] = module.parametrizations[name]()
    return _cache[key]


def _property(name: str) -> property:
    def get(self: Module) -> Tensor:
        return _value(self, name)

    def set_(self: Module, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(get, set_)


def _make_class(module: Module) -> None:
    """Gives a module its own class, whose properties are the tensors."""
    base = type(module)

    def deepcopy(self: Any, memo: dict) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        new = self.__new__(type(self))
        memo[id(self)] = new
        new.__dict__ = copy.deepcopy(self.__dict__, memo)
        return new

    def getstate(self: Any) -> Any:
        raise RuntimeError("Serialization of parametrized modules is only supported through state_dict().")

    methods: dict[str, Any] = {"__getstate__": getstate, "__module__": __name__}
    if not hasattr(base, "__deepcopy__"):
        methods["__deepcopy__"] = deepcopy
    module.__class__ = type(f"Parametrized{base.__name__}", (base,), methods)
    module.parametrizations = ModuleDict()


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Replaces a parameter or buffer by the result of ``parametrization`` on its former value.

    Several parametrizations are applied one after the other. ``parametrization.right_inverse(value)``, if
    it exists, returns the original for a value that is assigned, or a tuple if forward takes several.
    Neither shape nor dtype may change unless ``unsafe``. Returns the module.

    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).t()
    >>> m = nn.utils.parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    >>> bool((m.weight == m.weight.t()).all())
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        held = module.parametrizations[tensor_name]
        if not unsafe:
            before = getattr(module, tensor_name)
            after = parametrization(before)
            if not isinstance(after, Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
            held._check(after, before)
        held.append(parametrization)
        held.unsafe |= unsafe
    elif tensor_name in module._parameters or tensor_name in module._buffers:
        original = getattr(module, tensor_name)
        parametrizations = ParametrizationList([parametrization], original, unsafe)
        if not is_parametrized(module):
            _make_class(module)
        delattr(module, tensor_name)
        setattr(type(module), tensor_name, _property(tensor_name))
        module.parametrizations[tensor_name] = parametrizations
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Returns whether the module has parametrized tensors, or one of that name."""
    held = getattr(module, "parametrizations", None)
    if not isinstance(held, ModuleDict):
        return False
    return len(held) > 0 if tensor_name is None else tensor_name in held


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Turns a tensor into a parameter or buffer again: with its present value, or its original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    held = module.parametrizations[tensor_name]
    if not held.is_tensor and not leave_parametrized:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms "
            "of a sequence of tensors."
        )
    first = held._originals[0]
    if leave_parametrized:
        with _C.GradMode(False):
            value = getattr(module, tensor_name)
            if held.is_tensor and value.dtype == first.dtype:
                first.data = value
            else:
                first = Parameter(value, first.requires_grad) if isinstance(first, Parameter) else value
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(first, Parameter):
        module.register_parameter(tensor_name, first)
    else:
        module.register_buffer(tensor_name, first)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type_before_parametrizations(module)
    return module


def type_before_parametrizations(module: Module) -> type:
    """Returns the class that the module had before."""
    return type(module).__bases__[0] if is_parametrized(module) or _is_generated(module) else type(module)


def _is_generated(module: Module) -> bool:
    return type(module).__module__ == __name__ and type(module).__name__.startswith("Parametrized")


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Copies the parametrizations of one module, and their originals, to another."""
    if not is_parametrized(from_module):
        return to_module
    names = from_module.parametrizations if tensor_name is None else [tensor_name]
    for name in list(names):
        held = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, copy.deepcopy(held._originals[0]))
        for k, parametrization in enumerate(held):
            if not is_parametrized(to_module, name) or len(to_module.parametrizations[name]) <= k:
                register_parametrization(to_module, name, copy.deepcopy(parametrization), unsafe=held.unsafe)
        with _C.GradMode(False):
            for ours, theirs in zip(to_module.parametrizations[name]._originals, held._originals):
                ours.data = theirs.detach().clone()
    return to_module
