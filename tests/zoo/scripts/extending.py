"""Extending PyTorch: objects and subclasses with __torch_function__, units, metadata, logs, modes, __torch_dispatch__, quaternions."""

import functools
import math

import numpy as np
import torch
from torch.overrides import TorchFunctionMode, is_tensor_like, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

torch.set_printoptions(precision=4, sci_mode=False)
HANDLED_FUNCTIONS = {}


def implements(torch_function):
    def decorator(func):
        functools.update_wrapper(func, torch_function)
        HANDLED_FUNCTIONS[torch_function] = func
        return func

    return decorator


class ScalarTensor:
    """A diagonal matrix with one value."""

    def __init__(self, N, value):
        self._N, self._value = N, value

    def __repr__(self):
        return f"ScalarTensor(N={self._N}, value={self._value})"

    def tensor(self):
        return self._value * torch.eye(self._N)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in HANDLED_FUNCTIONS or not all(
            issubclass(t, (torch.Tensor, ScalarTensor)) for t in types
        ):
            return NotImplemented
        return HANDLED_FUNCTIONS[func](*args, **(kwargs or {}))


@implements(torch.mean)
def mean(input):
    return float(input._value) / input._N


def ensure_tensor(data):
    return data.tensor() if isinstance(data, ScalarTensor) else torch.as_tensor(data)


@implements(torch.add)
def add(input, other):
    if isinstance(input, ScalarTensor) and isinstance(other, ScalarTensor) and input._N == other._N:
        return ScalarTensor(input._N, input._value + other._value)
    return torch.add(ensure_tensor(input), ensure_tensor(other))


d = ScalarTensor(2, 3)
print(d, torch.mean(d), torch.add(d, d), torch.add(d, torch.ones(2, 2)), is_tensor_like(d))
try:
    torch.mul(d, 3)
except TypeError as e:
    print("TypeError", "mul" in str(e))


class MetadataTensor:
    def __init__(self, data, metadata=None):
        self._t, self._metadata = torch.as_tensor(data), metadata

    def __repr__(self):
        return f"Metadata:\n{self._metadata}\n\ndata:\n{self._t}"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        metadatas = tuple(a._metadata for a in args if hasattr(a, "_metadata"))
        args = [getattr(a, "_t", a) for a in args]
        assert len(metadatas) > 0
        return MetadataTensor(func(*args, **(kwargs or {})), metadata=metadatas[0])


m = MetadataTensor([[1.0], [2.0]], metadata={"owner": "Ministry of Silly Walks"})
print(torch.add(m, torch.tensor([[1.0, 2.0]])), torch.mul(torch.tensor(2.0), m))


class LoggingTensor(torch.Tensor):
    calls = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = resolve_name(func)
        if name is not None and "__get__" not in name:
            cls.calls.append(name.split(".")[-1])
        return super().__torch_function__(func, types, args, kwargs or {})


t = torch.arange(4.0).as_subclass(LoggingTensor).requires_grad_()
y = (t.sin() * 2 + t[1:].sum()).mean()
y.backward()
print(type(y).__name__, LoggingTensor.calls, type(t.grad).__name__, t.grad.as_subclass(torch.Tensor))


class Unit(torch.Tensor):
    """Numbers with a unit, checked in sums, multiplied in products."""

    @staticmethod
    def __new__(cls, x, unit="m", *args, **kwargs):
        return super().__new__(cls, x, *args, **kwargs)

    def __init__(self, x, unit="m"):
        self.unit = unit

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        units = [a.unit for a in args if isinstance(a, Unit)]
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        if not isinstance(result, torch.Tensor) or result.dtype == torch.bool:
            return result
        if func in (torch.Tensor.add, torch.Tensor.sub, torch.add) and len(set(units)) > 1:
            raise ValueError(f"cannot add {units[0]} to {units[1]}")
        unit = "*".join(units) if func in (torch.Tensor.mul, torch.mul) else units[0]
        return Unit(result.as_subclass(torch.Tensor), unit)


length, time = Unit(torch.tensor([1.0, 2.0])), Unit(torch.tensor([3.0, 4.0]), "s")
print((length * time).unit, (length + length).unit, length.sqrt().unit, (length > 1).tolist())
try:
    length + time
except ValueError as e:
    print(e)


class CountingMode(TorchFunctionMode):
    def __init__(self):
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


with CountingMode() as outer:
    a = torch.sin(torch.ones(2))
    with CountingMode() as inner:
        torch.cos(a)
    torch.exp(a)
print(outer.names, inner.names)


class DeviceMode(TorchFunctionMode):
    """Everything is made in double precision."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in (torch.rand, torch.zeros, torch.ones, torch.full):
            kwargs.setdefault("dtype", torch.float64)
        return func(*args, **kwargs)


with DeviceMode():
    print(torch.zeros(2).dtype, torch.ones(1).dtype, torch.nn.Linear(1, 1).weight.dtype)


class OpCounter(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops.append(str(func.overloadpacket))
        return func(*args, **(kwargs or {}))


w = torch.ones(3, 2, requires_grad=True)
with OpCounter() as counter:
    loss = (torch.ones(4, 3).mm(w)).relu().sum()
print([name for name in counter.ops if name != "aten.detach"])


class Wrapper(torch.Tensor):
    """Holds a tensor of another dtype than it shows."""

    elem: torch.Tensor

    @staticmethod
    def __new__(cls, elem):
        r = torch.Tensor._make_wrapper_subclass(
            cls, elem.size(), dtype=torch.float64, requires_grad=elem.requires_grad
        )
        r.elem = elem
        return r

    def __repr__(self):
        return f"Wrapper({self.elem})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def unwrap(e):
            return e.elem if isinstance(e, Wrapper) else e

        def wrap(e):
            return Wrapper(e) if isinstance(e, torch.Tensor) else e

        return tree_map(wrap, func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {})))


z = Wrapper(torch.tensor([1.0, 2.0]))
print(z + z, (z * 3).dtype, torch.cat([z, z]), z.elem.dtype)

# ---- NumPy's protocol, and Python's


class Polynomial:
    def __init__(self, *coefficients):
        self.c = torch.tensor(coefficients)

    def __call__(self, x):
        return sum(c * x**k for k, c in enumerate(self.c))

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.add:
            n = max(len(a.c) for a in args)
            return Polynomial(*sum(torch.nn.functional.pad(a.c, (0, n - len(a.c))) for a in args).tolist())
        return NotImplemented


p = torch.add(Polynomial(1.0, 2.0), Polynomial(0.0, 1.0, 3.0))
print(p.c, p(torch.tensor(2.0)), np.asarray(p.c).sum(), math.floor(torch.tensor(2.7)))
