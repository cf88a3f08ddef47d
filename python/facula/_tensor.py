"""Python methods of Tensor: copying, pickling, and methods that only combine others."""

from __future__ import annotations

from . import _C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

Tensor = _C.Tensor
_f = _C.functions


def from_elements(data: Any, dtype: _C.dtype, sizes: Any) -> Tensor:
    """Returns a tensor over a writable buffer of elements in row-major order."""
    if len(data) == 0:
        return _f.empty(list(sizes), dtype=dtype)
    return _C.frombuffer(data, dtype=dtype).view(list(sizes))


def _rebuild_from_type_v2(rebuild: Callable, cls: type, args: tuple, state: Any) -> Tensor:
    """Rebuilds, from a pickle, a tensor of a subclass or with attributes."""
    from ._utils import UnpicklingError, set_state

    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise UnpicklingError(f"load: a tensor of the class {cls!r:.300}")
    t = rebuild(*args)
    if type(t) is not cls:
        t = t.as_subclass(cls)
    if hasattr(cls, "__setstate__"):
        t.__setstate__(state)
        return t
    return set_state(t, state)


def _reduce(t: Tensor, protocol: int) -> tuple:
    from ._utils import reduced

    return reduced(t)


_C.set_reduce_helper(_reduce)


# ---- methods


def __copy__(self: Tensor) -> Tensor:
    """Returns a leaf that shares the elements, as PyTorch does even for tensors that are not leaves."""
    t = self.detach() if type(self) is Tensor else _C.make_subclass(type(self), self, False)
    return t.requires_grad_(self.requires_grad)


def _filled_like(self: Tensor, fill: Callable, arguments: tuple, options: dict) -> Tensor:
    """Returns the result of ``fill`` with the dtype, device and class of a tensor."""
    for k in ("dtype", "device"):
        if options.get(k) is None:
            options[k] = getattr(self, k)
    filled = fill(*arguments, **options)
    if _C.vmap_level():
        filled = _C.in_level_of(self, filled)
    return filled if type(self) is Tensor else _C.rewrap(self, filled)


def _size_of(name: str, sizes: tuple, size: Any) -> Any:
    if (size is None) != bool(sizes):
        raise TypeError(
            f"{name}(): expected sizes, as in {name}(2, 3), {name}((2, 3)) or {name}(size=(2, 3))"
        )
    return size if size is not None else sizes[0] if len(sizes) == 1 else sizes


def _sized(fill: Callable) -> Callable:
    """Returns the method ``new_...`` for a function of sizes; its result has the tensor's dtype and
    class.
    """

    def f(self: Tensor, *sizes: Any, size: Any = None, **options: Any) -> Tensor:
        return _filled_like(self, fill, (_size_of(f.__name__, sizes, size),), options)

    return f


def new_full(self: Tensor, size: Any, fill_value: Any, **options: Any) -> Tensor:
    """Returns a tensor of the same dtype and of ``size``, filled with ``fill_value``."""
    return _filled_like(self, _f.full, (size, fill_value), options)


