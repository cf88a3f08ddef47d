"""Tensors that a module owns: parameters, buffers, and tensors of unknown shape."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from .. import _C

Tensor = _C.Tensor


class _ParameterMeta(type(Tensor)):
    """Makes ``isinstance(t, Parameter)`` true also for subclasses of Tensor that are marked as
    parameters.
    """

    def __instancecheck__(self, instance: object) -> bool:
        if super().__instancecheck__(instance):
            return True
        return self is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


class _BufferMeta(type(Tensor)):
    """``isinstance(t, Buffer)`` is true for tensors that were marked as buffers."""

    def __instancecheck__(self, instance: object) -> bool:
        if super().__instancecheck__(instance):
            return True
        return self is Buffer and isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)


def _marked(data: Tensor, requires_grad: bool) -> Any:
    """Returns a tensor of the same class over the same memory, marked as a parameter."""
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

    ``Parameter(data)`` shares the storage of ``data``, and requires gradients by default. Results that are
    computed from parameters are plain tensors, also from those of a subclass.
    """

    __torch_function__ = _C._disabled_torch_function_impl

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


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that a module registers as a buffer when it is assigned as an attribute.

    ``Buffer(data)`` is a tensor of the class of ``data`` over the same memory, marked as a buffer; what is
    computed from it is not.
    """

    __torch_function__ = _C._disabled_torch_function_impl
    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = _C.functions.empty(0)
        t: Any = data.detach().requires_grad_(data.requires_grad)
        t.persistent, t._is_buffer = persistent, True
        return t


# Attributes of a tensor that are available while its shape is unknown.
_KNOWN = frozenset(
    """
    bfloat16 complex cpu cuda data detach detach_ device double dtype float grad grad_fn half is_complex
    is_floating_point is_leaf is_sparse layout register_hook requires_grad requires_grad_ to type
    """.split()
)


class UninitializedTensorMixin:
    """A tensor whose shape is inferred from the first input of a lazy module."""

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
        """Gives the tensor its shape and uninitialized memory; the same object becomes an ordinary
        tensor.
        """
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
    """A parameter whose shape is inferred from the first input; an optimizer may get it before."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return _C.make_subclass(cls, _C.functions.empty(0, dtype=dtype, device=device), requires_grad)


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape is inferred from the first input."""

    cls_to_become = Buffer

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> Any:
        t = _C.make_subclass(cls, _C.functions.empty(0, dtype=dtype, device=device), requires_grad)
        t.persistent, t._is_buffer = persistent, True
        return t


def is_lazy(param: Any) -> bool:
    """Returns whether the tensor has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)


_C.set_parameter_class(Parameter)
