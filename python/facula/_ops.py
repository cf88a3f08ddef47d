"""``facula.ops``: operators by namespace, name and overload, from the registry. Those of the catalog are
in ``ops.aten``, those of users (:mod:`facula.library`) in the users' namespaces.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from . import _C
from ._unsupported import OPERATORS, RefusedOperator

__all__ = ["OpOverload", "OpOverloadPacket", "ops"]


class Argument(NamedTuple):
    """A parameter of a schema."""

    name: str
    type: str
    has_default: bool
    default_value: Any
    kwarg_only: bool
    is_alias: bool
    is_write: bool

    def has_default_value(self) -> bool:
        return self.has_default

    @property
    def alias_info(self) -> Any:
        return self if self.is_alias else None


class Return(NamedTuple):
    name: str
    type: str
    is_alias: bool
    is_write: bool

    @property
    def alias_info(self) -> Any:
        return self if self.is_alias else None


class FunctionSchema:
    """An operator's arguments and results; ``str`` returns the text of its definition."""

    def __init__(self, facts: dict, namespace: str, overload: str) -> None:
        self.name = facts["name"] if "::" in facts["name"] else f"{namespace}::{facts['name']}"
        self.overload_name = "" if overload == "default" else overload
        self.arguments = [Argument(*p) for p in facts["parameters"]]
        self.returns = [Return(*r) for r in facts["returns"]]
        self.is_mutable = any(a.is_write for a in self.arguments)
        self._text = facts["schema"][facts["schema"].index("(") :]

    def __str__(self) -> str:
        return f"{self.name}{'.' * bool(self.overload_name)}{self.overload_name}{self._text}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSchema) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class OpOverload:
    """One operator: ``facula.ops.aten.add.Tensor``. Calling it checks the arguments against its schema."""

    def __init__(self, packet: OpOverloadPacket, overload: str, operators: list[str], in_place: bool) -> None:
        self._overloadpacket = self.overloadpacket = packet
        self._overloadname, self.namespace, self._opname = overload, packet._namespace, packet._name
        self._operators = operators
        facts = _C.operator_facts(operators[0])
        self._schema = FunctionSchema(facts, packet._namespace, overload)
        self._composite, self.is_view = facts["composite"], facts["view"]
        self._op = _C.operator_call(packet._called, operators, in_place, self)
        self.__name__ = f"{packet._name}.{overload}"
        self.__qualname__ = str(self)
        self.__module__ = f"{__name__}.{packet._namespace}"
        self._functions = _defined.get(operators[0])  # for a user's operator

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self._functions is not None and self._functions.autocast:
            args, kwargs = self._functions.autocast_arguments(args, kwargs)
        return self._op(*args, **kwargs)

    @property
    def tags(self) -> list:
        """The sets of operators that contain it: see :mod:`facula._operator_sets`."""
        from ._operator_sets import tags_of

        return tags_of(self._operators[0])

    def name(self) -> str:
        """Returns ``aten::add.Tensor``; without the overload if it is the default one."""
        overload = "" if self._overloadname == "default" else "." + self._overloadname
        return f"{self.namespace}::{self._opname}{overload}"

    _name = property(name)

    def __str__(self) -> str:
        return f"{self.namespace}.{self._opname}.{self._overloadname}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpOverload) and self.name() == other.name()

    def __hash__(self) -> int:
        return hash(self.name())

    def __reduce__(self) -> tuple:
        return _operator, (self.namespace, self._opname, self._overloadname)

    def __deepcopy__(self, memo: Any) -> OpOverload:
        return self

    def _can_decompose(self) -> bool:
        return self._composite


# The functions of users' operators, by full name of the operator.
_defined: dict[str, Any] = {}

_TYPES = {"Tensor", "Scalar", "int", "ints", "IntList", "float", "bool", "str", "dtype", "device", "list"}