def new_tensor(
    self: Tensor,
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """Returns a tensor of the same dtype with a copy of the data."""
    copied = _C.tensor(
        data,
        dtype=self.dtype if dtype is None else dtype,
        device=self.device if device is None else device,
        requires_grad=requires_grad,
        pin_memory=pin_memory,
    )
    return copied if type(self) is Tensor else _C.rewrap(self, copied)


def __format__(self: Tensor, format_spec: str) -> str:
    """Formats a 0-d tensor as its number."""
    if self.dim() == 0 and type(self) is Tensor:
        return format(self.item(), format_spec)
    return object.__format__(self, format_spec)


def register_post_accumulate_grad_hook(self: Tensor, hook: Callable) -> Any:
    """Calls ``hook(self)`` after a gradient is added to ``.grad``."""
    return _C.add_accumulated_hook(self, hook)


def _from_functions(name: str, module: str = "_queries") -> Callable:
    def f(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        from importlib import import_module

        return getattr(import_module("facula." + module), name)(self, *args, **kwargs)

    return f


def new(self: Tensor, *args: Any) -> Tensor:
    """Returns a tensor of the same dtype: of sizes, from the elements of a sequence, or empty."""
    from . import _legacy_types

    return _legacy_types.maker_of(self.dtype)(*args)


def cuda(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    raise AssertionError("Facula not compiled with CUDA enabled")


def is_shared(self: Tensor) -> bool:
    """Returns whether the tensor is in memory that child processes share."""
    from . import _shared

    return _shared.is_shared(self)


def share_memory_(self: Tensor) -> Tensor:
    """Moves the tensor to memory that child processes share."""
    from . import _shared

    return _shared.share_memory_(self)


def __contains__(self: Tensor, element: Any) -> bool:
    if not isinstance(element, (Tensor, int, float, complex)):
        from numbers import Number

        if not isinstance(element, Number):
            raise RuntimeError(
                f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}."
            )
    return bool((self == element).any())


def __array_wrap__(self: Tensor, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    """Converts results of NumPy's functions to tensors."""
    return _C.from_numpy(array)


@staticmethod
def _make_subclass(cls: type, data: Tensor, require_grad: bool = False, **_: Any) -> Tensor:
    """Returns a tensor of the class over the memory of ``data``."""
    return _C.make_subclass(cls, data.detach(), require_grad)


@staticmethod
def _make_wrapper_subclass(
    cls: type,
    size: Any,
    strides: Any = None,
    storage_offset: int | None = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    dispatch_sizes_strides_policy: Any = None,
    dispatch_device: bool = False,
    dispatch_layout: bool = False,
    **_: Any,
) -> Tensor:
    """Returns a tensor of a class that defines ``__torch_dispatch__``, with sizes and no memory: for
    tensors that wrap others.
    """
    if layout not in (None, _C.strided):
        raise NotImplementedError(f"_make_wrapper_subclass: wrappers are of layout strided, not {layout}")
    options = {"dtype": dtype, "device": "meta"}
    if strides is None:
        like = _C.functions.empty(size, memory_format=memory_format, **options)
    else:
        like = _C.functions.empty_strided(tuple(size), tuple(strides), **options)
    if storage_offset:
        like = _C.functions.as_strided(like, like.shape, like.stride(), int(storage_offset))
    device = _C.device("cpu") if device is None else _C.device(device)
    return _C.wrapper_subclass(cls, like, device, requires_grad)


def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Returns False: memory is not pinned, because there is no device to transfer to."""
    return False


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    raise RuntimeError("pin_memory: Cannot access accelerator device when none is available.")


def is_same_size(self: Tensor, other: Tensor) -> bool:
    """Returns whether both have the same shape."""
    return self.shape == other.shape


def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """Returns the dimensions from the outermost in memory to the innermost."""
    return tuple(sorted(range(self.dim()), key=lambda d: -self.stride(d)))


def untyped_storage(self: Tensor) -> Any:
    """Returns the storage of the tensor and its views as bytes."""
    from .storage import UntypedStorage

    return UntypedStorage(self)


def storage(self: Tensor) -> Any:
    """Returns the storage of the tensor and its views as elements of its dtype."""
    from .storage import TypedStorage

    return TypedStorage(self)


def polygamma_(self: Tensor, n: int) -> Tensor:
    """polygamma, in place."""
    kept = self.clone() if self.requires_grad else self  # the gradient reads what is overwritten here
    result = kept.polygamma(n)
    if not _C.can_cast(result.dtype, self.dtype):
        raise RuntimeError(
            f"polygamma_: result type {result.dtype} can't be cast to the desired output type {self.dtype}"
        )
    return self.copy_(result)


def __rdiv__(self: Tensor, other: Any) -> Tensor:
    if not isinstance(self, Tensor):  # PyTorch raises an error of this type
        raise AttributeError(f"__rdiv__: {type(self).__name__!r} object is no Tensor")
    return Tensor.__rtruediv__(self, other)


def __reversed__(self: Tensor) -> Tensor:
    return self.flip([0]) if self.dim() else self


def _own_values(self: Tensor, name: str) -> None:
    if self.requires_grad:
        raise RuntimeError(
            f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead."
        )


def _mapped(name: str, count: int) -> Callable:
    """Returns Tensor.map_ and similar methods: elements become results of a Python function of the
    elements at their position.
    """

    def f(self: Tensor, *arguments: Any) -> Tensor:
        _own_values(self, name)
        if len(arguments) != count + 1 or not callable(arguments[-1]):
            wanted = "a function" if not count else f"{count} tensor{'s' * (count > 1)} and a function"
            raise TypeError(f"{name}() expects {wanted}")
        *others, function = arguments
        columns = [self.detach(), *(t.detach().expand(self.shape) for t in others)]
        rows = zip(*(t.reshape(-1).tolist() for t in columns))
        values = [function(*row) for row in rows]
        with _C.GradMode(False):
            self.copy_(_C.tensor(values, dtype=self.dtype).reshape(self.shape))
        return self

    f.__name__ = name
    f.__doc__ = "Elements become what a function of Python, called for each, gives: slow; for tests."
    return f


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """Returns the replacement of self when ``load_state_dict`` loads ``other`` and modules swap their
    tensors.
    """
    if not assign:
        return self.copy_(other).detach()
    from .nn.parameter import Parameter

    if isinstance(self, Parameter):
        return other if isinstance(other, Parameter) else type(self)(other.detach(), self.requires_grad)
    return other.detach()


def set_(
    self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None
) -> Tensor:
    """Makes the tensor an alias of the memory of ``source``, a tensor or a storage."""
    from .storage import TypedStorage, UntypedStorage

    if source is None:
        memory = _f.empty([0], dtype=self.dtype)
    elif isinstance(source, (TypedStorage, UntypedStorage)):
        memory = source._elements
        memory = memory.view(self.dtype) if isinstance(source, UntypedStorage) else memory
    else:
        if not isinstance(source, _C.Tensor):
            raise TypeError(
                f"set_(): argument 'source' must be Tensor or Storage, not {type(source).__name__}"
            )
        memory = source.detach()
    if memory.dtype != self.dtype:
        raise RuntimeError(f"set_: could not set a tensor of {memory.dtype} to a tensor of {self.dtype}")
    if size is not None:
        sizes = [size] if isinstance(size, int) else list(size)
        steps = list(stride or ())
        if not steps:
            steps = _f.empty(sizes, device="cpu").stride() if sizes else []
        memory = memory.as_strided(sizes, steps, storage_offset)
    with _C.GradMode(False):
        self.data = memory
    return self


def storage_type(self: Tensor) -> Any:
    """Returns the class of its storage: FloatStorage for float32."""
    from . import storage

    return getattr(storage, self.storage().pickle_storage_type())


def const_data_ptr(self: Tensor) -> int:
    """Returns data_ptr, for reading only."""
    return self.data_ptr()


def is_coalesced(self: Tensor) -> bool:
    """Returns whether a sparse tensor has no duplicate indices, in ascending order."""
    if self.layout is not _C.sparse_coo:
        layout_name = {_C.strided: "Strided", _C.sparse_csr: "SparseCsr"}.get(self.layout, "SparseCsc")
        raise RuntimeError(f"is_coalesced expected sparse coordinate tensor layout but got {layout_name}")
    return self._sparse_info()[2]


def _nnz(self: Tensor) -> int:
    """Returns the number of stored elements of a sparse tensor."""
    info = self._sparse_info()
    if info is None:
        raise NotImplementedError("_nnz expected sparse tensor layout but got Strided")
    return info[0]


def sparse_dim(self: Tensor) -> int:
    """Returns the number of sparse dimensions."""
    info = self._sparse_info()
    return info[1] if info else 0


def dense_dim(self: Tensor) -> int:
    """Returns the number of dimensions that are not sparse."""
    return self.dim() - sparse_dim(self)


def _of_quantized(name: str) -> Callable:
    """Returns a method that only quantised tensors support."""

    def method(self: Tensor) -> Any:
        from . import _quantized

        return getattr(_quantized, name)(self)

    return method


def record_stream(self: Tensor, s: Any) -> None:
    raise RuntimeError("record_stream: there are no streams without a GPU")


def xpu(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    raise AssertionError("Facula not compiled with XPU enabled")


def ipu(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    raise AssertionError("Facula not compiled with IPU enabled")


def mtia(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    raise AssertionError("Facula not compiled with MTIA enabled")


def reinforce(self: Tensor, reward: Any) -> None:
    raise RuntimeError(f"reinforce() was removed. Use {_C.package_name()}.distributions instead.")


def _removed(name: str, instead: str) -> Callable:
    def f(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{name}: this function was deprecated and is removed; use {instead}")

    f.__name__ = name
    return f


def _of_sparse(name: str) -> Callable:
    def f(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.layout is not _C.strided:
            raise NotImplementedError(f"{name} is not there for tensors of layout {self.layout}")
        raise RuntimeError(f"{name} expected sparse coordinate tensor layout but got Strided")

    f.__name__ = name
    return f


_sparse_coo_of, _sparse_csr_of, _sparse_csc_of = (  # the operators
    Tensor.to_sparse, Tensor.to_sparse_csr, Tensor.to_sparse_csc
)  # fmt: skip


def to_sparse(
    self: Tensor,
    sparse_dim: int | None = None,
    *,
    layout: _C.layout | None = None,
    blocksize: Any = None,
    dense_dim: int | None = None,
) -> Tensor:
    """Returns the elements that are not 0, in a sparse layout: sparse_coo, with ``sparse_dim`` leading
    sparse and ``dense_dim`` trailing dense dimensions, sparse_csr or sparse_csc.
    """
    if sparse_dim is not None and (layout, blocksize, dense_dim) != (None, None, None):
        raise TypeError("to_sparse: sparse_dim is given without layout, blocksize and dense_dim")
    if layout is not None and type(layout) is not _C.layout:
        raise TypeError(f"to_sparse: layout must be a torch.layout, not {type(layout).__name__}")
    wanted = _C.sparse_coo if layout is None else layout
    if wanted not in (_C.sparse_coo, _C.sparse_csr, _C.sparse_csc, self.layout):
        raise NotImplementedError(
            f"to_sparse: layout {wanted} is not supported; sparse_coo, sparse_csr and sparse_csc are"
        )
    if blocksize is not None:
        raise RuntimeError(
            f"to_sparse: conversion from {self.layout} to {wanted} with blocksize argument given is not "
            "supported"
        )
    if dense_dim is not None and not 0 <= dense_dim <= self.dim():
        raise RuntimeError(f"to_sparse: dense_dim must be between 0 and {self.dim()}, got {dense_dim}")
    if layout is not None and wanted is self.layout:
        return self
    if wanted in (_C.sparse_csr, _C.sparse_csc):
        if dense_dim:
            raise NotImplementedError(f"to_sparse: matrices of layout {wanted} have no dense dimensions")
        return _sparse_csr_of(self) if wanted is _C.sparse_csr else _sparse_csc_of(self)
    return _sparse_coo_of(self, self.dim() - dense_dim if dense_dim else sparse_dim)


def resize(self: Tensor, *sizes: Any) -> Tensor:
    """Returns a view with other sizes and the same number of elements; ``reshape`` under a former name."""
    import math
    import warnings

    warnings.warn("non-inplace resize is deprecated", stacklevel=2)
    wanted = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if math.prod(wanted) != self.numel():
        raise RuntimeError(
            f"resize(): requested resize to {list(wanted)}, but the given tensor has shape "
            f"{list(self.shape)}: resize can only change the shape of a given tensor, while preserving the "
            "number of elements"
        )
    return self.contiguous().view(list(wanted))


def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """Resizes to the sizes of another tensor."""
    return resize(self, *tensor.shape)


def _fact(name: str, value: Any) -> None:
    if name not in vars(Tensor):
        setattr(Tensor, name, property(lambda self: value))


def _add(name: str, f: Callable) -> None:
    if name not in vars(Tensor) or name in ("__contains__", "__format__", "to_sparse"):
        f.__name__ = f.__qualname__ = name
        setattr(Tensor, name, f if name.startswith("_") else _C.Overridable(f))


for _g in (
    __copy__,
    new_full,
    new_tensor,
    __format__,
    register_post_accumulate_grad_hook,
    is_shared,
    share_memory_,
    __contains__,
    __array_wrap__,
    __reversed__,
    _make_subclass,
    _make_wrapper_subclass,
    is_pinned,
    pin_memory,
    is_same_size,
    dim_order,
    polygamma_,
    untyped_storage,
    storage,
    __rdiv__,
    new,
    cuda,
    module_load,
    set_,
    storage_type,
    const_data_ptr,
    is_coalesced,
    _nnz,
    sparse_dim,
    dense_dim,
    record_stream,
    xpu,
    ipu,
    mtia,
    reinforce,
    resize,
    resize_as,
):
    _add(_g.__name__, _g)
for _n, _k in (("apply_", 0), ("map_", 1), ("map2_", 2)):
    _add(_n, _mapped(_n, _k))
for _n, _instead in (
    ("eig", "linalg.eig"), ("symeig", "linalg.eigh"), ("solve", "linalg.solve"), ("lstsq", "linalg.lstsq")
):  # fmt: skip
    _add(_n, _removed(_n, _instead))
for _n in (
    "dequantize", "int_repr", "q_per_channel_axis", "q_per_channel_scales", "q_per_channel_zero_points",
    "q_scale", "q_zero_point", "qscheme",
):  # fmt: skip
    _add(_n, _of_quantized(_n))
for _n in ("sparse_resize_", "sparse_resize_and_clear_"):
    _add(_n, _of_sparse(_n))
_add("is_distributed", lambda self: False)
for _n in "is_ipu is_maia is_mtia is_vulkan is_xla is_xpu volatile".split():
    _fact(_n, False)
_fact("name", None)
# PyTorch's other name of `grad`, which packages use that convert parameters.
setattr(Tensor, "_grad", vars(Tensor)["grad"])  # noqa: B010


def _to_padded_tensor(self: Tensor, padding: float, output_size: Any = None) -> Tensor:
    """Returns the rows of a nested tensor as a dense tensor, padded with ``padding``."""
    from .nested import to_padded_tensor

    return to_padded_tensor(self, padding, output_size)


_add("to_padded_tensor", _to_padded_tensor)
_add("to_sparse", to_sparse)
_add("to_sparse_coo", lambda self: self.to_sparse())
Tensor.grad_dtype = property(  # type: ignore[attr-defined]
    _C.grad_dtype, _C.set_grad_dtype, None, "The dtype of a leaf's gradient, which may be set; None: any."
)
for _n in ("zeros", "ones", "empty"):
    _add("new_" + _n, _sized(getattr(_f, _n)))
for _n in ("adjoint", "allclose", "equal", "is_nonzero", "nonzero"):
    _add(_n, _from_functions(_n))
for _n in ("tile", "unique", "unique_consecutive", "ravel", "lu"):
    _add(_n, _from_functions(_n, "_composed"))


# ---- subclasses with a __torch_function__ method

# Special methods that are not operators; arithmetic and indexing handle overrides themselves.
_SYNTAX = frozenset("__len__ __bool__ __float__ __int__ __index__ __iter__ __contains__ __repr__".split())
_UNTOUCHED = frozenset(["__dict__", "__weakref__", "__doc__", "__class__", "_storage_info", "as_subclass"])


def _natives() -> Any:
    """Returns Tensor's attributes that are not operators: name, descriptor, and whether it is a property."""
    own, slots = _C.own_methods(), type(Tensor.__len__)
    for name, d in list(vars(Tensor).items()):
        # handles overrides itself
        if name in _UNTOUCHED or isinstance(d, (_C.Overridable, _C.OverridableAttribute)):
            continue
        if hasattr(type(d), "__set__"):
            yield name, d, True
        elif isinstance(d, slots):
            if name in _SYNTAX:
                yield name, d, False
        elif name in own or hasattr(d, "__code__"):
            if name not in ("__reduce_ex__", "__init_subclass__"):
                yield name, d, False


def _make_overridable(cls: type) -> None:
    """Passes attributes that are not operators to the class's ``__torch_function__`` too; those of Tensor
    itself, to modes.
    """
    before = cls.__mro__[: cls.__mro__.index(Tensor)]
    for name, native, is_property in _natives():
        if not any(name in vars(c) for c in before):
            asking = _C.OverridableAttribute(native) if is_property else _C.Overridable(native, False)
            setattr(cls, name, asking)


_C.set_subclass_helper(_make_overridable)
