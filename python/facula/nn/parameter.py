"""Tensors that a module owns."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from .. import _C

Tensor = _C.Tensor


class _ParameterMeta(type(Tensor)):
    """``isinstance(t, Parameter)`` is also true for subclasses of Tensor that were marked as parameters."""

    def __instancecheck__(self, instance: object) -> bool:
        if super().__instancecheck__(instance):
            return True
        return self is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


def _marked(data: Tensor, requires_grad: bool) -> Any:
    """A tensor of the same class over the same memory, marked as a parameter."""
    t = data.detach().requires_grad_(requires_grad)
    if type(t) is not type(data):
        raise RuntimeError(
            f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() "
            "returns "
            f"an instance of the same type, but return type {type(t).__name__} was found instead."
        )
    t._is_param = True
    return t


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that a module registers when it is assigned as an attribute.

    ``Parameter(data)`` shares the storage of ``data`` and requires gradients unless told otherwise.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = _C.functions.empty(0)
        if cls is Parameter and isinstance(data, Tensor) and type(data) not in (Tensor, Parameter):
            return _marked(data, requires_grad)
        return _C.make_subclass(cls, data, requires_grad)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo: dict[int, object]) -> Parameter:
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[return-value]
        copy = type(self)(self.data.clone(), self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol: int) -> tuple:
        from .._utils import _rebuild_parameter, _rebuild_parameter_with_state

        args, state = (self.data, self.requires_grad, OrderedDict()), self.__getstate__()
        return (_rebuild_parameter_with_state, (*args, state)) if state else (_rebuild_parameter, args)


class Buffer(Tensor, metaclass=_ParameterMeta):
    """A tensor that a module registers as a buffer when it is assigned as an attribute."""

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = _C.functions.empty(0)
        buffer = _C.make_subclass(cls, data, data.requires_grad)
        buffer.persistent = persistent
        return buffer


# What can be asked of a tensor whose shape is not known yet.
_KNOWN = frozenset(
    """
    bfloat16 complex cpu cuda data detach detach_ device double dtype float grad grad_fn half is_complex
    is_floating_point is_leaf is_sparse layout register_hook requires_grad requires_grad_ to type
    """.split()
)


class UninitializedTensorMixin:
    """A tensor whose shape the first input of a lazy module tells."""

    cls_to_become: type

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(getattr(func, "__self__", func), "__name__", str(func))
        if name in _KNOWN:
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[misc]
        if name == "shape":
            raise RuntimeError(
                "Can't access the shape of an uninitialized parameter or buffer. This error usually happens "
                "in `load_state_dict` when trying to load an uninitialized parameter into an initialized "
                "one. Call `forward` to initialize the parameters before accessing their attributes."
            )
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {name}. This error happens when you are using a "
            "`LazyModule` or explicitly manipulating `UninitializedParameter` objects. When using "
            "LazyModules Call `forward` with a dummy batch to initialize the parameters before calling "
            f"{_C.package_name()} functions"
        )

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Gives the tensor its shape, without values; it becomes an ordinary one in its place."""
        self.data = _C.functions.empty(  # type: ignore[misc]
            list(shape), dtype=self.data.dtype if dtype is None else dtype, device=device
        )
        self.__class__ = self.cls_to_become  # type: ignore[assignment]

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the "
            "parameters before calling `module.share_memory()`."
        )

    def __repr__(self, **_: Any) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, None, self.data.dtype)  # type: ignore
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad, None, self.data.dtype)  # type: ignore[attr-defined]


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape the first input tells; it can be given to an optimizer before."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return _C.make_subclass(cls, _C.functions.empty(0, dtype=dtype, device=device), requires_grad)


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape the first input tells."""

    cls_to_become = Buffer

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None) -> Any:
        return _C.make_subclass(cls, _C.functions.empty(0, dtype=dtype, device=device), requires_grad)


def is_lazy(tensor: Any) -> bool:
    """Has the tensor no shape yet?"""
    return isinstance(tensor, UninitializedTensorMixin)


_C.set_parameter_class(Parameter)