class OpOverloadPacket:
    """All overloads of a name: ``facula.ops.aten.add``. Calling it uses the first overload that matches
    the arguments.
    """

    def __init__(self, namespace: str, name: str, operators: list[str], in_place: bool) -> None:
        self._namespace, self._name, self._in_place = namespace, name, in_place
        self._called = name if namespace == "aten" else f"{namespace}::{name}"
        self._qualified_op_name = f"{namespace}::{name}"
        self._by_overload = {(full.partition(".")[2] or "default"): full for full in operators}
        self._op = _C.operator_call(self._called, operators, in_place, self)
        self._others: dict[tuple[str, str], OpOverload] = {}
        self._functions = _defined.get(operators[0]) if len(operators) == 1 else None  # for a user's operator
        self.__name__ = name
        self.__module__ = f"{__name__}.{namespace}"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        taken = _C.has_torch_function((*args, *kwargs.values()))  # the call is then told as one of the packet
        if self._namespace != "aten" and len(self._by_overload) == 1 and not taken:
            return getattr(self, next(iter(self._by_overload)))(*args, **kwargs)
        return self._op(*args, **kwargs)

    def overloads(self) -> list[str]:
        facts = map(_C.operator_facts, self._by_overload.values())
        out = not self._in_place and any(f["out"] for f in facts)
        return [*self._by_overload, *(["out"] if out else [])]

    def __getattr__(self, overload: str) -> OpOverload:
        is_private = overload.startswith("_") and overload not in vars(self).get("_by_overload", ())
        operators = [] if is_private else self._overload(overload)
        if not operators:
            raise AttributeError(
                f"The underlying op of '{self._namespace}.{self._name}' has no overload name '{overload}'"
            )
        resolved = OpOverload(self, overload, operators, self._in_place)
        setattr(self, overload, resolved)
        return resolved

    def _overload(self, overload: str) -> list[str]:
        """Returns the operators behind an overload of PyTorch: one overload here may serve several, which
        PyTorch names after the types or names of their parameters.
        """
        if overload in self._by_overload:
            return [self._by_overload[overload]]
        every = list(self._by_overload.values())
        if self._namespace != "aten":
            return []
        if overload == "default":
            return every
        facts = [_C.operator_facts(full) for full in every]
        words = set(re.split("_", overload))
        out = {"out"} if any(f["out"] for f in facts) and not self._in_place else set()
        parameter_names = [{p[0] for p in f["parameters"]} | _TYPES | out for f in facts]
        matching = [full for full, names in zip(every, parameter_names) if words <= names]
        names = _named()
        of_pytorch = names.get(self._name, []) + (names.get(self._name + ".out", []) if out else [])
        return matching or (every if any(overload == o for o, *_ in of_pytorch) else [])

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *self.overloads()]

    def __str__(self) -> str:
        return f"{self._namespace}.{self._name}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __reduce__(self) -> tuple:
        return _operator, (self._namespace, self._name)


def _operator(namespace: str, name: str, overload: str | None = None) -> Any:
    packet = getattr(getattr(ops, namespace), name)
    return packet if overload is None else getattr(packet, overload)


class HigherOrderOperator:
    """An operator whose arguments may be functions. ``py_impl`` registers a function for a dispatch key; a
    call takes that of Autograd where a gradient is needed, else that of the device.
    """

    def __init__(self, name: str, *, cacheable: bool = False) -> None:
        self._name = self.__name__ = name
        self.py_kernels: dict[Any, Callable] = {}

    def name(self) -> str:
        return self._name

    def namespace(self) -> str:
        return "higher_order"

    def py_impl(self, k: Any) -> Callable[[Any], Any]:
        """A decorator that registers a function for a dispatch key, a mode or a class of tensors."""

        def register(f: Any) -> Any:
            key = getattr(k, "name", k)
            if key in self.py_kernels:
                raise RuntimeError(f"Trying to override a python impl for {k} on operator {self._name}")
            self.py_kernels[key] = f
            return f

        return register

    def py_autograd_impl(self, f: Any) -> Any:
        return self.py_impl("Autograd")(f)

    def py_functionalize_impl(self, f: Any) -> Any:
        return self.py_impl("Functionalize")(f)

    def fallthrough(self, dispatch_key: Any) -> None:
        """No effect: a call passes by keys that have no function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from .utils._pytree import tree_leaves

        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, _C.Tensor)]
        tracked = _C.is_grad_enabled() and any(t.requires_grad for t in tensors)
        keys = ["Autograd", "AutogradCPU"] if tracked else []
        for key in (*keys, "CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd"):
            if key in self.py_kernels:
                return self.py_kernels[key](*args, **kwargs)
        there = ", ".join(sorted(map(str, self.py_kernels))) or "none"
        raise NotImplementedError(f"{self._name}: there is no function for the CPU; registered are {there}")

    def __str__(self) -> str:
        return self._name


# By namespace: the module whose ``find(name)`` returns an operator that is a function of Python, or None.
_FUNCTIONS = {"quantized": "_quantized_ops", "quantized_decomposed": "_quantized_decomposed"}


class _OpNamespace(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(f"{__name__.partition('.')[0]}.ops.{name}")
        self._ns = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        base = name if self._ns == "aten" else f"{self._ns}::{name}"
        operators, in_place = _C.operator_overloads(base), False
        if not operators and base.endswith("_"):
            operators = [n for n in _C.operator_overloads(base[:-1]) if _C.operator_facts(n)["in_place"]]
            in_place = True
        if not operators and self._ns == "aten" and name in OPERATORS:
            refused = self.__dict__[name] = RefusedOperator(f"aten.{name}")
            return refused
        if not operators and self._ns in _FUNCTIONS:
            find = importlib.import_module(f".{_FUNCTIONS[self._ns]}", __package__).find
            if (function := find(name)) is not None:
                setattr(self, name, function)
                return function
        if not operators:
            raise AttributeError(f"'_OpNamespace' '{self._ns}' object has no attribute '{name}'")
        packet = OpOverloadPacket(self._ns, name, operators, in_place)
        setattr(self, name, packet)
        return packet


class _HigherOrder:
    """``facula.ops.higher_order``: operators whose arguments include functions."""

    def __getattr__(self, name: str) -> HigherOrderOperator:
        from ._higher_order_ops._regions import REGIONS

        if name not in REGIONS:
            raise AttributeError(f"'_OpNamespace' 'higher_order' object has no attribute '{name}'")
        return REGIONS[name]


class _Ops(ModuleType):
    """Operators by namespace: ``facula.ops.aten``, and the namespaces of users' libraries."""

    def __init__(self) -> None:
        super().__init__(f"{__name__.partition('.')[0]}.ops")
        self.loaded_libraries: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "higher_order":
            return _HigherOrder()
        namespace = _OpNamespace(name)
        setattr(self, name, namespace)
        return namespace

    def load_library(self, path: str | os.PathLike[str]) -> None:
        """Loads a shared library and makes its operators and classes (:data:`facula.classes`) available:
        all, or none if it raises. Raises OSError if the file does not exist or the system cannot load it,
        RuntimeError if it was compiled against another Facula or a registration is faulty.
        """
        path = os.path.abspath(path) if os.path.exists(path) else os.fspath(path)
        _announce(_C.load_library(path))
        self.loaded_libraries.add(path)


ops = _Ops()


class FunctionOperator:
    """An overload that is a function of Python; a trace records the operators that it calls."""

    def __init__(self, namespace: str, name: str, overload: str, function: Callable[..., Any]) -> None:
        self.namespace, self._opname, self._overloadname = namespace, name, overload
        self._function = function
        self.__name__ = f"{name}.{overload}"
        self.__module__ = f"{__name__}.{namespace}"
        self.__qualname__ = str(self)
        self.__doc__ = function.__doc__
        setattr(self, overload, self)  # an operator with one overload is its own packet

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def name(self) -> str:
        """Returns ``aten::sym_size.int``; without the overload if it is the default one."""
        overload = "" if self._overloadname == "default" else "." + self._overloadname
        return f"{self.namespace}::{self._opname}{overload}"

    def __str__(self) -> str:
        return f"{self.namespace}.{self._opname}.{self._overloadname}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"

    def __reduce__(self) -> tuple:
        return _operator, (self.namespace, self._opname, self._overloadname)

    def __deepcopy__(self, memo: dict) -> FunctionOperator:
        return self


class SizeOperator(FunctionOperator):
    """An operator that returns a size of a tensor instead of a tensor: ``facula.ops.aten.sym_size.int``."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        super().__init__("aten", name, "int", function)


ops.aten.sym_size = SizeOperator("sym_size", _C.Tensor.size)
ops.aten.sym_stride = SizeOperator("sym_stride", _C.Tensor.stride)


def _announce(operators: list[str]) -> None:
    """Invalidates cached names of operators that were loaded with a library."""
    for full in operators:
        namespace, _, name = full.partition("::")
        if name:
            forget(namespace, name.partition(".")[0])


# ---- the overload of a call, as dispatch modes see it


def _kinds(x: Any) -> str:
    """Returns the kinds of parameters (_overload_names.py) that accept an argument."""
    if x is None:
        return "TNLSifbsIFdg"
    if isinstance(x, _C.Tensor):
        return "TN"
    if isinstance(x, (list, tuple)):
        tensors = any(isinstance(t, _C.Tensor) for t in x)
        return "L" if tensors else "IF" if x and not any(i is None for i in x) else "ILF"
    if isinstance(x, bool):
        return "bNSi"
    if isinstance(x, int):
        return "iNSf"
    if isinstance(x, float):
        return "fNS"
    if isinstance(x, complex):
        return "NS"
    return "s" if isinstance(x, str) else "g" if isinstance(x, _C.Generator) else "d"


@functools.cache
def _named() -> dict[str, list[tuple[str, str, set[str]]]]:
    from ._overload_names import NAMES

    named: dict[str, list[tuple[str, str, set[str]]]] = {}
    for line in NAMES.strip().split("\n"):
        name, overload = line.split()
        overload, kinds, keywords = (overload + "::").split(":")[:3]
        named.setdefault(name, []).append((overload, kinds, set(keywords.split(",")) - {""}))
    return named


def _overload_name(name: str, own: str, out: bool, args: tuple, kwargs: dict) -> str:
    """Returns PyTorch's name of the overload that accepts these arguments; ``own`` is our name."""
    usual = "out" if out else "default"
    overloads = _named().get(name + ".out" * out)
    if overloads is None:
        return usual if out else own or usual
    keywords = {
        k for k in kwargs if k not in ("out", "dtype", "layout", "device", "pin_memory", "memory_format")
    }
    fitting = [
        (len(kinds) != len(args), overload)
        for overload, kinds, names in overloads
        if len(args) <= len(kinds)
        and all(k in _kinds(x) for k, x in zip(kinds, args))
        and keywords <= names
        and ("generator" in keywords or "generator" not in overload)
    ]
    if fitting:  # the one with the fewest arguments
        return min(fitting, key=lambda candidate: candidate[0])[1]
    return usual if any(o == usual for o, *_ in overloads) else overloads[0][0]


_derived: dict[str, OpOverload] = {}  # gradients derived from definitions, by full name


def _shown(full_name: str, form: str, args: tuple, kwargs: dict) -> OpOverload:
    """Returns the overload that represents a call of an operator: ``form`` is functional, in_place or
    out.
    """
    base, _, own = full_name.partition(".")
    namespace, _, name = base.rpartition("::")
    if "=" in own:
        if full_name not in _derived:
            packet = OpOverloadPacket("aten", name, [full_name], False)
            _derived[full_name] = OpOverload(packet, "default", [full_name], False)
        return _derived[full_name]
    name += "_" * (form == "in_place")
    packet = getattr(getattr(ops, namespace or "aten"), name)
    overload = (own or "default") if namespace else _overload_name(name, own, form == "out", args, kwargs)
    if full_name in packet._overload(overload):
        return getattr(packet, overload)
    key = overload, full_name  # a derived operator, such as the batch of another one
    if key not in packet._others:
        packet._others[key] = OpOverload(packet, overload, [full_name], form == "in_place")
    return packet._others[key]


_C.set_overload_source(_shown)


def operator_of(schema: FunctionSchema) -> OpOverload:
    """Returns the overload with this schema."""
    namespace, _, name = schema.name.partition("::")
    return _operator(namespace, name, schema.overload_name or "default")


def forget(namespace: str, name: str) -> None:
    """Invalidates the overloads of a name."""
    vars(getattr(ops, namespace)).pop(name, None)
